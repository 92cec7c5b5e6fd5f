//! Recognizes private locations: private hosts and addresses, and absolute file paths.
//!
//! Not here: splitting texts into words ([`super::shapes`]), names of hosts and folders ([`super::patterns`]), and the
//! stricter check of push receivers ([`crate::public_address`]).

use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::Range;

use super::patterns::{PATH, PRIVATE_HOST};

/// The range of a private IPv6 address with its zone. Its colons otherwise separate words.
pub(super) fn private_ipv6(word: &str) -> Option<Range<usize>> {
    // Dots occur in an embedded IPv4 address, such as in `::ffff:10.0.0.5`.
    let is_part = |letter: char| letter.is_ascii_hexdigit() || letter == ':' || letter == '.';
    let from = word.find("::").or_else(|| word.find(':'))?;
    let start = word[..from].trim_end_matches(is_part).len();
    let end = word[start..].find(|letter| !is_part(letter)).map_or(word.len(), |end| start + end);

    // The sentence may continue or end after the address.
    let without_dot = word[start..end].trim_end_matches('.');
    let found = [without_dot, without_dot.trim_end_matches(':')].into_iter();
    let (address, text) = found.filter_map(|text| Some((text.parse::<Ipv6Addr>().ok()?, text))).next()?;
    let end = start + text.len();
    is_private_v6(address).then(|| start..end + zone_len(&word[end..]))
}

/// The length of a zone behind a link-local address, such as `%eth0` or, in URLs, `%25eth0`.
fn zone_len(text: &str) -> usize {
    let Some(zone) = text.strip_prefix('%') else { return 0 };
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    1 + zone.find(|letter| !is_part(letter)).unwrap_or(zone.len())
}

/// The start of an absolute file path.
pub(super) fn find_path(word: &str) -> Option<usize> {
    PATH.captures(word).map(|found| found.name("path").map_or(0, |path| path.start()))
}

/// True for a host that is only meaningful inside a private network. A port and a path may follow.
pub(super) fn is_private(name: &str) -> bool {
    let name = name.split('/').next().unwrap_or(name);
    let inner = name.strip_prefix('[').and_then(|name| name.split(']').next());
    let host = inner.unwrap_or_else(|| without_port(name));

    let without_zone = host.split('%').next().unwrap_or(host);
    if let Ok(address) = without_zone.parse::<Ipv6Addr>() {
        return is_private_v6(address);
    }
    host.parse::<Ipv4Addr>().map_or_else(|_| PRIVATE_HOST.is_match(host), is_private_v4)
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_unspecified()
        || (first == 100 && second & 0xc0 == 64)
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    // Mapped and compatible forms name an IPv4 host. `::` and `::1` are compatible forms of 0.0.0.0 and 0.0.0.1.
    if let Some(inner) = address.to_ipv4().filter(|inner| inner.octets()[0] != 0) {
        return is_private_v4(inner);
    }
    let first = address.segments()[0];
    address.is_loopback() || address.is_unspecified() || first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfe80
}

/// True for a host name without a dot: a machine in the agent's network.
pub(super) fn is_single(name: &str) -> bool {
    let host = without_port(name);
    !host.is_empty() && !host.contains(['.', '[', '*', '{', '$']) && host.is_ascii()
}

fn without_port(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(host, _)| host)
}
