//! What was said, in the form of LangChain's messages (section 7, «Serving»).

use interlingua_core::json::Json;
use interlingua_core::model::{self, Body, MessageType, Role};
use interlingua_core::pending::{Decision, Pending, PendingKind};
use interlingua_core::{Extra, answer};

use crate::{Reasoning, wire};

/// Messages told one after the other.
pub(crate) struct Teller {
    reasoning: Reasoning,
    messages: Vec<wire::Message>,
    /// Reasoning that belongs to the next `ai` message.
    thoughts: String,
    /// Whether the last message takes further calls: parallel calls share one message.
    takes_calls: bool,
}

impl Teller {
    pub(crate) const fn new(reasoning: Reasoning) -> Self {
        Self { reasoning, messages: Vec::new(), thoughts: String::new(), takes_calls: false }
    }

    /// Tells one message.
    pub(crate) fn tell(&mut self, id: Option<&str>, message: &model::Message) {
        let id = message.id.as_deref().filter(|id| !id.is_empty()).or(id);
        match &message.kind {
            MessageType::Reasoning if self.reasoning == Reasoning::Kwargs => {
                if !self.thoughts.is_empty() {
                    self.thoughts.push_str("\n\n");
                }
                self.thoughts.push_str(&message.text());
            }
            MessageType::Message => {
                let text = text_of(message);
                match message.role.as_ref().unwrap_or(&Role::User) {
                    Role::User => {
                        // What was thought and led to nothing is told by itself.
                        self.finish_thoughts();
                        self.push("human", text, id);
                    }
                    Role::System => {
                        self.push("system", text, id);
                    }
                    Role::Assistant => self.push_ai(text, id),
                    // A tool's word without a call: no agent in use means anything by it.
                    Role::Tool | Role::Other(_) => {}
                }
            }
            kind if kind.is_call() => message.calls().for_each(|call| self.call(call, id)),
            kind if kind.is_output() => message.outputs().for_each(|output| self.output(output, id)),
            _ => {}
        }
    }

    /// Everything that was told.
    pub(crate) fn finish(mut self) -> wire::Conversation {
        self.finish_thoughts();
        wire::Conversation { messages: self.messages }
    }

    fn push(&mut self, kind: &'static str, content: String, id: Option<&str>) -> &mut wire::Message {
        self.takes_calls = false;
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
        let thoughts = std::mem::take(&mut self.thoughts);
        let message = self.push("ai", content, id);
        message.additional_kwargs.reasoning_content = Some(thoughts).filter(|thoughts| !thoughts.is_empty());
        message.ai = Some(wire::Ai::default());
    }

    fn finish_thoughts(&mut self) {
        if !self.thoughts.is_empty() {
            self.push_ai(String::new(), None);
        }
    }

    fn call(&mut self, call: model::ToolCall, id: Option<&str>) {
        if !self.takes_calls {
            self.push_ai(String::new(), id);
            self.takes_calls = true;
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

    fn output(&mut self, output: model::ToolOutput, id: Option<&str>) {
        let message = self.push("tool", output.output, id);
        message.name = output.name;
        message.tool = Some(wire::Tool { tool_call_id: output.call_id, artifact: None, status: "success" });
    }
}

/// The texts of a message; media as Markdown links where they have one, since clients show `content` as text.
fn text_of(message: &model::Message) -> String {
    let mut text = String::new();
    for content in &message.content {
        let (label, url, mark) = match &content.body {
            Body::Text(said) | Body::Refusal(said) => {
                text.push_str(said);
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
            let plain = |letter: char| !letter.is_whitespace() && !matches!(letter, '(' | ')' | '<' | '>');
            (url.starts_with("https://") || url.starts_with("http://")) && url.chars().all(plain)
        };
        if let Some(url) = url.filter(is_link) {
            text.push_str(&format!("{mark}[{label}]({url})"));
        }
    }
    text
}

/// The question, as `interrupt_data` (human-in-the-loop page, sections 5 and 7).
pub(crate) fn interrupt_data(item: &Pending, approval_extension: bool) -> wire::InterruptData {
    let offered = answer::offer(item, answer::taken(item, approval_extension));
    let has = |decision| offered.contains(&decision);
    let config = wire::Config {
        allow_accept: has(Decision::Accept),
        allow_edit: has(Decision::Edit),
        allow_respond: has(Decision::Respond),
        allow_ignore: has(Decision::Reject) || has(Decision::Cancel),
    };
    let mut rest = Extra::new();
    let payload: Option<Extra> = item.payload.as_ref().filter(|payload| payload.is_object()).and_then(Json::decode);
    match (&payload, &item.payload) {
        // The source's own form is this one: what it has besides goes along.
        (Some(payload), _) if payload.get("action_request").is_some() => {
            let named = ["action_request", "config", "description", "interrupt_type"];
            payload
                .iter()
                .filter(|(name, _)| !named.contains(name))
                .for_each(|(name, value)| rest.push(name, value.clone()));
        }
        (_, Some(payload)) => rest.push("payload", payload.clone()),
        (_, None) => {}
    }
    if let Some(schema) = &item.response_schema {
        rest.push("response_schema", schema.clone());
    }
    let word = |name: &str| payload.as_ref()?.get(name)?.decode::<String>();
    wire::InterruptData {
        action_request: wire::ActionRequest { action: action(item), args: arguments(item) },
        config: Some(config),
        description: item.message.clone().or_else(|| word("description")).unwrap_or_default(),
        interrupt_type: word("interrupt_type").unwrap_or_else(|| interrupt_type(item).to_owned()),
        rest,
    }
}

fn action(item: &Pending) -> String {
    match item.kind {
        PendingKind::Approval | PendingKind::Tool => item.name.clone(),
        // For questions the action is the reason.
        PendingKind::Input | PendingKind::Auth => item.reason.clone().unwrap_or_else(|| item.name.clone()),
    }
}

/// The arguments, always an object: what is none is shown under a name.
fn arguments(item: &Pending) -> Json {
    let arguments = Json::parse(&item.arguments);
    match arguments {
        Some(arguments) if arguments.is_object() => arguments,
        _ if item.arguments.trim().is_empty() => Json::from_serialize(&Extra::new()),
        _ => {
            let mut named = Extra::new();
            named.push("arguments", Json::from_serialize(&item.arguments));
            Json::from_serialize(&named)
        }
    }
}

fn interrupt_type(item: &Pending) -> &'static str {
    match item.kind {
        PendingKind::Tool => "tool",
        PendingKind::Input => "input",
        PendingKind::Auth => "auth",
        PendingKind::Approval if item.extension.is_some() => "approval",
        PendingKind::Approval => "unknown",
    }
}
