//! The parts of a URL that determine the destination of a request.
//!
//! Not the crate `url`: it normalizes the text that an agent receives, refuses hosts and ports that are accepted here,
//! and accepts forms such as `http:a` that are refused here.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

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
    /// Parses a URL. `None`: it has another scheme, user information, or characters that clients and servers read
    /// differently.
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

    /// True if requests that would go to `self` may go to `other`: the same origin, or a host and port that `allowed`
    /// names, as `host:port`, or as `host` for the port of the scheme. Never from `https` to `http`.
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

/// Every byte but the unreserved characters (RFC 3986, section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// One segment of a path: everything but unreserved characters is escaped. `.` and `..` are escaped twice: URL parsers
/// resolve them even if they are escaped once.
pub fn segment(text: &str) -> Cow<'_, str> {
    match text {
        "." => Cow::Borrowed("%252E"),
        ".." => Cow::Borrowed("%252E%252E"),
        _ => utf8_percent_encode(text, RESERVED).into(),
    }
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

    #[test]
    fn the_text_of_a_url_is_kept_and_only_ambiguous_ones_are_refused() {
        // Origin, host, port and path.
        type Parts = (&'static str, &'static str, Option<u16>, &'static str);
        let cases: &[(&str, Option<Parts>)] = &[
            ("http://a", Some(("http://a", "a", Some(80), ""))),
            ("https://a", Some(("https://a", "a", Some(443), ""))),
            ("HTTPS://A", Some(("HTTPS://A", "a", Some(443), ""))),
            ("hTTp://a/", Some(("hTTp://a", "a", Some(80), ""))),
            ("https://a/b/", Some(("https://a", "a", Some(443), "/b"))),
            ("https://a//b//", Some(("https://a", "a", Some(443), "//b"))),
            ("https://a/b/../c", Some(("https://a", "a", Some(443), "/b/../c"))),
            ("https://a/%7Eb%2f/é", Some(("https://a", "a", Some(443), "/%7Eb%2f/é"))),
            ("https://a/b c", Some(("https://a", "a", Some(443), "/b c"))),
            ("https://a/b\\c", Some(("https://a", "a", Some(443), "/b\\c"))),
            ("https://a/@b", Some(("https://a", "a", Some(443), "/@b"))),
            ("https://a?b=c/d", Some(("https://a", "a", Some(443), ""))),
            ("https://a/b/?c#d", Some(("https://a", "a", Some(443), "/b"))),
            ("https://a#b", Some(("https://a", "a", Some(443), ""))),
            ("https://a:443/b", Some(("https://a:443", "a", Some(443), "/b"))),
            ("http://a:08080/", Some(("http://a:08080", "a", Some(8080), ""))),
            ("http://a:/", Some(("http://a:", "a", None, ""))),
            ("http://a:x/", Some(("http://a:x", "a", None, ""))),
            ("http://a:65536/", Some(("http://a:65536", "a", None, ""))),
            ("http://:80/", Some(("http://:80", "", Some(80), ""))),
            ("http://a.../", Some(("http://a...", "a", Some(80), ""))),
            ("http://A.Example.:1/", Some(("http://A.Example.:1", "a.example", Some(1), ""))),
            ("http://bücher.example/", Some(("http://bücher.example", "bücher.example", Some(80), ""))),
            ("http://%61/", Some(("http://%61", "%61", Some(80), ""))),
            ("http://127.1/", Some(("http://127.1", "127.1", Some(80), ""))),
            ("http://0x7f.0.0.1/", Some(("http://0x7f.0.0.1", "0x7f.0.0.1", Some(80), ""))),
            ("http://a<b>/", Some(("http://a<b>", "a<b>", Some(80), ""))),
            ("http://[::1]/", Some(("http://[::1]", "::1", Some(80), ""))),
            ("http://[::1]:9/", Some(("http://[::1]:9", "::1", Some(9), ""))),
            ("http://[0:0::A]:9/", Some(("http://[0:0::A]:9", "0:0::a", Some(9), ""))),
            ("http://[::1/", Some(("http://[::1", "::1", Some(80), ""))),
            ("http://::1/", Some(("http://::1", "", Some(80), ""))),
            ("", None),
            ("a", None),
            ("//a/b", None),
            ("/a", None),
            ("http:a", None),
            ("http:/a", None),
            (" http://a", None),
            ("http ://a", None),
            ("http://", None),
            ("http:///a", None),
            ("http://?a", None),
            ("ws://a", None),
            ("file:///a", None),
            ("data:http://a", None),
            ("http://a@b", None),
            ("http://a:b@c/", None),
            ("http://a\\b", None),
            ("http://a\u{a0}b", None),
            ("http://a\tb/", None),
            ("http://a/b\r\nc", None),
            ("http://a/b\u{85}", None),
        ];
        for (text, parts) in cases {
            let url = Url::parse(text);
            let found = url.map(|url| (url.origin, url.host(), url.port(), url.path()));
            assert_eq!(
                found,
                parts.map(|(origin, host, port, path)| (origin, host.to_owned(), port, path)),
                "{text:?}"
            );
            assert!(url.is_none_or(|url| format!("{}{}", url.origin, url.rest) == *text), "{text:?}");
        }
    }

    #[test]
    fn origins_are_compared_as_they_are_written() {
        let is_same = |one: &str, other: &str| {
            let (one, other) = (Url::parse(one).expect("a URL"), Url::parse(other).expect("a URL"));
            one.is_same_origin(&other)
        };
        for (one, other) in [
            ("http://a/b", "http://a/c?d#e"),
            ("https://A.b.", "HTTPS://a.B:443/"),
            ("http://[::1]", "http://[::1]:80/x"),
            ("http://[FE80::A]", "http://[fe80::a]"),
            ("http://a:x", "http://a:y"),
        ] {
            assert!(is_same(one, other) && is_same(other, one), "{one} {other}");
        }
        for (one, other) in [
            ("http://a", "https://a"),
            ("http://a", "http://a:443"),
            ("http://a:80", "https://a:80"),
            ("http://a", "http://b.a"),
            ("http://127.1", "http://127.0.0.1"),
            ("http://[::1]", "http://[0::1]"),
            ("http://a", "http://%61"),
            ("http://bücher.example", "http://xn--bcher-kva.example"),
        ] {
            assert!(!is_same(one, other) && !is_same(other, one), "{one} {other}");
        }
    }

    #[test]
    fn paths_are_joined_and_segments_escaped_without_changing_the_rest() {
        for (url, path, expected) in [
            ("http://a", "/x", "http://a/x"),
            ("http://a///", "/x", "http://a/x"),
            ("http://A:80/b%2f/../c", "/x", "http://A:80/b%2f/../c/x"),
            ("http://a/b/?c=/d/", "/x?e", "http://a/b/x?e?c=/d/"),
            ("http://a/#b?c", "/x", "http://a/x"),
            ("http://a/b?", "", "http://a/b?"),
            ("", "/x", "/x"),
        ] {
            assert_eq!(below(url, path), expected);
        }

        for (text, expected) in [
            ("", ""),
            ("aZ09-._~", "aZ09-._~"),
            ("...", "..."),
            (".a", ".a"),
            ("./", ".%2F"),
            ("%2e", "%252e"),
            ("a b+c", "a%20b%2Bc"),
            ("!*'();:@&=$,[]|", "%21%2A%27%28%29%3B%3A%40%26%3D%24%2C%5B%5D%7C"),
            ("\\\"<>`{}^\u{7f}\0\n", "%5C%22%3C%3E%60%7B%7D%5E%7F%00%0A"),
            ("\u{1f600}", "%F0%9F%98%80"),
        ] {
            assert_eq!(segment(text), expected);
        }
        assert!(matches!(segment("plain"), Cow::Borrowed("plain")));
    }
}
