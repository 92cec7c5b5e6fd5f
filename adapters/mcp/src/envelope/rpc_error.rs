//! Errors of JSON-RPC, and the HTTP status that each is sent with.

use serde_json::{Value, json};

/// The body is not JSON.
pub(crate) const PARSE_ERROR: i64 = -32700;
/// The message is no request of JSON-RPC.
pub(crate) const INVALID_REQUEST: i64 = -32600;
/// The method is not served.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters are wrong.
pub(crate) const INVALID_PARAMS: i64 = -32602;
/// The gateway has failed.
pub(crate) const INTERNAL_ERROR: i64 = -32603;
/// The resource does not exist, in revisions with a handshake.
pub(crate) const RESOURCE_NOT_FOUND: i64 = -32002;
/// A header contradicts the body.
pub(crate) const HEADER_MISMATCH: i64 = -32020;
/// The client lacks a capability.
pub(crate) const MISSING_CAPABILITY: i64 = -32021;
/// The revision is not served.
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;

/// An error of JSON-RPC.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RpcError {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The code of JSON-RPC or MCP.
    pub(crate) code: i64,
    /// A message for people.
    pub(crate) message: String,
    /// Details for programs.
    pub(crate) data: Option<Value>,
}

impl RpcError {
    /// An error with HTTP status 200.
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { status: 200, code, message: message.into(), data: None }
    }

    /// An error of the envelope, with HTTP status 400.
    pub(crate) fn bad(code: i64, message: impl Into<String>) -> Self {
        Self { status: 400, ..Self::new(code, message) }
    }

    /// Wrong parameters, with HTTP status 200.
    pub(crate) fn params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    /// Adds details for programs.
    pub(crate) fn with_data(self, data: Value) -> Self {
        Self { data: Some(data), ..self }
    }

    /// The member `error` of a response.
    pub(crate) fn to_value(&self) -> Value {
        match &self.data {
            Some(data) => json!({ "code": self.code, "message": self.message, "data": data }),
            None => json!({ "code": self.code, "message": self.message }),
        }
    }
}
