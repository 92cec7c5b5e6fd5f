//! The id of a JSON-RPC request, and progress tokens.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::Value;

/// Maximum length of an id, and of a progress token, in bytes.
pub(crate) const MAX_ID_BYTES: usize = 256;
/// Maximum length of the id of a question, in bytes.
const MAX_OWN_ID_BYTES: usize = 1024;

/// The id of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum RpcId {
    /// A text.
    Text(String),
    /// An integer.
    Number(i64),
}

impl RpcId {
    /// Reads an id. `None`: the value is neither a text nor an integer, or too long.
    pub(crate) fn read(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) if text.len() <= MAX_ID_BYTES => Some(Self::Text(text.clone())),
            Value::Number(number) => number.as_i64().map(Self::Number),
            _ => None,
        }
    }

    /// Reads the id of a response, which the gateway has made. `None`: it has another form, or is too long.
    pub(crate) fn read_own(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) if text.len() <= MAX_OWN_ID_BYTES => Some(Self::Text(text.clone())),
            value => Self::read(value),
        }
    }

    /// The id as JSON text: different for a text and a number that look alike.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The JSON text as base64url, for ids of events.
    pub(crate) fn to_base64(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.to_json())
    }

    /// Reads [`RpcId::to_base64`].
    pub(crate) fn from_base64(text: &str) -> Option<Self> {
        let json = URL_SAFE_NO_PAD.decode(text).ok()?;
        Self::read(&serde_json::from_slice(&json).ok()?)
    }
}

/// True if the value may be a progress token.
pub(crate) fn is_progress_token(value: &Value) -> bool {
    RpcId::read(value).is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_are_texts_and_integers() {
        for value in [json!("7"), json!(7), json!(-1), json!(""), json!("x".repeat(MAX_ID_BYTES))] {
            let id = RpcId::read(&value).expect("an id");
            assert_eq!(serde_json::to_value(&id).expect("JSON"), value);
            assert_eq!(RpcId::from_base64(&id.to_base64()), Some(id));
        }
        for value in [json!(null), json!(true), json!(1.5), json!([]), json!("x".repeat(MAX_ID_BYTES + 1))] {
            assert_eq!(RpcId::read(&value), None, "{value}");
        }
        assert_ne!(RpcId::Text("7".to_owned()).to_json(), RpcId::Number(7).to_json());
    }
}
