//! Tests on a running cluster. They take turns: one program, one cluster, one test at a time.

mod faults;
mod kubernetes;
mod lifecycle;
mod sandbox;
