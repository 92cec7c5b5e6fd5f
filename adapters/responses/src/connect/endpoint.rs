//! Where a server is, and the URLs of what it has.

use interlingua_core::http_url::{self, Url};

/// The path that is appended to the operator's URL.
pub(super) const PATH: &str = "/responses";

/// Where the server is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// The operator's URL, without [`PATH`], with its query.
    base: String,
    /// The operator gave a path.
    pub(super) has_path: bool,
}

impl Endpoint {
    /// Reads the operator's URL. A query, such as Azure's `api-version`, stays.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let parsed = Url::parse(url).ok_or_else(|| format!("\"{url}\" is no http or https URL"))?;
        let path = parsed.path();
        let base = path.strip_suffix(PATH).unwrap_or(path);
        let query = parsed.rest.split('#').next().unwrap_or_default().split_once('?');
        let query = query.map(|(_, query)| format!("?{query}")).unwrap_or_default();
        let has_path = !path.trim_matches('/').is_empty();
        Ok(Self { base: format!("{}{base}{query}", parsed.origin), has_path })
    }

    /// The URL of responses.
    pub(super) fn url(&self) -> String {
        http_url::below(&self.base, PATH)
    }

    /// The URL of one response. `query` is placed before the operator's own query.
    pub(super) fn response(&self, id: &str, below: &str, query: &str) -> String {
        let url = http_url::below(&self.base, &format!("{PATH}/{}{below}", http_url::segment(id)));
        match (query.is_empty(), url.split_once('?')) {
            (true, _) => url,
            (false, Some((path, own))) => format!("{path}?{query}&{own}"),
            (false, None) => format!("{url}?{query}"),
        }
    }

    /// The URL of conversations.
    pub(super) fn conversations(&self) -> String {
        http_url::below(&self.base, "/conversations")
    }

    /// The URL of models.
    pub(super) fn models(&self) -> String {
        http_url::below(&self.base, "/models")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_appended_unless_it_is_there() {
        for (url, expected) in [
            ("http://a/v1", "http://a/v1/responses"),
            ("http://a/v1/", "http://a/v1/responses"),
            ("http://a/v1/responses", "http://a/v1/responses"),
            ("http://a/v1/responses/", "http://a/v1/responses"),
            ("http://a", "http://a/responses"),
            (
                "https://x.openai.azure.com/openai/v1?api-version=1#f",
                "https://x.openai.azure.com/openai/v1/responses?api-version=1",
            ),
        ] {
            assert_eq!(Endpoint::parse(url).expect("a URL").url(), expected);
        }
        assert!(Endpoint::parse("ftp://a").is_err());
    }

    #[test]
    fn a_response_has_a_url_of_its_own() {
        let endpoint = Endpoint::parse("https://a/v1/responses?api-version=1").expect("a URL");
        assert_eq!(endpoint.response("r/1", "/cancel", ""), "https://a/v1/responses/r%2F1/cancel?api-version=1");
        assert_eq!(
            endpoint.response("r", "", "stream=true&starting_after=3"),
            "https://a/v1/responses/r?stream=true&starting_after=3&api-version=1"
        );
        assert_eq!(endpoint.conversations(), "https://a/v1/conversations?api-version=1");
    }
}
