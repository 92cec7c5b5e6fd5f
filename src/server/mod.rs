//! The HTTP server: mounts the adapters' endpoints, reads requests within limits, streams responses, shuts down.
//!
//! The only module that uses actix-web. Not here: the meaning of calls (the engine), and their wire format (the
//! adapters).

mod admission;
mod base_url;
mod bodies;
mod clock;
mod connection;
mod forwarded;
mod guard;
mod handle;
mod hosts;
mod listener;
mod messages;
mod stream;
mod unsent;
mod websocket;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::web;
use interlingua_core::exchange::{Endpoint, Mounted};
use interlingua_core::network::IpNet;
use interlingua_core::{Fault, FaultKind};
use tokio::sync::watch;

use crate::config::{Forwarded, Origins, ServerLimits, ServerTimeouts};
use crate::engine::{Engine, Scope};
use crate::store::Health;

pub use self::hosts::AllowedHosts;

/// Log directives that suppress useless lines of the HTTP library: the number of threads it starts, and an error for
/// every protocol violation of a WebSocket client. A log filter that names these targets takes precedence.
pub const QUIET: [&str; 3] = ["actix_server=warn", "actix_http::ws=off", "actix_ws=off"];

/// A mounted protocol.
pub struct Served {
    /// The path without a trailing slash; empty for the root.
    pub path: String,
    /// What the adapter returned for this mount.
    pub mounted: Mounted,
    /// The scope of engine calls. The owner is set for each request.
    pub scope: Scope,
    /// How long a stream may be idle before a keep-alive is sent; zero for never.
    pub heartbeat: Duration,
    /// The web pages that may use the route.
    pub cors: Origins,
    /// The path that separates sessions and runs of this route from those of others. `None` if they are shared.
    pub partition: Option<String>,
    /// True for the first route of its protocol, which also serves well-known paths at the root.
    pub first: bool,
}

/// The settings of the server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The number of worker threads.
    pub workers: usize,
    /// The largest request body in bytes, unless the protocol sets its own limit.
    pub max_body: usize,
    /// How long the gateway waits for a client.
    pub timeouts: ServerTimeouts,
    /// What clients may use at the same time.
    pub limits: ServerLimits,
    /// The URL at which clients reach the gateway, without a trailing slash. `None` if it is not configured.
    pub public_url: Option<String>,
    /// Proxies whose forwarded headers are trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Which headers those proxies set.
    pub forwarded: Forwarded,
    /// The hosts that requests may name.
    pub hosts: AllowedHosts,
}

struct Gateway {
    engine: Engine,
    routes: Vec<Arc<Served>>,
    settings: Settings,
    /// The number of open WebSockets.
    sockets: AtomicUsize,
    /// True once the server is stopping.
    stopping: watch::Receiver<bool>,
    bodies: bodies::Bodies,
    /// Response bytes that clients have not read yet.
    unsent: Arc<unsent::Unsent>,
}

/// A server that is listening.
pub struct Listening {
    /// The bound address; never with port 0.
    pub address: SocketAddr,
    handle: ServerHandle,
    server: actix_web::dev::Server,
    connections: Arc<admission::Connections>,
    stopping: watch::Sender<bool>,
}

impl Listening {
    /// Serves until it is stopped by [`Stopper`], or its last thread ends.
    ///
    /// # Errors
    /// I/O errors.
    pub async fn run(self) -> std::io::Result<()> {
        self.server.await
    }

    /// A handle that stops the server.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        let connections = Arc::clone(&self.connections);
        Stopper { handle: self.handle.clone(), connections, stopping: self.stopping.clone() }
    }
}

/// Stops a server.
pub struct Stopper {
    handle: ServerHandle,
    connections: Arc<admission::Connections>,
    /// Notifies WebSockets.
    stopping: watch::Sender<bool>,
}

impl Stopper {
    /// Accepts no more connections, closes idle ones, and lets pending responses end. Resolves once no connection is
    /// open: actix-server itself checks only once per second.
    pub async fn stop(&self) {
        const POLL_INTERVAL: Duration = Duration::from_millis(10);

        self.stopping.send_replace(true);
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
    routes: Vec<Served>,
    settings: Settings,
) -> std::io::Result<Listening> {
    let address = listener.local_addr()?;
    let (stop, stopping) = watch::channel(false);
    let gateway = Arc::new(Gateway {
        engine,
        routes: routes.into_iter().map(Arc::new).collect(),
        bodies: bodies::Bodies::new(settings.limits.bodies),
        unsent: unsent::Unsent::new(settings.limits.bodies),
        settings,
        sockets: AtomicUsize::new(0),
        stopping,
    });

    let (server, connections) = listener::listen(listener, &gateway)?;
    Ok(Listening { address, handle: server.handle(), server, connections, stopping: stop })
}

fn mount(app: &mut web::ServiceConfig, gateway: &Arc<Gateway>) {
    app.default_service(web::to({
        let gateway = Arc::clone(gateway);
        move |request: actix_web::HttpRequest| {
            let gateway = Arc::clone(&gateway);
            async move { handle::not_found(&gateway, &request) }
        }
    }));
    health(app, gateway);
    for route in gateway.routes.iter().filter(|route| route.first) {
        let at_root = route.mounted.endpoints.iter().enumerate().filter(|(_, endpoint)| endpoint.at_root);
        for (index, endpoint) in at_root.filter(|_| !route.path.is_empty()) {
            resource(app, gateway, route, endpoint.path.to_owned(), &[index]);
        }
    }

    // Endpoints first, then the fallbacks below mounts: longer mounts before shorter ones, so that none hides another.
    let mut routes: Vec<&Arc<Served>> = gateway.routes.iter().collect();
    routes.sort_by_key(|route| std::cmp::Reverse(route.path.len()));
    for route in &routes {
        for (path, indexes) in by_path(&route.mounted.endpoints) {
            let path = format!("{}{path}", route.path);
            if path == route.path {
                if !path.is_empty() {
                    resource(app, gateway, route, path.clone(), &indexes);
                }
                resource(app, gateway, route, format!("{path}/"), &indexes);
            } else {
                resource(app, gateway, route, path, &indexes);
            }
        }
    }

    for route in &routes {
        for path in [route.path.clone(), format!("{}/{{tail:.*}}", route.path)] {
            if path.is_empty() {
                continue;
            }

            let (gateway, route) = (Arc::clone(gateway), Arc::clone(route));
            app.service(web::resource(path).to(move |request: actix_web::HttpRequest| {
                let (gateway, route) = (Arc::clone(&gateway), Arc::clone(&route));
                async move {
                    let message = format!("no endpoint at '{}'", request.path());
                    handle::fallback(&gateway, &route, &request, Fault::new(FaultKind::NoSuchPath, message))
                }
            }));
        }
    }
}

/// The indexes of endpoints grouped by path, in their original order.
fn by_path(endpoints: &[Endpoint]) -> Vec<(&'static str, Vec<usize>)> {
    let mut paths: Vec<(&'static str, Vec<usize>)> = Vec::new();
    for (index, endpoint) in endpoints.iter().enumerate() {
        match paths.iter_mut().find(|(path, _)| *path == endpoint.path) {
            Some((_, indexes)) => indexes.push(index),
            None => paths.push((endpoint.path, vec![index])),
        }
    }

    paths
}

/// Registers one path with all its methods.
fn resource(
    app: &mut web::ServiceConfig,
    gateway: &Arc<Gateway>,
    route: &Arc<Served>,
    path: String,
    indexes: &[usize],
) {
    let mut resource = web::resource(path);
    let mut allow = Vec::new();
    for &index in indexes {
        let method = route.mounted.endpoints[index].method;
        let methods: &[actix_web::http::Method] = match method {
            interlingua_core::Method::Get => &[actix_web::http::Method::GET, actix_web::http::Method::HEAD],
            interlingua_core::Method::Post => &[actix_web::http::Method::POST],
            interlingua_core::Method::Put => &[actix_web::http::Method::PUT],
            interlingua_core::Method::Patch => &[actix_web::http::Method::PATCH],
            interlingua_core::Method::Delete => &[actix_web::http::Method::DELETE],
        };
        allow.push(method.as_str());
        if method == interlingua_core::Method::Get {
            allow.push("HEAD");
        }
        for method in methods {
            let (gateway, route) = (Arc::clone(gateway), Arc::clone(route));
            resource = resource.route(web::method(method.clone()).to(move |request, payload| {
                handle::endpoint(Arc::clone(&gateway), Arc::clone(&route), index, request, payload)
            }));
        }
    }

    let (gateway, route) = (Arc::clone(gateway), Arc::clone(route));
    app.service(resource.default_service(web::to(move |request: actix_web::HttpRequest| {
        let (gateway, route, allow) = (Arc::clone(&gateway), Arc::clone(&route), allow.clone());
        async move {
            let is_preflight = request.method() == actix_web::http::Method::OPTIONS;
            if is_preflight && !route.cors.is_empty() {
                return handle::preflight(&gateway, &route, &request, &allow);
            }

            let message = format!("'{}' is not a method of '{}'", request.method(), request.path());
            let mut fault = Fault::new(FaultKind::MethodNotAllowed, message);
            fault.allow = allow;
            handle::fallback(&gateway, &route, &request, fault)
        }
    })));
}

fn health(app: &mut web::ServiceConfig, gateway: &Arc<Gateway>) {
    type Probe = fn(&Gateway) -> (u16, serde_json::Value);

    let probes: [(&str, Probe); 2] =
        [("/healthz", |_| (200, serde_json::json!({ "status": "ok" }))), ("/readyz", readiness)];
    for (path, probe) in probes {
        let gateway = Arc::clone(gateway);
        app.service(web::resource(path).to(move |request: actix_web::HttpRequest| {
            let gateway = Arc::clone(&gateway);
            async move {
                let (status, body) = probe(&gateway);
                handle::health(&gateway, &request, status, &body)
            }
        }));
    }
}

/// Status and body of `/readyz`: whether new runs are accepted.
fn readiness(gateway: &Gateway) -> (u16, serde_json::Value) {
    if !gateway.engine.is_open() {
        return (503, serde_json::json!({ "status": "shutting down" }));
    }

    match gateway.engine.health() {
        // The reason is only logged, since it may contain file names.
        Health::Failing { since, .. } => {
            let for_seconds = since.elapsed().as_secs();
            (503, serde_json::json!({ "status": "not ready", "store": "failing", "for_seconds": for_seconds }))
        }
        Health::Good => (200, serde_json::json!({ "status": "ready" })),
    }
}
