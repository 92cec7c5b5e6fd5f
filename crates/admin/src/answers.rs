//! Helpers for the admin listener's responses: JSON with a status, and entries of the audit log.

use std::net::SocketAddr;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use serde::Serialize;

use super::AdminState;
use interlingua_observe::AuditEntry;

/// Writes an entry to the audit log, with its author and the author's address.
pub(super) fn audit(state: &AdminState, peer: Option<SocketAddr>, who: &str, entry: AuditEntry) {
    let entry = entry.who(who);
    state.admin.observer.load().audit(match peer {
        Some(peer) => entry.from(peer.ip()),
        None => entry,
    });
}

/// A JSON response.
pub(super) fn answer_with<T: Serialize + ?Sized>(status: u16, body: &T) -> HttpResponse {
    HttpResponse::build(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)).json(body)
}
