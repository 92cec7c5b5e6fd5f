//! Encodes calls and their outputs (docs/protocols/responses.md#calls): `function_call` for functions the client
//! declared, `mcp_call` for tools the agent runs itself.
//!
//! A call of an undeclared function is deferred. If its output follows in the same run, the agent ran it; if the run
//! ends before an output, the client has to run it.

use interlingua_adapter_kit::answer_parts::{ContentStep, whole_call};
use interlingua_adapter_kit::{call_output, shown_text};
use interlingua_core::Out;
use interlingua_core::event::End;
use interlingua_core::model::{MessageType, ToolOutput};
use interlingua_core::run::{CallHead, Message, Run};
use interlingua_core::{Json, RunId, client_tool};
use serde::Serialize;

use super::text_stream::TextStream;
use super::tracked_call::{Form, ToolResult, TrackedCall};
use super::{Encoder, messages};
use crate::ids;
use crate::options::{self, ToolItems};
use crate::wire::Item;

/// The fields that locate a call in its events.
#[derive(Serialize)]
struct CallLocation<'a> {
    item_id: &'a str,
    output_index: usize,
}

impl Encoder {
    /// A call begins. Its head is known, its arguments follow.
    pub(super) fn call_started(&mut self, step: ContentStep<'_>, head: &CallHead, out: &mut Out) {
        let ContentStep { run, message, message_index: index, index: content, .. } = step;
        let label = head.server_label.clone().unwrap_or_else(|| self.server_label.clone());
        let tools = self.shared.options.tool_items;
        let mut name = head.name.clone();
        let form = match (&message.announced, self.declared.get(&head.name)) {
            (MessageType::FunctionCall, Some(function)) => {
                name.clone_from(&function.name);
                let namespace = function.namespace.clone();
                if function.custom { Form::Custom { namespace } } else { Form::Function { namespace } }
            }
            (_, _) if tools == ToolItems::Pair => Form::Function { namespace: None },
            (MessageType::FunctionCall, None) => Form::Deferred { label },
            _ if tools == ToolItems::Hide => Form::Hidden,
            _ => Form::Mcp { label },
        };

        let prefix = if matches!(form, Form::Mcp { .. } | Form::Hidden) { "mcp_" } else { "fc_" };
        let id = ids::output_item_id(prefix, run.id, index, content);
        let mut call = TrackedCall::new((index, content), id, head.call_id.clone(), name, form);
        if !matches!(call.form, Form::Deferred { .. } | Form::Hidden) {
            self.open_call(&mut call, out);
        }
        // Only the arguments of client functions are streamed: no one can use those of other calls before they are
        // complete.
        if let (Form::Function { .. }, Some(output_index)) = (&call.form, call.output_index)
            && message.announced == MessageType::FunctionCall
        {
            let location = CallLocation { item_id: &call.id, output_index };
            let template = self.frames.template(call.events().0, &location, "");
            self.open_message(index).stream = Some(TextStream::new(template, None));
        }

        let number = self.calls.len();
        self.open_message(index).calls.push(number);
        self.unanswered.entry(call.call_id.clone()).or_default().push_back(number);

        self.calls.push(call);
    }

    fn open_call(&mut self, call: &mut TrackedCall, out: &mut Out) {
        let index = self.add(&call.item("in_progress", None), out);
        call.output_index = Some(index);
        if matches!(call.form, Form::Mcp { .. }) {
            self.stage("response.mcp_call.in_progress", &call.id, index, out);
        }
    }

    /// The arguments of the message's open call are final.
    pub(super) fn arguments_finished(&mut self, step: ContentStep<'_>, out: &mut Out) {
        let slot = step.slot;
        let Some(open) = self.open_messages.get_mut(step.message_index).and_then(Option::as_deref_mut) else { return };
        let stream = open.stream.take();
        let Some(&number) = open.calls.last() else { return };

        match stream {
            Some(stream) => self.emit_arguments(number, stream.sent().text(slot).to_owned(), false, out),
            None => self.emit_arguments(number, slot.text().to_owned(), true, out),
        }
        if let Some(result) = self.calls.get_mut(number).and_then(|call| call.result.take()) {
            self.set_result(step.run.id, number, result, out);
        }
    }

    /// Sends the final arguments. With `as_delta`, they were not streamed and are first sent as one delta.
    fn emit_arguments(&mut self, number: usize, arguments: String, as_delta: bool, out: &mut Out) {
        let Some(call) = self.calls.get_mut(number) else { return };
        let arguments =
            if matches!(call.form, Form::Custom { .. }) { client_tool::free_text(&arguments) } else { arguments };
        let call = {
            call.arguments = Some(arguments);
            &*call
        };
        let Some(index) = call.output_index else { return };
        let arguments = call.arguments.as_deref().unwrap_or("");

        let (delta, done, field) = call.events();
        if as_delta
            && !arguments.is_empty()
            && let Some(frame) = self.frames.event(delta, out)
        {
            frame.with("item_id", &call.id).with("output_index", &index).with("delta", arguments).end();
        }
        if let Some(frame) = self.frames.event(done, out) {
            let frame = frame.with("item_id", &call.id).with("output_index", &index);
            let frame = if field == "arguments" && matches!(call.form, Form::Function { .. }) {
                frame.with("name", &call.name)
            } else {
                frame
            };
            frame.with(field, arguments).end();
        }
    }

    /// A call whose content has no fixed form, such as a component call. It is known only once it is complete.
    pub(super) fn call_without_head(&mut self, step: ContentStep<'_>, out: &mut Out) {
        let Some(call) = whole_call(step.slot) else { return };
        let name = if call.name.is_empty() {
            step.message.announced.as_str().trim_end_matches("_call").to_owned()
        } else {
            call.name
        };

        let head = CallHead { call_id: call.call_id, name, server_label: call.server_label };
        self.call_started(step, &head, out);
        if let Some(open) = self.open_messages.get_mut(step.message_index).and_then(Option::as_deref_mut) {
            open.stream = None;
        }
        if let Some(number) = self.calls.len().checked_sub(1) {
            self.emit_arguments(number, call.arguments, true, out);
        }
    }

    /// Sends a complete call that the client answers.
    pub(super) fn emit_function_call(
        &mut self,
        step: ContentStep<'_>,
        call_id: String,
        name: String,
        arguments: String,
        out: &mut Out,
    ) {
        let place = (step.message_index, step.index);
        let id = ids::output_item_id("fc_", step.run.id, place.0, place.1);
        let mut call = TrackedCall::new(place, id, call_id, name, Form::Function { namespace: None });
        self.open_call(&mut call, out);
        let number = self.calls.len();
        self.calls.push(call);
        self.emit_arguments(number, arguments, true, out);
        self.close_call(number, "completed", None, out);
    }

    /// The message is final: finishes the calls in it that the client runs.
    pub(super) fn calls_finished(&mut self, run: RunId, index: usize, message: &Message, out: &mut Out) {
        let Some(open) = self.open_messages.get_mut(index).and_then(Option::as_deref_mut) else { return };
        // Some agents say at the end alone that a call is the client's.
        let is_clients_after_all = message.kind == MessageType::FunctionCall && message.announced != message.kind;
        for number in std::mem::take(&mut open.calls) {
            let call = &self.calls[number];
            if is_clients_after_all && matches!(call.form, Form::Mcp { .. } | Form::Hidden) && !call.done {
                self.hand_over(number, run, out);
            }
            if matches!(self.calls[number].form, Form::Function { .. } | Form::Custom { .. }) {
                self.close_call(number, messages::status_of(message.end), None, out);
            }
        }
    }

    /// A call that was shown as the agent's is the client's: its item ends, and another one follows.
    fn hand_over(&mut self, number: usize, run: RunId, out: &mut Out) {
        let arguments = self.calls[number].arguments.clone();
        self.close_call(number, "incomplete", None, out);
        let call = &mut self.calls[number];
        call.done = false;
        call.arguments = arguments;
        self.release(number, Form::Function { namespace: None }, "fc_", run, out);
    }

    /// Finishes the item of a call.
    fn close_call(&mut self, number: usize, status: &'static str, result: Option<&ToolResult>, out: &mut Out) {
        let Some(index) = self.calls[number].output_index.filter(|_| !self.calls[number].done) else { return };
        self.calls[number].done = true;
        // Serialized first: sending the events needs the encoder mutably.
        let id = self.calls[number].id.clone();
        let item = Json::from_serialize(&self.calls[number].item(status, result));
        if matches!(self.calls[number].form, Form::Mcp { .. }) {
            match status {
                "completed" => self.stage("response.mcp_call.completed", &id, index, out),
                "failed" => self.stage("response.mcp_call.failed", &id, index, out),
                _ => {}
            }
        }

        self.done_json(index, item, out);
    }

    /// Tool outputs, once their message is final.
    pub(super) fn emit_outputs(&mut self, run: RunId, index: usize, message: &Message, out: &mut Out) {
        let failed = call_output::has_failed(message);
        for (content, output) in call_output::of_message(message) {
            self.emit_output(run, (index, content), message, &output, failed, out);
        }
    }

    fn emit_output(
        &mut self,
        run: RunId,
        (index, content): (usize, usize),
        message: &Message,
        output: &ToolOutput,
        failed: bool,
        out: &mut Out,
    ) {
        let text = match self.shared.options.tool_output {
            options::ToolOutput::Plain => shown_text::unwrap_output(&output.output),
            options::ToolOutput::Raw => output.output.clone(),
        };
        let result = if failed {
            ToolResult::Failure(call_output::failure_text(message, text))
        } else {
            ToolResult::Success(text)
        };

        let waiting = self.unanswered.get_mut(&output.call_id);
        let number = waiting.and_then(std::collections::VecDeque::pop_front);
        let by_client = message.announced == MessageType::FunctionCallOutput;
        let number = match number {
            Some(number) => number,
            // The client's own outputs are not sent back to it.
            None if by_client && self.shared.options.tool_items != ToolItems::Pair => return,
            None => {
                let Some(number) = self.track_earlier_call(run, (index, content), output, out) else { return };
                number
            }
        };

        self.reports_outputs = true;
        match self.calls[number].form {
            Form::Deferred { .. } | Form::Mcp { .. } => self.set_result(run, number, result, out),
            Form::Function { .. } | Form::Custom { .. } if self.shared.options.tool_items == ToolItems::Pair => {
                let (ToolResult::Success(text) | ToolResult::Failure(text)) = &result;
                let id = ids::output_item_id("fco_", run, index, content);
                let call_id = output.call_id.as_str();
                let shell = Item::FunctionCallOutput { id: &id, call_id, output: text, status: "in_progress" };
                let output_index = self.add(&shell, out);
                let status = if failed { "incomplete" } else { "completed" };
                self.done(output_index, &Item::FunctionCallOutput { id: &id, call_id, output: text, status }, out);
            }
            Form::Function { .. } | Form::Custom { .. } | Form::Hidden => {}
        }
    }

    /// Handles the result of a call that the agent runs. If messages overlap, it may arrive before the arguments are
    /// final; then it is stored until they are.
    fn set_result(&mut self, run: RunId, number: usize, result: ToolResult, out: &mut Out) {
        if self.calls[number].arguments.is_none() {
            self.calls[number].result = Some(result);
            return;
        }
        if let Form::Deferred { label } = self.calls[number].form.clone() {
            if self.shared.options.tool_items == ToolItems::Hide {
                self.calls[number].form = Form::Hidden;
                return;
            }
            self.release(number, Form::Mcp { label }, "mcp_", run, out);
        }
        self.close_with_result(number, &result, out);
    }

    fn close_with_result(&mut self, number: usize, result: &ToolResult, out: &mut Out) {
        let status = if matches!(result, ToolResult::Failure(_)) { "failed" } else { "completed" };
        self.close_call(number, status, Some(result), out);
    }

    /// Tracks a call that was sent before this run began, for example before an approval. Only its output is new.
    fn track_earlier_call(
        &mut self,
        run: RunId,
        place: (usize, usize),
        output: &ToolOutput,
        out: &mut Out,
    ) -> Option<usize> {
        let label = self.server_label.clone();
        let form = match self.shared.options.tool_items {
            ToolItems::McpCall => Form::Mcp { label },
            ToolItems::Hide => return None,
            ToolItems::Pair => Form::Function { namespace: None },
        };

        let name = output.name.clone().unwrap_or_else(|| "tool".to_owned());
        let id = ids::output_item_id("mcp_", run, place.0, place.1);
        let mut call = TrackedCall::new(place, id, output.call_id.clone(), name, form);
        call.arguments = Some(String::new());
        if matches!(call.form, Form::Mcp { .. }) {
            self.open_call(&mut call, out);
        }

        self.calls.push(call);
        Some(self.calls.len() - 1)
    }

    /// Sends a deferred call, now that it is known who runs it.
    fn release(&mut self, number: usize, form: Form, prefix: &str, run: RunId, out: &mut Out) {
        // The item is added without its arguments.
        let mut calls = std::mem::take(&mut self.calls);
        let call = &mut calls[number];
        call.form = form;
        call.id = ids::output_item_id(prefix, run, call.message, call.content);
        let arguments = call.arguments.take();
        self.open_call(call, out);
        self.calls = calls;

        if let Some(arguments) = arguments {
            self.emit_arguments(number, arguments, true, out);
        }
    }

    /// The run is over: closes every call that is still open.
    pub(super) fn close_calls(&mut self, run: &Run, end: End, out: &mut Out) {
        for number in 0..self.calls.len() {
            let call = &self.calls[number];
            if call.done {
                continue;
            }

            let message_end = run.messages.get(call.message).and_then(|message| message.end);
            match call.form {
                Form::Deferred { .. } => {
                    let ended_well = matches!(end, End::Completed | End::Incomplete);
                    let status = if ended_well { messages::status_of(message_end) } else { "incomplete" };
                    self.release(number, Form::Function { namespace: None }, "fc_", run.id, out);
                    self.close_call(number, status, None, out);
                }
                // An agent that never reports outputs has still run its tools.
                Form::Mcp { .. } if end == End::Completed && !self.reports_outputs => {
                    self.close_call(number, "completed", None, out);
                }
                Form::Mcp { .. } | Form::Function { .. } | Form::Custom { .. } => {
                    self.close_call(number, "incomplete", None, out);
                }
                Form::Hidden => {}
            }
        }
    }

    /// Closes the open calls of an unfinished run in their current state. Nothing can be encoded after it.
    pub(super) fn calls_snapshot(&mut self, run: &Run, out: &mut Out) {
        for number in 0..self.calls.len() {
            let call = &self.calls[number];
            if call.done || call.output_index.is_none() {
                continue;
            }

            let slot = run.messages.get(call.message).and_then(|message| message.slots.get(call.content));
            if let (None, Some(slot)) = (&call.arguments, slot) {
                let open = self.open_messages.get(call.message).and_then(Option::as_deref);
                let stream = open.and_then(|open| open.stream.as_ref());
                self.calls[number].arguments = stream.map(|stream| stream.sent().text(slot).to_owned());
            }
            self.close_call(number, "in_progress", None, out);
        }
    }
}
