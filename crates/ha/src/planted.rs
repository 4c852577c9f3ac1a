//! Bugs that are planted on purpose, to see that the simulator finds them. Each is one line of the real code, and
//! only there with the feature `planted`, which no program that runs databases can be built with: without it,
//! [`is`] is a constant.

/// Whether bugs can be planted at all.
pub const PLANTED: bool = cfg!(feature = "planted");

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The leader uses the whole of its term.
    NoMargin,
    /// The leader counts its term from the answer and not from the request.
    TermFromAnswer,
    /// Who is not of the quorum is elected.
    ElectOutsideQuorum,
    /// One is elected without the votes of others.
    ElectWithoutVotes,
    /// One is elected although another has more.
    ElectTheLesser,
    /// A vote counts whatever version of the Lease it is for.
    VoteForAnotherVersion,
    /// One votes before it is cut off from who led.
    VoteUncut,
    /// One that has voted follows who led, after it was started again.
    ForgetPast,
    /// A leader goes on although the Lease says that another leads.
    NeverDemoted,
    /// Commits change whom they wait for before the Lease does.
    CommitsBeforeLease,
    /// One that has voted against a leader confirms it.
    ConfirmWhileHolding,
    /// Any answer counts as a confirmation.
    AnyAnswerConfirms,
    /// Commits that wait for nobody are acknowledged whoever leads.
    LeaveForever,
    /// The Lease is taken from one whose term is not over.
    Impatient,
    /// A write that was not answered is taken for one that never comes.
    LateForgotten,
    /// Who takes over forgets those that may have more than the others.
    TakenDropsOld,
    /// The quorum in the Lease changes before those in it have all.
    NeverUnsettled,
    /// Who is given leadership takes it without having all.
    GivenToTheLesser,
    /// One that lacks more than it may is elected.
    LackAnything,
    /// Who takes over counts no epoch.
    SameEpoch,
    /// A database is made where there has been one.
    CreateAgain,
    /// The Lease is let go while the database runs.
    ReleaseWhileRunning,
    /// A replica's data is started as a primary, without a promotion.
    StartReplicaAsPrimary,
    /// One that is started while nobody leads is not started.
    WaitForLeader,
    /// How far the leader was is forgotten when it does not know.
    ForgetEnd,
    /// One that is given leadership and lacks something can't be elected.
    GivenOnly,
    /// One whose disk has failed is never copied anew.
    NeverRecopied,
    /// A history gets the next number that its instance knows of, which another may have.
    SharedNumber,
    /// Where the Lease is gone, any that ever led makes another.
    AnyWhoLed,
    /// The operator disturbs an instance while another is away.
    TwoAtOnce,
    /// The operator replaces or restarts the leader without a handover.
    NoHandover,
    /// The operator takes away the pod of the leader when it scales down.
    ScaleDownLeader,
    /// The operator removes volumes that are to stay.
    RemoveRetained,
    /// The operator removes a volume before its instance is gone.
    RemoveTooSoon,
    /// The operator leaves volumes that are to go with the Database.
    KeepDeleted,
    /// The operator takes the volumes of another Database unasked.
    AdoptUnasked,
    /// The status goes on naming the primary of the past.
    StalePrimary,
    /// The operator makes another certificate each time.
    CertificateAnew,
}

/// Those that seeds find soon.
pub const ALL: [Bug; 19] = [
    Bug::ElectOutsideQuorum,
    Bug::ElectWithoutVotes,
    Bug::ElectTheLesser,
    Bug::VoteForAnotherVersion,
    Bug::VoteUncut,
    Bug::NeverDemoted,
    Bug::CommitsBeforeLease,
    Bug::AnyAnswerConfirms,
    Bug::LeaveForever,
    Bug::Impatient,
    Bug::TakenDropsOld,
    Bug::NeverUnsettled,
    Bug::GivenToTheLesser,
    Bug::LackAnything,
    Bug::SameEpoch,
    Bug::CreateAgain,
    Bug::ReleaseWhileRunning,
    Bug::StartReplicaAsPrimary,
    Bug::ForgetEnd,
];

/// Those that take more than the first 20,000 seeds: what they break needs several things to go wrong in one moment.
pub const RARE: [Bug; 9] = [
    Bug::WaitForLeader,
    Bug::NoMargin,
    Bug::TermFromAnswer,
    Bug::ForgetPast,
    Bug::ConfirmWhileHolding,
    Bug::LateForgotten,
    Bug::GivenOnly,
    Bug::NeverRecopied,
    Bug::SharedNumber,
];

/// Those of the operator, which seeds with an operator find soon.
pub const OPERATOR: [Bug; 10] = [
    Bug::AnyWhoLed,
    Bug::TwoAtOnce,
    Bug::NoHandover,
    Bug::ScaleDownLeader,
    Bug::RemoveRetained,
    Bug::RemoveTooSoon,
    Bug::KeepDeleted,
    Bug::AdoptUnasked,
    Bug::StalePrimary,
    Bug::CertificateAnew,
];

#[cfg(feature = "planted")]
mod planted {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// From now on this thread has this bug, or none.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    /// Whether this thread has this bug.
    pub fn is(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(feature = "planted")]
pub use planted::{is, plant};

/// Never, without the feature.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is(_: Bug) -> bool {
    false
}
