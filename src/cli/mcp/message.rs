//! Messages of JSON-RPC: those of the host, with the headers that MCP derives from them, and those of the server.
//!
//! Not here: sending and reading.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::fields::{fields, text};

/// The field of `params._meta` that makes a message one of the stateless revisions.
const VERSION_FIELD: &str = "io.modelcontextprotocol/protocolVersion";
/// The error code for a text that is not JSON.
pub(super) const PARSE_ERROR: i64 = -32700;
/// The error code for a message that cannot be read.
pub(super) const INVALID_REQUEST: i64 = -32600;
/// The error code of a request that has no answer of the server.
const INTERNAL_ERROR: i64 = -32603;

pub(super) const INITIALIZE: &str = "initialize";
pub(super) const INITIALIZED: &str = "notifications/initialized";
pub(super) const CANCELLED: &str = "notifications/cancelled";

/// A message of the host.
#[derive(Debug)]
pub(super) struct Message {
    /// The message as it arrived.
    pub(super) body: Bytes,
    /// `None`: a notification, or not a valid id.
    pub(super) id: Option<Value>,
    /// `None`: a response, or several messages at once.
    pub(super) method: Option<String>,
    /// The revision that the message names. `None`: it names none, as in the revisions with sessions.
    pub(super) version: Option<String>,
    /// The value of `Mcp-Name`.
    name: Option<String>,
    /// The id of the request that the message cancels.
    pub(super) cancels: Option<Value>,
    /// The `params` of `initialize`.
    pub(super) handshake: Option<Box<RawValue>>,
}

impl Message {
    /// Reads a message. JSON that is no object is a message without id and method. `None`: it is not JSON.
    pub(super) fn parse(body: Bytes) -> Option<Self> {
        let mut message = Self {
            body: body.clone(),
            id: None,
            method: None,
            version: None,
            name: None,
            cancels: None,
            handshake: None,
        };
        let json = std::str::from_utf8(&body).ok()?;
        let Some([id, method, params]) = fields(json, ["id", "method", "params"]) else {
            return serde_json::from_str::<IgnoredAny>(json).ok().map(|_| message);
        };
        message.id = id.and_then(request_id);
        message.method = method.and_then(text);

        let method = message.method.as_deref().unwrap_or_default();
        let read = params.and_then(|params| fields(params.get(), ["_meta", name_field(method), "requestId"]));
        if let Some([meta, name, request]) = read {
            let version = meta.and_then(|meta| fields(meta.get(), [VERSION_FIELD])?[0]);
            // A version that is no string is still one of a stateless revision, which the server refuses.
            message.version = version.map(|version| text(version).unwrap_or_default());
            message.name = name.filter(|_| !name_field(method).is_empty()).and_then(text);
            message.cancels = request.filter(|_| method == CANCELLED).and_then(request_id);
        }
        message.handshake = params.filter(|_| method == INITIALIZE && message.version.is_none()).map(ToOwned::to_owned);
        Some(message)
    }

    /// True for a message that is answered by a response.
    pub(super) fn is_request(&self) -> bool {
        self.id.is_some() && self.method.is_some()
    }

    /// True for the named method in the revisions with sessions.
    pub(super) fn is_legacy(&self, method: &str) -> bool {
        self.version.is_none() && self.method.as_deref() == Some(method)
    }

    /// The headers that repeat parts of the message, for a stateless revision.
    pub(super) fn headers(&self, version: &str) -> Vec<(&'static str, String)> {
        let mut headers = Vec::new();
        if is_header_value(version) && !version.is_empty() {
            headers.push(("mcp-protocol-version", version.to_owned()));
        }
        if let Some(method) = self.method.as_ref().filter(|method| is_header_value(method)) {
            headers.push(("mcp-method", method.clone()));
        }
        if let Some(name) = &self.name {
            headers.push(("mcp-name", header_value(name)));
        }
        headers
    }

    /// The message in words, for errors.
    pub(super) fn kind(&self) -> &str {
        self.method.as_deref().unwrap_or("a response")
    }
}

/// The parameter that `Mcp-Name` repeats. Empty: none.
fn name_field(method: &str) -> &'static str {
    match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ if method.starts_with("tasks/") => "taskId",
        _ => "",
    }
}

fn request_id(id: &RawValue) -> Option<Value> {
    serde_json::from_str(id.get()).ok().filter(|id: &Value| id.is_string() || id.is_number())
}

fn is_header_value(value: &str) -> bool {
    value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && value.trim() == value
}

/// A text as the value of a header: in its base64 form if it would not arrive unchanged otherwise, or would be read as
/// that form.
fn header_value(text: &str) -> String {
    let is_encoded_form = text.starts_with("=?base64?") && text.ends_with("?=");
    if is_header_value(text) && !is_encoded_form {
        return text.to_owned();
    }
    format!("=?base64?{}?=", STANDARD.encode(text))
}

/// A message of the server.
#[derive(Debug)]
pub(super) struct ServerMessage {
    /// The message on one line, without the line end.
    pub(super) line: Vec<u8>,
    /// The kind of the message.
    pub(super) kind: ServerMessageKind,
}

#[derive(Debug, PartialEq)]
pub(super) enum ServerMessageKind {
    /// A request or notification of the server.
    Call,
    /// A response to the request with this id. `None`: the id could not be read.
    Response(Option<Value>),
    /// Several messages at once.
    Batch,
}

impl ServerMessage {
    /// Reads a message. `None` if it is no message of JSON-RPC.
    pub(super) fn parse(data: &[u8]) -> Option<Self> {
        let json = std::str::from_utf8(data).ok()?.trim();
        let kind = match fields(json, ["jsonrpc", "method", "id", "result", "error"]) {
            Some([Some(_), Some(_), ..]) => ServerMessageKind::Call,
            Some([Some(_), None, id, result, error]) if result.or(error).is_some() => {
                ServerMessageKind::Response(id.and_then(request_id))
            }
            None if json.starts_with('[') && serde_json::from_str::<IgnoredAny>(json).is_ok() => {
                ServerMessageKind::Batch
            }
            _ => return None,
        };
        // Line ends are only between the parts of a message: JSON escapes them in strings.
        let line = json.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }).collect();
        Some(Self { line, kind })
    }

    /// The result of a response.
    pub(super) fn result(&self) -> Option<&RawValue> {
        self.field("result")
    }

    /// The error of a response.
    pub(super) fn error(&self) -> Option<&RawValue> {
        self.field("error")
    }

    fn field(&self, name: &'static str) -> Option<&RawValue> {
        fields(std::str::from_utf8(&self.line).ok()?, [name])?[0]
    }

    /// The protocol version in the result of `initialize`.
    pub(super) fn negotiated(&self) -> Option<String> {
        let [version] = fields(self.result()?.get(), ["protocolVersion"])?;
        version.and_then(text).filter(|version| is_header_value(version))
    }

    /// The same error with another id: servers that could not read the id of a request leave it out.
    pub(super) fn error_for(&self, id: &Value) -> Option<Vec<u8>> {
        Some(error_object(Some(id), &self.error()?))
    }

    /// The text of an error.
    pub(super) fn error_text(&self) -> Option<String> {
        let [message] = fields(self.error()?.get(), ["message"])?;
        message.and_then(text)
    }

    /// The `data` of an error.
    pub(super) fn error_data(&self) -> Option<Box<RawValue>> {
        let [data] = fields(self.error()?.get(), ["data"])?;
        data.map(ToOwned::to_owned)
    }
}

/// The reason why a request has no answer of the server.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) text: String,
    /// The `data` of the server's error.
    pub(super) data: Option<Box<RawValue>>,
}

impl Failure {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), data: None }
    }

    /// The error as the response to a request.
    pub(super) fn line(&self, id: &Value) -> Vec<u8> {
        let mut error = json!({ "code": INTERNAL_ERROR, "message": self.text });
        if let Some(data) = self.data.as_ref().and_then(|data| serde_json::from_str::<Value>(data.get()).ok()) {
            error["data"] = data;
        }
        error_object(Some(id), &error)
    }
}

/// An error about a text whose id cannot be read.
pub(super) fn unreadable(code: i64, message: &str) -> Vec<u8> {
    error_object(None, &json!({ "code": code, "message": message }))
}

fn error_object(id: Option<&Value>, error: &impl Serialize) -> Vec<u8> {
    #[derive(Serialize)]
    struct ErrorResponse<'a, E> {
        jsonrpc: &'static str,
        id: Option<&'a Value>,
        error: &'a E,
    }
    let mut line = serde_json::to_vec(&ErrorResponse { jsonrpc: "2.0", id, error }).unwrap_or_default();
    // A raw value may contain line ends.
    line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(json: &str) -> Message {
        Message::parse(Bytes::copy_from_slice(json.as_bytes())).expect("JSON")
    }

    #[test]
    fn the_revision_of_a_message_is_in_its_metadata() {
        let modern = |version: &str| {
            format!(r#"{{"id":1,"method":"initialize","params":{{"_meta":{{"{VERSION_FIELD}":{version}}}}}}}"#)
        };
        let read = message(&modern("\"2026-07-28\""));
        assert_eq!((read.version.as_deref(), read.is_legacy(INITIALIZE)), (Some("2026-07-28"), false));
        assert!(read.handshake.is_none() && read.is_request());
        assert_eq!(message(&modern("7")).version.as_deref(), Some(""));

        let legacy = message(r#"{"id":"a","method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#);
        assert!(legacy.is_legacy(INITIALIZE));
        assert_eq!(legacy.handshake.expect("params").get(), r#"{"protocolVersion":"2025-11-25"}"#);
    }

    #[test]
    fn a_name_has_the_base64_form_only_where_it_is_needed() {
        for (name, value) in [
            ("helper", "helper"),
            ("a b", "a b"),
            ("", ""),
            ("héllo", "=?base64?aMOpbGxv?="),
            (" a", "=?base64?IGE=?="),
            ("a\nb", "=?base64?YQpi?="),
            ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ] {
            assert_eq!(header_value(name), value, "{name:?}");
        }
        for (method, params, name) in [
            ("tools/call", r#"{"name":"a","uri":"b"}"#, Some("a")),
            ("resources/read", r#"{"name":"a","uri":"b"}"#, Some("b")),
            ("tasks/get", r#"{"taskId":"t"}"#, Some("t")),
            ("prompts/get", r#"{"name":7}"#, None),
            ("tools/list", r#"{"name":"a"}"#, None),
        ] {
            let read = message(&format!(r#"{{"id":1,"method":"{method}","params":{params}}}"#));
            let headers = read.headers("2026-07-28");
            let found = headers.iter().find(|(header, _)| *header == "mcp-name").map(|(_, value)| value.as_str());
            assert_eq!(found, name, "{method}");
        }
    }

    #[test]
    fn ids_are_strings_or_numbers() {
        assert_eq!(message(r#"{"id":"1","method":"ping"}"#).id, Some(json!("1")));
        assert_eq!(message(r#"{"id":1,"method":"ping"}"#).id, Some(json!(1)));
        for other in [r#"{"id":null,"method":"ping"}"#, r#"{"id":{},"method":"ping"}"#, "[]", "7", r#"{"method":"x"}"#]
        {
            assert!(!message(other).is_request(), "{other}");
        }
        let cancelled = message(r#"{"method":"notifications/cancelled","params":{"requestId":"x"}}"#);
        assert_eq!(cancelled.cancels, Some(json!("x")));
        assert!(Message::parse(Bytes::from_static(b"{\"id\":1")).is_none());
        assert!(Message::parse(Bytes::from_static(b"{\"id\":\"\xff\"}")).is_none());
    }

    #[test]
    fn messages_of_the_server_are_one_line_and_errors_get_the_id_of_their_request() {
        let read = ServerMessage::parse(b" {\"jsonrpc\":\"2.0\",\r\n\"id\":1,\"result\":{\"a\":\"\\n\"}}\n")
            .expect("a message");
        assert_eq!(read.kind, ServerMessageKind::Response(Some(json!(1))));
        assert_eq!(read.line, b"{\"jsonrpc\":\"2.0\",  \"id\":1,\"result\":{\"a\":\"\\n\"}}");
        let call = ServerMessage::parse(br#"{"jsonrpc":"2.0","method":"ping","id":3}"#).expect("a message");
        assert_eq!(call.kind, ServerMessageKind::Call);
        assert_eq!(ServerMessage::parse(b"[{}]").expect("a message").kind, ServerMessageKind::Batch);
        for other in ["{}", "7", "<html>", r#"{"jsonrpc":"2.0","id":1}"#, r#"{"detail":"Not Found"}"#] {
            assert!(ServerMessage::parse(other.as_bytes()).is_none(), "{other}");
        }

        let refused = br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no","data":{"a":1}}}"#;
        let refused = ServerMessage::parse(refused).expect("a message");
        let line = refused.error_for(&json!("x")).expect("an error");
        let expected =
            json!({ "jsonrpc": "2.0", "id": "x", "error": { "code": -32600, "message": "no", "data": { "a": 1 } } });
        assert_eq!(serde_json::from_slice::<Value>(&line).expect("JSON"), expected);
    }
}
