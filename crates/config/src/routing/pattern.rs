//! Paths of endpoints: their syntax, and a request that two of them would both match.
//!
//! A path is a list of segments. A segment is literal, or has one parameter with an optional literal prefix and suffix
//! (`{id}`, `{id}:cancel`), or is the rest of the path (`{*path}`), which has to be the last one. Not here: the
//! matching of requests, which [`matchit`] does.

use std::borrow::Cow;
use std::fmt::Write as _;

use interlingua_core::Method;
use interlingua_core::exchange::{Endpoint, Recognizes};
use percent_encoding::percent_decode_str;

/// The method and path of an endpoint of a protocol.
#[derive(Clone, Debug)]
pub struct EndpointPattern {
    /// The HTTP method.
    pub method: Method,
    /// The path below the mount point, with a leading slash. Empty for the mount point itself, with and without a
    /// trailing slash.
    pub path: String,
    /// Also serve the path at the root of the host if the mount is the first of its protocol.
    pub at_root: bool,
    /// Also serve the path in front of the mount point: the mount point is its end.
    pub before_mount: bool,
    /// Tells the requests of this protocol from those of another protocol at the same mount point. `None`: it cannot.
    pub recognizes: Option<Recognizes>,
    /// Endpoints of several protocols with the same word here answer the same.
    pub common: Option<&'static str>,
}

impl EndpointPattern {
    /// An endpoint below its mount only, whose requests cannot be told from those of another protocol.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), at_root: false, before_mount: false, recognizes: None, common: None }
    }
}

impl From<&Endpoint> for EndpointPattern {
    fn from(endpoint: &Endpoint) -> Self {
        Self {
            method: endpoint.method,
            path: endpoint.path.to_owned(),
            at_root: endpoint.at_root,
            before_mount: endpoint.before_mount,
            recognizes: endpoint.recognizes,
            common: endpoint.common,
        }
    }
}

/// A parsed path.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    segments: Vec<Segment>,
    /// The names of the parameters, in order.
    pub(super) names: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Param { prefix: String, suffix: String },
    Rest,
}

impl Pattern {
    /// Parses a path with a leading slash.
    ///
    /// # Errors
    /// The error, as the end of a sentence that begins with the path.
    pub(super) fn parse(path: &str) -> Result<Self, &'static str> {
        let Some(inner) = path.strip_prefix('/') else { return Err("does not begin with a slash") };
        let mut pattern = Self { segments: Vec::new(), names: Vec::new() };
        let mut segments = inner.split('/').peekable();

        while let Some(text) = segments.next() {
            let (segment, name) = parse_segment(text)?;
            if segment == Segment::Rest && segments.peek().is_some() {
                return Err("has a parameter for the rest of the path that is not at its end");
            }
            pattern.segments.push(segment);
            pattern.names.extend(name.map(str::to_owned));
        }
        Ok(pattern)
    }

    /// The path in the syntax of [`matchit`]. It is the same for paths that differ only in the names of parameters.
    pub(super) fn to_route(&self) -> String {
        let mut route = String::new();
        let mut params = 0..;
        for segment in &self.segments {
            // Writing into a string does not fail.
            let _ = match segment {
                Segment::Literal(text) => write!(route, "/{text}"),
                Segment::Param { prefix, suffix } => {
                    write!(route, "/{prefix}{{p{}}}{suffix}", params.next().unwrap_or(0))
                }
                Segment::Rest => write!(route, "/{{*p{}}}", params.next().unwrap_or(0)),
            };
        }
        route
    }

    /// A path that it matches, with the names of parameters in braces as their values. Literals have no braces, so no
    /// literal of another pattern takes it away.
    pub(super) fn sample(&self) -> String {
        let mut names = self.names.iter();
        let mut path = String::new();
        for segment in &self.segments {
            path.push('/');
            let (prefix, suffix) = match segment {
                Segment::Literal(text) => {
                    path.push_str(text);
                    continue;
                }
                Segment::Param { prefix, suffix } => (prefix.as_str(), suffix.as_str()),
                Segment::Rest => ("", ""),
            };
            let name = names.next().map_or("", String::as_str);
            let _ = write!(path, "{prefix}{{{name}}}{suffix}");
        }
        path
    }

    /// The number of segments. The rest of a path counts as one.
    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Paths that both patterns match, the shortest first. Only if both end with the rest of a path there are several,
    /// up to one with more than `longest` segments: the shorter ones may belong to other, more specific patterns.
    pub(super) fn unify(&self, other: &Self, longest: usize) -> impl Iterator<Item = String> {
        let ends_with_rest = |pattern: &Self| pattern.segments.last() == Some(&Segment::Rest);
        let is_open = ends_with_rest(self) && ends_with_rest(other);
        std::iter::successors(self.shortest_common(other), move |path| {
            let (_, last) = path.rsplit_once('/')?;
            (is_open && path.matches('/').count() <= longest).then(|| format!("{path}/{last}"))
        })
    }

    /// The shortest path that both patterns match, if there is one.
    fn shortest_common(&self, other: &Self) -> Option<String> {
        let (mut ones, mut others) = (self.segments.iter(), other.segments.iter());
        let (mut names, mut other_names) = (self.names.iter(), other.names.iter());
        let mut path = String::new();

        loop {
            let start = path.len();
            path.push('/');
            let (one, other) = match (ones.next(), others.next()) {
                (None, None) => {
                    path.truncate(start);
                    return Some(path);
                }
                (None, Some(_)) | (Some(_), None) => return None,
                (Some(one), Some(other)) => (one, other),
            };

            let name = one.is_variable().then(|| names.next()).flatten();
            let other_name = other.is_variable().then(|| other_names.next()).flatten();
            let name = name.or(other_name).map_or("", String::as_str);
            match (one, other) {
                (Segment::Rest, rest) => return append_rest(path, rest, others.as_slice(), name),
                (rest, Segment::Rest) => return append_rest(path, rest, ones.as_slice(), name),
                (one, other) => path.push_str(&unify_segments(one, other, name)?),
            }
        }
    }
}

impl Segment {
    const fn is_variable(&self) -> bool {
        !matches!(self, Self::Literal(_))
    }

    /// A value that it matches.
    fn sample(&self, name: &str) -> String {
        match self {
            Self::Literal(text) => text.clone(),
            Self::Param { prefix, suffix } => format!("{prefix}{{{name}}}{suffix}"),
            Self::Rest => format!("{{{name}}}"),
        }
    }
}

/// The segment, and the name of its parameter.
fn parse_segment(text: &str) -> Result<(Segment, Option<&str>), &'static str> {
    let Some((prefix, rest)) = text.split_once('{') else {
        let literal = Segment::Literal(text.to_owned());
        return if text.contains('}') {
            Err("has a closing brace without an opening one")
        } else {
            Ok((literal, None))
        };
    };
    let Some((name, suffix)) = rest.split_once('}') else { return Err("has an opening brace without a closing one") };
    if prefix.contains('}') || suffix.contains(['{', '}']) {
        return Err("has a segment with more than one parameter");
    }

    let (name, is_rest) = match name.strip_prefix('*') {
        Some(name) => (name, true),
        None => (name, false),
    };
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err("has a parameter whose name is not made of letters, digits and underscores");
    }
    if is_rest && !(prefix.is_empty() && suffix.is_empty()) {
        return Err("has a parameter for the rest of the path with a prefix or a suffix");
    }

    let segment = match is_rest {
        true => Segment::Rest,
        false => Segment::Param { prefix: prefix.to_owned(), suffix: suffix.to_owned() },
    };
    Ok((segment, Some(name)))
}

/// Appends a value that the rest of one pattern and these segments of another one match. The rest of a path is never
/// empty.
fn append_rest(mut path: String, first: &Segment, further: &[Segment], name: &str) -> Option<String> {
    let start = path.len();
    path.push_str(&first.sample(name));
    for segment in further {
        path.push('/');
        path.push_str(&segment.sample(name));
    }
    (path.len() > start).then_some(path)
}

/// A value that both segments match, neither of which is the rest of a path.
fn unify_segments(one: &Segment, other: &Segment, name: &str) -> Option<String> {
    match (one, other) {
        (Segment::Literal(one), Segment::Literal(other)) => (one == other).then(|| one.clone()),
        (Segment::Literal(text), Segment::Param { prefix, suffix })
        | (Segment::Param { prefix, suffix }, Segment::Literal(text)) => {
            // A parameter is at least one character.
            let matches =
                text.len() > prefix.len() + suffix.len() && text.starts_with(prefix) && text.ends_with(suffix);
            matches.then(|| text.clone())
        }
        (Segment::Param { prefix: p, suffix: s }, Segment::Param { prefix: other_p, suffix: other_s }) => {
            let prefix = longer(p, other_p, |long, short| long.starts_with(short))?;
            let suffix = longer(s, other_s, |long, short| long.ends_with(short))?;
            Some(format!("{prefix}{{{name}}}{suffix}"))
        }
        (Segment::Rest, _) | (_, Segment::Rest) => None,
    }
}

/// The longer text, if it contains the shorter one as `includes` says.
fn longer<'t>(one: &'t str, other: &'t str, includes: fn(&str, &str) -> bool) -> Option<&'t str> {
    let (long, short) = if one.len() >= other.len() { (one, other) } else { (other, one) };
    includes(long, short).then_some(long)
}

/// Decodes the path of a request, except for encoded `%`, `/` and `+`: an encoded slash separates no segments. Invalid
/// escapes stay as they are; invalid UTF-8 is replaced.
pub(super) fn decode_path(path: &str) -> Cow<'_, str> {
    let Some(first) = path.find('%') else { return Cow::Borrowed(path) };
    let (mut decoded, mut rest) = (path.as_bytes()[..first].to_vec(), &path.as_bytes()[first..]);

    while let [byte, tail @ ..] = rest {
        rest = match tail {
            [high, low, tail @ ..] if *byte == b'%' => match hex(*high, *low) {
                Some(character) if !b"%/+".contains(&character) => {
                    decoded.push(character);
                    tail
                }
                _ => {
                    decoded.push(*byte);
                    &rest[1..]
                }
            },
            _ => {
                decoded.push(*byte);
                tail
            }
        };
    }
    Cow::Owned(String::from_utf8_lossy(&decoded).into_owned())
}

fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

/// Decodes the value of a parameter completely, of which [`decode_path`] has left some characters encoded.
pub(super) fn decode_param(value: &str) -> String {
    percent_decode_str(value).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str) -> Pattern {
        Pattern::parse(path).unwrap_or_else(|error| panic!("{path} {error}"))
    }

    fn unified(one: &str, other: &str) -> Option<String> {
        let (one, other) = (parse(one), parse(other));
        assert_eq!(one.shortest_common(&other).is_some(), other.shortest_common(&one).is_some());
        one.unify(&other, 0).next()
    }

    #[test]
    fn where_the_rest_of_a_path_is_open_longer_paths_are_tried_too() {
        for (one, other, expected) in [
            ("/a/{*r}", "/{*s}", vec!["/a/{s}", "/a/{s}/{s}", "/a/{s}/{s}/{s}"]),
            ("/{*s}", "/a/{*r}", vec!["/a/{s}", "/a/{s}/{s}", "/a/{s}/{s}/{s}"]),
            ("/a/{*r}", "/{b}/c", vec!["/a/c"]),
            ("/a/{x}", "/{*r}", vec!["/a/{r}"]),
        ] {
            assert_eq!(parse(one).unify(&parse(other), 3).collect::<Vec<_>>(), expected, "{one} {other}");
        }
    }

    #[test]
    fn two_patterns_overlap_if_one_path_matches_both() {
        for (one, other, expected) in [
            ("/a/process", "/a/process", Some("/a/process")),
            ("/a/process", "/a/process/", None),
            ("/a/{id}", "/a/process", Some("/a/process")),
            ("/a/{id}", "/a/", None),
            ("/a/{id}:cancel", "/a/x:cancel", Some("/a/x:cancel")),
            ("/a/{id}:cancel", "/a/:cancel", None),
            ("/a/{id}:cancel", "/a/{x}", Some("/a/{id}:cancel")),
            ("/a/{id}:cancel", "/a/{id}:send", None),
            ("/a/{id}:cancel", "/a/t-{x}", Some("/a/t-{id}:cancel")),
            ("/a/{id}:cancel", "/a/x", None),
            ("/a/{*rest}", "/a/b/c", Some("/a/b/c")),
            ("/a/{*rest}", "/a/b/{id}", Some("/a/b/{rest}")),
            ("/a/{*rest}", "/a/", None),
            ("/a/{*rest}", "/a", None),
            ("/a/{*rest}", "/a/{*other}", Some("/a/{rest}")),
            ("/a/b", "/a/b/c", None),
            ("/a/{id}", "/b/{id}", None),
            ("/", "/", Some("/")),
        ] {
            assert_eq!(unified(one, other).as_deref(), expected, "{one} {other}");
        }
    }

    #[test]
    fn invalid_paths_are_refused() {
        for path in ["", "a", "/{", "/}", "/{}", "/{a}{b}", "/{a:.*}", "/{*a}/b", "/x{*a}", "/{{a}}", "/{a b}"] {
            assert!(Pattern::parse(path).is_err(), "{path}");
        }
    }

    #[test]
    fn paths_are_decoded_once_except_for_characters_with_a_meaning() {
        for (left, decoded) in [
            ("/a/b", "/a/b"),
            ("/%70rocess", "/process"),
            ("/a%2Fb%2fc", "/a%2Fb%2fc"),
            ("/a%2Bb+c", "/a%2Bb+c"),
            ("/a%25b%252F", "/a%25b%252F"),
            ("/%C3%BC%20x", "/ü x"),
            ("/%", "/%"),
            ("/%4", "/%4"),
            ("/%zz%41", "/%zzA"),
            ("/%%41", "/%A"),
            ("/%ff", "/\u{fffd}"),
            ("/ü%41", "/üA"),
        ] {
            assert_eq!(decode_path(left), decoded, "{left}");
        }
    }

    #[test]
    fn parameters_are_decoded_exactly_once() {
        for (left, decoded) in [
            ("a%2Fb", "a/b"),
            ("a%2fb", "a/b"),
            ("a%2Bb+c", "a+b+c"),
            ("a%25b", "a%b"),
            ("a%252Fb", "a%2Fb"),
            ("%", "%"),
            ("ü", "ü"),
        ] {
            assert_eq!(decode_param(&decode_path(left)), decoded, "{left}");
        }
    }
}
