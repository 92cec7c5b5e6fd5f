//! The card that an agent's own server shows, where a route's card begins with it (`card_from`): read leniently, in
//! whatever generation it is written, and freed of everything that says where the agent is or how to sign in there.
//!
//! Invariants: interfaces, capabilities, security and signatures are never taken over. No link is, that leads to a host
//! the agent is served from, or to a place that is not public. Reading what was kept of a card gives the same again.
//! Not here: fetching and keeping it, which is the gateway's, and what wins over it (`super`).

use std::collections::HashSet;

use interlingua_core::public_address::Policy;
use interlingua_core::tree::{Node, Object};
use interlingua_core::well_known::WellKnownDocument;
use interlingua_core::{Extra, Json};

use super::{CardOptions, Provider, Skill};

/// Fields that are the gateway's alone, in any spelling and of any generation: small letters, nothing else.
const REPLACED: &[&str] = &[
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
/// Fields that are read, in the same form.
const READ: &[&str] = &[
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
/// Where a card says at which URLs the agent is served.
const PLACES: &[&str] =
    &["supportedInterfaces", "supported_interfaces", "additionalInterfaces", "additional_interfaces"];
/// Ends of names that nobody outside knows.
const INTERNAL: &[&str] =
    &[".localhost", ".local", ".internal", ".lan", ".intranet", ".private", ".corp", ".home", ".home.arpa", ".svc"];
/// More hosts of its own than so many no honest card names.
const MAX_HOSTS: usize = 32;

/// How the gateway finds the card of an agent (section 15).
pub(crate) fn wanted(agent: &str) -> WellKnownDocument {
    WellKnownDocument {
        agent: agent.to_owned(),
        paths: &["/.well-known/agent-card.json", "/.well-known/agent.json"],
        headers: &[("accept", "application/json"), ("a2a-version", "1.0")],
        extract: |url, body| {
            let card = Upstream::of(url, &Node::parse_object(body).ok()?);
            card.card.name.is_some().then(|| card.kept())
        },
    }
}

/// What an agent's own server says of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Upstream {
    /// In the operator's form, security left out.
    pub(super) card: CardOptions,
    /// What this version has no name for, as far as it names no place.
    pub(super) rest: Extra,
}

impl Upstream {
    /// Reads what was kept of a card.
    pub(crate) fn read(kept: &Json) -> Self {
        Node::parse_object(kept.text().as_bytes()).map(|object| Self::of("", &object)).unwrap_or_default()
    }

    /// Reads a card that was found at a URL. What is not of its type counts as not said.
    fn of(url: &str, object: &Object<'_>) -> Self {
        let own = Own::of(url, object);
        let provider = object.get("provider").and_then(|node| node.object().ok());
        let provider = provider.and_then(|provider| {
            let organization = text(&provider, &["organization", "organisation"])?;
            Some(Provider { organization, url: text(&provider, &["url"]).filter(|url| own.may_link(url))? })
        });
        let link = |names: &[&str]| text(object, names).filter(|url| own.may_link(url));
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
        let mut rest = Extra::new();
        rest.merge(
            object
                .iter()
                .filter(|(name, node)| {
                    let plain = plain(name);
                    !REPLACED.contains(&plain.as_str()) && !READ.contains(&plain.as_str()) && own.may_say(node)
                })
                .map(|(name, node)| (name.to_owned(), node.to_json()))
                .collect(),
        );
        Self { card, rest }
    }

    /// What is kept of it: a card without everything that is replaced in any case.
    fn kept(self) -> Json {
        let mut kept = Extra::new();
        let CardOptions { name, description, version, documentation_url, icon_url, .. } = &self.card;
        for (name, value) in [
            ("name", name),
            ("description", description),
            ("version", version),
            ("documentationUrl", documentation_url),
            ("iconUrl", icon_url),
        ] {
            if let Some(value) = value {
                kept.push(name, Json::from_serialize(value));
            }
        }
        if let Some(provider) = &self.card.provider {
            kept.push("provider", Json::from_serialize(provider));
        }
        kept.push("defaultInputModes", Json::from_serialize(&self.card.input_modes));
        kept.push("defaultOutputModes", Json::from_serialize(&self.card.output_modes));
        kept.push("skills", Json::from_serialize(&self.card.skills));
        for (name, value) in self.rest.iter() {
            kept.push(name, value.clone());
        }
        Json::from_serialize(&kept)
    }
}

/// Where the agent is, in its own words and by where its card was found.
struct Own(Vec<String>);

impl Own {
    fn of(url: &str, card: &Object<'_>) -> Self {
        let entries = PLACES.iter().filter_map(|name| card.array(name).ok()).flatten().take(MAX_HOSTS);
        let told = entries.filter_map(|entry| text(&entry.object().ok()?, &["url"]));
        let told = text(card, &["url"]).into_iter().chain(told);
        let mut hosts: Vec<String> = std::iter::once(url.to_owned()).chain(told).filter_map(|url| host(&url)).collect();
        hosts.sort_unstable();
        hosts.dedup();
        Self(hosts)
    }

    /// Whether clients may be sent there: a public place, and none the agent itself is served from.
    fn may_link(&self, url: &str) -> bool {
        if url.starts_with("data:image/") {
            return true;
        }
        let anybody = Policy { allow_http: true, ..Policy::default() };
        anybody.destination(url).is_ok_and(|place| {
            let known_outside = place.address.is_some()
                || (place.host.contains('.') && !INTERNAL.iter().any(|end| place.host.ends_with(end)));
            known_outside && !self.0.contains(&place.host)
        })
    }

    /// Whether a field nobody here knows may be passed on: it names no place at all.
    fn may_say(&self, node: &Node<'_>) -> bool {
        fn innocent(value: &serde_json::Value, own: &Own) -> bool {
            match value {
                serde_json::Value::String(text) => own.is_innocent(text),
                serde_json::Value::Array(values) => values.iter().all(|value| innocent(value, own)),
                serde_json::Value::Object(fields) => {
                    fields.iter().all(|(name, value)| own.is_innocent(name) && innocent(value, own))
                }
                _ => true,
            }
        }
        // What is nested too deeply to be read by clients is not passed on either.
        serde_json::from_str(node.text()).is_ok_and(|value| innocent(&value, self))
    }

    fn is_innocent(&self, text: &str) -> bool {
        let text = text.to_ascii_lowercase();
        !text.contains("://") && !self.0.iter().any(|host| text.contains(host.as_str()))
    }
}

/// The host of a URL, without its port.
fn host(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let place = authority.rsplit('@').next()?;
    let host = match place.strip_prefix('[') {
        Some(inner) => inner.split(']').next()?,
        None => place.split(':').next()?,
    };
    (!host.is_empty()).then(|| host.trim_end_matches('.').to_ascii_lowercase())
}

/// A field's name without what spellings differ in.
fn plain(name: &str) -> String {
    name.chars().filter(|letter| !matches!(letter, '_' | '-')).map(|letter| letter.to_ascii_lowercase()).collect()
}

/// Something that is said, if it is.
fn said(node: &Node<'_>) -> Option<String> {
    node.string().ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn text(object: &Object<'_>, names: &[&str]) -> Option<String> {
    object.any(names).as_ref().and_then(said)
}

/// A list of texts, or the one text that stands in its place.
fn texts(object: &Object<'_>, names: &[&str]) -> Vec<String> {
    let Some(node) = object.any(names) else { return Vec::new() };
    match node.array() {
        Ok(nodes) => nodes.filter_map(|node| said(&node)).collect(),
        Err(_) => said(&node).into_iter().collect(),
    }
}

/// Skills that have at least a name, whatever else is missing: cards may not go without.
fn skills(card: &Object<'_>) -> Vec<Skill> {
    let mut known = HashSet::new();
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
    skills.filter(|skill| known.insert(skill.id.clone())).collect()
}
