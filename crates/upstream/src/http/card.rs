//! Fetches the documents that an agent's server publishes about it: where to look, and what counts as an answer.
//!
//! The agent's URL may be that of its server, of a folder, or of one endpoint: documents are looked for below it, below
//! its parent folder, and below the root, unless the agent's options name their URL. With the same credentials as other
//! requests, which go to the agent's own servers only.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use interlingua_core::connector::{HttpRequest, Purpose};
use interlingua_core::fault::error_chain;
use interlingua_core::well_known::{FetchedDocument, WellKnownDocument};
use reqwest::header::{self, HeaderMap};
use reqwest::{StatusCode, Url};

use super::failure::shown;
use super::{Agent, AgentServers, unpacked};
use crate::documents::{FetchOutcome, FreshDocument};
use crate::headers::TurnHeaders;
use interlingua_base::clock;

/// The largest document, in bytes.
const MAX_DOCUMENT_BYTES: usize = 1024 * 1024;

impl Agent {
    /// A document that the agent's server publishes, if it was read within a limited time.
    pub(super) async fn card(self: Arc<Self>, wanted: WellKnownDocument) -> Option<Arc<FetchedDocument>> {
        let (fetcher, sought, agent) = (Arc::clone(&self), wanted.clone(), wanted.agent.clone());
        let fetch = || async move { fetcher.fetch(&sought).await };
        let late = |bound| format!("no complete answer after {bound:?}");
        let note = move |noted| match noted {
            FetchOutcome::Again => tracing::info!(agent, "the agent's card is readable again"),
            FetchOutcome::Gone { why, is_kept } => {
                let instead = if is_kept { "the old card" } else { "a card from the configuration" };
                tracing::warn!(agent, why, "cannot read the agent's card: {instead} is served");
            }
        };
        self.cards.get(wanted.paths, fetch, late, note).await.ok()
    }

    /// Looks for a document at every candidate URL. The error is a sentence for the log.
    async fn fetch(&self, wanted: &WellKnownDocument) -> Result<FreshDocument<Arc<FetchedDocument>>, String> {
        let endpoint = self.pool.first_available();
        let base_url = self.endpoints[endpoint].url.as_ref().ok_or("its URL is not known")?;
        let named = self.endpoints[endpoint].connector.document_lookup();
        let is_trusted = named.as_ref().is_some_and(|named| named.is_trusted);
        let urls = match &named {
            Some(named) => vec![Url::parse(&named.url).map_err(|error| error.to_string())?],
            None => candidates(base_url, wanted.paths),
        };

        let mut why = None;
        for url in &urls {
            match self.fetch_from(AgentServers { endpoint, is_trusted }, base_url, url, wanted).await {
                Ok(fetched) => return Ok(fetched),
                Err(NotFound::Here(reason)) => why = why.or(reason.map(|reason| format!("{}: {reason}", shown(url)))),
                // Another URL might have the document of another agent.
                Err(NotFound::Fatal(reason)) => return Err(format!("{}: {reason}", shown(url))),
            }
        }
        Err(why.unwrap_or_else(|| match (&named, urls.first()) {
            (Some(_), Some(url)) => format!("there is none at {}", shown(url)),
            _ => format!("there is none, neither below {} nor below its origin", shown(base_url)),
        }))
    }

    async fn fetch_from(
        &self,
        AgentServers { endpoint, is_trusted }: AgentServers,
        base_url: &Url,
        url: &Url,
        wanted: &WellKnownDocument,
    ) -> Result<FreshDocument<Arc<FetchedDocument>>, NotFound> {
        let fatal = |reason: String| NotFound::Fatal(reason);
        let fault = |fault: interlingua_core::Fault| NotFound::Fatal(fault.detail.unwrap_or(fault.message));
        let headers = wanted.headers.iter().map(|(name, value)| ((*name).into(), (*value).to_owned())).collect();
        let purpose = Purpose::Lookup;
        let request =
            HttpRequest { method: "GET", url: url.as_str().to_owned(), headers, body: Vec::new(), purpose, is_trusted };
        let request = self.request(request, endpoint, &TurnHeaders::default()).map_err(fault)?;
        let sending = self.clients.send(&request, None, true, &Arc::default()).map_err(fault)?;
        let answer = sending.await.map_err(|error| fatal(error_chain(&error.without_url())))?;
        match answer.status {
            status if status.is_success() => {}
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::GONE => {
                return Err(NotFound::Here(None));
            }
            status if status.is_redirection() => {
                return Err(NotFound::Here(Some(format!("status {status}, and redirects are not followed"))));
            }
            status if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => {
                return Err(NotFound::Here(Some(format!("status {status}"))));
            }
            status => return Err(fatal(format!("status {status}"))),
        }
        let max_age = max_age(&answer.headers);
        let mut chunks = unpacked(answer).map_err(fault)?;
        let mut body = Vec::new();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(fault)?;
            if body.len() + chunk.len() > MAX_DOCUMENT_BYTES {
                return Err(fatal(format!("larger than {MAX_DOCUMENT_BYTES} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        match (wanted.extract)(&[url.as_str(), base_url.as_str()], &body) {
            Some(document) => {
                let document = Arc::new(FetchedDocument { document, since: clock::now() });
                Ok(FreshDocument { document, max_age })
            }
            None => Err(NotFound::Here(Some("what is there is no such document".to_owned()))),
        }
    }
}

/// Why there is no document.
enum NotFound {
    /// Not at this URL. The reason, unless the URL just does not exist.
    Here(Option<String>),
    /// The server could not be asked, so the document may exist.
    Fatal(String),
}

/// The URLs where a document may be, best first: all folders for the first path, then all for the next.
fn candidates(base_url: &Url, paths: &[&str]) -> Vec<Url> {
    let whole = base_url.path().trim_end_matches('/');
    let above = whole.rsplit_once('/').map_or("", |(above, _)| above);
    let mut candidates: Vec<Url> = Vec::new();
    for path in paths {
        for folder in [whole, above, ""] {
            let mut candidate = base_url.clone();
            candidate.set_path(&format!("{folder}{path}"));
            if !candidates.contains(&candidate) {
                candidates.push(candidate);
            }
        }
    }
    candidates
}

/// The lifetime of the answer according to the server. `None`: the server sets none.
pub(super) fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let words: Vec<String> =
        values.flat_map(|value| value.split(',')).map(|word| word.trim().to_ascii_lowercase()).collect();
    if words.iter().any(|word| matches!(word.split('=').next(), Some("no-store" | "no-cache"))) {
        return Some(Duration::ZERO);
    }
    let seconds = words.iter().find_map(|word| word.strip_prefix("max-age=")?.trim_matches('"').parse().ok());
    seconds.map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_looked_for_below_the_url_above_it_and_at_the_root() {
        let found = |base_url: &str| {
            let base_url = Url::parse(base_url).expect("a URL");
            let candidates = candidates(&base_url, &["/.well-known/a.json", "/.well-known/b.json"]);
            candidates.iter().map(|url| url.as_str().replace("/.well-known", "")).collect::<Vec<_>>()
        };
        assert_eq!(found("http://h"), ["http://h/a.json", "http://h/b.json"]);
        assert_eq!(
            found("http://h:1/process/"),
            ["http://h:1/process/a.json", "http://h:1/a.json", "http://h:1/process/b.json", "http://h:1/b.json"]
        );
        assert_eq!(
            found("https://h/agents/x/process?key=k")[..3],
            ["https://h/agents/x/process/a.json?key=k", "https://h/agents/x/a.json?key=k", "https://h/a.json?key=k"]
        );
        let base_url = Url::parse("https://h/agents/x?key=k").expect("a URL");
        assert_eq!(shown(&base_url), "https://h/agents/x");
    }

    #[test]
    fn the_server_says_how_long_a_document_is_fresh() {
        let fresh = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CACHE_CONTROL, value.parse().expect("a header"));
            max_age(&headers)
        };
        assert_eq!(fresh("public, Max-Age=90"), Some(Duration::from_secs(90)));
        assert_eq!(fresh("max-age=90, no-cache"), Some(Duration::ZERO));
        assert_eq!(fresh("no-store"), Some(Duration::ZERO));
        assert_eq!(fresh("max-age=soon"), None);
        assert_eq!(max_age(&HeaderMap::new()), None);
    }
}
