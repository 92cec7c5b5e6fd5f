//! Signs people in to the console: exchanges a key for a bearer, which the page sends with every request.
//!
//! Not here: the lifetime of bearers ([`super::sessions`]), and the check of requests ([`super::guard`]).

use std::sync::Arc;
use std::time::Instant;

use actix_web::HttpResponse;
use interlingua_core::{Fault, FaultKind};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::AdminState;
use super::answers::{answer_with, audit};
use super::guard::{OPERATOR, OperatorIdentity, count_failure, is_key};
use super::sessions::{Proof, SignedIn};
use super::views::Session;
use interlingua_callers::{Credential, Credentials, Methods};
use interlingua_config::ConsoleRole;
use interlingua_observe::{Action, AuditEntry};
use interlingua_server::connection::ConnectionInfo;

/// The credentials that callers can sign in with: keys only.
const BY_KEY: Methods = Methods { keys: true, jwt: false, certificates: false };

/// The body of a sign-in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Key {
    key: String,
}

/// Exchanges a key for a bearer.
///
/// # Errors
/// If the body has no key, or a wrong one. The message is the same for all wrong keys.
pub(super) async fn begin(state: &AdminState, connection: &ConnectionInfo, body: &[u8]) -> Result<HttpResponse, Fault> {
    let Key { key } = serde_json::from_slice(body)
        .map_err(|_| Fault::invalid("key", "write {\"key\": \"…\"} with the key to sign in with"))?;
    let (name, proof) = match prove(state, connection, &key).await {
        Ok(proven) => proven,
        Err(fault) => {
            if fault.kind == FaultKind::Unauthenticated {
                count_failure(state, connection)?;
            }
            return Err(fault);
        }
    };

    let begun = state.sessions.begin(&name, proof, Instant::now());
    let (bearer, who) = begun.ok_or_else(|| Fault::new(FaultKind::Internal, "the system has no random numbers"))?;
    audit(state, Some(connection.peer), &name, AuditEntry::new(Action::SignIn));
    Ok(answer_with(200, &Session { bearer: Some(bearer), ..view(state, &who) }))
}

/// Finds the name and the proof of the person with this key. An empty key stands for the certificate of the connection.
async fn prove(state: &AdminState, connection: &ConnectionInfo, key: &str) -> Result<(String, Proof), Fault> {
    if is_key(key, state.operator_key().as_ref()) {
        return Ok((OPERATOR.to_owned(), Proof::Operator(Sha256::digest(key).into())));
    }
    let asks_certificate = state.admin.tls.as_ref().is_some_and(|tls| tls.load().verifier.is_some());
    if let Some(certificate) = connection.valid_certificate().filter(|_| key.is_empty() && asks_certificate) {
        return Ok((OPERATOR.to_owned(), Proof::Certificate(Arc::clone(certificate))));
    }

    let shown = Credentials { api_key: Credential::One(key), ..Credentials::default() };
    let wrong = || Fault::new(FaultKind::Unauthenticated, "this key cannot be used to sign in");
    let caller = state.admin.callers.authenticate(BY_KEY, shown, connection.peer.ip()).await;
    let caller = caller.map_err(|fault| if fault.kind == FaultKind::Unauthenticated { wrong() } else { fault })?;
    match caller.console_role() {
        Some(_) => Ok((shown_name(&caller.name), Proof::Caller(caller))),
        None => Err(wrong()),
    }
}

/// The name of a caller in the console and the audit log. A caller with the name of operators gets another name.
fn shown_name(name: &str) -> String {
    if name == OPERATOR { format!("{name} (key)") } else { name.to_owned() }
}

/// The session for the page, without its bearer.
pub(super) fn view(state: &AdminState, who: &SignedIn) -> Session {
    let role = who.role(state.operator_key().as_ref()).unwrap_or(ConsoleRole::View);
    Session { bearer: None, name: who.name.to_string(), role, until: Some(who.until) }
}

/// Ends the session of a request.
pub(super) fn end(
    state: &AdminState,
    who: &OperatorIdentity,
    connection: &ConnectionInfo,
    bearer: Option<&str>,
) -> HttpResponse {
    if let Some(bearer) = bearer {
        state.sessions.end(bearer);
        audit(state, Some(connection.peer), &who.name, AuditEntry::new(Action::SignOut));
    }
    HttpResponse::NoContent().finish()
}
