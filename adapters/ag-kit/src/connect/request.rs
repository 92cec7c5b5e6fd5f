//! The request of a turn.

use interlingua_adapter_kit::call_ids::CallIds;
use interlingua_adapter_kit::links;
use interlingua_core::connector::TurnRequest;
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::model::{Message, MessageType, Role, Sampling};
use interlingua_core::{Extra, Json};
use serde::{Deserialize, Serialize};

use super::asks::Resume;
use super::options::Parameters;

/// The body of a request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RequestBody {
    conversation_id: String,
    messages: Vec<OutgoingMessage>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resume: Option<Resume>,
    /// `state`, `context` and `forwardedProps` of a client whose protocol has them. Servers ignore what they do not
    /// know.
    #[serde(flatten)]
    extra: Extra,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OutgoingMessage {
    role: &'static str,
    /// The Python server demands one of assistants.
    id: String,
    content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
}

#[derive(Debug, Serialize)]
struct Tool {
    name: String,
    description: String,
    parameters: Json,
}

/// A tool in the form of the Agent API.
#[derive(Default, Deserialize)]
#[serde(default)]
struct DeclaredTool {
    function: Option<Function>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Function {
    name: String,
    description: Option<String>,
    parameters: Option<Json>,
}

impl RequestBody {
    pub(super) fn new(
        turn: &TurnRequest<'_>,
        resume: Option<Resume>,
        parameters: Parameters,
        call_ids: &CallIds,
        losses: &mut Losses,
    ) -> Self {
        let request = turn.request;
        let tools = request.tools.iter().flatten().filter_map(|tool| self::tool(tool, parameters, losses)).collect();
        note_settings(&request.sampling, &request.extra, losses);
        let extra = [("state", "state"), ("context", "context"), ("forwarded_props", "forwardedProps")];
        let extra = extra.into_iter().filter_map(|(own, name)| Some((name, request.extra.get(own)?.clone())));
        let mut passed = Extra::new();
        extra.for_each(|(name, value)| passed.push(name, value));

        let mut messages = Vec::new();
        for (place, message) in request.input.iter().enumerate() {
            let is_new = !turn.history.contains(&place);
            messages.extend(outgoing(message, place, is_new, call_ids, losses));
        }
        Self { conversation_id: request.session_id.clone().unwrap_or_default(), messages, tools, resume, extra: passed }
    }
}

/// The names of the tools that a request declares.
pub(super) fn tool_names(tools: &[Json]) -> impl Iterator<Item = String> + '_ {
    tools.iter().filter_map(|tool| Some(tool.decode::<DeclaredTool>()?.function?.name)).filter(|name| !name.is_empty())
}

fn tool(declared: &Json, parameters: Parameters, losses: &mut Losses) -> Option<Tool> {
    let function =
        declared.decode::<DeclaredTool>().and_then(|tool| tool.function).filter(|tool| !tool.name.is_empty());
    let Some(Function { name, description, parameters: schema }) = function else {
        losses.lost(ContentKind::ToolDeclaration, "only functions can be declared");
        return None;
    };
    let schema = schema.filter(Json::is_object);
    let schema =
        schema.unwrap_or_else(|| Json::from_serialize(&serde_json::json!({ "type": "object", "properties": {} })));
    let parameters = match parameters {
        Parameters::Object => schema,
        Parameters::Text => Json::from_serialize(schema.text()),
    };
    Some(Tool { name, description: description.unwrap_or_default(), parameters })
}

/// Notes what the protocol has no field for.
fn note_settings(sampling: &Sampling, extra: &Extra, losses: &mut Losses) {
    if *sampling != Sampling::default() {
        losses.lost(ContentKind::Sampling, "the protocol has no parameters of a model");
    }
    for (name, kind) in [
        ("tool_choice", ContentKind::ToolChoice),
        ("text", ContentKind::OutputFormat),
        ("response_format", ContentKind::OutputFormat),
    ] {
        if extra.get(name).is_some_and(|value| !value.is_null()) {
            losses.lost(kind, "the protocol has no field for it");
        }
    }
}

/// A message as the protocol has it. `is_new`: the agent has not seen it.
fn outgoing(
    message: &Message,
    place: usize,
    is_new: bool,
    call_ids: &CallIds,
    losses: &mut Losses,
) -> Vec<OutgoingMessage> {
    let id = message.id.clone().unwrap_or_else(|| format!("message-{place}"));
    let plain = |role: &'static str, content: String| {
        vec![OutgoingMessage { role, id: id.clone(), content, tool_call_id: None }]
    };
    match &message.kind {
        MessageType::Message => {
            let text = text(message, losses);
            let role = match &message.role {
                Some(Role::Assistant) => "assistant",
                Some(Role::System) => "system",
                Some(Role::Other(word)) if word.as_ref() == "developer" => "system",
                _ => "user",
            };
            if text.is_empty() && role != "user" { Vec::new() } else { plain(role, text) }
        }
        kind if kind.is_output() && is_new => {
            if message.has_failed_output() {
                losses.lost(ContentKind::ToolFailure, "an output is a text and nothing else");
            }
            let outputs = message.outputs().map(|output| OutgoingMessage {
                role: "tool",
                id: format!("{id}-{}", output.call_id),
                content: links::output_as_text(&output.output, message, "an output is a text and nothing else", losses),
                tool_call_id: Some(call_ids.own(&output.call_id).to_owned()),
            });
            outputs.collect()
        }
        // Answers are sent in `resume`, and the agent knows its own questions.
        MessageType::McpApprovalRequest | MessageType::McpApprovalResponse | MessageType::FunctionCall if is_new => {
            Vec::new()
        }
        MessageType::Reasoning => {
            losses.lost(ContentKind::Reasoning, "earlier reasoning cannot be sent");
            Vec::new()
        }
        // CloudBase's server breaks off on an assistant's message with calls.
        _ => {
            losses.lost(ContentKind::History, "calls of earlier turns and their results are left out");
            Vec::new()
        }
    }
}

/// The text of a message: all that can be sent.
fn text(message: &Message, losses: &mut Losses) -> String {
    links::as_text(message, "messages of this protocol hold nothing but text", losses)
}
