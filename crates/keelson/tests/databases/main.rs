//! Databases on a whole cluster, as people use them: with the real operator, agents and PostgreSQL.

mod apps;
mod backups;
mod bed;
#[cfg(feature = "long-tests")]
mod blackout;
mod changes;
mod commands;
mod drills;
mod examples;
mod failover;
mod foreign;
mod health;
mod in_place;
mod leading;
mod life;
mod metrics;
mod misfortunes;
#[cfg(feature = "long-tests")]
mod outages;
mod paused;
mod pods;
#[cfg(feature = "long-tests")]
mod readers;
mod rollouts;
mod secrets;
#[cfg(feature = "long-tests")]
mod standby;
mod upkeep;
mod versions;
mod wants;
mod writer;
