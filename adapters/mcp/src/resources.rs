//! Agents and runs as resources (docs/protocols/mcp.md#resources-prompts-completion).

use interlingua_core::call::{RunInfo, RunView};
use interlingua_core::filter::truncated;
use interlingua_core::model::Body;
use interlingua_core::pending::Pending;
use interlingua_core::{Call, Json, Record, RunId, Target};
use serde_json::{Value, json};

use crate::envelope::RpcError;
use crate::envelope::rpc_error::{INVALID_PARAMS, RESOURCE_NOT_FOUND};
use crate::media::Source;
use crate::pages;
use crate::result::{self, Media, Part, RUNS, ResultContext, resource_contents};
use crate::revision::Revision;
use crate::tools::{AgentTool, Tools};

/// Longest URI that is read, in bytes.
const MAX_URI: usize = 1024;

/// Maximum number of runs of a chain that are read for a resource.
const MAX_CHAIN: usize = 64;

const AGENTS: &str = "interlingua://agents/";
/// A page of the resources: the agents that the caller may use.
///
/// # Errors
/// The cursor is unknown.
pub(crate) fn list(tools: &Tools, may_use: &dyn Fn(&str) -> bool, cursor: Option<&str>) -> Result<Value, RpcError> {
    let entries: Vec<(String, Value)> = tools
        .agents()
        .iter()
        .filter(|tool| may_use(&tool.agent))
        .map(|tool| {
            let mut resource = json!({
                "uri": agent_uri(&tool.agent),
                "name": tool.agent,
                "description": tool.description,
                "mimeType": "application/json",
            });
            if let Some(title) = &tool.title {
                resource["title"] = json!(title);
            }
            (tool.name.clone(), resource)
        })
        .collect();
    pages::page("resources", entries.iter().map(|(key, value)| (key.clone(), value)), cursor)
}

/// The page of the templates of resources.
///
/// # Errors
/// The cursor is unknown.
pub(crate) fn templates(cursor: Option<&str>) -> Result<Value, RpcError> {
    let entries = [
        json!({
            "uriTemplate": format!("{RUNS}{{run}}"),
            "name": "run",
            "description": "A run: its answer, its state, and what it waits for.",
            "mimeType": "application/json",
        }),
        json!({
            "uriTemplate": format!("{RUNS}{{run}}/parts/{{n}}"),
            "name": "part",
            "description": "A part of a run's answer, such as an image. The first part has the number 1.",
        }),
    ];
    let keyed = entries.iter().enumerate().map(|(index, entry)| (index.to_string(), entry));
    pages::page("resourceTemplates", keyed, cursor)
}

/// A resource that a client reads.
#[derive(Debug)]
pub(crate) enum Resource {
    /// An agent, by its name in the configuration.
    Agent(String),
    /// A run, or a content of its answer.
    Run(Box<RunResource>),
}

/// The state of reading a run and the runs that answered its questions.
#[derive(Debug)]
pub(crate) struct RunResource {
    uri: String,
    run: RunId,
    /// The number of a content. `None`: the whole run.
    part: Option<usize>,
    chain: Vec<(Record, RunInfo, Vec<Pending>)>,
}

/// The next step of reading a run.
#[derive(Debug)]
pub(crate) enum ReadStep {
    /// Another run is needed. Answered by [`interlingua_core::Reply::Run`]; if it is not found, [`RunResource::finish`]
    /// has what can be read.
    Call(Call),
    /// The result of `resources/read`.
    Done(Value),
}

impl Resource {
    /// Reads a URI.
    ///
    /// # Errors
    /// No resource has this URI.
    pub(crate) fn parse(uri: &str, revision: Revision) -> Result<Self, RpcError> {
        Self::read(uri).ok_or_else(|| not_found(uri, revision))
    }

    fn read(uri: &str) -> Option<Self> {
        if uri.len() > MAX_URI {
            return None;
        }
        if let Some(agent) = uri.strip_prefix(AGENTS) {
            return Some(Self::Agent(decoded(agent)?));
        }
        let rest = uri.strip_prefix(RUNS)?;
        let (run, part) = match rest.split_once('/') {
            None => (rest, None),
            Some((run, part)) => (run, Some(part.strip_prefix("parts/")?)),
        };
        let part = match part {
            // The parser of numbers accepts a sign.
            Some(number) if number.starts_with('+') => return None,
            Some(number) => Some(number.parse().ok().filter(|number| *number > 0)?),
            None => None,
        };
        let resource = RunResource { uri: uri.to_owned(), run: RunId::parse(run)?, part, chain: Vec::new() };
        Some(Self::Run(Box::new(resource)))
    }
}

impl RunResource {
    /// The first call: the run itself.
    pub(crate) fn call(&self) -> Call {
        Call::Fetch(Target::Run(self.run))
    }

    /// Takes a run of the chain.
    ///
    /// # Errors
    /// The run has no such content.
    pub(crate) fn take(&mut self, view: RunView<'_>, context: &ResultContext<'_>) -> Result<ReadStep, RpcError> {
        self.chain.push((view.record.clone(), view.info.clone(), view.pending.to_vec()));
        match view.run().answered_by() {
            Some(next) if self.chain.len() < MAX_CHAIN => Ok(ReadStep::Call(Call::Fetch(Target::Run(next)))),
            _ => self.finish(context).map(ReadStep::Done),
        }
    }

    /// The result of `resources/read` with the runs that were found.
    ///
    /// # Errors
    /// No run was found, or the run has no such content.
    pub(crate) fn finish(&self, context: &ResultContext<'_>) -> Result<Value, RpcError> {
        if self.chain.is_empty() {
            return Err(not_found(&self.uri, context.revision));
        }
        let views: Vec<RunView<'_>> =
            self.chain.iter().map(|(record, info, pending)| RunView { record, info, pending }).collect();
        let contents = match self.part {
            None => {
                let text = result::run_object(context, &views).to_string();
                json!({ "uri": self.uri, "mimeType": "application/json", "text": text })
            }
            Some(number) => {
                let part = result::parts(views.iter().map(|view| view.run())).nth(number - 1);
                let part = part.ok_or_else(|| not_found(&self.uri, context.revision))?;
                part_contents(&self.uri, part).ok_or_else(|| not_found(&self.uri, context.revision))?
            }
        };
        Ok(json!({ "contents": [contents] }))
    }
}

/// The result of `resources/read` for an agent.
pub(crate) fn agent(tool: &AgentTool) -> Value {
    let agent = json!({
        "name": tool.agent,
        "description": tool.description,
        "version": tool.version,
        "tool": tool.name,
    });
    let uri = agent_uri(&tool.agent);
    json!({ "contents": [{ "uri": uri, "mimeType": "application/json", "text": agent.to_string() }] })
}

/// No resource has this URI, or it belongs to another caller.
pub(crate) fn not_found(uri: &str, revision: Revision) -> RpcError {
    let code = if revision.is_modern() { INVALID_PARAMS } else { RESOURCE_NOT_FOUND };
    let shown = truncated(uri, MAX_URI);
    RpcError::new(code, "no such resource").with_data(json!({ "uri": shown }))
}

/// A content as the contents of a resource. `None`: the content is empty.
fn part_contents(uri: &str, part: Part<'_>) -> Option<Value> {
    let text = |media_type: &str, text: &str| json!({ "uri": uri, "mimeType": media_type, "text": text });
    let slot = match part {
        Part::Message(message) => {
            return Some(text("application/json", Json::from_serialize(&message.to_model()).text()));
        }
        Part::Slot(slot) => slot,
    };
    let content = slot.content();
    match &content.body {
        Body::Text(body) | Body::Refusal(body) => return Some(text("text/plain", body)),
        Body::Data(data) => return Some(text("application/json", data.text())),
        Body::Other(_) => return Some(text("application/json", Json::from_serialize(&content).text())),
        _ => {}
    }
    Some(match Media::of(&content)?.source {
        Source::Bytes { base64, media_type } => {
            resource_contents(uri, media_type.as_deref().unwrap_or(crate::media::UNKNOWN), &base64)
        }
        Source::Link(link) => text("text/uri-list", link),
        Source::Other(other) => text("text/plain", other),
    })
}

/// The URI of an agent.
fn agent_uri(agent: &str) -> String {
    format!("{AGENTS}{}", interlingua_core::http_url::segment(agent))
}

/// Decodes the name of an agent in a URI.
fn decoded(segment: &str) -> Option<String> {
    String::from_utf8(crate::media::percent_decoded(segment)?).ok().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests;
