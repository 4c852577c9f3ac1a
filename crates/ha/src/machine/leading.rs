//! What a leader does: it renews its Lease, keeps the quorum true, gives up when it can't write, and hands
//! over when it is asked to.

use super::restoring::Wish;
use super::*;
use crate::quorum::{self, Change};

/// How long a database may take to come to its first write, if another could be elected meanwhile.
pub(super) const START: Duration = Duration::from_secs(30);
/// How long after a change of what commits wait for it is in force for every process of the database.
const SETTLED: Duration = Duration::from_millis(300);

impl Term {
    /// What the database program does is news for the quorum.
    pub(super) fn learn(&mut self, instance: &Instance, as_wanted: bool, now: Instant) {
        for standby in instance.standbys.iter().filter(|standby| standby.streaming) {
            self.streamed.insert(standby.name.clone(), now);
        }
        self.written = self.written.max(instance.written);
        self.end = instance.position.or(self.end);
        let end = instance.position.map(|position| position.offset);
        self.in_force = match self.in_force {
            _ if !as_wanted || instance.running != Running::Primary => None,
            None => Some((now, None)),
            Some((since, None)) if now >= since + SETTLED => Some((since, end)),
            known => known,
        };
    }

    /// Those of which one is in the Lease.
    fn quorums(&self) -> impl Iterator<Item = &Quorum> {
        std::iter::once(&self.quorum).chain(&self.pending)
    }

    /// The last moment at which so many were asked, and confirmed, that the others can elect nobody.
    fn confirmed_since(&self, quorum: &Quorum, me: &str) -> Option<Instant> {
        // The leader itself is of its own mind, if it is one of those.
        let own = usize::from(quorum.names.contains(me));
        let needed = (quorum.names.len() + 1).saturating_sub(quorum.voters()).saturating_sub(own);
        let counted = self.confirmed.iter().filter(|(name, _)| quorum.names.contains(*name));
        let mut moments: Vec<Instant> = counted.map(|(_, sent)| *sent).collect();
        moments.sort_unstable_by(|one, other| other.cmp(one));
        moments.get(needed.max(1) - 1).copied()
    }

    /// Whether so many of those that commits wait for are there that commits end.
    fn has_enough(&self) -> bool {
        let there = self.commits.names.iter().filter(|name| self.streamed.contains_key(*name)).count();
        there >= self.commits.count
    }

    /// Whether enough of those that commits wait for have all that was acknowledged before they did.
    fn is_settled(&self, standbys: &[Standby]) -> bool {
        let Some((_, Some(end))) = self.in_force else { return planted::is(Bug::NeverUnsettled) };
        let has = |standby: &&Standby| self.commits.names.contains(&standby.name) && standby.offset >= end;
        standbys.iter().filter(has).count() >= self.commits.count || planted::is(Bug::NeverUnsettled)
    }
}

impl Machine {
    /// Renews the Lease; or releases it, when the database has ended.
    pub(super) fn lead(&mut self, now: Instant) -> Option<Request> {
        let look = self.next_look.is_none_or(|look| now >= look);
        let (Role::Leader(term) | Role::Yielding { term, .. }) = &self.role else { return None };
        let Version::Known(version) = &term.version else {
            return look.then(|| self.read(now)).flatten();
        };
        let (replaces, which, until) = (Some(version.clone()), (term.epoch, term.history), term.until);
        if let Role::Yielding { to, .. } = &self.role
            && (self.has_stopped() || planted::is(Bug::ReleaseWhileRunning))
        {
            let Some(successor) = self.heir(term, to.as_ref()) else {
                // A Lease that still has its name says that it may be the only one that has all; others are told, and can
                // be elected.
                if now >= until {
                    self.role = Role::Follower;
                }
                return None;
            };
            let draft = self.draft(None, which, Some(successor), term.quorum.clone());
            return self.ask(Asked::Release, Request::Write { draft, replaces }, now);
        }
        let quorum = match self.change() {
            Change::Lease(quorum) => Some(quorum),
            Change::Nothing | Change::Commits(_) => None,
        };
        // One that is to end at once, and does not, lets its term run out.
        let ending = matches!(&self.role, Role::Yielding { orderly: false, .. });
        let wish = self.restore_wish(term);
        if ending || !look && quorum.is_none() && wish.is_none() {
            return None;
        }
        let quorum = quorum.unwrap_or_else(|| term.quorum.clone());
        let wish = wish.unwrap_or_else(|| Wish { reserved: None, restores: term.restores.clone() });
        // From where a restore is decided on, nobody else may lead before he has copied it.
        let decides = wish.restores.origin != term.restores.origin;
        let quorum = if decides { Quorum::default() } else { quorum };
        let begun = which.1.max(wish.reserved.unwrap_or_default()).max(wish.restores.origin);
        let draft = self.draft(Some(self.me.holder.clone()), (which.0, begun), None, quorum.clone());
        let draft = Box::new(Draft { restores: wish.restores.clone(), ..*draft });
        if let Role::Leader(term) | Role::Yielding { term, .. } = &mut self.role {
            term.contested |= quorum.elects_without(&self.me.holder.name);
            if quorum != term.quorum {
                term.pending = Some(quorum.clone());
            }
            if decides {
                term.pending_restores = Some(wish.restores.clone());
            }
        }
        let ttl = self.settings.ttl;
        self.ask(Asked::Renew { quorum, wish, ttl }, Request::Write { draft, replaces }, now)
    }

    /// Whose the Lease is to take when it is let go. To name somebody is to say how far the log is: whoever has all of that
    /// may lead. One that did not end in good order can't know that, and leaves it to an election; where nobody else can be
    /// elected, it does not let go.
    fn heir(&self, term: &Term, to: Option<&Successor>) -> Option<Successor> {
        let me = &self.me.holder.name;
        let led = self.instance.as_ref().and_then(|instance| instance.data.led());
        // Its data took writes in an earlier epoch, and in this one not yet: how far it is, is not known before it leads. (One
        // that has followed is started without leading, and can say.)
        if led.is_some_and(|led| led != term.epoch) {
            return None;
        }
        match to {
            Some(Successor::Named(_)) if self.position().is_some() => to.cloned(),
            Some(_) if term.quorum.elects_without(me) => Some(Successor::Any),
            _ => self.position().map(|_| Successor::Named(me.clone())),
        }
    }

    /// Commits change whom they wait for when the Lease is known and allows it.
    pub(super) fn consider_quorum(&mut self, now: Instant) {
        let grace = self.settings.grace();
        if let Role::Leader(term) = &mut self.role {
            term.streamed.retain(|_, last| now < *last + grace);
        }
        let Change::Commits(commits) = self.change() else { return };
        if let Role::Leader(term) = &mut self.role {
            term.commits = commits;
            term.in_force = None;
        }
    }

    /// What to change about the quorum. Nothing while a write is under way, or its outcome is not known, or it
    /// may still come.
    fn change(&self) -> Change {
        let (Role::Leader(term), Some(instance)) = (&self.role, &self.instance) else {
            return Change::Nothing;
        };
        let known = matches!(term.version, Version::Known(_)) && term.late.is_none() && self.asked.is_none();
        // What ends for a restore has no standbys, and those that it had may still be elected.
        if !known || instance.running != Running::Primary || self.is_restoring() {
            return Change::Nothing;
        }
        let streams = |name: &String| term.streamed.contains_key(name) && *name != self.me.holder.name;
        let names = (0..self.settings.instances).filter_map(|ordinal| self.name_of(ordinal)).filter(streams);
        let goal = Quorum::of(names);
        if !self.settings.synchronous {
            return match (term.commits.is_empty(), term.quorum == goal) {
                (false, _) => Change::Commits(Quorum::default()),
                (true, false) => Change::Lease(goal),
                (true, true) => Change::Nothing,
            };
        }
        // Whom commits wait for is known first; but to wait for somebody instead of nobody is always right.
        if term.in_force.is_none() && !goal.is_empty() && !term.commits.is_empty() {
            return Change::Nothing;
        }
        let required = self.settings.required && self.settings.instances > 1;
        if goal.is_empty() && required && !term.quorum.is_empty() {
            return Change::Nothing;
        }
        let contested = term.quorum.elects_without(&self.me.holder.name);
        if !contested && !goal.is_empty() && term.commits != goal {
            // While nobody else can be elected, commits may wait for anybody.
            return Change::Commits(goal);
        }
        if contested && !goal.is_empty() && !term.has_enough() {
            // Most of those that commits wait for are gone, perhaps for good. One by one it can't be changed: that takes
            // commits that nobody acknowledges. The leader has all that was acknowledged; until others are known to,
            // nobody but it may be elected.
            return Change::Lease(Quorum::default());
        }
        quorum::next(&term.quorum, &term.commits, &goal, term.is_settled(&instance.standbys))
    }

    /// Instances of one database are named alike, but for the number.
    pub(super) fn name_of(&self, ordinal: u32) -> Option<String> {
        let (stem, _) = self.me.holder.name.rsplit_once('-')?;
        Some(format!("{stem}-{ordinal}"))
    }

    /// Whom commits wait for. Where a standby is required and there is none, they wait for the first that
    /// comes. Where they wait for no other, they wait for the leader's own leave: one that was paused, and
    /// wakes when another leads, has none.
    pub(super) fn demanded(&self, commits: &Quorum) -> Quorum {
        let several = self.settings.instances > 1;
        let waits = self.settings.synchronous && (self.settings.required || !commits.is_empty());
        if several && !waits {
            return Quorum::fence();
        }
        let others = || {
            let names = (0..self.settings.instances).filter_map(|ordinal| self.name_of(ordinal));
            Quorum { names: names.filter(|name| *name != self.me.holder.name).collect(), count: 1 }
        };
        let wait = self.settings.synchronous && self.settings.required && commits.is_empty();
        if wait && self.settings.instances > 1 { others() } else { commits.clone() }
    }

    /// A leader that can't reach the Lease asks those that could be elected; as does one whose volume is full: there
    /// may be somebody with room.
    pub(super) fn asks_to_confirm(&self, term: &Term, now: Instant) -> Option<(Question, BTreeSet<String>)> {
        let late = now >= term.renewed + self.settings.look * 3 / 2;
        let names = term.quorums().flat_map(|quorum| &quorum.names);
        let others: BTreeSet<String> = names.filter(|name| **name != self.me.holder.name).cloned().collect();
        let question = || Question::Confirm { leader: self.me.holder.clone(), epoch: term.epoch };
        ((late || self.is_full()) && !others.is_empty()).then(|| (question(), others))
    }

    /// So many that confirm that those who do not can elect nobody: the term goes on.
    pub(super) fn confirmed(&mut self, sent: Instant, answer: &Answer) {
        let margin = self.settings.margin;
        let me = &self.me.holder.name;
        let (Role::Leader(term) | Role::Yielding { term, .. }) = &mut self.role else { return };
        if answer.confirms != Some(term.epoch) && !planted::is(Bug::AnyAnswerConfirms) {
            return;
        }
        match answer.able && !answer.full {
            true => term.roomy.insert(answer.holder.name.clone()),
            false => term.roomy.remove(&answer.holder.name),
        };
        let last = term.confirmed.entry(answer.holder.name.clone()).or_insert(sent);
        *last = sent.max(*last);
        // Whichever is in the Lease: by neither can the others elect anybody.
        let rivals = term.quorums().filter(|quorum| quorum.elects_without(me));
        let moments: Option<Vec<Instant>> = rivals.map(|quorum| term.confirmed_since(quorum, me)).collect();
        if let Some(moment) = moments.and_then(|moments| moments.into_iter().min()) {
            term.until = term.until.max(moment + term.ttl.saturating_sub(margin));
        }
    }

    /// Gives up where a write has not reached the disk for too long, or the disk is not to be trusted, and
    /// there is somebody else: a hung disk, a hung process, one that does not start again.
    pub(super) fn consider_giving_up(&mut self, now: Instant) {
        let patience = self.settings.patience();
        let restoring = self.is_restoring();
        if let Role::Leader(term) = &mut self.role
            && restoring
        {
            term.rest(now);
        }
        let damaged = self.instance.as_ref().is_some_and(|instance| instance.damaged);
        let Role::Leader(term) = &self.role else { return };
        let ill = match term.written {
            Some(written) => now >= written + patience,
            None => now >= term.began + START,
        };
        let somebody = term.quorum.elects_without(&self.me.holder.name);
        if (ill || damaged) && somebody && now < term.until {
            let term = term.clone();
            self.role = Role::Yielding { term, to: Some(Successor::Any), orderly: false };
        }
    }

    /// Whether somebody asks for a handover, or the instance is to end while it leads.
    pub(super) fn consider_handover(&mut self, now: Instant) {
        let Role::Leader(term) = &self.role else { return };
        let asked = self.seen.as_ref().and_then(|(lease, _)| lease.successor.clone());
        let to = match asked {
            _ if self.stopping => self.best_standby(None),
            // Whom to ask for is checked where it is asked for; one that can't take over is not waited for.
            Some(Successor::Named(name)) if name != self.me.holder.name => {
                match self.best_standby(Some(&name)) {
                    Some(name) => Some(name),
                    None => return,
                }
            }
            Some(Successor::Any) => match self.best_standby(None) {
                Some(name) => Some(name),
                None => return,
            },
            _ if self.is_full() => match term.roomy.iter().find_map(|name| self.best_standby(Some(name))) {
                Some(name) => Some(name),
                None => return,
            },
            _ => return,
        };
        if self.holds(term, now) {
            let (term, to) = (term.clone(), to.map(Successor::Named));
            self.role = Role::Yielding { term, to, orderly: true };
        }
    }

    /// The one that has most, of those that are being sent what happens; or the given one, if it is.
    fn best_standby(&self, named: Option<&str>) -> Option<String> {
        let standbys = &self.instance.as_ref()?.standbys;
        let fit = |standby: &&Standby| standby.streaming && named.is_none_or(|name| standby.name == name);
        standbys.iter().filter(fit).max_by_key(|standby| standby.offset).map(|standby| standby.name.clone())
    }
}
