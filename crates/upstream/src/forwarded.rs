//! The headers of a client's request that an agent gets because the operator named them, and no others.
//!
//! Not here: which names are allowed (`interlingua_config`), and the client's trace ([`super::Trace`]).

use std::sync::Arc;

/// The most that is forwarded of one request, in bytes of names and values.
const MAX_BYTES: usize = 8 * 1024;

/// Headers of a client's request, by names that are known before it comes. Has no `Debug`: values may be secrets.
#[derive(Clone, Default)]
pub struct ForwardedHeaders {
    /// In lower case.
    names: Arc<[Arc<str>]>,
    headers: Arc<[(Arc<str>, String)]>,
}

impl ForwardedHeaders {
    /// These names, in lower case, and no request yet.
    #[must_use]
    pub fn named<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let mut names: Vec<Arc<str>> = names.into_iter().map(Arc::from).collect();
        names.sort_unstable();
        names.dedup();
        Self { names: names.into(), headers: Arc::default() }
    }

    /// The same names with their values in a request, with every occurrence.
    #[must_use]
    pub fn read<'h>(&self, headers: impl Iterator<Item = (&'h str, &'h str)>) -> Self {
        if self.names.is_empty() {
            return self.clone();
        }

        let mut left = MAX_BYTES;
        let mut found = Vec::new();
        for (name, value) in headers {
            let known = self.names.iter().find(|known| name.eq_ignore_ascii_case(known));
            let Some(known) = known.filter(|_| is_visible(value)) else { continue };
            let Some(rest) = left.checked_sub(name.len() + value.len()) else {
                tracing::debug!(header = &**known, "forwarded headers are too long: some are omitted");
                break;
            };
            left = rest;
            found.push((Arc::clone(known), value.to_owned()));
        }
        Self { names: Arc::clone(&self.names), headers: found.into() }
    }

    /// The values of these names.
    pub(super) fn matching<'a>(&'a self, names: &'a [String]) -> impl Iterator<Item = (&'a str, &'a str)> {
        let is_wanted = |name: &str| names.iter().any(|wanted| wanted == name);
        self.headers.iter().filter(move |(name, _)| is_wanted(name)).map(|(name, value)| (&**name, value.as_str()))
    }
}

/// RFC 9110, section 5.5, without bytes above ASCII.
fn is_visible(value: &str) -> bool {
    value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_headers_are_forwarded_with_all_their_values() {
        let forwarded = ForwardedHeaders::named(["x-request-id", "x-team", "x-request-id"]);
        let long = "x".repeat(MAX_BYTES);
        let request = [
            ("X-Request-Id", "1"),
            ("cookie", "a=b"),
            ("x-team", "blue"),
            ("x-request-id", "2"),
            ("x-team", "caf\u{e9}"),
            ("x-team", &long),
            ("x-team", "after"),
        ];
        let read = forwarded.read(request.into_iter());
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            read.matching(&names).map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        assert_eq!(of(&["x-request-id"]), ["x-request-id=1", "x-request-id=2"]);
        assert_eq!(of(&["x-team", "cookie"]), ["x-team=blue"]);
        assert!(
            ForwardedHeaders::default().read(request.into_iter()).matching(&["cookie".to_owned()]).next().is_none()
        );
    }
}
