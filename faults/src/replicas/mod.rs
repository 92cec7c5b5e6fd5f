//! Scenarios with several gateways on one PostgreSQL database: each is a real process that reaches the database through
//! a proxy of its own, in front of one scripted agent that counts what it is asked.
//!
//! A scenario starts a [`cluster::Cluster`] and a [`load::Load`] of clients that begin runs and resume them elsewhere,
//! breaks something, ends the load and lets [`oracle::check`] compare what clients saw with what each gateway says
//! afterwards.
//!
//! Not here: the store alone (`tests/store`), and single runs on several gateways (`tests/replicas`).

mod agent;
mod client;
mod cluster;
pub(crate) mod killed;
mod load;
mod oracle;
mod random;
