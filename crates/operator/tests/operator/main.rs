//! The operator on a real API server. There are no controllers and no nodes: the tests play the
//! StatefulSet controller, the kubelets and the agents.

// What only the long ones need.
#![cfg_attr(not(feature = "long-tests"), allow(dead_code))]

mod acts;
mod admission;
mod backups;
mod bystanders;
mod crashes;
mod drills;
mod life;
#[cfg(feature = "long-tests")]
mod lost;
mod numbers;
mod parallel;
mod players;
#[cfg(feature = "long-tests")]
mod refusals;
mod rights;
mod specs;
#[cfg(feature = "long-tests")]
mod stale;
mod way;
mod world;
