//! Calls and their results (docs/protocols/ag-kit.md#order-rules,
//! docs/protocols/ag-kit.md#from-the-agent-to-the-client): each call is sent once, in order, and never a result before
//! its call.

use std::collections::{HashMap, HashSet};

use interlingua_adapter_kit::call_output;
use interlingua_adapter_kit::emitted_text::EmittedText;
use interlingua_core::model::{MessageType, ToolCall};
use interlingua_core::run::Message;
use interlingua_core::{Event, Extra, Out, Step};

use crate::serve::memory::Memory;
use crate::wire;

/// The calls of a stream.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    calls: Vec<Call>,
    by_id: HashMap<String, usize>,
    /// Calls in progress, by message and content index.
    open: HashMap<(u32, u32), OpenCall>,
    /// Number of calls and results sent in this stream.
    events: usize,
    /// Number of calls that earlier streams sent: the first ones in `calls`.
    remembered: usize,
}

/// One call of the conversation.
#[derive(Debug)]
struct Call {
    id: String,
    name: String,
    /// True if the agent runs the call, so that its result must be sent.
    agent_side: bool,
    has_ended: bool,
    has_result: bool,
    /// A result that arrived before the call was complete.
    early_result: Option<String>,
}

#[derive(Debug)]
struct OpenCall {
    /// Index in `Calls::calls`. `None`: another message has sent this call already.
    call: Option<usize>,
    arguments: EmittedText,
    has_arguments: bool,
}

impl Calls {
    /// Starts with the calls that were sent earlier in the conversation.
    pub(crate) fn after(memory: Memory) -> Self {
        let mut calls = Self::default();
        for (id, done) in memory.into_calls() {
            calls.by_id.insert(id.clone(), calls.calls.len());
            calls.calls.push(Call {
                id,
                name: String::new(),
                // If an earlier stream left a call without a result, it did so on purpose.
                agent_side: false,
                has_ended: true,
                has_result: done,
                early_result: None,
            });
        }
        calls.remembered = calls.calls.len();
        calls
    }

    pub(crate) const fn has_output(&self) -> bool {
        self.events > 0
    }

    /// Number of calls and results sent; text uses it to detect that one was sent in between.
    pub(crate) const fn events(&self) -> usize {
        self.events
    }

    /// Sends a step of a content that is a call.
    pub(crate) fn encode_call(&mut self, step: &Step<'_>, out: &mut Out) {
        let (Some((message_at, message)), Some((slot_at, slot))) = (step.message(), step.slot()) else { return };
        let Some(head) = &slot.call else { return };
        let key = content_key(message_at, slot_at);
        match step.event {
            Event::ContentStarted { .. } => {
                let call = self.start(&head.call_id, &head.name, message, out);
                self.open.insert(key, OpenCall { call, arguments: EmittedText::default(), has_arguments: false });
            }
            Event::ContentDelta { .. } | Event::ContentReplaced { .. } => {
                let Some(open) = self.open.get_mut(&key) else { return };
                let delta = open.arguments.extend(step, slot);
                if let Some(call) = open.call.filter(|_| !delta.is_empty()) {
                    open.has_arguments = true;
                    wire::Event::ToolCallArgs { tool_call_id: &self.calls[call].id, delta }.write(out);
                }
            }
            Event::ContentFinished { .. } => {
                let Some(OpenCall { call: Some(call), has_arguments, .. }) = self.open.remove(&key) else { return };
                self.end(call, has_arguments, out);
            }
            _ => {}
        }
    }

    /// Sends a step of a call without a call head: its body is undefined or malformed.
    pub(crate) fn encode_bare_call(&mut self, step: &Step<'_>, out: &mut Out) {
        let (Some((_, message)), Some((slot_at, slot))) = (step.message(), step.slot()) else { return };
        if !matches!(step.event, Event::ContentFinished { .. }) {
            return;
        }

        let Some(data) = slot.data() else { return };
        let call: ToolCall = data.decode().unwrap_or_default();
        let id = if call.call_id.is_empty() { self.unique_id(derived_id(message, slot_at)) } else { call.call_id };
        let Some(started) = self.start(&id, &call.name, message, out) else { return };

        let has_arguments_field = data.decode::<Extra>().is_some_and(|fields| fields.get("arguments").is_some());
        let delta = if has_arguments_field { call.arguments.as_str() } else { data.text() };
        if !delta.is_empty() {
            wire::Event::ToolCallArgs { tool_call_id: &id, delta }.write(out);
        }
        self.end(started, !delta.is_empty(), out);
    }

    /// Sends a step of a tool output.
    pub(crate) fn encode_output(&mut self, step: &Step<'_>, unwrap: bool, out: &mut Out) {
        let (Some((_, message)), Some((slot_at, slot))) = (step.message(), step.slot()) else { return };
        if !matches!(step.event, Event::ContentFinished { .. }) {
            return;
        }
        let Some(mut output) = call_output::parse(slot) else { return };
        if unwrap && let Some(text) = call_output::text_of_blocks(&output.output) {
            output.output = text;
        }

        let name = output.name.as_deref().unwrap_or_default();
        let call = self.find(&output.call_id, name).unwrap_or_else(|| {
            // The client has not seen the call of this result, so one is created for it
            // (docs/protocols/ag-kit.md#order-1).
            let has_no_id = output.call_id.is_empty();
            let id = if has_no_id { self.unique_id(derived_id(message, slot_at)) } else { output.call_id.clone() };
            let call = self.announce(id, name, true, out);
            self.end(call, false, out);
            call
        });
        self.result(call, output.output, out);
    }

    /// Makes an id unique by appending `_`: another message may have the id derived for a content of this one.
    fn unique_id(&self, mut id: String) -> String {
        while self.by_id.contains_key(&id) {
            id.push('_');
        }
        id
    }

    /// Sends the missing results at the end: a call of the agent without a result would look like a call for the client
    /// (docs/protocols/ag-kit.md#order-4). `waits_for`: the ids of the calls that the client has to run, which is known at
    /// the end alone if the agent did not say so before. None: the run did not end well. Its calls may be cut off, and no
    /// one waits for their results.
    pub(crate) fn finish(&mut self, waits_for: Option<&HashSet<String>>, out: &mut Out) {
        for call in self.remembered..self.calls.len() {
            let is_clients = |call: &Call| waits_for.is_some_and(|ids| !call.agent_side || ids.contains(&call.id));
            let is_for_client = is_clients(&self.calls[call]);
            if !is_for_client && !self.calls[call].has_result {
                self.result(call, String::new(), out);
            }
        }
    }

    /// The call that an output belongs to. Without an id: the oldest call of that name without a result.
    fn find(&self, id: &str, name: &str) -> Option<usize> {
        if !id.is_empty() {
            return self.by_id.get(id).copied();
        }
        self.calls.iter().position(|call| call.agent_side && !call.has_result && (name.is_empty() || call.name == name))
    }

    /// Starts a call. `None`: it was sent before.
    fn start(&mut self, id: &str, name: &str, message: &Message, out: &mut Out) -> Option<usize> {
        if self.by_id.contains_key(id) {
            return None;
        }

        let agent_side = message.announced != MessageType::FunctionCall;
        Some(self.announce(id.to_owned(), name, agent_side, out))
    }

    fn announce(&mut self, id: String, name: &str, agent_side: bool, out: &mut Out) -> usize {
        self.events += 1;
        wire::Event::ToolCallStart { tool_call_id: &id, tool_call_name: name }.write(out);
        let call = self.calls.len();
        self.by_id.insert(id.clone(), call);
        let name = name.to_owned();
        self.calls.push(Call { id, name, agent_side, has_ended: false, has_result: false, early_result: None });
        call
    }

    fn end(&mut self, call: usize, has_arguments: bool, out: &mut Out) {
        let state = &mut self.calls[call];
        state.has_ended = true;
        if !has_arguments {
            wire::Event::ToolCallArgs { tool_call_id: &state.id, delta: "{}" }.write(out);
        }
        wire::Event::ToolCallEnd { tool_call_id: &state.id }.write(out);

        if let Some(result) = state.early_result.take() {
            self.result(call, result, out);
        }
    }

    fn result(&mut self, call: usize, result: String, out: &mut Out) {
        let state = &mut self.calls[call];
        // Some upstreams send a result twice.
        if state.has_result {
            return;
        }
        if !state.has_ended {
            state.early_result.get_or_insert(result);
            return;
        }

        state.has_result = true;
        self.events += 1;
        wire::Event::ToolResult { tool_call_id: &state.id, result: &result }.write(out);
    }
}

/// An id derived from the message's id, which is almost always unique in the conversation.
fn derived_id(message: &Message, slot: usize) -> String {
    if slot == 0 { message.id.clone() } else { format!("{}_{slot}", message.id) }
}

fn content_key(message: usize, slot: usize) -> (u32, u32) {
    (u32::try_from(message).unwrap_or(u32::MAX), u32::try_from(slot).unwrap_or(u32::MAX))
}
