//! The revision of a request, and the checks of its headers (docs/protocols/mcp.md#revisions).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::message::{Message, MessageKind};
use super::rpc_error::{HEADER_MISMATCH, INVALID_PARAMS, RpcError, UNSUPPORTED_VERSION};
use crate::revision::Revision;

/// The key of the revision in the metadata.
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
/// The key of the client's capabilities in the metadata.
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";

/// The style of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// The request carries its revision and the client's capabilities.
    Modern,
    /// The request belongs to a session, or to none; with the revision of its header.
    Legacy(Option<Revision>),
}

/// The style of a request, judged before its method.
pub(crate) fn era(message: Option<&Message>, header: Option<&str>) -> Era {
    let header = header.map(str::trim);
    let known = header.and_then(Revision::parse);
    let names_version = message.is_some_and(|message| message.meta_value(VERSION_KEY).is_some());
    let is_response = message.is_some_and(|message| matches!(message.kind, MessageKind::Response(..)));
    let is_unknown = header.is_some() && known.is_none();
    if known.is_some_and(Revision::is_modern) || names_version || (is_unknown && !is_response) {
        Era::Modern
    } else {
        Era::Legacy(known)
    }
}

/// Checks a request that carries its revision, up to its method. Returns the client's capabilities.
///
/// # Errors
/// The first problem.
pub(crate) fn check_modern<'m>(
    message: &'m Message,
    header: &dyn Fn(&str) -> Option<String>,
) -> Result<&'m Value, RpcError> {
    let params = |message: &str| RpcError::bad(INVALID_PARAMS, message);
    let mismatch = |message: String| RpcError::bad(HEADER_MISMATCH, message);

    if message.meta().is_some_and(|meta| !meta.is_object()) {
        return Err(params("\"_meta\" must be an object"));
    }
    let Some(version) = message.meta_value(VERSION_KEY).and_then(Value::as_str) else {
        // A client of a revision that is not known yet may have another envelope.
        let requested = header("mcp-protocol-version");
        return Err(match requested.filter(|version| Revision::parse(version.trim()).is_none()) {
            Some(version) if message.meta().is_none() => unsupported(version.trim()),
            _ => params(&format!("\"_meta\" needs \"{VERSION_KEY}\"")),
        });
    };
    let Some(capabilities) = message.meta_value(CAPABILITIES_KEY).filter(|value| value.is_object()) else {
        return Err(params(&format!("\"_meta\" needs \"{CAPABILITIES_KEY}\", an object")));
    };

    match header("mcp-protocol-version") {
        Some(named) if named.trim() == version => {}
        Some(_) => {
            return Err(mismatch("the header MCP-Protocol-Version differs from the revision in _meta".to_owned()));
        }
        None => return Err(mismatch("the header MCP-Protocol-Version is missing".to_owned())),
    }
    if Revision::parse(version).is_none() {
        return Err(unsupported(version));
    }

    match header("mcp-method") {
        Some(method) if method.trim() == message.method => {}
        Some(_) => return Err(mismatch("the header Mcp-Method differs from the method".to_owned())),
        None => return Err(mismatch("the header Mcp-Method is missing".to_owned())),
    }
    if let Some(parameter) = named_parameter(&message.method)
        && let Some(value) = message.params.get(parameter).and_then(Value::as_str)
    {
        let named = header("mcp-name").and_then(|name| decode_name(name.trim()));
        if named.as_deref() != Some(value) {
            return Err(mismatch(format!("the header Mcp-Name is not \"{parameter}\" of the parameters")));
        }
    }
    if message.meta_value("progressToken").is_some_and(|token| !super::is_progress_token(token)) {
        return Err(params("\"progressToken\" must be a string of at most 256 bytes, or an integer"));
    }
    Ok(capabilities)
}

fn unsupported(requested: &str) -> RpcError {
    let data = json!({ "supported": Revision::ALL, "requested": requested });
    RpcError::bad(UNSUPPORTED_VERSION, format!("revision {requested} is not served")).with_data(data)
}

/// The parameter that the header `Mcp-Name` repeats.
fn named_parameter(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// The value of a header that may have the form `=?base64?…?=`. `None`: that form does not decode.
fn decode_name(value: &str) -> Option<String> {
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::envelope::rpc_error::{HEADER_MISMATCH, INVALID_PARAMS, UNSUPPORTED_VERSION};

    const MODERN: &str = "2026-07-28";

    fn message(method: &str, params: Value) -> Message {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        Message::read(body.to_string().as_bytes()).expect("a message")
    }

    fn meta(version: &str) -> Value {
        json!({ VERSION_KEY: version, CAPABILITIES_KEY: {} })
    }

    fn check(message: &Message, headers: &[(&str, &str)]) -> Option<i64> {
        let find = |name: &str| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        check_modern(message, &find).err().map(|error| error.code)
    }

    #[test]
    fn the_header_and_the_metadata_decide_the_style() {
        let plain = message("tools/list", json!({}));
        let modern = message("tools/list", json!({ "_meta": { VERSION_KEY: "2099-01-01" } }));
        assert_eq!(era(Some(&plain), None), Era::Legacy(None));
        assert_eq!(era(Some(&plain), Some("2025-06-18")), Era::Legacy(Some(Revision::June2025)));
        assert_eq!(era(Some(&plain), Some(MODERN)), Era::Modern);
        assert_eq!(era(Some(&plain), Some("1999-01-01")), Era::Modern);
        assert_eq!(era(Some(&modern), None), Era::Modern);
        let response = Message::read(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#).expect("a message");
        assert_eq!(era(Some(&response), Some("1999-01-01")), Era::Legacy(None));
    }

    #[test]
    fn the_checks_are_made_in_order() {
        let version = ("mcp-protocol-version", MODERN);
        let method = ("mcp-method", "tools/call");
        let call = message("tools/call", json!({ "name": "grüße", "_meta": meta(MODERN) }));

        let bare = message("tools/call", json!({ "name": "a" }));
        assert_eq!(check(&bare, &[version, method]), Some(INVALID_PARAMS));
        assert_eq!(check(&bare, &[("mcp-protocol-version", "2099-01-01")]), Some(UNSUPPORTED_VERSION));
        let incapable = message("tools/call", json!({ "_meta": { VERSION_KEY: MODERN } }));
        assert_eq!(check(&incapable, &[]), Some(INVALID_PARAMS));
        assert_eq!(check(&call, &[]), Some(HEADER_MISMATCH));
        assert_eq!(check(&call, &[("mcp-protocol-version", "2025-11-25"), method]), Some(HEADER_MISMATCH));
        let future = message("tools/call", json!({ "_meta": meta("2099-01-01") }));
        assert_eq!(check(&future, &[("mcp-protocol-version", "2099-01-01")]), Some(UNSUPPORTED_VERSION));
        assert_eq!(check(&call, &[version]), Some(HEADER_MISMATCH));
        assert_eq!(check(&call, &[version, ("mcp-method", "tools/list")]), Some(HEADER_MISMATCH));

        assert_eq!(check(&call, &[version, method]), Some(HEADER_MISMATCH), "its name is missing");
        for name in ["helper", "=?base64?!?=", "=?base64?aGVscGVy?="] {
            assert_eq!(check(&call, &[version, method, ("mcp-name", name)]), Some(HEADER_MISMATCH), "{name}");
        }
        assert_eq!(check(&call, &[version, method, ("mcp-name", "=?base64?Z3LDvMOfZQ==?=")]), None);
        assert_eq!(check(&call, &[version, method, ("mcp-name", " grüße ")]), None);

        let list = message("tools/list", json!({ "_meta": meta(MODERN) }));
        assert_eq!(check(&list, &[version, ("mcp-method", "tools/list")]), None);
    }
}
