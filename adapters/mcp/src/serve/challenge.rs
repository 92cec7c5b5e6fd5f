//! Error responses outside of calls, and the challenges for OAuth clients (docs/protocols/mcp.md#authentication).

use interlingua_core::{Fault, FaultKind, Out, Request};
use serde_json::json;

use super::route::Route;
use super::shared::SharedState;
use crate::envelope::RpcError;
use crate::envelope::rpc_error::{INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR};
use crate::result::fault_data;

/// The path of the metadata of a protected resource (RFC 9728).
pub(crate) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";

/// The parts of a request that its challenge depends on.
#[derive(Default)]
pub(super) struct RequestHead {
    has_token: bool,
    is_refused: bool,
    base_url: String,
}

impl RequestHead {
    pub(super) fn read(&mut self, request: &Request<'_>) {
        let bearer = request.header("authorization").and_then(|value| value.get(..7));
        self.has_token = bearer.is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer "));
        request.base_url.clone_into(&mut self.base_url);
    }

    /// Reads the head of a request that is refused before its body is read.
    pub(super) fn refused(&mut self, request: &Request<'_>) {
        self.read(request);
        self.is_refused = true;
    }

    /// The challenge, with the words of an error. `None`: clients cannot get a token for the route.
    fn challenge(&self, route: &Route, error: Option<&str>) -> Option<String> {
        if route.issuers.is_empty() {
            return None;
        }
        let resource = route.resource(&self.base_url);
        // Written in front of the path of the route.
        let root = resource.strip_suffix(route.path.as_str()).unwrap_or(&resource);
        let mut parts = vec![format!("resource_metadata=\"{root}{METADATA_PATH}{}\"", route.path)];
        if !route.options.scopes.is_empty() {
            parts.push(format!("scope=\"{}\"", route.options.scopes.join(" ")));
        }
        parts.extend(error.map(|error| format!("error=\"{error}\"")));
        Some(format!("Bearer {}", parts.join(", ")))
    }

    fn write(&self, route: &Route, fault: &Fault, out: &mut Out) {
        match fault.kind {
            FaultKind::Unauthenticated => {
                let error = self.has_token.then_some("invalid_token");
                out.header("www-authenticate", self.challenge(route, error).unwrap_or_else(|| "Bearer".to_owned()));
            }
            // Pages of other origins are refused before credentials are read; a token does not help them.
            FaultKind::Forbidden if self.is_refused && !is_about_origin(fault) => {
                if let Some(challenge) = self.challenge(route, Some("insufficient_scope")) {
                    out.header("www-authenticate", challenge);
                }
            }
            _ => {}
        }
    }
}

fn is_about_origin(fault: &Fault) -> bool {
    fault.detail.as_deref().is_some_and(|detail| detail.contains("cors"))
}

/// Writes an error response: that of the exchange itself, else the one for the fault.
pub(super) fn fail(shared: &SharedState, head: &RequestHead, fault: &Fault, out: &mut Out) {
    head.write(&shared.route, fault, out);
    let mut error = shared.refusal.clone().unwrap_or_else(|| error(fault));
    if shared.writer.id.is_none() && error.status == 200 {
        // No response has this error: the message is no request, or could not be read.
        error.status = fault.kind.status();
    }
    shared.writer.error(&error, 0, out);
}

/// The error of the protocol for a fault.
pub(super) fn error(fault: &Fault) -> RpcError {
    use FaultKind as K;
    let (status, code) = match fault.kind {
        K::Malformed => (400, PARSE_ERROR),
        K::BadHead
        | K::HeadTooLarge
        | K::Misdirected
        | K::Unauthenticated
        | K::Forbidden
        | K::TooLarge
        | K::UnsupportedMedia
        | K::NotAcceptable
        | K::MethodNotAllowed => (fault.kind.status(), INVALID_REQUEST),
        K::NoSuchPath => (404, METHOD_NOT_FOUND),
        K::RateLimited | K::Overloaded | K::ShuttingDown => (fault.kind.status(), INTERNAL_ERROR),
        K::Missing | K::WrongType | K::Invalid | K::Exclusive | K::Unsupported | K::NotFound | K::NoSuchAgent => {
            (200, INVALID_PARAMS)
        }
        _ => (200, INTERNAL_ERROR),
    };
    let data = if code == INTERNAL_ERROR { fault_data(fault) } else { json!({ "code": fault.code() }) };
    RpcError { status, ..RpcError::new(code, fault.message.clone()).with_data(data) }
}
