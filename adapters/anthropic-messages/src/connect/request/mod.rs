//! The request: fields, tools and settings.
//!
//! See `docs/protocols/anthropic-messages.md`. Messages are in `messages`, their blocks in `blocks`.

mod blocks;
mod messages;
mod tools;

use std::collections::HashSet;

use interlingua_adapter_kit::transcript::{OpenCalls, Transcript};
use interlingua_adapter_kit::wire_names::{MAX_CALL_ID, OriginalNames, ToolNames, WireIds};
use interlingua_core::connector::TurnRequest;
use interlingua_core::model::{Message, Stop};
use interlingua_core::{ContentKind, Extra, Json, Losses, client_tool};
use serde::Serialize;
use serde_json::json;

use self::messages::Writer;
use super::options::{Thinking, UpstreamOptions, UserField};

/// The longest name of a tool, in bytes.
const MAX_NAME: usize = 128;

/// A request as it is sent.
pub(super) struct PreparedRequest {
    pub(super) body: Extra,
    /// The client's names of tools that have another one in the request.
    pub(super) tool_names: OriginalNames,
    pub(super) losses: Losses,
}

/// Writes a request. `tools`: those in force; `origin`: the author's name of opaque values that this agent may get
/// back.
pub(super) fn write(
    turn: &TurnRequest<'_>,
    options: &UpstreamOptions,
    tools: &[Json],
    origin: &str,
) -> PreparedRequest {
    let mut request =
        Request { turn, options, body: Extra::new(), names: ToolNames::new(MAX_NAME), losses: Losses::new() };
    request.head();
    // Tools are named before the calls of the conversation are.
    let written_tools = request.written_tools(tools);
    request.conversation(origin);
    request.body.set("stream", Json::from_serialize(&true));
    let choice = request.tools(&written_tools);
    request.settings(choice.as_ref());
    request.extras();
    PreparedRequest { body: request.body, tool_names: request.names.into_originals(), losses: request.losses }
}

struct Request<'a> {
    turn: &'a TurnRequest<'a>,
    options: &'a UpstreamOptions,
    body: Extra,
    names: ToolNames,
    losses: Losses,
}

impl Request<'_> {
    fn set<T: Serialize + ?Sized>(&mut self, name: &str, value: Option<&T>) {
        if let Some(value) = value {
            self.body.set(name, Json::from_serialize(value));
        }
    }

    fn head(&mut self) {
        let request = self.turn.request;
        match &self.options.body_version {
            Some(version) => self.set("anthropic_version", Some(version)),
            // The operator's name wins: what a client calls the agent is no name of a model.
            None => self.set("model", self.options.model.as_ref().or(request.model.as_ref())),
        }
        self.set("max_tokens", Some(&self.limit()));
        if self.options.cache {
            self.set("cache_control", Some(&json!({ "type": "ephemeral" })));
        }
    }

    fn limit(&self) -> i64 {
        self.turn.request.sampling.max_tokens.unwrap_or_else(|| self.options.max_tokens.into())
    }

    fn conversation(&mut self, origin: &str) {
        let is_paused = |message: &Message| messages::own_item(message, origin).is_some();
        let transcript = Transcript::read(&self.turn.request.input, self.turn.answered, OpenCalls::KeptIf(&is_paused));
        let instructions = self.options.instructions.as_deref().and_then(blocks::text);
        let mut writer = Writer {
            options: self.options,
            origin,
            names: &mut self.names,
            losses: &mut self.losses,
            ids: WireIds::new(MAX_CALL_ID),
            system: instructions.into_iter().collect(),
            messages: Vec::with_capacity(transcript.passages.len()),
        };
        writer.write(&transcript);
        let (system, messages) = (writer.system, writer.messages);
        if !system.is_empty() {
            self.set("system", Some(&system));
        }
        self.set("messages", Some(&messages));
    }

    /// The tools of the client, then those of the operator that the client names no other for.
    fn written_tools(&mut self, tools: &[Json]) -> Vec<Json> {
        let mut functions = Vec::with_capacity(tools.len());
        for tool in tools {
            match client_tool::normal(tool, &mut self.losses).as_ref().and_then(client_tool::name_and_fields) {
                Some(function) => functions.push(function),
                None => self.losses.lost(ContentKind::ToolDeclaration, "a tool of another form than a function"),
            }
        }

        let named: HashSet<&str> = functions.iter().map(|(name, _)| name.as_str()).collect();
        let own: Vec<Json> = self
            .options
            .own_tools()
            .filter(|(name, _)| name.is_none_or(|name| !named.contains(name)))
            .map(|(name, tool)| {
                name.into_iter().for_each(|name| self.names.reserve(name));
                tool
            })
            .collect();

        self.names.reserve_accepted(named);

        let mut written = Vec::with_capacity(functions.len() + own.len());
        for (name, fields) in &functions {
            written.push(tools::tool(name, fields, &mut self.names));
        }
        written.extend(own);
        written
    }

    /// Gives the choice among tools that is sent.
    fn tools(&mut self, written: &[Json]) -> Option<Json> {
        if written.is_empty() {
            return None;
        }
        self.set("tools", Some(written));
        let extra = &self.turn.request.extra;
        let parallel = extra.get("parallel_tool_calls").and_then(Json::decode::<bool>);
        let choice = tools::choice(extra.get("tool_choice"), parallel, &mut self.names, &mut self.losses);
        self.set("tool_choice", choice.as_ref());
        choice
    }

    fn settings(&mut self, choice: Option<&Json>) {
        let sampling = &self.turn.request.sampling;
        let stop: Vec<&String> = match &sampling.stop {
            Some(Stop::One(text)) => vec![text],
            Some(Stop::Many(texts)) => texts.iter().collect(),
            None => Vec::new(),
        };
        let stop: Vec<&String> = stop.into_iter().filter(|text| !text.trim().is_empty()).collect();
        if !stop.is_empty() {
            self.set("stop_sequences", Some(&stop));
        }

        for (is_set, how) in [
            (sampling.frequency_penalty.is_some(), "frequency_penalty: not known to this protocol"),
            (sampling.presence_penalty.is_some(), "presence_penalty: not known to this protocol"),
            (sampling.seed.is_some(), "seed: not known to this protocol"),
            (sampling.n.is_some_and(|n| n > 1), "n: not known to this protocol"),
        ] {
            if is_set {
                self.losses.lost(ContentKind::Sampling, how);
            }
        }

        let thinks = self.thinking(choice);
        self.sampling(thinks);
        self.output();
        if self.options.user_field == UserField::Metadata {
            let user = self.turn.request.user_id.as_ref().map(|user| json!({ "user_id": user }));
            self.set("metadata", user.as_ref());
        } else if self.turn.names_user {
            self.losses.lost(ContentKind::User, "not named to this agent by its option user_field");
        }
    }

    /// Sets the reasoning of the request. Returns whether the model reasons.
    fn thinking(&mut self, choice: Option<&Json>) -> bool {
        let written = match self.options.thinking {
            Thinking::Off => return false,
            // Servers refuse the two together.
            _ if choice.is_some_and(tools::is_forced) => {
                self.losses.changed(ContentKind::Reasoning, "not asked for where a call is demanded");
                return false;
            }
            Thinking::Budget(budget) if self.limit() <= i64::from(budget) => {
                self.losses.changed(ContentKind::Reasoning, "not asked for: the request's limit leaves no room for it");
                return false;
            }
            Thinking::Adaptive => json!({ "type": "adaptive" }),
            Thinking::Budget(budget) => json!({ "type": "enabled", "budget_tokens": budget }),
        };
        self.set("thinking", Some(&written));
        true
    }

    fn sampling(&mut self, thinks: bool) {
        let sampling = &self.turn.request.sampling;
        let top_k = self.turn.request.extra.get("top_k").filter(|top_k| !top_k.is_null());
        if sampling.temperature.is_none() && sampling.top_p.is_none() && top_k.is_none() {
            return;
        }
        if !self.options.sends_sampling() || thinks {
            let how = if thinks {
                "temperature, top_p and top_k are refused while the model thinks"
            } else {
                "temperature, top_p and top_k are not sent by the option sampling"
            };
            return self.losses.lost(ContentKind::Sampling, how);
        }

        if sampling.temperature.is_some_and(|temperature| temperature > 1.0) {
            self.losses.changed(ContentKind::Sampling, "a temperature above 1 is sent as 1");
        }
        self.set("temperature", sampling.temperature.map(|temperature| temperature.min(1.0)).as_ref());
        self.set("top_p", sampling.top_p.as_ref());
        self.set("top_k", top_k);
    }

    /// The form of the answer, and the effort that goes into it.
    fn output(&mut self) {
        let field = |object: &str, name: &str| {
            let fields: Extra = self.turn.request.extra.get(object)?.decode()?;
            fields.get(name).filter(|value| !value.is_null()).cloned()
        };
        let mut config = Extra::new();
        let effort = field("reasoning", "effort").and_then(|effort| effort.decode::<String>());
        match effort.as_deref() {
            Some("minimal") => config.push("effort", Json::from_serialize("low")),
            Some("none") | None => {}
            Some(effort) => config.push("effort", Json::from_serialize(effort)),
        }

        if let Some(format) = field("text", "format").and_then(|format| format.decode::<Extra>()) {
            let kind = format.get("type").and_then(Json::decode::<String>).unwrap_or_default();
            let nested: Extra = format.get("json_schema").and_then(Json::decode).unwrap_or_default();
            match format.get("schema").or_else(|| nested.get("schema")) {
                Some(schema) if kind == "json_schema" => {
                    config.push("format", Json::from_serialize(&json!({ "type": "json_schema", "schema": schema })));
                }
                _ if kind == "text" => {}
                _ => self.losses.lost(ContentKind::OutputFormat, "a form of the answer without a schema"),
            }
        }
        if !config.is_empty() {
            self.set("output_config", Some(&config));
        }
    }

    /// Fields that the operator lets through, and those of every request.
    fn extras(&mut self) {
        let (options, request) = (self.options, self.turn.request);
        for name in &options.forward_extras {
            self.set(name, request.extra.get(name));
        }
        for (name, value) in &options.parameters {
            if self.body.get(name).is_none() {
                self.set(name, Some(value));
            }
        }
    }
}
