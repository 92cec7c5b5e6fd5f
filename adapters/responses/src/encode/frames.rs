//! How events are framed and numbered (sections 2, 8 and 13): as an event stream, as messages of a WebSocket, or not
//! at all, where only the final object is wanted.
//!
//! The bytes around a delta are made once, when its part is opened; a delta then costs copying and escaping.

use std::io::Write as _;

use interlingua_core::Out;
use interlingua_core::sse::separators;
use serde::Serialize;

/// Where the events go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// An event stream.
    Sse {
        /// Whether `data: [DONE]` follows the last event.
        done: bool,
    },
    /// A WebSocket: one event a line, each line a message.
    Socket {
        /// What the client called this stream.
        stream_id: Option<String>,
    },
    /// Nowhere: the object is wanted.
    Nowhere,
}

/// Numbers events and writes those that are wanted.
#[derive(Debug)]
pub(crate) struct Frames {
    target: Target,
    next: u64,
    /// Events up to this number are not written (section 12, resume).
    after: Option<u64>,
}

/// What stands around a delta.
#[derive(Debug)]
pub(super) struct Template {
    head: Vec<u8>,
    middle: Vec<u8>,
    tail: &'static str,
}

impl Frames {
    pub(crate) const fn new(target: Target, after: Option<u64>) -> Self {
        Self { target, next: 0, after }
    }

    /// Whether anything is written at all.
    pub(super) const fn is_silent(&self) -> bool {
        matches!(self.target, Target::Nowhere)
    }

    /// The number of the next event.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// Counts an event. None if it is not to be written.
    fn number(&mut self) -> Option<u64> {
        let number = self.next;
        self.next += 1;
        let wanted = !self.is_silent() && self.after.is_none_or(|after| number > after);
        wanted.then_some(number)
    }

    /// The next event is the last one: whoever has counted further than the run came is told it all the same.
    pub(super) fn is_last(&mut self) {
        self.after = self.after.filter(|after| *after <= self.next);
    }

    /// Begins an event. None if it is not to be written.
    pub(super) fn event<'o>(&mut self, name: &str, out: &'o mut Out) -> Option<Frame<'o>> {
        let number = self.number()?;
        let socket = match &self.target {
            Target::Socket { stream_id } => {
                out.write_raw(b"{\"type\":\"");
                out.write_raw(name.as_bytes());
                out.write_raw(b"\"");
                if let Some(id) = stream_id {
                    out.write_raw(b",\"stream_id\":");
                    out.write_json(id);
                }
                true
            }
            Target::Sse { .. } | Target::Nowhere => {
                out.write_raw(b"event: ");
                out.write_raw(name.as_bytes());
                out.write_raw(b"\ndata: {\"type\":\"");
                out.write_raw(name.as_bytes());
                out.write_raw(b"\"");
                false
            }
        };
        out.write_raw(b",\"sequence_number\":");
        out.number(number);
        Some(Frame { out, socket })
    }

    /// Makes what stands around the deltas of one part. `fields` follow the number, `last` the delta.
    pub(super) fn template<T: Serialize>(&self, name: &str, fields: &T, last: &str) -> Template {
        let mut head = Vec::new();
        let mut middle = Vec::new();
        let tail = match (&self.target, last.is_empty()) {
            (Target::Nowhere, _) => return Template { head, middle, tail: "" },
            (Target::Sse { .. }, false) => ",\"logprobs\":[]}\n\n",
            (Target::Sse { .. }, true) => "}\n\n",
            (Target::Socket { .. }, false) => ",\"logprobs\":[]}\n",
            (Target::Socket { .. }, true) => "}\n",
        };
        let written = match &self.target {
            Target::Socket { stream_id: Some(id) } => {
                let id = serde_json::to_string(id).unwrap_or_default();
                write!(head, "{{\"type\":\"{name}\",\"stream_id\":{id},\"sequence_number\":")
            }
            Target::Socket { stream_id: None } => write!(head, "{{\"type\":\"{name}\",\"sequence_number\":"),
            _ => write!(head, "event: {name}\ndata: {{\"type\":\"{name}\",\"sequence_number\":"),
        };
        debug_assert!(written.is_ok(), "writing into a vector does not fail");
        // `{"a":1}` becomes `,"a":1,"delta":`.
        let written = serde_json::to_writer(&mut middle, fields);
        debug_assert!(written.is_ok(), "wire types serialise");
        if let Some(brace) = middle.first_mut() {
            *brace = b',';
        }
        middle.pop();
        middle.extend_from_slice(b",\"delta\":");
        Template { head, middle: separators::escape(middle), tail }
    }

    /// Writes a delta. The hot path: no allocation, three copies and the escaping of the text.
    #[inline]
    pub(super) fn delta(&mut self, template: &Template, text: &str, out: &mut Out) {
        let Some(number) = self.number() else { return };
        out.body.reserve(template.head.len() + template.middle.len() + template.tail.len() + text.len() + 24);
        out.write_raw(&template.head);
        out.number(number);
        out.write_raw(&template.middle);
        out.write_json(text);
        out.write_raw(template.tail.as_bytes());
    }

    /// Ends the row of events.
    pub(super) fn close(&self, out: &mut Out) {
        if self.target == (Target::Sse { done: true }) {
            out.write_raw(b"data: [DONE]\n\n");
        }
    }

    /// Writes a value that is an event of its own, outside the row.
    pub(crate) fn alone<T: Serialize>(&self, name: &str, value: &T, out: &mut Out) {
        match self.target {
            Target::Sse { .. } => out.frame(Some(name), value),
            Target::Socket { .. } => {
                out.write_json(value);
                out.write_raw(b"\n");
            }
            Target::Nowhere => {}
        }
    }

    /// What the client called this stream.
    pub(crate) fn stream_id(&self) -> Option<&str> {
        match &self.target {
            Target::Socket { stream_id } => stream_id.as_deref(),
            _ => None,
        }
    }
}

/// An event being written.
#[must_use = "an event that is begun has to be ended"]
pub(super) struct Frame<'o> {
    out: &'o mut Out,
    socket: bool,
}

impl Frame<'_> {
    /// Adds a field.
    pub(super) fn with<T: Serialize + ?Sized>(self, name: &str, value: &T) -> Self {
        self.out.write_raw(b",\"");
        self.out.write_raw(name.as_bytes());
        self.out.write_raw(b"\":");
        self.out.write_json(value);
        self
    }

    /// Ends it.
    pub(super) fn end(self) {
        self.out.write_raw(if self.socket { b"}\n" } else { b"}\n\n" });
    }
}
