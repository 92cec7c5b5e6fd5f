//! Which protocol a URL is of: by its path, and by the documents that servers of some protocols publish. Nothing of it
//! runs an agent.

use url::Url;

use crate::upstream::client;

/// The protocol of routes by default.
pub(super) const NATIVE: &str = "agent-api";

/// What a URL is of, as far as it can be known without running anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guess {
    /// This protocol.
    Protocol(&'static str),
    /// A server of models: one of the protocols that these speak.
    Model,
    /// Nothing says it.
    Unknown,
}

/// How the paths of endpoints end.
const PATHS: [(&str, &str); 6] = [
    ("/responses", "responses"),
    ("/chat/completions", "chat-completions"),
    ("/messages", "anthropic-messages"),
    ("/send-message", "ag-kit"),
    ("/agent/invoke", "hitl"),
    ("/process", NATIVE),
];

impl Guess {
    /// Looks at the URL, and asks for documents below it.
    pub(super) async fn of(url: &str) -> Self {
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

    /// The same, and asks at the URL's origin, where an agent's card may be even if the agent is elsewhere.
    pub(super) async fn of_server(url: &str) -> Self {
        let origin = Url::parse(url).map(|url| url.origin().ascii_serialization()).unwrap_or_default();
        match Self::of(url).await {
            Self::Unknown if has_card(&origin).await => Self::Protocol("a2a"),
            known => known,
        }
    }
}

async fn has_card(base: &str) -> bool {
    client::is_there(&format!("{base}/.well-known/agent-card.json")).await
}

fn without_query(url: &str) -> &str {
    url.split('?').next().unwrap_or(url).trim_end_matches('/')
}
