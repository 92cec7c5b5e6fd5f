//! Owners of runs, sessions and documents, and their encoding as keys in stores.
//!
//! Not here: authentication (the server), and what an agent learns about a caller (the engine).
//!
//! ```text
//! key = principal [ "/" tenant ]                             a caller, or one tenant of a caller
//!     | principal "/route:" route [ U+001D tenant ]          the same, on a route with sessions of its own
//! ```
//!
//! Every control character in a part is encoded as U+001E and two hexadecimal digits. So are `/` in a principal and the
//! first character of a tenant that starts with `route:`. All other text is verbatim. Hence two owners never share a
//! key, keys contain no control characters other than these two, and keys stored before this encoding existed are
//! still valid.

use std::fmt;
use std::sync::Arc;

/// Precedes the two hexadecimal digits of an encoded character.
const ESCAPE: char = '\u{1e}';
/// Separates a route from a tenant.
const TENANT_SEPARATOR: char = '\u{1d}';
/// Prefix of an encoded route.
const ROUTE: &str = "route:";

/// The owner of a resource. To any other caller the resource does not exist.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    principal: Arc<str>,
    route: Option<Arc<str>>,
    tenant: Option<Arc<str>>,
    key: Arc<str>,
}

impl Owner {
    /// The principal of unauthenticated callers.
    pub const ANONYMOUS: &'static str = "anonymous";

    /// The owner for a principal, as authentication established it.
    #[must_use]
    pub fn new(principal: impl Into<Arc<str>>) -> Self {
        Self { principal: principal.into(), route: None, tenant: None, key: Arc::from("") }.with_key()
    }

    /// The owner for a caller whose identity was proven: the kind of proof (`key`, `jwt`, `cert`), its issuer, and the
    /// name. Two different triples are never the same owner, and no triple is [`Self::anonymous`].
    #[must_use]
    pub fn authenticated(kind: &str, issuer: &str, subject: &str) -> Self {
        Self::new(format!("{kind}:{}:{subject}", escaped_with(issuer, &[':'])))
    }

    /// Kind, issuer and name, of an [authenticated](Self::authenticated) owner.
    #[must_use]
    pub fn identity(&self) -> Option<(&str, String, String)> {
        let (kind, rest) = self.principal.split_once(':')?;
        let (issuer, name) = rest.split_once(':')?;
        Some((kind, unescaped(issuer), name.to_owned()))
    }

    /// The shared owner of all unauthenticated callers.
    #[must_use]
    pub fn anonymous() -> Self {
        Self::new(Self::ANONYMOUS)
    }

    /// Restricts the owner to one route.
    #[must_use]
    pub fn on_route(self, path: &str) -> Self {
        Self { route: Some(path.into()), ..self }.with_key()
    }

    /// Restricts the owner to one tenant.
    #[must_use]
    pub fn of_tenant(self, tenant: &str) -> Self {
        Self { tenant: Some(tenant.into()), ..self }.with_key()
    }

    /// The authenticated principal.
    #[must_use]
    pub fn principal(&self) -> &str {
        &self.principal
    }

    /// The encoded key for stores.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The key without route and tenant: the same for everything that belongs to one caller.
    #[must_use]
    pub fn base_key(&self) -> &str {
        Self::base_of(&self.key)
    }

    /// The part of a [key](Self::key) that [`Self::base_key`] returns.
    #[must_use]
    pub fn base_of(key: &str) -> &str {
        key.split_once('/').map_or(key, |(base, _)| base)
    }

    /// The part of the key after the principal. `None`: the owner is not restricted to a route or tenant.
    #[must_use]
    pub fn partition(&self) -> Option<&str> {
        self.key.split_once('/').map(|(_, partition)| partition)
    }

    /// True for unauthenticated callers that no route or tenant separates: they share all ids.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        &*self.principal == Self::ANONYMOUS && self.route.is_none() && self.tenant.is_none()
    }

    /// Decodes a key. A key that this encoding cannot produce is decoded as a principal of its own.
    #[must_use]
    pub fn from_key(key: &str) -> Self {
        let (principal, partition) =
            key.split_once('/').map_or((key, None), |(principal, rest)| (principal, Some(rest)));

        let (route, tenant) = match partition.map(|partition| partition.strip_prefix(ROUTE).ok_or(partition)) {
            None => (None, None),
            Some(Err(tenant)) => (None, Some(tenant)),
            Some(Ok(rest)) => rest
                .split_once(TENANT_SEPARATOR)
                .map_or((Some(rest), None), |(route, tenant)| (Some(route), Some(tenant))),
        };

        Self {
            principal: unescaped(principal).into(),
            route: route.map(|route| unescaped(route).into()),
            tenant: tenant.map(|tenant| unescaped(tenant).into()),
            key: key.into(),
        }
    }

    fn with_key(mut self) -> Self {
        let mut key = escaped_with(&self.principal, &['/']);

        if let Some(route) = &self.route {
            key.push('/');
            key.push_str(ROUTE);
            key.push_str(&escaped(route));
        }

        if let Some(tenant) = &self.tenant {
            key.push(if self.route.is_some() { TENANT_SEPARATOR } else { '/' });
            let first = tenant.chars().next().filter(|_| self.route.is_none() && tenant.starts_with(ROUTE));
            if let Some(first) = first {
                escape(first, &mut key);
            }
            key.push_str(&escaped(&tenant[first.map_or(0, char::len_utf8)..]));
        }

        self.key = key.into();
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

/// Encodes a text injectively and without control characters other than U+001E, so that parts of a key can be joined
/// by any other control character. Texts without control characters stay unchanged.
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

/// Encodes one character. Control characters and the few others encoded this way are below U+0100.
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
            // Not produced by `escape`, so keep it verbatim.
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
        let names = [
            "anonymous",
            "a:b",
            ":",
            "jwt::a",
            "a",
            "a/b",
            "b",
            "a/route:/b",
            "a\u{1d}b",
            "a\u{1e}2fb",
            "a\u{1f}b",
            "ü",
            "",
            "50%",
        ];
        let parts = [
            "",
            "b",
            "b/c",
            ":",
            "b:c",
            "route:/b",
            "route:",
            "/b",
            "r",
            "b\u{1d}c",
            "\u{1e}",
            "\u{1e}72oute:/b",
            "\u{85}",
        ];
        let mut owners = Vec::new();
        for name in names {
            let owner = Owner::new(name);
            owners.push(owner.clone());
            for issuer in parts {
                owners.push(Owner::authenticated("jwt", issuer, name));
                owners.push(Owner::authenticated("key", issuer, name).of_tenant(issuer));
            }

            for part in parts {
                let on_route = owner.clone().on_route(part);
                owners.extend([owner.clone().of_tenant(part), on_route.clone()]);
                owners.extend(parts.map(|tenant| on_route.clone().of_tenant(tenant)));
            }
        }
        owners
    }

    #[test]
    fn two_owners_never_share_a_key() {
        let mut keys = HashMap::new();
        for owner in owners() {
            let key = owner.key().to_owned();
            assert!(!key.chars().any(|c| c.is_control() && c != ESCAPE && c != TENANT_SEPARATOR), "{key:?}");
            assert_eq!(Owner::from_key(&key), owner);
            if let Some(other) = keys.insert(key, owner.clone()) {
                assert_eq!(other, owner, "one key for two owners");
            }
        }
    }

    #[test]
    fn a_proven_identity_has_one_owner_and_is_never_anonymous() {
        let owner = Owner::authenticated;
        assert_ne!(owner("jwt", "a:b", "c"), owner("jwt", "a", "b:c"));
        assert_ne!(owner("key", "", "anonymous"), Owner::anonymous());
        assert_eq!(owner("key", "", "team-a").key(), "key::team-a");
        let decoded = Owner::from_key(owner("jwt", "https://a/", "b:c").base_key());
        assert_eq!(decoded.identity(), Some(("jwt", "https://a/".to_owned(), "b:c".to_owned())));
        assert_eq!(Owner::anonymous().identity(), None);
        assert_eq!(owner("jwt", "", "a/b").of_tenant("t").base_key(), owner("jwt", "", "a/b").key());
    }

    #[test]
    fn keys_stored_before_the_encoding_existed_are_unchanged() {
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
    fn distinct_texts_have_distinct_encodings() {
        let texts = ["", "a", "a\u{1f}b", "a\u{1e}1fb", "a\u{fffd}b", "a\nb", "a\u{85}b", "\u{1e}"];
        let escaped: std::collections::HashSet<String> = texts.iter().map(|text| escaped(text)).collect();
        assert_eq!(escaped.len(), texts.len());
        for text in texts {
            assert_eq!(unescaped(&super::escaped(text)), text);
        }
    }
}
