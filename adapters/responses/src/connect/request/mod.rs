//! The request: fields, tools and settings.
//!
//! See `docs/protocols/responses.md`. Messages become items in `items`, contents parts in
//! `parts`.

mod items;
mod parts;
mod tools;

use std::collections::HashSet;

use interlingua_adapter_kit::wire_names::{MAX_NAME, OriginalNames, ToolNames};
use interlingua_core::connector::TurnRequest;
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::{Extra, Json, client_tool};
use serde::Serialize;

use super::options::{Background, Chain, Penalties, SystemRole, UpstreamOptions};

/// Fields that other protocols of the family write in the same way.
const FORWARDED: [&str; 5] = ["text", "reasoning", "parallel_tool_calls", "truncation", "service_tier"];

/// The input of a request body.
pub(super) struct RequestBody<'a> {
    pub(super) options: &'a UpstreamOptions,
    pub(super) turn: &'a TurnRequest<'a>,
    /// The response that the request continues.
    pub(super) previous: Option<&'a str>,
    /// The calls whose output the server waits for.
    pub(super) open_calls: &'a [String],
    /// The tools in force.
    pub(super) tools: &'a [Json],
    /// The author of values that only their author can read.
    pub(super) origin: &'a str,
    /// Whether the server stores the conversation: items may then answer questions that only the server has.
    pub(super) goes_on: bool,
}

impl RequestBody<'_> {
    /// The body, in the order in which people write it, and the client's names of tools that have another one in it.
    pub(super) fn to_json(&self, losses: &mut Losses) -> (Extra, OriginalNames) {
        let request = self.turn.request;
        let options = self.options;
        let mut names = ToolNames::new(MAX_NAME);
        // Tools are named before the calls of the conversation are.
        let tools = self.all_tools(&mut names, losses);
        let written = items::write(self, &mut names, losses);

        let mut body = Extra::new();
        // The operator's name wins: what a client calls the agent is no name of a model.
        set(&mut body, "model", options.model.as_ref().or(request.model.as_ref()));
        let own = options.instructions.iter().map(String::as_str);
        let all: Vec<&str> = own.chain(written.instructions.iter().map(String::as_str)).collect();
        if !all.is_empty() {
            set(&mut body, "instructions", Some(&all.join("\n\n")));
        }
        set(&mut body, "input", Some(&written.items));
        set(&mut body, "previous_response_id", self.previous);
        set(&mut body, "stream", Some(&(options.background != Background::Poll)));
        set(&mut body, "store", Some(&options.stores()));
        if options.background != Background::Off {
            set(&mut body, "background", Some(&true));
        }

        self.set_tools(&mut body, &tools, &mut names);
        self.settings(&mut body, losses);
        self.extras(&mut body, losses);
        for (name, value) in &options.parameters {
            if body.get(name).is_none() {
                set(&mut body, name, Some(value));
            }
        }
        (body, names.into_originals())
    }

    /// The tools of the client, then those of the operator that the client names no other for.
    fn all_tools(&self, names: &mut ToolNames, losses: &mut Losses) -> Vec<Extra> {
        let mut named = Vec::with_capacity(self.tools.len());
        for tool in self.tools {
            match client_tool::normal(tool, losses).as_ref().and_then(client_tool::name_and_fields) {
                Some(function) => named.push(function),
                None => losses.lost(ContentKind::ToolDeclaration, "a tool of a client is a function with a name"),
            }
        }

        let declared: HashSet<&str> = named.iter().map(|(name, _)| name.as_str()).collect();
        let own_name = |tool: &Extra| tool.get("name").and_then(Json::decode::<String>);
        let own = self.options.tools().into_iter();
        let own: Vec<Extra> =
            own.filter(|tool| own_name(tool).is_none_or(|name| !declared.contains(name.as_str()))).collect();
        for name in own.iter().filter_map(own_name) {
            names.reserve(&name);
        }
        names.reserve_accepted(declared);

        let mut tools = Vec::with_capacity(named.len() + own.len());
        for (name, fields) in named {
            tools.push(tools::flat(&names.to_wire(&name), &fields));
        }
        tools.extend(own);
        tools
    }

    fn set_tools(&self, body: &mut Extra, tools: &[Extra], names: &mut ToolNames) {
        // Several servers refuse an empty list, and a choice without a list.
        if tools.is_empty() {
            return;
        }
        set(body, "tools", Some(tools));
        let choice = self.turn.request.extra.get("tool_choice").filter(|choice| !choice.is_null());
        set(body, "tool_choice", choice.map(|choice| tools::flat_choice(choice, names)).as_ref());
    }

    fn settings(&self, body: &mut Extra, losses: &mut Losses) {
        let sampling = &self.turn.request.sampling;
        set(body, "max_output_tokens", sampling.max_tokens.as_ref());
        set(body, "temperature", sampling.temperature.as_ref());
        set(body, "top_p", sampling.top_p.as_ref());
        if self.options.penalties == Penalties::Forward {
            set(body, "frequency_penalty", sampling.frequency_penalty.as_ref());
            set(body, "presence_penalty", sampling.presence_penalty.as_ref());
        } else if sampling.frequency_penalty.is_some() || sampling.presence_penalty.is_some() {
            losses.lost(ContentKind::Sampling, "penalties are not sent (option penalties)");
        }

        if sampling.stop.is_some() {
            losses.lost(ContentKind::Sampling, "the protocol has no stop sequences");
        }
        if sampling.seed.is_some() {
            losses.lost(ContentKind::Sampling, "the protocol has no seed");
        }
        if sampling.n.is_some_and(|n| n > 1) {
            losses.lost(ContentKind::Sampling, "the protocol has one answer for each request");
        }
    }

    fn extras(&self, body: &mut Extra, losses: &mut Losses) {
        let request = self.turn.request;
        let extra = |name: &str| request.extra.get(name).filter(|value| !value.is_null());
        for name in FORWARDED {
            set(body, name, extra(name));
        }

        if let Some(found) = extra("metadata") {
            match found.decode::<std::collections::BTreeMap<String, String>>() {
                Some(_) => set(body, "metadata", Some(found)),
                None => losses.lost(ContentKind::Metadata, "the protocol has texts as metadata only"),
            }
        }

        let mut include: Vec<String> = extra("include").and_then(Json::decode).unwrap_or_default();
        let encrypted = "reasoning.encrypted_content";
        let asks = self.options.encrypted_reasoning && !self.options.stores();
        if asks && !include.iter().any(|entry| entry == encrypted) {
            include.push(encrypted.to_owned());
        }
        if !include.is_empty() {
            set(body, "include", Some(&include));
        }

        if let Some(field) = self.options.user.field() {
            set(body, field, request.user_id.as_ref());
        }
        for name in &self.options.forward_extras {
            if body.get(name).is_none() {
                set(body, name, extra(name));
            }
        }
    }
}

impl UpstreamOptions {
    /// The role of instructions that are sent as messages. None: they go into a field of their own.
    pub(super) const fn instruction_role(&self) -> Option<&'static str> {
        match self.system_role {
            SystemRole::Developer => Some("developer"),
            SystemRole::System => Some("system"),
            SystemRole::Instructions => None,
        }
    }

    /// True if the server is sent everything each time.
    pub(super) fn sends_all(&self) -> bool {
        self.chain == Chain::Full
    }
}

pub(super) fn set<T: Serialize + ?Sized>(body: &mut Extra, name: &str, value: Option<&T>) {
    if let Some(value) = value {
        body.set(name, Json::from_serialize(value));
    }
}
