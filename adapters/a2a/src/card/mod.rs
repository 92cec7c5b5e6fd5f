//! The agent card: its options, and its three formats, 1.0, 0.3 and a hybrid of both
//! (docs/protocols/a2a.md#agent-card).
//!
//! Invariant: interfaces, capabilities, security and URLs are always the gateway's, never an upstream's. Not here:
//! which fields an upstream's card may contribute (`upstream`), and serving cards over HTTP (`serve`).

mod canonical;
mod check;
pub(crate) mod options;
mod security;
pub(crate) mod serve;
pub(crate) mod sign;
pub(crate) mod upstream;
mod values;
mod variant;

use std::borrow::Cow;
use std::collections::BTreeMap;

use interlingua_core::call::AgentCard;
use interlingua_core::{Extra, Json};
use serde::Serialize;
use serde_json::Value;

pub(crate) use check::check;
pub use options::{CardOptions, Provider, Skill};
pub(crate) use security::of_route;
pub use security::{Flow, Flows, Requirement, Scheme};
pub(crate) use sign::CardSigner;
pub use sign::{Algorithm, CardSigning};
pub(crate) use upstream::UpstreamCard;
pub(crate) use variant::Variant;

use crate::dialect::{Binding, Generation};
use crate::options::Options;

/// The sources of a card. Of several, `extended` wins over `options`, and `options` over `upstream`.
pub(crate) struct CardBuilder<'a> {
    pub(crate) agent: &'a AgentCard,
    pub(crate) options: &'a Options,
    /// The route's authentication schemes, which replace those of the options. Empty: the route has no authentication.
    pub(crate) schemes: &'a BTreeMap<String, Scheme>,
    /// Contents of the extended card. `None` for the public card.
    pub(crate) extended: Option<&'a CardOptions>,
    /// The card of the agent's own server, if the route uses it.
    pub(crate) upstream: Option<&'a UpstreamCard>,
}

impl CardBuilder<'_> {
    /// Builds the card, with its fields in reading order. `has_extended_card`: the card advertises an extended card.
    pub(crate) fn card(&self, variant: Variant, url: &str, has_extended_card: bool) -> Extra {
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
            set("supportedInterfaces", Json::from_serialize(&self.v1_interfaces(&interfaces, url)));
        }
        set("capabilities", Json::from_serialize(&self.capabilities(has_extended_card && variant.has(Generation::V1))));
        set("defaultInputModes", Json::from_serialize(&self.modes(|card| &card.input_modes)));
        set("defaultOutputModes", Json::from_serialize(&self.modes(|card| &card.output_modes)));

        let (schemes, skills) = (self.schemes(), self.skills(name, description));
        // A skill of the options names schemes of the options.
        let schemes = schemes.filter(|_| self.schemes.is_empty());
        let skills: Vec<_> = skills.iter().map(|skill| SkillEntry::new(skill, schemes, variant)).collect();
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

        self.write_security(variant, &mut set);
        if variant.has(Generation::V03) {
            self.write_v03_fields(&interfaces, url, has_extended_card, &mut set);
            // Not in 1.0: its readers may be strict, and verifiers would canonicalize fields that they do not know.
            for (name, value) in self.upstream.iter().flat_map(|upstream| upstream.other_fields.iter()) {
                set(name, value.clone());
            }
        }
        card
    }

    /// `supportedInterfaces` of 1.0: first without a tenant, then per tenant. Only 1.0 has tenants.
    fn v1_interfaces<'t>(&'t self, interfaces: &[(Binding, Generation)], url: &'t str) -> Vec<Interface<'t>> {
        let entries = |tenant: Option<&'t str>| {
            let supported =
                interfaces.iter().filter(move |(_, generation)| tenant.is_none() || *generation == Generation::V1);
            supported.map(move |(binding, generation)| Interface {
                url,
                binding: binding.as_str(),
                version: generation.as_str(),
                tenant,
            })
        };

        let tenants = self.options.tenants.keys().map(|tenant| Some(tenant.as_str()));
        std::iter::once(None).chain(tenants).flat_map(entries).collect()
    }

    /// Writes the fields that only 0.3 has: its interfaces, preferred first.
    fn write_v03_fields(
        &self,
        interfaces: &[(Binding, Generation)],
        url: &str,
        has_extended_card: bool,
        set: &mut dyn FnMut(&str, Json),
    ) {
        let bindings: Vec<Binding> = interfaces
            .iter()
            .filter(|(_, generation)| *generation == Generation::V03)
            .map(|(binding, _)| *binding)
            .collect();

        let Some(preferred) = bindings.first() else { return };
        set("protocolVersion", Json::from_serialize("0.3.0"));
        set("url", Json::from_serialize(url));
        set("preferredTransport", Json::from_serialize(preferred.as_str()));
        let all: Vec<_> = bindings.iter().map(|binding| Transport { url, transport: binding.as_str() }).collect();
        set("additionalInterfaces", Json::from_serialize(&all));
        if has_extended_card {
            set("supportsAuthenticatedExtendedCard", Json::from_serialize(&true));
        }
    }

    fn sources(&self) -> impl Iterator<Item = &CardOptions> {
        self.extended.into_iter().chain([&self.options.card]).chain(self.upstream.map(|upstream| &upstream.card))
    }

    fn text<'t>(&'t self, read: impl Fn(&'t CardOptions) -> Option<&'t str>, fallback: &'t str) -> &'t str {
        self.sources().find_map(read).unwrap_or(fallback)
    }

    /// All served interfaces in order of preference (docs/protocols/a2a.md#agent-card).
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
                .map(|extension| ExtensionEntry {
                    uri: &extension.uri,
                    description: extension.description.as_deref(),
                    required: extension.required,
                    params: extension.params.as_ref(),
                })
                .collect(),
        }
    }

    fn modes<'t>(&'t self, read: impl Fn(&'t CardOptions) -> &'t Vec<String>) -> Vec<&'t str> {
        let configured = self.sources().map(read).find(|modes| !modes.is_empty());
        configured.map_or_else(|| vec!["text/plain"], |modes| modes.iter().map(String::as_str).collect())
    }

    /// Media types that the card lists as inputs.
    pub(crate) fn input_modes(&self) -> Vec<&str> {
        self.modes(|card| &card.input_modes)
    }

    /// The configured skills; else one generic skill, since the list must not be empty.
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
        let configured = self.sources().map(|card| &card.security_schemes);
        std::iter::once(self.schemes).chain(configured).find(|schemes| !schemes.is_empty())
    }

    fn write_security(&self, variant: Variant, set: &mut dyn FnMut(&str, Json)) {
        let Some(schemes) = self.schemes() else { return };
        let written: Extra = schemes
            .iter()
            .filter_map(|(name, scheme)| Some((name.clone(), Json::from_serialize(&scheme.fields(variant)?))))
            .collect();
        if !written.is_empty() {
            set("securitySchemes", Json::from_serialize(&written));
        }

        // Any one of the route's schemes is enough.
        let own: Vec<Requirement> =
            self.schemes.keys().map(|name| Requirement::from([(name.clone(), Vec::new())])).collect();
        let configured = self.sources().map(|card| card.security.as_slice());
        let requirements = std::iter::once(own.as_slice()).chain(configured).find(|list| !list.is_empty());
        let Some(requirements) = requirements else { return };

        let (v1, v03) = security::requirements(requirements, schemes, variant);
        if !v1.is_empty() {
            set("securityRequirements", Json::from_serialize(&v1));
        }
        if !v03.is_empty() {
            set("security", Json::from_serialize(&v03));
        }
    }
}

/// A skill with the security fields of the card's format.
#[derive(Serialize)]
struct SkillEntry<'a> {
    #[serde(flatten)]
    skill: &'a Skill,
    #[serde(rename = "securityRequirements", skip_serializing_if = "Vec::is_empty")]
    v1_requirements: Vec<Value>,
    #[serde(rename = "security", skip_serializing_if = "Vec::is_empty")]
    v03_requirements: Vec<&'a Requirement>,
}

impl<'a> SkillEntry<'a> {
    fn new(skill: &'a Skill, schemes: Option<&BTreeMap<String, Scheme>>, variant: Variant) -> Self {
        let (v1_requirements, v03_requirements) =
            schemes.map(|schemes| security::requirements(&skill.security, schemes, variant)).unwrap_or_default();
        Self { skill, v1_requirements, v03_requirements }
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
    extensions: Vec<ExtensionEntry<'a>>,
}

#[derive(Serialize)]
struct ExtensionEntry<'a> {
    uri: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    required: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a serde_json::Value>,
}

#[cfg(test)]
mod tests;
