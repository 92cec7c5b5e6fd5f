//! Encodes calls that the client runs (docs/protocols/chat-completions.md#calls): one is complete before the next one
//! opens.
//!
//! A call of a function that the client did not declare is held: if its output follows in the same run, the agent ran
//! it; if the run ends before an output, the client has to run it.

use std::io::Write as _;

use interlingua_adapter_kit::answer_parts::whole_call;
use interlingua_adapter_kit::emitted_text::EmittedText;
use interlingua_core::event::Event;
use interlingua_core::loss::ContentKind;
use interlingua_core::model::MessageType;
use interlingua_core::run::{CallHead, Message, Slot};
use interlingua_core::{Extra, Json, Out, Step, client_tool};
use serde_json::json;

use super::answer::Call;
use super::fields::Field;
use super::{Encoder, Lane};

/// The calls of an answer.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// The number of calls that were sent to the client.
    shown: usize,
    /// Calls whose runner is not known yet, or that no place was free for.
    held: Vec<Call>,
    /// The call whose arguments are being streamed: what stands around each piece.
    open: Option<Open>,
    last: Option<ShownCall>,
}

/// The call that was shown last.
#[derive(Debug)]
struct ShownCall {
    id: String,
    custom: bool,
    has_extra_content: bool,
}

#[derive(Debug)]
struct Open {
    around: (Vec<u8>, &'static [u8]),
    /// True once any of its arguments were written.
    has_arguments: bool,
}

impl Calls {
    pub(super) const fn shown(&self) -> usize {
        self.shown
    }

    /// The number of held calls.
    pub(super) const fn held(&self) -> usize {
        self.held.len()
    }

    /// Takes a held call out whose output came: the agent ran it.
    pub(super) fn take_answered(&mut self, call_id: &str) -> Option<Call> {
        let at = self.held.iter().position(|call| call.id == call_id)?;
        Some(self.held.remove(at))
    }
}

impl Encoder {
    /// A step of a call, or of a hidden tool of the agent.
    pub(super) fn call_step(&mut self, step: Step<'_>, out: &mut Out) {
        let Some((_, message)) = step.message() else { return };
        match step.event {
            Event::ContentStarted { .. } => {
                self.emitted[Lane::Calls as usize] = EmittedText::default();
                let Some((_, slot)) = step.slot() else { return };
                if let (MessageType::FunctionCall, Some(head)) = (&message.announced, &slot.call) {
                    let extra = extra_content(message.announced_metadata.as_ref());
                    self.call_started(head, extra, out);
                }
            }
            Event::ContentDelta { .. } | Event::ContentReplaced { .. } => {
                let Some((_, slot)) = step.slot() else { return };
                if self.calls.open.is_some() {
                    let text = self.emitted[Lane::Calls as usize].extend(&step, slot);
                    self.arguments(text, out);
                }
            }
            Event::ContentFinished { .. } => {
                let Some((_, slot)) = step.slot() else { return };
                if message.announced == MessageType::FunctionCall {
                    let extra = extra_content(message.announced_metadata.as_ref());
                    self.call_content_finished(slot, extra, out);
                }
            }
            Event::MessageFinished { .. } if message.announced.is_output() => {
                for output in message.slots.iter().filter_map(Slot::output) {
                    self.calls.take_answered(&output.call_id);
                }
            }
            Event::MessageFinished { .. } => {
                self.call_finished(message);
                self.late_extra_content(message, out);
            }
            _ => {}
        }
    }

    /// A call begins whose name is known. Only the arguments of functions that the client declared are streamed.
    fn call_started(&mut self, head: &CallHead, extra: Option<Json>, out: &mut Out) {
        let is_streamed = self.echo.tool(&head.name).is_some_and(|tool| !tool.custom);
        if is_streamed && self.is_free() {
            self.open_call(&head.call_id, &head.name, false, extra, out);
        }
    }

    /// True if another call can be shown: the deprecated form has room for one.
    const fn is_free(&self) -> bool {
        !self.echo.functions || self.calls.shown == 0
    }

    fn call_content_finished(&mut self, slot: &Slot, extra_content: Option<Json>, out: &mut Out) {
        if self.calls.open.is_some() {
            return self.close_call(out);
        }
        let Some(call) = whole_call(slot) else { return };
        let declared = self.echo.tool(&call.name).map(|tool| tool.custom);
        let custom = declared == Some(true);
        let call = Call { id: call.call_id, name: call.name, arguments: call.arguments, custom, extra_content };
        if declared.is_some() && self.is_free() { self.show_call(call, out) } else { self.calls.held.push(call) }
    }

    /// Some agents say at the end alone that a call is the client's.
    pub(super) fn call_finished(&mut self, message: &Message) {
        if message.kind == MessageType::FunctionCall && message.announced != message.kind {
            for call in message.slots.iter().filter_map(whole_call) {
                let custom = self.echo.tool(&call.name).is_some_and(|tool| tool.custom);
                let (id, name, arguments) = (call.call_id, call.name, call.arguments);
                self.calls.held.push(Call { id, name, arguments, custom, extra_content: None });
            }
        }
    }

    /// Some agents say only at the end of a call what they want back with it.
    fn late_extra_content(&mut self, message: &Message, out: &mut Out) {
        let Some(extra) = extra_content(message.metadata.as_ref()) else { return };
        for call in message.slots.iter().filter_map(whole_call) {
            if let Some(held) = self.calls.held.iter_mut().find(|held| held.id == call.call_id) {
                held.extra_content = Some(extra.clone());
                continue;
            }
            let is_it = |shown: &&mut ShownCall| shown.id == call.call_id && !shown.has_extra_content;
            let Some(shown) = self.calls.last.as_mut().filter(is_it) else { continue };
            shown.has_extra_content = true;
            let (custom, index) = (shown.custom, self.calls.shown - 1);
            match (&self.frames, self.answer.calls.last_mut()) {
                (Some(_), _) if self.echo.functions => {}
                (Some(frames), _) => {
                    // Some readers take it for granted that a piece has arguments.
                    let mut piece = if custom {
                        json!({ "index": index, "custom": { "input": "" } })
                    } else {
                        json!({ "index": index, "function": { "arguments": "" } })
                    };
                    piece["extra_content"] = json!(extra);
                    frames.delta(&json!({ "tool_calls": [piece] }), out);
                }
                (None, Some(call)) => call.extra_content = Some(extra.clone()),
                (None, None) => {}
            }
        }
    }

    /// The run is over: the client has to run what is held.
    pub(super) fn release_calls(&mut self, out: &mut Out) {
        for call in std::mem::take(&mut self.calls.held) {
            if self.is_free() {
                self.show_call(call, out);
            } else {
                self.note_change(ContentKind::ClientCall, "shown as text: `function_call` holds one call");
                let place = (u32::MAX, u32::try_from(self.calls.shown).unwrap_or(u32::MAX));
                self.calls.shown += 1;
                self.write(Field::Content, place, &format!("{}({})", call.name, call.arguments), out);
            }
        }
    }

    /// Shows a whole call.
    pub(super) fn show_call(&mut self, call: Call, out: &mut Out) {
        self.open_call(&call.id, &call.name, call.custom, call.extra_content, out);
        let arguments = if call.custom { client_tool::free_text(&call.arguments) } else { call.arguments };
        self.arguments(&arguments, out);
        if call.custom { self.calls.open = None } else { self.close_call(out) }
    }

    fn open_call(&mut self, id: &str, name: &str, custom: bool, extra_content: Option<Json>, out: &mut Out) {
        let index = self.calls.shown;
        self.calls.shown += 1;
        let mut before = Vec::new();
        let after: &'static [u8] = if self.echo.functions {
            before.extend_from_slice(br#"{"function_call":{"arguments":"#);
            b"}}"
        } else {
            let (function, field) = if custom { ("custom", "input") } else { ("function", "arguments") };
            let written = write!(before, r#"{{"tool_calls":[{{"index":{index},"{function}":{{"{field}":"#);
            debug_assert!(written.is_ok(), "writing into a vector does not fail");
            b"}}]}"
        };
        self.calls.open = Some(Open { around: (before, after), has_arguments: false });
        self.calls.last = Some(ShownCall { id: id.to_owned(), custom, has_extra_content: extra_content.is_some() });

        let Some(frames) = &self.frames else {
            let call =
                Call { id: id.to_owned(), name: name.to_owned(), arguments: String::new(), custom, extra_content };
            self.answer.calls.push(call);
            return;
        };
        let mut delta = match (self.echo.functions, custom) {
            (true, _) => json!({ "function_call": { "name": name, "arguments": "" } }),
            (false, true) => {
                json!({ "tool_calls": [{ "index": index, "id": id, "type": "custom", "custom": { "name": name, "input": "" } }] })
            }
            (false, false) => {
                json!({ "tool_calls": [{ "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": "" } }] })
            }
        };
        if let (Some(extra), false) = (&extra_content, self.echo.functions) {
            delta["tool_calls"][0]["extra_content"] = json!(extra);
        }
        frames.delta(&delta, out);
    }

    /// A piece of the arguments of the open call.
    fn arguments(&mut self, text: &str, out: &mut Out) {
        let Some(open) = self.calls.open.as_mut().filter(|_| !text.is_empty()) else { return };
        open.has_arguments = true;
        match (&self.frames, self.answer.calls.last_mut()) {
            (Some(frames), _) => frames.piece(&open.around, text, out),
            (None, Some(call)) => call.arguments.push_str(text),
            (None, None) => {}
        }
    }

    /// The open call is complete. One without arguments has an empty object: clients parse them.
    fn close_call(&mut self, out: &mut Out) {
        if self.calls.open.as_ref().is_some_and(|open| !open.has_arguments) {
            self.arguments("{}", out);
        }
        self.calls.open = None;
    }
}

/// Data that an agent of this protocol expects back with a call
/// (docs/protocols/chat-completions.md#what-a-client-receives).
fn extra_content(metadata: Option<&Json>) -> Option<Json> {
    metadata.and_then(Json::decode::<Extra>)?.get("extra_content").cloned()
}
