//! The forms in which agents send their reasoning: as one text, as a summary in parts, signed, encrypted, and between
//! calls.
//!
//! Not here: which word asks for which form ([`super::words`]), and how a form is sent ([`super::stage`]).

use interlingua_core::model::MessageType;
use interlingua_core::opaque::ORIGIN;
use serde_json::{Value, json};

use super::stage::Act;

/// Reasoning as one text.
pub(super) const THOUGHT: &str =
    "The user would like to see me think. So I think about it, step by step, before I answer.";

/// A value that only the agent can read, as models send it: Base64 of some bytes.
const OPAQUE: &str = "dGhlIGRlbW8gYWdlbnQgdGhvdWdodCB0aGlz";

/// The author of [`OPAQUE`]: no other agent is sent it.
const AUTHOR: &str = "demo";

pub(super) fn plain(text: &str) -> Act {
    Act::Say(MessageType::Reasoning, text.to_owned())
}

/// A summary, in two parts.
pub(super) fn summary() -> Act {
    let parts = ["**Reading the question** It is about my thoughts.", "**Answering** I sum them up, in two parts."];
    Act::Think(parts.map(str::to_owned).to_vec(), Value::Null)
}

/// A text with a signature, by which the agent knows its own thoughts again.
pub(super) fn signed() -> Act {
    let metadata = json!({ "signature": OPAQUE, "encrypted_content": OPAQUE, ORIGIN: AUTHOR });
    Act::Think(vec!["I sign what I think, so that I know it again.".to_owned()], metadata)
}

/// Nothing but a value that only the agent can read.
pub(super) fn redacted() -> Act {
    let metadata = json!({ "redacted": OPAQUE, "encrypted_content": OPAQUE, ORIGIN: AUTHOR });
    Act::Think(Vec::new(), metadata)
}
