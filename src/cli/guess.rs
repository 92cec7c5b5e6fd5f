//! Guesses the protocol of a URL, from its path and from the documents that servers of some protocols publish. No guess
//! runs an agent.

use serde_json::Value;
use url::Url;

use interlingua_upstream::client;

/// The protocol of routes by default.
pub(super) const NATIVE: &str = "agent-api";

/// The protocol of a URL, if it can be found without running an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guess {
    /// This protocol.
    Protocol(&'static str),
    /// A server of models: one of the protocols that these speak.
    Model,
    /// Nothing says it.
    Unknown,
}

/// Endings of the paths of endpoints.
pub(super) const PATHS: [(&str, &str); 6] = [
    ("/responses", "responses"),
    ("/chat/completions", "chat-completions"),
    ("/messages", "anthropic-messages"),
    ("/send-message", "ag-kit"),
    ("/agent/invoke", "hitl"),
    ("/process", NATIVE),
];

impl Guess {
    /// Looks at the URL, and asks for documents below it.
    pub(super) async fn from_url(url: &str) -> Self {
        let path = without_query(url);
        if let Some((_, protocol)) = PATHS.iter().find(|(end, _)| path.ends_with(end)) {
            return Self::Protocol(protocol);
        }
        if has_card(path).await {
            Self::Protocol("a2a")
        } else if client::is_there(&format!("{path}/models")).await {
            Self::Model
        } else if client::is_there(&format!("{path}/system/info")).await {
            Self::Protocol("hitl")
        } else {
            Self::Unknown
        }
    }

    /// The same, and asks at the URL's origin for a card that names this URL. The card of another agent says nothing.
    pub(super) async fn of_server(url: &str) -> Self {
        let (known, Ok(url)) = (Self::from_url(url).await, Url::parse(url)) else { return Self::Unknown };
        if known != Self::Unknown {
            return known;
        }
        let card =
            client::document(&format!("{}/.well-known/agent-card.json", url.origin().ascii_serialization())).await;
        match card.filter(|card| names_url(card, &url)) {
            Some(_) => Self::Protocol("a2a"),
            None => Self::Unknown,
        }
    }
}

/// Whether an agent card names this URL as one of its interfaces. Only paths are compared: hosts of cards are often internal
/// names.
pub(super) fn names_url(card: &Value, url: &Url) -> bool {
    let interfaces =
        ["supportedInterfaces", "additionalInterfaces"].into_iter().filter_map(|list| card.get(list)?.as_array());
    let urls = interfaces.flatten().filter_map(|interface| interface.get("url")).chain(card.get("url"));
    let is_same = |named: &str| {
        let named = Url::parse(named).or_else(|_| url.join(named));
        named.is_ok_and(|named| named.path().trim_end_matches('/') == url.path().trim_end_matches('/'))
    };
    urls.filter_map(Value::as_str).any(is_same)
}

async fn has_card(base: &str) -> bool {
    client::is_there(&format!("{base}/.well-known/agent-card.json")).await
}

fn without_query(url: &str) -> &str {
    url.split('?').next().unwrap_or(url).trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_card_is_that_of_a_url_only_if_it_names_it() {
        let card = json!({
            "url": "http://internal:9/one/",
            "supportedInterfaces": [{ "url": "http://0.0.0.0/two" }, { "url": "/three" }, { "transport": "GRPC" }],
        });
        let named = |path: &str| names_url(&card, &Url::parse(&format!("http://host:1{path}")).expect("a URL"));
        assert!(named("/one") && named("/two/") && named("/three"));
        assert!(!named("/") && !named("/one/more") && !named("/four"));
        assert!(!names_url(&json!([]), &Url::parse("http://host/").expect("a URL")));
    }
}
