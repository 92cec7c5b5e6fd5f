//! Calls and their results (docs/protocols/ag-kit.md#order-rules,
//! docs/protocols/ag-kit.md#from-the-agent-to-the-client): each call is sent once, in order, and never a result before
//! its call.

use std::collections::HashSet;

use interlingua_adapter_kit::answer_parts::{derived_id, whole_call};
use interlingua_adapter_kit::call_ledger::{CallLedger, KnownCall};
use interlingua_adapter_kit::call_output;
use interlingua_core::model::MessageType;
use interlingua_core::run::Message;
use interlingua_core::{Event, Out, Step};

use crate::serve::memory::Memory;
use crate::wire;

/// The calls of a stream.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    ledger: CallLedger<(), String>,
    /// Number of calls and results sent in this stream.
    events: usize,
    /// Number of calls that earlier streams sent: the first ones in `ledger`.
    remembered: usize,
}

impl Calls {
    /// Starts with the calls that were sent earlier in the conversation.
    pub(crate) fn after(memory: Memory) -> Self {
        let mut calls = Self::default();
        for (id, done) in memory.into_calls() {
            // If an earlier stream left a call without a result, it did so on purpose.
            calls.ledger.add_earlier(id, done);
        }
        calls.remembered = calls.ledger.calls().len();
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
        match step.event {
            Event::ContentStarted { .. } => {
                let (Some((_, message)), Some((_, slot))) = (step.message(), step.slot()) else { return };
                if let Some(head) = &slot.call
                    && let Some(call) = self.start(&head.call_id, &head.name, message, out)
                {
                    self.ledger.open(step, call, ());
                }
            }
            Event::ContentDelta { .. } | Event::ContentReplaced { .. } => {
                if let Some((call, (), delta)) = self.ledger.grow(step) {
                    wire::Event::ToolCallArgs { tool_call_id: &call.id, delta }.write(out);
                }
            }
            Event::ContentFinished { .. } => {
                if let Some((call, has_arguments)) = self.ledger.close(step) {
                    self.end(call, has_arguments, out);
                }
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

        let Some(call) = whole_call(slot) else { return };
        let id = if call.call_id.is_empty() { self.unique_id(derived_id(&message.id, slot_at)) } else { call.call_id };
        let Some(started) = self.start(&id, &call.name, message, out) else { return };

        let delta = call.arguments.as_str();
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
        let call = self.ledger.find(&output.call_id, name).unwrap_or_else(|| {
            // The client has not seen the call of this result, so one is created for it
            // (docs/protocols/ag-kit.md#order-1).
            let has_no_id = output.call_id.is_empty();
            let id = if has_no_id { self.unique_id(derived_id(&message.id, slot_at)) } else { output.call_id.clone() };
            let call = self.announce(&id, name, true, out);
            self.end(call, false, out);
            call
        });
        self.result(call, &output.output, out);
    }

    /// Makes an id unique by appending `_`: another message may have the id derived for a content of this one.
    fn unique_id(&self, mut id: String) -> String {
        while self.ledger.index_of(&id).is_some() {
            id.push('_');
        }
        id
    }

    /// Sends the missing results at the end: a call of the agent without a result would look like a call for the client
    /// (docs/protocols/ag-kit.md#order-4). `waits_for`: the ids of the calls that the client has to run, which is known
    /// at the end alone if the agent did not say so before. None: the run did not end well. Its calls may be cut off,
    /// and no one waits for their results.
    pub(crate) fn finish(&mut self, waits_for: Option<&HashSet<String>>, out: &mut Out) {
        let is_clients = |call: &KnownCall<_>| waits_for.is_some_and(|ids| !call.is_agents || ids.contains(&call.id));
        for call in self.remembered..self.ledger.calls().len() {
            if !is_clients(&self.ledger.calls()[call]) {
                self.result(call, "", out);
            }
        }
    }

    /// Starts a call. `None`: it was sent before.
    fn start(&mut self, id: &str, name: &str, message: &Message, out: &mut Out) -> Option<usize> {
        let is_new = self.ledger.index_of(id).is_none();
        is_new.then(|| self.announce(id, name, message.announced != MessageType::FunctionCall, out))
    }

    fn announce(&mut self, id: &str, name: &str, is_agents: bool, out: &mut Out) -> usize {
        self.events += 1;
        wire::Event::ToolCallStart { tool_call_id: id, tool_call_name: name }.write(out);
        self.ledger.announce(id, name, is_agents)
    }

    fn end(&mut self, call: usize, has_arguments: bool, out: &mut Out) {
        let tool_call_id = &self.ledger.calls()[call].id;
        if !has_arguments {
            wire::Event::ToolCallArgs { tool_call_id, delta: "{}" }.write(out);
        }
        wire::Event::ToolCallEnd { tool_call_id }.write(out);

        if let Some(result) = self.ledger.end(call) {
            self.result(call, &result, out);
        }
    }

    fn result(&mut self, call: usize, result: &str, out: &mut Out) {
        if self.ledger.answer(call, || result.to_owned()) {
            self.events += 1;
            let tool_call_id = &self.ledger.calls()[call].id;
            wire::Event::ToolResult { tool_call_id, result }.write(out);
        }
    }
}
