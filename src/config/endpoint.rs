//! The endpoints of mounted protocols, to find routes that conflict.

/// One endpoint of a protocol: a method, and a path relative to where the protocol is mounted.
///
/// Path parameters are written in braces: `/runs/{id}`, `/tasks/{id}:cancel`. A parameter with a pattern, `{rest:.*}`,
/// matches the rest of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointName {
    /// The HTTP method in upper case; `*` for all methods.
    pub method: String,
    /// The path below the mount, with a leading slash; empty for the mount itself.
    pub path: String,
}

impl EndpointName {
    /// An endpoint with this HTTP method, or `*`, and this path below the mount.
    pub fn new(method: impl Into<String>, path: impl Into<String>) -> Self {
        Self { method: method.into(), path: path.into() }
    }

    /// The endpoint below `mount`, which has no parameters and no trailing slash.
    pub(super) fn below(&self, mount: &str) -> Self {
        let path = format!("{}{}", mount.trim_end_matches('/'), self.path);
        Self { method: self.method.clone(), path }
    }

    /// True if some request matches both endpoints.
    pub(super) fn conflicts_with(&self, other: &Self) -> bool {
        let methods = self.method == other.method || self.method == "*" || other.method == "*";
        methods && paths_overlap(&self.path, &other.path)
    }
}

fn paths_overlap(one: &str, other: &str) -> bool {
    let mut ones = one.trim_end_matches('/').split('/');
    let mut others = other.trim_end_matches('/').split('/');

    loop {
        match (ones.next(), others.next()) {
            (None, None) => return true,
            (Some(one), Some(other)) if is_catch_all(one) || is_catch_all(other) => return true,
            (Some(one), Some(other)) if segments_overlap(one, other) => {}
            _ => return false,
        }
    }
}

fn is_catch_all(segment: &str) -> bool {
    segment.starts_with('{') && segment.contains(':') && segment.ends_with('}')
}

/// Conservative: two segments with parameters overlap unless their fixed prefixes or suffixes differ.
fn segments_overlap(one: &str, other: &str) -> bool {
    let affix_lengths = |segment: &str| -> Option<(usize, usize)> {
        Some((segment.find('{')?, segment.len() - segment.rfind('}')? - 1))
    };
    let affixes_agree = |one: (&str, &str), other: (&str, &str)| {
        (one.0.starts_with(other.0) || other.0.starts_with(one.0))
            && (one.1.ends_with(other.1) || other.1.ends_with(one.1))
    };
    let affixes = |segment| match affix_lengths(segment) {
        Some((before, after)) => (&segment[..before], &segment[segment.len() - after..]),
        None => (segment, segment),
    };

    match (affix_lengths(one), affix_lengths(other)) {
        (None, None) => one == other,
        (Some((before, after)), None) => {
            other.len() > before + after
                && other.starts_with(&one[..before])
                && other.ends_with(&one[one.len() - after..])
        }
        (None, Some(_)) => segments_overlap(other, one),
        (Some(_), Some(_)) => affixes_agree(affixes(one), affixes(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflict(one: &str, other: &str) -> bool {
        let (one, other) = (EndpointName::new("GET", one), EndpointName::new("GET", other));
        assert_eq!(one.conflicts_with(&other), other.conflicts_with(&one));
        one.conflicts_with(&other)
    }

    #[test]
    fn endpoints_conflict_if_one_request_matches_both() {
        assert!(conflict("/a/process", "/a/process"));
        assert!(conflict("/a/process", "/a/process/"));
        assert!(conflict("/a/{id}", "/a/process"));
        assert!(conflict("/a/{id}:cancel", "/a/x:cancel"));
        assert!(conflict("/a/{rest:.*}", "/a/b/c"));
        assert!(!conflict("/a/{id}:cancel", "/a/{id}:send"));
        assert!(!conflict("/a/{id}:cancel", "/a/x"));
        assert!(!conflict("/a/b", "/a/b/c"));
        assert!(!conflict("/a/{id}", "/b/{id}"));

        assert!(conflict("", "/"));
    }

    #[test]
    fn endpoints_with_different_methods_do_not_conflict() {
        let get = EndpointName::new("GET", "/a");
        assert!(!get.conflicts_with(&EndpointName::new("POST", "/a")));
        assert!(get.conflicts_with(&EndpointName::new("*", "/a")));
        assert_eq!(get.below("/"), get);
    }
}
