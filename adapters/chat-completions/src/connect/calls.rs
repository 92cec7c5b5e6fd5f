//! Tool calls, put together from pieces that servers label in many wrong ways.
//!
//! See `docs/protocols/chat-completions.md#tool-calls`.

use std::collections::HashMap;

use interlingua_core::agent_event::{AgentEvent, CallPart, JsonRef, MessageEvent};
use interlingua_core::connector::EventSink;
use interlingua_core::model::MessageType;
use interlingua_core::turn_ids::TurnIds;
use interlingua_core::{End, Extra, Fault, Json, opaque};

use super::chunk::CallPiece;

/// A name that comes in more pieces than this many bytes is none.
const MAX_NAME: usize = 4096;

/// The calls of an answer.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// The author's name of opaque values.
    origin: String,
    all: Vec<Call>,
    /// The latest call of each index.
    by_index: HashMap<i64, usize>,
    /// Counts the chunks that held calls.
    chunk: u64,
    /// Calls before this one are closed.
    closed: usize,
}

#[derive(Debug, Default)]
struct Call {
    /// The id of its message. Empty: nothing was emitted yet.
    message: String,
    /// The server's id. Empty: none so far.
    id: String,
    name: String,
    has_arguments: bool,
    arguments: Extent,
    /// What the server wants back with the call.
    metadata: Option<Json>,
    /// The chunk that its latest piece came in.
    chunk: u64,
    closed: bool,
}

/// Where a JSON value that comes in pieces ends.
#[derive(Debug, Default)]
struct Extent {
    depth: u32,
    in_string: bool,
    escaped: bool,
    is_whole: bool,
}

impl Calls {
    /// No calls so far. `origin`: the author's name of opaque values.
    pub(super) fn new(origin: String) -> Self {
        Self { origin, ..Self::default() }
    }

    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// True if there is any.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The pieces of another chunk follow.
    pub(super) fn begin_chunk(&mut self) {
        self.chunk += 1;
    }

    /// Takes a piece. The messages of text and reasoning are closed before.
    pub(super) fn piece(
        &mut self,
        piece: &CallPiece<'_>,
        ids: &mut TurnIds,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        let id = piece.id.as_deref().unwrap_or_default();
        let name = piece.function.name.as_deref().unwrap_or_default();
        let arguments = piece.function.arguments.as_ref();

        let place = match self.place(piece.index, id, name) {
            Some(place) => place,
            // A piece of nothing.
            None if name.is_empty() && id.is_empty() && arguments.is_empty() => return Ok(()),
            None => self.open(piece.index, ids, sink)?,
        };

        let chunk = self.chunk;
        let call = &mut self.all[place];
        call.chunk = chunk;
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }

        // Gemini cuts names in two; others repeat them in every piece.
        if call.message.is_empty() && call.name != name && call.name.len() + name.len() <= MAX_NAME {
            call.name.push_str(name);
        }

        if let Some(extra) = piece.extra_content {
            let mut metadata = Extra::new();
            metadata.push("extra_content", Json::from_raw(extra));
            metadata.push(opaque::ORIGIN, Json::from_serialize(&self.origin));
            call.metadata = Some(Json::from_serialize(&metadata));
        }

        if arguments.is_empty() {
            return Ok(());
        }

        if call.closed {
            // More than a whole value, after the next call began. It cannot be a part of it.
            return sink.emit(&AgentEvent::Ignored);
        }

        call.emit(arguments, ids, sink)
    }

    /// The call that a piece belongs to. None: it opens one.
    fn place(&self, index: Option<i64>, id: &str, name: &str) -> Option<usize> {
        let last = self.all.len().checked_sub(1);
        let place = match index {
            Some(index) => self.by_index.get(&index).copied(),
            None if !id.is_empty() => {
                let known = self.all.iter().rposition(|call| call.id == id);
                // The id of a call that began without one.
                known.or(last.filter(|&last| name.is_empty() && self.all[last].id.is_empty()))
            }
            None if !name.is_empty() => None,
            None => last,
        };

        place.filter(|&place| !self.all[place].is_another(id, name, self.chunk))
    }

    fn open(&mut self, index: Option<i64>, ids: &mut TurnIds, sink: &mut dyn EventSink) -> Result<usize, Fault> {
        self.close_whole(ids, sink)?;
        let place = self.all.len();
        self.all.push(Call::default());
        if let Some(index) = index {
            self.by_index.insert(index, place);
        }
        Ok(place)
    }

    /// Something else begins: names are whole, and calls with whole arguments are closed. Pieces of the others may follow.
    pub(super) fn close_whole(&mut self, ids: &mut TurnIds, sink: &mut dyn EventSink) -> Result<(), Fault> {
        for call in &mut self.all[self.closed..] {
            if call.message.is_empty() {
                call.emit("", ids, sink)?;
            }
            if call.arguments.is_whole && !call.closed {
                call.close(End::Completed, sink)?;
            }
        }

        while self.all.get(self.closed).is_some_and(|call| call.closed) {
            self.closed += 1;
        }
        Ok(())
    }

    /// The answer ended. `end`: how the turn did.
    pub(super) fn finish(&mut self, end: End, ids: &mut TurnIds, sink: &mut dyn EventSink) -> Result<(), Fault> {
        for call in self.all[self.closed..].iter_mut().filter(|call| !call.closed) {
            if end == End::Completed && !call.has_arguments {
                // Clients parse them, and an empty text is no JSON.
                call.emit("{}", ids, sink)?;
            } else if call.message.is_empty() {
                call.emit("", ids, sink)?;
            }
            call.close(if call.arguments.is_whole { End::Completed } else { end }, sink)?;
        }

        self.closed = self.all.len();
        Ok(())
    }
}

impl Call {
    /// True if a piece with this label begins another call.
    fn is_another(&self, id: &str, name: &str, chunk: u64) -> bool {
        let other_id = !id.is_empty() && !self.id.is_empty() && id != self.id;
        let other_name = !name.is_empty() && self.has_arguments && name != self.name;
        // Two entries of one list, each with a name, are two calls.
        let beside = !name.is_empty() && self.chunk == chunk;
        other_id || other_name || beside
    }

    /// Emits more of the arguments, and before the first the call itself.
    fn emit(&mut self, arguments: &str, ids: &mut TurnIds, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let mut part = CallPart { arguments: arguments.into(), ..CallPart::default() };
        if self.message.is_empty() {
            self.message = ids.message();
            sink.emit(&AgentEvent::Message(MessageEvent {
                id: Some(self.message.as_str().into()),
                kind: Some(MessageType::FunctionCall),
                metadata: self.metadata.clone().map(JsonRef::Owned),
                ..MessageEvent::default()
            }))?;
            part.call_id = ids.call(&self.id).into();
            part.name = self.name.as_str().into();
        }

        self.has_arguments |= !arguments.is_empty();
        self.arguments.extend(arguments);
        sink.emit(&AgentEvent::call(&self.message, part))
    }

    fn close(&mut self, end: End, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.closed = true;
        let metadata = self.metadata.take().map(JsonRef::Owned);
        let id = Some(self.message.as_str().into());
        sink.emit(&AgentEvent::Message(MessageEvent { id, end: Some(end), metadata, ..MessageEvent::default() }))
    }
}

impl Extent {
    fn extend(&mut self, piece: &str) {
        for byte in piece.bytes() {
            // Anything visible behind a whole value makes it none.
            self.is_whole &= byte.is_ascii_whitespace();
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.is_whole = self.depth == 1;
                    self.depth = self.depth.saturating_sub(1);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_arguments_is_found_wherever_they_are_cut() {
        for (text, whole) in [
            (r#"{"a":"}\"]"}"#, true),
            (" { } \n", true),
            (r#"{"a":[1,{}]"#, false),
            (r#"{"a":"\\"}"#, true),
            (r#"{"a":"\\"#, false),
            ("{}x", false),
            ("{}{}", true),
            ("}", false),
            ("", false),
        ] {
            for cut in 0..=text.len() {
                let mut extent = Extent::default();
                extent.extend(&text[..cut]);
                extent.extend(&text[cut..]);
                assert_eq!(extent.is_whole, whole, "{text} cut at {cut}");
            }
        }
    }
}
