//! The logs of one database, as a tree: a promotion forks a branch, and each instance has some branch up to
//! some place.
//!
//! A branch is known to PostgreSQL by the number of its timeline alone, and two that were promoted without
//! knowing of each other have the same one. So there are two ways to compare: what is really in a log
//! ([`Wal::contains`]), and what PostgreSQL would say by numbers ([`Wal::shared_by_numbers`]).
//!
//! Left out: what is in a record. Places are bytes, as in PostgreSQL, but segments are not.

/// Which branch.
pub type BranchId = usize;

/// A place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The branch.
    pub branch: BranchId,
    /// The place in it: the end of a record.
    pub offset: u64,
}

/// One timeline that somebody wrote.
#[derive(Clone, Debug)]
pub struct Branch {
    /// Its number, which others may have as well.
    pub timeline: u32,
    /// Where it begins.
    pub parent: Option<Place>,
    /// The volume whose instance writes it.
    pub owner: usize,
    /// The end of the last commit of a client that was acknowledged.
    pub acknowledged: u64,
}

/// Where the log of a new database begins.
pub const BEGIN: u64 = 0x0100_0000;

/// The tree.
#[derive(Clone, Debug, Default)]
pub struct Wal {
    /// Its branches, parents before children.
    pub branches: Vec<Branch>,
}

impl Wal {
    /// A new database, or one that takes another way from here on.
    pub fn fork(&mut self, parent: Option<Place>, timeline: u32, owner: usize) -> BranchId {
        let parent = parent.map(|place| self.plain(place));
        self.branches.push(Branch { timeline, parent, owner, acknowledged: 0 });
        self.branches.len() - 1
    }

    /// Where a branch begins.
    pub fn begin(&self, branch: BranchId) -> u64 {
        self.branches[branch].parent.map_or(BEGIN, |parent| parent.offset)
    }

    /// The same place, named by the branch in which it was written.
    pub fn plain(&self, place: Place) -> Place {
        match self.branches[place.branch].parent {
            Some(parent) if place.offset <= parent.offset => {
                self.plain(Place { branch: parent.branch, offset: place.offset })
            }
            _ => place,
        }
    }

    /// Whether a log that ends in one place has all of what ends in another.
    pub fn contains(&self, log: Place, other: Place) -> bool {
        let (mut log, other) = (self.plain(log), self.plain(other));
        loop {
            if log.branch == other.branch {
                return log.offset >= other.offset;
            }
            match self.branches[log.branch].parent {
                Some(parent) => log = parent,
                None => return false,
            }
        }
    }

    /// The branches of a log from the first on, each with where it ends in it.
    fn line(&self, log: Place) -> Vec<Place> {
        let mut line = vec![self.plain(log)];
        while let Some(parent) = line.last().and_then(|last| self.branches[last.branch].parent) {
            line.push(parent);
        }
        line.reverse();
        line
    }

    /// The last place of a log that another one has as well.
    pub fn shared(&self, log: Place, other: Place) -> u64 {
        let (line, others) = (self.line(log), self.line(other));
        let both = line.iter().rev().find_map(|mine| {
            let theirs = others.iter().find(|theirs| theirs.branch == mine.branch)?;
            Some(mine.offset.min(theirs.offset))
        });
        both.unwrap_or_default()
    }

    /// The last place that two logs share, by the numbers of their timelines, as `pg_rewind` finds it.
    pub fn shared_by_numbers(&self, one: Place, other: Place) -> u64 {
        let (one, other) = (self.line(one), self.line(other));
        let mut shared = 0;
        for (mine, theirs) in one.iter().zip(&other) {
            let number = |place: &Place| (self.branches[place.branch].timeline, self.begin(place.branch));
            if number(mine) != number(theirs) {
                break;
            }
            shared = mine.offset.min(theirs.offset);
        }
        shared
    }

    /// Whether a server with this log would send it from that place on: a timeline of that number is in its
    /// history, and reached so far there.
    pub fn would_send(&self, log: Place, from: Place) -> bool {
        let (from, line) = (self.plain(from), self.line(log));
        let timeline = self.branches[from.branch].timeline;
        line.iter()
            .any(|place| self.branches[place.branch].timeline == timeline && from.offset <= place.offset)
    }

    /// Whether a log has all that was ever acknowledged, whoever did.
    pub fn has_all(&self, log: Place) -> bool {
        let acknowledged = self.branches.iter().enumerate().filter(|(_, branch)| branch.acknowledged > 0);
        let mut places = acknowledged.map(|(branch, it)| Place { branch, offset: it.acknowledged });
        places.all(|place| self.contains(log, place))
    }

    /// The end of what was acknowledged of a log.
    pub fn acknowledged_in(&self, log: Place) -> Option<Place> {
        self.line(log).into_iter().rev().find_map(|place| {
            let offset = self.branches[place.branch].acknowledged.min(place.offset);
            (offset > 0).then_some(Place { branch: place.branch, offset })
        })
    }

    /// The number of the timeline of a place.
    pub fn timeline(&self, place: Place) -> u32 {
        self.branches[self.plain(place).branch].timeline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(branch: BranchId, offset: u64) -> Place {
        Place { branch, offset: BEGIN + offset }
    }

    #[test]
    fn what_parted_is_told_apart_although_its_number_is_the_same() {
        let mut wal = Wal::default();
        let root = wal.fork(None, 1, 0);
        let one = wal.fork(Some(place(root, 100)), 2, 1);
        let other = wal.fork(Some(place(root, 80)), 2, 2);
        assert!(wal.contains(place(one, 150), place(root, 90)));
        assert!(!wal.contains(place(other, 150), place(root, 90)));
        assert!(!wal.contains(place(other, 150), place(one, 120)));
        assert_eq!(wal.plain(place(one, 70)), place(root, 70));
        assert_eq!(wal.shared_by_numbers(place(one, 150), place(other, 150)), BEGIN + 80);
        assert!(wal.would_send(place(one, 150), place(other, 120)), "PostgreSQL can't know better");
        assert!(!wal.would_send(place(one, 110), place(other, 120)), "it is ahead");
        assert!(!wal.would_send(place(root, 110), place(other, 120)), "its timeline is newer");
    }
}
