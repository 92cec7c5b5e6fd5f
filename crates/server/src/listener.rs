//! The listener: worker threads, and the setup of accepted connections.
//!
//! Equivalent to actix-web's own server, with three additions: sockets report to clocks, connections are limited, and
//! TLS certificates can be replaced.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_http::{HttpServiceBuilder, KeepAlive, Payload, Protocol, Request, Response};
use actix_server::{GracefulShutdownSignal, Server};
use actix_service::{
    IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt, apply_fn_factory, fn_factory, fn_service,
    map_config,
};
use actix_web::body::BoxBody;
use actix_web::dev::{AppConfig, ServiceResponse};
use actix_web::rt::net::TcpStream;
use actix_web::{App, HttpResponse};
use tokio::sync::watch;
use tokio::time::Instant;

use super::admission::{Connections, Permit, REJECTED_RESPONSE};
use super::clock::Clock;
use super::connection::{ClientSocket, Connection, ConnectionInfo, TimedBody};
use super::eviction::Evictable;
use super::{Gateway, ServerPhase, endpoint, http2, request_log};
use interlingua_base::tls::SharedTls;
use interlingua_config::ServerTimeouts;
use interlingua_observe::RequestLog;
use interlingua_observe::metrics::Metrics;

/// Maximum number of connections that the kernel queues until they are accepted.
const BACKLOG: i32 = 4096;
/// Maximum number of workers that actix-server allows.
const MAX_WORKERS: usize = 512;
/// Time that a connection stays open after a response to an unread body, or after a shutdown, so that the client can
/// read the response.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves a gateway on a listener.
pub(super) fn listen(
    listener: TcpListener,
    gateway: &Arc<Gateway>,
    connections: &Arc<Connections>,
) -> io::Result<Server> {
    let settings = gateway.settings();
    socket2::SockRef::from(&listener).listen(BACKLOG)?;

    let builder = Server::build()
        .workers(settings.workers.min(MAX_WORKERS))
        // Per worker. Higher than our own limit: actix-server lets further connections wait instead of rejecting them.
        .max_concurrent_connections(settings.limits.connections.saturating_add(1024))
        .shutdown_timeout(3)
        .disable_signals();
    let shutdown = builder.graceful_shutdown_signal();
    let (gateway, admission) = (Arc::clone(gateway), Arc::clone(connections));
    let factory = move || service(&gateway, &admission, &shutdown);
    Ok(builder.listen("interlingua", listener, factory)?.run())
}

/// The service that handles a connection, over HTTP/1.1 or HTTP/2.
fn service(
    gateway: &Arc<Gateway>,
    connections: &Arc<Connections>,
    shutdown: &GracefulShutdownSignal,
) -> impl ServiceFactory<TcpStream, Config = (), Response = (), Error = actix_http::error::DispatchError, InitError = ()>
+ use<> {
    let (expect_gateway, settings_gateway) = (Arc::clone(gateway), Arc::clone(gateway));
    let http = http(shutdown)
        // By default, actix-http would answer every `Expect: 100-continue` with 100.
        .expect(fn_service(move |request: Request| endpoint::expect(Arc::clone(&expect_gateway), request)))
        .finish(request_service(Arc::clone(gateway)));
    let setup = ConnectionSetup {
        timeouts: Arc::new(move || settings_gateway.settings().timeouts),
        tls: gateway.settings().tls.clone(),
        metrics: Arc::clone(gateway.observer.load().metrics()),
        connections: Arc::clone(connections),
        evictable: None,
        shutdown: shutdown.clone(),
    };
    on_connections(http, over_http2(Arc::clone(gateway)), setup)
}

/// The service that handles HTTP/2 connections.
fn over_http2(
    gateway: Arc<Gateway>,
) -> impl ServiceFactory<
    ClientSocket,
    Config = (),
    Response = (),
    Error = actix_http::error::DispatchError,
    InitError = (),
    Service: 'static,
    Future: 'static,
> {
    let app = request_service(Arc::clone(&gateway));
    fn_factory(move || {
        let (app, gateway) = (app.new_service(()), Arc::clone(&gateway));
        async move {
            let app = Rc::new(app.await?);
            Ok(fn_service(move |socket: ClientSocket| {
                let served = http2::serve(socket, Rc::clone(&app), Arc::clone(&gateway));
                async move {
                    served.await;
                    Ok(())
                }
            }))
        }
    })
}

/// A builder for HTTP/1.1 services on sockets that report to clocks.
pub fn http<S>(shutdown: &GracefulShutdownSignal) -> HttpServiceBuilder<ClientSocket, S>
where
    S: ServiceFactory<Request, Config = ()>,
    S::Error: Into<Response<BoxBody>> + 'static,
    S::InitError: fmt::Debug,
    <S::Service as Service<Request>>::Future: 'static,
{
    let shutdown = shutdown.clone();
    HttpServiceBuilder::default()
        // Close idle connections at once when the server stops.
        .graceful_shutdown_signal(move || {
            let shutdown = shutdown.clone();
            async move { shutdown.notified().await }
        })
        // The clocks of connections handle both timeouts.
        .keep_alive(KeepAlive::Os)
        .client_request_timeout(Duration::ZERO)
        .client_disconnect_timeout(LINGER_TIMEOUT)
        // A client that closes its sending side has disconnected: drop its pending requests at once.
        .h1_allow_half_closed(false)
        .on_connect_ext(|socket: &ClientSocket, data| {
            data.insert(socket.info());
        })
}

/// The service that handles accepted connections. Sets up each connection and passes it to `http2` if the client chose
/// HTTP/2 in the TLS handshake, else to `http`.
pub fn on_connections<F, G>(
    http: F,
    http2: G,
    setup: ConnectionSetup,
) -> impl ServiceFactory<TcpStream, Config = (), Response = (), Error = F::Error, InitError = F::InitError> + use<F, G>
where
    F: ServiceFactory<(ClientSocket, Protocol, Option<SocketAddr>), Config = (), Response = ()>,
    F::Service: 'static,
    F::Future: 'static,
    G: ServiceFactory<ClientSocket, Config = (), Response = (), Error = F::Error, InitError = F::InitError>,
    G::Service: 'static,
    G::Future: 'static,
{
    fn_factory(move || {
        let (http, http2, setup) = (http.new_service(()), http2.new_service(()), setup.clone());
        async move {
            // Shared, because a connection waits for its TLS handshake before it is passed to one of them.
            let (http, http2) = (Rc::new(http.await?), Rc::new(http2.await?));
            Ok(fn_service(move |stream: TcpStream| setup.handle(stream, Rc::clone(&http), Rc::clone(&http2))))
        }
    })
}

/// Shared parts of all connections of a worker.
#[derive(Clone)]
pub struct ConnectionSetup {
    /// The active timeouts: a reload may replace them.
    pub timeouts: Arc<dyn Fn() -> ServerTimeouts + Send + Sync>,
    /// Certificates and settings of TLS. `None`: plain text.
    pub tls: Option<Arc<SharedTls>>,
    /// Counts connections.
    pub metrics: Arc<Metrics>,
    /// The open connections and their limits.
    pub connections: Arc<Connections>,
    /// The connections that can be closed in favour of new ones. `None`: new connections beyond the limit are rejected.
    pub evictable: Option<Rc<Evictable>>,
    /// Announces that the server stops.
    pub shutdown: GracefulShutdownSignal,
}

impl ConnectionSetup {
    /// Handles an accepted connection to its end.
    fn handle<S, T>(
        &self,
        stream: TcpStream,
        http: Rc<S>,
        http2: Rc<T>,
    ) -> impl Future<Output = Result<(), S::Error>> + use<S, T>
    where
        S: Service<(ClientSocket, Protocol, Option<SocketAddr>), Response = ()>,
        T: Service<ClientSocket, Response = (), Error = S::Error>,
    {
        // `None` if the client has disconnected already.
        let connection = stream.peer_addr().ok().map(|peer| {
            let Some(permit) = self.admit(peer) else { return Err(stream) };
            let clock = Rc::new(Clock::new((self.timeouts)(), self.tls.is_some(), Instant::now()));
            let tls = self.tls.clone().map(|tls| (tls, Handshake(Some(Arc::clone(&self.metrics)))));
            let opening = open(stream, peer, Rc::clone(&clock), tls, self.shutdown.clone());
            let served = async move {
                let Some(socket) = opening.await else { return Ok(()) };
                if socket.is_http2() {
                    // Boxed, so that HTTP/1.1 connections do not reserve memory for it.
                    return Box::pin(http2.call(socket)).await;
                }
                http.call((socket, Protocol::Http1, Some(peer))).await
            };
            let evicted = self.evictable.as_ref().map(|evictable| evictable.add(&clock));
            Ok((Connection::new(served, clock, peer, permit), evicted))
        });

        let secure = self.tls.is_some();
        async move {
            match connection {
                Some(Ok((connection, None))) => connection.await,
                Some(Ok((connection, Some(evicted)))) => tokio::select! {
                    ended = connection => ended,
                    () = evicted.notified() => Ok(()),
                },
                // Before the TLS handshake, no response can be sent.
                Some(Err(_)) if secure => Ok(()),
                Some(Err(rejected)) => {
                    // A new socket is writable at once. Errors mean that the client has disconnected.
                    let _ = rejected.writable().await;
                    let _ = rejected.try_write(REJECTED_RESPONSE);
                    Ok(())
                }
                None => Ok(()),
            }
        }
    }
}

impl ConnectionSetup {
    /// Admits a connection, or rejects it with `None`. At the limit, a waiting connection is evicted, if evictions are
    /// enabled.
    fn admit(&self, peer: SocketAddr) -> Option<Permit> {
        let makes_room = |evictable: &Rc<Evictable>| self.connections.is_full() && evictable.evict_oldest();
        match self.evictable.as_ref().is_some_and(makes_room) {
            true => self.connections.admit_instead(peer.ip()),
            false => self.connections.admit(peer.ip()),
        }
    }
}

/// Counts a TLS handshake as failed if it is dropped before [`Self::end`], also by a timeout.
struct Handshake(Option<Arc<Metrics>>);

impl Handshake {
    /// The handshake succeeded, or the server stops.
    fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        if let Some(metrics) = self.0.take() {
            metrics.tls_handshake_failed();
        }
    }
}

/// Prepares a connection for HTTP. `None` if the TLS handshake fails or the server stops before its end.
async fn open(
    stream: TcpStream,
    peer: SocketAddr,
    clock: Rc<Clock>,
    tls: Option<(Arc<SharedTls>, Handshake)>,
    shutdown: GracefulShutdownSignal,
) -> Option<ClientSocket> {
    let (tls, handshake) = tls.unzip();
    let opened = tokio::select! {
        biased;
        opened = ClientSocket::open(stream, peer, clock, tls.as_ref()) => opened.map(Some),
        () = shutdown.notified() => Ok(None),
    };

    match opened {
        Ok(socket) => {
            if let Some(handshake) = handshake {
                handshake.end();
            }
            socket
        }
        Err(error) => {
            // Not a warning: scanners would fill the log.
            tracing::debug!(client = %peer.ip(), %error, "the TLS handshake failed");
            None
        }
    }
}

/// The service that handles requests and logs them.
fn request_service(gateway: Arc<Gateway>) -> impl RequestServices {
    let own_gateway = Arc::clone(&gateway);
    let app = App::new().configure(move |app| super::configure(app, &own_gateway));
    reporting(app, move |request| {
        let log = request_log::of_raw(request).unwrap_or_else(|| request_log::begin(&gateway, request));
        Some((log, gateway.phase.clone()))
    })
}

/// A factory of services that handle the requests of a worker.
pub trait RequestServices:
    ServiceFactory<
        Request,
        Config = (),
        Response = Response<TimedBody>,
        Error = HttpResponse<BoxBody>,
        InitError = (),
        Service: Service<Request, Future: 'static> + 'static,
    >
{
}

impl<F> RequestServices for F where
    F: ServiceFactory<
            Request,
            Config = (),
            Response = Response<TimedBody>,
            Error = HttpResponse<BoxBody>,
            InitError = (),
            Service: Service<Request, Future: 'static> + 'static,
        >
{
}

/// Wraps an application so that its requests are reported to the clock of their connection. `begin` returns the log of
/// a request, and the phase of the server at the end of the request; `None`: the request is not logged.
pub fn reporting<A, F>(
    app: A,
    begin: impl Fn(&Request) -> Option<(Arc<RequestLog>, watch::Receiver<ServerPhase>)> + Clone + 'static,
) -> impl RequestServices
where
    A: IntoServiceFactory<F, Request>,
    F: ServiceFactory<
            Request,
            Config = AppConfig,
            Response = ServiceResponse,
            Error = actix_web::Error,
            InitError = (),
            Service: Service<Request, Future: 'static> + 'static,
            Future: 'static,
        > + 'static,
{
    let app = app.into_factory().map_err(|error: actix_web::Error| error.error_response());
    let app = map_config(app, |()| AppConfig::default());

    apply_fn_factory(app, move |mut request: Request, app| {
        let clock = Rc::clone(&ConnectionInfo::of_raw(&request).clock);
        clock.on_request(!matches!(request.payload(), Payload::None));
        let log = begin(&request);
        let response = app.call(request);
        async move {
            match response.await {
                Ok(response) => {
                    let mut response: Response<BoxBody> = response.into();
                    let log = log.map(|(log, phase)| {
                        request_log::end(&log, &mut response, *phase.borrow());
                        log
                    });
                    Ok(response.map_body(|_, body| TimedBody::new(body, clock, log)))
                }
                Err(rejection) => {
                    clock.on_response_end(Instant::now());
                    Err(rejection)
                }
            }
        }
    })
}
