//! The sockets of the admin listener, with the same handling of timeouts, TLS and limits as the listener for clients.
//!
//! Not here: the paths ([`super::api`]).

use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_http::{Request, Response};
use actix_server::{GracefulShutdownSignal, Server};
use actix_service::{ServiceFactory, fn_service};
use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::rt::net::TcpStream;
use actix_web::web::Payload;
use actix_web::{App, FromRequest as _};
use tokio::time::Instant;

use super::{AdminState, api, playground};
use interlingua_config::ServerTimeouts;
use interlingua_server::admission::{Connections, Limits};
use interlingua_server::connection::{ClientSocket, ConnectionInfo};
use interlingua_server::listener::{ConnectionSetup, RequestServices, http, on_connections, reporting};

/// Maximum number of connections that the kernel queues until they are accepted.
const BACKLOG: i32 = 64;
/// Maximum number of connections. At the limit, the connection with the longest wait for a request is closed in favour
/// of a new one. Twice the number of streams, so that probes and requests of pages have room beside them.
const MAX_CONNECTIONS: usize = 2 * super::streams::MAX_STREAMS;
/// Maximum number of connections from one other machine.
const MAX_PER_ADDRESS: usize = 16;
/// Timeouts of connections. The admin listener has no WebSockets.
const TIMEOUTS: ServerTimeouts = ServerTimeouts {
    head: Duration::from_secs(5),
    body: Duration::from_secs(5),
    write: Duration::from_secs(5),
    idle: Duration::from_secs(10),
    message: Duration::from_secs(5),
    ping: Duration::from_secs(5),
};

/// Serves operators on a listener.
pub(super) fn listen(listener: TcpListener, state: &Arc<AdminState>) -> io::Result<Server> {
    socket2::SockRef::from(&listener).listen(BACKLOG)?;
    let limits = Limits {
        max: MAX_CONNECTIONS,
        max_per_address: MAX_PER_ADDRESS,
        // Effectively no limit: an evicted connection counts until it is closed.
        max_per_loopback_address: 2 * MAX_CONNECTIONS,
        // The listener has no HTTP/2.
        max_streams_per_address: 0,
        max_streams_per_loopback_address: 0,
        proxies: Vec::new(),
    };
    let connections = Connections::new(limits, Arc::clone(state.admin.observer.load().metrics()));

    let builder = Server::build()
        .workers(1)
        // Higher than our own limit: actix-server lets further connections wait instead of refusing them.
        .max_concurrent_connections(2 * MAX_CONNECTIONS)
        .shutdown_timeout(1)
        .disable_signals();
    let shutdown = builder.graceful_shutdown_signal();
    let state = Arc::clone(state);
    let factory = move || service(&state, &connections, &shutdown);
    Ok(builder.listen("admin", listener, factory)?.run())
}

/// The service that handles a connection, over HTTP/1.1.
fn service(
    state: &Arc<AdminState>,
    connections: &Arc<Connections>,
    shutdown: &GracefulShutdownSignal,
) -> impl ServiceFactory<TcpStream, Config = (), Response = (), Error = actix_http::error::DispatchError, InitError = ()>
+ use<> {
    let checking = Arc::clone(state);
    let http = http(shutdown)
        .expect(fn_service(move |request: Request| {
            let state = Arc::clone(&checking);
            async move { expect(&state, request) }
        }))
        .finish(request_service(Arc::clone(state)));
    let setup = ConnectionSetup {
        timeouts: Arc::new(|| TIMEOUTS),
        tls: state.admin.tls.clone(),
        metrics: Arc::clone(state.admin.observer.load().metrics()),
        connections: Arc::clone(connections),
        evictable: Some(Rc::default()),
        shutdown: shutdown.clone(),
    };
    // The admin listener does not offer HTTP/2 over TLS.
    on_connections(http, fn_service(|_: ClientSocket| async { Ok(()) }), setup)
}

/// Checks the head of a request whose client waits for `100 Continue`.
fn expect(state: &AdminState, request: Request) -> Result<Request, Response<BoxBody>> {
    let connection = ConnectionInfo::of_raw(&request);
    match api::check_head(state, request.head(), &connection) {
        Ok(_) => Ok(request),
        Err(fault) => {
            connection.on_refusal(Instant::now());
            Err(api::refuse(state, request.head(), &connection, &fault).into())
        }
    }
}

/// The service that handles requests.
fn request_service(state: Arc<AdminState>) -> impl RequestServices {
    let logging = Arc::clone(&state);
    let app = App::new().default_service(fn_service(move |request: ServiceRequest| {
        let state = Arc::clone(&state);
        async move {
            if api::is_in_playground(request.path()) {
                return playground::serve(&state, request).await;
            }
            let (request, mut payload) = request.into_parts();
            let payload = Payload::from_request(&request, &mut payload).await?;
            let response = api::serve(&state, &request, payload).await;
            Ok(ServiceResponse::new(request, response))
        }
    }));
    // Requests to routes are logged as traffic. Other requests of operators are not.
    reporting(app, move |request| playground::begin_log(&logging, request))
}
