//! Which requests a mounted protocol answers, as far as two of them can get in each other's way.

/// One endpoint of a protocol: a method, and a path relative to where the protocol is mounted.
///
/// Variable parts of the path stand in braces: `/runs/{id}`, `/tasks/{id}:cancel`. A variable
/// with a pattern, `{rest:.*}`, takes everything that follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointName {
    /// The method in capital letters; `*` for all.
    pub method: String,
    /// The path below the mount, beginning with a slash; empty for the mount itself.
    pub path: String,
}

impl EndpointName {
    /// Names an endpoint.
    pub fn new(method: impl Into<String>, path: impl Into<String>) -> Self {
        Self { method: method.into(), path: path.into() }
    }

    /// The endpoint below `mount`, a path without variables and without a slash at its end.
    pub(super) fn below(&self, mount: &str) -> Self {
        let path = format!("{}{}", mount.trim_end_matches('/'), self.path);
        Self { method: self.method.clone(), path }
    }

    /// Whether one request could be meant for both.
    pub(super) fn clashes_with(&self, other: &Self) -> bool {
        let methods = self.method == other.method || self.method == "*" || other.method == "*";
        methods && paths_meet(&self.path, &other.path)
    }
}

fn paths_meet(one: &str, other: &str) -> bool {
    let mut ones = one.trim_end_matches('/').split('/');
    let mut others = other.trim_end_matches('/').split('/');
    loop {
        match (ones.next(), others.next()) {
            (None, None) => return true,
            (Some(one), Some(other)) if takes_the_rest(one) || takes_the_rest(other) => return true,
            (Some(one), Some(other)) if segments_meet(one, other) => {}
            _ => return false,
        }
    }
}

fn takes_the_rest(segment: &str) -> bool {
    segment.starts_with('{') && segment.contains(':') && segment.ends_with('}')
}

/// Careful rather than exact: two segments with variables meet unless their fixed beginnings or
/// ends tell them apart.
fn segments_meet(one: &str, other: &str) -> bool {
    let fixed = |segment: &str| -> Option<(usize, usize)> {
        Some((segment.find('{')?, segment.len() - segment.rfind('}')? - 1))
    };
    let ends_agree = |one: (&str, &str), other: (&str, &str)| {
        (one.0.starts_with(other.0) || other.0.starts_with(one.0))
            && (one.1.ends_with(other.1) || other.1.ends_with(one.1))
    };
    let ends = |segment| match fixed(segment) {
        Some((before, after)) => (&segment[..before], &segment[segment.len() - after..]),
        None => (segment, segment),
    };
    match (fixed(one), fixed(other)) {
        (None, None) => one == other,
        (Some((before, after)), None) => {
            other.len() > before + after
                && other.starts_with(&one[..before])
                && other.ends_with(&one[one.len() - after..])
        }
        (None, Some(_)) => segments_meet(other, one),
        (Some(_), Some(_)) => ends_agree(ends(one), ends(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meet(one: &str, other: &str) -> bool {
        let (one, other) = (EndpointName::new("GET", one), EndpointName::new("GET", other));
        assert_eq!(one.clashes_with(&other), other.clashes_with(&one));
        one.clashes_with(&other)
    }

    #[test]
    fn endpoints_clash_when_one_request_fits_both() {
        assert!(meet("/a/process", "/a/process"));
        assert!(meet("/a/process", "/a/process/"));
        assert!(meet("/a/{id}", "/a/process"));
        assert!(meet("/a/{id}:cancel", "/a/x:cancel"));
        assert!(meet("/a/{rest:.*}", "/a/b/c"));
        assert!(!meet("/a/{id}:cancel", "/a/{id}:send"));
        assert!(!meet("/a/{id}:cancel", "/a/x"));
        assert!(!meet("/a/b", "/a/b/c"));
        assert!(!meet("/a/{id}", "/b/{id}"));
        assert!(meet("", "/"));
    }

    #[test]
    fn methods_tell_endpoints_apart() {
        let get = EndpointName::new("GET", "/a");
        assert!(!get.clashes_with(&EndpointName::new("POST", "/a")));
        assert!(get.clashes_with(&EndpointName::new("*", "/a")));
        assert_eq!(get.below("/"), get);
    }
}
