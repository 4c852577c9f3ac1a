//! The machine alone, one branch at a time, and in a small world with troubles.

mod confirming;
mod electing;
mod handing_over;
mod leading;
mod restoring;
mod taking;
mod world;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn settings() -> Settings {
    Settings {
        ttl: 5 * SECOND,
        look: SECOND,
        margin: SECOND,
        instances: 3,
        system: None,
        existing: false,
        synchronous: true,
        required: false,
        max_lag: 10,
        restore: None,
    }
}

fn asynchronous() -> Settings {
    Settings { synchronous: false, ..settings() }
}

fn name(ordinal: u32) -> String {
    format!("orders-{ordinal}")
}

fn quorum(ordinals: &[u32]) -> Quorum {
    Quorum::of(ordinals.iter().map(|ordinal| name(*ordinal)))
}

fn holder(ordinal: u32, incarnation: &str) -> Holder {
    Holder { name: name(ordinal), incarnation: incarnation.into() }
}

fn machine(ordinal: u32, settings: Settings) -> Machine {
    Machine::new(Identity { holder: holder(ordinal, "a"), ordinal }, settings)
}

fn at(history: u64, offset: u64) -> Option<Position> {
    Some(Position { history, offset })
}

fn instance(data: Data, running: Running) -> Instance {
    Instance {
        data,
        running,
        position: None,
        receiving: Receiving::Waiting,
        standbys: Vec::new(),
        commits: Quorum::default(),
        written: None,
        damaged: false,
        full: false,
        history: 1,
        restore: Restore::None,
    }
}

fn empty() -> Instance {
    instance(Data::None, Running::Stopped)
}

fn filled(running: Running) -> Instance {
    instance(Data::Present { system: "7".into(), led: None }, running)
}

/// An instance whose data took writes in that epoch.
fn having_led(epoch: u64, running: Running) -> Instance {
    instance(Data::Present { system: "7".into(), led: Some(epoch) }, running)
}

/// A primary with its standbys, all of which have so much.
fn primary(epoch: u64, offset: u64, standbys: &[u32], commits: Quorum) -> Instance {
    let standbys = standbys.iter().map(|ordinal| standby(*ordinal, offset)).collect();
    Instance { position: at(1, offset), standbys, commits, ..having_led(epoch, Running::Primary) }
}

/// A replica that has so much.
fn replica(offset: u64, receiving: Receiving) -> Instance {
    Instance { position: at(1, offset), receiving, ..filled(Running::Replica) }
}

fn standby(ordinal: u32, offset: u64) -> Standby {
    Standby { name: name(ordinal), streaming: true, offset }
}

fn lease(version: &str, holder: Option<Holder>, epoch: u64, quorum: Quorum) -> Lease {
    let (version, renewal, system) = (version.to_owned(), version.to_owned(), Some("7".into()));
    let (history, end) = (1, at(1, 100));
    let (ttl, successor, restores) = (5 * SECOND, None, Restores::default());
    Lease { version, renewal, holder, ttl, epoch, system, successor, quorum, history, restores, end }
}

/// The first instance leads since `start`, by a Lease in version 10, with these in the quorum, for whom
/// commits wait.
fn leader(start: Instant, settings: Settings, members: &[u32]) -> Machine {
    let mut me = machine(0, settings);
    me.step(Input::Instance(having_led(1, Running::Stopped)), start);
    let taken = me.step(Input::Read(Some(lease("9", Some(holder(0, "a")), 1, quorum(members)))), start);
    assert!(matches!(&taken, Some(Request::Write { replaces: Some(of), .. }) if of == "9"), "{taken:?}");
    assert_eq!(me.step(Input::Written { version: "10".into(), sent: start }, start), None);
    let commits = if me.settings.synchronous { quorum(members) } else { Quorum::default() };
    assert_eq!(me.target(start), Target::Primary { epoch: 2, history: 1, commits: me.demanded(&commits) });
    me.step(Input::Instance(primary(2, 100, members, me.demanded(&commits))), start);
    me
}

/// An instance that follows the first, by its Lease in version 10, of epoch 2, seen at `start` after an
/// older one.
fn follower(ordinal: u32, start: Instant, settings: Settings, members: &[u32]) -> Machine {
    let mut me = machine(ordinal, settings);
    me.step(Input::Instance(replica(100, Receiving::Streaming)), start);
    me.step(Input::Read(Some(lease("9", Some(holder(0, "a")), 2, quorum(members)))), start);
    me.step(Input::Seen(lease("10", Some(holder(0, "a")), 2, quorum(members))), start);
    let of = Target::Replica { of: name(0), epoch: 2, system: "7".into() };
    assert_eq!(me.target(start), of);
    me
}

/// Whether the Lease is taken, and from which version.
fn takes(request: &Option<Request>) -> Option<&str> {
    match request {
        Some(Request::Write { draft, replaces }) if draft.holder.is_some() => {
            Some(replaces.as_deref().unwrap_or_default())
        }
        _ => None,
    }
}
