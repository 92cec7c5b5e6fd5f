//! Reading requests (sections 3 to 5) and making native ones of them (section 15): every complaint names its field,
//! nothing vanishes silently.
//!
//! Here: the fields of a request. Items and parts of its input stand in `items` and `parts`, tools and formats in
//! `tools`. What has to be looked up before the agent can be asked is said as [`Entry`]s, and looked up elsewhere.

mod fields;
mod items;
mod parts;
pub(crate) mod tools;

pub(crate) use fields::metadata;
pub(crate) use items::{Entry, compacted, original, read_items};

use interlingua_core::model::{AgentRequest, Message, Sampling};
use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Extra, Fault, FaultKind, Json, RunId};

use crate::echo::Echo;
use crate::fault::{missing, previous_not_found, unsupported};
use crate::ids;
use crate::options::{Options, ReasoningInput, Refusable};
use fields::{choice, ranged, text};

/// A request to make a response, read and checked.
#[derive(Debug)]
pub(crate) struct Create {
    /// What the response repeats.
    pub(crate) echo: Echo,
    /// What goes to the agent; its input stands in `entries` as yet.
    pub(crate) request: AgentRequest,
    /// Instructions of this turn alone.
    pub(crate) preamble: Vec<Message>,
    /// What is said, with what has to be looked up.
    pub(crate) entries: Vec<Entry>,
    /// The response it follows.
    pub(crate) previous: Option<(RunId, String)>,
    /// The conversation it belongs to.
    pub(crate) conversation: Option<String>,
    /// Whether the answer is streamed.
    pub(crate) stream: bool,
}

/// Every field that is known, whether or not it has an effect.
const KNOWN: &[&str] = &[
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
    // Of the WebSocket form (section 13).
    "type",
    "stream_id",
    "generate",
];

/// Fields of Chat Completions, and what they are called here: a program that sends them takes this for the other API.
const FOREIGN: &[(&str, &str)] = &[
    ("messages", "input"),
    ("max_tokens", "max_output_tokens"),
    ("max_completion_tokens", "max_output_tokens"),
    ("response_format", "text.format"),
    ("reasoning_effort", "reasoning.effort"),
    ("functions", "tools"),
    ("function_call", "tool_choice"),
];

/// What else a reader wants of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To ask an agent.
    Ask,
    /// To count or to keep what is said: `model` may be missing where it says so.
    Look {
        /// Whether `model` has to be there.
        model: bool,
    },
}

impl Create {
    /// Reads a request.
    ///
    /// # Errors
    /// The first field at fault, by its path.
    pub(crate) fn read(object: &Object<'_>, options: &Options, purpose: Purpose) -> Result<Self, Fault> {
        let model = match (text(object, "model")?, purpose) {
            (Some(model), _) => model,
            (None, Purpose::Look { model: false }) => String::new(),
            (None, _) => return Err(missing("model")),
        };
        refuse_unserved(object, options)?;
        let mut echo = Echo { model, store: object.boolean("store")?.unwrap_or(true), ..Echo::default() };
        echo.background = object.boolean("background")?.unwrap_or(false);
        if echo.background && !options.background.0 {
            return Err(unsupported("background", "background responses are not served here"));
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
        tools::read(object, options, &mut echo, &mut request)?;
        preamble.extend(tools::format(object, options, &mut echo, &mut request)?);
        let mut entries = match object.get("input") {
            None => Vec::new(),
            Some(node) if node.kind() == Kind::String => vec![Entry::Said(Message::user(node.string()?))],
            Some(node) if node.kind() == Kind::Array => read_items(&node, options, &echo)?,
            Some(node) => return Err(node.wrong("a string or a list of items")),
        };
        if options.reasoning_input == ReasoningInput::Drop {
            entries.retain(|entry| !entry.is_reasoning());
        }
        Ok(Self { echo, request, preamble, entries, previous, conversation, stream })
    }
}

/// Fields that are understood and not served, and fields nobody knows.
fn refuse_unserved(object: &Object<'_>, options: &Options) -> Result<(), Fault> {
    if object.get("prompt").is_some() {
        return Err(unsupported("prompt", "stored prompts are not supported: send 'instructions' and 'input'"));
    }
    if let Some((theirs, ours)) = FOREIGN.iter().find(|(theirs, _)| object.get(theirs).is_some()) {
        return Err(unsupported(*theirs, format!("use '{ours}' instead of '{theirs}'")));
    }
    if options.unknown_fields == Refusable::Refuse
        && let Some((name, _)) = object.iter().find(|(name, _)| !KNOWN.contains(name))
    {
        return Err(Fault::new(FaultKind::Unsupported, format!("unknown parameter: '{name}'")).with_field(name));
    }
    Ok(())
}

/// What the request follows: at most one of a response and a conversation (section 12).
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
            _ => Err(node.wrong("a string or an object")),
        })
        .transpose()?;
    if previous.is_some() && conversation.is_some() {
        let message = "'previous_response_id' and 'conversation' exclude one another";
        return Err(Fault::new(FaultKind::Exclusive, message).with_field("previous_response_id"));
    }
    if conversation.is_some() && !options.conversations.0 {
        return Err(unsupported("conversation", "conversations are not served here"));
    }
    let previous = previous
        .map(|id| ids::response(&id).map(|run| (run, id.clone())).ok_or_else(|| previous_not_found(&id)))
        .transpose()?;
    Ok((previous, conversation.map(std::borrow::Cow::into_owned)))
}

/// A string; a list of items, as some SDKs allow, would not be told apart from input.
fn instructions(object: &Object<'_>) -> Result<Option<String>, Fault> {
    text(object, "instructions")
}

/// Settings that are checked, repeated and forwarded (section 15): the native fields, else extras of the same name.
fn settings(object: &Object<'_>, echo: &mut Echo, request: &mut AgentRequest) -> Result<(), Fault> {
    let kept = |name: &str| object.get(name).map(|node: Node<'_>| node.to_json());
    request.sampling = Sampling {
        temperature: ranged(object, "temperature", 0.0, 2.0)?,
        top_p: ranged(object, "top_p", 0.0, 1.0)?,
        presence_penalty: ranged(object, "presence_penalty", -2.0, 2.0)?,
        frequency_penalty: ranged(object, "frequency_penalty", -2.0, 2.0)?,
        max_tokens: at_least(object, "max_output_tokens", 1)?,
        ..Sampling::default()
    };
    echo.temperature = kept("temperature");
    echo.top_p = kept("top_p");
    echo.presence_penalty = kept("presence_penalty");
    echo.frequency_penalty = kept("frequency_penalty");
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
        let mut whole = Extra::new();
        whole.set("effort", Json::from_serialize(&effort));
        whole.set("summary", Json::from_serialize(&summary));
        for (name, value) in reasoning.rest(&["effort", "summary"]).iter() {
            whole.push(name, value.clone());
        }
        echo.reasoning = Some(Json::from_serialize(&whole));
    }
    for name in ["reasoning", "parallel_tool_calls", "max_tool_calls", "top_logprobs", "truncation", "service_tier"] {
        if let Some(value) = kept(name) {
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

fn at_least(object: &Object<'_>, name: &str, least: i64) -> Result<Option<i64>, Fault> {
    let number = object.integer(name)?;
    match (number, object.get(name)) {
        (Some(number), Some(node)) if number < least => Err(node.invalid(format!("must be at least {least}"))),
        _ => Ok(number),
    }
}
