//! Errors of real servers, each with the class that it has to get in every form.

use interlingua_core::FaultKind as K;
use serde_json::{Value, json};

/// Added to each message: clients never see any of it.
pub(crate) const HIDDEN: &str = "sk-abcdefghijklmnop1234 /srv/agent/main.py";

/// The JSON form of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `{"error":{"message","type","code"}}`
    OpenAi,
    /// `{"type":"error","error":{"type","message"}}`
    Anthropic,
    /// `{"object":"error","message","type","code":400}`
    Flat,
    /// `{"choices":null,"error_type","error_message"}`
    OwnFields,
    /// `{"error":"text"}`
    Text,
    /// `{"detail":"text"}`
    Detail,
    /// `{"detail":[{"loc","msg"}]}`
    DetailList,
    /// `{"message","code"}`
    Message,
    /// `[{"error":{"code":400,"message","status"}}]`
    List,
    /// `{"error":{"message":"{\"error\":{…}}"}}`
    Nested,
    /// `{"status":400,"error":"Bad Request","message"}`
    Framework,
}

/// An error of a server.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) kind: &'static str,
    message: &'static str,
    pub(crate) shape: Shape,
    /// The class with the status.
    pub(crate) class: K,
    /// The class of the JSON inside a 200.
    pub(crate) inside: K,
    /// The class of the code and the text alone.
    pub(crate) coded: K,
    /// The class of the text alone.
    pub(crate) text: K,
}

impl Row {
    pub(crate) fn message(&self) -> String {
        format!("{} {HIDDEN}", self.message)
    }

    /// The most telling word beside the text.
    pub(crate) fn word(&self) -> &'static str {
        if self.code.is_empty() { self.kind } else { self.code }
    }

    pub(crate) fn json(&self) -> Value {
        let message = self.message();
        let or_null = |word: &str| if word.is_empty() { Value::Null } else { Value::from(word) };
        let (code, kind) = (or_null(self.code), or_null(self.kind));
        match self.shape {
            Shape::OpenAi => json!({ "error": { "message": message, "type": kind, "param": null, "code": code } }),
            Shape::Anthropic => json!({ "type": "error", "error": { "type": kind, "message": message } }),
            Shape::Flat => json!({ "object": "error", "message": message, "type": kind, "code": self.status }),
            Shape::OwnFields => json!({ "choices": null, "error_type": kind, "error_message": message }),
            Shape::Text => json!({ "error": message }),
            Shape::Detail => json!({ "detail": message }),
            Shape::DetailList => json!({ "detail": [{ "loc": ["body", "input"], "msg": message, "type": kind }] }),
            Shape::Message => json!({ "message": message, "code": self.word() }),
            Shape::List => {
                json!([{ "error": { "code": self.status, "message": message, "status": self.code } }])
            }
            Shape::Nested => {
                let inner = json!({ "error": { "message": message, "type": kind, "code": code } });
                json!({ "error": { "message": inner.to_string(), "code": null } })
            }
            Shape::Framework => json!({ "status": self.status, "error": "Bad Request", "message": message }),
        }
    }
}

const fn row(
    name: &'static str,
    (status, code, kind): (u16, &'static str, &'static str),
    message: &'static str,
    shape: Shape,
    [class, inside, coded, text]: [K; 4],
) -> Row {
    Row { name, status, code, kind, message, shape, class, inside, coded, text }
}

const INVALID: &str = "invalid_request_error";

/// All classes, in all shapes.
pub(crate) const ROWS: &[Row] = &[
    row(
        "OpenAI: the context is full",
        (400, "context_length_exceeded", INVALID),
        "Your input exceeds the limit of this model.",
        Shape::OpenAi,
        [K::UpstreamContextTooLong, K::UpstreamContextTooLong, K::UpstreamContextTooLong, K::AgentFailed],
    ),
    row(
        "Anthropic: the context is full",
        (400, "", INVALID),
        "prompt is too long: 213462 tokens > 200000 maximum",
        Shape::Anthropic,
        [K::UpstreamContextTooLong; 4],
    ),
    row(
        "the context is full, in fields of their own",
        (400, "", "BadRequestError"),
        "context length is 4096",
        Shape::OwnFields,
        [K::UpstreamContextTooLong; 4],
    ),
    row(
        "vLLM: the context is full",
        (400, "", "BadRequestError"),
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
        Shape::Flat,
        [K::UpstreamContextTooLong; 4],
    ),
    row(
        "Ollama: the context is full",
        (500, "", ""),
        "the input length exceeds the context length",
        Shape::Text,
        [K::UpstreamContextTooLong; 4],
    ),
    row(
        "Gemini: the context is full",
        (400, "INVALID_ARGUMENT", ""),
        "The input token count (1304812) exceeds the maximum number of tokens allowed (1048576).",
        Shape::List,
        [K::UpstreamContextTooLong; 4],
    ),
    row(
        "a gateway that repeats an error as text",
        (400, "context_length_exceeded", INVALID),
        "Too much.",
        Shape::Nested,
        [K::UpstreamContextTooLong, K::UpstreamContextTooLong, K::UpstreamContextTooLong, K::AgentFailed],
    ),
    row(
        "a schema that is wrong",
        (400, "invalid_function_parameters", INVALID),
        "Invalid schema for function 'look'.",
        Shape::OpenAi,
        [K::UpstreamRefused, K::UpstreamRefused, K::UpstreamRefused, K::AgentFailed],
    ),
    row(
        "a field that is missing",
        (422, "", "missing"),
        "Field required",
        Shape::DetailList,
        [K::UpstreamRefused, K::AgentFailed, K::AgentFailed, K::AgentFailed],
    ),
    row(
        "a framework's refusal",
        (400, "", ""),
        "the field 'x' is unknown",
        Shape::Framework,
        [K::UpstreamRefused, K::UpstreamRefused, K::AgentFailed, K::AgentFailed],
    ),
    row(
        "OpenAI: no such model",
        (404, "model_not_found", INVALID),
        "The model `x` does not exist or you do not have access to it.",
        Shape::OpenAi,
        [K::UpstreamNoSuchModel, K::UpstreamNoSuchModel, K::UpstreamNoSuchModel, K::AgentFailed],
    ),
    row(
        "vLLM: no such model",
        (404, "", "NotFoundError"),
        "The model `x` does not exist.",
        Shape::Flat,
        [K::UpstreamNoSuchModel, K::UpstreamNoSuchModel, K::AgentFailed, K::AgentFailed],
    ),
    row(
        "no such page",
        (404, "", ""),
        "Not Found",
        Shape::Detail,
        [K::UpstreamMisconfigured, K::AgentFailed, K::AgentFailed, K::AgentFailed],
    ),
    row(
        "OpenAI: the key is wrong",
        (401, "invalid_api_key", INVALID),
        "Incorrect API key provided.",
        Shape::OpenAi,
        [K::UpstreamCredentials; 4],
    ),
    row(
        "Gemini: the key is wrong",
        (400, "INVALID_ARGUMENT", ""),
        "API key not valid. Please pass a valid API key.",
        Shape::List,
        [K::UpstreamCredentials; 4],
    ),
    row(
        "Anthropic: the key may not",
        (403, "", "permission_error"),
        "Your key does not have permission to use the specified resource.",
        Shape::Anthropic,
        [K::UpstreamCredentials, K::UpstreamCredentials, K::UpstreamCredentials, K::AgentFailed],
    ),
    row(
        "OpenAI: too many requests",
        (429, "rate_limit_exceeded", "tokens"),
        "Rate limit reached for m. Please try again in 20s.",
        Shape::OpenAi,
        [K::UpstreamRateLimited; 4],
    ),
    row(
        "OpenAI: the quota is used up",
        (429, "insufficient_quota", "insufficient_quota"),
        "You exceeded your current quota, please check your plan and billing details.",
        Shape::OpenAi,
        [K::UpstreamQuota; 4],
    ),
    row(
        "nothing was paid",
        (402, "", ""),
        "Payment Required",
        Shape::Detail,
        [K::UpstreamQuota, K::AgentFailed, K::AgentFailed, K::AgentFailed],
    ),
    row(
        "Anthropic: the request is too large",
        (413, "", "request_too_large"),
        "Request exceeds the maximum size",
        Shape::Anthropic,
        [K::UpstreamInputTooLarge, K::UpstreamInputTooLarge, K::UpstreamInputTooLarge, K::AgentFailed],
    ),
    row(
        "Groq: more than fits into a minute",
        (413, "rate_limit_exceeded", "tokens"),
        "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 7000.",
        Shape::OpenAi,
        [K::UpstreamInputTooLarge; 4],
    ),
    row(
        "Azure: the filter refused",
        (400, "content_filter", ""),
        "The response was filtered due to the prompt triggering the content management policy.",
        Shape::OpenAi,
        [K::UpstreamFiltered; 4],
    ),
    row(
        "a model without eyes",
        (400, "", "BadRequest"),
        "this model does not support image input",
        Shape::Message,
        [K::UpstreamUnsupportedMedia; 4],
    ),
    row(
        "Anthropic: overloaded",
        (529, "", "overloaded_error"),
        "Overloaded",
        Shape::Anthropic,
        [K::UpstreamOverloaded, K::UpstreamOverloaded, K::UpstreamOverloaded, K::AgentFailed],
    ),
    row(
        "no model is loaded yet",
        (503, "", ""),
        "Loading model",
        Shape::Flat,
        [K::UpstreamOverloaded, K::UpstreamOverloaded, K::AgentFailed, K::AgentFailed],
    ),
    row(
        "the model crashed",
        (500, "server_error", "server_error"),
        "CUDA out of memory",
        Shape::OpenAi,
        [K::AgentFailed; 4],
    ),
    row("the server behind a proxy crashed", (502, "", ""), "upstream connect error", Shape::Text, [K::AgentFailed; 4]),
    row(
        "the model took too long",
        (504, "timeout", ""),
        "the model did not answer",
        Shape::OpenAi,
        [K::UpstreamTimeout, K::UpstreamTimeout, K::UpstreamTimeout, K::AgentFailed],
    ),
];
