//! Calls and their outputs (docs/protocols/anthropic-messages.md#calls): `tool_use` for calls that the client runs,
//! `mcp_tool_use` and `mcp_tool_result` for calls that the agent runs itself.
//!
//! A call of a function that the client did not declare is held. If its output follows in the same run, the agent ran
//! it; if the run ends before an output, the client has to run it.

use interlingua_adapter_kit::call_output;
use interlingua_adapter_kit::shown_text::unwrap_output;
use interlingua_core::model::{MessageType, ToolCall, ToolOutput};
use interlingua_core::run::{Message, Slot};
use interlingua_core::{Extra, Json, Out};
use serde::Serialize;

use super::{EncoderState, arguments};
use crate::options::ToolItems;

/// Calls and outputs that are shown as text are cut at this length, in bytes.
const MAX_LINE: usize = 2048;

#[derive(Serialize)]
struct McpToolUse<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'a str,
    name: &'a str,
    server_name: &'a str,
    input: &'a Json,
}

#[derive(Serialize)]
struct McpToolResult<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    tool_use_id: &'a str,
    is_error: bool,
    content: &'a [ResultText<'a>],
}

#[derive(Serialize)]
struct ResultText<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
}

/// The calls of a message, those without a fixed form too.
fn calls_of(message: &Message) -> Vec<ToolCall> {
    message.slots.iter().filter_map(|slot| call_of(message, slot)).collect()
}

fn call_of(message: &Message, slot: &Slot) -> Option<ToolCall> {
    let content = slot.content();
    let data = content.as_data()?;
    let mut call: ToolCall = data.decode().unwrap_or_default();
    if call.name.is_empty() {
        message.announced.as_str().trim_end_matches("_call").clone_into(&mut call.name);
    }
    // A component, whose arguments are the data itself.
    if data.decode::<Extra>().is_some_and(|fields| fields.get("arguments").is_none()) {
        data.text().clone_into(&mut call.arguments);
    }
    Some(call)
}

impl EncoderState {
    /// A call of a function. What the client declared was sent while it grew.
    pub(super) fn function_call_finished(&mut self, message: &Message) {
        for call in calls_of(message) {
            if !self.is_clients(&call.name) {
                self.held.push(call);
            }
        }
    }

    /// A call of the agent's is complete. Some agents say only now that it is the client's.
    pub(super) fn agent_call_finished(&mut self, message: &Message, out: &mut Out) {
        for call in calls_of(message) {
            if message.kind == MessageType::FunctionCall {
                self.tool_use(&call, out);
            } else {
                self.agent_call(&call, out);
            }
        }
    }

    /// A whole call for the client.
    fn tool_use(&mut self, call: &ToolCall, out: &mut Out) {
        self.blocks.begin_call(&call.call_id, &call.name, out);
        self.blocks.push(arguments::whole(&call.arguments).text(), out);
        self.blocks.end(out);
    }

    fn agent_call(&mut self, call: &ToolCall, out: &mut Out) {
        match self.shared.options.tool_items {
            ToolItems::Hide => {}
            ToolItems::Text => {
                let line = format!("[{}] {}", call.name, cut(&call.arguments));
                self.blocks.words(line.trim_end(), out);
            }
            ToolItems::Mcp => {
                let server_name = call.server_label.as_deref().unwrap_or(&self.server_label);
                self.blocks.whole(
                    &McpToolUse {
                        kind: "mcp_tool_use",
                        id: &call.call_id,
                        name: &call.name,
                        server_name,
                        input: &arguments::whole(&call.arguments),
                    },
                    out,
                );
            }
        }
        self.shown_calls.push(call.call_id.clone());
    }

    /// Outputs of tools.
    pub(super) fn outputs(&mut self, message: &Message, out: &mut Out) {
        for (_, output) in call_output::of_message(message) {
            self.output(message, output, out);
        }
    }

    fn output(&mut self, message: &Message, mut output: ToolOutput, out: &mut Out) {
        let failed = call_output::has_failed(message);
        if let Some(place) = self.held.iter().position(|call| call.call_id == output.call_id) {
            let call = self.held.remove(place);
            self.agent_call(&call, out);
        } else if message.announced == MessageType::FunctionCallOutput {
            // The client's own outputs are not sent back to it.
            return;
        } else if !self.shown_calls.contains(&output.call_id) {
            // Its call was shown before this run began, for example before an approval. Clients want both.
            let name = output.name.clone().unwrap_or_else(|| "tool".to_owned());
            if output.call_id.is_empty() {
                output.call_id = format!("{}_output", message.id);
            }
            self.agent_call(&ToolCall { call_id: output.call_id.clone(), name, ..ToolCall::default() }, out);
        }

        let text = unwrap_output(&output.output);
        let text = if failed { call_output::failure_text(message, text) } else { text };
        match self.shared.options.tool_items {
            ToolItems::Hide => {}
            ToolItems::Text => self.blocks.words(cut(&text), out),
            ToolItems::Mcp => self.blocks.whole(
                &McpToolResult {
                    kind: "mcp_tool_result",
                    tool_use_id: &output.call_id,
                    is_error: failed,
                    content: &[ResultText { kind: "text", text: &text }],
                },
                out,
            ),
        }
    }

    /// The calls that no one answered: someone has to run them.
    pub(super) fn release_held(&mut self, out: &mut Out) {
        for call in std::mem::take(&mut self.held) {
            self.tool_use(&call, out);
        }
    }
}

/// The beginning of a text.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_LINE);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
