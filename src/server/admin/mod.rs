//! The listener for operators: metrics, health with reasons, the configuration in force, runs, reload, the log level.
//!
//! A server of its own with one worker: the endpoints of clients and those of operators share no port, and a busy
//! gateway still answers its operator. Not here: who may use it ([`guard`]), and what each path answers ([`api`]).

mod api;
mod guard;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::{Server, ServerHandle};
use actix_web::web::{self, Payload};
use actix_web::{App, HttpRequest, HttpServer};
use arc_swap::ArcSwapOption;
use interlingua_core::event::Millis;

use self::guard::WrongKeys;
use super::Control;
use super::hosts::AllowedHosts;
use crate::engine::Engine;
use crate::observe::{LogFilter, SharedObserver};
use crate::ports::Reload;

/// Connections at once. More wait.
const MAX_CONNECTIONS: usize = 64;
/// How long a client may take to send a head, and how long it may be idle.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);

/// What operators see and change.
pub struct Admin {
    /// The runs.
    pub engine: Engine,
    /// The server of clients.
    pub control: Control,
    /// Metrics, and the audit log.
    pub observer: SharedObserver,
    /// The configuration.
    pub reload: Arc<dyn Reload>,
    /// The level of the log.
    pub log: LogFilter,
    /// The SHA-256 of the key that requests have to show. `None`: none is asked for.
    pub key: Arc<ArcSwapOption<[u8; 32]>>,
    /// When the gateway began to serve.
    pub started: Millis,
}

struct State {
    admin: Admin,
    hosts: AllowedHosts,
    wrong_keys: WrongKeys,
}

/// An admin listener that is running.
pub struct AdminServer {
    /// The bound address.
    pub address: SocketAddr,
    handle: ServerHandle,
}

impl AdminServer {
    /// Stops it, without waiting for clients.
    pub async fn stop(self) {
        self.handle.stop(false).await;
    }
}

/// Serves operators on a listener. Must be called in an actix system; it runs until it is stopped.
///
/// # Errors
/// I/O errors of the listener.
pub fn listen(listener: TcpListener, admin: Admin) -> std::io::Result<AdminServer> {
    let address = listener.local_addr()?;
    let hosts = AllowedHosts::new(None, None, address.ip());
    let state = Arc::new(State { admin, hosts, wrong_keys: WrongKeys::default() });
    let server: Server = HttpServer::new(move || {
        let state = Arc::clone(&state);
        App::new().default_service(web::to(move |request: HttpRequest, payload: Payload| {
            let state = Arc::clone(&state);
            async move { api::serve(&state, &request, payload).await }
        }))
    })
    .workers(1)
    .max_connections(MAX_CONNECTIONS)
    .client_request_timeout(CLIENT_TIMEOUT)
    .client_disconnect_timeout(CLIENT_TIMEOUT)
    .keep_alive(CLIENT_TIMEOUT)
    .disable_signals()
    .listen(listener)?
    .run();

    let handle = server.handle();
    actix_web::rt::spawn(async move {
        if let Err(error) = server.await {
            tracing::error!(%error, "the admin listener has ended");
        }
    });
    Ok(AdminServer { address, handle })
}
