//! The events that the gateway makes, as clients read them (docs/protocols/ag-ui.md#events). Optional fields are
//! absent, never `null`: clients refuse that.
//!
//! Not here: fragments of texts, which have templates ([`super::writer`]), and events of agents that are passed on
//! ([`super::encode`]).

use interlingua_core::Json;
use serde::Serialize;

/// An event.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
pub(super) enum Event<'a> {
    RunStarted {
        thread_id: &'a str,
        run_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        protocol_version: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_run_id: Option<&'a str>,
    },
    RunFinished {
        thread_id: &'a str,
        run_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Json>,
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<[Usage; 1]>,
    },
    RunError {
        message: &'a str,
        code: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<[Usage; 1]>,
    },
    StepFinished {
        step_name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        subagent_run_id: Option<&'a str>,
    },
    SubagentFinished {
        subagent_run_id: &'a str,
    },
    TextMessageStart {
        message_id: &'a str,
        role: &'a str,
        #[serde(flatten)]
        origin: &'a Origin,
    },
    TextMessageEnd {
        message_id: &'a str,
    },
    ReasoningStart {
        message_id: &'a str,
    },
    ReasoningMessageStart {
        message_id: &'a str,
        role: &'static str,
        #[serde(flatten)]
        origin: &'a Origin,
    },
    ReasoningMessageEnd {
        message_id: &'a str,
    },
    ReasoningEnd {
        message_id: &'a str,
    },
    ReasoningEncryptedValue {
        subtype: &'static str,
        entity_id: &'a str,
        encrypted_value: &'a str,
    },
    ThinkingStart,
    ThinkingTextMessageStart,
    ThinkingTextMessageEnd,
    ThinkingEnd,
    ToolCallStart {
        tool_call_id: &'a str,
        tool_call_name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_message_id: Option<&'a str>,
        #[serde(flatten)]
        origin: &'a Origin,
    },
    ToolCallArgs {
        tool_call_id: &'a str,
        delta: &'a str,
    },
    ToolCallEnd {
        tool_call_id: &'a str,
    },
    ToolCallResult {
        message_id: &'a str,
        tool_call_id: &'a str,
        content: ResultContent<'a>,
        role: &'static str,
    },
    StateSnapshot {
        snapshot: &'a Json,
    },
    MessagesSnapshot {
        messages: &'a [Json],
    },
    Custom {
        name: &'a str,
        value: Json,
    },
}

/// The agent's own fields of a new message or call.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Origin {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subagent_run_id: Option<String>,
}

/// The result of a call: a text, or parts for clients that read them.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum ResultContent<'a> {
    Text(&'a str),
    Parts(&'a [Json]),
}

/// The end of a run that did not fail.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(super) enum Outcome<'a> {
    Success { pending_tool_call_ids: Vec<&'a str> },
    Interrupt { interrupts: Vec<Interrupt> },
    Cancelled,
}

/// Something that the run waits for.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Interrupt {
    pub(super) id: String,
    pub(super) reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_schema: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires_at: Option<String>,
    pub(super) metadata: Json,
}

/// The token usage of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Usage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) total_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cached_input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cache_write_input_tokens: Option<u64>,
}

impl Usage {
    /// From the form of the Agent API. `None`: it has no counts.
    pub(super) fn from_native(usage: &Json) -> Option<Self> {
        let usage: serde_json::Value = usage.decode()?;
        let count = |path: &str| usage.pointer(path).and_then(serde_json::Value::as_u64);
        let usage = Self {
            input_tokens: count("/input_tokens").or_else(|| count("/prompt_tokens")),
            output_tokens: count("/output_tokens").or_else(|| count("/completion_tokens")),
            total_tokens: count("/total_tokens"),
            reasoning_tokens: count("/output_tokens_details/reasoning_tokens"),
            cached_input_tokens: count("/input_tokens_details/cached_tokens"),
            cache_write_input_tokens: count("/input_tokens_details/cache_write_tokens"),
        };
        (usage != Self::default()).then_some(usage)
    }
}
