//! The pending items of a stopped run: one canonical form for all protocols (docs/human-in-the-loop.md#canonical-form).
//!
//! Not here: processing answers and tracking open items ([`crate::answer`]), and the right to answer (the engine).

mod parse;

use serde::Serialize;

use crate::event::Millis;
use crate::json::Json;
use crate::model::{self, Content, MessageType, Role};
use crate::run::Run;
use crate::{End, Extra};

/// The kind of a pending item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PendingKind {
    /// The result of a call that the client has to run.
    Tool,
    /// A decision on a call that the agent wants to run.
    Approval,
    /// An answer to a question.
    Input,
    /// A login outside of the conversation.
    Auth,
}

/// A decision on a pending item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Run the call as requested, or continue.
    Accept,
    /// Run the call with other arguments.
    Edit,
    /// Do not run the call but use this text as its result; or the answer to a question.
    Respond,
    /// Do not run the call.
    Reject,
    /// No one decided.
    Cancel,
}

impl Decision {
    /// The value on the wire.
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

/// The decision that a single word denotes, case-insensitive. `None`: not a decision.
#[must_use]
pub fn decision_word(word: &str) -> Option<Decision> {
    let word = word.trim();
    // The longest word, so that a long text is rejected without copying it.
    if word.len() > "cancelled".len() {
        return None;
    }

    Some(match word.to_ascii_lowercase().as_str() {
        "accept" | "approve" | "approved" | "yes" | "ok" => Decision::Accept,
        "edit" => Decision::Edit,
        "respond" | "response" => Decision::Respond,
        "reject" | "rejected" | "deny" | "denied" | "no" => Decision::Reject,
        "ignore" | "cancel" | "cancelled" => Decision::Cancel,
        _ => return None,
    })
}

/// An item that a run waits for.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Pending {
    /// Unique in the session: the call's id for tools, the approval's id for all others.
    pub id: String,
    /// The kind of answer that the item needs.
    pub kind: PendingKind,
    /// Tool name; for input and auth the reason.
    pub name: String,
    /// Arguments as JSON text; for input and auth the payload.
    pub arguments: String,
    /// The MCP server, or the upstream's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_label: Option<String>,
    /// The source's reason, an open vocabulary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Prompt for the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Id of the call it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// Allowed decisions. Empty: the source does not list any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
    /// JSON Schema of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Json>,
    /// Expiry as an RFC 3339 time. Afterwards the item can only be cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The source's payload, verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Json>,
    /// The complete `interrupt` extension, verbatim, if the source sent one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension: Option<Json>,
    /// The message that asked, which is sent upstream again in front of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Json>,
}

impl Run {
    /// The pending items of the last turn that reached the agent. All adapters use this function
    /// (docs/human-in-the-loop.md#pending-items).
    ///
    /// Every `function_call` and every `mcp_approval_request` in order, except those with an output or answer later in
    /// the same turn. Empty if the turn failed, was rejected or canceled, or has not ended.
    #[must_use]
    pub fn pending(&self) -> Vec<Pending> {
        self.last_effective_turn().map_or_else(Vec::new, |last| self.pending_of(last))
    }

    /// The pending items of a turn at its end, independent of later turns.
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
                    let mut item = Pending::parse(slot.data()?)?;
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

/// The id that an answer refers to: `approval_request_id`, or `id` from clients that send only that.
#[must_use]
pub fn approval_id(data: &Json) -> Option<String> {
    let fields: Extra = data.decode()?;
    let named = |name: &str| fields.get(name).and_then(Json::decode::<String>).filter(|id| !id.is_empty());
    named("approval_request_id").or_else(|| named("id"))
}

impl Pending {
    /// A call that the client has to run.
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

/// The data of an `mcp_approval_request`, for connectors whose upstreams ask in another form.
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
    /// The item as the data of an `mcp_approval_request` (docs/human-in-the-loop.md#canonical-form). The source's
    /// extension is used verbatim if there is one.
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

    /// The message that asked: the original, else one made from the item. `None` for tools: their call is in the
    /// history.
    #[must_use]
    pub fn request(&self) -> Option<model::Message> {
        if self.kind == PendingKind::Tool {
            return None;
        }

        let original = self.request.as_ref().and_then(|request| {
            let node = crate::tree::Node::with_path("", request.raw());
            model::Message::parse(&node).ok()
        });
        Some(original.unwrap_or_else(|| {
            let data = Content::new(model::Body::Data(self.to_data()));
            model::Message::new(MessageType::McpApprovalRequest, Some(Role::Assistant), vec![data])
        }))
    }

    /// When the item expires. `None`: never, or the time is not valid.
    #[must_use]
    pub fn expires(&self) -> Option<Millis> {
        self.expires_at.as_deref().and_then(crate::time::parse_rfc3339)
    }

    /// True if the item can only be cancelled.
    #[must_use]
    pub fn is_expired(&self, now: Millis) -> bool {
        self.expires().is_some_and(|expires| expires <= now)
    }
}
