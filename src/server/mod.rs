//! Serving HTTP: mounting the adapters' endpoints, reading requests within limits, streaming answers, shutting down.
//!
//! The only room that knows actix-web. What a call means is the engine's matter, how it is spelled the adapters'.

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
use interlingua_core::{Fault, FaultKind};
use tokio::sync::watch;

use crate::config::{Forwarded, Network, Origins, ServerLimits, ServerTimeouts};
use crate::engine::{Engine, Scope};
use crate::store::Health;

pub use self::hosts::AllowedHosts;

/// Log directives for lines of the HTTP library that say nothing an operator needs: how many threads it starts, and every
/// protocol violation of a WebSocket client as an error. A log filter that names these targets itself wins.
pub const QUIET: [&str; 3] = ["actix_server=warn", "actix_http::ws=off", "actix_ws=off"];

/// A protocol where it is mounted.
pub struct Served {
    /// The path, without a slash at its end; empty for the root.
    pub path: String,
    /// Its table.
    pub mounted: Mounted,
    /// On whose behalf and where calls are made; the owner is filled in for each request.
    pub scope: Scope,
    /// How long a stream may be silent before it gives a sign of life.
    pub heartbeat: Duration,
    /// The web pages that may use it.
    pub cors: Origins,
    /// Sessions and runs of this route are its own.
    pub partition: Option<String>,
    /// True for the first route of its protocol: it answers well-known paths at the root.
    pub first: bool,
}

/// How the server itself is set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Threads that serve.
    pub workers: usize,
    /// The largest body of a request, in bytes, where the protocol has no opinion.
    pub max_body: usize,
    /// How long the gateway waits for a client.
    pub timeouts: ServerTimeouts,
    /// How much clients may use at once.
    pub limits: ServerLimits,
    /// The URL clients reach the gateway at, without a slash at its end.
    pub public_url: Option<String>,
    /// Proxies whose word on host and scheme is taken.
    pub trusted_proxies: Vec<Network>,
    /// The headers in which they say it.
    pub forwarded: Forwarded,
    /// The hosts that requests may name.
    pub hosts: AllowedHosts,
}

struct Gateway {
    engine: Engine,
    routes: Vec<Arc<Served>>,
    settings: Settings,
    /// How many WebSockets are open.
    sockets: AtomicUsize,
    /// True once the server stops.
    stops: watch::Receiver<bool>,
    bodies: bodies::Bodies,
    /// What clients have not taken yet.
    unsent: Arc<unsent::Unsent>,
}

/// A server that listens.
pub struct Listening {
    /// Where.
    pub address: SocketAddr,
    handle: ServerHandle,
    server: actix_web::dev::Server,
    connections: Arc<admission::Connections>,
    stopping: watch::Sender<bool>,
}

impl Listening {
    /// Serves until it is stopped by [`Stopper`], or its last thread is gone.
    ///
    /// # Errors
    /// Those of the system.
    pub async fn run(self) -> std::io::Result<()> {
        self.server.await
    }

    /// Stops the server from elsewhere.
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
    /// Tells WebSockets.
    stopping: watch::Sender<bool>,
}

impl Stopper {
    /// Takes no more connections, closes those without a request, and lets answers under way end. Resolves once nothing
    /// is open any more: the server itself looks only once in a second.
    pub async fn stop(&self) {
        const GLANCE: Duration = Duration::from_millis(10);
        self.stopping.send_replace(true);
        let stopped = self.handle.stop(true);
        tokio::pin!(stopped);
        loop {
            tokio::select! {
                () = &mut stopped => return,
                () = tokio::time::sleep(GLANCE) => {
                    if self.connections.are_none() {
                        return;
                    }
                }
            }
        }
    }
}

/// Runs a future on this thread, with all that the server and the engine need around it.
pub fn block_on<F: Future>(future: F) -> F::Output {
    actix_web::rt::System::new().block_on(future)
}

/// Listens, and serves these routes. To be called in an actix system.
///
/// # Errors
/// Those of the system, when the address cannot be listened on.
pub fn listen(
    listener: TcpListener,
    engine: Engine,
    routes: Vec<Served>,
    settings: Settings,
) -> std::io::Result<Listening> {
    let address = listener.local_addr()?;
    let (stopping, stops) = watch::channel(false);
    let gateway = Arc::new(Gateway {
        engine,
        routes: routes.into_iter().map(Arc::new).collect(),
        bodies: bodies::Bodies::new(settings.limits.bodies),
        unsent: unsent::Unsent::new(settings.limits.bodies),
        settings,
        sockets: AtomicUsize::new(0),
        stops,
    });
    let (server, connections) = listener::listen(listener, &gateway)?;
    Ok(Listening { address, handle: server.handle(), server, connections, stopping })
}

fn mount(app: &mut web::ServiceConfig, gateway: &Arc<Gateway>) {
    app.default_service(web::to({
        let gateway = Arc::clone(gateway);
        move |request: actix_web::HttpRequest| {
            let gateway = Arc::clone(&gateway);
            async move { handle::nowhere(&gateway, &request) }
        }
    }));
    health(app, gateway);
    for route in gateway.routes.iter().filter(|route| route.first) {
        let at_root = route.mounted.endpoints.iter().enumerate().filter(|(_, endpoint)| endpoint.at_root);
        for (index, endpoint) in at_root.filter(|_| !route.path.is_empty()) {
            resource(app, gateway, route, endpoint.path.to_owned(), &[index]);
        }
    }
    // Endpoints first, then what is stray below a mount: longer mounts before shorter ones, so that none hides another.
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
                    handle::stray(&gateway, &route, &request, Fault::new(FaultKind::NoSuchPath, message))
                }
            }));
        }
    }
}

/// Endpoints grouped by their path, in the order of the table.
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

/// One path with all its methods.
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
            handle::stray(&gateway, &route, &request, fault)
        }
    })));
}

fn health(app: &mut web::ServiceConfig, gateway: &Arc<Gateway>) {
    type Look = fn(&Gateway) -> (u16, serde_json::Value);
    let probes: [(&str, Look); 2] =
        [("/healthz", |_| (200, serde_json::json!({ "status": "ok" }))), ("/readyz", readiness)];
    for (path, look) in probes {
        let gateway = Arc::clone(gateway);
        app.service(web::resource(path).to(move |request: actix_web::HttpRequest| {
            let gateway = Arc::clone(&gateway);
            async move {
                let (status, body) = look(&gateway);
                handle::health(&gateway, &request, status, &body)
            }
        }));
    }
}

/// Whether new runs are taken, and what is in the way.
fn readiness(gateway: &Gateway) -> (u16, serde_json::Value) {
    if !gateway.engine.is_open() {
        return (503, serde_json::json!({ "status": "shutting down" }));
    }
    match gateway.engine.health() {
        // Why stands in the log: it names files.
        Health::Failing { since, .. } => {
            let for_seconds = since.elapsed().as_secs();
            (503, serde_json::json!({ "status": "not ready", "store": "failing", "for_seconds": for_seconds }))
        }
        Health::Good => (200, serde_json::json!({ "status": "ready" })),
    }
}
