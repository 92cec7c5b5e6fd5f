//! Frames and numbers events (docs/protocols/responses.md#events): as server-sent events, as WebSocket messages, or not
//! at all if only the final object is needed.
//!
//! The bytes around a delta are built once, when its part is opened. A delta then costs only copying and escaping.

use std::io::Write as _;

use interlingua_core::Out;
use interlingua_core::sse::separators;
use serde::Serialize;

/// Destination of the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FrameTarget {
    /// A stream of server-sent events.
    Sse {
        /// True if `data: [DONE]` follows the last event.
        done: bool,
    },
    /// A WebSocket: one event per line, each line is a message.
    Socket {
        /// The client's name for this stream.
        stream_id: Option<String>,
    },
    /// Events are counted and discarded: only the final object is needed.
    Discard,
}

/// Numbers events and writes those the client asked for.
#[derive(Debug)]
pub(crate) struct Frames {
    target: FrameTarget,
    next: u64,
    /// Events up to this number are skipped (docs/protocols/responses.md#state).
    after: Option<u64>,
}

/// The bytes around the number and the text of a delta event.
#[derive(Debug)]
pub(super) struct Template {
    head: Vec<u8>,
    middle: Vec<u8>,
    tail: &'static str,
}

impl Frames {
    pub(crate) const fn new(target: FrameTarget, after: Option<u64>) -> Self {
        Self { target, next: 0, after }
    }

    /// True if nothing is written at all.
    pub(super) const fn is_silent(&self) -> bool {
        matches!(self.target, FrameTarget::Discard)
    }

    /// The number of the next event.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// Takes the next number. `None` if the event is skipped.
    fn take_number(&mut self) -> Option<u64> {
        let number = self.next;
        self.next += 1;
        let is_written = !self.is_silent() && self.after.is_none_or(|after| number > after);
        is_written.then_some(number)
    }

    /// Marks the next event as the last. A client that resumes after a number the run never reached still receives it.
    pub(super) fn mark_last(&mut self) {
        self.after = self.after.filter(|after| *after <= self.next);
    }

    /// Begins an event. `None` if it is skipped.
    pub(super) fn event<'o>(&mut self, name: &str, out: &'o mut Out) -> Option<Frame<'o>> {
        let number = self.take_number()?;
        let socket = match &self.target {
            FrameTarget::Socket { stream_id } => {
                out.write_raw(b"{\"type\":\"");
                out.write_raw(name.as_bytes());
                out.write_raw(b"\"");
                if let Some(id) = stream_id {
                    out.write_raw(b",\"stream_id\":");
                    out.write_json(id);
                }
                true
            }
            FrameTarget::Sse { .. } | FrameTarget::Discard => {
                out.begin_frame(Some(name), None);
                out.write_raw(b"{\"type\":\"");
                out.write_raw(name.as_bytes());
                out.write_raw(b"\"");
                false
            }
        };

        out.write_raw(b",\"sequence_number\":");
        out.number(number);
        Some(Frame { out, socket })
    }

    /// Builds the template of the deltas of one part. `fields` follow the number; `logprobs` follows the delta unless
    /// `last` is empty.
    pub(super) fn template<T: Serialize>(&self, name: &str, fields: &T, last: &str) -> Template {
        let mut head = Vec::new();
        let mut middle = Vec::new();

        let tail = match (&self.target, last.is_empty()) {
            (FrameTarget::Discard, _) => return Template { head, middle, tail: "" },
            (FrameTarget::Sse { .. }, false) => ",\"logprobs\":[]}\n\n",
            (FrameTarget::Sse { .. }, true) => "}\n\n",
            (FrameTarget::Socket { .. }, false) => ",\"logprobs\":[]}\n",
            (FrameTarget::Socket { .. }, true) => "}\n",
        };

        let written = match &self.target {
            FrameTarget::Socket { stream_id: Some(id) } => {
                let id = serde_json::to_string(id).unwrap_or_default();
                write!(head, "{{\"type\":\"{name}\",\"stream_id\":{id},\"sequence_number\":")
            }
            FrameTarget::Socket { stream_id: None } => write!(head, "{{\"type\":\"{name}\",\"sequence_number\":"),
            _ => write!(head, "event: {name}\ndata: {{\"type\":\"{name}\",\"sequence_number\":"),
        };
        debug_assert!(written.is_ok(), "writing into a vector does not fail");

        // `{"a":1}` becomes `,"a":1,"delta":`.
        let written = serde_json::to_writer(&mut middle, fields);
        debug_assert!(written.is_ok(), "wire types serialize");
        if let Some(brace) = middle.first_mut() {
            *brace = b',';
        }
        middle.pop();
        middle.extend_from_slice(b",\"delta\":");
        Template { head, middle: separators::escape(middle), tail }
    }

    /// Writes a delta. Hot path: no allocation, three copies, and escaping of the text.
    #[inline]
    pub(super) fn delta(&mut self, template: &Template, text: &str, out: &mut Out) {
        let Some(number) = self.take_number() else { return };

        out.body.reserve(template.head.len() + template.middle.len() + template.tail.len() + text.len() + 24);
        out.write_raw(&template.head);
        out.number(number);
        out.write_raw(&template.middle);
        out.write_json(text);
        out.write_raw(template.tail.as_bytes());
    }

    /// Ends the stream.
    pub(super) fn close(&self, out: &mut Out) {
        if self.target == (FrameTarget::Sse { done: true }) {
            out.text_frame("[DONE]");
        }
    }

    /// Writes an event outside the numbered sequence.
    pub(crate) fn write_standalone<T: Serialize>(&self, name: &str, value: &T, out: &mut Out) {
        match self.target {
            FrameTarget::Sse { .. } => out.frame(Some(name), value),
            FrameTarget::Socket { .. } => {
                out.write_json(value);
                out.write_raw(b"\n");
            }
            FrameTarget::Discard => {}
        }
    }

    /// The client's name for this stream.
    pub(crate) fn stream_id(&self) -> Option<&str> {
        match &self.target {
            FrameTarget::Socket { stream_id } => stream_id.as_deref(),
            _ => None,
        }
    }
}

/// An event being written.
#[must_use = "an event must be ended"]
pub(super) struct Frame<'o> {
    out: &'o mut Out,
    socket: bool,
}

impl Frame<'_> {
    /// Appends a field.
    pub(super) fn with<T: Serialize + ?Sized>(self, name: &str, value: &T) -> Self {
        self.out.write_raw(b",\"");
        self.out.write_raw(name.as_bytes());
        self.out.write_raw(b"\":");
        self.out.write_json(value);
        self
    }

    /// Ends the event.
    pub(super) fn end(self) {
        self.out.write_raw(b"}");
        if self.socket {
            self.out.write_raw(b"\n");
        } else {
            self.out.end_frame();
        }
    }
}
