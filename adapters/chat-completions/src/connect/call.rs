//! One tool call: its name and its arguments, which arrive in pieces, repeated, cumulative or whole.
//!
//! Not here: the call that a piece belongs to ([`super::calls`]).

use interlingua_adapter_kit::held::BufferedBytes;
use interlingua_adapter_kit::turn_ids::TurnIds;
use interlingua_adapter_kit::wire_names::{self, OriginalNames};
use interlingua_core::agent_event::{AgentEvent, CallPart, JsonRef, MessageEvent};
use interlingua_core::client_tool::{FREE_TEXT_END, FREE_TEXT_START, push_escaped};
use interlingua_core::connector::EventSink;
use interlingua_core::model::MessageType;
use interlingua_core::{End, Extra, Fault, Json, Losses, opaque};

/// Longer names are cut, in bytes: no tool has one.
const MAX_NAME: usize = 4096;
/// Minimum length of repeated free text at which a piece counts as cumulative, in bytes.
const MIN_REPEATED: usize = 16;

/// Ids of an answer and where its events go.
pub(super) struct Output<'a> {
    pub(super) ids: &'a mut TurnIds,
    pub(super) losses: &'a mut Losses,
    /// Counts what waits for a name.
    pub(super) held: &'a mut BufferedBytes,
    pub(super) sink: &'a mut dyn EventSink,
}

/// A call of the answer.
#[derive(Debug, Default)]
pub(super) struct Call {
    /// The id of its message. Empty: nothing was emitted yet.
    message: String,
    /// The server's id. Empty: none so far.
    pub(super) id: String,
    /// Empty: none so far.
    pub(super) name: String,
    /// All arguments so far, or the free text of a custom tool. What comes before the name is held here.
    arguments: String,
    /// The number of bytes of `arguments` that were emitted.
    emitted: usize,
    extent: ValueEnd,
    /// A call with free text instead of arguments.
    pub(super) is_custom: bool,
    /// Values that the server wants back with the call.
    pub(super) metadata: Option<Extra>,
    /// The chunk that its latest piece came in.
    pub(super) chunk: u64,
    pub(super) is_closed: bool,
}

/// Finds the end of a JSON value that comes in pieces.
#[derive(Debug, Default)]
struct ValueEnd {
    depth: u32,
    in_string: bool,
    escaped: bool,
    is_whole: bool,
}

impl Call {
    /// True if a piece with this label begins another call.
    pub(super) fn is_another(&self, id: &str, name: &str, arguments: &str, chunk: u64) -> bool {
        let is_named = !name.is_empty() && !self.name.is_empty();
        let other_id = !id.is_empty() && !self.id.is_empty() && id != self.id;
        let other_name = is_named && self.emitted > 0 && name != self.name;
        // Two entries of one list, each with a name, are two calls.
        let beside = is_named && self.chunk == chunk;
        // A named call with other arguments, where a call under the same label is whole.
        let again = || is_named && arguments.starts_with('{') && self.has_whole() && !self.repeats(arguments);
        other_id || other_name || beside || again()
    }

    /// True once the arguments are a whole value. Custom calls never are: free text has no end of its own.
    pub(super) const fn is_whole(&self) -> bool {
        self.extent.is_whole
    }

    /// The arguments are whole, and no mere placeholder.
    fn has_whole(&self) -> bool {
        self.extent.is_whole && !self.is_placeholder()
    }

    /// Servers begin with an empty object where the arguments are still to come.
    fn is_placeholder(&self) -> bool {
        self.emitted == 0 && self.arguments.trim() == "{}"
    }

    /// True if a piece has the arguments that came before, as a whole.
    fn repeats(&self, piece: &str) -> bool {
        if piece.trim() == self.arguments.trim() {
            return true;
        }
        let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        parse(piece).is_some_and(|piece| Some(piece) == parse(&self.arguments))
    }

    /// Some servers cut names in two, others repeat them in every piece, or send all of it so far.
    pub(super) fn extend_name(&mut self, name: &str) {
        if self.message.is_empty() && self.name != name {
            if !self.name.is_empty() && name.starts_with(&self.name) {
                self.name.clear();
            }
            if self.name.len() + name.len() <= MAX_NAME {
                self.name.push_str(name);
            }
        }
    }

    /// Takes a piece of the arguments. False: it cannot be a part of them.
    #[inline]
    pub(super) fn take(&mut self, piece: &str) -> bool {
        if self.is_custom {
            let is_all = self.arguments.len() >= MIN_REPEATED && piece.starts_with(&self.arguments);
            self.append(if is_all { &piece[self.arguments.len()..] } else { piece });
            return true;
        }
        if self.extent.is_whole {
            return self.take_behind(piece);
        }
        if piece.len() >= self.arguments.len() && self.is_cumulative(piece) {
            self.append(&piece[self.arguments.len()..]);
            return true;
        }
        self.append(piece);
        true
    }

    fn append(&mut self, piece: &str) {
        self.arguments.push_str(piece);
        if !self.is_custom {
            self.extent.extend(piece);
        }
    }

    /// Takes a piece behind a whole value: a repetition, or the arguments that replace a placeholder.
    fn take_behind(&mut self, piece: &str) -> bool {
        if piece.trim().is_empty() {
            return true;
        }
        if self.is_placeholder() && !self.is_closed {
            self.arguments.clear();
            self.extent = ValueEnd::default();
            self.append(piece);
            return true;
        }
        self.repeats(piece)
    }

    /// True if a piece begins with all that came before because the server sends everything each time.
    fn is_cumulative(&self, piece: &str) -> bool {
        if !self.arguments.starts_with('{') || !piece.starts_with(self.arguments.as_str()) {
            return false;
        }
        // An object may begin here, and be like the one around it. One that closes more than it opens is inside.
        let takes_value = !self.extent.in_string && self.arguments.trim_end().ends_with([':', ',']);
        !takes_value || (piece.len() > self.arguments.len() && !closes_more(piece))
    }

    /// Emits the arguments that were not emitted, if the name is known.
    #[inline]
    pub(super) fn emit_new(&mut self, names: &OriginalNames, origin: &str, out: &mut Output<'_>) -> Result<(), Fault> {
        if self.emitted < self.arguments.len() && !self.name.is_empty() && !self.is_placeholder() && !self.is_closed {
            self.emit(None, names, origin, out)?;
        }
        Ok(())
    }

    /// Emits the call itself.
    pub(super) fn announce(&mut self, names: &OriginalNames, origin: &str, out: &mut Output<'_>) -> Result<(), Fault> {
        if self.message.is_empty() { self.emit(None, names, origin, out) } else { Ok(()) }
    }

    /// Emits the call if it was not announced, and its new arguments. `end`: text to append to them.
    fn emit(
        &mut self,
        end: Option<&str>,
        names: &OriginalNames,
        origin: &str,
        out: &mut Output<'_>,
    ) -> Result<(), Fault> {
        let mut part = CallPart::default();
        let is_first = self.message.is_empty();
        if is_first {
            self.message = out.ids.message();
            self.describe(origin);
            out.sink.emit(&AgentEvent::Message(MessageEvent {
                id: Some(self.message.as_str().into()),
                kind: Some(MessageType::FunctionCall),
                metadata: self.metadata.as_ref().map(|metadata| JsonRef::Owned(Json::from_serialize(metadata))),
                ..MessageEvent::default()
            }))?;
            part.call_id = out.ids.call(&self.id).into();
            part.name = names.original(&self.name).into();
        }

        let new = if self.is_placeholder() && end.is_none() { "" } else { &self.arguments[self.emitted..] };
        if self.is_custom || end.is_some() {
            let mut text = String::new();
            if self.is_custom && self.emitted == 0 && (end.is_some() || !new.is_empty()) {
                text.push_str(FREE_TEXT_START);
            }
            if self.is_custom {
                push_escaped(new, &mut text);
            } else {
                text.push_str(new);
            }
            text.push_str(end.unwrap_or_default());
            part.arguments = text.into();
        } else {
            part.arguments = new.into();
        }
        self.emitted += new.len();
        out.sink.emit(&AgentEvent::call(&self.message, part))
    }

    /// Completes the metadata before the call is announced.
    fn describe(&mut self, origin: &str) {
        if self.is_custom {
            self.metadata.get_or_insert_default().push("type", Json::from_serialize("custom_tool_call"));
        }
        // Only its author knows such an id: it goes back to that agent unchanged.
        let is_odd = !self.id.is_empty() && !wire_names::is_accepted(&self.id, wire_names::MAX_CALL_ID);
        if is_odd && self.metadata.as_ref().is_none_or(|metadata| metadata.get(opaque::ORIGIN).is_none()) {
            self.metadata.get_or_insert_default().push(opaque::ORIGIN, Json::from_serialize(origin));
        }
    }

    pub(super) fn close(
        &mut self,
        end: End,
        names: &OriginalNames,
        origin: &str,
        out: &mut Output<'_>,
    ) -> Result<(), Fault> {
        if self.is_custom {
            self.emit(Some(FREE_TEXT_END), names, origin, out)?;
        } else if self.is_placeholder() || (end == End::Completed && self.arguments.is_empty()) {
            // Clients parse them, and an empty text is no JSON.
            self.arguments.clear();
            self.emit(Some("{}"), names, origin, out)?;
        } else {
            self.emit_new(names, origin, out)?;
            self.announce(names, origin, out)?;
        }

        self.is_closed = true;
        let metadata = self.metadata.take().map(|metadata| JsonRef::Owned(Json::from_serialize(&metadata)));
        let id = Some(self.message.as_str().into());
        out.sink.emit(&AgentEvent::Message(MessageEvent { id, end: Some(end), metadata, ..MessageEvent::default() }))
    }
}

impl ValueEnd {
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

/// True if a piece of JSON closes more objects and lists than it opens.
fn closes_more(piece: &str) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_i64, false, false);
    for byte in piece.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return true;
        }
    }
    false
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
                let mut extent = ValueEnd::default();
                extent.extend(&text[..cut]);
                extent.extend(&text[cut..]);
                assert_eq!(extent.is_whole, whole, "{text} cut at {cut}");
            }
        }
    }

    fn merged_arguments(pieces: &[&str]) -> String {
        let mut call = Call::default();
        let is_all = pieces.iter().all(|piece| call.take(piece));
        assert!(is_all, "{pieces:?}");
        call.arguments
    }

    #[test]
    fn arguments_are_the_same_in_pieces_cumulative_and_whole_again() {
        for text in [
            r#"{"q":1}"#,
            r#"{"a":{"b":{"a":[1,{"b":"}"}]}}}"#,
            r#"{"text":"{\"text\":\"x\"}","list":[{},{}]}"#,
            r#"{ "ü" : [ [ ] , "" ] }"#,
        ] {
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            for &first in &places {
                for &second in places.iter().filter(|second| **second >= first) {
                    let deltas = [&text[..first], &text[first..second], &text[second..]];
                    assert_eq!(merged_arguments(&deltas), text, "{deltas:?}");
                    let whole = [deltas[0], deltas[1], deltas[2], text];
                    assert_eq!(merged_arguments(&whole), text, "{whole:?}");
                }
            }
            let growing: Vec<&str> = places.iter().skip(1).map(|place| &text[..*place]).collect();
            assert_eq!(merged_arguments(&growing), text);
        }
        assert_eq!(merged_arguments(&["{}", r#"{"q":"#, "1}"]), r#"{"q":1}"#);
        assert_eq!(merged_arguments(&[r#"{"q":1}"#, r#"{ "q": 1 }"#, " "]), r#"{"q":1}"#);
        let mut call = Call::default();
        assert!(call.take(r#"{"q":1}"#) && !call.take("}") && !call.take(r#"{"q":2}"#));
    }
}
