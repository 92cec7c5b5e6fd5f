//! What a run that stopped still waits for: one canonical form for all protocols (human-in-the-loop page, section 2).
//!
//! Not here: reading the answers and what is open when ([`crate::answer`]), and who may give them (the engine).

pub mod time;

use serde::Serialize;

use crate::event::Millis;
use crate::json::Json;
use crate::model::{self, Content, MessageType, Role};
use crate::run::Run;
use crate::{End, Extra};

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PendingKind {
    /// The result of a call the client has to run.
    Tool,
    /// A decision about a call the agent wants to run.
    Approval,
    /// An answer to a question.
    Input,
    /// A login outside the conversation.
    Auth,
}

/// What may be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Run the call as asked, or go on.
    Accept,
    /// Run it with other arguments.
    Edit,
    /// Do not run it, take this text for its result; or: this is the answer.
    Respond,
    /// Do not run it.
    Reject,
    /// Nobody decided.
    Cancel,
}

impl Decision {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Edit => "edit",
            Self::Respond => "respond",
            Self::Reject => "reject",
            Self::Cancel => "cancel",
        }
    }
}

/// One thing a run waits for.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Pending {
    /// Unique in the session: the call's id for tools, the approval's id for all others.
    pub id: String,
    /// What is waited for.
    pub kind: PendingKind,
    /// The tool; for input and auth the reason.
    pub name: String,
    /// JSON text; for input and auth the payload.
    pub arguments: String,
    /// The MCP server, or what the upstream is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_label: Option<String>,
    /// Open word, kept from the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Prompt for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The call it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// What may be decided. Empty: the source does not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
    /// JSON Schema of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Json>,
    /// RFC 3339 time after which it can only be cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The source's own payload, verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Json>,
    /// The whole `interrupt` extension, verbatim, where the source had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension: Option<Json>,
    /// The message that asked, as it goes back upstream in front of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Json>,
}

#[derive(serde::Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Asked {
    id: Option<String>,
    name: Option<String>,
    arguments: Option<Json>,
    server_label: Option<String>,
    interrupt: Option<Json>,
}

#[derive(serde::Deserialize, Default)]
#[serde(default)]
struct Extension {
    kind: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    call_id: Option<String>,
    decisions: Option<Vec<String>>,
    response_schema: Option<Json>,
    expires_at: Option<String>,
    payload: Option<Json>,
}

impl Pending {
    /// Reads the question out of the data of an `mcp_approval_request`. None if it has no id.
    #[must_use]
    pub fn read(data: &Json) -> Option<Self> {
        let asked: Asked = data.decode()?;
        let text = |json: Option<Json>| {
            json.filter(|json| !json.is_null())
                .map(|json| json.decode::<String>().unwrap_or_else(|| json.text().to_owned()))
        };
        let extension: Extension = asked.interrupt.as_ref().and_then(Json::decode).unwrap_or_default();
        let payload = extension.payload.filter(|payload| !payload.is_null());
        let kind = match extension.kind.as_deref() {
            Some("input") => PendingKind::Input,
            Some("auth") => PendingKind::Auth,
            // Whatever asks in this form is answered in this form, and never let through unasked.
            _ => PendingKind::Approval,
        };
        let words = extension.decisions.unwrap_or_default();
        let mut decisions: Vec<Decision> = words.iter().filter_map(|word| crate::answer::decision_word(word)).collect();
        let mut message = extension.message;
        // A payload of a shape we know says itself what it asks (section 8), where the extension does not.
        if let Some((questions, _)) = payload.as_ref().map(crate::answer::langgraph::read)
            && let Ok([question]) = <[_; 1]>::try_from(questions)
            && question.kind == kind
        {
            if decisions.is_empty() {
                decisions = question.decisions;
            }
            message = message.or(question.message);
        }
        Some(Self {
            id: asked.id.filter(|id| !id.is_empty())?,
            kind,
            name: asked.name.unwrap_or_default(),
            arguments: text(asked.arguments).unwrap_or_default(),
            server_label: asked.server_label,
            reason: extension.reason,
            message,
            call_id: extension.call_id,
            decisions,
            response_schema: extension.response_schema.filter(|schema| !schema.is_null()),
            expires_at: extension.expires_at,
            payload,
            extension: asked.interrupt.filter(Json::is_object),
            request: None,
        })
    }
}

impl Run {
    /// What the last turn that reached the agent still waits for: one function for all adapters (human-in-the-loop page, section 2).
    ///
    /// Every `function_call` and every `mcp_approval_request` in order, minus those with an output or answer later in
    /// the same answer. Nothing after an end that was failed, rejected or canceled, and nothing before the turn ended.
    #[must_use]
    pub fn pending(&self) -> Vec<Pending> {
        self.last_taken().map_or_else(Vec::new, |last| self.pending_of(last))
    }

    /// What a turn was waiting for when it ended, whatever came after.
    #[must_use]
    pub fn pending_of(&self, turn: usize) -> Vec<Pending> {
        if !matches!(self.turns.get(turn).and_then(|turn| turn.end), Some(End::Completed | End::Incomplete)) {
            return Vec::new();
        }
        let mut open: Vec<Pending> = Vec::new();
        for message in self.messages_of(turn) {
            let contents = message.slots.iter();
            match &message.kind {
                MessageType::FunctionCall => open.extend(contents.filter_map(|slot| {
                    let call: model::ToolCall = slot.content().as_data()?.decode()?;
                    Some(Pending::tool(call))
                })),
                MessageType::McpApprovalRequest => open.extend(contents.filter_map(|slot| {
                    let mut item = Pending::read(slot.data()?)?;
                    item.request = Some(Json::from_serialize(&message.to_model()));
                    Some(item)
                })),
                kind if kind.is_output() => {
                    for output in contents.filter_map(crate::run::Slot::output) {
                        open.retain(|item| item.kind != PendingKind::Tool || item.id != output.call_id);
                    }
                }
                MessageType::McpApprovalResponse => {
                    for id in contents.filter_map(|slot| approval_id(slot.data()?)) {
                        open.retain(|item| item.id != id);
                    }
                }
                _ => {}
            }
        }
        open
    }
}

/// The id an answer names. `approval_request_id`, or `id` where clients write only that.
#[must_use]
pub fn approval_id(data: &Json) -> Option<String> {
    let fields: Extra = data.decode()?;
    let named = |name: &str| fields.get(name).and_then(Json::decode::<String>).filter(|id| !id.is_empty());
    named("approval_request_id").or_else(|| named("id"))
}

impl Pending {
    /// A call the client has to run.
    #[must_use]
    pub fn tool(call: model::ToolCall) -> Self {
        Self {
            id: call.call_id.clone(),
            kind: PendingKind::Tool,
            name: call.name,
            arguments: call.arguments,
            server_label: call.server_label,
            reason: None,
            message: None,
            call_id: Some(call.call_id),
            decisions: Vec::new(),
            response_schema: None,
            expires_at: None,
            payload: None,
            extension: None,
            request: None,
        }
    }
}

/// The body of an `mcp_approval_request`, as connectors write it for upstreams that ask in another way.
#[derive(Serialize)]
struct Request<'a> {
    id: &'a str,
    name: &'a str,
    arguments: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_label: Option<&'a str>,
    interrupt: Interrupt<'a>,
}

#[derive(Serialize)]
struct Interrupt<'a> {
    kind: PendingKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<&'a str>,
    #[serde(skip_serializing_if = "<[Decision]>::is_empty")]
    decisions: &'a [Decision],
    #[serde(skip_serializing_if = "Option::is_none")]
    response_schema: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a Json>,
}

impl Pending {
    /// The item as the data of an `mcp_approval_request` (section 2). The extension the source wrote, if any, is kept
    /// as it is.
    #[must_use]
    pub fn to_data(&self) -> Json {
        if let Some(extension) = &self.extension {
            let mut data = Extra::new();
            data.push("id", Json::from_serialize(&self.id));
            data.push("name", Json::from_serialize(&self.name));
            data.push("arguments", Json::from_serialize(&self.arguments));
            if let Some(label) = &self.server_label {
                data.push("server_label", Json::from_serialize(label));
            }
            data.push("interrupt", extension.clone());
            return Json::from_serialize(&data);
        }
        Json::from_serialize(&Request {
            id: &self.id,
            name: &self.name,
            arguments: &self.arguments,
            server_label: self.server_label.as_deref(),
            interrupt: Interrupt {
                kind: self.kind,
                reason: self.reason.as_deref(),
                message: self.message.as_deref(),
                call_id: self.call_id.as_deref(),
                decisions: &self.decisions,
                response_schema: self.response_schema.as_ref(),
                expires_at: self.expires_at.as_deref(),
                payload: self.payload.as_ref(),
            },
        })
    }

    /// The message that asked: as it came, else made from the item. None for tools: their call is in the history.
    #[must_use]
    pub fn request(&self) -> Option<model::Message> {
        if self.kind == PendingKind::Tool {
            return None;
        }
        let kept = self.request.as_ref().and_then(|request| {
            let node = crate::tree::Node::with_path("", request.raw());
            model::Message::read(&node).ok()
        });
        Some(kept.unwrap_or_else(|| {
            let data = Content::new(model::Body::Data(self.to_data()));
            model::Message::new(MessageType::McpApprovalRequest, Some(Role::Assistant), vec![data])
        }))
    }

    /// When it expires. None: never, or nobody can read when.
    #[must_use]
    pub fn expires(&self) -> Option<Millis> {
        self.expires_at.as_deref().and_then(time::read)
    }

    /// True once it can only be cancelled.
    #[must_use]
    pub fn is_expired(&self, now: Millis) -> bool {
        self.expires().is_some_and(|expires| expires <= now)
    }
}
