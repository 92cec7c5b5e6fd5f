//! Calls and what they returned (section 10 b, b′; section 16): `function_call` for what the client declared,
//! `mcp_call` for what the agent runs itself.
//!
//! A function the client did not declare is held back: with an output in the same run it was the agent's own, without
//! one it is the client's to run after all.

use interlingua_core::Out;
use interlingua_core::event::End;
use interlingua_core::model::{MessageType, ToolCall, ToolOutput};
use interlingua_core::run::{CallHead, Message, Run, Slot};
use interlingua_core::{Extra, Json, RunId};
use serde::Serialize;

use super::flow::Flow;
use super::{Encoder, render, said};
use crate::ids;
use crate::options::{self, ToolItems};
use crate::wire::{Item, McpError};

/// A call of this run.
#[derive(Debug)]
pub(super) struct Tracked {
    message: usize,
    content: usize,
    /// Its item. None: it is held back, or not shown.
    index: Option<usize>,
    id: String,
    call_id: String,
    name: String,
    form: Form,
    /// None until they are final.
    arguments: Option<String>,
    /// What it returned, where that was told before the arguments were.
    returned: Option<Returned>,
    done: bool,
}

/// How a call is told.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// The client runs it.
    Function { namespace: Option<String> },
    /// The client runs it, and takes free text.
    Custom { namespace: Option<String> },
    /// The agent runs it.
    Mcp { label: String },
    /// Not known yet who runs it.
    Held { label: String },
    /// The operator does not want it shown.
    Hidden,
}

impl Form {
    fn label(&self) -> Option<&str> {
        match self {
            Self::Mcp { label } | Self::Held { label } => Some(label),
            Self::Function { .. } | Self::Custom { .. } | Self::Hidden => None,
        }
    }
}

/// Where the arguments of a call belong.
#[derive(Serialize)]
struct CallPlace<'a> {
    item_id: &'a str,
    output_index: usize,
}

/// What a tool returned, as it is told.
#[derive(Debug)]
enum Returned {
    Well(String),
    Badly(String),
}

impl Tracked {
    /// The item. A call that is held back has the form it will have if it turns out to be the agent's.
    fn item<'a>(&'a self, status: &'static str, returned: Option<&'a Returned>) -> Item<'a> {
        let arguments = self.arguments.as_deref().unwrap_or("");
        match &self.form {
            Form::Function { namespace } => Item::FunctionCall {
                id: &self.id,
                status,
                call_id: &self.call_id,
                name: &self.name,
                arguments,
                namespace: namespace.as_deref(),
            },
            Form::Custom { namespace } => Item::CustomToolCall {
                id: &self.id,
                status,
                call_id: &self.call_id,
                name: &self.name,
                input: arguments,
                namespace: namespace.as_deref(),
            },
            Form::Mcp { .. } | Form::Held { .. } | Form::Hidden => Item::McpCall {
                id: &self.id,
                status,
                server_label: self.form.label().unwrap_or(""),
                name: &self.name,
                arguments,
                output: match returned {
                    Some(Returned::Well(output)) => Some(output),
                    Some(Returned::Badly(_)) | None => None,
                },
                error: match returned {
                    Some(Returned::Badly(text)) => Some(McpError::execution(text)),
                    Some(Returned::Well(_)) | None => None,
                },
                approval_request_id: None,
            },
        }
    }

    /// The events of its arguments: delta, done, and what `done` calls them.
    const fn events(&self) -> (&'static str, &'static str, &'static str) {
        match self.form {
            Form::Function { .. } => {
                ("response.function_call_arguments.delta", "response.function_call_arguments.done", "arguments")
            }
            Form::Custom { .. } => {
                ("response.custom_tool_call_input.delta", "response.custom_tool_call_input.done", "input")
            }
            Form::Mcp { .. } | Form::Held { .. } | Form::Hidden => {
                ("response.mcp_call_arguments.delta", "response.mcp_call_arguments.done", "arguments")
            }
        }
    }
}

impl Encoder {
    /// A call begins: its head is known, its arguments follow.
    pub(super) fn call_started(
        &mut self,
        run: RunId,
        at: usize,
        message: &Message,
        content: usize,
        head: &CallHead,
        out: &mut Out,
    ) {
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
            (MessageType::FunctionCall, None) => Form::Held { label },
            _ if tools == ToolItems::Hide => Form::Hidden,
            _ => Form::Mcp { label },
        };
        let prefix = if matches!(form, Form::Mcp { .. } | Form::Hidden) { "mcp_" } else { "fc_" };
        let mut call = Tracked {
            message: at,
            content,
            index: None,
            id: ids::output(prefix, run, at, content),
            call_id: head.call_id.clone(),
            name,
            form,
            arguments: None,
            returned: None,
            done: false,
        };
        if !matches!(call.form, Form::Held { .. } | Form::Hidden) {
            self.open_call(&mut call, out);
        }
        // Only a client's own function is told piece by piece: the pieces of others come from snapshots or are for
        // nobody to act upon before they are whole.
        if let (Form::Function { .. }, Some(index)) = (&call.form, call.index)
            && message.announced == MessageType::FunctionCall
        {
            let place = CallPlace { item_id: &call.id, output_index: index };
            let template = self.frames.template(call.events().0, &place, "");
            self.live(at).flow = Some(Flow::new(template, None));
        }
        let number = self.calls.len();
        self.live(at).calls.push(number);
        self.unanswered.entry(call.call_id.clone()).or_default().push_back(number);
        self.calls.push(call);
    }

    fn open_call(&mut self, call: &mut Tracked, out: &mut Out) {
        let index = self.add(&call.item("in_progress", None), out);
        call.index = Some(index);
        if matches!(call.form, Form::Mcp { .. }) {
            self.stage("response.mcp_call.in_progress", &call.id, index, out);
        }
    }

    /// The arguments of the message's open call are final.
    pub(super) fn arguments_finished(&mut self, run: RunId, at: usize, slot: &Slot, out: &mut Out) {
        let Some(live) = self.live.get_mut(at).and_then(Option::as_deref_mut) else { return };
        let flow = live.flow.take();
        let Some(&number) = live.calls.last() else { return };
        match flow {
            Some(flow) => self.arguments_told(number, flow.told().text(slot).to_owned(), false, out),
            None => self.arguments_told(number, slot.text().to_owned(), true, out),
        }
        if let Some(returned) = self.calls.get_mut(number).and_then(|call| call.returned.take()) {
            self.returned(run, number, returned, out);
        }
    }

    /// Tells the arguments as final, and before that as one delta where they were not told piece by piece.
    fn arguments_told(&mut self, number: usize, arguments: String, whole: bool, out: &mut Out) {
        let Some(call) = self.calls.get_mut(number) else { return };
        let arguments = if matches!(call.form, Form::Custom { .. }) { free_text(arguments) } else { arguments };
        let call = {
            call.arguments = Some(arguments);
            &*call
        };
        let Some(index) = call.index else { return };
        let arguments = call.arguments.as_deref().unwrap_or("");
        let (delta, done, field) = call.events();
        if whole
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

    /// A call whose body has no fixed form, as component calls have: known only when it is whole.
    pub(super) fn call_without_head(
        &mut self,
        run: RunId,
        at: usize,
        message: &Message,
        content: usize,
        slot: &Slot,
        out: &mut Out,
    ) {
        let Some(data) = slot.data() else { return };
        let call: ToolCall = data.decode().unwrap_or_default();
        let named = data.decode::<Extra>().is_some_and(|fields| fields.get("arguments").is_some());
        let name = if call.name.is_empty() {
            message.announced.as_str().trim_end_matches("_call").to_owned()
        } else {
            call.name
        };
        let head = CallHead { call_id: call.call_id, name, server_label: call.server_label };
        self.call_started(run, at, message, content, &head, out);
        let arguments = if named { call.arguments } else { data.text().to_owned() };
        if let Some(live) = self.live.get_mut(at).and_then(Option::as_deref_mut) {
            live.flow = None;
        }
        if let Some(number) = self.calls.len().checked_sub(1) {
            self.arguments_told(number, arguments, true, out);
        }
    }

    /// The message is final: the calls in it that the client runs are done.
    pub(super) fn calls_finished(&mut self, at: usize, message: &Message, out: &mut Out) {
        let Some(live) = self.live.get_mut(at).and_then(Option::as_deref_mut) else { return };
        for number in std::mem::take(&mut live.calls) {
            let call = &self.calls[number];
            if matches!(call.form, Form::Function { .. } | Form::Custom { .. }) {
                self.close_call(number, said::status_of(message.end), None, out);
            }
        }
    }

    /// Tells a call as done.
    fn close_call(&mut self, number: usize, status: &'static str, returned: Option<&Returned>, out: &mut Out) {
        let Some(index) = self.calls[number].index.filter(|_| !self.calls[number].done) else { return };
        self.calls[number].done = true;
        // Taken out for a moment: telling needs the whole encoder.
        let id = self.calls[number].id.clone();
        let item = Json::from_serialize(&self.calls[number].item(status, returned));
        if matches!(self.calls[number].form, Form::Mcp { .. }) {
            match status {
                "completed" => self.stage("response.mcp_call.completed", &id, index, out),
                "failed" => self.stage("response.mcp_call.failed", &id, index, out),
                _ => {}
            }
        }
        self.done_as(index, item, out);
    }

    /// What tools returned, with their message's end.
    pub(super) fn outputs_told(&mut self, run: RunId, at: usize, message: &Message, out: &mut Out) {
        let failed = message.end == Some(End::Failed) || message.code.is_some();
        for (content, slot) in message.slots.iter().enumerate() {
            let output = slot.output().filter(|output| !output.call_id.is_empty() || !output.output.is_empty());
            let output = output.unwrap_or_else(|| ToolOutput {
                output: slot.data().map_or_else(|| slot.text().to_owned(), |data| data.text().to_owned()),
                ..ToolOutput::default()
            });
            self.output_told(run, (at, content), message, &output, failed, out);
        }
        // A failure may come without a word of what it returned.
        if message.slots.is_empty() && failed {
            let output = ToolOutput { output: message.message.clone().unwrap_or_default(), ..ToolOutput::default() };
            self.output_told(run, (at, 0), message, &output, failed, out);
        }
    }

    fn output_told(
        &mut self,
        run: RunId,
        (at, content): (usize, usize),
        message: &Message,
        output: &ToolOutput,
        failed: bool,
        out: &mut Out,
    ) {
        let text = match self.shared.options.tool_output {
            options::ToolOutput::Plain => render::plain(&output.output),
            options::ToolOutput::Raw => output.output.clone(),
        };
        let returned = if failed {
            let said = Some(text).filter(|text| !text.is_empty()).or_else(|| message.message.clone());
            Returned::Badly(said.unwrap_or_else(|| "the tool failed".to_owned()))
        } else {
            Returned::Well(text)
        };
        let waiting = self.unanswered.get_mut(&output.call_id);
        let number = waiting.and_then(std::collections::VecDeque::pop_front);
        let by_client = message.announced == MessageType::FunctionCallOutput;
        let number = match number {
            Some(number) => number,
            // What the client itself returned is not told back to it.
            None if by_client && self.shared.options.tool_items != ToolItems::Pair => return,
            None => {
                let Some(number) = self.call_of_earlier(run, (at, content), output, out) else { return };
                number
            }
        };
        self.tells_outputs = true;
        match self.calls[number].form {
            Form::Held { .. } | Form::Mcp { .. } => self.returned(run, number, returned, out),
            Form::Function { .. } | Form::Custom { .. } if self.shared.options.tool_items == ToolItems::Pair => {
                let (Returned::Well(text) | Returned::Badly(text)) = &returned;
                let id = ids::output("fco_", run, at, content);
                let call_id = output.call_id.as_str();
                let shell = Item::FunctionCallOutput { id: &id, call_id, output: text, status: "in_progress" };
                let index = self.add(&shell, out);
                let status = if failed { "incomplete" } else { "completed" };
                self.done(index, &Item::FunctionCallOutput { id: &id, call_id, output: text, status }, out);
            }
            Form::Function { .. } | Form::Custom { .. } | Form::Hidden => {}
        }
    }

    /// A call of the agent's own has its output. Overlapping messages may tell it before the arguments are whole:
    /// then it waits for them.
    fn returned(&mut self, run: RunId, number: usize, returned: Returned, out: &mut Out) {
        if self.calls[number].arguments.is_none() {
            self.calls[number].returned = Some(returned);
            return;
        }
        if let Form::Held { label } = self.calls[number].form.clone() {
            if self.shared.options.tool_items == ToolItems::Hide {
                self.calls[number].form = Form::Hidden;
                return;
            }
            self.let_go(number, Form::Mcp { label }, "mcp_", run, out);
        }
        self.close_with(number, &returned, out);
    }

    fn close_with(&mut self, number: usize, returned: &Returned, out: &mut Out) {
        let status = if matches!(returned, Returned::Badly(_)) { "failed" } else { "completed" };
        self.close_call(number, status, Some(returned), out);
    }

    /// A call that was told before this run began, for instance in front of an approval: only its output is new.
    fn call_of_earlier(
        &mut self,
        run: RunId,
        (message, content): (usize, usize),
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
        let mut call = Tracked {
            message,
            content,
            index: None,
            id: ids::output("mcp_", run, message, content),
            call_id: output.call_id.clone(),
            name,
            form,
            arguments: Some(String::new()),
            returned: None,
            done: false,
        };
        if matches!(call.form, Form::Mcp { .. }) {
            self.open_call(&mut call, out);
        }
        self.calls.push(call);
        Some(self.calls.len() - 1)
    }

    /// A call that was held back is told after all.
    fn let_go(&mut self, number: usize, form: Form, prefix: &str, run: RunId, out: &mut Out) {
        let call = &mut self.calls[number];
        call.form = form;
        call.id = ids::output(prefix, run, call.message, call.content);
        let arguments = call.arguments.take();
        // The shell has no arguments yet.
        let index = self.items.len();
        self.items.push(None);
        let call = &mut self.calls[number];
        call.index = Some(index);
        if let Some(frame) = self.frames.event("response.output_item.added", out) {
            frame.with("output_index", &index).with("item", &call.item("in_progress", None)).end();
        }
        if matches!(call.form, Form::Mcp { .. }) {
            let id = call.id.clone();
            self.stage("response.mcp_call.in_progress", &id, index, out);
        }
        if let Some(arguments) = arguments {
            self.arguments_told(number, arguments, true, out);
        }
    }

    /// The run is over: every call that is still open is closed.
    pub(super) fn close_calls(&mut self, run: &Run, end: End, out: &mut Out) {
        for number in 0..self.calls.len() {
            let call = &self.calls[number];
            if call.done {
                continue;
            }
            let message_end = run.messages.get(call.message).and_then(|message| message.end);
            match call.form {
                Form::Held { .. } => {
                    let ended_well = matches!(end, End::Completed | End::Incomplete);
                    let status = if ended_well { said::status_of(message_end) } else { "incomplete" };
                    self.let_go(number, Form::Function { namespace: None }, "fc_", run.id, out);
                    self.close_call(number, status, None, out);
                }
                // Agents that never tell outputs have run their tools all the same.
                Form::Mcp { .. } if end == End::Completed && !self.tells_outputs => {
                    self.close_call(number, "completed", None, out);
                }
                Form::Mcp { .. } | Form::Function { .. } | Form::Custom { .. } => {
                    self.close_call(number, "incomplete", None, out);
                }
                Form::Hidden => {}
            }
        }
    }

    /// The calls as they stand in the middle.
    pub(super) fn calls_snapshot(&mut self, run: &Run, out: &mut Out) {
        for number in 0..self.calls.len() {
            let call = &self.calls[number];
            if call.done || call.index.is_none() {
                continue;
            }
            let slot = run.messages.get(call.message).and_then(|message| message.slots.get(call.content));
            if let (None, Some(slot)) = (&call.arguments, slot) {
                let told = self.live.get(call.message).and_then(Option::as_deref).and_then(|live| live.flow.as_ref());
                self.calls[number].arguments = told.map(|flow| flow.told().text(slot).to_owned());
            }
            self.close_call(number, "in_progress", None, out);
        }
    }
}

/// The free text in the arguments of a function that stands for a custom tool: `{"input":"…"}`.
fn free_text(arguments: String) -> String {
    #[derive(serde::Deserialize)]
    struct Input {
        input: String,
    }
    serde_json::from_str::<Input>(&arguments).map_or(arguments, |wrapped| wrapped.input)
}
