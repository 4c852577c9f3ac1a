//! Databases on a whole cluster, as people use them: with the real operator, agents and PostgreSQL.

mod bed;
mod changes;
mod examples;
mod failover;
mod foreign;
mod health;
mod life;
mod metrics;
mod pods;
mod rollouts;
mod secrets;
mod upkeep;
mod versions;
mod wants;
mod writer;
