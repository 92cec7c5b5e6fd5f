//! Serving endpoints: the request's head is checked, then a WebSocket takes the connection, or the request is answered.

use std::sync::Arc;

use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};

use super::guard::{self, Target};
use super::{Gateway, Served, handle, websocket};

/// Serves a request of an endpoint.
pub(super) async fn serve(
    gateway: Arc<Gateway>,
    route: Arc<Served>,
    index: usize,
    request: HttpRequest,
    payload: Payload,
) -> HttpResponse {
    let endpoint = &route.mounted.endpoints[index];
    let mut exchange = (endpoint.open)();
    if let Err(fault) = guard::check_head(&gateway, Target::Endpoint(&route, endpoint), request.head()) {
        return handle::reject(&gateway, &route, &mut *exchange, &request, &fault);
    }

    if endpoint.websocket && request.headers().contains_key("upgrade") {
        return websocket::serve(&gateway, &route, index, &request, payload).await;
    }
    handle::answer(gateway, route, index, exchange, request, payload).await
}
