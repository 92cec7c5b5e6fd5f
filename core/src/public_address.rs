//! Protection against server-side request forgery: which addresses are public, and which URLs a client may register
//! (docs/protocols/a2a.md#webhook-addresses).
//!
//! Pure: names are resolved elsewhere. Every resolved address is checked here, once when the URL is registered and
//! again before each connection. The connection must go to the exact address that was checked, follow no redirect and
//! use no proxy.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::str::FromStr;
use std::borrow::Cow;

use ipnet::Ipv4Net;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::network::{self, IpNet};

/// True for addresses of the public internet. False for all special ones: loopback, private, link-local including cloud
/// metadata services, shared, documentation, benchmark, multicast, reserved; and for IPv6 addresses that contain one of
/// these as an IPv4 address (mapped, compatible, translated, 6to4, Teredo).
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Special-purpose IPv4 blocks of the IANA registry, by first address and prefix length.
const SPECIAL_V4: &[Ipv4Net] = &[
    block([0, 0, 0, 0], 8),        // this network, unspecified
    block([10, 0, 0, 0], 8),       // private
    block([100, 64, 0, 0], 10),    // carrier-grade NAT, some clouds' metadata
    block([127, 0, 0, 0], 8),      // loopback
    block([169, 254, 0, 0], 16),   // link-local, most clouds' metadata
    block([172, 16, 0, 0], 12),    // private
    block([192, 0, 0, 0], 24),     // protocol assignments, one cloud's metadata
    block([192, 0, 2, 0], 24),     // documentation
    block([192, 31, 196, 0], 24),  // AS112
    block([192, 52, 193, 0], 24),  // AMT
    block([192, 88, 99, 0], 24),   // 6to4 relays, retired
    block([192, 168, 0, 0], 16),   // private
    block([192, 175, 48, 0], 24),  // AS112
    block([198, 18, 0, 0], 15),    // benchmarks
    block([198, 51, 100, 0], 24),  // documentation
    block([203, 0, 113, 0], 24),   // documentation
    block([224, 0, 0, 0], 4),      // multicast
    block([240, 0, 0, 0], 4),      // reserved, broadcast
    block([168, 63, 129, 16], 32), // one cloud's host agent: formally public, in fact internal
];

const fn block([a, b, c, d]: [u8; 4], prefix_len: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix_len)
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    !SPECIAL_V4.iter().any(|block| block.contains(&address))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(inner) = embedded_v4(address) {
        return is_public_v4(inner);
    }

    let [first, second, ..] = address.segments();
    // Only 2000::/3 is allocated. Not public within it: protocol assignments (with ORCHID and benchmarks),
    // documentation.
    let assigned = first & 0xe000 == 0x2000;
    let protocol = first == 0x2001 && second < 0x0200;
    let documentation = (first == 0x2001 && second == 0x0db8) || (first == 0x3fff && second < 0x1000);
    assigned && !protocol && !documentation
}

/// The IPv4 address embedded in an IPv6 address, in any of the known forms.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let joined = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match segments {
        // ::ffff:a.b.c.d (mapped), ::ffff:0:a.b.c.d (translated), ::a.b.c.d (compatible; :: and ::1 are in 0/8).
        [0, 0, 0, 0, 0, 0xffff | 0, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => Some(joined(high, low)),
        // NAT64, the well-known prefix. The local ones (64:ff9b:1::/48) are outside 2000::/3.
        [0x0064, 0xff9b, 0, 0, 0, 0, high, low] => Some(joined(high, low)),
        // 6to4.
        [0x2002, high, low, ..] => Some(joined(high, low)),
        // Teredo: the client's address, inverted. An attacker can choose the server's address too.
        [0x2001, 0, server_high, server_low, _, _, high, low] => {
            let server = joined(server_high, server_low);
            Some(if is_public_v4(server) { joined(!high, !low) } else { server })
        }
        // ISATAP, with any prefix.
        [_, _, _, _, 0x0000 | 0x0200, 0x5efe, high, low] => Some(joined(high, low)),
        _ => None,
    }
}

/// True for names that never denote a public host, whatever they currently resolve to: names reserved for local use,
/// and names with one label.
#[must_use]
pub fn is_local_name(host: &str) -> bool {
    const LOCAL: &[&str] = &[
        "localhost",
        "localdomain",
        "localhost6",
        "localdomain6",
        "local",
        "internal",
        "intranet",
        "lan",
        "home",
        "corp",
        "private",
        "arpa",
    ];
    let host = host.trim_end_matches('.');
    match host.rsplit_once('.') {
        Some((_, last)) => LOCAL.iter().any(|local| last.eq_ignore_ascii_case(local)),
        None => true,
    }
}

/// The operator's settings for outgoing requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Allow `http` URLs.
    pub allow_http: bool,
    /// Allowed ports. Empty: any port above 0.
    pub ports: Vec<u16>,
    /// Non-public addresses that are allowed.
    pub allow: Vec<AddressException>,
}

/// An exception: a network, or a host name with whatever it resolves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressException {
    /// The addresses of a network.
    Network(IpNet),
    /// A host name in lower case.
    Name(String),
}

impl FromStr for AddressException {
    type Err = String;

    /// Parses `10.1.0.0/16`, `10.1.2.3`, `fd00::/8` or `hooks.internal`. An error is a message for the operator.
    fn from_str(text: &str) -> Result<Self, String> {
        let address = text.split_once('/').map_or(text, |(address, _)| address);
        if address.parse::<IpAddr>().is_ok() {
            let network = network::parse(text).map_err(|_| format!("'{text}' has no valid prefix length"))?;
            return Ok(Self::Network(network));
        }

        if !text.is_empty() && text.bytes().all(is_name_byte) {
            Ok(Self::Name(text.trim_end_matches('.').to_ascii_lowercase()))
        } else {
            Err(format!("'{text}' is neither an address, a block like 10.1.0.0/16, nor a name"))
        }
    }
}

impl AddressException {
    fn covers(&self, host: &str, address: IpAddr) -> bool {
        match (self, address) {
            (Self::Name(name), _) => name == host,
            (Self::Network(network @ IpNet::V4(_)), _) => network::contains(network, address),
            (Self::Network(IpNet::V6(network)), IpAddr::V6(address)) => network.contains(&address),
            (Self::Network(IpNet::V6(_)), IpAddr::V4(_)) => false,
        }
    }
}

impl fmt::Display for AddressException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) => network.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl<'de> Deserialize<'de> for AddressException {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for AddressException {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for AddressException {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Allowed".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

/// The destination of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// True for `https`.
    pub tls: bool,
    /// The host name in lower case, or the address without brackets.
    pub host: String,
    /// The address, if the URL contains one in any notation.
    pub address: Option<IpAddr>,
    /// The explicit or default port.
    pub port: u16,
}

/// Why a URL is not allowed. Does not reveal what a name resolved to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusedAddress {
    /// Not a valid absolute URL.
    InvalidUrl,
    /// The scheme is not allowed.
    Scheme,
    /// The URL contains a user or a password.
    UserInfo,
    /// The port is not allowed.
    Port,
    /// The host is not public.
    Host,
}

impl fmt::Display for RefusedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidUrl => "must be an absolute URL",
            Self::Scheme => "must be an https URL",
            Self::UserInfo => "must not contain a user or a password",
            Self::Port => "has a port that is not allowed",
            Self::Host => "must have a public host",
        })
    }
}

impl Policy {
    /// Parses a URL and checks everything that needs no name resolution.
    ///
    /// # Errors
    /// Why the URL is not allowed.
    pub fn destination(&self, url: &str) -> Result<Destination, RefusedAddress> {
        let destination = Destination::parse(url)?;
        if !destination.tls && !self.allow_http {
            return Err(RefusedAddress::Scheme);
        }

        let port = destination.port;
        if port == 0 || (!self.ports.is_empty() && !self.ports.contains(&port)) {
            return Err(RefusedAddress::Port);
        }

        match destination.address {
            Some(address) if !self.allows(&destination.host, address) => Err(RefusedAddress::Host),
            _ => Ok(destination),
        }
    }

    /// True if a connection to this address, which `host` resolved to, is allowed.
    #[must_use]
    pub fn allows(&self, host: &str, address: IpAddr) -> bool {
        is_public(address) || self.allow.iter().any(|allowed| allowed.covers(host, address))
    }

    /// True if the name is allowed whatever it resolves to.
    #[must_use]
    pub fn allows_name(&self, host: &str) -> bool {
        self.allow.iter().any(|allowed| matches!(allowed, AddressException::Name(name) if name == host))
    }

    /// Checks all addresses that a name resolved to; one disallowed address is enough to fail. The gateway itself is
    /// always disallowed.
    ///
    /// # Errors
    /// [`RefusedAddress::Host`]
    pub fn check_resolved(
        &self,
        host: &str,
        addresses: &[SocketAddr],
        own: &OwnAddresses,
    ) -> Result<(), RefusedAddress> {
        let good = |address: &SocketAddr| self.allows(host, address.ip()) && !own.contains(*address);
        if !addresses.is_empty() && addresses.iter().all(good) { Ok(()) } else { Err(RefusedAddress::Host) }
    }
}

/// The addresses of the gateway itself, which must never be a receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnAddresses {
    /// Listening addresses. An unspecified address stands for every address of the machine.
    pub listens: Vec<SocketAddr>,
    /// The addresses of the machine, without loopback addresses. `None`: they are unknown, so any address may be one of
    /// them.
    pub machine: Option<Vec<IpAddr>>,
}

impl OwnAddresses {
    /// True if a connection to this address would reach the gateway.
    #[must_use]
    pub fn contains(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        let is_machine = || {
            let known = self.machine.as_ref();
            ip.is_loopback() || known.is_none_or(|known| known.iter().any(|known| known.to_canonical() == ip))
        };
        self.listens.iter().filter(|listens| listens.port() == address.port()).any(|listens| {
            let listens = listens.ip().to_canonical();
            // Connecting to the unspecified address reaches this machine.
            listens == ip || ip.is_unspecified() || (listens.is_unspecified() && is_machine())
        })
    }
}

impl Destination {
    fn parse(url: &str) -> Result<Self, RefusedAddress> {
        // Browsers repair tabs, backslashes and missing slashes. They are refused here, because parsers must not
        // disagree.
        if url.len() > 8192 || url.bytes().any(|byte| byte <= b' ' || byte == b'\\' || byte >= 0x7f) {
            return Err(RefusedAddress::InvalidUrl);
        }

        let (scheme, rest) = url.split_once("://").ok_or(RefusedAddress::InvalidUrl)?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(RefusedAddress::Scheme),
        };

        let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
        if authority.contains('@') {
            return Err(RefusedAddress::UserInfo);
        }

        let (host, port) = match authority.strip_prefix('[') {
            Some(inner) => {
                let (host, after) = inner.split_once(']').ok_or(RefusedAddress::InvalidUrl)?;
                let port = if after.is_empty() {
                    None
                } else {
                    Some(after.strip_prefix(':').ok_or(RefusedAddress::InvalidUrl)?)
                };
                return Self::at_v6(tls, host, port);
            }
            None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
        };

        let host = host.to_ascii_lowercase();
        let host = host.strip_suffix('.').unwrap_or(&host);
        if host.is_empty() || host.len() > 253 || !host.bytes().all(is_name_byte) || host.contains("..") {
            // Percent signs are refused too: some parsers decode them and others do not.
            return Err(RefusedAddress::InvalidUrl);
        }

        let port = parse_port(tls, port)?;
        let last = host.rsplit('.').next().unwrap_or("");
        let numeric = last.bytes().all(|byte| byte.is_ascii_digit())
            || last.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if !numeric {
            return Ok(Self { tls, host: host.to_owned(), address: None, port });
        }

        // A host that ends in a number is an IPv4 address or invalid.
        let address = IpAddr::V4(legacy_v4(host).ok_or(RefusedAddress::InvalidUrl)?);
        Ok(Self { tls, host: address.to_string(), address: Some(address), port })
    }

    fn at_v6(tls: bool, host: &str, port: Option<&str>) -> Result<Self, RefusedAddress> {
        // A zone (`%eth0`) fails to parse. It would name a local link anyway.
        let address: Ipv6Addr = host.parse().map_err(|_| RefusedAddress::InvalidUrl)?;

        let port = parse_port(tls, port)?;
        Ok(Self { tls, host: address.to_string(), address: Some(IpAddr::V6(address)), port })
    }
}

const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')
}

fn parse_port(tls: bool, port: Option<&str>) -> Result<u16, RefusedAddress> {
    match port {
        None | Some("") => Ok(if tls { 443 } else { 80 }),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().map_err(|_| RefusedAddress::Port)
        }
        Some(_) => Err(RefusedAddress::InvalidUrl),
    }
}

/// Parses an IPv4 address in any notation that resolvers accept: one to four numbers, decimal, octal or hexadecimal, of
/// which the last one fills the remaining bytes.
fn legacy_v4(host: &str) -> Option<Ipv4Addr> {
    let number = |text: &str| -> Option<u32> {
        if let Some(hex) = text.strip_prefix("0x") {
            return if hex.is_empty() { Some(0) } else { u32::from_str_radix(hex, 16).ok() };
        }

        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        match text.strip_prefix('0') {
            Some("") => Some(0),
            Some(octal) => u32::from_str_radix(octal, 8).ok(),
            None => text.parse().ok(),
        }
    };

    let parts: Vec<u32> = host.split('.').map(number).collect::<Option<_>>()?;
    let (last, front) = parts.split_last()?;
    if front.len() > 3 || front.iter().any(|part| *part > 255) {
        return None;
    }

    let room = 8 * (4 - u32::try_from(front.len()).ok()?);
    if u64::from(*last) >= 1_u64 << room {
        return None;
    }

    let high = front.iter().enumerate().fold(0_u32, |bits, (place, part)| bits | (part << (24 - 8 * place)));
    Some(Ipv4Addr::from(high | last))
}

#[cfg(test)]
mod tests;
