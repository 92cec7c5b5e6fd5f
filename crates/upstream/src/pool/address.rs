//! The address of an endpoint as logs and spans show it.

use url::Url;

/// A URL without query and user info, with the server in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointAddress {
    url: String,
    server: Option<(String, u16)>,
}

impl EndpointAddress {
    /// The address of a URL, which must be without query and user info.
    #[must_use]
    pub fn new(url: String) -> Self {
        let parsed = Url::parse(&url).ok();
        let server = parsed.and_then(|url| Some((url.host_str()?.to_owned(), url.port_or_known_default()?)));
        Self { url, server }
    }

    /// The URL without query and user info.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Host and port of the server. `None`: the URL has none.
    #[must_use]
    pub const fn server(&self) -> Option<&(String, u16)> {
        self.server.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_of_a_url_is_known() {
        let server = |url: &str| EndpointAddress::new(url.to_owned()).server().cloned();
        assert_eq!(server("https://agent/process"), Some(("agent".to_owned(), 443)));
        assert_eq!(server("http://[::1]:8090/"), Some(("[::1]".to_owned(), 8090)));
        assert_eq!(server(""), None);
    }
}
