//! What any Kubernetes operator needs, and nothing about databases.
//!
//! The decisions are here as plain values that read no clock and do no IO: what to work on next
//! ([`queue`]), how long to wait after a failure ([`retry`]), whether an outside system may be asked
//! again ([`breaker`]), what a condition's transition time is ([`conditions`]), who is at
//! work ([`election`]), when certificates change ([`certificates`]). The shells around them only gather
//! facts and carry the decisions out.

pub mod breaker;
pub mod certificates;
pub mod conditions;
pub mod controller;
pub mod election;
pub mod leader;
pub mod queue;
pub mod retry;
pub mod serve;
pub mod webhook;
