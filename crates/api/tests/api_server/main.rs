//! The kinds on a real API server, with a real conversion webhook: what is accepted, what is refused and
//! in which words, and what people see.

mod conversion;
mod plane;
mod rules;
mod shown;
mod webhook;
