//! Parses requests (docs/protocols/chat-completions.md#request) into agent requests. Every error names its field, and
//! no field is dropped silently.
//!
//! Here: the fields of a request. `messages` and `parts` parse the conversation, `tools` tools and formats. Not here:
//! which session the conversation belongs to, which the engine decides.

mod messages;
mod parts;
mod tools;

pub(crate) use messages::{Conversation, LastAnswer, unmatched};

use interlingua_adapter_kit::model_options::IgnoreOrRefuse;
use interlingua_adapter_kit::openai_error::missing;
use interlingua_core::answer::chat::ApprovalForm;
use interlingua_core::loss::Losses;
use interlingua_core::model::{AgentRequest, Message, Sampling, Stop};
use interlingua_core::tree::fields::{at_least, choice, metadata, number_in_range, text};
use interlingua_core::tree::{Kind, Object};
use interlingua_core::{Fault, FaultKind, Json};
use serde_json::json;

use crate::echo::Echo;
use crate::fault::unsupported_value;
use crate::options::Options;

/// A parsed and validated request.
#[derive(Debug)]
pub(crate) struct ChatRequest {
    /// The fields of the request that the answer needs.
    pub(crate) echo: Echo,
    /// The request to the agent, without its input.
    pub(crate) request: AgentRequest,
    /// The messages.
    pub(crate) conversation: Conversation,
    /// Whether the client wants a stream.
    pub(crate) stream: bool,
    /// The unchanged messages, if the client wants to find the completion again.
    pub(crate) stored: Option<Json>,
    /// The content that is not passed on.
    pub(crate) losses: Losses,
}

/// Name of the attachment of a stored completion that has its messages.
pub(crate) const MESSAGES: &str = "messages";

/// All known fields, including those without effect.
const KNOWN_FIELDS: &[&str] = &[
    "model",
    "messages",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "functions",
    "function_call",
    "response_format",
    "max_completion_tokens",
    "max_tokens",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
    "n",
    "reasoning_effort",
    "verbosity",
    "store",
    "metadata",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "modalities",
    "audio",
    "service_tier",
    "web_search_options",
    "prediction",
    "moderation",
    "prompt_cache_options",
    "prompt_cache_retention",
];

impl ChatRequest {
    /// Parses a request.
    ///
    /// # Errors
    /// The first invalid field, by its path.
    pub(crate) fn parse(object: &Object<'_>, options: &Options) -> Result<Self, Fault> {
        let model = text(object, "model")?.filter(|model| !model.is_empty()).ok_or_else(|| missing("model"))?;
        let mut request = AgentRequest::default();
        refuse_unsupported(object, options)?;

        let mut echo = Echo { model, approvals: options.approvals, ..Echo::default() };
        let stream = object.boolean("stream")?.unwrap_or(false);
        if let Some(node) = object.get("stream_options") {
            let stream_options = node.object()?;
            stream_options.boolean("include_obfuscation")?;
            echo.include_usage = stream_options.boolean("include_usage")?.unwrap_or(false);
        }

        let mut losses = Losses::new();
        let mut instructions = Vec::new();
        settings(object, &mut echo, &mut request)?;
        tools::parse(object, options, &mut echo, &mut request, &mut losses)?;
        // The deprecated form has room for one call, which is the agent's.
        if echo.functions && echo.approvals != ApprovalForm::Refuse {
            echo.approvals = ApprovalForm::Text;
        }
        instructions.extend(tools::parse_format(object, options, &mut request)?);
        forward_unknown(object, options, &mut request)?;
        if options.forward_model {
            request.model = Some(echo.model.clone());
        }

        let node = object.get("messages").ok_or_else(|| missing("messages"))?;
        let store = object.boolean("store")?.unwrap_or(false) && options.stored_completions.0;
        let stored = store.then(|| node.to_json());
        let mut conversation = messages::parse(&node, options)?;
        instructions.append(&mut conversation.instructions);
        conversation.instructions = instructions;
        Ok(Self { echo, request, conversation, stream, stored, losses })
    }

    /// Instructions for this request only.
    pub(crate) fn take_instructions(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.conversation.instructions)
    }
}

/// Refuses what cannot be honored and, if the options say so, unknown fields.
fn refuse_unsupported(object: &Object<'_>, options: &Options) -> Result<(), Fault> {
    if at_least(object, "n", 1)?.is_some_and(|samples| samples > 1) {
        return Err(unsupported_value("n", "an agent gives one answer: 'n' must be 1"));
    }
    if object.get("input").is_some() && object.get("messages").is_none() {
        return Err(Fault::unsupported("input", "use 'messages' instead of 'input'"));
    }
    if object.get("web_search_options").is_some() && options.hosted_tools == IgnoreOrRefuse::Refuse {
        return Err(Fault::unsupported("web_search_options", "hosted tools are not supported on this route"));
    }

    let is_known = |name: &str| {
        KNOWN_FIELDS.contains(&name)
            || options.forward_fields.iter().any(|known| known == name)
            || options.session.iter().any(|known| known.split('.').next() == Some(name))
    };
    if options.unknown_fields == IgnoreOrRefuse::Refuse
        && let Some((name, _)) = object.iter().find(|(name, _)| !is_known(name))
    {
        return Err(Fault::new(FaultKind::Unsupported, format!("unknown parameter: '{name}'")).with_field(name));
    }
    Ok(())
}

/// Fields beyond the protocol that the route passes on.
fn forward_unknown(object: &Object<'_>, options: &Options, request: &mut AgentRequest) -> Result<(), Fault> {
    for name in &options.forward_fields {
        if let Some(node) = object.get(name) {
            request.extra.set(name.as_str(), node.to_json());
        }
    }
    Ok(())
}

/// Validates settings and forwards them to the agent: in its own fields where it has them, else as extra fields of the
/// same name.
fn settings(object: &Object<'_>, echo: &mut Echo, request: &mut AgentRequest) -> Result<(), Fault> {
    let max_tokens = at_least(object, "max_completion_tokens", 1)?;
    let deprecated = at_least(object, "max_tokens", 1)?;
    request.sampling = Sampling {
        temperature: number_in_range(object, "temperature", 0.0, 2.0)?,
        top_p: number_in_range(object, "top_p", 0.0, 1.0)?,
        presence_penalty: number_in_range(object, "presence_penalty", -2.0, 2.0)?,
        frequency_penalty: number_in_range(object, "frequency_penalty", -2.0, 2.0)?,
        max_tokens: max_tokens.or(deprecated),
        seed: object.integer("seed")?,
        stop: stop(object)?,
        n: None,
    };

    if let Some(top) = at_least(object, "top_logprobs", 0)?
        && top > 20
    {
        return Err(Fault::invalid("top_logprobs", "must be between 0 and 20"));
    }
    object.boolean("logprobs")?;
    object.boolean("parallel_tool_calls")?;
    object.get("logit_bias").map(|node| node.object()).transpose()?;
    for name in ["logprobs", "top_logprobs", "logit_bias", "parallel_tool_calls"] {
        if let Some(node) = object.get(name) {
            request.extra.set(name, node.to_json());
        }
    }

    let efforts = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
    if let Some(effort) = choice(object, "reasoning_effort", &efforts)? {
        request.extra.set("reasoning", Json::from_serialize(&json!({ "effort": effort })));
    }
    modalities(object, echo, request)?;

    echo.service_tier = text(object, "service_tier")?.is_some();
    echo.metadata = metadata(object)?;
    if !echo.metadata.is_empty() {
        request.extra.set("metadata", Json::from_serialize(&echo.metadata));
    }
    text(object, "prompt_cache_key")?;
    let safety_identifier = text(object, "safety_identifier")?;
    let user = text(object, "user")?;
    request.user_id = safety_identifier.or(user).filter(|user| !user.is_empty());
    Ok(())
}

/// Up to four stop sequences.
fn stop(object: &Object<'_>) -> Result<Option<Stop>, Fault> {
    let Some(node) = object.get("stop") else { return Ok(None) };
    match node.kind() {
        Kind::String => Ok(Some(Stop::One(node.string()?.into_owned()))),
        Kind::Array => {
            let words = node.array()?.parse_each(|word| Ok(word.string()?.into_owned()))?;
            if words.len() > 4 {
                return Err(node.invalid("must have at most 4 stop sequences"));
            }
            Ok((!words.is_empty()).then_some(Stop::Many(words)))
        }
        _ => Err(node.wrong_type("a string or a list of strings")),
    }
}

fn modalities(object: &Object<'_>, echo: &mut Echo, request: &mut AgentRequest) -> Result<(), Fault> {
    for node in object.array("modalities")? {
        let word = node.string()?;
        if !matches!(word.as_ref(), "text" | "audio") {
            return Err(node.invalid("must be one of 'text', 'audio'"));
        }
        echo.audio |= word == "audio";
    }
    object.get("audio").map(|node| node.object()).transpose()?;
    for name in ["modalities", "audio"] {
        if let Some(node) = object.get(name) {
            request.extra.set(name, node.to_json());
        }
    }
    Ok(())
}

/// The session that a request names: the first present one of the route's headers and fields.
pub(crate) fn session<'h>(
    object: &Object<'_>,
    header: impl Fn(&str) -> Option<&'h str>,
    options: &Options,
) -> Result<Option<String>, Fault> {
    for name in &options.session {
        let named = if name.contains('-') { header(name).map(str::to_owned) } else { field(object, name)? };
        if let Some(session) = named.filter(|session| !session.is_empty()) {
            return Ok(Some(session));
        }
    }
    Ok(None)
}

fn field(object: &Object<'_>, path: &str) -> Result<Option<String>, Fault> {
    match path.split_once('.') {
        None => text(object, path),
        Some((first, rest)) => match object.get(first) {
            Some(node) if node.kind() == Kind::Object => field(&node.object()?, rest),
            _ => Ok(None),
        },
    }
}
