//! What trials of Keelson on the testbed share, whether they measure or disturb.
//!
//! - [`install`] puts the operator on a cluster as people do; [`objects`] makes what is tried, and sees it gone.
//! - [`session`] is a client's way into a database, as libpq's is; [`clock`] the time that it writes down.
//! - [`history`] is what a client saw, and what can be said of it.

pub mod clock;
mod error;
pub mod history;
pub mod install;
pub mod objects;
pub mod session;
mod tls;

pub use error::{Asking, Error, Result};
