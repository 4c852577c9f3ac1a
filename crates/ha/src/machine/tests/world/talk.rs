//! What agents ask each other: late, lost and doubled.

use super::*;

#[derive(Clone, Debug)]
pub(super) struct Letter {
    due: u64,
    from: usize,
    to: usize,
    /// Which process asked; its answer goes to that one alone.
    boots: u64,
    sent: Instant,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Question(Question),
    Answer(Answer),
}

impl World {
    fn post(&mut self, letter: Letter) {
        if !self.linked(letter.from, letter.to) || self.chance.one_in(10) {
            return;
        }
        if self.chance.one_in(20) {
            let due = self.tick + self.chance.from(5..50);
            self.letters.push(Letter { due, ..letter.clone() });
        }
        self.letters.push(letter);
    }

    fn soon(&mut self) -> u64 {
        self.tick + if self.chance.one_in(15) { self.chance.from(5..40) } else { self.chance.from(1..3) }
    }

    pub(super) fn ask_peers(&mut self, number: usize) {
        let now = self.now();
        let Some((question, names)) = self.nodes[number].machine.question(now) else { return };
        for to in (0..self.nodes.len()).filter(|to| names.contains(&name((*to).try_into().unwrap()))) {
            if self.nodes[number].asked.get(&to).is_some_and(|last| self.tick < last + 2) {
                continue;
            }
            self.nodes[number].asked.insert(to, self.tick);
            let (due, boots) = (self.soon(), self.nodes[number].boots);
            let what = What::Question(question.clone());
            self.post(Letter { due, from: number, to, boots, sent: now, what });
        }
    }

    pub(super) fn hear_from_peers(&mut self, number: usize) {
        let mine = |letter: &mut Letter| letter.to == number && letter.due <= self.tick;
        let due: Vec<Letter> = self.letters.extract_if(.., mine).collect();
        for letter in due {
            if !self.linked(letter.from, number) {
                continue;
            }
            match letter.what {
                What::Question(question) => {
                    self.step(number, Input::Asked(question));
                    let (due, what) = (self.soon(), What::Answer(self.nodes[number].machine.answer()));
                    self.post(Letter { due, from: number, to: letter.from, what, ..letter });
                }
                What::Answer(answer) if letter.boots == self.nodes[number].boots => {
                    self.step(number, Input::Answered { sent: letter.sent, answer });
                }
                What::Answer(_) => {}
            }
        }
        let missed = self.nodes[number].machine.misses().map(ToOwned::to_owned);
        let Some(other) =
            (0..self.nodes.len()).find(|other| Some(name((*other).try_into().unwrap())) == missed)
        else {
            return;
        };
        let refuses = self.nodes[other].down.is_some() && self.linked(number, other);
        if (refuses || self.tick < self.nodes[other].walled) && self.chance.one_in(3) {
            self.step(number, Input::Refused(name(other.try_into().unwrap())));
        }
    }
}
