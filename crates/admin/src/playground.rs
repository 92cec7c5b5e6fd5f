//! The console's playground: people with the role `act` send any request to any route.
//!
//! The route's own handler answers the request, in the route's protocol and within its limits. Its runs belong to an
//! owner that no client can have. The bearer, the origin of the page and other headers of the console are removed from
//! the request. Not here: sample requests ([`super::samples`]).

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use actix_web::FromRequest as _;
use actix_web::HttpResponse;
use actix_web::body::{BodySize, BodyStream, BoxBody, MessageBody as _};
use actix_web::dev::{RequestHead, ServiceRequest, ServiceResponse};
use actix_web::http::Uri;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::web::Payload;
use futures_util::stream;
use tokio::sync::watch;

use super::answers::audit;
use super::guard::{OperatorIdentity, is_valid};
use super::{AdminState, api};
use interlingua_observe::{Action, AuditEntry, RequestLog};
use interlingua_server::connection::info_of;
use interlingua_server::{ServerPhase, StreamedRun};

/// Interval of the check of a reader's credentials during a stream.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The response header with the id of the streamed run.
const RUN: HeaderName = HeaderName::from_static("x-interlingua-run");

/// Starts the log of a request to a route, as for requests of clients. `None`: the request is not in the playground.
pub(super) fn begin_log(
    state: &AdminState,
    request: &actix_http::Request,
) -> Option<(Arc<RequestLog>, watch::Receiver<ServerPhase>)> {
    api::is_in_playground(request.path()).then(|| state.admin.control.begin_log(request))
}

/// Answers a request to a route.
///
/// # Errors
/// If actix-web cannot extract the payload.
pub(super) async fn serve(
    state: &Arc<AdminState>,
    mut request: ServiceRequest,
) -> Result<ServiceResponse, actix_web::Error> {
    let connection = info_of(request.request());
    let who = match api::check_head(state, request.head(), &connection) {
        Ok((_, who)) => who,
        Err(fault) => {
            let response = api::refuse(state, request.head(), &connection, &fault);
            return Ok(request.into_response(response));
        }
    };
    audit_request(state, request.peer_addr(), &who, request.path());

    rewrite_as_client(request.head_mut(), host_of(&state.admin.client_url));
    let (request, mut body) = request.into_parts();
    let payload = Payload::from_request(&request, &mut body).await?;
    let mut response = state.admin.control.serve_operator(&who.name, request.clone(), payload).await;
    let run = response.extensions().get::<StreamedRun>().and_then(|run| HeaderValue::from_str(&run.0.to_string()).ok());
    if let Some(run) = run {
        response.headers_mut().insert(RUN, run);
    }
    let response = while_valid(Arc::clone(state), who, response);
    Ok(ServiceResponse::new(request, protected(response)))
}

/// Ends a stream when its reader loses the rights. A response of known length is returned unchanged.
fn while_valid(state: Arc<AdminState>, who: OperatorIdentity, response: HttpResponse) -> HttpResponse {
    if !matches!(response.body().size(), BodySize::Stream) {
        return response;
    }
    response.map_body(|_, body| {
        let mut body = Box::pin(body);
        let mut ticks = tokio::time::interval(CHECK_INTERVAL);
        let chunks = stream::poll_fn(move |context| {
            while ticks.poll_tick(context).is_ready() {
                if !is_valid(&state, &who) {
                    return Poll::Ready(None);
                }
            }
            body.as_mut().poll_next(context)
        });
        BoxBody::new(BodyStream::new(chunks))
    })
}

fn audit_request(state: &AdminState, peer: Option<SocketAddr>, who: &OperatorIdentity, path: &str) {
    audit(state, peer, &who.name, AuditEntry::new(Action::AdminCall).target(path).detail("playground"));
}

/// Changes a request to what a client of the route would send to the listener for clients: without the prefix of the
/// playground and the headers of the console, and with the host of that listener.
fn rewrite_as_client(head: &mut RequestHead, host: &str) {
    let own = head.uri.path_and_query().map_or("", |target| target.as_str());
    let target = own.strip_prefix(api::PLAYGROUND).unwrap_or(own);
    head.uri = target.parse::<Uri>().unwrap_or_default();
    let is_of_console = |name: &str| {
        matches!(name, "authorization" | "x-api-key" | "cookie" | "origin" | "referer" | "forwarded")
            || name.starts_with("sec-")
            || name.starts_with("x-forwarded-")
    };
    let removed: Vec<HeaderName> = head.headers.keys().filter(|name| is_of_console(name.as_str())).cloned().collect();
    for name in removed {
        head.headers.remove(name);
    }
    if let Ok(host) = HeaderValue::from_str(host) {
        head.headers.insert(HeaderName::from_static("host"), host);
    }
}

fn host_of(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, host)| host)
}

/// Adds the security headers and removes CORS headers: only the console's own page may read the response.
fn protected(mut response: HttpResponse) -> HttpResponse {
    let headers = response.headers_mut();
    let of_cors = |name: &HeaderName| name.as_str().starts_with("access-control-");
    let removed: Vec<HeaderName> = headers.keys().filter(|name| of_cors(name)).cloned().collect();
    for name in removed {
        headers.remove(name);
    }
    api::with_headers(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_keeps_only_headers_of_a_client() {
        let mut head = RequestHead::default();
        head.uri = "/api/playground/v1/models?a=%2F".parse().expect("a path");
        let sent = [
            ("authorization", "Bearer il_console_x"),
            ("x-api-key", "k"),
            ("origin", "http://127.0.0.1:9090"),
            ("sec-fetch-site", "same-origin"),
            ("x-forwarded-host", "evil.example"),
            ("host", "127.0.0.1:9090"),
            ("x-session-id", "s"),
        ];
        for (name, value) in sent {
            head.headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        rewrite_as_client(&mut head, "127.0.0.1:8080");
        assert_eq!(head.uri, "/v1/models?a=%2F");
        let mut left: Vec<(&str, &str)> =
            head.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().expect("text"))).collect();
        left.sort_unstable();
        assert_eq!(left, [("host", "127.0.0.1:8080"), ("x-session-id", "s")]);
    }
}
