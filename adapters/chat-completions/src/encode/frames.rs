//! Chunks of a stream (docs/protocols/chat-completions.md#stream). The bytes around a delta are built once for each
//! stream; a delta then costs only copying and escaping.

use std::io::Write as _;

use interlingua_adapter_kit::openai_error::ErrorObject;
use interlingua_core::sse::separators;
use interlingua_core::{Json, Out};
use serde::Serialize;

/// The fields that all chunks of an answer share.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    /// The completion's id.
    pub(crate) id: String,
    /// In Unix seconds.
    pub(crate) created: u64,
    /// The client's name of the model.
    pub(crate) model: String,
    /// Whether the client asked for usage.
    pub(crate) include_usage: bool,
    /// Whether the client named a service tier.
    pub(crate) service_tier: bool,
}

/// Writes the chunks of one stream.
#[derive(Debug)]
pub(crate) struct Frames {
    /// `data: {"id":…,"model":…,"choices":`
    head: Vec<u8>,
    /// `[{"index":0,"delta":`
    open: &'static [u8],
    /// The bytes after a delta, up to the blank line.
    tail: &'static [u8],
    include_usage: bool,
}

const OPEN: &[u8] = br#"[{"index":0,"delta":"#;
const TAIL: &[u8] = b",\"logprobs\":null,\"finish_reason\":null}]}\n\n";
const TAIL_WITH_USAGE: &[u8] = b",\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n";

impl Frames {
    pub(crate) fn new(envelope: &Envelope) -> Self {
        let json = |text: &str| serde_json::to_string(text).unwrap_or_default();
        let mut head = Vec::new();
        let written = write!(
            head,
            "data: {{\"id\":{},\"object\":\"chat.completion.chunk\",\"created\":{},\"model\":{}",
            json(&envelope.id),
            envelope.created,
            json(&envelope.model)
        );
        debug_assert!(written.is_ok(), "writing into a vector does not fail");
        if envelope.service_tier {
            head.extend_from_slice(br#","service_tier":"default""#);
        }
        head.extend_from_slice(br#","choices":"#);
        Self {
            head: separators::escape(head),
            open: OPEN,
            tail: if envelope.include_usage { TAIL_WITH_USAGE } else { TAIL },
            include_usage: envelope.include_usage,
        }
    }

    /// A delta with one text field. Hot path: no allocation, copies, and escaping of the text. `field`: with its
    /// quotes, its colon and the brace before it.
    #[inline]
    pub(crate) fn text(&self, field: &'static [u8], text: &str, out: &mut Out) {
        out.body.reserve(self.head.len() + self.open.len() + self.tail.len() + field.len() + text.len() + 16);
        out.write_raw(&self.head);
        out.write_raw(self.open);
        out.write_raw(field);
        out.write_json(text);
        out.write_raw(b"}");
        out.write_raw(self.tail);
    }

    /// A piece of the arguments of a call. `around`: the bytes before and after the text.
    #[inline]
    pub(crate) fn piece(&self, around: &(Vec<u8>, &'static [u8]), text: &str, out: &mut Out) {
        out.write_raw(&self.head);
        out.write_raw(self.open);
        out.write_raw(&around.0);
        out.write_json(text);
        out.write_raw(around.1);
        out.write_raw(self.tail);
    }

    /// Any other delta.
    pub(crate) fn delta<T: Serialize + ?Sized>(&self, delta: &T, out: &mut Out) {
        out.write_raw(&self.head);
        out.write_raw(self.open);
        out.write_json(delta);
        out.write_raw(self.tail);
    }

    /// The end of an answer: the reason, the usage if it is wanted and known, `[DONE]`.
    pub(crate) fn finish(&self, reason: &'static str, usage: Option<&Json>, out: &mut Out) {
        out.write_raw(&self.head);
        out.write_raw(self.open);
        out.write_raw(b"{},\"logprobs\":null,\"finish_reason\":");
        out.write_json(reason);
        let tail: &[u8] = if self.include_usage { b"}],\"usage\":null}\n\n" } else { b"}]}\n\n" };
        out.write_raw(tail);

        // It has to be the last chunk: openai-python takes the usage of the latest one, null included.
        if let Some(usage) = usage.filter(|_| self.include_usage) {
            out.write_raw(&self.head);
            out.write_raw(b"[],\"usage\":");
            out.write_json(usage);
            out.write_raw(b"}\n\n");
        }
        out.text_frame("[DONE]");
    }
}

/// Ends a stream with an error. Nothing follows it, not even `[DONE]`: a reader may take that for success.
pub(crate) fn error(error: &ErrorObject<'_>, out: &mut Out) {
    #[derive(Serialize)]
    struct Body<'a> {
        error: &'a ErrorObject<'a>,
    }
    out.frame(None, &Body { error });
}
