//! Sessions: their ids are sealed tokens, and only the ids of ended sessions are stored. Not here: their end (`delete`).

use interlingua_core::call::{DocumentCall, Filter, RunState, Tags};
use interlingua_core::{Call, Request};

use super::refusal::Refusal;
use super::shared::SharedState;
use crate::envelope::rpc_error::INVALID_REQUEST;
use crate::envelope::{RpcError, RpcId};
use crate::tokens::{SessionToken, TokenError};

/// The header with the id of a session.
pub(super) const HEADER: &str = "mcp-session-id";
/// The collection of ended sessions, by time and id.
pub(super) const ENDED: &str = "mcp/ended";

/// Maximum number of open calls that one request finds.
const MAX_OPEN_CALLS: usize = 64;

/// The tag by which a request that is cancelled finds its run.
pub(super) const REQUEST_TAG: &str = "mcp.request";
/// The tag by which a session that ends finds its open calls.
pub(super) const SESSION_TAG: &str = "mcp.session";

/// The error of a request whose session has ended or is unknown.
pub(super) fn unknown() -> RpcError {
    RpcError { status: 404, ..RpcError::bad(INVALID_REQUEST, "the session has ended or is unknown: initialize again") }
}

/// The call that finds out whether a session was ended.
pub(super) fn check(session: &SessionToken) -> Call {
    Call::Document(DocumentCall::Get { collection: ENDED.to_owned(), key: key(session) })
}

/// The tags of the run of an open call.
pub(super) fn tags(session: &SessionToken, request: &RpcId) -> Tags {
    let request = format!("{}/{}", session.id, request.to_base64());
    Tags::from([(REQUEST_TAG.to_owned(), request), (SESSION_TAG.to_owned(), session.id.clone())])
}

/// The tags of a run whose call has been answered.
pub(super) fn without_call(tags: &Tags) -> Tags {
    let of_call = |name: &str| name == REQUEST_TAG || name == SESSION_TAG;
    tags.iter().filter(|(name, _)| !of_call(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Selects the open calls with a tag.
pub(super) fn open_calls(tag: &str, value: String) -> Call {
    Call::List(Filter {
        protocol: Some(crate::revision::NAME.to_owned()),
        states: vec![RunState::Queued, RunState::Running, RunState::Waiting, RunState::WaitingForAuth],
        tags: Tags::from([(tag.to_owned(), value)]),
        limit: MAX_OPEN_CALLS,
        heads: true,
        ..Filter::default()
    })
}

/// Ids with the time in front, so that the oldest ones are found.
pub(super) fn key(session: &SessionToken) -> String {
    format!("{:012x}-{}", session.created_at, session.id)
}

/// Opens the session that a request names. `None`: it names none.
///
/// # Errors
/// The session is unknown or too old.
pub(super) fn read(shared: &SharedState, request: &Request<'_>) -> Result<Option<SessionToken>, Refusal> {
    let Some(text) = request.header(HEADER) else { return Ok(None) };
    let ttl = shared.route.options.session_ttl.0;
    match SessionToken::open(shared.seals(), text.trim(), request.now, ttl) {
        Ok(session) => Ok(Some(session)),
        Err(TokenError::Unavailable(fault)) => Err(fault.into()),
        Err(TokenError::Invalid | TokenError::Expired) => Err(unknown().into()),
    }
}
