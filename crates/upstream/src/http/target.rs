//! The URLs that an agent is requested at, taken apart once: nearly all turns have the same one.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::Uri;
use interlingua_core::Fault;
use reqwest::Url;
use reqwest::header::HeaderValue;
use url::Position;

use super::failure;

/// Number of URLs that are kept for an agent. Some connectors write the id of a task into the URL.
const MAX_TARGETS: usize = 16;

/// The URL of a request.
#[derive(Debug)]
pub(super) struct Target {
    /// As the connector wrote it.
    text: String,
    pub(super) url: Url,
    /// Host and port.
    pub(super) authority: Arc<str>,
    /// The value of the header `host`.
    pub(super) host: HeaderValue,
    /// Path and query.
    pub(super) path: Uri,
    /// The scheme is `http`.
    pub(super) is_plain: bool,
    /// Index of the agent's endpoint that is requested.
    endpoint: usize,
    /// It has the origin of that endpoint, or the endpoint has no URL.
    pub(super) has_own_origin: bool,
}

impl Target {
    fn parse(text: &str, endpoint: usize, own: Option<&Url>) -> Result<Self, Fault> {
        let wrong = |detail: String| failure::not_asked().with_detail(format_args!("{text}: {detail}"));
        let url = Url::parse(text).map_err(|error| wrong(error.to_string()))?;
        let host = &url[Position::BeforeHost..Position::AfterPort];
        let host = HeaderValue::from_str(host).map_err(|error| wrong(error.to_string()))?;
        let path = url[Position::BeforePath..Position::AfterQuery].parse::<Uri>();
        let path = path.map_err(|error| wrong(error.to_string()))?;
        let port = url.port_or_known_default().unwrap_or_default();
        Ok(Self {
            text: text.to_owned(),
            authority: format!("{}:{port}", url.host_str().unwrap_or_default()).into(),
            host,
            path,
            is_plain: url.scheme() == "http",
            endpoint,
            has_own_origin: own.is_none_or(|own| own.origin() == url.origin()),
            url,
        })
    }

    /// The URL as the log may show it.
    pub(super) fn shown(&self) -> String {
        failure::shown(&self.url)
    }
}

/// The URLs of an agent's last requests.
#[derive(Default)]
pub(super) struct Targets(ArcSwap<Vec<Arc<Target>>>);

impl Targets {
    /// A URL that is requested at an endpoint. `own`: the URL of that endpoint.
    ///
    /// # Errors
    /// [`FaultKind::Internal`] if it is no URL.
    pub(super) fn get(&self, text: &str, endpoint: usize, own: Option<&Url>) -> Result<Arc<Target>, Fault> {
        let known = self.0.load();
        if let Some(found) = known.iter().find(|known| known.endpoint == endpoint && known.text == text) {
            return Ok(Arc::clone(found));
        }

        let target = Arc::new(Target::parse(text, endpoint, own)?);
        // Two threads may do this at the same moment: one of the two URLs is parsed again then.
        let mut targets = known.as_ref().clone();
        if targets.len() >= MAX_TARGETS {
            targets.remove(0);
        }
        targets.push(Arc::clone(&target));
        self.0.store(Arc::new(targets));
        Ok(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let own = Url::parse("http://agent:80/process").expect("a URL");
        for (text, authority, host, path, is_plain, is_own) in [
            ("http://agent/process?a=b#c", "agent:80", "agent", "/process?a=b", true, true),
            ("http://agent:8080", "agent:8080", "agent:8080", "/", true, false),
            ("https://u:p@[::1]/x", "[::1]:443", "[::1]", "/x", false, false),
        ] {
            let target = Target::parse(text, 0, Some(&own)).expect("a URL");
            let found = (&*target.authority, target.host.to_str().expect("text"), target.path.to_string());
            assert_eq!(found, (authority, host, path.to_owned()), "{text}");
            assert_eq!((target.is_plain, target.has_own_origin), (is_plain, is_own), "{text}");
        }
        assert!(Target::parse("/process", 0, None).is_err());
        assert!(Target::parse("http://agent", 0, None).expect("a URL").has_own_origin);
    }
}
