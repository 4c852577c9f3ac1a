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
        let Some(holder) = &lease.holder else {
            // Whoever is to take over, or to be elected, has to run for that.
            let ours = matches!(&instance.data, Data::Present { system, .. } if Some(system) == lease.system.as_ref());
            let down = instance.running == Running::Stopped && !planted::is(Bug::WaitForLeader);
            return if ours && down { Target::Hold } else { Target::Wait };
        };
        let Some(system) = &lease.system else { return Target::Wait };
        if holder.name == self.me.holder.name {
            return Target::Wait;
        }
        match &instance.data {
            // Before it was started again it may have voted, and be counted upon.
            Data::Present { system: own, .. } if self.past != Past::Over && own == system => Target::Hold,
            Data::None if self.past != Past::Over => Target::Wait,
            _ if self.is_of_before() => Target::Copy { of: holder.name.clone(), system: system.clone() },
            _ => Target::Replica { of: holder.name.clone(), epoch: lease.epoch, system: system.clone() },
        }
    }

    /// Takes the Lease if it may, or looks at it when it is time.
    pub(super) fn follow(&mut self, now: Instant) -> Option<Request> {
        if let Some((replaces, epoch)) = self.may_take(now).filter(|_| !self.stopping) {
            let lease = self.seen.as_ref().map(|(lease, _)| &lease.quorum);
            let (quorum, commits) = lease.map(|lease| taken(lease, &self.me.holder.name)).unwrap_or_default();
            let commits = if self.settings.synchronous { commits } else { Quorum::default() };
            let (history, restores) = (self.next_history(), self.restores());
            let draft = self.draft(Some(self.me.holder.clone()), (epoch, history), None, quorum.clone());
            let (cause, lacks) = (self.cause(), self.lacks());
            // One try for what was seen: if it fails, it is no longer what was seen.
            self.seen = None;
            self.absent = None;
            let (ttl, end) = (self.settings.ttl, draft.end);
            let asked = Asked::Take { epoch, history, restores, quorum, commits, ttl, cause, lacks, end };
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
        if self.absent.is_some() {
            return self.may_make_lease().map(|epoch| (None, epoch));
        }
        let (lease, since) = self.seen.as_ref()?;
        let over = now >= *since + lease.ttl || planted::is(Bug::Impatient);
        let led = self.led(lease.epoch);
        let free = match (&lease.holder, &lease.successor) {
            // This very process, or one that has ended with the container before it.
            (Some(holder), _) if *holder == self.me.holder => true,
            // Another pod of the same name: it may still run somewhere until its term is over. Its data is what
            // this one has, also if it has not come to take writes: nobody follows another meanwhile.
            (Some(holder), _) if holder.name == self.me.holder.name => over,
            // It was given to this instance, which has all there was. Who does not know how far it was gives it
            // to nobody but itself. One that lacks something can still be elected, as anybody can.
            (None, Some(Successor::Named(name))) if *name == self.me.holder.name => {
                let all = self.has_all(lease) || planted::is(Bug::GivenToTheLesser);
                let elected = || self.is_elected(lease, now) && !planted::is(Bug::GivenOnly);
                lease.end.is_none() || led || all || elected()
            }
            // Nobody else comes: who gave it up may have it back.
            (None, _) if led => now >= *since + 2 * lease.ttl,
            // There has never been a database.
            (None, _) if lease.system.is_none() => true,
            // Who was to take over does not come, perhaps never again: scaled away, for one.
            (None, Some(Successor::Named(_))) if self.has_all(lease) && self.is_able() => {
                now >= *since + 2 * lease.ttl || self.is_elected(lease, now)
            }
            _ => self.is_elected(lease, now),
        };
        let next = lease.epoch + u64::from(!planted::is(Bug::SameEpoch));
        free.then(|| (Some(lease.version.clone()), next))
    }

    /// Whether it has all that there was when the Lease was given to somebody.
    fn has_all(&self, lease: &Lease) -> bool {
        lease.end.is_some() && self.position() >= lease.end
    }

    /// The number of the history that this instance begins, if it has to: none that anybody could have begun. The
    /// one that was to be begun in the last epoch is its own, if it led then.
    fn next_history(&self) -> u64 {
        let known = self.position().map_or(0, |position| position.history);
        let Some((lease, _)) = &self.seen else { return known + 1 };
        if planted::is(Bug::SharedNumber) {
            return known + 1;
        }
        known.max(lease.history) + u64::from(!self.led(lease.epoch))
    }

    /// Why it is this instance's to take.
    fn cause(&self) -> Cause {
        let Some((lease, _)) = self.seen.as_ref().filter(|(lease, _)| lease.system.is_some()) else {
            let present = self.instance.as_ref().is_some_and(|it| it.data != Data::None);
            return if present { Cause::Again } else { Cause::First };
        };
        match (&lease.holder, &lease.successor) {
            (Some(holder), _) if holder.name == self.me.holder.name => Cause::Again,
            (Some(holder), _) => match &self.gone {
                Some((gone, _, Evidence::Word)) if gone == holder => Cause::Left,
                Some((gone, _, Evidence::Refused)) if gone == holder => Cause::Died,
                _ => Cause::Silent,
            },
            (None, _) if self.led(lease.epoch) => Cause::Again,
            (None, Some(Successor::Named(_))) => Cause::HandedOver,
            (None, Some(Successor::Any) | None) => Cause::GaveUp,
        }
    }

    /// How much of what was there, by the last word of who led, is not here.
    fn lacks(&self) -> Option<u64> {
        let (lease, _) = self.seen.as_ref()?;
        let (end, mine) = (lease.end?, self.position()?);
        match mine.history.cmp(&end.history) {
            std::cmp::Ordering::Greater => Some(0),
            std::cmp::Ordering::Equal => Some(end.offset.saturating_sub(mine.offset)),
            std::cmp::Ordering::Less => None,
        }
    }

    /// There is no Lease. Where there is no database either, the first instance begins; else somebody has
    /// removed it, and only who led last may know that nothing is missing. That is who led when it was
    /// removed; or, where the instances were started without one, as on volumes that were adopted, whoever led
    /// after all the others by what all of them say. Where nobody has led, as a database that was made and never
    /// came to take writes, that is the only one with data, if there is one.
    fn may_make_lease(&self) -> Option<u64> {
        match &self.instance.as_ref()?.data {
            Data::None => Some(1),
            Data::Present { led: Some(epoch), .. } => {
                let earlier = |name: String| self.pasts.get(&name).is_some_and(|(past, _)| past < epoch);
                let last = self.reigned == Some(*epoch) || self.others().all(earlier);
                (last || planted::is(Bug::AnyWhoLed)).then_some(epoch + 1)
            }
            Data::Present { led: None, .. } => {
                let only = self.settings.existing && self.others().all(|name| self.is_empty(&name));
                (only || self.is_alone()).then_some(1)
            }
        }
    }

    /// The other instances that there should be.
    fn others(&self) -> impl Iterator<Item = String> {
        let names = (0..self.settings.instances).filter_map(|ordinal| self.name_of(ordinal));
        names.filter(|name| *name != self.me.holder.name)
    }

    /// Whether another instance has said that it has no data.
    fn is_empty(&self, name: &str) -> bool {
        self.pasts.get(name).is_some_and(|(_, empty)| *empty)
    }

    /// Whether somebody has led after this instance; or has data, where this one would make a database or nobody may
    /// have led.
    pub(super) fn asks_who_led(&self) -> Option<(Question, BTreeSet<String>)> {
        self.absent?;
        let led = match &self.instance.as_ref()?.data {
            Data::None if self.settings.existing && self.system().is_none() && self.me.ordinal == 0 => 0,
            Data::Present { led: None, .. } if self.settings.existing && self.is_fit() => 0,
            data => data.led().filter(|_| self.is_fit())?,
        };
        let missing: BTreeSet<String> = self.others().filter(|name| !self.pasts.contains_key(name)).collect();
        (self.reigned != Some(led) && !missing.is_empty()).then_some((Question::Led, missing))
    }

    /// Whether this instance's data is what took writes in that epoch.
    fn led(&self, epoch: u64) -> bool {
        self.instance.as_ref().and_then(|instance| instance.data.led()) == Some(epoch)
    }

    /// Whether this instance has what a leader needs: the data, or, where there has never been any, the
    /// first number.
    fn is_fit(&self) -> bool {
        let Some(instance) = &self.instance else { return false };
        match (&instance.data, self.system()) {
            _ if instance.damaged => false,
            // What came after the moment to which the database was brought back is not its own any more.
            _ if self.is_of_before() && !self.has_whole() => false,
            (Data::Present { system, .. }, Some(known)) => system == known,
            (Data::Present { .. }, None) => true,
            (Data::None, Some(_)) => planted::is(Bug::CreateAgain),
            // There has been one, unless all that was ever made are empty volumes.
            (Data::None, None)
                if self.settings.existing && !self.others().all(|name| self.is_empty(&name)) =>
            {
                false
            }
            (Data::None, None) => self.me.ordinal == 0 && (self.absent.is_some() || self.seen.is_some()),
        }
    }

    /// Whether it would lead, if it were elected.
    pub(super) fn is_able(&self) -> bool {
        let runs = self.instance.as_ref().is_some_and(|instance| instance.running == Running::Replica);
        runs && self.is_fit() && !self.is_of_before() && !self.stopping
    }

    /// Whether nobody leads by this Lease any more.
    fn is_vacant(&self, now: Instant) -> bool {
        let Some((lease, since)) = &self.seen else { return false };
        let over = now >= *since + lease.ttl || planted::is(Bug::Impatient);
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
        let outside = planted::is(Bug::ElectOutsideQuorum);
        let one_of_them = lease.quorum.names.contains(&self.me.holder.name) || outside;
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
        let outside = planted::is(Bug::ElectOutsideQuorum);
        if hold.version != lease.version || !lease.quorum.names.contains(&self.me.holder.name) && !outside {
            return false;
        }
        if !self.is_able() || !self.lacks_little(mine, lease) {
            return false;
        }
        let votes: Vec<_> =
            hold.votes.iter().filter(|(name, _)| lease.quorum.names.contains(*name)).collect();
        let patient = now < hold.since + self.deference();
        let better = |(name, (position, able)): &(&String, &(Position, bool))| {
            // Where commits wait for nobody, the spec says how much may be lost: one that can't lead is not waited for.
            let counts = *able || self.settings.synchronous || patient;
            *position > mine && counts
                || *position == mine && *able && **name < self.me.holder.name && patient
        };
        let enough = votes.len() + 1 >= lease.quorum.voters() || planted::is(Bug::ElectWithoutVotes);
        enough && (planted::is(Bug::ElectTheLesser) || !votes.iter().any(better))
    }

    /// How long the first among equals is waited for.
    pub(super) fn deference(&self) -> Duration {
        self.settings.look
    }

    /// Where commits wait for nobody, one that is elected may lack only so much.
    fn lacks_little(&self, mine: Position, lease: &Lease) -> bool {
        let bound = !self.settings.synchronous && !planted::is(Bug::LackAnything);
        let Some(end) = lease.end.filter(|_| bound) else { return true };
        mine.history > end.history
            || mine.history == end.history && end.offset.saturating_sub(mine.offset) <= self.settings.max_lag
    }

    /// Another instance asks, or tells.
    pub(super) fn hear(&mut self, question: Question, now: Instant) {
        let holds = self.hold.is_some();
        let vacant = self.is_vacant(now);
        // What is answered to that changes nothing.
        if question == Question::Led {
            return;
        }
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
                let free = !holds || planted::is(Bug::ConfirmWhileHolding);
                if free && matches!(self.role, Role::Follower) {
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
                if vacant
                    && follows
                    && !holds
                    && !self.is_of_before()
                    && !matches!(self.asked, Some(Asked::Take { .. }))
                {
                    self.hold = Some(Hold { version, since: now, votes: BTreeMap::new() });
                }
            }
            // Of another leader or version than what is seen here: look.
            _ => self.next_look = None,
        }
    }

    /// Another instance has answered.
    pub(super) fn answered(&mut self, sent: Instant, answer: Answer) {
        self.confirmed(sent, &answer);
        if let (Some(since), Some(led)) = (self.absent, answer.led)
            && sent >= since
        {
            self.pasts.insert(answer.holder.name.clone(), (led, answer.empty));
        }
        if let (Some(hold), Some(position)) = (&mut self.hold, answer.position)
            && (answer.holds.as_ref() == Some(&hold.version) || planted::is(Bug::VoteForAnotherVersion))
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
