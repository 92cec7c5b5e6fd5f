//! Fetching what an agent's server publishes about it: where to look, and what counts as an answer.
//!
//! The agent's URL may be that of its server, of a folder, or of one endpoint: documents are looked for below it, below
//! what it stands in, and below the root. The same credentials as for questions, and nowhere but at the same origin.

use std::time::Duration;

use futures_util::StreamExt;
use interlingua_core::connector::{HttpRequest, Purpose};
use interlingua_core::well_known::WellKnownDocument;
use reqwest::header::{self, HeaderMap};
use reqwest::{StatusCode, Url};

use super::failure::shown;
use super::{Agent, failure, unpacked};
use crate::upstream::card::Fetched;

/// No document is larger, in bytes.
const MOST: usize = 1024 * 1024;

impl Agent {
    /// Looks for a document in every place it may lie. The error is a sentence for the log.
    pub(super) async fn fetch(&self, wanted: &WellKnownDocument) -> Result<Fetched, String> {
        let home = self.settings.home.as_ref().ok_or("its URL is not known")?;
        let mut why = None;
        for url in places(home, wanted.paths) {
            match self.fetch_from(&url, wanted).await {
                Ok(fetched) => return Ok(fetched),
                Err(Missed::Here(reason)) => why = why.or(reason.map(|reason| format!("{}: {reason}", shown(&url)))),
                // Another place might hold another agent's.
                Err(Missed::Altogether(reason)) => return Err(format!("{}: {reason}", shown(&url))),
            }
        }
        Err(why.unwrap_or_else(|| format!("there is none, neither below {} nor below its origin", shown(home))))
    }

    async fn fetch_from(&self, url: &Url, wanted: &WellKnownDocument) -> Result<Fetched, Missed> {
        let altogether = |reason: String| Missed::Altogether(reason);
        let fault = |fault: interlingua_core::Fault| Missed::Altogether(fault.detail.unwrap_or(fault.message));
        let headers = wanted.headers.iter().map(|(name, value)| ((*name).into(), (*value).to_owned())).collect();
        let purpose = Purpose::Lookup;
        let request = HttpRequest { method: "GET", url: url.as_str().to_owned(), headers, body: Vec::new(), purpose };
        let request = self.request(request, None).map_err(fault)?;
        let client = self.dialler.client(url.scheme() == "https").map_err(fault)?;
        let response =
            client.execute(request).await.map_err(|error| altogether(failure::chain(&error.without_url())))?;
        match response.status() {
            status if status.is_success() => {}
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::GONE => {
                return Err(Missed::Here(None));
            }
            status if status.is_redirection() => {
                return Err(Missed::Here(Some(format!("status {status}, and redirects are not followed"))));
            }
            status if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => {
                return Err(Missed::Here(Some(format!("status {status}"))));
            }
            status => return Err(altogether(format!("status {status}"))),
        }
        let max_age = max_age(response.headers());
        let mut chunks = unpacked(response).map_err(fault)?;
        let mut body = Vec::new();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(fault)?;
            if body.len() + chunk.len() > MOST {
                return Err(altogether(format!("larger than {MOST} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        match (wanted.extract)(url.as_str(), &body) {
            Some(document) => Ok(Fetched { document, max_age }),
            None => Err(Missed::Here(Some("what is there is no such document".to_owned()))),
        }
    }
}

/// Why there is no document.
enum Missed {
    /// Not in this place; the reason, if it says more than that nothing is there.
    Here(Option<String>),
    /// Nor is it known whether there is one.
    Altogether(String),
}

/// Where a document may lie, best first: all folders for the first path, then all for the next.
fn places(home: &Url, paths: &[&str]) -> Vec<Url> {
    let whole = home.path().trim_end_matches('/');
    let above = whole.rsplit_once('/').map_or("", |(above, _)| above);
    let mut places: Vec<Url> = Vec::new();
    for path in paths {
        for folder in [whole, above, ""] {
            let mut place = home.clone();
            place.set_path(&format!("{folder}{path}"));
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    places
}

/// For how long the server says that its answer is fresh.
fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let told = headers.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let words: Vec<String> =
        told.flat_map(|value| value.split(',')).map(|word| word.trim().to_ascii_lowercase()).collect();
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
        let found = |home: &str| {
            let home = Url::parse(home).expect("a URL");
            let places = places(&home, &["/.well-known/a.json", "/.well-known/b.json"]);
            places.iter().map(|url| url.as_str().replace("/.well-known", "")).collect::<Vec<_>>()
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
        let home = Url::parse("https://h/agents/x?key=k").expect("a URL");
        assert_eq!(shown(&home), "https://h/agents/x");
    }

    #[test]
    fn how_long_a_document_is_fresh_is_the_server_s_word() {
        let told = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CACHE_CONTROL, value.parse().expect("a header"));
            max_age(&headers)
        };
        assert_eq!(told("public, Max-Age=90"), Some(Duration::from_secs(90)));
        assert_eq!(told("max-age=90, no-cache"), Some(Duration::ZERO));
        assert_eq!(told("no-store"), Some(Duration::ZERO));
        assert_eq!(told("max-age=soon"), None);
        assert_eq!(max_age(&HeaderMap::new()), None);
    }
}
