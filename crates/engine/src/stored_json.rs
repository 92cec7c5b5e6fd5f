//! JSON as documents of the store hold it.

use bytes::Bytes;
use interlingua_core::Json;
use interlingua_core::tree::Node;

/// What a stored document holds. `None`: it is no JSON.
pub(super) fn parse(bytes: &[u8]) -> Option<Json> {
    let text = std::str::from_utf8(bytes).ok()?;
    Node::parse(text.as_bytes()).ok().map(|node| node.to_json())
}

/// JSON as it is stored.
pub(super) fn to_bytes(json: &Json) -> Bytes {
    json.text().as_bytes().to_vec().into()
}
