//! Webhooks on a real API server: they are called, and go on being called whatever happens to their
//! certificates.

mod calls;
mod damage;
mod plane;
mod renewal;
mod rights;
