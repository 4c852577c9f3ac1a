//! Questions to other agents: asked again and again for as long as leadership wants to know.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use keelson_ha::{Input, Machine};
use tokio::sync::mpsc;

use crate::peers::Peers;

/// How often other agents are asked the same again, and how long an answer may take.
const ASK: Duration = Duration::from_millis(150);
const ANSWER: Duration = Duration::from_millis(800);
/// How often it is looked whether a leader from which nothing comes is gone.
const PROBE: Duration = Duration::from_millis(250);

/// What is being asked of other agents.
pub struct Asking {
    peers: Peers,
    answers: mpsc::Sender<Input>,
    /// When each was last asked.
    asked: HashMap<String, Instant>,
    probed: Option<Instant>,
}

impl Asking {
    /// Nothing yet. What comes back goes to `answers`.
    pub fn new(peers: Peers, answers: mpsc::Sender<Input>) -> Asking {
        Asking { peers, answers, asked: HashMap::new(), probed: None }
    }

    /// Asks whom the machine wants to be asked, each not too often.
    pub fn go_on(&mut self, machine: &Machine, now: Instant) {
        if let Some((question, names)) = machine.question(now) {
            for name in names {
                if self.asked.get(&name).is_some_and(|last| now < *last + ASK) {
                    continue;
                }
                self.asked.insert(name.clone(), now);
                let (peers, answers, question) = (self.peers.clone(), self.answers.clone(), question.clone());
                tokio::spawn(async move {
                    let sent = Instant::now();
                    match peers.ask(&name, &question, ANSWER).await {
                        Ok(answer) => drop(answers.send(Input::Answered { sent, answer }).await),
                        Err(error) => tracing::debug!(%error, name, "another agent has not answered"),
                    }
                });
            }
        }
        if let Some(name) = machine.misses().filter(|_| self.probed.is_none_or(|last| now >= last + PROBE)) {
            self.probed = Some(now);
            let (peers, answers, name) = (self.peers.clone(), self.answers.clone(), name.to_owned());
            tokio::spawn(async move {
                if peers.refuses(&name, PROBE).await {
                    let _ = answers.send(Input::Refused(name)).await;
                }
            });
        }
    }

    /// When to go on.
    pub fn wake(&self, machine: &Machine, now: Instant) -> Instant {
        let asks = machine.question(now).is_some();
        let misses = machine.misses().is_some();
        let never = now + Duration::from_secs(60);
        (if asks { now + ASK } else { never }).min(if misses { now + PROBE } else { never })
    }
}
