//! What everybody else does: follow, confirm, hold still when nobody leads, and take the Lease when it is
//! theirs to take.

use super::*;

impl Machine {
    /// What a database program that does not lead should be doing.
    pub(super) fn following(&self, instance: &Instance) -> Target {
        if instance.running == Running::Primary {
            return Target::Close;
        }
        if self.stopping {
            return Target::Finish;
        }
        if self.hold.is_some() && matches!(instance.data, Data::Present { .. }) {
            return Target::Hold;
        }
        let Some((lease, _)) = &self.seen else { return Target::Wait };
        let (Some(holder), Some(system)) = (&lease.holder, &lease.system) else { return Target::Wait };
        if holder.name == self.me.holder.name {
            return Target::Wait;
        }
        match &instance.data {
            // Before it was started again it may have voted, and be counted upon.
            Data::Present { system: own, .. } if self.past != Past::Over && own == system => Target::Hold,
            Data::None if self.past != Past::Over => Target::Wait,
            _ => Target::Replica { of: holder.name.clone(), epoch: lease.epoch, system: system.clone() },
        }
    }

    /// Takes the Lease if it may, or looks at it when it is time.
    pub(super) fn follow(&mut self, now: Instant) -> Option<Request> {
        if let Some((replaces, epoch)) = self.may_take(now).filter(|_| !self.stopping) {
            let lease = self.seen.as_ref().map(|(lease, _)| &lease.quorum);
            let (quorum, commits) = lease.map(|lease| taken(lease, &self.me.holder.name)).unwrap_or_default();
            let commits = if self.settings.synchronous { commits } else { Quorum::default() };
            let draft = self.draft(Some(self.me.holder.clone()), epoch, None, quorum.clone());
            // One try for what was seen: if it fails, it is no longer what was seen.
            self.seen = None;
            self.absent = false;
            let asked = Asked::Take { epoch, quorum, commits, ttl: self.settings.ttl };
            return self.ask(asked, Request::Write { draft, replaces }, now);
        }
        let look = self.next_look.is_none_or(|look| now >= look);
        look.then(|| self.read(now)).flatten()
    }

    /// Whether the Lease may be taken now: which version to replace, and in which epoch.
    fn may_take(&self, now: Instant) -> Option<(Option<String>, u64)> {
        if !self.is_fit() {
            return None;
        }
        if self.absent {
            return self.may_make_lease().map(|epoch| (None, epoch));
        }
        let (lease, since) = self.seen.as_ref()?;
        let over = now >= *since + lease.ttl;
        let led = self.led(lease.epoch);
        let free = match (&lease.holder, &lease.successor) {
            // This very process, or one that has ended with the container before it.
            (Some(holder), _) if *holder == self.me.holder => true,
            // Another pod of the same name: it may still run somewhere until its term is over. Its data is what
            // this one has, also if it has not come to take writes: nobody follows another meanwhile.
            (Some(holder), _) if holder.name == self.me.holder.name => over,
            // It was given to this instance, which has all there was. Who does not know how far it was gives it
            // to nobody but itself.
            (None, Some(Successor::Named(name))) if *name == self.me.holder.name => {
                lease.end.is_none() || led || self.position() >= lease.end
            }
            // Nobody else comes: who gave it up may have it back.
            (None, _) if led => now >= *since + 2 * lease.ttl,
            // There has never been a database.
            (None, _) if lease.system.is_none() => true,
            _ => self.is_elected(lease, now),
        };
        free.then(|| (Some(lease.version.clone()), lease.epoch + 1))
    }

    /// There is no Lease. Where there is no database either, the first instance begins; else somebody has
    /// removed it, and only who led last may know that nothing is missing.
    fn may_make_lease(&self) -> Option<u64> {
        match &self.instance.as_ref()?.data {
            Data::None => Some(1),
            Data::Present { led: Some(epoch), .. } => Some(epoch + 1),
            Data::Present { led: None, .. } => self.is_alone().then_some(1),
        }
    }

    /// Whether this instance's data is what took writes in that epoch.
    fn led(&self, epoch: u64) -> bool {
        match self.instance.as_ref().map(|instance| &instance.data) {
            Some(Data::Present { led, .. }) => *led == Some(epoch),
            Some(Data::None) | None => false,
        }
    }

    /// Whether this instance has what a leader needs: the data, or, where there has never been any, the
    /// first number.
    fn is_fit(&self) -> bool {
        let Some(instance) = &self.instance else { return false };
        match (&instance.data, self.system()) {
            _ if instance.damaged => false,
            (Data::Present { system, .. }, Some(known)) => system == known,
            (Data::Present { .. }, None) => true,
            (Data::None, Some(_)) => false,
            (Data::None, None) => self.me.ordinal == 0 && (self.absent || self.seen.is_some()),
        }
    }

    /// Whether it would lead, if it were elected.
    pub(super) fn is_able(&self) -> bool {
        let runs = self.instance.as_ref().is_some_and(|instance| instance.running == Running::Replica);
        runs && self.is_fit() && !self.stopping
    }

    /// Whether nobody leads by this Lease any more.
    fn is_vacant(&self, now: Instant) -> bool {
        let Some((lease, since)) = &self.seen else { return false };
        let over = now >= *since + lease.ttl;
        match (&lease.holder, &lease.successor) {
            (Some(holder), _) => over || self.is_gone(holder, lease),
            // Whoever was to take over has a moment to do so. Who released it has ended for certain.
            (None, Some(Successor::Named(_))) => now >= *since + self.settings.look,
            (None, Some(Successor::Any) | None) => true,
        }
    }

    fn is_gone(&self, holder: &Holder, lease: &Lease) -> bool {
        let evidence = self.gone.as_ref().filter(|(gone, epoch, _)| gone == holder && *epoch == lease.epoch);
        match evidence {
            Some((.., Evidence::Word)) => true,
            // Once enough hold still, a leader that lives after all can't acknowledge anything.
            Some((.., Evidence::Refused)) => {
                let silent = self.instance.as_ref().is_some_and(|it| it.receiving != Receiving::Streaming);
                self.settings.synchronous && lease.quorum.count > 0 && silent
            }
            None => false,
        }
    }

    /// Holds still when nobody leads, so that somebody can be elected.
    pub(super) fn consider_hold(&mut self, now: Instant) {
        let Some((lease, _)) = &self.seen else { return };
        let taking = matches!(self.asked, Some(Asked::Take { .. }));
        let one_of_them = lease.quorum.names.contains(&self.me.holder.name);
        let follows = matches!(self.role, Role::Follower) && self.hold.is_none() && !taking;
        if follows && one_of_them && self.is_vacant(now) && self.is_able() {
            self.hold = Some(Hold { version: lease.version.clone(), since: now, votes: BTreeMap::new() });
        }
    }

    pub(super) fn asks_to_hold(&self) -> Option<(Question, BTreeSet<String>)> {
        let hold = self.hold.as_ref()?;
        let (lease, _) = self.seen.as_ref()?;
        let others = lease.quorum.names.iter().filter(|name| **name != self.me.holder.name);
        let missing: BTreeSet<String> =
            others.filter(|name| !hold.votes.contains_key(*name)).cloned().collect();
        (!missing.is_empty()).then(|| (Question::Hold { version: hold.version.clone() }, missing))
    }

    /// Whether so many hold still that nobody else can lead, and none of them has more than this instance.
    fn is_elected(&self, lease: &Lease, now: Instant) -> bool {
        let (Some(hold), Some(instance)) = (&self.hold, &self.instance) else { return false };
        let Some(mine) = instance.position.filter(|_| instance.receiving == Receiving::Cut) else {
            return false;
        };
        if hold.version != lease.version || !lease.quorum.names.contains(&self.me.holder.name) {
            return false;
        }
        if !self.is_able() || !self.lacks_little(mine, lease) {
            return false;
        }
        let votes: Vec<_> =
            hold.votes.iter().filter(|(name, _)| lease.quorum.names.contains(*name)).collect();
        let patient = now < hold.since + self.deference();
        let better = |(name, (position, able)): &(&String, &(Position, bool))| {
            *position > mine || *position == mine && *able && **name < self.me.holder.name && patient
        };
        votes.len() + 1 >= lease.quorum.voters() && !votes.iter().any(better)
    }

    /// How long the first among equals is waited for.
    pub(super) fn deference(&self) -> Duration {
        self.settings.look
    }

    /// Where commits wait for nobody, one that is elected may lack only so much.
    fn lacks_little(&self, mine: Position, lease: &Lease) -> bool {
        let Some(end) = lease.end.filter(|_| !self.settings.synchronous) else { return true };
        mine.history > end.history
            || mine.history == end.history && end.offset.saturating_sub(mine.offset) <= self.settings.max_lag
    }

    /// Another instance asks, or tells.
    pub(super) fn hear(&mut self, question: Question, now: Instant) {
        let holds = self.hold.is_some();
        let vacant = self.is_vacant(now);
        let Some((lease, since)) = &mut self.seen else {
            // What it asks about is not known here yet.
            self.next_look = None;
            return;
        };
        match question {
            Question::Confirm { leader, epoch }
                if lease.holder.as_ref() == Some(&leader) && lease.epoch == epoch =>
            {
                // Who has held still may have been counted: the leader must not rely on it any more.
                if !holds && matches!(self.role, Role::Follower) {
                    *since = now;
                    self.gone = None;
                }
            }
            Question::Left { leader, epoch }
                if lease.holder.as_ref() == Some(&leader) && lease.epoch == epoch =>
            {
                self.gone = Some((leader, epoch, Evidence::Word));
            }
            Question::Hold { version } if lease.version == version => {
                let follows = matches!(self.role, Role::Follower) && self.asked != Some(Asked::Release);
                if vacant && follows && !holds && !matches!(self.asked, Some(Asked::Take { .. })) {
                    self.hold = Some(Hold { version, since: now, votes: BTreeMap::new() });
                }
            }
            // Of another leader or version than what is seen here: look.
            Question::Confirm { .. } | Question::Left { .. } | Question::Hold { .. } => self.next_look = None,
        }
    }

    /// Another instance has answered.
    pub(super) fn answered(&mut self, sent: Instant, answer: Answer) {
        self.confirmed(sent, &answer);
        if let (Some(hold), Some(position)) = (&mut self.hold, answer.position)
            && answer.holds.as_ref() == Some(&hold.version)
        {
            hold.votes.insert(answer.holder.name, (position, answer.able));
        }
    }

    /// The first process of who leads is not there, at the address that was its own.
    pub(super) fn refused(&mut self, name: String) {
        if let Some((Lease { holder: Some(holder), epoch, .. }, _)) = &self.seen
            && holder.name == name
            && self.gone.is_none()
        {
            self.gone = Some((holder.clone(), *epoch, Evidence::Refused));
        }
    }
}
