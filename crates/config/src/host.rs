//! Hosts and origins in requests and in the configuration: `agents.example.com:8443`, `[::1]`,
//! `https://app.example.com`.
//!
//! Not here: the check of a request's host against the allowed ones (`interlingua-server`).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The longest DNS name, in bytes.
const MAX_NAME_LEN: usize = 253;
/// The longest label of a DNS name, in bytes.
const MAX_LABEL_LEN: usize = 63;

/// A host with an optional port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// A DNS name or an IP address.
    pub name: HostName,
    /// `None`: the default port of the scheme, or any port.
    pub port: Option<u16>,
}

/// The name part of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostName {
    /// An address; an IPv4-mapped IPv6 address is stored as IPv4.
    Address(IpAddr),
    /// A name in lower case, without a trailing dot.
    Name(String),
}

impl HostName {
    /// True for loopback addresses, and for names that resolvers and browsers never look up in DNS (RFC 6761, section
    /// 6.3).
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Address(address) => address.is_loopback(),
            Self::Name(name) => name == "localhost" || name.ends_with(".localhost"),
        }
    }
}

impl FromStr for Host {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const PORT: &str = "a port is a number from 1 to 65535";

        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, rest) = rest.split_once(']').ok_or("an IPv6 address needs a closing bracket")?;
                let address: Ipv6Addr = address.parse().map_err(|_| "invalid IPv6 address")?;
                let port = match rest {
                    "" => None,
                    rest => Some(rest.strip_prefix(':').ok_or(PORT)?),
                };
                (HostName::Address(IpAddr::V6(address).to_canonical()), port)
            }
            None => {
                let (name, port) = match text.split_once(':') {
                    Some((name, port)) => (name, Some(port)),
                    None => (text, None),
                };
                (parse_host_name(name)?, port)
            }
        };
        let port = port.map(|port| {
            let digits = port.bytes().all(|byte| byte.is_ascii_digit());
            port.parse().ok().filter(|port: &u16| digits && *port != 0).ok_or(PORT)
        });
        Ok(Self { name, port: port.transpose()? })
    }
}

fn parse_host_name(text: &str) -> Result<HostName, &'static str> {
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Ok(HostName::Address(address.into()));
    }
    let text = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        (1..=MAX_LABEL_LEN).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    if text.len() > MAX_NAME_LEN || !text.split('.').all(is_label) {
        return Err("write a name or an address, with a port if it matters, like \"agents.example.com\"");
    }

    Ok(HostName::Name(text.to_ascii_lowercase()))
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            HostName::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]")?,
            HostName::Address(address) => write!(formatter, "{address}")?,
            HostName::Name(name) => formatter.write_str(name)?,
        }

        match self.port {
            Some(port) => write!(formatter, ":{port}"),
            None => Ok(()),
        }
    }
}

/// The origin of a web page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// In lower case. Not only `http` and `https`, since applications use their own schemes.
    pub scheme: String,
    /// The host; its port is `None` if it is the default port of the scheme.
    pub host: Host,
}

/// The default port of a scheme.
pub fn implied_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" | "ws" => Some(80),
        "https" | "wss" => Some(443),
        _ => None,
    }
}

impl FromStr for Origin {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "write a scheme and a host without a path, like \"https://app.example.com\"";
        let (scheme, host) = text.split_once("://").ok_or(FORM)?;

        let first = scheme.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
        if !first || !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)) {
            return Err(FORM);
        }
        let scheme = scheme.to_ascii_lowercase();
        let mut host: Host = host.parse().map_err(|_| FORM)?;
        host.port = host.port.filter(|port| implied_port(&scheme) != Some(*port));
        Ok(Self { scheme, host })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://{}", self.scheme, self.host)
    }
}

/// The web pages that may use a route, in addition to those of the gateway's own origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    /// Pages of any origin: `["*"]`.
    Any,
    /// Pages of these origins; by default none.
    Listed(Vec<Origin>),
}

impl Default for Origins {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl Origins {
    /// True if no page of another origin is allowed.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Listed(origins) if origins.is_empty())
    }

    /// True if pages of this origin are allowed. `origin` is the value of the `Origin` header, which may be `null`.
    pub fn include(&self, origin: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(origins) if origins.is_empty() => false,
            Self::Listed(origins) => origin.parse().is_ok_and(|origin: Origin| origins.contains(&origin)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_host_is_parsed() {
        for (text, shown) in [
            ("agents.example.com", "agents.example.com"),
            ("Agents.Example.COM.", "agents.example.com"),
            ("gateway_1:8080", "gateway_1:8080"),
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("[::1]", "[::1]"),
            ("[0:0::1]:8080", "[::1]:8080"),
            ("[::ffff:10.0.0.1]", "10.0.0.1"),
        ] {
            assert_eq!(text.parse::<Host>().expect(text).to_string(), shown, "{text}");
        }
    }

    #[test]
    fn invalid_hosts_are_rejected() {
        let long = "a.".repeat(200);
        for text in [
            "",
            ".",
            "a..b",
            "a b",
            "a@b",
            "a/b",
            "a:",
            "a:0",
            "a:70000",
            "a:8o",
            "a:+1",
            "a:1:2",
            "::1",
            "[::1",
            "[x]",
            "[::1]8",
            "[::1]:",
            "ä.example",
            "a%41",
            "a\\b",
            "a,b",
            "*",
            &long,
        ] {
            assert!(text.parse::<Host>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn loopback_names_and_addresses_are_recognised() {
        for (text, local) in [
            ("localhost", true),
            ("LOCALHOST.:8080", true),
            ("app.localhost", true),
            ("127.9.9.9", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]", true),
            ("localhost.evil.example", false),
            ("notlocalhost", false),
            ("10.0.0.1", false),
            ("0.0.0.0", false),
            // Browsers normalise addresses before they send them, so this can only be a name.
            ("127.1", false),
            ("2130706433", false),
        ] {
            assert_eq!(text.parse::<Host>().expect(text).name.is_loopback(), local, "{text}");
        }
    }

    #[test]
    fn origins_are_compared_without_default_ports() {
        let listed: Vec<Origin> = ["https://App.example.com:443", "http://localhost:3000", "vscode-file://vscode-app"]
            .iter()
            .map(|text| text.parse().expect(text))
            .collect();
        let origins = Origins::Listed(listed);

        for (origin, included) in [
            ("https://app.example.com", true),
            ("http://localhost:3000", true),
            ("vscode-file://vscode-app", true),
            ("http://app.example.com", false),
            ("https://app.example.com:8443", false),
            ("https://app.example.com.evil.example", false),
            ("https://evil.example", false),
            ("http://localhost", false),
            ("null", false),
            ("", false),
        ] {
            assert_eq!(origins.include(origin), included, "{origin}");
            assert!(Origins::Any.include(origin) && !Origins::default().include(origin));
        }
    }
}
