//! Content of the span of a turn: its tool calls and, if configured, its messages. The size is bounded.
//!
//! Collected after the end of a turn, only if its span is sampled. Not here: export of spans (`interlingua_observe`).

use std::collections::HashMap;

use interlingua_core::call::RunView;
use interlingua_core::event::Millis;
use interlingua_core::filter::truncated;
use interlingua_core::model::{self, MessageType, Role};
use interlingua_core::run::{Message, Slot};
use interlingua_core::{Event, Run};
use serde_json::{Value, json};

use interlingua_observe::ToolPart;

/// The maximum number of calls of a turn that get a span.
const MAX_TOOLS: usize = 128;
/// The maximum bytes of text in the input or output of a turn, and in the arguments or the result of a call.
const MAX_TEXT: usize = 64 * 1024;
/// The maximum bytes of a name or id.
const MAX_NAME: usize = 256;

/// The tool calls of the last turn, in order. `with_content`: including arguments and results.
pub(super) fn tools(view: RunView<'_>, with_content: bool) -> Vec<ToolPart> {
    let messages = messages(view.run());
    if !messages.iter().any(|message| message.kind.is_call()) {
        return Vec::new();
    }

    let times = Times::read(view);
    let first = view.run().turn().map_or(0, |turn| turn.first_message);
    let mut tools: Vec<ToolPart> = Vec::new();
    for (index, message) in (first..).zip(messages) {
        let (started_at, ended_at) = times.of(index);
        if message.kind.is_output() {
            for output in message.slots.iter().filter_map(Slot::output) {
                let known = tools.iter_mut().find(|tool| tool.call_id == truncated(&output.call_id, MAX_NAME));
                let Some(tool) = known else { continue };
                tool.ended_at = ended_at;
                if let Some(content) = &mut tool.content {
                    content.1 = truncated(&output.output, MAX_TEXT).to_owned();
                }
            }
            continue;
        }
        for slot in message.slots.iter().filter(|_| message.kind.is_call()) {
            let Some(head) = slot.call.as_ref().filter(|_| tools.len() < MAX_TOOLS) else { continue };
            let content = || Box::new((truncated(slot.text(), MAX_TEXT).to_owned(), String::new()));
            tools.push(ToolPart {
                name: truncated(&head.name, MAX_NAME).to_owned(),
                call_id: truncated(&head.call_id, MAX_NAME).to_owned(),
                started_at,
                ended_at: None,
                is_client_run: message.kind == MessageType::FunctionCall,
                content: with_content.then(content),
            });
        }
    }
    tools
}

/// Input and output of the last turn in the JSON form of the OpenTelemetry GenAI conventions.
pub(super) fn input_and_output(view: RunView<'_>, finish_reason: &str) -> (String, String) {
    let mut room = MAX_TEXT;
    let input = view.run().turn().map(|turn| turn.input.clone()).unwrap_or_default();
    let input: Vec<Value> = input.iter().filter_map(|message| to_value(message, &mut room)).collect();

    let mut room = MAX_TEXT;
    let output = messages(view.run()).iter().map(Message::to_model);
    let mut output: Vec<Value> = output.filter_map(|message| to_value(&message, &mut room)).collect();
    for message in &mut output {
        message["finish_reason"] = finish_reason.into();
    }
    (Value::Array(input).to_string(), Value::Array(output).to_string())
}

/// The messages of the last turn.
fn messages(run: &Run) -> &[Message] {
    run.messages_of(run.turns.len().saturating_sub(1))
}

/// A message with at most `room` bytes of text. `None`: it has no content that the conventions can represent.
fn to_value(message: &model::Message, room: &mut usize) -> Option<Value> {
    let mut take = |text: &str| {
        let taken = truncated(text, *room);
        *room -= taken.len();
        taken.to_owned()
    };
    let mut parts = Vec::new();
    if message.kind.is_call() {
        parts.extend(message.calls().map(|call| {
            json!({ "type": "tool_call", "id": truncated(&call.call_id, MAX_NAME), "name": truncated(&call.name, MAX_NAME), "arguments": take(&call.arguments) })
        }));
    } else if message.kind.is_output() {
        parts.extend(message.outputs().map(|output| {
            json!({ "type": "tool_call_response", "id": truncated(&output.call_id, MAX_NAME), "result": take(&output.output) })
        }));
    } else {
        let kind = if message.kind == MessageType::Reasoning { "reasoning" } else { "text" };
        let texts = message.content.iter().filter_map(model::Content::as_text).filter(|text| !text.is_empty());
        parts.extend(texts.map(|text| json!({ "type": kind, "content": take(text) })));
    }

    let role = message.role.as_ref().map_or("user", Role::as_str);
    (!parts.is_empty()).then(|| json!({ "role": role, "parts": parts }))
}

/// Start and end of the messages of the last turn, by index.
struct Times(HashMap<u32, (Option<Millis>, Option<Millis>)>);

impl Times {
    fn read(view: RunView<'_>) -> Self {
        let mut times: HashMap<u32, (Option<Millis>, Option<Millis>)> = HashMap::new();
        // Read backwards, because only the last turn of the run is needed. Evicted messages have no times.
        for step in (0..view.record.len()).rev().map_while(|sequence| view.record.step(sequence)) {
            match step.event {
                Event::TurnStarted { .. } => break,
                Event::MessageStarted { message } => times.entry(message).or_default().0 = Some(step.at),
                Event::MessageFinished { message } => times.entry(message).or_default().1 = Some(step.at),
                _ => {}
            }
        }
        Self(times)
    }

    fn of(&self, message: usize) -> (Option<Millis>, Option<Millis>) {
        u32::try_from(message).ok().and_then(|message| self.0.get(&message)).copied().unwrap_or_default()
    }
}
