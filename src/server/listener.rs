//! Listening: workers, and what becomes of a connection that comes.
//!
//! The same as actix-web's own server does, but on sockets that have clocks, and within the bounds of the settings.

use std::future::ready;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_http::{HttpService, KeepAlive, Payload, Protocol, Request, Response};
use actix_server::{GracefulShutdownSignal, Server};
use actix_service::{
    IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt, apply_fn_factory, fn_service, map_config,
};
use actix_web::body::BoxBody;
use actix_web::dev::AppConfig;
use actix_web::rt::net::TcpStream;
use actix_web::{App, HttpResponse};
use tokio::time::Instant;

use super::Gateway;
use super::admission::{Connections, REFUSED};
use super::clock::Clock;
use super::connection::{Answer, Connection, Socket};

/// Connections that the system keeps until they are accepted.
const BACKLOG: i32 = 4096;
/// actix-server has no more.
const MAX_WORKERS: usize = 512;
/// A client whose request was refused before its body was read, and one that closes: both get so long to see it.
const LINGER: Duration = Duration::from_secs(2);

/// Serves a gateway on a listener. Answers what is open of it, too.
pub(super) fn listen(listener: TcpListener, gateway: &Arc<Gateway>) -> io::Result<(Server, Arc<Connections>)> {
    let settings = &gateway.settings;
    socket2::SockRef::from(&listener).listen(BACKLOG)?;
    let connections = Connections::new(settings.limits, settings.trusted_proxies.clone());

    let builder = Server::build()
        .workers(settings.workers.min(MAX_WORKERS))
        // Per worker. Beyond, none would be accepted, and so none refused: our own bound comes first.
        .max_concurrent_connections(settings.limits.connections.saturating_add(1024))
        .shutdown_timeout(3)
        .disable_signals();
    let shutdown = builder.graceful_shutdown_signal();
    let (gateway, admitted) = (Arc::clone(gateway), Arc::clone(&connections));
    let factory = move || service(&gateway, &admitted, &shutdown);
    Ok((builder.listen("interlingua", listener, factory)?.run(), connections))
}

/// What a worker does with a connection.
fn service(
    gateway: &Arc<Gateway>,
    connections: &Arc<Connections>,
    shutdown: &GracefulShutdownSignal,
) -> impl ServiceFactory<TcpStream, Config = (), Response = (), Error = actix_http::error::DispatchError, InitError = ()>
+ use<> {
    let gateway = Arc::clone(gateway);
    let expecting = Arc::clone(&gateway);
    let timeouts = gateway.settings.timeouts;
    let connections = Arc::clone(connections);
    let shutdown = shutdown.clone();
    let http = HttpService::build()
        // Connections without a request are closed at once when the server stops.
        .graceful_shutdown_signal(move || {
            let shutdown = shutdown.clone();
            async move { shutdown.notified().await }
        })
        // Both are matters of our own clocks.
        .keep_alive(KeepAlive::Os)
        .client_request_timeout(Duration::ZERO)
        .client_disconnect_timeout(LINGER)
        // A client that closes its side has left: what is under way for it is dropped at once, answer or wait.
        .h1_allow_half_closed(false)
        // A client that asks whether it may send its body is told so only where it may. actix-http would tell any.
        .expect(fn_service(move |request: Request| ready(expect(&expecting, request))))
        .on_connect_ext(|socket: &Socket, data| {
            data.insert(socket.clock());
        })
        .finish(requests(gateway));

    apply_fn_factory(http, move |stream: TcpStream, http| {
        // None: the client has gone already.
        let connection = stream.peer_addr().ok().map(|peer| {
            let Some(permit) = connections.admit(peer.ip()) else { return Err(stream) };
            let clock = Rc::new(Clock::new(timeouts, Instant::now()));
            let socket = Socket::new(stream, Rc::clone(&clock));
            Ok(Connection::new(http.call((socket, Protocol::Http1, Some(peer))), clock, peer, permit))
        });
        async move {
            match connection {
                Some(Ok(connection)) => connection.await,
                Some(Err(refused)) => {
                    // A new socket has room at once; the client may have gone.
                    let _ = refused.writable().await;
                    let _ = refused.try_write(REFUSED);
                    Ok(())
                }
                None => Ok(()),
            }
        }
    })
}

/// Judges the head of a request whose client waits for `100 Continue`.
fn expect(gateway: &Gateway, request: Request) -> Result<Request, Response<BoxBody>> {
    let Some(refusal) = super::handle::refuse_early(gateway, request.head()) else { return Ok(request) };
    if let Some(clock) = request.conn_data::<Rc<Clock>>() {
        // The body that it was about to send may come all the same.
        clock.asked(true);
        clock.answered(Instant::now());
    }
    Err(refusal.into())
}

/// What becomes of a request, and what the clock of its connection is told of it.
fn requests(
    gateway: Arc<Gateway>,
) -> impl ServiceFactory<
    Request,
    Config = (),
    Response = Response<Answer>,
    Error = HttpResponse<BoxBody>,
    InitError = (),
    Service = impl Service<Request, Response = Response<Answer>, Error = HttpResponse<BoxBody>, Future: 'static> + 'static,
> {
    let app = App::new().configure(move |app| super::mount(app, &gateway));
    let app = app.into_factory().map_err(|error: actix_web::Error| error.error_response());
    let app = map_config(app, |()| AppConfig::default());
    apply_fn_factory(app, |mut request: Request, app| {
        // Every connection has one: it is put there when the connection is made.
        let clock = request.conn_data::<Rc<Clock>>().cloned().expect("a connection has a clock");
        clock.asked(!matches!(request.payload(), Payload::None));
        let answer = app.call(request);
        async move {
            match answer.await {
                Ok(answer) => {
                    let answer: Response<BoxBody> = answer.into();
                    Ok(answer.map_body(|_, body| Answer::new(body, clock)))
                }
                Err(refusal) => {
                    clock.answered(Instant::now());
                    Err(refusal)
                }
            }
        }
    })
}
