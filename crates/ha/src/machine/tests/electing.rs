//! Election.
