//! The admin listener for operators: metrics, health with reasons, the active configuration, runs, reload, the log
//! level.
//!
//! A separate server with one worker: endpoints for clients and for operators share no port, and a busy gateway still
//! answers its operator. Not here: access ([`guard`]), the paths ([`api`]), and the sockets ([`listener`]).

mod advice;
mod answered;
mod answers;
mod api;
mod assets;
mod console;
mod export;
mod feed;
mod guard;
mod listener;
mod mask;
#[cfg(test)]
mod openapi;
mod opened;
mod overview;
mod panes;
mod pending;
mod playground;
mod prism;
mod run_view;
mod runs;
mod samples;
mod series;
mod sessions;
mod shared;
mod sign_in;
mod snippets;
mod streams;
mod summaries;
mod views;

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use arc_swap::{ArcSwap, ArcSwapOption};
use interlingua_base::rate::Rate;
use interlingua_core::event::Millis;
use interlingua_core::exchange::Mounted;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use self::sessions::Sessions;
use interlingua_base::ports::Reload;
use interlingua_base::tls::SharedTls;
use interlingua_callers::{Callers, Failures};
use interlingua_config::AdminAccess;
use interlingua_engine::Engine;
use interlingua_observe::metrics::History;
use interlingua_observe::{LogFilter, SharedObserver};
use interlingua_server::Control;
use interlingua_server::hosts::AllowedHosts;

/// Wrong keys of one address that are answered with 401, at once and per minute. Further wrong keys are answered with
/// 429.
const MAX_WRONG_KEYS: NonZeroU32 = match NonZeroU32::new(10) {
    Some(count) => count,
    None => NonZeroU32::MIN,
};

/// Mounts a protocol for the agent with this name. `None`: it cannot be mounted.
pub type MountFor = Arc<dyn Fn(&str) -> Option<Mounted> + Send + Sync>;

/// The parts of the gateway that the admin listener reads and changes.
pub struct Admin {
    /// The engine, for runs and agents.
    pub engine: Engine,
    /// The server of clients.
    pub control: Control,
    /// Metrics, and the audit log.
    pub observer: SharedObserver,
    /// The configuration.
    pub reload: Arc<dyn Reload>,
    /// The level of the log.
    pub log: LogFilter,
    /// The SHA-256 of the configured key. `None`: requests authenticate with [`Self::start_key`], if there is one, or
    /// with a client certificate or a sign-in.
    pub key: Arc<ArcSwapOption<[u8; 32]>>,
    /// Certificates and settings of TLS. `None`: the listener accepts plain text.
    pub tls: Option<Arc<SharedTls>>,
    /// The URL of the listener for clients, reachable from this machine.
    pub client_url: String,
    /// The callers that may sign in to the console.
    pub callers: Arc<Callers>,
    /// The settings that a reload replaces.
    pub access: Arc<ArcSwap<AdminAccess>>,
    /// A random key for this process, valid while no key is configured. `None`: credentials were configured at the
    /// start.
    pub start_key: Option<String>,
    /// When the gateway began to serve.
    pub started: Millis,
    /// Mounts the Agent API for an agent. The console shows runs in it, even if no route has it.
    pub agent_api: MountFor,
}

struct AdminState {
    admin: Admin,
    hosts: AllowedHosts,
    failures: Failures,
    sessions: Sessions,
    /// The SHA-256 of [`Admin::start_key`].
    start_key: Option<[u8; 32]>,
    /// Data that the streams of all pages share.
    shared: shared::SharedReads,
    deciders: pending::Deciders,
    /// The URL of this listener.
    url: String,
    agent_states: overview::AgentStates,
    opened: opened::OpenedRuns,
    deleted: summaries::DeletedRuns,
    /// The series of [`series`], sampled once per second.
    history: Mutex<History>,
    /// Counts open streams and exports.
    streams: streams::StreamCounts,
    encoders: streams::Encoders,
    /// One permit: configurations are checked one at a time.
    checks: Arc<Semaphore>,
}

impl AdminState {
    /// The SHA-256 of the operator's key: the configured key, else the start key. `None`: only certificates, and keys
    /// of callers with the right to sign in, are accepted.
    fn operator_key(&self) -> Option<[u8; 32]> {
        self.admin.key.load().as_deref().copied().or(self.start_key)
    }
}

/// A running admin listener.
pub struct AdminServer {
    /// The bound address.
    pub address: SocketAddr,
    handle: ServerHandle,
}

impl AdminServer {
    /// Stops the listener without waiting for clients.
    pub async fn stop(self) {
        self.handle.stop(false).await;
    }
}

/// Serves operators on a listener, until it is stopped. Must be called in an actix system.
///
/// # Errors
/// I/O errors of the listener.
pub fn listen(listener: TcpListener, admin: Admin) -> std::io::Result<AdminServer> {
    let address = listener.local_addr()?;
    let url = format!("{}://{address}", if admin.tls.is_some() { "https" } else { "http" });
    let hosts = AllowedHosts::new(None, None, address.ip());
    let failures = Failures::new(Rate { count: MAX_WRONG_KEYS, per: Duration::from_secs(60) }, MAX_WRONG_KEYS.get());
    let start_key = admin.start_key.as_ref().map(|key| Sha256::digest(key).into());
    let (sessions, deleted) = (Sessions::default(), summaries::DeletedRuns::default());
    let state = Arc::new(AdminState {
        admin,
        hosts,
        failures,
        sessions,
        start_key,
        shared: shared::SharedReads::default(),
        url,
        agent_states: overview::AgentStates::default(),
        opened: opened::OpenedRuns::default(),
        deciders: pending::Deciders::default(),
        deleted,
        history: Mutex::default(),
        streams: streams::StreamCounts::default(),
        encoders: streams::Encoders::start()?,
        checks: Arc::new(Semaphore::new(1)),
    });
    let server = listener::listen(listener, &state)?;
    let handle = server.handle();
    actix_web::rt::spawn(async move {
        // The sampling for the console ends with the listener.
        let ended = tokio::select! {
            ended = server => ended,
            never = series::sample(&state) => match never {},
        };
        if let Err(error) = ended {
            tracing::error!(%error, "the admin listener stopped: restart the gateway to get it back");
        }
    });
    Ok(AdminServer { address, handle })
}
