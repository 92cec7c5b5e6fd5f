//! Recognizes private locations: private hosts and addresses, and absolute file paths.
//!
//! Not here: splitting texts into words ([`super::shapes`]), and the stricter check of push receivers
//! ([`crate::public_address`]).

use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::Range;

/// The range of a private IPv6 address. Its colons otherwise separate words.
pub(super) fn private_ipv6(word: &str) -> Option<Range<usize>> {
    let is_part = |letter: char| letter.is_ascii_hexdigit() || letter == ':';
    let from = word.find("::").or_else(|| word.find(':'))?;
    let start = word[..from]
        .rfind(|letter| !is_part(letter))
        .map_or(0, |at| at + word[at..].chars().next().map_or(1, char::len_utf8));
    let end = word[start..].find(|letter| !is_part(letter)).map_or(word.len(), |end| start + end);

    let address: Ipv6Addr = word[start..end].trim_end_matches(':').parse().ok()?;
    is_private(&format!("[{address}]")).then_some(start..end)
}

/// The start of an absolute file path. URLs and routes do not count.
pub(super) fn find_path(word: &str) -> Option<usize> {
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

/// True for a host that is only meaningful inside a private network. A port and a path may follow.
pub(super) fn is_private(name: &str) -> bool {
    const SUFFIXES: &[&str] = &[
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
    host == "localhost" || SUFFIXES.iter().any(|suffix| host.len() > suffix.len() && host.ends_with(suffix))
}

/// True for a host name without a dot: a machine in the agent's network.
pub(super) fn is_single(name: &str) -> bool {
    let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
    !host.is_empty() && !host.contains(['.', '[', '*', '{', '$']) && host.is_ascii()
}
