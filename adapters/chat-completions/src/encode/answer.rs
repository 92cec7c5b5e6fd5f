//! A whole answer: what a client gets without streaming, and what is compared with the history that it sends back.

use interlingua_core::json::is_same_value;
use interlingua_core::{Extra, Json};
use serde::Serialize;
use serde_json::{Value, json};

use super::frames::Envelope;

/// The content of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) content: String,
    pub(crate) refusal: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<Call>,
    pub(crate) annotations: Vec<Json>,
    pub(crate) images: Vec<Image>,
    pub(crate) audio: Option<Audio>,
}

/// A call that the client runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    /// JSON text; for a custom tool the free text.
    pub(crate) arguments: String,
    pub(crate) custom: bool,
    /// Data that the agent's server expects back with the call, such as a signature.
    pub(crate) extra_content: Option<Json>,
}

/// An image whose bytes are inline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Image {
    #[serde(rename = "type")]
    kind: &'static str,
    image_url: Url,
    index: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Url {
    url: String,
}

impl Image {
    pub(crate) fn new(url: String, index: usize) -> Self {
        Self { kind: "image_url", image_url: Url { url }, index }
    }
}

/// A spoken answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Audio {
    pub(crate) id: String,
    /// Base64.
    pub(crate) data: String,
    pub(crate) expires_at: u64,
    pub(crate) transcript: String,
}

/// The fields that contain the reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReasoningFields {
    pub(crate) reasoning_content: bool,
    pub(crate) reasoning: bool,
}

/// A whole completion.
#[derive(Serialize)]
pub(crate) struct Completion<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: [Choice<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_tier: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a Extra>,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u8,
    message: Message<'a>,
    logprobs: Option<()>,
    finish_reason: &'static str,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Option<&'a str>,
    refusal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<Value>,
    #[serde(skip_serializing_if = "<[Json]>::is_empty")]
    annotations: &'a [Json],
    #[serde(skip_serializing_if = "<[Image]>::is_empty")]
    images: &'a [Image],
    #[serde(skip_serializing_if = "Option::is_none")]
    audio: Option<&'a Audio>,
}

impl<'a> Completion<'a> {
    pub(crate) fn new(
        envelope: &'a Envelope,
        answer: &'a Answer,
        fields: ReasoningFields,
        functions: bool,
        finish_reason: &'static str,
    ) -> Self {
        let filled = |text: &'a str| (!text.is_empty()).then_some(text);
        let reasoning = filled(&answer.reasoning);
        let first = answer.calls.first().filter(|_| functions);
        let message = Message {
            role: "assistant",
            content: filled(&answer.content),
            refusal: filled(&answer.refusal),
            reasoning_content: reasoning.filter(|_| fields.reasoning_content),
            reasoning: reasoning.filter(|_| fields.reasoning),
            tool_calls: if functions { Vec::new() } else { answer.calls.iter().map(Call::to_wire).collect() },
            function_call: first.map(|call| json!({ "name": call.name, "arguments": call.arguments })),
            annotations: &answer.annotations,
            images: &answer.images,
            audio: answer.audio.as_ref(),
        };
        Self {
            id: &envelope.id,
            object: "chat.completion",
            created: envelope.created,
            model: &envelope.model,
            choices: [Choice { index: 0, message, logprobs: None, finish_reason }],
            usage: None,
            service_tier: envelope.service_tier.then_some("default"),
            metadata: None,
        }
    }

    pub(crate) fn with_usage(self, usage: Option<&'a Json>) -> Self {
        Self { usage, ..self }
    }

    pub(crate) fn with_metadata(self, metadata: Option<&'a Extra>) -> Self {
        Self { metadata, ..self }
    }
}

impl Call {
    fn to_wire(&self) -> Value {
        let mut call = if self.custom {
            json!({ "id": self.id, "type": "custom", "custom": { "name": self.name, "input": self.arguments } })
        } else {
            json!({ "id": self.id, "type": "function", "function": { "name": self.name, "arguments": self.arguments } })
        };
        if let Some(extra) = &self.extra_content {
            call["extra_content"] = json!(extra);
        }
        call
    }

    /// True if a client sends this call back as that one. Some write the arguments again, so they are compared as JSON;
    /// the deprecated form has no ids.
    pub(crate) fn is_same(&self, sent: &Self) -> bool {
        let same_arguments = is_same_value(&self.arguments, &sent.arguments);
        (self.id == sent.id || sent.id.is_empty()) && self.name == sent.name && same_arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_compared_by_meaning() {
        let call = |id: &str, arguments: &str| Call {
            id: id.into(),
            name: "f".into(),
            arguments: arguments.into(),
            ..Call::default()
        };
        let shown = call("a", r#"{"x": 1, "y": [2]}"#);
        assert!(shown.is_same(&call("a", r#"{"y":[2],"x":1}"#)) && shown.is_same(&call("", r#"{"x": 1, "y": [2]}"#)));
        assert!(!shown.is_same(&call("b", r#"{"x":1,"y":[2]}"#)) && !shown.is_same(&call("a", r#"{"x":2,"y":[2]}"#)));
        assert!(call("a", "{\"x").is_same(&call("a", "{\"x")), "text that is no JSON is compared as it is");
    }
}
