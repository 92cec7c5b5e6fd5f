//! The agent card: what an operator says of an agent, and the three forms it is given in, 1.0, 0.3 and both in one
//! (section 4).
//!
//! Invariant: interfaces, capabilities, security and URLs are the gateway's own, never an upstream's. What an upstream's
//! card may lend is in `upstream`, how cards are asked for in `serve`.

mod canonical;
mod check;
mod security;
pub(crate) mod serve;
mod sign;
pub(crate) mod upstream;

use std::borrow::Cow;
use std::collections::BTreeMap;

use interlingua_core::call::AgentCard;
use interlingua_core::{Extra, Json};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) use check::check;
pub use security::{Flow, Flows, Requirement, Scheme};
pub(crate) use sign::CardSigner;
pub use sign::{Algorithm, CardSigning};
pub(crate) use upstream::Upstream;

use crate::dialect::{Binding, Generation};
use crate::options::Options;

/// What an operator says of an agent. What is left out comes from the agent's own settings.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CardOptions {
    /// What people call it.
    pub name: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// Its own version.
    pub version: Option<String>,
    /// Who offers it.
    pub provider: Option<Provider>,
    /// Where to read more.
    pub documentation_url: Option<String>,
    /// A picture.
    pub icon_url: Option<String>,
    /// Media types it takes.
    pub input_modes: Vec<String>,
    /// Media types it gives.
    pub output_modes: Vec<String>,
    /// What it can do.
    pub skills: Vec<Skill>,
    /// Ways to sign in, by name.
    pub security_schemes: BTreeMap<String, Scheme>,
    /// Which of them are needed, with which scopes: one entry of the list suffices.
    pub security: Vec<Requirement>,
}

/// Who offers an agent.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// Its name.
    pub organization: String,
    /// Its page.
    pub url: String,
}

/// Something an agent can do.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Skill {
    /// Unique in the card.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// What it is.
    pub description: String,
    /// Words to find it by; at least one.
    pub tags: Vec<String>,
    /// What to ask, for example.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
    /// Media types it takes, if others than the agent's.
    #[serde(default, rename(serialize = "inputModes"), skip_serializing_if = "Vec::is_empty")]
    pub input_modes: Vec<String>,
    /// Media types it gives, if others than the agent's.
    #[serde(default, rename(serialize = "outputModes"), skip_serializing_if = "Vec::is_empty")]
    pub output_modes: Vec<String>,
    /// Which ways to sign in it needs, if others than the agent does: one entry of the list suffices.
    #[serde(default, skip_serializing)]
    pub security: Vec<Requirement>,
}

/// The forms a card is given in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    V1,
    V03,
    Hybrid,
}

impl Variant {
    const fn has(self, generation: Generation) -> bool {
        match generation {
            Generation::V1 => !matches!(self, Self::V03),
            Generation::V03 => !matches!(self, Self::V1),
        }
    }
}

/// Everything a card is made of.
pub(crate) struct Material<'a> {
    pub(crate) agent: &'a AgentCard,
    pub(crate) options: &'a Options,
    /// The extended card: these come first.
    pub(crate) extended: Option<&'a CardOptions>,
    /// What the agent's own server says, where the route begins with that: it comes last.
    pub(crate) upstream: Option<&'a Upstream>,
}

impl Material<'_> {
    /// The card, its fields in the order people read them. `extends`: whether it says that there is an extended one.
    pub(crate) fn card(&self, variant: Variant, url: &str, extends: bool) -> Extra {
        let name = self.text(|card| card.name.as_deref(), &self.agent.name);
        let description = self.text(|card| card.description.as_deref(), &self.agent.description);
        let description = if description.is_empty() { name } else { description };
        let version = self.text(|card| card.version.as_deref(), &self.agent.version);
        let mut card = Extra::new();
        let mut set = |name: &str, value: Json| card.push(name, value);
        set("name", Json::from_serialize(name));
        set("description", Json::from_serialize(description));
        set("version", Json::from_serialize(if version.is_empty() { "1.0.0" } else { version }));
        let interfaces = self.interfaces();
        if variant.has(Generation::V1) {
            set("supportedInterfaces", Json::from_serialize(&self.current(&interfaces, url)));
        }
        set("capabilities", Json::from_serialize(&self.capabilities(extends && variant.has(Generation::V1))));
        set("defaultInputModes", Json::from_serialize(&self.modes(|card| &card.input_modes)));
        set("defaultOutputModes", Json::from_serialize(&self.modes(|card| &card.output_modes)));
        let (schemes, skills) = (self.schemes(), self.skills(name, description));
        let skills: Vec<_> = skills.iter().map(|skill| WrittenSkill::of(skill, schemes, variant)).collect();
        set("skills", Json::from_serialize(&skills));
        if let Some(provider) = self.sources().find_map(|card| card.provider.as_ref()) {
            set("provider", Json::from_serialize(provider));
        }
        if let Some(page) = self.sources().find_map(|card| card.documentation_url.as_ref()) {
            set("documentationUrl", Json::from_serialize(page));
        }
        if let Some(icon) = self.sources().find_map(|card| card.icon_url.as_ref()) {
            set("iconUrl", Json::from_serialize(icon));
        }
        self.security(variant, &mut set);
        if variant.has(Generation::V03) {
            self.old(&interfaces, url, extends, &mut set);
            // Readers of 1.0 may be strict, and would canonicalise what they do not know.
            for (name, value) in self.upstream.iter().flat_map(|upstream| upstream.rest.iter()) {
                set(name, value.clone());
            }
        }
        card
    }

    /// The interfaces of 1.0: those of the route's first agent, then those of every tenant, since only 1.0 knows them.
    fn current<'t>(&'t self, interfaces: &[(Binding, Generation)], url: &'t str) -> Vec<Interface<'t>> {
        let of = |tenant: Option<&'t str>| {
            let known =
                interfaces.iter().filter(move |(_, generation)| tenant.is_none() || *generation == Generation::V1);
            known.map(move |(binding, generation)| Interface {
                url,
                binding: binding.as_str(),
                version: generation.as_str(),
                tenant,
            })
        };
        let tenants = self.options.tenants.keys().map(|tenant| Some(tenant.as_str()));
        std::iter::once(None).chain(tenants).flat_map(of).collect()
    }

    /// What only 0.3 has: interfaces it can use, best first.
    fn old(&self, interfaces: &[(Binding, Generation)], url: &str, extends: bool, set: &mut dyn FnMut(&str, Json)) {
        let old: Vec<Binding> = interfaces
            .iter()
            .filter(|(_, generation)| *generation == Generation::V03)
            .map(|(binding, _)| *binding)
            .collect();
        let Some(preferred) = old.first() else { return };
        set("protocolVersion", Json::from_serialize("0.3.0"));
        set("url", Json::from_serialize(url));
        set("preferredTransport", Json::from_serialize(preferred.as_str()));
        let all: Vec<_> = old.iter().map(|binding| Transport { url, transport: binding.as_str() }).collect();
        set("additionalInterfaces", Json::from_serialize(&all));
        if extends {
            set("supportsAuthenticatedExtendedCard", Json::from_serialize(&true));
        }
    }

    fn sources(&self) -> impl Iterator<Item = &CardOptions> {
        self.extended.into_iter().chain([&self.options.card]).chain(self.upstream.map(|upstream| &upstream.card))
    }

    fn text<'t>(&'t self, read: impl Fn(&'t CardOptions) -> Option<&'t str>, own: &'t str) -> &'t str {
        self.sources().find_map(read).unwrap_or(own)
    }

    /// Every interface, in the order of preference (section 4, P).
    fn interfaces(&self) -> Vec<(Binding, Generation)> {
        let all = [
            (Binding::JsonRpc, Generation::V1),
            (Binding::Rest, Generation::V1),
            (Binding::JsonRpc, Generation::V03),
            (Binding::Rest, Generation::V03),
        ];
        let served = |(binding, generation): &(Binding, Generation)| {
            self.options.bindings.contains(binding) && self.options.versions.contains(generation)
        };
        all.into_iter().filter(served).collect()
    }

    fn capabilities(&self, extended: bool) -> Capabilities<'_> {
        Capabilities {
            streaming: true,
            push: self.options.push,
            extended,
            extensions: self
                .options
                .extensions
                .iter()
                .map(|extension| Declared {
                    uri: &extension.uri,
                    description: extension.description.as_deref(),
                    required: extension.required,
                    params: extension.params.as_ref(),
                })
                .collect(),
        }
    }

    fn modes<'t>(&'t self, read: impl Fn(&'t CardOptions) -> &'t Vec<String>) -> Vec<&'t str> {
        let told = self.sources().map(read).find(|modes| !modes.is_empty());
        told.map_or_else(|| vec!["text/plain"], |modes| modes.iter().map(String::as_str).collect())
    }

    /// The media types this agent takes.
    pub(crate) fn input_modes(&self) -> Vec<&str> {
        self.modes(|card| &card.input_modes)
    }

    /// Those told; else one, since the list may not be empty.
    fn skills<'t>(&'t self, name: &'t str, description: &'t str) -> Cow<'t, [Skill]> {
        if let Some(skills) = self.sources().map(|card| &card.skills).find(|skills| !skills.is_empty()) {
            return Cow::Borrowed(skills);
        }
        Cow::Owned(vec![Skill {
            id: self.agent.name.clone(),
            name: name.to_owned(),
            description: description.to_owned(),
            tags: vec![self.agent.name.clone()],
            examples: Vec::new(),
            input_modes: Vec::new(),
            output_modes: Vec::new(),
            security: Vec::new(),
        }])
    }

    fn schemes(&self) -> Option<&BTreeMap<String, Scheme>> {
        self.sources().map(|card| &card.security_schemes).find(|schemes| !schemes.is_empty())
    }

    fn security(&self, variant: Variant, set: &mut dyn FnMut(&str, Json)) {
        let Some(schemes) = self.schemes() else { return };
        let written: Extra = schemes
            .iter()
            .filter_map(|(name, scheme)| Some((name.clone(), Json::from_serialize(&scheme.fields(variant)?))))
            .collect();
        if !written.is_empty() {
            set("securitySchemes", Json::from_serialize(&written));
        }
        let needed = self.sources().map(|card| &card.security).find(|needed| !needed.is_empty());
        let Some(needed) = needed else { return };
        let (new, old) = security::requirements(needed, schemes, variant);
        if !new.is_empty() {
            set("securityRequirements", Json::from_serialize(&new));
        }
        if !old.is_empty() {
            set("security", Json::from_serialize(&old));
        }
    }
}

/// A skill as one form of the card has it.
#[derive(Serialize)]
struct WrittenSkill<'a> {
    #[serde(flatten)]
    skill: &'a Skill,
    #[serde(rename = "securityRequirements", skip_serializing_if = "Vec::is_empty")]
    new: Vec<Value>,
    #[serde(rename = "security", skip_serializing_if = "Vec::is_empty")]
    old: Vec<&'a Requirement>,
}

impl<'a> WrittenSkill<'a> {
    fn of(skill: &'a Skill, schemes: Option<&BTreeMap<String, Scheme>>, variant: Variant) -> Self {
        let (new, old) =
            schemes.map(|schemes| security::requirements(&skill.security, schemes, variant)).unwrap_or_default();
        Self { skill, new, old }
    }
}

#[derive(Serialize)]
struct Interface<'a> {
    url: &'a str,
    #[serde(rename = "protocolBinding")]
    binding: &'static str,
    #[serde(rename = "protocolVersion")]
    version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
}

#[derive(Serialize)]
struct Transport<'a> {
    url: &'a str,
    transport: &'static str,
}

#[derive(Serialize)]
struct Capabilities<'a> {
    streaming: bool,
    #[serde(rename = "pushNotifications", skip_serializing_if = "std::ops::Not::not")]
    push: bool,
    #[serde(rename = "extendedAgentCard", skip_serializing_if = "std::ops::Not::not")]
    extended: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    extensions: Vec<Declared<'a>>,
}

#[derive(Serialize)]
struct Declared<'a> {
    uri: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    required: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a serde_json::Value>,
}

/// JSON Schema of a card's options.
pub(crate) fn schema() -> serde_json::Value {
    let text = json!({ "type": "string" });
    let texts = json!({ "type": "array", "items": text });
    let needed =
        json!({ "type": "array", "items": { "type": "object", "minProperties": 1, "additionalProperties": texts } });
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "name": text, "description": text, "version": text, "documentation_url": text, "icon_url": text,
            "provider": {
                "type": "object", "additionalProperties": false, "required": ["organization", "url"],
                "properties": { "organization": text, "url": text }
            },
            "input_modes": texts, "output_modes": texts,
            "skills": {
                "type": "array",
                "items": {
                    "type": "object", "additionalProperties": false,
                    "required": ["id", "name", "description", "tags"],
                    "properties": {
                        "id": text, "name": text, "description": text, "tags": texts, "examples": texts,
                        "input_modes": texts, "output_modes": texts, "security": needed
                    }
                }
            },
            "security_schemes": { "type": "object", "additionalProperties": security::schema() },
            "security": needed
        }
    })
}

#[cfg(test)]
mod tests;
