//! What goes wrong: kinds of faults, and one of them at a time and a place.

use std::fmt;
use std::str::FromStr;

/// A kind of fault. What `who`, `other` and `long` of a [`Fault`] mean follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The container ends with all in it, and is started again after a while.
    Kill,
    /// The pod is deleted in good order; the next one is another incarnation.
    Delete,
    /// The pod is deleted in good order, but its node never hears of it: it is stuck in Terminating.
    Stuck,
    /// The node is cut off and the pod removed by force: it runs on while another of its name starts elsewhere,
    /// with an empty volume.
    Force,
    /// The machine loses power, and with it what was not flushed.
    Power,
    /// The pod and its volume are gone; the next one begins with an empty one.
    Lose,
    /// The API server answers nobody.
    Outage,
    /// Requests of one instance do not reach the API server.
    Mute,
    /// Answers of the API server do not reach one instance.
    Deaf,
    /// The API server answers many requests with 429 or 5xx, some of them after it has done what was asked.
    Errors,
    /// The API server takes its time, up to many seconds.
    Slow,
    /// One instance hears late what is watched.
    Lag,
    /// The watch of one instance breaks off, and begins anew after a while.
    Unwatched,
    /// One instance is told of an old version by its watch.
    Rewind,
    /// Two do not reach each other.
    Cut,
    /// One does not reach the other; the other way is open.
    OneWay,
    /// One reaches nobody, nor the API server.
    Isolate,
    /// Many packets are lost everywhere.
    Loss,
    /// The whole machine stops, and goes on where it was; its clock runs on.
    Pause,
    /// The whole machine stops, and its clock with it.
    Freeze,
    /// The machine has hardly any time to run.
    Starve,
    /// The database program ends.
    Crash,
    /// Nothing reaches the disk.
    Hang,
    /// The disk is full.
    Full,
    /// The disk fails with EIO once, and forgets what it could not write.
    Eio,
    /// Connections to the agent are refused by something in between.
    Wall,
    /// Somebody asks for a handover to `other`; to anybody, where that is nobody.
    Wish,
    /// There should be one instance less, for a while.
    Shrink,
    /// Removes all log on the primary that no slot keeps.
    Recycle,
    /// The person asks for `other` + 1 instances.
    Scale,
    /// The person changes a parameter that takes a restart.
    Parameter,
    /// The person asks for another minor version.
    Version,
    /// The person asks for larger volumes.
    Storage,
    /// The person deletes the Database, and makes it anew after a while.
    Remove,
    /// The operator ends at once, and another begins after a while.
    OperatorEnds,
    /// The operator ends right after one of its next writes, the how manieth is `other`; nobody is told of it.
    OperatorEndsAfter,
    /// Another operator leads from now on; what the one before has sent may still arrive.
    OperatorDeposed,
    /// Requests of the operator do not reach the API server.
    OperatorMute,
    /// Answers of the API server do not reach the operator.
    OperatorDeaf,
    /// The operator hears late what is watched.
    OperatorLag,
    /// The watches of the operator break off, and begin anew after a while.
    OperatorUnwatched,
    /// The watches of the operator begin anew, with a list of the past.
    OperatorStale,
    /// Pods take long to start.
    SlowStarts,
}

use Kind::*;

/// All kinds that there are without an operator.
pub const ALL: [Kind; 29] = [
    Kill, Delete, Stuck, Force, Power, Lose, Outage, Mute, Deaf, Errors, Slow, Lag, Unwatched, Rewind, Cut,
    OneWay, Isolate, Loss, Pause, Freeze, Starve, Crash, Hang, Full, Eio, Wall, Wish, Shrink, Recycle,
];

/// What the person does.
pub const CHANGES: [Kind; 5] = [Scale, Parameter, Version, Storage, Remove];

/// What goes wrong around the operator.
pub const OPERATOR: [Kind; 9] = [
    OperatorEnds,
    OperatorEndsAfter,
    OperatorDeposed,
    OperatorMute,
    OperatorDeaf,
    OperatorLag,
    OperatorUnwatched,
    OperatorStale,
    SlowStarts,
];

/// Every kind there is.
pub fn every() -> impl Iterator<Item = Kind> {
    ALL.into_iter().chain(CHANGES).chain(OPERATOR)
}

/// A fault at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When, in virtual milliseconds.
    pub at: u64,
    /// What.
    pub kind: Kind,
    /// Whose: the ordinal of an instance.
    pub who: usize,
    /// The other one's, where two are meant.
    pub other: usize,
    /// How long it lasts, in milliseconds.
    pub long: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { at, kind, who, other, long } = self;
        write!(f, "{at} {} {who} {other} {long}", format!("{kind:?}").to_lowercase())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [at, name, who, other, long] = words.as_slice() else {
            return Err(format!("`{line}` is not a time, a kind, who, another and how long"));
        };
        let kind = every().find(|kind| format!("{kind:?}").eq_ignore_ascii_case(name));
        let number =
            |text: &str| text.parse::<u64>().map_err(|error| format!("`{text}` in `{line}`: {error}"));
        Ok(Fault {
            at: number(at)?,
            kind: kind.ok_or_else(|| format!("`{name}` in `{line}` is no kind of fault"))?,
            who: number(who)? as usize,
            other: number(other)? as usize,
            long: number(long)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_comes_back_from_its_text() {
        for (number, kind) in every().enumerate() {
            let fault = Fault { at: 17, kind, who: number, other: 2, long: 99 };
            assert_eq!(fault.to_string().parse(), Ok(fault));
        }
        assert!("17 fire 1 2 3".parse::<Fault>().is_err());
    }
}
