//! To whom runs, sessions and documents belong, and the one spelling of it that stores and keys use.
//!
//! Not here: how a caller proves who it is (the server), and what an agent learns of it (the engine).
//!
//! ```text
//! key = principal [ "/" tenant ]                             a caller, or a tenant of one
//!     | principal "/route:" route [ U+001D tenant ]          the same, on a route that shares no sessions
//! ```
//!
//! Every control character of a part is written as U+001E and two hexadecimal digits; so is `/` in a principal, and the
//! first character of a tenant that begins like a route. All other text stands as it is. So two owners never have the
//! same key, no key holds a control character but these two, and what was stored before owners were encoded keeps its
//! key.

use std::fmt;

/// Stands in front of two hexadecimal digits: a character that is not written as it is.
const ESCAPE: char = '\u{1e}';
/// Stands between a route and a tenant.
const WITHIN: char = '\u{1d}';
/// What the spelling of a route begins with.
const ROUTE: &str = "route:";

/// To whom something belongs. What is not its owner's does not exist for a caller.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    principal: String,
    route: Option<String>,
    tenant: Option<String>,
    key: String,
}

impl Owner {
    /// The principal of callers that did not prove who they are.
    pub const ANONYMOUS: &'static str = "anonymous";

    /// An owner by its principal: whom the credentials of a caller name.
    #[must_use]
    pub fn new(principal: impl Into<String>) -> Self {
        Self { principal: principal.into(), route: None, tenant: None, key: String::new() }.keyed()
    }

    /// All callers that did not prove who they are.
    #[must_use]
    pub fn anonymous() -> Self {
        Self::new(Self::ANONYMOUS)
    }

    /// The part of its things that belongs to one route alone.
    #[must_use]
    pub fn on_route(self, path: &str) -> Self {
        Self { route: Some(path.to_owned()), ..self }.keyed()
    }

    /// The part of its things that belongs to one tenant alone.
    #[must_use]
    pub fn of_tenant(self, tenant: &str) -> Self {
        Self { tenant: Some(tenant.to_owned()), ..self }.keyed()
    }

    /// Whom the credentials named.
    #[must_use]
    pub fn principal(&self) -> &str {
        &self.principal
    }

    /// Its spelling in stores and keys.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What follows the principal in its key. None: all of the principal's things.
    #[must_use]
    pub fn partition(&self) -> Option<&str> {
        self.key.split_once('/').map(|(_, partition)| partition)
    }

    /// True for callers that proved nothing, where nothing keeps them apart: they share one world of names.
    #[must_use]
    pub fn is_everybody(&self) -> bool {
        self.principal == Self::ANONYMOUS && self.route.is_none() && self.tenant.is_none()
    }

    /// Reads a key. What was never written so is a principal of its own.
    #[must_use]
    pub fn from_key(key: &str) -> Self {
        let (principal, partition) =
            key.split_once('/').map_or((key, None), |(principal, rest)| (principal, Some(rest)));
        let (route, tenant) = match partition.map(|partition| partition.strip_prefix(ROUTE).ok_or(partition)) {
            None => (None, None),
            Some(Err(tenant)) => (None, Some(tenant)),
            Some(Ok(rest)) => {
                rest.split_once(WITHIN).map_or((Some(rest), None), |(route, tenant)| (Some(route), Some(tenant)))
            }
        };
        Self {
            principal: unescaped(principal),
            route: route.map(unescaped),
            tenant: tenant.map(unescaped),
            key: key.to_owned(),
        }
    }

    fn keyed(mut self) -> Self {
        let mut key = escaped_with(&self.principal, &['/']);
        if let Some(route) = &self.route {
            key.push('/');
            key.push_str(ROUTE);
            key.push_str(&escaped(route));
        }
        if let Some(tenant) = &self.tenant {
            key.push(if self.route.is_some() { WITHIN } else { '/' });
            let first = tenant.chars().next().filter(|_| self.route.is_none() && tenant.starts_with(ROUTE));
            if let Some(first) = first {
                escape(first, &mut key);
            }
            key.push_str(&escaped(&tenant[first.map_or(0, char::len_utf8)..]));
        }
        self.key = key;
        self
    }
}

impl From<&str> for Owner {
    fn from(principal: &str) -> Self {
        Self::new(principal)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({:?})", self.key)
    }
}

/// A text without control characters that no other text is written as: the parts of a key may be joined by any control
/// character but U+001E. Texts that have none stand as they are.
#[must_use]
pub fn escaped(text: &str) -> String {
    escaped_with(text, &[])
}

fn escaped_with(text: &str, also: &[char]) -> String {
    let mut key = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || also.contains(&c) { escape(c, &mut key) } else { key.push(c) }
    }
    key
}

/// Control characters, and the few others that are written so, end before U+0100.
fn escape(c: char, key: &mut String) {
    key.push(ESCAPE);
    key.push_str(&format!("{:02x}", u32::from(c)));
}

fn unescaped(text: &str) -> String {
    let mut parts = text.split(ESCAPE);
    let mut plain = parts.next().unwrap_or("").to_owned();
    for part in parts {
        let code = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code {
            Some(code) => {
                plain.push(char::from(code));
                plain.push_str(&part[2..]);
            }
            // Never written so.
            None => {
                plain.push(ESCAPE);
                plain.push_str(part);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn owners() -> Vec<Owner> {
        let names = ["anonymous", "a", "a/b", "b", "a/route:/b", "a\u{1d}b", "a\u{1e}2fb", "a\u{1f}b", "ü", "", "50%"];
        let parts =
            ["", "b", "b/c", "route:/b", "route:", "/b", "r", "b\u{1d}c", "\u{1e}", "\u{1e}72oute:/b", "\u{85}"];
        let mut owners = Vec::new();
        for name in names {
            let owner = Owner::new(name);
            owners.push(owner.clone());
            for part in parts {
                let on_route = owner.clone().on_route(part);
                owners.extend([owner.clone().of_tenant(part), on_route.clone()]);
                owners.extend(parts.map(|tenant| on_route.clone().of_tenant(tenant)));
            }
        }
        owners
    }

    #[test]
    fn two_owners_never_have_the_same_key() {
        let mut keys = HashMap::new();
        for owner in owners() {
            let key = owner.key().to_owned();
            assert!(!key.chars().any(|c| c.is_control() && c != ESCAPE && c != WITHIN), "{key:?}");
            assert_eq!(Owner::from_key(&key), owner);
            if let Some(other) = keys.insert(key, owner.clone()) {
                assert_eq!(other, owner, "one key for two owners");
            }
        }
    }

    #[test]
    fn what_was_stored_before_owners_were_encoded_keeps_its_key() {
        let anonymous = Owner::anonymous;
        for (owner, key) in [
            (anonymous(), "anonymous"),
            (anonymous().on_route("/agents/friday"), "anonymous/route:/agents/friday"),
            (anonymous().of_tenant("acme"), "anonymous/acme"),
            (anonymous().of_tenant("a/b 50%"), "anonymous/a/b 50%"),
        ] {
            assert_eq!(owner.key(), key);
        }
    }

    #[test]
    fn no_two_texts_are_escaped_alike() {
        let texts = ["", "a", "a\u{1f}b", "a\u{1e}1fb", "a\u{fffd}b", "a\nb", "a\u{85}b", "\u{1e}"];
        let escaped: std::collections::HashSet<String> = texts.iter().map(|text| escaped(text)).collect();
        assert_eq!(escaped.len(), texts.len());
        for text in texts {
            assert_eq!(unescaped(&super::escaped(text)), text);
        }
    }
}
