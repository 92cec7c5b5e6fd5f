//! The request: fields, tools and settings.
//!
//! See `docs/protocols/chat-completions.md#the-request`. Messages are in `history`, their parts in `parts`.

mod history;
mod parts;
mod tools;

use std::collections::HashSet;

use interlingua_adapter_kit::wire_names::{MAX_NAME, OriginalNames, ToolNames};
use interlingua_core::connector::TurnRequest;
use interlingua_core::{ContentKind, Extra, Json, Losses, client_tool};
use serde::Serialize;
use serde_json::json;

use super::options::{LimitField, UpstreamOptions};
use super::state::ReasoningField;

/// The input of a request body.
pub(super) struct RequestBody<'a> {
    pub(super) options: &'a UpstreamOptions,
    pub(super) limit_field: LimitField,
    pub(super) turn: &'a TurnRequest<'a>,
    /// The tools in force.
    pub(super) tools: &'a [Json],
    /// The field that this server's reasoning comes in. None: it sent none in this session.
    pub(super) reasoning: Option<ReasoningField>,
    /// The author's name of opaque values that this server may get back.
    pub(super) origin: &'a str,
}

impl RequestBody<'_> {
    /// The body, in the order in which people write it, and the client's names of tools that have another one in it.
    pub(super) fn to_json(&self, losses: &mut Losses) -> (Extra, OriginalNames) {
        let request = self.turn.request;
        let mut names = ToolNames::new(MAX_NAME);
        // Tools are named before the calls of the conversation are.
        let tools = self.all_tools(&mut names, losses);
        let mut body = Extra::new();
        // The operator's name wins: what a client calls the agent is no name of a model.
        set(&mut body, "model", self.options.model.as_ref().or(request.model.as_ref()));
        set(&mut body, "messages", Some(&history::messages(self, &mut names, losses)));
        set(&mut body, "stream", Some(&true));
        if self.options.usage {
            set(&mut body, "stream_options", Some(&json!({ "include_usage": true })));
        }

        self.set_tools(&mut body, &tools, &mut names, losses);
        self.settings(&mut body, losses);
        match self.options.user_field {
            Some(field) => set(&mut body, field.as_str(), request.user_id.as_ref()),
            None if self.turn.names_user => {
                losses.lost(ContentKind::User, "not named to this agent by its option user_field");
            }
            None => {}
        }

        if let Some(field) = &self.options.session_field {
            set(&mut body, field, request.session_id.as_ref());
        }

        for name in &self.options.forward_extras {
            set(&mut body, name, request.extra.get(name));
        }

        for (name, value) in &self.options.parameters {
            if body.get(name).is_none() {
                set(&mut body, name, Some(value));
            }
        }

        (body, names.into_originals())
    }

    /// The tools of the client, then those of the operator that the client names no other for.
    fn all_tools(&self, names: &mut ToolNames, losses: &mut Losses) -> Vec<Json> {
        let mut named = Vec::with_capacity(self.tools.len());
        for tool in self.tools {
            let tool = client_tool::normal(tool, losses);
            match tool.and_then(|tool| Some((client_tool::name_and_fields(&tool)?.0, tool))) {
                Some(tool) => named.push(tool),
                None => losses.lost(ContentKind::ToolDeclaration, "a tool of another form than a function"),
            }
        }

        let declared: HashSet<&str> = named.iter().map(|(name, _)| name.as_str()).collect();
        let own = self.options.tools.iter().map(Json::from_serialize).map(|tool| (tools::name(&tool), tool));
        let own: Vec<_> =
            own.filter(|(name, _)| name.as_ref().is_none_or(|name| !declared.contains(name.as_str()))).collect();
        for name in own.iter().filter_map(|(name, _)| name.as_ref()) {
            names.reserve(name);
        }
        names.reserve_accepted(declared);

        let mut tools: Vec<Json> = Vec::with_capacity(named.len() + own.len());
        for (name, tool) in named {
            let wire = names.to_wire(&name);
            tools.push(if wire == name { tool } else { client_tool::renamed(&tool, &wire) });
        }
        tools.extend(own.into_iter().map(|(_, tool)| tool));
        tools
    }

    fn set_tools(&self, body: &mut Extra, tools: &[Json], names: &mut ToolNames, losses: &mut Losses) {
        // Several servers refuse an empty list, and a choice without a list.
        if tools.is_empty() {
            return;
        }

        set(body, "tools", Some(tools));
        let extra = &self.turn.request.extra;
        let choice = extra.get("tool_choice").filter(|choice| !choice.is_null());
        let nested = choice.and_then(|choice| tools::nested_choice(choice, names));
        if choice.is_some() && nested.is_none() {
            losses.lost(ContentKind::ToolChoice, "a choice among tools that this protocol cannot say");
        }
        set(body, "tool_choice", nested.as_ref());
        set(body, "parallel_tool_calls", extra.get("parallel_tool_calls").filter(|parallel| !parallel.is_null()));
    }

    fn settings(&self, body: &mut Extra, losses: &mut Losses) {
        let request = self.turn.request;
        let sampling = &request.sampling;
        set(body, self.limit_field.as_str(), sampling.max_tokens.as_ref());
        set(body, "temperature", sampling.temperature.as_ref());
        set(body, "top_p", sampling.top_p.as_ref());
        set(body, "frequency_penalty", sampling.frequency_penalty.as_ref());
        set(body, "presence_penalty", sampling.presence_penalty.as_ref());
        set(body, "stop", sampling.stop.as_ref());
        set(body, "seed", sampling.seed.as_ref());
        if sampling.n.is_some_and(|n| n > 1) {
            losses.lost(ContentKind::Sampling, "n: a run has one answer");
        }

        let field = |object: &str, name: &str| {
            let fields: Extra = request.extra.get(object)?.decode()?;
            fields.get(name).filter(|value| !value.is_null()).cloned()
        };

        set(
            body,
            "response_format",
            field("text", "format").and_then(|format| tools::response_format(&format)).as_ref(),
        );
        set(body, "reasoning_effort", field("reasoning", "effort").as_ref());
    }
}

fn set<T: Serialize + ?Sized>(body: &mut Extra, name: &str, value: Option<&T>) {
    if let Some(value) = value {
        body.set(name, Json::from_serialize(value));
    }
}
