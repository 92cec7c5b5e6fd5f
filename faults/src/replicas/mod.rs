//! Scenarios with several gateways on one PostgreSQL database: each is a real process that reaches the database through
//! a proxy of its own, in front of one scripted agent that counts its requests.
//!
//! A scenario starts a [`cluster::Cluster`] and a [`load::Load`] of clients that begin runs and resume them elsewhere,
//! injects a fault, ends the load and calls [`oracle::check`], which compares the clients' views with the answers of
//! each gateway afterwards.
//!
//! Not here: the store alone (`tests/store`), and single runs on several gateways (`tests/replicas`).

mod agent;
pub(crate) mod clock;
mod cluster;
pub(crate) mod cut;
mod decisions;
pub(crate) mod failover;
pub(crate) mod first;
pub(crate) mod full;
pub(crate) mod killed;
mod load;
mod oracle;
pub(crate) mod paused;
mod random;
pub(crate) mod restarted;
pub(crate) mod slow;
pub(crate) mod storm;
mod tasks;
pub(crate) mod upgrade;
mod visitors;

use interlingua_testing_support::cluster::RunView;

/// The log line of a gateway whose runs others take over.
const LOST: &str = "this gateway gives up its runs";

/// The number of runs that ended because their gateway lost them.
fn interrupted(all: &[RunView]) -> usize {
    let last = all.iter().filter_map(|seen| seen.frames.last());
    last.filter(|frame| frame.data.contains("GATEWAY_RESTARTED")).count()
}
