//! Parses requests (docs/protocols/responses.md#request) into agent requests
//! (docs/protocols/responses.md#what-the-agent-receives). Every error names its field, and no field is dropped
//! silently.
//!
//! Here: the fields of a request. `items` and `parts` parse the input, `tools` parses tools and formats. Not here:
//! lookups. What has to be looked up before the agent is called is returned as [`InputEntry`]s.

mod items;
mod parts;
pub(crate) mod tools;

pub(crate) use interlingua_core::tree::fields::metadata;
pub(crate) use items::{InputEntry, encode_compaction, original_item, parse_items};

use interlingua_adapter_kit::openai_error::missing;
use interlingua_core::model::{AgentRequest, Message, Sampling};
use interlingua_core::tree::fields::{at_least, choice, number_in_range, text};
use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Extra, Fault, FaultKind, Json, RunId};

use crate::echo::Echo;
use crate::fault::previous_not_found;
use crate::ids;
use crate::options::{IgnoreOrRefuse, Options, ReasoningInput};

/// A parsed and validated request to create a response.
#[derive(Debug)]
pub(crate) struct CreateRequest {
    /// The settings that the response repeats.
    pub(crate) echo: Echo,
    /// The request to the agent. Its input is empty until `entries` are resolved.
    pub(crate) request: AgentRequest,
    /// Instructions for this turn only.
    pub(crate) preamble: Vec<Message>,
    /// The input, with references that have to be looked up.
    pub(crate) entries: Vec<InputEntry>,
    /// The previous response: its run, and its id as the client wrote it.
    pub(crate) previous: Option<(RunId, String)>,
    /// Id of the conversation it belongs to.
    pub(crate) conversation: Option<String>,
    /// Whether the client wants a stream.
    pub(crate) stream: bool,
}

/// All known fields, including those without effect.
const KNOWN_FIELDS: &[&str] = &[
    "model",
    "input",
    "instructions",
    "stream",
    "stream_options",
    "store",
    "background",
    "previous_response_id",
    "conversation",
    "metadata",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_tool_calls",
    "text",
    "reasoning",
    "temperature",
    "top_p",
    "max_output_tokens",
    "top_logprobs",
    "presence_penalty",
    "frequency_penalty",
    "truncation",
    "include",
    "safety_identifier",
    "user",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
    "prompt",
    "context_management",
    "prompt_cache_options",
    "moderation",
    "access_programs",
    "image",
    // Only over a WebSocket (docs/protocols/responses.md#websocket).
    "type",
    "stream_id",
    "generate",
];

/// Fields of Chat Completions and their names in this API. A client that sends one confuses the two APIs.
const CHAT_COMPLETIONS_FIELDS: &[(&str, &str)] = &[
    ("messages", "input"),
    ("max_tokens", "max_output_tokens"),
    ("max_completion_tokens", "max_output_tokens"),
    ("response_format", "text.format"),
    ("reasoning_effort", "reasoning.effort"),
    ("functions", "tools"),
    ("function_call", "tool_choice"),
];

/// The purpose of a request. Decides whether `model` is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To call an agent.
    Run,
    /// To count or compact the context without calling the agent.
    Inspect {
        /// Whether `model` is required.
        model_required: bool,
    },
}

impl CreateRequest {
    /// Parses a request.
    ///
    /// # Errors
    /// The first invalid field, by its path.
    pub(crate) fn parse(object: &Object<'_>, options: &Options, purpose: Purpose) -> Result<Self, Fault> {
        let model = match (text(object, "model")?, purpose) {
            (Some(model), _) => model,
            (None, Purpose::Inspect { model_required: false }) => String::new(),
            (None, _) => return Err(missing("model")),
        };
        refuse_unsupported(object, options)?;

        let mut echo = Echo { model, store: object.boolean("store")?.unwrap_or(true), ..Echo::default() };
        echo.background = object.boolean("background")?.unwrap_or(false);
        if echo.background && !options.background.0 {
            return Err(Fault::unsupported("background", "background responses are disabled on this route"));
        }
        if echo.background && !echo.store {
            return Err(Fault::invalid("store", "must not be false with 'background': true"));
        }

        let stream = object.boolean("stream")?.unwrap_or(false);
        if let Some(node) = object.get("stream_options") {
            node.object()?.boolean("include_obfuscation")?;
        }

        let (previous, conversation) = chain(object, options)?;
        echo.previous_response_id = previous.as_ref().map(|(_, id)| id.clone());
        echo.conversation.clone_from(&conversation);
        echo.metadata = metadata(object)?;
        echo.instructions = instructions(object)?;
        for node in object.array("include")? {
            node.string()?;
        }

        let mut request = AgentRequest::default();
        settings(object, &mut echo, &mut request)?;
        if options.forward_model && !echo.model.is_empty() {
            request.model = Some(echo.model.clone());
        }

        let mut preamble: Vec<Message> = echo.instructions.iter().map(Message::system).collect();
        tools::parse(object, options, &mut echo, &mut request)?;
        preamble.extend(tools::parse_text(object, options, &mut echo, &mut request)?);

        let mut entries = match object.get("input") {
            None => Vec::new(),
            Some(node) if node.kind() == Kind::String => vec![InputEntry::Message(Message::user(node.string()?))],
            Some(node) if node.kind() == Kind::Array => parse_items(&node, options, &echo)?,
            Some(node) => return Err(node.wrong_type("a string or a list of items")),
        };
        if options.reasoning_input == ReasoningInput::Drop {
            entries.retain(|entry| !entry.is_reasoning());
        }
        Ok(Self { echo, request, preamble, entries, previous, conversation, stream })
    }
}

/// Refuses unsupported fields and, if the options say so, unknown ones.
fn refuse_unsupported(object: &Object<'_>, options: &Options) -> Result<(), Fault> {
    if object.get("prompt").is_some() {
        return Err(Fault::unsupported("prompt", "stored prompts are not supported: send 'instructions' and 'input'"));
    }
    if let Some((field, equivalent)) = CHAT_COMPLETIONS_FIELDS.iter().find(|(field, _)| object.get(field).is_some()) {
        return Err(Fault::unsupported(*field, format!("use '{equivalent}' instead of '{field}'")));
    }

    if options.unknown_fields == IgnoreOrRefuse::Refuse
        && let Some((name, _)) = object.iter().find(|(name, _)| !KNOWN_FIELDS.contains(name))
    {
        return Err(Fault::new(FaultKind::Unsupported, format!("unknown parameter: '{name}'")).with_field(name));
    }
    Ok(())
}

/// The response or the conversation that the request continues: at most one of them
/// (docs/protocols/responses.md#state).
type Chain = (Option<(RunId, String)>, Option<String>);

fn chain(object: &Object<'_>, options: &Options) -> Result<Chain, Fault> {
    let previous = text(object, "previous_response_id")?;
    let conversation = object
        .get("conversation")
        .map(|node| match node.kind() {
            Kind::String => node.string(),
            Kind::Object => {
                let object = node.object()?;
                object.string("id")?.ok_or_else(|| missing("conversation.id"))
            }
            _ => Err(node.wrong_type("a string or an object")),
        })
        .transpose()?;

    if previous.is_some() && conversation.is_some() {
        let message = "'previous_response_id' and 'conversation' are mutually exclusive";
        return Err(Fault::new(FaultKind::Exclusive, message).with_field("previous_response_id"));
    }
    if conversation.is_some() && !options.conversations.0 {
        return Err(Fault::unsupported("conversation", "conversations are disabled on this route"));
    }

    let previous = previous
        .map(|id| ids::parse_response_id(&id).map(|run| (run, id.clone())).ok_or_else(|| previous_not_found(&id)))
        .transpose()?;
    Ok((previous, conversation.map(std::borrow::Cow::into_owned)))
}

/// Accepts only a string. Some SDKs also allow a list of items, which could not be distinguished from input.
fn instructions(object: &Object<'_>) -> Result<Option<String>, Fault> {
    text(object, "instructions")
}

/// Validates settings, stores them for the response, and forwards them to the agent
/// (docs/protocols/responses.md#request): in its own fields where it has them, else as extra fields of the same name.
fn settings(object: &Object<'_>, echo: &mut Echo, request: &mut AgentRequest) -> Result<(), Fault> {
    let raw = |name: &str| object.get(name).map(|node: Node<'_>| node.to_json());
    request.sampling = Sampling {
        temperature: number_in_range(object, "temperature", 0.0, 2.0)?,
        top_p: number_in_range(object, "top_p", 0.0, 1.0)?,
        presence_penalty: number_in_range(object, "presence_penalty", -2.0, 2.0)?,
        frequency_penalty: number_in_range(object, "frequency_penalty", -2.0, 2.0)?,
        max_tokens: at_least(object, "max_output_tokens", 1)?,
        ..Sampling::default()
    };
    echo.temperature = raw("temperature");
    echo.top_p = raw("top_p");
    echo.presence_penalty = raw("presence_penalty");
    echo.frequency_penalty = raw("frequency_penalty");
    echo.max_output_tokens = request.sampling.max_tokens;

    echo.top_logprobs = at_least(object, "top_logprobs", 0)?;
    if let (Some(21..), Some(node)) = (echo.top_logprobs, object.get("top_logprobs")) {
        return Err(node.invalid("must be between 0 and 20"));
    }
    echo.max_tool_calls = at_least(object, "max_tool_calls", 1)?;
    echo.parallel_tool_calls = object.boolean("parallel_tool_calls")?;
    echo.truncation = choice(object, "truncation", &["auto", "disabled"])?;
    echo.service_tier = text(object, "service_tier")?;

    if let Some(node) = object.get("reasoning") {
        let reasoning = node.object()?;
        let effort = choice(&reasoning, "effort", &["none", "minimal", "low", "medium", "high", "xhigh", "max"])?;
        let summary = choice(&reasoning, "summary", &["auto", "concise", "detailed"])?;

        let mut fields = Extra::new();
        fields.set("effort", Json::from_serialize(&effort));
        fields.set("summary", Json::from_serialize(&summary));
        for (name, value) in reasoning.fields_except(&["effort", "summary"]).iter() {
            fields.push(name, value.clone());
        }
        echo.reasoning = Some(Json::from_serialize(&fields));
    }
    for name in ["reasoning", "parallel_tool_calls", "max_tool_calls", "top_logprobs", "truncation", "service_tier"] {
        if let Some(value) = raw(name) {
            request.extra.set(name, value);
        }
    }
    if !echo.metadata.is_empty() {
        request.extra.set("metadata", Json::from_serialize(&echo.metadata));
    }

    echo.safety_identifier = text(object, "safety_identifier")?;
    echo.user = text(object, "user")?;
    echo.prompt_cache_key = text(object, "prompt_cache_key")?;
    text(object, "prompt_cache_retention")?;
    request.user_id = echo.safety_identifier.clone().or_else(|| echo.user.clone());
    Ok(())
}
