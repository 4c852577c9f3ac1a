//! The kit at work on a real API server: an operator for Greetings, and what the world may do to it.

mod children;
mod cleanup;
mod failures;
mod faults;
mod processes;
mod related;
mod rights;
mod world;

#[allow(dead_code)]
#[path = "../../examples/greeting.rs"]
mod greeting;
