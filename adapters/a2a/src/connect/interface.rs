//! Selection of the agent's URL, binding and version: from its card, of either generation, or from the options alone.
//!
//! Cards are read leniently: a value of an unexpected type is treated as absent. Not here: fetching the card (`turn`).

use interlingua_core::tree::{Node, Object};
use interlingua_core::{Fault, FaultKind};

use super::options::{UpstreamOptions, is_card};
use crate::dialect::{Binding, Dialect, Generation};
use interlingua_core::http_url::{Url, below};

/// Interfaces of a card that are looked at.
const MAX_INTERFACES: usize = 64;

/// URL, binding and version for requests to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) url: String,
    pub(super) dialect: Dialect,
    /// Whether the agent streams its answers.
    pub(super) streaming: bool,
    /// Goes into each request. Version 1.0 only.
    pub(super) tenant: Option<String>,
    /// The card named an origin that the operator did not allow. Requests go to the configured origin, with the card's
    /// path.
    pub(super) is_replaced: bool,
    /// The URL is of another origin than the configured one, and may have its credentials.
    pub(super) is_trusted: bool,
}

/// The URLs of all interfaces in a card of either generation.
pub(super) fn urls_of_card(card: &serde_json::Value) -> Vec<&str> {
    let interfaces =
        ["supportedInterfaces", "additionalInterfaces"].into_iter().filter_map(|list| card.get(list)?.as_array());
    let urls = interfaces.flatten().filter_map(|interface| interface.get("url")).chain(card.get("url"));
    urls.filter_map(serde_json::Value::as_str).collect()
}

impl Interface {
    /// The interface that the options alone name. None: the card has to say.
    pub(super) fn from_options(url: &str, options: &UpstreamOptions) -> Option<Self> {
        let dialect = Dialect { binding: options.binding?, generation: options.version? };
        let streaming = options.streaming.unwrap_or(true);
        let tenant = options.tenant.clone();
        Some(Self { url: url.to_owned(), dialect, streaming, tenant, is_replaced: false, is_trusted: false })
    }

    /// The first interface of a card that is spoken here. `url`: the one that is configured.
    ///
    /// # Errors
    /// If it is no card, or names none.
    pub(super) fn from_card(card: &[u8], url: &str, options: &UpstreamOptions) -> Result<Self, Fault> {
        let garbage = |fault: Fault| {
            Fault::new(FaultKind::UpstreamGarbage, "the agent's card could not be read").with_detail(fault)
        };
        let card = Node::parse_object(card).map_err(garbage)?;

        let mut candidates = current(&card);
        candidates.extend(old(&card));
        let chosen = candidates.into_iter().find_map(|candidate| {
            let binding = candidate.binding().filter(|binding| options.binding.is_none_or(|only| only == *binding))?;
            let generation =
                candidate.generation().filter(|known| options.version.is_none_or(|only| only == *known))?;
            let (url, is_replaced) = reachable(url, &candidate.url, &options.allow_hosts)?;
            Some((url, is_replaced, Dialect { binding, generation }, candidate.tenant))
        });

        let Some((chosen, is_replaced, dialect, tenant)) = chosen else {
            let message = "the agent's card names no interface that the gateway can use";
            return Err(Fault::new(FaultKind::UpstreamMisconfigured, message));
        };
        let capabilities = card.get("capabilities").and_then(|node| node.object().ok());
        let streams = capabilities.and_then(|object| object.boolean("streaming").ok().flatten()).unwrap_or(false);
        Ok(Self {
            is_trusted: is_trusted(url, &chosen, &options.allow_hosts),
            url: chosen,
            dialect,
            streaming: options.streaming.unwrap_or(streams),
            tenant: options.tenant.clone().or(tenant),
            is_replaced,
        })
    }
}

/// The URL of the card, if the operator named it.
pub(super) fn named_card_url<'a>(url: &'a str, options: &'a UpstreamOptions) -> Option<&'a str> {
    options.card_url.as_deref().or_else(|| is_card(url).then_some(url))
}

/// The URLs at which a card is searched, in order.
pub(super) fn card_urls(url: &str, options: &UpstreamOptions) -> Vec<String> {
    if let Some(card) = named_card_url(url, options) {
        return vec![card.to_owned()];
    }

    const PATHS: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];
    let parsed = Url::parse(url);
    let origin = parsed.map_or(url, |url| url.origin);
    // An endpoint such as `/agent/process` has its card beside it.
    let parent = parsed.and_then(|url| Some(format!("{}{}", url.origin, url.path().rsplit_once('/')?.0)));
    let mut urls: Vec<String> = Vec::new();
    for path in PATHS {
        for base in [url, parent.as_deref().unwrap_or(origin), origin] {
            let candidate = below(base, path);
            if !urls.contains(&candidate) {
                urls.push(candidate);
            }
        }
    }
    urls
}

/// An entry of a card.
struct Candidate {
    url: String,
    binding: String,
    version: String,
    tenant: Option<String>,
}

impl Candidate {
    fn binding(&self) -> Option<Binding> {
        [Binding::JsonRpc, Binding::Rest].into_iter().find(|known| known.as_str().eq_ignore_ascii_case(&self.binding))
    }

    /// Only `major.minor` is compared. 0.2 has the methods of 0.3, and 0.1 has others.
    fn generation(&self) -> Option<Generation> {
        let mut numbers = self.version.trim().split('.');
        match (numbers.next()?, numbers.next().unwrap_or("0")) {
            ("1", "0") => Some(Generation::V1),
            ("0", "2" | "3") => Some(Generation::V03),
            _ => None,
        }
    }
}

/// A text that is not empty.
fn text(object: &Object<'_>, names: [&str; 2]) -> Option<String> {
    let text = object.get_any(&names)?.string().ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The interfaces of a card of 1.0.
fn current(card: &Object<'_>) -> Vec<Candidate> {
    let entries = card.get_any(&["supportedInterfaces", "supported_interfaces"]);
    let entries = entries.and_then(|node| node.array().ok()).into_iter().flatten().take(MAX_INTERFACES);
    let entry = |node: Node<'_>| {
        let entry = node.object().ok()?;
        Some(Candidate {
            url: text(&entry, ["url", "url"])?,
            binding: text(&entry, ["protocolBinding", "protocol_binding"]).unwrap_or_else(|| "JSONRPC".into()),
            version: text(&entry, ["protocolVersion", "protocol_version"]).unwrap_or_else(|| "1.0".into()),
            tenant: text(&entry, ["tenant", "tenant"]),
        })
    };
    entries.filter_map(entry).collect()
}

/// The interfaces of a card of 0.3: the preferred one and the others.
fn old(card: &Object<'_>) -> Vec<Candidate> {
    let version = text(card, ["protocolVersion", "protocol_version"]).unwrap_or_else(|| "0.3".into());
    let candidate = |url: String, transport: Option<String>| Candidate {
        url,
        binding: transport.unwrap_or_else(|| "JSONRPC".into()),
        version: version.clone(),
        tenant: None,
    };

    let preferred =
        text(card, ["url", "url"]).map(|url| candidate(url, text(card, ["preferredTransport", "preferred_transport"])));
    let others = card.get_any(&["additionalInterfaces", "additional_interfaces"]);
    let others = others.and_then(|node| node.array().ok()).into_iter().flatten().take(MAX_INTERFACES);
    let others = others.filter_map(|node| {
        let entry = node.object().ok()?;
        Some(candidate(text(&entry, ["url", "url"])?, text(&entry, ["transport", "transport"])))
    });
    preferred.into_iter().chain(others).collect()
}

/// True for a URL of another origin that may have the credentials of the configured one: the operator allows its host
/// and port.
pub(super) fn is_trusted(configured: &str, url: &str, allowed: &[String]) -> bool {
    let (Some(own), Some(other)) = (Url::parse(configured), Url::parse(url)) else { return false };
    !own.is_same_origin(&other) && own.trusts(&other, allowed)
}

/// The URL of a card as the gateway uses it, and whether its origin was replaced. A card that names an origin which is
/// neither the configured one nor allowed (an internal name, another port, `0.0.0.0`) only contributes its path:
/// credentials go to no other server. Another port of the agent's host may belong to another service, such as this
/// gateway's admin listener.
fn reachable(configured: &str, url: &str, allowed: &[String]) -> Option<(String, bool)> {
    let own = Url::parse(configured)?;
    if url.starts_with('/') && !url.starts_with("//") && !url.contains(['\\', '\n', '\r', ' ']) {
        return Some((format!("{}{url}", own.origin), false));
    }
    let other = Url::parse(url)?;
    if own.trusts(&other, allowed) {
        return Some((url.to_owned(), false));
    }
    Some((format!("{}{}", own.origin, other.rest), true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(card: &str, options: &str) -> Result<Interface, Fault> {
        let options: UpstreamOptions = serde_json::from_str(options).expect("options");
        Interface::from_card(card.as_bytes(), "https://agent.example/weather", &options)
    }

    #[test]
    fn the_urls_of_a_card_are_those_of_its_interfaces() {
        let card = serde_json::json!({
            "url": "http://internal:9/one/",
            "supportedInterfaces": [{ "url": "http://0.0.0.0/two" }, { "url": "/three" }, { "transport": "GRPC" }],
        });
        assert_eq!(urls_of_card(&card), ["http://0.0.0.0/two", "/three", "http://internal:9/one/"]);
        assert!(urls_of_card(&serde_json::json!([])).is_empty());
    }

    fn line(card: &str, options: &str) -> String {
        match chosen(card, options) {
            Ok(Interface { url, dialect, streaming, tenant, .. }) => {
                let (binding, version) = (dialect.binding.as_str(), dialect.generation.as_str());
                format!("{version} {binding} {url} {streaming} {}", tenant.as_deref().unwrap_or("-"))
            }
            Err(fault) => fault.to_string(),
        }
    }

    const HYBRID: &str = r#"{"name":"weather","supportedInterfaces":[
        {"url":"grpc://agent.example","protocolBinding":"GRPC","protocolVersion":"1.0"},
        {"url":"https://agent.example/v1rest","protocolBinding":"HTTP+JSON","protocolVersion":"1.0.1","tenant":"t"},
        {"url":"https://agent.example/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],
        "capabilities":{"streaming":true},"protocolVersion":"0.3.0","url":"https://agent.example/old",
        "additionalInterfaces":[{"url":"https://agent.example/old","transport":"HTTP+JSON"}]}"#;

    #[test]
    fn the_first_interface_that_is_spoken_is_chosen() {
        for (options, expected) in [
            ("{}", "1.0 HTTP+JSON https://agent.example/v1rest true t"),
            (r#"{"binding":"JSONRPC"}"#, "1.0 JSONRPC https://agent.example/rpc true -"),
            (r#"{"version":"0.3"}"#, "0.3 JSONRPC https://agent.example/old true -"),
            (
                r#"{"version":"0.3","binding":"HTTP+JSON","streaming":false}"#,
                "0.3 HTTP+JSON https://agent.example/old false -",
            ),
        ] {
            assert_eq!(line(HYBRID, options), expected);
        }
        let old = |version: &str| format!(r#"{{"url":"https://agent.example/","protocolVersion":"{version}"}}"#);
        assert_eq!(line(&old("0.2.5"), "{}"), "0.3 JSONRPC https://agent.example/ false -");
        assert!(chosen(&old("0.1.0"), "{}").is_err(), "its methods have other names");
    }

    #[test]
    fn a_card_never_sends_requests_to_another_origin() {
        let card = |url: &str| format!(r#"{{"supportedInterfaces":[{{"url":"{url}"}}]}}"#);
        for (url, asked) in [
            ("http://0.0.0.0:8000/a2a", "https://agent.example/a2a"),
            ("https://evil.example/a2a?x=1", "https://agent.example/a2a?x=1"),
            ("http://agent.example/a2a", "https://agent.example/a2a"),
            ("https://agent.example:9/a2a", "https://agent.example/a2a"),
            ("https://agent.example:443/a2a", "https://agent.example:443/a2a"),
            ("/a2a", "https://agent.example/a2a"),
        ] {
            assert_eq!(line(&card(url), "{}"), format!("1.0 JSONRPC {asked} false -"));
        }
        let allowed = r#"{"allow_hosts":["evil.example"]}"#;
        assert_eq!(line(&card("https://evil.example/a"), allowed), "1.0 JSONRPC https://evil.example/a false -");
        let marks = |url: &str, options: &str| {
            let chosen = chosen(&card(url), options).expect("an interface");
            (chosen.is_replaced, chosen.is_trusted)
        };
        assert_eq!(marks("https://agent.example/a", "{}"), (false, false));
        assert_eq!(marks("https://agent.example:9/a", "{}"), (true, false));
        assert_eq!(marks("https://agent.example:9/a", r#"{"allow_hosts":["agent.example:9"]}"#), (false, true));
        assert_eq!(marks("https://evil.example/a", "{}"), (true, false));
        assert_eq!(marks("https://evil.example/a", allowed), (false, true));
        for url in ["file:///etc/passwd", "https://agent.example@evil/", "//evil.example/x"] {
            assert!(chosen(&card(url), "{}").is_err(), "{url}");
        }
    }

    #[test]
    fn an_invalid_card_is_refused() {
        for card in [
            "",
            "[]",
            "{}",
            "<html>",
            r#"{"url":7,"supportedInterfaces":"x"}"#,
            r#"{"supportedInterfaces":[[],{"url":null}]}"#,
        ] {
            assert!(chosen(card, "{}").is_err(), "{card}");
        }
        assert!(chosen(r#"{"url":"https://agent.example","protocolVersion":"2.0"}"#, "{}").is_err());
    }

    #[test]
    fn cards_are_looked_for_below_the_url_and_at_the_root() {
        let urls = |url: &str| card_urls(url, &UpstreamOptions::default());
        assert_eq!(
            urls("http://a/b/c/"),
            [
                "http://a/b/c/.well-known/agent-card.json",
                "http://a/b/.well-known/agent-card.json",
                "http://a/.well-known/agent-card.json",
                "http://a/b/c/.well-known/agent.json",
                "http://a/b/.well-known/agent.json",
                "http://a/.well-known/agent.json"
            ]
        );
        assert_eq!(urls("http://a").len(), 2);
        assert_eq!(urls("http://a/cards/x.json"), ["http://a/cards/x.json"]);
    }
}
