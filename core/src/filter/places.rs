//! What tells where somebody's machines and files are: private hosts and addresses, absolute paths of files.
//!
//! Not here: taking texts apart ([`super::shapes`]). Addresses that push receivers may have are judged more strictly, in
//! [`crate::public_address`].

use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::Range;

/// Where a private address of IPv6 stands, which is made of what else separates words.
pub(super) fn sixth_version(word: &str) -> Option<Range<usize>> {
    let is_part = |letter: char| letter.is_ascii_hexdigit() || letter == ':';
    let from = word.find("::").or_else(|| word.find(':'))?;
    let start = word[..from]
        .rfind(|letter| !is_part(letter))
        .map_or(0, |at| at + word[at..].chars().next().map_or(1, char::len_utf8));
    let end = word[start..].find(|letter| !is_part(letter)).map_or(word.len(), |end| start + end);
    let address: Ipv6Addr = word[start..end].trim_end_matches(':').parse().ok()?;
    is_private(&format!("[{address}]")).then_some(start..end)
}

/// Where an absolute path of a file begins: links and routes are none.
pub(super) fn path(word: &str) -> Option<usize> {
    const FOLDERS: &[&str] = &[
        "home",
        "root",
        "usr",
        "opt",
        "srv",
        "app",
        "var",
        "tmp",
        "Users",
        "etc",
        "mnt",
        "data",
        "private",
        "Library",
        "proc",
        "run",
        "lib",
        "sys",
        "dev",
        "media",
        "workspace",
        "workspaces",
        "code",
        "nix",
        "Applications",
        "Volumes",
        "bin",
        "sbin",
        "secrets",
    ];
    if word.starts_with("\\\\") {
        return Some(0);
    }
    let drive = |at: usize| {
        let bytes = word.as_bytes();
        bytes.get(at + 1) == Some(&b':') && matches!(bytes.get(at + 2), Some(b'\\'))
    };
    word.char_indices().find_map(|(at, letter)| {
        let begins =
            word[..at].chars().next_back().is_none_or(|before| !before.is_alphanumeric() && !"/.-_~".contains(before));
        let top = |at: usize| {
            let (top, rest) = word[at + 1..].split_once('/')?;
            (FOLDERS.contains(&top) && !rest.is_empty()).then_some(())
        };
        let is_path = match letter {
            '/' => top(at).is_some(),
            '~' => word[at + 1..].starts_with('/'),
            'A'..='Z' | 'a'..='z' => drive(at),
            _ => false,
        };
        (begins && is_path).then_some(at)
    })
}

/// A host that only means something inside somebody's network. A port may follow, a path too.
pub(super) fn is_private(name: &str) -> bool {
    const ENDS: &[&str] = &[
        ".internal",
        ".local",
        ".localdomain",
        ".localhost",
        ".lan",
        ".corp",
        ".intranet",
        ".private",
        ".home.arpa",
        ".svc",
        ".cluster.local",
        ".consul",
    ];
    let name = name.split('/').next().unwrap_or(name);
    let inner = name.strip_prefix('[').and_then(|name| name.split(']').next());
    let host = inner.unwrap_or_else(|| name.rsplit_once(':').map_or(name, |(host, _)| host));
    if let Ok(address) = host.parse::<Ipv6Addr>() {
        let first = address.segments()[0];
        return address.is_loopback()
            || address.is_unspecified()
            || first & 0xfe00 == 0xfc00
            || first & 0xffc0 == 0xfe80;
    }
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        let [first, second, ..] = address.octets();
        return address.is_private()
            || address.is_loopback()
            || address.is_link_local()
            || address.is_unspecified()
            || (first == 100 && second & 0xc0 == 64);
    }
    let host = host.to_ascii_lowercase();
    host == "localhost" || ENDS.iter().any(|end| host.len() > end.len() && host.ends_with(end))
}

/// A name without a dot in an address: a machine next to the agent.
pub(super) fn is_single(name: &str) -> bool {
    let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
    !host.is_empty() && !host.contains(['.', '[', '*', '{', '$']) && host.is_ascii()
}
