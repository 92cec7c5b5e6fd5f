//! A request as a client sends it, for the operator's console. Not here: what the console does with it (the server).

use interlingua_core::sample::{SampleInput, SampleRequest};
use serde_json::json;

use crate::decode::input::as_sent;
use crate::dialect::WireFormat;
use crate::wire::EncodedValue;

/// A message over JSON-RPC, streamed; that of the client itself if a run is shown that it began.
pub(crate) fn request(input: &SampleInput<'_>) -> SampleRequest {
    let sent = input.began.and_then(|run| as_sent(run, 0).pop());
    let sent = sent.and_then(|message| serde_json::to_value(EncodedValue(&message, WireFormat::V1)).ok());
    let mut message = sent.unwrap_or_else(
        || json!({ "messageId": input.id.to_string(), "role": "ROLE_USER", "parts": [{ "text": input.text }] }),
    );
    if let Some(thread) = input.thread {
        message["contextId"] = thread.session.into();
    }
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": { "message": message },
    });
    SampleRequest::post("", call).with_header("a2a-version", "1.0")
}
