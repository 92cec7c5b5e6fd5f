//! Messages of JSON-RPC.

use serde_json::{Map, Value};

use super::id::RpcId;
use super::rpc_error::{INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, RpcError};

/// Maximum length of a method in bytes.
const MAX_METHOD_BYTES: usize = 256;

/// The parameters of a message.
pub(crate) type Params = Map<String, Value>;

/// A message of the client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Message {
    /// The kind of message, with its id.
    pub(crate) kind: MessageKind,
    /// The method. Empty for responses.
    pub(crate) method: String,
    /// The parameters. Empty if the message has none.
    pub(crate) params: Params,
}

/// The kinds of messages.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum MessageKind {
    /// A request.
    Request(RpcId),
    /// A notification.
    Notification,
    /// A response to a request of the gateway. `None`: the client answered with an error.
    Response(RpcId, Option<Value>),
}

impl Message {
    /// Reads a message.
    ///
    /// # Errors
    /// The error, and the id if it could be read.
    pub(crate) fn read(body: &[u8]) -> Result<Self, (Option<RpcId>, RpcError)> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|error| (None, RpcError::bad(PARSE_ERROR, format!("the body is not JSON: {error}"))))?;
        let object = match value {
            Value::Object(object) => object,
            // Revision 2025-03-26 has lists of messages.
            Value::Array(mut messages) if messages.len() == 1 => match messages.pop() {
                Some(Value::Object(object)) => object,
                _ => return Err((None, invalid("a message is an object"))),
            },
            Value::Array(_) => return Err((None, invalid("lists of messages are not supported: send one message"))),
            _ => return Err((None, invalid("a message is an object"))),
        };
        let is_response = !object.contains_key("method");
        let id = object.get("id").and_then(|id| if is_response { RpcId::read_own(id) } else { RpcId::read(id) });
        Self::read_object(object, id.as_ref()).map_err(|error| (id, error))
    }

    fn read_object(mut object: Params, id: Option<&RpcId>) -> Result<Self, RpcError> {
        if object.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return Err(invalid("\"jsonrpc\" must be \"2.0\""));
        }
        if object.contains_key("id") && id.is_none() {
            return Err(invalid("\"id\" must be a string of at most 256 bytes, or an integer"));
        }

        let method = match object.get("method") {
            Some(Value::String(method)) if method.len() <= MAX_METHOD_BYTES => Some(method.clone()),
            Some(_) => return Err(invalid("\"method\" must be a string")),
            None => None,
        };
        let Some(method) = method else {
            let Some(id) = id.cloned() else { return Err(invalid("\"method\" is missing")) };
            let result = object.remove("result");
            if result.is_none() && !object.contains_key("error") {
                return Err(invalid("\"method\" is missing"));
            }
            return Ok(Self { kind: MessageKind::Response(id, result), method: String::new(), params: Params::new() });
        };

        let params = match object.remove("params") {
            Some(Value::Object(params)) => params,
            None => Params::new(),
            Some(_) => return Err(RpcError::bad(INVALID_PARAMS, "\"params\" must be an object")),
        };
        let kind = id.cloned().map_or(MessageKind::Notification, MessageKind::Request);
        Ok(Self { kind, method, params })
    }

    /// The metadata of the parameters.
    pub(crate) fn meta(&self) -> Option<&Value> {
        self.params.get("_meta")
    }

    /// A member of the metadata.
    pub(crate) fn meta_value(&self, name: &str) -> Option<&Value> {
        self.meta()?.get(name)
    }
}

fn invalid(message: &str) -> RpcError {
    RpcError::bad(INVALID_REQUEST, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str) -> (Option<RpcId>, u16, i64) {
        let (id, error) = Message::read(body.as_bytes()).expect_err(body);
        (id, error.status, error.code)
    }

    #[test]
    fn the_three_kinds_are_told_apart() {
        let kind = |body: &str| Message::read(body.as_bytes()).expect(body).kind;
        assert_eq!(kind(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), MessageKind::Request(RpcId::Number(1)));
        assert_eq!(kind(r#"[{"jsonrpc":"2.0","method":"ping","more":1}]"#), MessageKind::Notification);
        let answered = kind(r#"{"jsonrpc":"2.0","id":"q","result":{}}"#);
        assert_eq!(answered, MessageKind::Response(RpcId::Text("q".to_owned()), Some(serde_json::json!({}))));
        let failed = kind(r#"{"jsonrpc":"2.0","id":"q","error":{"code":1,"message":"no"}}"#);
        assert_eq!(failed, MessageKind::Response(RpcId::Text("q".to_owned()), None));
    }

    #[test]
    fn wrong_messages_are_refused_with_their_id() {
        assert_eq!(refused("{"), (None, 400, PARSE_ERROR));
        for body in ["1", "[]", "null", r#"[{"jsonrpc":"2.0","method":"a"},{}]"#, "[1]"] {
            assert_eq!(refused(body), (None, 400, INVALID_REQUEST), "{body}");
        }
        let id = Some(RpcId::Number(3));
        for body in
            [r#"{"id":3,"method":"a"}"#, r#"{"jsonrpc":"1.0","id":3,"method":"a"}"#, r#"{"jsonrpc":"2.0","id":3}"#]
        {
            assert_eq!(refused(body), (id.clone(), 400, INVALID_REQUEST), "{body}");
        }
        for wrong in ["null", "1.5", "true", "[]"] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{wrong},"method":"ping"}}"#);
            assert_eq!(refused(&body), (None, 400, INVALID_REQUEST), "{body}");
        }
        assert_eq!(refused(r#"{"jsonrpc":"2.0","id":3,"method":"a","params":[]}"#), (id, 400, INVALID_PARAMS));
    }
}
