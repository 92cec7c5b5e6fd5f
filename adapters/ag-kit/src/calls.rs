//! Calls and their results (sections 5 and 9): each call told once, in order, and never a result before its call.

use std::collections::HashMap;

use interlingua_core::model::{Body, MessageType, ToolCall, ToolOutput};
use interlingua_core::run::{Message, Slot};
use interlingua_core::{Event, Extra, Json, Out, Step};

use crate::memory::Memory;
use crate::text::Told;
use crate::wire;

/// The calls of a stream.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    calls: Vec<Call>,
    by_id: HashMap<String, usize>,
    /// Calls that are being told, by message and content.
    open: HashMap<(u32, u32), Open>,
    /// How many were announced in this stream, and results told.
    count: usize,
}

/// One call of the conversation.
#[derive(Debug)]
struct Call {
    id: String,
    name: String,
    /// Whether the agent runs it, and so has to tell its result.
    is_agents: bool,
    has_ended: bool,
    has_result: bool,
    /// A result that came before the call was told whole.
    held: Option<String>,
}

#[derive(Debug)]
struct Open {
    /// None: it is told by another message already, and not again.
    call: Option<usize>,
    told: Told,
    has_arguments: bool,
}

impl Calls {
    /// Calls in a conversation in which some were told before.
    pub(crate) fn after(memory: Memory) -> Self {
        let mut calls = Self::default();
        for (id, done) in memory.into_calls() {
            calls.by_id.insert(id.clone(), calls.calls.len());
            calls.calls.push(Call {
                id,
                name: String::new(),
                // What the stream before left open, it had a reason to leave open.
                is_agents: false,
                has_ended: true,
                has_result: done,
                held: None,
            });
        }
        calls
    }

    pub(crate) const fn said_anything(&self) -> bool {
        self.count > 0
    }

    /// Changes with every call and result that is told.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Tells a step of a content that is a call.
    pub(crate) fn encode_call(&mut self, step: &Step<'_>, out: &mut Out) {
        let (Some((message_at, message)), Some((slot_at, slot))) = (step.message(), step.slot()) else { return };
        let Some(head) = &slot.call else { return };
        let place = place(message_at, slot_at);
        match step.event {
            Event::ContentStarted { .. } => {
                let call = self.start(&head.call_id, &head.name, message, out);
                self.open.insert(place, Open { call, told: Told::default(), has_arguments: false });
            }
            Event::ContentDelta { .. } | Event::ContentReplaced { .. } => {
                let Some(open) = self.open.get_mut(&place) else { return };
                let delta = open.told.grow(step, slot);
                if let Some(call) = open.call.filter(|_| !delta.is_empty()) {
                    open.has_arguments = true;
                    wire::Event::ToolCallArgs { tool_call_id: &self.calls[call].id, delta }.write(out);
                }
            }
            Event::ContentFinished { .. } => {
                let Some(Open { call: Some(call), has_arguments, .. }) = self.open.remove(&place) else { return };
                self.end(call, has_arguments, out);
            }
            _ => {}
        }
    }

    /// Tells a step of a call that has no head: its body is not defined, or not what it should be.
    pub(crate) fn encode_bare_call(&mut self, step: &Step<'_>, out: &mut Out) {
        let (Some((_, message)), Some((slot_at, slot))) = (step.message(), step.slot()) else { return };
        if !matches!(step.event, Event::ContentFinished { .. }) {
            return;
        }
        let Some(data) = slot.data() else { return };
        let call: ToolCall = data.decode().unwrap_or_default();
        let id = if call.call_id.is_empty() { self.fresh(made_id(message, slot_at)) } else { call.call_id };
        let Some(started) = self.start(&id, &call.name, message, out) else { return };
        let says = data.decode::<Extra>().is_some_and(|fields| fields.get("arguments").is_some());
        let delta = if says { call.arguments.as_str() } else { data.text() };
        if !delta.is_empty() {
            wire::Event::ToolCallArgs { tool_call_id: &id, delta }.write(out);
        }
        self.end(started, !delta.is_empty(), out);
    }

    /// Tells a step of an output.
    pub(crate) fn encode_output(&mut self, step: &Step<'_>, unwrap: bool, out: &mut Out) {
        let (Some((_, message)), Some((slot_at, slot))) = (step.message(), step.slot()) else { return };
        if !matches!(step.event, Event::ContentFinished { .. }) {
            return;
        }
        let Some(mut output) = read_output(slot) else { return };
        if unwrap && let Some(text) = text_of_blocks(&output.output) {
            output.output = text;
        }
        let name = output.name.as_deref().unwrap_or_default();
        let call = self.answered(&output.call_id, name).unwrap_or_else(|| {
            // A result nobody was told the call of (section 5, rule 1).
            let made = output.call_id.is_empty();
            let id = if made { self.fresh(made_id(message, slot_at)) } else { output.call_id.clone() };
            let call = self.announce(id, name, true, out);
            self.end(call, false, out);
            call
        });
        self.result(call, output.output, out);
    }

    /// An id that no call has yet: another message may be called as a content of this one is.
    fn fresh(&self, mut id: String) -> String {
        while self.by_id.contains_key(&id) {
            id.push('_');
        }
        id
    }

    /// Tells what is missing at the end: without a result, a call of the agent's would read as a call for the client
    /// (section 5, rule 4).
    pub(crate) fn finish(&mut self, out: &mut Out) {
        for call in 0..self.calls.len() {
            if self.calls[call].is_agents && !self.calls[call].has_result {
                self.result(call, String::new(), out);
            }
        }
    }

    /// The call an output is for. Without an id: the oldest one of that name that has no result.
    fn answered(&self, id: &str, name: &str) -> Option<usize> {
        if !id.is_empty() {
            return self.by_id.get(id).copied();
        }
        self.calls.iter().position(|call| call.is_agents && !call.has_result && (name.is_empty() || call.name == name))
    }

    /// None: it was told before.
    fn start(&mut self, id: &str, name: &str, message: &Message, out: &mut Out) -> Option<usize> {
        if self.by_id.contains_key(id) {
            return None;
        }
        let is_agents = message.announced != MessageType::FunctionCall;
        Some(self.announce(id.to_owned(), name, is_agents, out))
    }

    fn announce(&mut self, id: String, name: &str, is_agents: bool, out: &mut Out) -> usize {
        self.count += 1;
        wire::Event::ToolCallStart { tool_call_id: &id, tool_call_name: name }.write(out);
        let call = self.calls.len();
        self.by_id.insert(id.clone(), call);
        let name = name.to_owned();
        self.calls.push(Call { id, name, is_agents, has_ended: false, has_result: false, held: None });
        call
    }

    fn end(&mut self, call: usize, has_arguments: bool, out: &mut Out) {
        let told = &mut self.calls[call];
        told.has_ended = true;
        if !has_arguments {
            wire::Event::ToolCallArgs { tool_call_id: &told.id, delta: "{}" }.write(out);
        }
        wire::Event::ToolCallEnd { tool_call_id: &told.id }.write(out);
        if let Some(result) = told.held.take() {
            self.result(call, result, out);
        }
    }

    fn result(&mut self, call: usize, result: String, out: &mut Out) {
        let told = &mut self.calls[call];
        // Some upstreams tell a result twice.
        if told.has_result {
            return;
        }
        if !told.has_ended {
            told.held.get_or_insert(result);
            return;
        }
        told.has_result = true;
        self.count += 1;
        wire::Event::ToolResult { tool_call_id: &told.id, result: &result }.write(out);
    }
}

/// Nearly always unique in the conversation: the message's id is, or is made from the run's.
fn made_id(message: &Message, slot: usize) -> String {
    if slot == 0 { message.id.clone() } else { format!("{}_{slot}", message.id) }
}

fn place(message: usize, slot: usize) -> (u32, u32) {
    (u32::try_from(message).unwrap_or(u32::MAX), u32::try_from(slot).unwrap_or(u32::MAX))
}

fn read_output(slot: &Slot) -> Option<ToolOutput> {
    match &slot.value.as_ref().map(|value| &value.body) {
        Some(Body::Data(data)) => {
            let mut output: ToolOutput = data.decode().unwrap_or_default();
            // Components have no defined body: whatever they return is the result.
            if data.decode::<Extra>().is_none_or(|fields| fields.get("output").is_none()) {
                output.output = data.text().to_owned();
            }
            Some(output)
        }
        None if !slot.text().is_empty() => Some(ToolOutput { output: slot.text().to_owned(), ..ToolOutput::default() }),
        _ => None,
    }
}

/// The text of a JSON list of text blocks, as some frameworks return it. None if it is anything else.
fn text_of_blocks(output: &str) -> Option<String> {
    let blocks: Vec<Extra> = Json::parse(output)?.decode()?;
    if blocks.is_empty() {
        return None;
    }
    blocks
        .iter()
        .map(|block| {
            let kind: String = block.get("type")?.decode()?;
            let text: String = block.get("text")?.decode()?;
            (kind == "text").then_some(text)
        })
        .collect()
}
