//! The parts of a URL that determine the destination of a request.

use std::borrow::Cow;
use std::fmt::Write as _;

/// An `http` or `https` URL without user information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Url<'a> {
    /// Scheme and authority, such as `https://agent.example:8443`.
    pub origin: &'a str,
    /// Host and port as they stand.
    authority: &'a str,
    /// Path, query and fragment. May be empty.
    pub rest: &'a str,
    is_secure: bool,
}

impl<'a> Url<'a> {
    /// None for other schemes, user information, and characters that clients and servers read differently.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (scheme, after) = text.split_once("://")?;
        let is_secure = scheme.eq_ignore_ascii_case("https");
        if !is_secure && !scheme.eq_ignore_ascii_case("http") {
            return None;
        }

        let end = after.find(['/', '?', '#']).unwrap_or(after.len());
        let authority = &after[..end];
        // `http://trusted@evil/` and `http://evil\@trusted/` name another host than they seem to.
        let is_ambiguous = |character: char| matches!(character, '@' | '\\') || character.is_whitespace();
        if authority.is_empty() || authority.contains(is_ambiguous) || text.contains(char::is_control) {
            return None;
        }

        let origin = &text[..text.len() - after.len() + end];
        Some(Self { origin, authority, rest: &after[end..], is_secure })
    }

    /// The host in lower case, without port, and without the brackets of an IPv6 address.
    pub fn host(&self) -> String {
        let host = match self.authority.strip_prefix('[') {
            Some(inner) => inner.split(']').next(),
            None => self.authority.split(':').next(),
        };
        host.unwrap_or_default().trim_end_matches('.').to_ascii_lowercase()
    }

    /// The path without query and without slashes at its end.
    pub fn path(&self) -> &'a str {
        self.rest.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/')
    }

    /// The port as it stands, else that of the scheme. `None` for a port that is no number.
    pub fn port(&self) -> Option<u16> {
        let default = if self.is_secure { 443 } else { 80 };
        split_port(self.authority).1.map_or(Some(default), |port| port.parse().ok())
    }

    /// True if both have the same scheme, host and port.
    pub fn is_same_origin(&self, other: &Url<'_>) -> bool {
        self.is_secure == other.is_secure && self.host() == other.host() && self.port() == other.port()
    }

    /// True if requests that would go to `self` may go to `other`: the same origin, or a host and port that `allowed` names, as
    /// `host:port`, or as `host` for the port of the scheme. Never from `https` to `http`.
    pub fn trusts(&self, other: &Url<'_>, allowed: &[String]) -> bool {
        if self.is_same_origin(other) {
            return true;
        }
        if self.is_secure && !other.is_secure {
            return false;
        }

        let (host, port) = (other.host(), other.port());
        let names = |entry: &String| {
            let (named, named_port) = split_port(entry);
            let default = if other.is_secure { 443 } else { 80 };
            plain_host(named) == host && named_port.map_or(Some(default), |port| port.parse().ok()) == port
        };
        port.is_some() && allowed.iter().any(names)
    }
}

/// Splits an authority into host and port. An IPv6 address without brackets has no port.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if host.ends_with(']') || !host.contains(':') => (host, Some(port)),
        _ => (authority, None),
    }
}

/// A host in lower case, without the brackets of an IPv6 address and without a dot at its end.
fn plain_host(host: &str) -> String {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.trim_end_matches('.').to_ascii_lowercase()
}

/// A path below a URL's own path. A query stays at the end.
pub fn below(url: &str, path: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let (base, rest) = url.split_at(end);
    let query = rest.split('#').next().unwrap_or_default();
    format!("{}{path}{query}", base.trim_end_matches('/'))
}

/// One segment of a path: everything but unreserved characters is escaped (RFC 3986, section 2.3). What no URL can name,
/// `.` and `..`, is escaped twice: once, parsers of URLs would still take it for a way out of the
/// folder.
pub fn segment(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    if text.bytes().all(is_plain) && !matches!(text, "." | "..") {
        return Cow::Borrowed(text);
    }

    let mut escaped = String::with_capacity(text.len() + 8);
    for byte in text.bytes() {
        if matches!(text, "." | "..") {
            escaped.push_str("%252E");
        } else if is_plain(byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_hides_its_host_is_refused() {
        let url = Url::parse("https://Agent.Example.:8443/a/b/?c=d").expect("a URL");
        assert_eq!(
            (url.origin, url.host().as_str(), url.path()),
            ("https://Agent.Example.:8443", "agent.example", "/a/b")
        );
        assert_eq!(Url::parse("http://[::1]:9/x").map(|url| url.host()).as_deref(), Some("::1"));

        for text in
            ["ftp://a", "http://", "http:///x", "agent", "http://a@b/", "http://b\\@a/", "http://a b/", "http://a/\n"]
        {
            assert_eq!(Url::parse(text), None, "{text}");
        }
    }

    #[test]
    fn requests_stay_with_the_configured_origin() {
        let own = Url::parse("https://agent.example/a").expect("a URL");
        let trusts = |text: &str, allowed: &[&str]| {
            let allowed: Vec<String> = allowed.iter().map(|&entry| entry.to_owned()).collect();
            own.trusts(&Url::parse(text).expect("a URL"), &allowed)
        };
        assert!(trusts("https://AGENT.example:443/x", &[]) && trusts("https://agent.example./x", &[]));
        assert!(!trusts("https://agent.example:99/x", &[]), "another port may be another service");
        assert!(!trusts("https://agent.example:99/x", &["agent.example"]));
        assert!(trusts("https://agent.example:99/x", &["agent.example:99"]));
        assert!(
            !trusts("http://agent.example/x", &[]) && !trusts("http://agent.example:443/x", &["agent.example:443"])
        );
        assert!(!trusts("https://other.example/x", &[]));
        assert!(trusts("https://other.example/x", &["Other.example"]));
        assert!(trusts("https://other.example:443/x", &["other.example"]));
        assert!(!trusts("https://other.example:1/x", &["other.example"]));
        assert!(trusts("https://other.example:1/x", &["other.example:1"]));
        assert!(!trusts("https://other.example:2/x", &["other.example:1"]));
        assert!(!trusts("https://other.example:x/x", &["other.example:x"]), "a port that is no number");
        assert!(trusts("https://[::1]:9/x", &["[::1]:9"]) && !trusts("https://[::1]:9/x", &["[::1]"]));
        assert!(trusts("https://[::1]/x", &["::1"]) && trusts("https://[::1]/x", &["[::1]"]));
    }

    #[test]
    fn paths_are_put_in_front_of_a_query() {
        assert_eq!(below("http://a/b/", "/tasks"), "http://a/b/tasks");
        assert_eq!(below("http://a?key=1#x", "/tasks"), "http://a/tasks?key=1");
        assert_eq!(segment("T-1_~.x"), "T-1_~.x");
        assert_eq!(segment("a/b?c:é"), "a%2Fb%3Fc%3A%C3%A9");
        assert_eq!((segment(".."), segment(".")), ("%252E%252E".into(), "%252E".into()));
    }
}
