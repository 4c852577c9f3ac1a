//! Installing Keelson with the real Helm: the chart by itself, and on a running cluster. Tests on the cluster
//! take turns, and leave no Keelson on it.

mod bed;
mod life;
mod mode;
mod monitoring;
mod packages;
mod rendered;
