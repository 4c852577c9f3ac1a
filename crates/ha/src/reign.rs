//! What there is to tell of a leadership afterwards.

/// Why an instance came to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There was no database before.
    First,
    /// It led before, and nobody else has since.
    Again,
    /// It was given to this instance, in good order.
    HandedOver,
    /// Who led could not write any more, and let go.
    GaveUp,
    /// Who led said that it had ended.
    Left,
    /// The first process of who led was gone.
    Died,
    /// Nothing was heard from who led.
    Silent,
}

/// A leadership that is this instance's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reign {
    /// Its epoch.
    pub epoch: u64,
    /// Why it began.
    pub cause: Cause,
    /// How many bytes of the log of who led before, by its own last word, this instance did not have.
    pub lacks: Option<u64>,
}
