//! Limits on a JSON text: the number of values and the nesting depth, counted before anything is allocated. An adapter
//! allocates per value, whatever the length of the text, so these two limits bound its memory.
//!
//! Not here: validating the JSON, which the parser does with better errors. Invalid JSON is counted by its brackets and
//! commas.

use crate::fault::{Fault, FaultKind};

/// Maximum number of values and levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Levels of nested arrays and objects: `[[]]` has two.
    pub depth: usize,
    /// Scalars, arrays and objects, without field names.
    pub values: usize,
}

impl Bounds {
    /// The default limits for clients and agents.
    pub const DEFAULT: Self = Self { depth: 128, values: 100_000 };
}

impl Default for Bounds {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The limit that a text exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExceededLimit {
    /// More levels than this limit.
    Depth(usize),
    /// More values than this limit.
    Values(usize),
}

impl ExceededLimit {
    /// A predicate for an error message whose subject is the checked text.
    #[must_use]
    pub fn message(self) -> String {
        match self {
            Self::Depth(levels) => format!("is nested deeper than {} levels", grouped(levels)),
            Self::Values(values) => format!("has more than {} values", grouped(values)),
        }
    }
}

/// Checks the body of a request.
///
/// # Errors
/// [`FaultKind::TooLarge`] for too many values, [`FaultKind::Invalid`] for too many levels.
pub fn check(body: &[u8], bounds: Bounds) -> Result<(), Fault> {
    exceeded(body, bounds).map_or(Ok(()), |exceeded| {
        let kind = match exceeded {
            ExceededLimit::Depth(_) => FaultKind::Invalid,
            ExceededLimit::Values(_) => FaultKind::TooLarge,
        };
        Err(Fault::new(kind, format!("the body {}", exceeded.message())))
    })
}

/// Checks data from an agent. `what` is the subject of the error message.
///
/// # Errors
/// [`FaultKind::UpstreamGarbage`].
pub fn check_upstream(what: &str, data: &[u8], bounds: Bounds) -> Result<(), Fault> {
    exceeded(data, bounds).map_or(Ok(()), |exceeded| {
        Err(Fault::new(FaultKind::UpstreamGarbage, format!("{what} {}", exceeded.message())))
    })
}

/// Finds the first exceeded limit. One pass that stops at the limit, without allocation or recursion.
#[must_use]
pub fn exceeded(text: &[u8], bounds: Bounds) -> Option<ExceededLimit> {
    // Fast path: a level takes two bytes and a value at least one, so most stream events are too short to check.
    if text.len() / 2 <= bounds.depth && text.len() <= bounds.values {
        return None;
    }

    // Counting all brackets and commas, also those in strings, costs a tenth of telling them apart. Few texts have more
    // of them than they may have levels and values.
    let (opening, commas) = count_marks(text);
    if opening <= bounds.depth && opening + commas < bounds.values {
        return None;
    }

    let mut depth = 0_usize;
    let mut values = 1_usize;
    let mut position = 0;
    while let Some(&byte) = text.get(position) {
        position += 1;
        match byte {
            b'"' => position = end_of_string(text, position),
            b',' => values += 1,
            b'[' | b'{' => {
                depth += 1;
                if depth > bounds.depth {
                    return Some(ExceededLimit::Depth(bounds.depth));
                }

                while text.get(position).is_some_and(u8::is_ascii_whitespace) {
                    position += 1;
                }
                // A container has one more value than commas, unless it is empty.
                values += usize::from(!matches!(text.get(position), Some(b']' | b'}')));
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }

        if values > bounds.values {
            return Some(ExceededLimit::Values(bounds.values));
        }
    }
    None
}

/// The numbers of opening brackets and of commas, inside strings and outside.
fn count_marks(text: &[u8]) -> (usize, usize) {
    let (mut opening, mut commas) = (0, 0);
    // Counters of one byte let the compiler count many bytes at once.
    for part in text.chunks(255) {
        // `[` and `{` differ in one bit.
        opening += usize::from(part.iter().map(|byte| u8::from(byte & !0x20 == b'[')).sum::<u8>());
        commas += usize::from(part.iter().map(|byte| u8::from(*byte == b',')).sum::<u8>());
    }
    (opening, commas)
}

/// Counts the elements in the rest of an array: `,2,[3,4]` has two. A leading comma belongs to the first element.
pub(super) fn elements(rest: &[u8]) -> usize {
    let trimmed = rest.trim_ascii();
    if trimmed.is_empty() {
        return 0;
    }

    let mut depth = 0_usize;
    let mut count = usize::from(trimmed[0] != b',');
    let mut position = 0;
    while let Some(&byte) = trimmed.get(position) {
        position += 1;
        match byte {
            b'"' => position = end_of_string(trimmed, position),
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => count += usize::from(depth == 0),
            _ => {}
        }
    }

    count
}

/// The position after the closing quote of a string whose content starts at `position`. Brackets and commas inside
/// strings do not count.
fn end_of_string(text: &[u8], mut position: usize) -> usize {
    while let Some(length) = text.get(position..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        if text[position + length] == b'"' {
            return position + length + 1;
        }
        position += length + 2;
    }
    text.len()
}

/// Formats a number with separators: `100,000`.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);

    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
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

    fn count(value: &Value) -> (usize, usize) {
        let inner: Vec<(usize, usize)> = match value {
            Value::Array(items) => items.iter().map(count).collect(),
            Value::Object(fields) => fields.values().map(count).collect(),
            _ => return (0, 1),
        };
        let depth = inner.iter().map(|(depth, _)| depth).max().copied().unwrap_or(0);
        (depth + 1, 1 + inner.iter().map(|(_, values)| values).sum::<usize>())
    }

    #[test]
    fn a_body_that_exceeds_a_limit_is_refused_with_a_message_that_names_it() {
        let many = format!("[{}0]", "0,".repeat(100_000));
        let fault = check(many.as_bytes(), Bounds::DEFAULT).expect_err("too many");
        assert_eq!(
            (fault.kind, fault.message.as_str()),
            (FaultKind::TooLarge, "the body has more than 100,000 values")
        );

        let deep = "[".repeat(300);
        let fault = check(deep.as_bytes(), Bounds::DEFAULT).expect_err("too deep");
        let expected = "the body is nested deeper than 128 levels";
        assert_eq!((fault.kind, fault.message.as_str()), (FaultKind::Invalid, expected));

        let fault = check_upstream("the agent's event", deep.as_bytes(), Bounds::DEFAULT).expect_err("too deep");
        let expected = "the agent's event is nested deeper than 128 levels";
        assert_eq!((fault.kind, fault.message.as_str()), (FaultKind::UpstreamGarbage, expected));
    }

    #[test]
    fn levels_are_counted_and_brackets_in_strings_are_ignored() {
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
            assert_eq!(exceeded(text.as_bytes(), fewer), Some(ExceededLimit::Values(values - 1)), "{text}");
            if depth > 0 {
                let flatter = Bounds { depth: depth - 1, ..bounds };
                assert_eq!(exceeded(text.as_bytes(), flatter), Some(ExceededLimit::Depth(depth - 1)), "{text}");
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
        fn counts_match_those_of_a_parser(value in json(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let text = text.expect("JSON");
            let (depth, values) = count(&value);

            prop_assert_eq!(exceeded(text.as_bytes(), Bounds { depth, values }), None);
            let fewer = Bounds { depth, values: values - 1 };
            prop_assert_eq!(exceeded(text.as_bytes(), fewer), Some(ExceededLimit::Values(values - 1)));
            if depth > 0 {
                let flatter = Bounds { depth: depth - 1, values };
                prop_assert_eq!(exceeded(text.as_bytes(), flatter), Some(ExceededLimit::Depth(depth - 1)));
            }
        }

        #[test]
        fn invalid_json_does_not_loop(text in prop::collection::vec(any::<u8>(), 0..200), depth in 0_usize..5) {
            let _ = exceeded(&text, Bounds { depth, values: 20 });
        }
    }
}
