//! Parses requests (docs/protocols/anthropic-messages.md#request) into agent requests. Every error names its field, and
//! no field is dropped silently.
//!
//! Here: the fields of a request. `messages` and `blocks` parse the conversation, `tools` the tools, `session` the name
//! of a session. Not here: which session a request belongs to (the engine).

mod blocks;
mod messages;
mod session;
mod tools;

use interlingua_adapter_kit::model_options::{IgnoreOrRefuse, StructuredOutput};
use interlingua_core::answer::Answer;
use interlingua_core::model::{AgentRequest, Message, Sampling, Stop};
use interlingua_core::tree::fields::{at_least, choice, number_in_range, quoted_list, text, truncate};
use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Extra, Fault, FaultKind, Json, RunId};
use serde_json::json;

use crate::echo::{Echo, Thinking, ThreadSettings};
use crate::fault::{self, missing};
use crate::judge::LastAnswer;
use crate::options::{Options, Prefill};

pub(crate) use session::name as session_name;

/// A parsed and validated request.
#[derive(Debug)]
pub(crate) struct MessagesRequest {
    pub(crate) echo: Echo,
    /// The request to the agent, without its input.
    pub(crate) request: AgentRequest,
    /// Instructions for this turn only: the system prompt, in one message.
    pub(crate) system: Option<String>,
    /// Further instructions for this turn, such as the wanted format.
    pub(crate) instructions: Vec<Message>,
    pub(crate) conversation: Conversation,
    pub(crate) stream: bool,
    pub(crate) thread: Option<ThreadParam>,
    /// The client wants no tokens: the agent is not called.
    pub(crate) is_empty: bool,
}

/// The messages of a request.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    /// Up to the last message of the assistant.
    pub(crate) history: Vec<Message>,
    /// The messages after the history.
    pub(crate) input: Vec<Message>,
    /// The last message of the assistant, to be compared.
    pub(crate) last: Option<LastAnswer>,
    /// The answer that the input is if the assistant asked in words.
    pub(crate) in_words: Option<Answer>,
    /// The user's only new words, if there is nothing else.
    pub(crate) words: Option<String>,
    /// Results of calls that the messages do not have.
    pub(crate) orphans: Vec<Orphan>,
    /// Blocks that no agent is given.
    pub(crate) opaque: usize,
}

/// The result of a call of an earlier answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Orphan {
    pub(crate) call_id: String,
    pub(crate) output: String,
    /// The position in the request.
    pub(crate) path: String,
}

/// The position of a request in a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ThreadParam {
    Create,
    /// Behind the message of this run.
    Continue(RunId),
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To call an agent.
    Run,
    /// To count tokens.
    Count,
}

/// All known fields, including those without effect.
const KNOWN_FIELDS: &[&str] = &[
    "model",
    "max_tokens",
    "messages",
    "system",
    "stream",
    "tools",
    "tool_choice",
    "stop_sequences",
    "temperature",
    "top_p",
    "top_k",
    "thinking",
    "output_config",
    "output_format",
    "metadata",
    "cache_control",
    "service_tier",
    "speed",
    "inference_geo",
    "container",
    "diagnostics",
    "mcp_servers",
    "context_management",
    "compaction",
    "fallbacks",
    "thread",
    "betas",
    "anthropic_version",
    "anthropic_beta",
];

/// The prefix of the first block of Claude Code, which is for billing.
const BILLING: &str = "x-anthropic-billing-header:";

impl MessagesRequest {
    /// Parses a request.
    ///
    /// # Errors
    /// The first invalid field, by its path.
    pub(crate) fn parse(object: &Object<'_>, options: &Options, purpose: Purpose) -> Result<Self, Fault> {
        let model = match (text(object, "model")?, purpose) {
            (Some(model), _) => model,
            (None, Purpose::Count) => String::new(),
            (None, Purpose::Run) => return Err(missing("model")),
        };
        refuse_unsupported(object, options)?;

        let mut echo = Echo { model, ..Echo::default() };
        let mut request = AgentRequest::default();
        settings(object, &mut request)?;
        if options.forward_model && !echo.model.is_empty() {
            request.model = Some(echo.model.clone());
        }
        echo.thinking = thinking(object)?;
        let system = system(object)?;
        let instructions: Vec<Message> = output(object, options, &mut request)?.into_iter().collect();
        let thread = thread(object, options)?;
        if thread.is_some() {
            echo.thread = Some(ThreadSettings { system: system.clone(), withheld_tools: None });
        }

        let mut tools = tools::Tools::parse(object, options)?;
        let is_continued = matches!(thread, Some(ThreadParam::Continue(_)));
        let node = object.get("messages").ok_or_else(|| missing("messages"))?;
        let conversation = messages::parse(&node, options, &mut tools, is_continued)?;
        // A result of a call that is not in the messages is no input, but an answer to what the session waits for.
        let has_new = !conversation.input.is_empty() || !conversation.orphans.is_empty();
        if options.prefill == Prefill::Refuse && conversation.last.is_some() && !has_new {
            return Err(node.invalid("the last message must be one of the user"));
        }
        tools.apply(object, options, is_continued, &mut echo, &mut request)?;

        let is_empty = purpose == Purpose::Run && request.sampling.max_tokens == Some(0);
        let stream = object.boolean("stream")?.unwrap_or(false);
        Ok(Self { echo, request, system, instructions, conversation, stream, thread, is_empty })
    }

    /// All instructions, in front of the conversation.
    pub(crate) fn preamble(&mut self) -> Vec<Message> {
        let system = self.system.take().filter(|text| !text.is_empty()).map(Message::system);
        system.into_iter().chain(std::mem::take(&mut self.instructions)).collect()
    }
}

/// Refuses what the options say must be refused.
fn refuse_unsupported(object: &Object<'_>, options: &Options) -> Result<(), Fault> {
    if options.hosted_tools == IgnoreOrRefuse::Refuse && object.array("mcp_servers")?.next().is_some() {
        return Err(Fault::unsupported("mcp_servers", "MCP servers are not called on this route"));
    }
    if options.unknown_fields == IgnoreOrRefuse::Refuse
        && let Some((name, _)) = object.iter().find(|(name, _)| !KNOWN_FIELDS.contains(name))
    {
        return Err(Fault::unsupported(name, "Extra inputs are not permitted"));
    }
    Ok(())
}

/// Sampling, the user, and settings that agents get as extra fields.
fn settings(object: &Object<'_>, request: &mut AgentRequest) -> Result<(), Fault> {
    let stop = object.array("stop_sequences")?.map(|node| node.string().map(std::borrow::Cow::into_owned));
    let stop = stop.collect::<Result<Vec<_>, _>>()?;
    request.sampling = Sampling {
        temperature: number_in_range(object, "temperature", 0.0, 1.0)?,
        top_p: number_in_range(object, "top_p", 0.0, 1.0)?,
        max_tokens: at_least(object, "max_tokens", 0)?,
        stop: (!stop.is_empty()).then_some(Stop::Many(stop)),
        ..Sampling::default()
    };
    if let Some(top_k) = at_least(object, "top_k", 0)? {
        request.extra.set("top_k", Json::from_serialize(&top_k));
    }
    if let Some(metadata) = object.get("metadata") {
        request.user_id = text(&metadata.object()?, "user_id")?.as_deref().map(session::user);
    }
    Ok(())
}

/// The display of reasoning that the client requests.
fn thinking(object: &Object<'_>) -> Result<Thinking, Fault> {
    let Some(node) = object.get("thinking") else { return Ok(Thinking::Hidden) };
    let thinking = node.object()?;
    let words = ["enabled", "adaptive", "between_tools", "disabled"];
    let kind = choice(&thinking, "type", &words)?.ok_or_else(|| missing(thinking.path_of("type")))?;
    at_least(&thinking, "budget_tokens", 0)?;
    let display = text(&thinking, "display")?;
    Ok(match (kind.as_str(), display.as_deref()) {
        ("disabled", _) => Thinking::Hidden,
        (_, Some("omitted")) => Thinking::Omitted,
        _ => Thinking::Shown,
    })
}

/// The system prompt: blocks joined with a blank line.
fn system(object: &Object<'_>) -> Result<Option<String>, Fault> {
    let Some(node) = object.get("system") else { return Ok(None) };
    match node.kind() {
        Kind::String => Ok(Some(node.string()?.into_owned())),
        Kind::Array => {
            let mut joined = String::new();
            for block in node.array()? {
                let block = block.object()?;
                let words = blocks::required_text(&block)?;
                if words.is_empty() || words.starts_with(BILLING) {
                    continue;
                }
                if !joined.is_empty() {
                    joined.push_str("\n\n");
                }
                joined.push_str(&words);
            }
            Ok(Some(joined))
        }
        _ => Err(node.wrong_type("a string or a list of text blocks")),
    }
}

/// `output_config`, and its predecessor `output_format`. Returns an instruction if the options say so.
fn output(object: &Object<'_>, options: &Options, request: &mut AgentRequest) -> Result<Option<Message>, Fault> {
    let config = object.get("output_config").map(|node| node.object()).transpose()?;
    if let Some(effort) = config.as_ref().map(|config| text(config, "effort")).transpose()?.flatten() {
        request.extra.set("reasoning", Json::from_serialize(&json!({ "effort": effort })));
    }
    let format = config.as_ref().and_then(|config| config.get("format")).or_else(|| object.get("output_format"));
    let Some(node) = format else { return Ok(None) };
    let format = node.object()?;
    let kind = choice(&format, "type", &["json_schema"])?.ok_or_else(|| missing(format.path_of("type")))?;
    let schema = format.get("schema").ok_or_else(|| missing(format.path_of("schema")))?.json_object()?;

    match options.structured_output {
        StructuredOutput::Refuse => {
            Err(Fault::unsupported(node.path(), "structured output is not supported on this route"))
        }
        StructuredOutput::Instruct => Ok(Some(Message::system(format!(
            "Answer with one JSON value that fits this JSON Schema, and nothing else: {}",
            schema.text()
        )))),
        StructuredOutput::Forward => {
            let mut format = Extra::new();
            format.push("type", Json::from_serialize(&kind));
            format.push("name", Json::from_serialize("output"));
            format.push("schema", schema);
            request.extra.set("text", Json::from_serialize(&json!({ "format": format })));
            Ok(None)
        }
    }
}

/// The thread that a request begins or continues. Never ignored: a request that continues one has no tools of its own.
fn thread(object: &Object<'_>, options: &Options) -> Result<Option<ThreadParam>, Fault> {
    let Some(node) = object.get("thread") else { return Ok(None) };
    let thread = node.object()?;
    if !options.threads.0 {
        let fault = Fault::unsupported("thread", "threads are not supported on this route");
        return Err(fault.with_code(fault::thread::UNSUPPORTED));
    }
    match choice(&thread, "type", &["create", "continue"])?.as_deref() {
        None => Err(missing(thread.path_of("type"))),
        Some("create") => Ok(Some(ThreadParam::Create)),
        Some(_) => {
            let path = thread.path_of("previous_message_id");
            let id = text(&thread, "previous_message_id")?.ok_or_else(|| missing(path))?;
            let run = RunId::parse(&id).ok_or_else(|| thread_not_found(&id))?;
            Ok(Some(ThreadParam::Continue(run)))
        }
    }
}

/// The thread does not exist for this caller.
pub(crate) fn thread_not_found(id: &str) -> Fault {
    Fault::new(FaultKind::NotFound, format!("no thread ends with the message '{}'", truncate(id)))
        .with_code(fault::thread::NOT_FOUND)
}

/// A word out of a closed set.
fn unknown_word(node: &Node<'_>, what: &str, word: &str, known: &[&str]) -> Fault {
    node.invalid(format!("unknown {what} '{}': must be one of {}", truncate(word), quoted_list(known)))
}
