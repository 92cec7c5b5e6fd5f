//! Converts messages to the format of LangChain (docs/human-in-the-loop.md#conversation).

use interlingua_core::json::Json;
use interlingua_core::model::{self, Body, MessageType, Role};
use interlingua_core::pending::{Decision, Pending, PendingKind};
use interlingua_core::{Extra, answer};

use crate::{Reasoning, wire};

/// Collects converted messages in order.
pub(crate) struct ConversationBuilder {
    reasoning: Reasoning,
    messages: Vec<wire::Message>,
    /// Reasoning that is sent with the next `ai` message.
    reasoning_text: String,
    /// True if the last message accepts further calls: parallel calls share one message.
    accepts_calls: bool,
}

impl ConversationBuilder {
    pub(crate) const fn new(reasoning: Reasoning) -> Self {
        Self { reasoning, messages: Vec::new(), reasoning_text: String::new(), accepts_calls: false }
    }

    pub(crate) fn add(&mut self, id: Option<&str>, message: &model::Message) {
        let id = message.id.as_deref().filter(|id| !id.is_empty()).or(id);
        match &message.kind {
            MessageType::Reasoning if self.reasoning == Reasoning::Kwargs => {
                if !self.reasoning_text.is_empty() {
                    self.reasoning_text.push_str("\n\n");
                }

                self.reasoning_text.push_str(&message.text());
            }
            MessageType::Message => {
                let text = text_of(message);
                match message.role.as_ref().unwrap_or(&Role::User) {
                    Role::User => {
                        // Reasoning without a following `ai` message gets one of its own.
                        self.flush_reasoning();
                        self.push("human", text, id);
                    }
                    Role::System => {
                        self.push("system", text, id);
                    }
                    Role::Assistant => self.push_ai(text, id),
                    // Text of a tool outside of a call: no known agent sends this.
                    Role::Tool | Role::Other(_) => {}
                }
            }
            kind if kind.is_call() => message.calls().for_each(|call| self.add_call(call, id)),
            kind if kind.is_output() => {
                message
                    .outputs()
                    .zip(message.failures())
                    .for_each(|(output, failed)| self.add_output(output, failed, id));
            }
            _ => {}
        }
    }

    /// Returns all messages.
    pub(crate) fn finish(mut self) -> wire::Conversation {
        self.flush_reasoning();
        wire::Conversation { messages: self.messages }
    }

    fn push(&mut self, kind: &'static str, content: String, id: Option<&str>) -> &mut wire::Message {
        self.accepts_calls = false;
        self.messages.push(wire::Message {
            content,
            additional_kwargs: wire::Kwargs::default(),
            response_metadata: wire::Empty {},
            r#type: kind,
            name: None,
            id: id.map(str::to_owned),
            ai: None,
            tool: None,
        });

        let last = self.messages.len() - 1;
        &mut self.messages[last]
    }

    fn push_ai(&mut self, content: String, id: Option<&str>) {
        let reasoning_text = std::mem::take(&mut self.reasoning_text);
        let message = self.push("ai", content, id);
        message.additional_kwargs.reasoning_content =
            Some(reasoning_text).filter(|reasoning_text| !reasoning_text.is_empty());
        message.ai = Some(wire::Ai::default());
    }

    fn flush_reasoning(&mut self) {
        if !self.reasoning_text.is_empty() {
            self.push_ai(String::new(), None);
        }
    }

    fn add_call(&mut self, call: model::ToolCall, id: Option<&str>) {
        if !self.accepts_calls {
            self.push_ai(String::new(), id);
            self.accepts_calls = true;
        }

        let Some(ai) = self.messages.last_mut().and_then(|message| message.ai.as_mut()) else { return };

        let text = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
        match Json::parse(text).filter(Json::is_object) {
            Some(args) => {
                ai.tool_calls.push(wire::ToolCall { name: call.name, args, id: call.call_id, r#type: "tool_call" })
            }
            None => ai.invalid_tool_calls.push(wire::InvalidToolCall {
                name: call.name,
                args: call.arguments,
                id: call.call_id,
                error: None,
                r#type: "invalid_tool_call",
            }),
        }
    }

    fn add_output(&mut self, output: model::ToolOutput, failed: bool, id: Option<&str>) {
        let message = self.push("tool", output.output, id);
        message.name = output.name;
        let status = if failed { "error" } else { "success" };
        message.tool = Some(wire::Tool { tool_call_id: output.call_id, artifact: None, status });
    }
}

/// The text of a message. Media with a URL become Markdown links, since clients show `content` as text.
fn text_of(message: &model::Message) -> String {
    let mut text = String::new();
    for content in &message.content {
        let (label, url, mark) = match &content.body {
            Body::Text(content) | Body::Refusal(content) => {
                text.push_str(content);
                continue;
            }
            Body::Data(data) => {
                text.push_str(data.text());
                continue;
            }
            Body::Image(url) => ("image", url.as_deref(), "!"),
            Body::Video(url) => ("video", url.as_deref(), ""),
            Body::Audio { data, .. } => ("audio", data.as_deref(), ""),
            Body::File(file) => ("file", file.url.as_deref(), ""),
            Body::Other(_) => continue,
        };

        let is_link = |url: &&str| {
            let is_plain = |character: char| !character.is_whitespace() && !matches!(character, '(' | ')' | '<' | '>');
            (url.starts_with("https://") || url.starts_with("http://")) && url.chars().all(is_plain)
        };

        if let Some(url) = url.filter(is_link) {
            text.push_str(&format!("{mark}[{label}]({url})"));
        }
    }

    text
}

/// Converts a pending item to `interrupt_data` (docs/human-in-the-loop.md#asking,
/// docs/human-in-the-loop.md#interrupt-data).
pub(crate) fn interrupt_data(item: &Pending, taken: &'static [Decision]) -> wire::InterruptData {
    let decisions = answer::offer(item, taken);
    let allows = |decision| decisions.contains(&decision);
    let config = wire::Config {
        allow_accept: allows(Decision::Accept),
        allow_edit: allows(Decision::Edit),
        allow_respond: allows(Decision::Respond),
        allow_ignore: allows(Decision::Reject) || allows(Decision::Cancel),
    };

    let mut rest = Extra::new();

    let payload: Option<Extra> = item.payload.as_ref().filter(|payload| payload.is_object()).and_then(Json::decode);
    match (&payload, &item.payload) {
        // The source already uses this format: its additional fields are passed on.
        (Some(payload), _) if payload.get("action_request").is_some() => {
            let standard_fields = ["action_request", "config", "description", "interrupt_type"];
            payload
                .iter()
                .filter(|(name, _)| !standard_fields.contains(name))
                .for_each(|(name, value)| rest.push(name, value.clone()));
        }
        (_, Some(payload)) => rest.push("payload", payload.clone()),
        (_, None) => {}
    }

    if let Some(schema) = &item.response_schema {
        rest.push("response_schema", schema.clone());
    }

    let text_field = |name: &str| payload.as_ref()?.get(name)?.decode::<String>();
    wire::InterruptData {
        action_request: wire::ActionRequest { action: action(item), args: arguments(item) },
        config: Some(config),
        description: item.message.clone().or_else(|| text_field("description")).unwrap_or_default(),
        interrupt_type: text_field("interrupt_type").unwrap_or_else(|| interrupt_type(item).to_owned()),
        rest,
    }
}

fn action(item: &Pending) -> String {
    match item.kind {
        PendingKind::Approval | PendingKind::Tool => item.name.clone(),
        // For questions the reason serves as the action.
        PendingKind::Input | PendingKind::Auth => item.reason.clone().unwrap_or_else(|| item.name.clone()),
    }
}

/// The arguments, always as an object: anything else is wrapped under the name `arguments`.
fn arguments(item: &Pending) -> Json {
    let arguments = Json::parse(&item.arguments);
    match arguments {
        Some(arguments) if arguments.is_object() => arguments,
        _ if item.arguments.trim().is_empty() => Json::from_serialize(&Extra::new()),
        _ => {
            let mut wrapped = Extra::new();
            wrapped.push("arguments", Json::from_serialize(&item.arguments));
            Json::from_serialize(&wrapped)
        }
    }
}

/// The `interrupt_type` of an item whose payload has none (docs/human-in-the-loop.md#interrupt-data). An approval whose
/// agent sent no `interrupt` extension is `unknown`.
fn interrupt_type(item: &Pending) -> &'static str {
    match item.kind {
        PendingKind::Tool => "tool",
        PendingKind::Input => "input",
        PendingKind::Auth => "auth",
        PendingKind::Approval if item.extension.is_some() => "approval",
        PendingKind::Approval => "unknown",
    }
}
