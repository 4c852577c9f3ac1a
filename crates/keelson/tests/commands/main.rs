//! Commands for people on a real API server, without nodes: what they print and how they end.

mod errors;
mod installing;
mod planning;
mod showing;
mod world;
