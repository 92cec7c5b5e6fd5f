//! The trace of a request, as its client names it: the two headers of W3C Trace Context, passed on with a span of the
//! gateway as the parent.
//!
//! Not here: the content of the gateway's spans. An invalid trace is dropped.

use std::ops::Range;

/// The longest `traceparent` of versions to come that is passed on, in bytes. That of version 00 has 55.
const MAX_PARENT_LEN: usize = 256;
/// The longest `tracestate`, in bytes: what everybody has to pass on. A longer one is dropped whole.
const MAX_STATE_LEN: usize = 512;

// Where the fields of a `traceparent` are, in every version.
const TRACE_ID: Range<usize> = 3..35;
const SPAN_ID: Range<usize> = 36..52;
const FLAGS: Range<usize> = 53..55;

/// A trace, and the vendors' state that is passed along with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// `traceparent`.
    pub(super) parent: String,
    /// `tracestate`. Says nothing without the other.
    pub(super) state: Option<String>,
}

impl Trace {
    /// Reads the headers of a request. None: it names no trace, or not one.
    #[must_use]
    pub fn read<'h>(headers: impl Iterator<Item = (&'h str, &'h str)> + Clone) -> Option<Self> {
        let named = |wanted: &'static str| {
            headers.clone().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim())
        };
        let mut parents = named("traceparent");
        let parent = parents.next().filter(|parent| is_parent(parent))?;
        // Which of two would be meant is not for us to say.
        if parents.next().is_some() {
            return None;
        }
        // One list may come in several lines.
        let state = named("tracestate").filter(|part| !part.is_empty()).collect::<Vec<_>>().join(",");
        let passes = !state.is_empty() && state.len() <= MAX_STATE_LEN && is_printable(&state);
        Some(Self { parent: parent.to_owned(), state: passes.then_some(state) })
    }

    /// A trace that begins with this span of ours.
    #[must_use]
    pub fn new(trace: u128, span: u64, sampled: bool) -> Self {
        Self { parent: format!("00-{trace:032x}-{span:016x}-{:02x}", u8::from(sampled)), state: None }
    }

    /// The ids of the trace and of the span that calls, and whether the caller records it.
    #[must_use]
    pub fn ids(&self) -> (u128, u64, bool) {
        let trace = u128::from_str_radix(self.trace_id(), 16).unwrap_or_default();
        let span = u64::from_str_radix(self.span_id(), 16).unwrap_or_default();
        let flags = u8::from_str_radix(&self.parent[FLAGS], 16).unwrap_or_default();
        (trace, span, flags & 1 == 1)
    }

    /// The same trace as an agent gets it that is called within this span of ours. In version 00, because that is what
    /// we speak, whatever the client does. Of the flags those that this version knows are kept: sampled, random.
    #[must_use]
    pub fn child(&self, span: u64) -> Self {
        const KNOWN_FLAGS: u8 = 0b11;
        let flags = u8::from_str_radix(&self.parent[FLAGS], 16).unwrap_or_default() & KNOWN_FLAGS;
        let parent = format!("00-{}-{span:016x}-{flags:02x}", self.trace_id());
        Self { parent, state: self.state.clone() }
    }

    /// The id of the trace: 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> &str {
        &self.parent[TRACE_ID]
    }

    /// The id of the span that calls: 16 hexadecimal digits.
    #[must_use]
    pub fn span_id(&self) -> &str {
        &self.parent[SPAN_ID]
    }
}

/// Whether it is `version-trace-parent-flags`; versions to come may add to that, behind one more dash.
fn is_parent(text: &str) -> bool {
    const FIELDS: [usize; 4] = [2, 32, 16, 2];
    let mut fields = text.splitn(FIELDS.len() + 1, '-');
    let known = FIELDS.iter().all(|length| {
        let is_hex = |field: &str| field.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        fields.next().is_some_and(|field| field.len() == *length && is_hex(field))
    });
    let more = fields.next();
    let mut ids = text.split('-').skip(1).take(2);
    known
        && !text.starts_with("ff")
        && !(text.starts_with("00") && more.is_some())
        && ids.all(|id| id.bytes().any(|byte| byte != b'0'))
        && text.len() <= MAX_PARENT_LEN
        && is_printable(text)
}

fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn read(headers: &[(&str, &str)]) -> Option<(String, Option<String>)> {
        Trace::read(headers.iter().copied()).map(|trace| (trace.parent, trace.state))
    }

    #[test]
    fn both_headers_are_passed_on_unchanged() {
        assert_eq!(read(&[("traceparent", PARENT)]), Some((PARENT.to_owned(), None)));
        assert_eq!(
            read(&[("TraceParent", PARENT), ("tracestate", "a=1,b=x y"), ("x", "y"), ("tracestate", "c=3")]),
            Some((PARENT.to_owned(), Some("a=1,b=x y,c=3".to_owned())))
        );
    }

    #[test]
    fn a_child_has_the_trace_and_the_state_of_its_parent_and_a_span_of_its_own() {
        let span = 0x0001_0203_fcfd_feff;
        for (parent, child) in [
            (PARENT.to_owned(), "00-4bf92f3577b34da6a3ce929d0e0e4736-00010203fcfdfeff-01"),
            (
                format!("{}fe-more", PARENT.replacen("00", "cc", 1).trim_end_matches("01")),
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00010203fcfdfeff-02",
            ),
        ] {
            let trace = Trace::read([("traceparent", parent.as_str()), ("tracestate", "a=1")].into_iter());
            let trace = trace.expect("a trace");
            let found = trace.child(span);
            assert_eq!((found.parent.as_str(), found.state.as_deref()), (child, Some("a=1")));
            assert_eq!((found.trace_id(), found.span_id()), (trace.trace_id(), "00010203fcfdfeff"));
            assert_eq!(trace.span_id(), "00f067aa0ba902b7");
            assert_eq!(found.ids(), (trace.ids().0, span, child.ends_with('1')));
            assert_eq!(Trace::new(trace.ids().0, span, child.ends_with('1')).ids(), found.ids());
            let headers = [("traceparent", found.parent.as_str())].into_iter();
            assert_eq!(Trace::read(headers).map(|read| read.parent), Some(child.to_owned()), "it is one itself");
        }
    }

    #[test]
    fn an_invalid_trace_is_dropped_with_its_state() {
        let good = |parent: &str| read(&[("traceparent", parent), ("tracestate", "a=1")]).is_some();
        assert!(good(PARENT));
        assert!(good(&PARENT.replacen("00", "cc", 1)), "a version to come");
        assert!(good(&format!("{}-what-comes", PARENT.replacen("00", "01", 1))), "which may say more");
        for bad in [
            "",
            "00",
            "nonsense",
            &PARENT[..54],
            &PARENT.to_uppercase(),
            &PARENT.replacen("00", "ff", 1),
            &PARENT.replace("4bf9", "4bfg"),
            &PARENT.replace('-', "_"),
            &PARENT.replace("00f067aa0ba902b7", "0000000000000000"),
            &PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &format!("{PARENT}-more"),
            &format!("{PARENT}00"),
            &format!("{}x", PARENT.replacen("00", "01", 1)),
            &format!("{}-{}", PARENT.replacen("00", "01", 1), "x".repeat(300)),
        ] {
            assert!(!good(bad), "{bad}");
        }
        assert_eq!(read(&[("tracestate", "a=1")]), None);
        assert_eq!(read(&[("traceparent", PARENT), ("traceparent", PARENT)]), None, "two of them");
    }

    #[test]
    fn a_state_that_is_too_long_or_not_printable_is_dropped_alone() {
        let state = |state: &str| read(&[("traceparent", PARENT), ("tracestate", state)]).and_then(|(_, state)| state);
        assert_eq!(state(&"a".repeat(512)), Some("a".repeat(512)));
        for bad in ["", "  ", &"a".repeat(513), "a=\u{7f}", "a=ä", "a=\t1"] {
            assert_eq!(state(bad), None, "{bad:?}");
            assert!(read(&[("traceparent", PARENT), ("tracestate", bad)]).is_some());
        }
    }
}
