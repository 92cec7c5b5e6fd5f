//! Guesses the protocol of a URL, from its path and from the documents that servers of some protocols publish. No guess
//! runs an agent.

use interlingua_core::server_signs::ServerSigns;
use url::Url;

use interlingua_upstream::client;

/// The protocol of routes by default.
pub(super) const NATIVE: &str = "agent-api";

/// The protocols for agents, and the signs of their servers.
pub(super) type KnownSigns = [(&'static str, ServerSigns)];

/// The protocol of a URL, if it can be found without running an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Guess {
    /// This protocol.
    Protocol(&'static str),
    /// A server of models, which can be expected to speak each of these. Every such server speaks the first one.
    Models(Vec<&'static str>),
    /// No sign was found.
    Unknown,
}

impl Guess {
    /// Looks at the URL, and asks for documents below it.
    pub(super) async fn from_url(known: &KnownSigns, url: &str) -> Self {
        let path = without_query(url);
        let ends = |signs: &ServerSigns| signs.endpoints.iter().any(|endpoint| path.ends_with(endpoint));
        if let Some((protocol, _)) = known.iter().find(|(_, signs)| ends(signs)) {
            return Self::Protocol(protocol);
        }

        let mut asked_for = Vec::new();
        for (protocol, signs) in known {
            if let Some(document) = signs.document
                && client::is_there(&format!("{path}{}", document.path)).await
            {
                return Self::Protocol(protocol);
            }
            // Protocols that share a list of models cost one request.
            let Some(models) = signs.models.filter(|models| !asked_for.contains(models)) else { continue };
            asked_for.push(models);
            if client::is_there(&format!("{path}{models}")).await {
                let have_it = known.iter().filter(|(_, signs)| signs.models == Some(models));
                return Self::Models(have_it.map(|(protocol, _)| *protocol).collect());
            }
        }
        Self::Unknown
    }

    /// The same, and asks at the URL's origin for documents that name this URL. The document of another agent is
    /// ignored.
    pub(super) async fn of_server(known: &KnownSigns, url: &str) -> Self {
        let (guess, Ok(url)) = (Self::from_url(known, url).await, Url::parse(url)) else { return Self::Unknown };
        if guess != Self::Unknown {
            return guess;
        }
        match naming(known, &url, "").await {
            Some((protocol, _)) => Self::Protocol(protocol),
            None => Self::Unknown,
        }
    }
}

/// The first protocol, other than `except`, with a document at the origin of the URL that names the URL, and the name
/// of the document.
pub(super) async fn naming(known: &KnownSigns, url: &Url, except: &str) -> Option<(&'static str, &'static str)> {
    let origin = url.origin().ascii_serialization();
    for (protocol, signs) in known.iter().filter(|(protocol, _)| *protocol != except) {
        let Some(document) = signs.document else { continue };
        let Some(urls) = document.urls else { continue };
        let published = client::document(&format!("{origin}{}", document.path)).await;
        if published.is_some_and(|published| names_url(&urls(&published), url)) {
            return Some((protocol, document.name));
        }
    }
    None
}

/// Whether one of these URLs of a document is this URL. Only paths are compared: the hosts are often internal names.
fn names_url(named: &[&str], url: &Url) -> bool {
    named.iter().any(|named| {
        let named = Url::parse(named).or_else(|_| url.join(named));
        named.is_ok_and(|named| named.path().trim_end_matches('/') == url.path().trim_end_matches('/'))
    })
}

fn without_query(url: &str) -> &str {
    url.split('?').next().unwrap_or(url).trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_that_of_a_url_only_if_it_names_it() {
        let card = ["http://0.0.0.0/two", "/three", "http://internal:9/one/"];
        let named = |path: &str| names_url(&card, &Url::parse(&format!("http://host:1{path}")).expect("a URL"));
        assert!(named("/one") && named("/two/") && named("/three"));
        assert!(!named("/") && !named("/one/more") && !named("/four"));
        assert!(!names_url(&[], &Url::parse("http://host/").expect("a URL")));
    }
}
