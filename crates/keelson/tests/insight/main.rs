//! What watches over databases, held against what the programs really show: alert rules, dashboards, and the pages
//! that they lead to. No cluster is needed, but a real Prometheus is, which the testbed fetches.

mod alerts;
mod dashboards;
mod gitops;
mod known;
mod pages;
mod reasons;
mod server;
mod supply;
