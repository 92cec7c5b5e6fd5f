//! Serving endpoints: the request's head is checked, then a WebSocket takes the connection, or the request is answered.

use std::sync::Arc;

use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};

use super::guard::{self, Target};
use super::routes::Routed;
use super::{Gateway, access, handle, websocket};

/// Serves a request of an endpoint.
pub(super) async fn serve(
    gateway: Arc<Gateway>,
    routed: Arc<Routed>,
    request: HttpRequest,
    payload: Payload,
) -> HttpResponse {
    let (route, endpoint, params) = (&routed.route, routed.endpoint(), &routed.params);
    let mut exchange = (endpoint.open)();
    if let Err(fault) = guard::check_head(&gateway, Target::Endpoint(route, endpoint), request.head()) {
        return handle::reject(&gateway, route, params, &mut *exchange, &request, &fault);
    }

    let admitted = match access::admit(&gateway, &routed, request.head()).await {
        Ok(admitted) => admitted,
        Err(fault) => return handle::reject(&gateway, route, params, &mut *exchange, &request, &fault),
    };

    if endpoint.websocket && request.headers().contains_key("upgrade") {
        return websocket::serve(&gateway, &routed, admitted, &request, payload).await;
    }
    handle::answer(gateway, routed, exchange, admitted, request, payload).await
}
