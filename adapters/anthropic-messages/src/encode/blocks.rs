//! Blocks of content, one after the other: as events of a stream, or gathered for a whole message
//! (docs/protocols/anthropic-messages.md#event-grammar).
//!
//! The bytes around the deltas of a block are built once, when it is opened. A delta then costs only copying and
//! escaping. Not here: which contents are blocks ([`super`]).

use std::io::Write as _;

use interlingua_core::{Extra, Json, Out};
use serde::Serialize;
use serde_json::json;

/// Where blocks go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockTarget {
    /// A stream of server-sent events.
    Stream,
    /// A list of whole blocks.
    Whole,
}

/// A block that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    Text,
    Thinking,
    ToolUse,
}

impl BlockKind {
    /// The type of its deltas, and the field that holds the piece.
    const fn delta(self) -> (&'static str, &'static str) {
        match self {
            Self::Text => ("text_delta", "text"),
            Self::Thinking => ("thinking_delta", "thinking"),
            Self::ToolUse => ("input_json_delta", "partial_json"),
        }
    }
}

/// A call as its block begins.
#[derive(Serialize)]
struct ToolUse<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'a str,
    name: &'a str,
    input: Json,
}

#[derive(Serialize)]
struct Start<'a, T> {
    #[serde(rename = "type")]
    event: &'static str,
    index: usize,
    content_block: &'a T,
}

#[derive(Serialize)]
struct Delta<'a, T> {
    #[serde(rename = "type")]
    event: &'static str,
    index: usize,
    delta: &'a T,
}

#[derive(Serialize)]
struct Stop {
    #[serde(rename = "type")]
    event: &'static str,
    index: usize,
}

/// Writes blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    target: BlockTarget,
    /// The number of blocks that were begun.
    count: usize,
    open: Option<BlockKind>,
    /// The beginning of the deltas of the open block, up to the piece.
    head: Vec<u8>,
    /// The open block, for a whole message.
    fields: Extra,
    text: String,
    citations: Vec<Json>,
    whole: Vec<Json>,
}

impl Blocks {
    pub(super) const fn new(target: BlockTarget) -> Self {
        Self {
            target,
            count: 0,
            open: None,
            head: Vec::new(),
            fields: Extra::new(),
            text: String::new(),
            citations: Vec::new(),
            whole: Vec::new(),
        }
    }

    pub(super) const fn open(&self) -> Option<BlockKind> {
        self.open
    }

    /// The blocks of a whole message.
    pub(super) fn into_whole(self) -> Vec<Json> {
        self.whole
    }

    pub(super) fn begin_text(&mut self, out: &mut Out) {
        self.begin(BlockKind::Text, &json!({ "type": "text", "text": "" }), out);
    }

    pub(super) fn begin_thinking(&mut self, out: &mut Out) {
        self.begin(BlockKind::Thinking, &json!({ "type": "thinking", "thinking": "", "signature": "" }), out);
    }

    pub(super) fn begin_call(&mut self, id: &str, name: &str, out: &mut Out) {
        self.end(out);
        let input = Json::from_serialize(&json!({}));
        let block = ToolUse { kind: "tool_use", id, name, input };
        if self.target == BlockTarget::Whole {
            self.fields = Extra::new();
            self.fields.push("id", Json::from_serialize(id));
            self.fields.push("name", Json::from_serialize(name));
        }
        self.begin(BlockKind::ToolUse, &block, out);
    }

    fn begin<T: Serialize>(&mut self, kind: BlockKind, block: &T, out: &mut Out) {
        self.end(out);
        let index = self.count;
        self.count += 1;
        self.open = Some(kind);
        if self.target == BlockTarget::Whole {
            self.text.clear();
            return;
        }

        out.frame(Some("content_block_start"), &Start { event: "content_block_start", index, content_block: block });
        let (delta, field) = kind.delta();
        self.head.clear();
        let written = write!(
            self.head,
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":{index},\
             \"delta\":{{\"type\":\"{delta}\",\"{field}\":"
        );
        debug_assert!(written.is_ok(), "writing into a vector does not fail");
    }

    /// A piece of the open block. Hot path: no allocation, two copies, and escaping of the text.
    #[inline]
    pub(super) fn push(&mut self, piece: &str, out: &mut Out) {
        if piece.is_empty() {
            return;
        }
        if self.target == BlockTarget::Whole {
            self.text.push_str(piece);
            return;
        }

        out.body.reserve(self.head.len() + piece.len() + 16);
        out.write_raw(&self.head);
        out.write_json(piece);
        out.write_raw(b"}}\n\n");
    }

    /// The signature of the open thinking block.
    pub(super) fn sign(&mut self, signature: &str, out: &mut Out) {
        match self.target {
            BlockTarget::Whole => self.fields.set("signature", Json::from_serialize(signature)),
            BlockTarget::Stream => self.delta(&json!({ "type": "signature_delta", "signature": signature }), out),
        }
    }

    /// A source of the open text block.
    pub(super) fn cite(&mut self, citation: Json, out: &mut Out) {
        match self.target {
            BlockTarget::Whole => self.citations.push(citation),
            BlockTarget::Stream => self.delta(&json!({ "type": "citations_delta", "citation": citation }), out),
        }
    }

    fn delta<T: Serialize>(&self, delta: &T, out: &mut Out) {
        let index = self.count.saturating_sub(1);
        out.frame(Some("content_block_delta"), &Delta { event: "content_block_delta", index, delta });
    }

    /// Ends the open block, if there is one.
    pub(super) fn end(&mut self, out: &mut Out) {
        let Some(kind) = self.open.take() else { return };
        if self.target == BlockTarget::Whole {
            let block = self.take(kind);
            self.whole.push(block);
            return;
        }
        out.frame(Some("content_block_stop"), &Stop { event: "content_block_stop", index: self.count - 1 });
    }

    /// The block that was open, whole.
    fn take(&mut self, kind: BlockKind) -> Json {
        let text = std::mem::take(&mut self.text);
        let fields = std::mem::take(&mut self.fields);
        let citations = std::mem::take(&mut self.citations);
        match kind {
            BlockKind::Text if citations.is_empty() => Json::from_serialize(&json!({ "type": "text", "text": text })),
            BlockKind::Text => Json::from_serialize(&json!({ "type": "text", "text": text, "citations": citations })),
            BlockKind::Thinking => {
                let signature = fields.get("signature").and_then(Json::decode::<String>).unwrap_or_default();
                Json::from_serialize(&json!({ "type": "thinking", "thinking": text, "signature": signature }))
            }
            BlockKind::ToolUse => {
                let mut block = Extra::new();
                block.push("type", Json::from_serialize("tool_use"));
                block.merge(fields);
                block.push("input", Json::parse(&text).unwrap_or_else(|| Json::from_serialize(&json!({}))));
                Json::from_serialize(&block)
            }
        }
    }

    /// A block that is whole from its start.
    pub(super) fn whole<T: Serialize>(&mut self, block: &T, out: &mut Out) {
        self.end(out);
        let index = self.count;
        self.count += 1;
        if self.target == BlockTarget::Whole {
            self.whole.push(Json::from_serialize(block));
            return;
        }
        out.frame(Some("content_block_start"), &Start { event: "content_block_start", index, content_block: block });
        out.frame(Some("content_block_stop"), &Stop { event: "content_block_stop", index });
    }

    /// A text block of these words.
    pub(super) fn words(&mut self, text: &str, out: &mut Out) {
        if text.is_empty() {
            return;
        }
        self.begin_text(out);
        self.push(text, out);
        self.end(out);
    }
}
