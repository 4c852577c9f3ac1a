//! What a leader does about a restore in place, and what the others do after one. See [`crate::Restore`].

use super::*;

/// Where a restore in place stands with the leader that is to carry it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage<'a> {
    /// It can begin, but has no history of its own yet.
    Unnumbered,
    /// Its data is being made, to begin this history.
    Begun { name: &'a str, history: u64 },
    /// Its data is whole, and on this history: now it is decided.
    Whole { name: &'a str, history: u64 },
    /// It came to nothing.
    GivenUp { name: &'a str },
}

/// What the next write of the Lease says of restores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    /// A history that one is to begin, and nothing else.
    pub reserved: Option<u64>,
    /// What became of them.
    pub restores: Restores,
}

impl Machine {
    /// What the Lease says of restores, as far as is known.
    pub fn restores(&self) -> Restores {
        match &self.role {
            Role::Leader(term) | Role::Yielding { term, .. } => term.restores.clone(),
            Role::Follower => self.seen.as_ref().map(|(lease, _)| lease.restores.clone()).unwrap_or_default(),
        }
    }

    /// Whether the own data is of before the last restore: nobody may follow it, and it follows nobody.
    pub(super) fn is_of_before(&self) -> bool {
        let origin = self.restores().origin;
        let older = |it: &Instance| matches!(it.data, Data::Present { .. }) && it.history < origin;
        origin > 0 && self.instance.as_ref().is_some_and(older)
    }

    /// Whether the data of the last restore lies beside the own, to be put in its place.
    pub(super) fn has_whole(&self) -> bool {
        let origin = self.restores().origin;
        let instance = self.instance.as_ref();
        instance.is_some_and(|it| matches!(it.restore, Restore::Whole { history, .. } if history >= origin))
    }

    fn stage<'a>(&'a self, term: &'a Term) -> Option<Stage<'a>> {
        let wanted = self.settings.restore.as_deref()?;
        let instance = self.instance.as_ref()?;
        let due =
            term.restores.settled.as_deref() != Some(wanted) && matches!(instance.data, Data::Present { .. });
        if !due || instance.restore.name() != Some(wanted) {
            return None;
        }
        Some(match (&instance.restore, term.reserved) {
            (Restore::GivenUp { name }, _) => Stage::GivenUp { name },
            // What somebody has begun since, this is not later than.
            (Restore::Whole { name, history }, _) if *history >= term.history => {
                Stage::Whole { name, history: *history }
            }
            (Restore::Ready { name } | Restore::Whole { name, .. }, Some(history)) => {
                Stage::Begun { name, history }
            }
            _ => Stage::Unnumbered,
        })
    }

    /// What the program of a leader is to do besides leading, if anything.
    pub(super) fn restoring(&self, term: &Term) -> Option<Target> {
        if self.is_of_before() {
            return Some(if self.has_whole() { Target::Place } else { Target::Wait });
        }
        // That it is decided may still come to be so.
        if let Some(Restores { settled: Some(name), origin, .. }) = &term.pending_restores {
            return Some(Target::Restore { name: name.clone(), history: *origin });
        }
        match self.stage(term)? {
            Stage::Begun { name, history } | Stage::Whole { name, history } => {
                Some(Target::Restore { name: name.to_owned(), history })
            }
            Stage::Unnumbered | Stage::GivenUp { .. } => None,
        }
    }

    /// Whether this instance leads, and takes no writes because of a restore.
    pub fn is_restoring(&self) -> bool {
        matches!(&self.role, Role::Leader(term) if self.restoring(term).is_some())
    }

    /// What is to be written into the Lease at once.
    pub(super) fn restore_wish(&self, term: &Term) -> Option<Wish> {
        let Role::Leader(_) = &self.role else { return None };
        let unanswered = term.late.is_some() || !matches!(term.version, Version::Known(_));
        if unanswered || self.is_of_before() {
            return None;
        }
        let known = &term.restores;
        let settled = |name: &str, done, origin| Restores { settled: Some(name.to_owned()), done, origin };
        let newest = || term.history.max(self.instance.as_ref().map_or(0, |it| it.history));
        Some(match self.stage(term)? {
            Stage::Unnumbered => Wish { reserved: Some(newest() + 1), restores: known.clone() },
            Stage::Whole { name, history } => Wish { reserved: None, restores: settled(name, true, history) },
            Stage::GivenUp { name } => Wish { reserved: None, restores: settled(name, false, known.origin) },
            Stage::Begun { .. } => return None,
        })
    }
}

impl Term {
    /// A write of the Lease was accepted that said this.
    pub(super) fn settle(&mut self, Wish { reserved, restores }: Wish) {
        self.reserved = reserved.or(self.reserved);
        if restores.origin > self.restores.origin {
            // Whoever followed has to be copied anew, and is waited for by nobody.
            self.commits = Quorum::default();
            self.in_force = None;
            self.streamed.clear();
            self.end = None;
        }
        self.history = self.history.max(reserved.unwrap_or_default()).max(restores.origin);
        self.restores = restores;
        self.pending_restores = None;
    }

    /// A leader that restores is not one that can't write.
    pub(super) fn rest(&mut self, now: Instant) {
        (self.written, self.began) = (None, now);
    }
}
