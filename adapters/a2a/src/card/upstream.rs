//! The card of the agent's own server, as the base of a route's card (`card_from`): parsed leniently in any version,
//! and stripped of everything that shows where the agent runs or how to authenticate there.
//!
//! Invariants: interfaces, capabilities, security and signatures are never copied. Links to hosts that serve the agent,
//! or to non-public hosts, are never copied. Parsing a stored card and storing it again gives the same card. Not here:
//! fetching and caching, which the gateway does, and which source wins (`super`).

use std::collections::HashSet;

use interlingua_core::public_address::Policy;
use interlingua_core::tree::{Node, Object};
use interlingua_core::well_known::WellKnownDocument;
use interlingua_core::{Extra, Json};

use super::{CardOptions, Provider, Skill};

/// Fields that only the gateway sets, of all versions, as normalized by [`normalize`].
const REPLACED_FIELDS: &[&str] = &[
    "supportedinterfaces",
    "additionalinterfaces",
    "interfaces",
    "url",
    "preferredtransport",
    "protocolversion",
    "protocolversions",
    "capabilities",
    "securityschemes",
    "securityrequirements",
    "security",
    "authentication",
    "signatures",
    "signature",
    "supportsauthenticatedextendedcard",
    "supportsextendedagentcard",
    "supportsextendedcard",
];
/// Fields that are parsed, normalized in the same way.
const READ_FIELDS: &[&str] = &[
    "name",
    "description",
    "version",
    "provider",
    "documentationurl",
    "iconurl",
    "defaultinputmodes",
    "defaultoutputmodes",
    "skills",
];
/// Fields that list the agent's URLs.
const INTERFACE_FIELDS: &[&str] =
    &["supportedInterfaces", "supported_interfaces", "additionalInterfaces", "additional_interfaces"];
/// Suffixes of host names that are not public.
const INTERNAL_SUFFIXES: &[&str] =
    &[".localhost", ".local", ".internal", ".lan", ".intranet", ".private", ".corp", ".home", ".home.arpa", ".svc"];
/// Maximum number of interface URLs read from a card; no honest card has more.
const MAX_HOSTS: usize = 32;

/// The document from which the gateway reads the card of an agent (docs/protocols/a2a.md#reading-an-agents-card).
pub(crate) fn well_known_document(agent: &str) -> WellKnownDocument {
    WellKnownDocument {
        agent: agent.to_owned(),
        paths: &["/.well-known/agent-card.json", "/.well-known/agent.json"],
        headers: &[("accept", "application/json"), ("a2a-version", "1.0")],
        extract: |urls, body| {
            let card = UpstreamCard::parse(urls, &Node::parse_object(body).ok()?);
            card.card.name.is_some().then(|| card.into_stored())
        },
    }
}

/// The card of the agent's own server.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpstreamCard {
    /// Known fields, without security.
    pub(super) card: CardOptions,
    /// Unknown fields that contain no URL or host of the agent.
    pub(super) other_fields: Extra,
}

impl UpstreamCard {
    /// Restores a stored card.
    pub(crate) fn from_stored(stored: &Json) -> Self {
        Node::parse_object(stored.text().as_bytes()).map(|object| Self::parse(&[], &object)).unwrap_or_default()
    }

    /// Parses a card. `urls`: its own and that of the agent. Fields of a wrong type count as absent.
    fn parse(urls: &[&str], object: &Object<'_>) -> Self {
        let hosts = AgentHosts::parse(urls, object);

        let provider = object.get("provider").and_then(|node| node.object().ok());
        let provider = provider.and_then(|provider| {
            let organization = text(&provider, &["organization", "organisation"])?;
            Some(Provider { organization, url: text(&provider, &["url"]).filter(|url| hosts.may_link(url))? })
        });

        let link = |names: &[&str]| text(object, names).filter(|url| hosts.may_link(url));

        let card = CardOptions {
            name: text(object, &["name"]),
            description: text(object, &["description"]),
            version: text(object, &["version"]),
            provider,
            documentation_url: link(&["documentationUrl", "documentation_url"]),
            icon_url: link(&["iconUrl", "icon_url"]),
            input_modes: texts(object, &["defaultInputModes", "default_input_modes"]),
            output_modes: texts(object, &["defaultOutputModes", "default_output_modes"]),
            skills: skills(object),
            ..CardOptions::default()
        };

        let mut other_fields = Extra::new();
        other_fields.merge(
            object
                .iter()
                .filter(|(name, node)| {
                    let name = normalize(name);
                    !REPLACED_FIELDS.contains(&name.as_str())
                        && !READ_FIELDS.contains(&name.as_str())
                        && hosts.may_pass_on(node)
                })
                .map(|(name, node)| (name.to_owned(), node.to_json()))
                .collect(),
        );

        Self { card, other_fields }
    }

    /// The form to store: the card without the fields that the gateway replaces.
    fn into_stored(self) -> Json {
        let mut stored = Extra::new();
        let CardOptions { name, description, version, documentation_url, icon_url, .. } = &self.card;
        for (name, value) in [
            ("name", name),
            ("description", description),
            ("version", version),
            ("documentationUrl", documentation_url),
            ("iconUrl", icon_url),
        ] {
            if let Some(value) = value {
                stored.push(name, Json::from_serialize(value));
            }
        }

        if let Some(provider) = &self.card.provider {
            stored.push("provider", Json::from_serialize(provider));
        }
        stored.push("defaultInputModes", Json::from_serialize(&self.card.input_modes));
        stored.push("defaultOutputModes", Json::from_serialize(&self.card.output_modes));
        stored.push("skills", Json::from_serialize(&self.card.skills));

        for (name, value) in self.other_fields.iter() {
            stored.push(name, value.clone());
        }

        Json::from_serialize(&stored)
    }
}

/// Hosts that serve the agent: those in its card, the one the card was found on, and the configured one.
struct AgentHosts(Vec<String>);

impl AgentHosts {
    fn parse(known: &[&str], card: &Object<'_>) -> Self {
        let entries = INTERFACE_FIELDS.iter().filter_map(|name| card.array(name).ok()).flatten().take(MAX_HOSTS);
        let urls = entries.filter_map(|entry| text(&entry.object().ok()?, &["url"]));
        let urls = text(card, &["url"]).into_iter().chain(urls);
        let known = known.iter().filter_map(|url| host(url));
        let mut hosts: Vec<String> = known.chain(urls.filter_map(|url| host(&url))).collect();

        hosts.sort_unstable();
        hosts.dedup();
        Self(hosts)
    }

    /// True if a card may link to this URL: its host is public and does not serve the agent.
    fn may_link(&self, url: &str) -> bool {
        if url.starts_with("data:image/") {
            return true;
        }

        let policy = Policy { allow_http: true, ..Policy::default() };
        policy.destination(url).is_ok_and(|target| {
            let is_public_name = target.address.is_some()
                || (target.host.contains('.') && !INTERNAL_SUFFIXES.iter().any(|end| target.host.ends_with(end)));
            is_public_name && !self.0.contains(&target.host)
        })
    }

    /// True if an unknown field may be copied: it contains no URL and no host of the agent.
    fn may_pass_on(&self, node: &Node<'_>) -> bool {
        fn is_harmless(value: &serde_json::Value, hosts: &AgentHosts) -> bool {
            match value {
                serde_json::Value::String(text) => hosts.is_harmless_text(text),
                serde_json::Value::Array(values) => values.iter().all(|value| is_harmless(value, hosts)),
                serde_json::Value::Object(fields) => {
                    fields.iter().all(|(name, value)| hosts.is_harmless_text(name) && is_harmless(value, hosts))
                }
                _ => true,
            }
        }

        // Fields nested too deeply for serde_json are dropped: clients could not read them either.
        serde_json::from_str(node.text()).is_ok_and(|value| is_harmless(&value, self))
    }

    fn is_harmless_text(&self, text: &str) -> bool {
        let text = text.to_ascii_lowercase();
        !text.contains("://") && !self.0.iter().any(|host| text.contains(host.as_str()))
    }
}

/// The host of a URL, without port.
fn host(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let target = authority.rsplit('@').next()?;

    let host = match target.strip_prefix('[') {
        Some(inner) => inner.split(']').next()?,
        None => target.split(':').next()?,
    };

    (!host.is_empty()).then(|| host.trim_end_matches('.').to_ascii_lowercase())
}

/// A field name in lower case, without `_` and `-`.
fn normalize(name: &str) -> String {
    name.chars()
        .filter(|character| !matches!(character, '_' | '-'))
        .map(|character| character.to_ascii_lowercase())
        .collect()
}

/// The trimmed string of a node. `None` if it is empty or not a string.
fn non_empty(node: &Node<'_>) -> Option<String> {
    node.string().ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn text(object: &Object<'_>, names: &[&str]) -> Option<String> {
    object.get_any(names).as_ref().and_then(non_empty)
}

/// A list of strings; a single string counts as a list of one.
fn texts(object: &Object<'_>, names: &[&str]) -> Vec<String> {
    let Some(node) = object.get_any(names) else { return Vec::new() };
    match node.array() {
        Ok(nodes) => nodes.filter_map(|node| non_empty(&node)).collect(),
        Err(_) => non_empty(&node).into_iter().collect(),
    }
}

/// Skills with at least an id or a name. Other missing fields get defaults, since cards must have them.
fn skills(card: &Object<'_>) -> Vec<Skill> {
    let mut seen = HashSet::new();
    let nodes = card.array("skills").unwrap_or_default();
    let skills = nodes.filter_map(|node| {
        let skill = node.object().ok()?;
        let (id, name) = (text(&skill, &["id"]), text(&skill, &["name"]));
        let id = id.or_else(|| name.clone())?;
        let name = name.unwrap_or_else(|| id.clone());

        let mut tags = texts(&skill, &["tags"]);
        if tags.is_empty() {
            tags.push(id.clone());
        }

        Some(Skill {
            description: text(&skill, &["description"]).unwrap_or_else(|| name.clone()),
            tags,
            examples: texts(&skill, &["examples"]),
            input_modes: texts(&skill, &["inputModes", "input_modes"]),
            output_modes: texts(&skill, &["outputModes", "output_modes"]),
            security: Vec::new(),
            id,
            name,
        })
    });
    skills.filter(|skill| seen.insert(skill.id.clone())).collect()
}
