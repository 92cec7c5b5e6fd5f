//! JSON in documents of the store.

use bytes::Bytes;
use interlingua_core::Json;
use interlingua_core::tree::Node;

/// Parses a stored document. `None`: it is not JSON.
pub(super) fn parse(bytes: &[u8]) -> Option<Json> {
    let text = std::str::from_utf8(bytes).ok()?;
    Node::parse(text.as_bytes()).ok().map(|node| node.to_json())
}

pub(super) fn to_bytes(json: &Json) -> Bytes {
    json.text().as_bytes().to_vec().into()
}
