//! A real PostgreSQL for tests and fault scenarios.
//!
//! Binaries come from the system, or are installed with apt where that is allowed ([`binaries`]). A [`Server`] has its
//! own folder below the target folder, listens on loopback only, runs as an unprivileged user, and is stopped and
//! deleted when it is dropped, or when its process ends in any way ([`server`]). Tests share the server of their
//! process and have a database each: [`database`]. Fault scenarios start servers of their own, which write durably,
//! and break them: crash, pause, standby. Between the gateway and a server there may be a [`Proxy`] that cuts or
//! stalls connections, and a [`Pooler`]; in front of several gateways a [`Balancer`].
//!
//! Everything blocks and nothing needs a runtime, so that tests and the fault rig use the same code.
//!
//! Not here: SQL of the gateway, and what it does with a broken database.
//!
//! # Environment
//!
//! `INTERLINGUA_POSTGRES_BIN`: the folder with `postgres` and `initdb`, instead of the usual ones.

mod balancer;
pub mod binaries;
mod folder;
mod pooler;
mod proxy;
pub mod server;
mod standby;
mod supervisor;

use std::sync::OnceLock;

pub use balancer::Balancer;
pub use pooler::{PoolMode, Pooler};
pub use proxy::{Direction, Proxy};
pub use server::{Database, Options, Server};

/// A new, empty database on the server that all tests of this process share. The server does not survive a crash of the
/// machine, but is fast.
///
/// # Panics
/// If there is no PostgreSQL, with the reason and what to install.
#[must_use]
pub fn database() -> Database<'static> {
    let made = shared().database();
    made.unwrap_or_else(|error| panic!("cannot create a database: {error:#}"))
}

/// The server that all tests of this process share.
///
/// # Panics
/// If there is no PostgreSQL, with the reason and what to install.
#[must_use]
pub fn shared() -> &'static Server {
    // Never dropped: its supervisor stops it when this process ends.
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(|| Server::start(&Options::fast()).unwrap_or_else(|error| panic!("{error:#}")))
}
