//! The HTTP server: mounts the adapters' endpoints, reads requests within limits, streams responses, shuts down.
//!
//! The only module that uses actix-web. Not here: the meaning of calls (the engine), and their wire format (the
//! adapters).

pub mod access;
pub mod admission;
mod base_url;
mod bodies;
mod check;
mod clock;
pub mod connection;
mod endpoint;
pub mod eviction;
mod forwarded;
pub mod guard;
mod handle;
pub mod hosts;
mod http2;
pub mod listener;
mod messages;
pub mod readiness;
mod refused_pages;
mod replies;
mod request_log;
mod routes;
pub mod served;
mod slots;
mod stream;
mod trailers;
mod unsent;
mod websocket;
mod wrong_base;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::web::{self, Payload};
use actix_web::{HttpRequest, HttpResponse};
use arc_swap::ArcSwap;
use interlingua_core::network::IpNet;
use tokio::sync::watch;

use interlingua_base::tls::SharedTls;
use interlingua_callers::Callers;
use interlingua_config::{Certificates, ForwardedFamily, ServerLimits, ServerTimeouts};
use interlingua_engine::Engine;
use interlingua_observe::{RequestLog, SharedObserver};

pub use self::handle::StreamedRun;
pub use self::hosts::AllowedHosts;
pub use self::routes::{Routes, SharedRoutes};
pub use self::served::ServedRoute;
use self::slots::ResourceSlots;

/// Log directives that suppress noise of the HTTP libraries: their number of threads, and a line for each protocol
/// violation of a client. A log filter with the same target takes precedence, such as `actix_http::h1=error`; one with
/// a shorter target, such as `actix_http=error`, does not.
pub const QUIET: [&str; 5] =
    ["actix_server=warn", "actix_http::h1=off", "actix_http::ws=off", "actix_ws=off", "h2=error"];

/// The settings of the server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The number of worker threads.
    pub workers: usize,
    /// The largest request body in bytes, unless the protocol sets its own limit.
    pub max_body: usize,
    /// Timeouts of client connections, requests and WebSocket messages.
    pub timeouts: ServerTimeouts,
    /// Limits on connections, requests, bodies and other resources of clients.
    pub limits: ServerLimits,
    /// The URL at which clients reach the gateway, without a trailing slash. `None` if it is not configured.
    pub public_url: Option<String>,
    /// Proxies whose forwarded headers are trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// The headers that those proxies set.
    pub forwarded: ForwardedFamily,
    /// The hosts that requests may name.
    pub hosts: AllowedHosts,
    /// Certificates and settings of TLS. `None`: the listener accepts plain text.
    pub tls: Option<Arc<SharedTls>>,
    /// The names in client certificates. `None`: certificates are not accepted.
    pub certificates: Option<Certificates>,
}

/// The progress of the server's shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerPhase {
    /// The server handles requests as usual.
    Serving,
    /// Each connection is closed after its current response, so that clients reconnect elsewhere.
    Draining,
    /// The server accepts no more connections and closes those that are open.
    Stopping,
}

/// The parts that all requests share.
struct Gateway {
    engine: Engine,
    callers: Arc<Callers>,
    routes: SharedRoutes,
    settings: ArcSwap<Settings>,
    observer: SharedObserver,
    /// Open WebSockets.
    sockets: Arc<ResourceSlots>,
    /// Requests in progress, streams included.
    followers: Arc<ResourceSlots>,
    phase: watch::Receiver<ServerPhase>,
    connections: Arc<admission::Connections>,
    bodies: bodies::Bodies,
    /// Response bytes that clients have not read yet.
    unsent: Arc<unsent::Unsent>,
    refused_pages: refused_pages::RefusedPages,
}

/// A bound server.
pub struct Listening {
    /// The bound address; never with port 0.
    pub address: SocketAddr,
    handle: ServerHandle,
    server: actix_web::dev::Server,
    connections: Arc<admission::Connections>,
    phase: watch::Sender<ServerPhase>,
    gateway: Arc<Gateway>,
}

impl Listening {
    /// Serves until a [`Stopper`] stops the server, or its last worker thread ends.
    ///
    /// # Errors
    /// I/O errors.
    pub async fn run(self) -> std::io::Result<()> {
        self.server.await
    }

    /// A handle that replaces the routes while the server is running.
    #[must_use]
    pub fn routes(&self) -> SharedRoutes {
        self.gateway.routes.clone()
    }

    /// A handle that replaces settings while the server is running.
    #[must_use]
    pub fn control(&self) -> Control {
        Control(Arc::clone(&self.gateway))
    }

    /// A handle that stops the server.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        let connections = Arc::clone(&self.connections);
        Stopper { handle: self.handle.clone(), connections, phase: self.phase.clone() }
    }
}

/// Stops a server.
pub struct Stopper {
    handle: ServerHandle,
    connections: Arc<admission::Connections>,
    phase: watch::Sender<ServerPhase>,
}

impl Stopper {
    /// Starts to drain: each response closes its connection, and idle WebSockets are closed.
    pub fn drain(&self) {
        self.phase.send_replace(ServerPhase::Draining);
    }

    /// Stops accepting connections, closes idle ones and waits for pending responses. Resolves when no connection is
    /// open, or when actix-server gives up on the rest after its shutdown timeout. Polls the number of connections,
    /// because actix-server itself checks only once per second.
    pub async fn stop(&self) {
        const POLL_INTERVAL: Duration = Duration::from_millis(10);

        self.phase.send_replace(ServerPhase::Stopping);
        let stopped = self.handle.stop(true);
        tokio::pin!(stopped);
        loop {
            tokio::select! {
                () = &mut stopped => return,
                () = tokio::time::sleep(POLL_INTERVAL) => {
                    if self.connections.is_empty() {
                        return;
                    }
                }
            }
        }
    }
}

/// Runs a future on this thread, in the runtime that the server and the engine need.
pub fn block_on<F: Future>(future: F) -> F::Output {
    actix_web::rt::System::new().block_on(future)
}

/// Serves these routes on a listener. Must be called in an actix system.
///
/// # Errors
/// I/O errors of the listener.
pub fn listen(
    listener: TcpListener,
    engine: Engine,
    callers: Arc<Callers>,
    routes: Routes,
    settings: Settings,
    observer: SharedObserver,
) -> std::io::Result<Listening> {
    let address = listener.local_addr()?;
    let (phase, is_in_phase) = watch::channel(ServerPhase::Serving);
    let metrics = Arc::clone(observer.load().metrics());
    let limits = admission::Limits::new(settings.limits, settings.trusted_proxies.clone());
    let connections = admission::Connections::new(limits, metrics);
    let gateway = Arc::new(Gateway {
        engine,
        callers,
        routes: SharedRoutes::new(routes),
        bodies: bodies::Bodies::new(settings.limits.bodies),
        unsent: unsent::Unsent::new(settings.limits.bodies),
        sockets: ResourceSlots::new("WebSockets", settings.limits.sockets),
        followers: ResourceSlots::new("requests", settings.limits.followers),
        settings: ArcSwap::from_pointee(settings),
        observer,
        phase: is_in_phase,
        connections: Arc::clone(&connections),
        refused_pages: refused_pages::RefusedPages::default(),
    });

    let server = listener::listen(listener, &gateway, &connections)?;
    Ok(Listening { address, handle: server.handle(), server, connections, phase, gateway })
}

impl Gateway {
    fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }
}

/// Controls a running server: replaces its settings, and sends it requests of operators.
#[derive(Clone)]
pub struct Control(Arc<Gateway>);

impl Control {
    /// Answers a request that an operator sent through the console. `name`: the operator.
    pub async fn serve_operator(&self, name: &str, request: HttpRequest, payload: Payload) -> HttpResponse {
        endpoint::serve_operator(Arc::clone(&self.0), name, request, payload).await
    }

    /// Starts the log of a request, as for requests of clients, and stores it in the request's extensions. Also returns
    /// the phase of the server.
    #[must_use]
    pub fn begin_log(&self, request: &actix_http::Request) -> (Arc<RequestLog>, watch::Receiver<ServerPhase>) {
        (request_log::begin(&self.0, request), self.0.phase.clone())
    }

    /// Replaces the settings. The number of workers stays the same, and an open connection keeps the timeouts of its
    /// clock.
    pub fn replace_settings(&self, settings: Settings) {
        self.0.connections.set_limits(settings.limits, settings.trusted_proxies.clone());
        self.0.bodies.set_max(settings.limits.bodies);
        self.0.unsent.set_max(settings.limits.bodies);
        self.0.sockets.set_max(settings.limits.sockets);
        self.0.followers.set_max(settings.limits.followers);
        self.0.settings.store(Arc::new(settings));
    }

    /// All routes, in the order of the configuration.
    pub fn all_routes(&self) -> Vec<Arc<ServedRoute>> {
        self.0.routes.load().all().to_vec()
    }

    /// The routes of an agent, in the order of the configuration.
    pub fn routes_of(&self, agent: &str) -> Vec<Arc<ServedRoute>> {
        let all = self.0.routes.load();
        all.all().iter().filter(|route| route.scope.agents.contains(agent)).cloned().collect()
    }

    /// The URL at which clients reach the gateway, if it is configured.
    pub fn public_url(&self) -> Option<String> {
        self.0.settings().public_url.clone()
    }

    /// The number of open connections and the number of open WebSockets.
    #[must_use]
    pub fn open(&self) -> (usize, usize) {
        (self.0.connections.total(), self.0.sockets.in_use())
    }
}

/// Passes every request to [`endpoint::serve`], which has the routing table. actix-web itself has no routes.
fn configure(app: &mut web::ServiceConfig, gateway: &Arc<Gateway>) {
    let gateway = Arc::clone(gateway);
    app.default_service(web::to(move |request: HttpRequest, payload: Payload| {
        endpoint::serve(Arc::clone(&gateway), request, payload)
    }));
}
