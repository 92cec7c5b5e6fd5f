//! The WebSocket form of an endpoint.

use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use std::sync::Arc;

use super::{Gateway, Served};

/// Serves a connection.
pub(super) fn serve(
    gateway: &Arc<Gateway>,
    route: &Arc<Served>,
    index: usize,
    request: &HttpRequest,
    payload: Payload,
) -> HttpResponse {
    let _ = (gateway, route, index, request, payload);
    HttpResponse::NotImplemented().finish()
}
