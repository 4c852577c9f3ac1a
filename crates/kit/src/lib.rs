//! What any Kubernetes operator needs, and nothing about databases.
//!
//! The decisions are here as plain values that read no clock and do no IO: what to work on next
//! ([`queue`]), how long to wait after a failure ([`retry`]), whether an outside system may be asked
//! again ([`breaker`]), what a condition's transition time is ([`conditions`]), who is at
//! work ([`election`]), when certificates change ([`certificates`]). The shells around them only gather
//! facts and carry the decisions out.
//!
//! What an operator tells about itself is in [`telemetry`] and [`health`], and served by [`admin`].
//!
//! # Features
//!
//! - `otel`, off unless asked for so that the kit stays light: traces are sent to an OpenTelemetry
//!   collector (OTLP over HTTP). Without it there are logs and metrics, and a setting that asks for
//!   traces is answered with a warning.

pub mod admin;
pub mod breaker;
pub mod certificates;
pub mod client;
pub mod conditions;
pub mod controller;
pub mod desired;
pub mod election;
pub mod error;
pub mod events;
pub mod finalizer;
pub mod health;
pub mod leader;
pub mod manager;
pub mod queue;
pub mod rbac;
pub mod reconcile;
pub mod retry;
pub mod round;
pub mod serve;
pub mod telemetry;
pub mod watch;
pub mod webhook;

pub use error::Error;
pub use manager::Manager;
pub use reconcile::{Kind, Next, Reconciler};
pub use round::Round;
