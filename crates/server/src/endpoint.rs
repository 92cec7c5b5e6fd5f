//! Serves requests: checks each request once by its head, then opens a WebSocket or answers the request.

use std::sync::Arc;

use actix_http::{Request, Response};
use actix_web::body::BoxBody;
use actix_web::web::Payload;
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse};
use tokio::time::Instant;

use super::check::{self, CheckedRequest, RefusedRequest};
use super::connection::{ConnectionInfo, info_of};
use super::readiness::readiness;
use super::{Gateway, access, handle, request_log, websocket};
use interlingua_config::routing::OwnPath;

/// Checks a request whose client waits for `100 Continue` before it sends the body. Stores the result in the extensions
/// of the request for [`serve`].
///
/// # Errors
/// The response to a refused request.
pub(super) async fn expect(gateway: Arc<Gateway>, request: Request) -> Result<Request, Response<BoxBody>> {
    let connection = ConnectionInfo::of_raw(&request);
    let log = request_log::begin(&gateway, &request);
    let refusal = match check::check_request(&gateway, request.head(), &connection).await {
        Ok(checked) => {
            request.extensions_mut().insert(checked);
            return Ok(request);
        }
        Err(refusal) => refusal,
    };

    connection.clock.on_refusal(Instant::now());
    let mut response = handle::refuse(&gateway, request.head(), &refusal).into();
    request_log::end(&log, &mut response, *gateway.phase.borrow());
    log.record_end(0, true);
    Err(response)
}

/// Answers one request. The request keeps its route even if the routes are replaced meanwhile.
pub(super) async fn serve(gateway: Arc<Gateway>, request: HttpRequest, payload: Payload) -> HttpResponse {
    let checked = request.extensions_mut().remove::<CheckedRequest>();
    let checked = match checked {
        Some(checked) => Ok(checked),
        None => check::check_request(&gateway, request.head(), &info_of(&request)).await,
    };
    answer(gateway, checked, request, payload).await
}

/// Answers a request from the console. `name`: the signed-in person.
pub(super) async fn serve_operator(
    gateway: Arc<Gateway>,
    name: &str,
    request: HttpRequest,
    payload: Payload,
) -> HttpResponse {
    let checked = check::check_operator(&gateway, request.head(), name);
    answer(gateway, checked, request, payload).await
}

async fn answer(
    gateway: Arc<Gateway>,
    checked: Result<CheckedRequest, Box<RefusedRequest>>,
    request: HttpRequest,
    payload: Payload,
) -> HttpResponse {
    match checked {
        Ok(CheckedRequest::Endpoint(routed, mut admitted, body)) => {
            let (route, rate) = (Arc::clone(&routed.route), admitted.rate.take());
            request_log::record_route(&request, &route, routed.endpoint().path);
            request_log::record_caller(&request, &admitted.caller);
            let websocket = routed.endpoint().websocket.as_ref();
            let mut response = match websocket.filter(|_| request.headers().contains_key("upgrade")) {
                Some(rules) => Box::pin(websocket::serve(&gateway, &routed, rules, admitted, &request, payload)).await,
                None => handle::answer(gateway, routed, admitted, body, request, payload).await,
            };
            access::add_headers(&route, rate.as_ref(), response.headers_mut());
            response
        }
        Ok(CheckedRequest::Preflight(route, allow)) => handle::preflight(&route, &request, &allow),
        Ok(CheckedRequest::Own(own)) => {
            let (status, body) = match own {
                OwnPath::Health => (200, serde_json::json!({ "status": "ok" })),
                OwnPath::Ready => readiness(&gateway.engine),
            };
            handle::health(&request, status, &body)
        }
        Err(refusal) => {
            if let Some(route) = refusal.reporter.route() {
                request_log::record_route(&request, route, "");
            }
            handle::refuse(&gateway, request.head(), &refusal)
        }
    }
}
