//! Databases on a whole cluster, as people use them: with the real operator, agents and PostgreSQL.

mod bed;
mod changes;
mod examples;
mod life;
mod metrics;
