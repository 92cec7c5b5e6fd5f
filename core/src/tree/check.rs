//! The bounds on a JSON text: how many values it has and how deeply they are nested, counted before anything is made of
//! it. What an adapter builds costs memory per value, whatever the text's length; these two numbers are what bounds it.
//!
//! Not here: whether the text is JSON. The parser that reads it says that better; what is no JSON is counted all the
//! same, by its brackets and commas.

use crate::fault::{Fault, FaultKind};

/// How many values a text may have, and how many levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Lists and objects in one another: `[[]]` has two levels.
    pub depth: usize,
    /// Scalars, lists and objects; names of fields are none.
    pub values: usize,
}

impl Bounds {
    /// What is accepted of clients and agents where nobody says otherwise.
    pub const DEFAULT: Self = Self { depth: 128, values: 100_000 };
}

impl Default for Bounds {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What a text has too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceeded {
    /// More levels than this.
    Depth(usize),
    /// More values than this.
    Values(usize),
}

impl Exceeded {
    /// The end of a sentence that begins with what was checked.
    #[must_use]
    pub fn message(self) -> String {
        match self {
            Self::Depth(levels) => format!("is nested deeper than {} levels", grouped(levels)),
            Self::Values(values) => format!("has more than {} values", grouped(values)),
        }
    }
}

/// Checks a request's body.
///
/// # Errors
/// [`FaultKind::TooLarge`] for too many values, [`FaultKind::Invalid`] for too many levels.
pub fn check(body: &[u8], bounds: Bounds) -> Result<(), Fault> {
    exceeded(body, bounds).map_or(Ok(()), |exceeded| {
        let kind = match exceeded {
            Exceeded::Depth(_) => FaultKind::Invalid,
            Exceeded::Values(_) => FaultKind::TooLarge,
        };
        Err(Fault::new(kind, format!("the body {}", exceeded.message())))
    })
}

/// Checks what an agent sent, named as `what` says.
///
/// # Errors
/// [`FaultKind::UpstreamGarbage`]: it is not passed on.
pub fn check_upstream(what: &str, data: &[u8], bounds: Bounds) -> Result<(), Fault> {
    exceeded(data, bounds).map_or(Ok(()), |exceeded| {
        Err(Fault::new(FaultKind::UpstreamGarbage, format!("{what} {}", exceeded.message())))
    })
}

/// What a text has too much of. One pass, which ends where a bound is exceeded; no memory, no recursion.
#[must_use]
pub fn exceeded(text: &[u8], bounds: Bounds) -> Option<Exceeded> {
    // A level takes two bytes, a value at least one: nearly every event of a stream is too short to exceed anything.
    if text.len() / 2 <= bounds.depth && text.len() <= bounds.values {
        return None;
    }
    let mut depth = 0_usize;
    let mut values = 1_usize;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => at = past_string(text, at),
            b',' => values += 1,
            b'[' | b'{' => {
                depth += 1;
                if depth > bounds.depth {
                    return Some(Exceeded::Depth(bounds.depth));
                }
                while text.get(at).is_some_and(u8::is_ascii_whitespace) {
                    at += 1;
                }
                // One value more than there are commas in it, unless there is nothing in it.
                values += usize::from(!matches!(text.get(at), Some(b']' | b'}')));
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if values > bounds.values {
            return Some(Exceeded::Values(bounds.values));
        }
    }
    None
}

/// How many elements what is left of a list has: `,2,[3,4]` has two. A comma in front counts as one of theirs.
pub(super) fn elements(rest: &[u8]) -> usize {
    let trimmed = rest.trim_ascii();
    if trimmed.is_empty() {
        return 0;
    }
    let mut depth = 0_usize;
    let mut count = usize::from(trimmed[0] != b',');
    let mut at = 0;
    while let Some(&byte) = trimmed.get(at) {
        at += 1;
        match byte {
            b'"' => at = past_string(trimmed, at),
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => count += usize::from(depth == 0),
            _ => {}
        }
    }
    count
}

/// Where a string ends whose first letter is `at`: brackets and commas in it are letters.
fn past_string(text: &[u8], mut at: usize) -> usize {
    while let Some(length) = text.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        if text[at + length] == b'"' {
            return at + length + 1;
        }
        at += length + 2;
    }
    text.len()
}

/// `100,000`
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn counted(value: &Value) -> (usize, usize) {
        let inner: Vec<(usize, usize)> = match value {
            Value::Array(items) => items.iter().map(counted).collect(),
            Value::Object(fields) => fields.values().map(counted).collect(),
            _ => return (0, 1),
        };
        let depth = inner.iter().map(|(depth, _)| depth).max().copied().unwrap_or(0);
        (depth + 1, 1 + inner.iter().map(|(_, values)| values).sum::<usize>())
    }

    #[test]
    fn a_body_beyond_a_bound_is_refused_with_a_sentence_that_names_it() {
        let many = format!("[{}0]", "0,".repeat(100_000));
        let fault = check(many.as_bytes(), Bounds::DEFAULT).expect_err("too many");
        assert_eq!(
            (fault.kind, fault.message.as_str()),
            (FaultKind::TooLarge, "the body has more than 100,000 values")
        );
        let deep = "[".repeat(300);
        let fault = check(deep.as_bytes(), Bounds::DEFAULT).expect_err("too deep");
        let said = "the body is nested deeper than 128 levels";
        assert_eq!((fault.kind, fault.message.as_str()), (FaultKind::Invalid, said));
        let fault = check_upstream("the agent's event", deep.as_bytes(), Bounds::DEFAULT).expect_err("too deep");
        let said = "the agent's event is nested deeper than 128 levels";
        assert_eq!((fault.kind, fault.message.as_str()), (FaultKind::UpstreamGarbage, said));
    }

    #[test]
    fn levels_are_counted_and_brackets_in_strings_are_not() {
        for (text, depth, values) in [
            ("7", 0, 1),
            ("\"[[[,,,\"", 0, 1),
            ("[ ]", 1, 1),
            ("[[],{}]", 2, 3),
            (r#"{"a":{"b":"]\"}[","\\":1},"c":[[1]]}"#, 3, 7),
            ("[1,\n 2]", 1, 3),
        ] {
            let bounds = Bounds { depth, values };
            assert_eq!(exceeded(text.as_bytes(), bounds), None, "{text}");
            let fewer = Bounds { values: values - 1, ..bounds };
            assert_eq!(exceeded(text.as_bytes(), fewer), Some(Exceeded::Values(values - 1)), "{text}");
            if depth > 0 {
                let flatter = Bounds { depth: depth - 1, ..bounds };
                assert_eq!(exceeded(text.as_bytes(), flatter), Some(Exceeded::Depth(depth - 1)), "{text}");
            }
        }
        assert_eq!(grouped(0) + &grouped(999) + &grouped(1_000) + &grouped(12_345_678), "09991,00012,345,678");
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[\\[\\]{},\"\\\\a é]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[\\[,\"}a]{0,4}", inner, 0..5)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn values_and_levels_are_those_of_a_parser(value in json(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let text = text.expect("JSON");
            let (depth, values) = counted(&value);
            prop_assert_eq!(exceeded(text.as_bytes(), Bounds { depth, values }), None);
            let fewer = Bounds { depth, values: values - 1 };
            prop_assert_eq!(exceeded(text.as_bytes(), fewer), Some(Exceeded::Values(values - 1)));
            if depth > 0 {
                let flatter = Bounds { depth: depth - 1, values };
                prop_assert_eq!(exceeded(text.as_bytes(), flatter), Some(Exceeded::Depth(depth - 1)));
            }
        }

        #[test]
        fn whatever_is_no_json_ends(text in prop::collection::vec(any::<u8>(), 0..200), depth in 0_usize..5) {
            let _ = exceeded(&text, Bounds { depth, values: 20 });
        }
    }
}
