//! The canonical form of JSON (RFC 8785), which card signatures cover. The crate `serde_json_canonicalizer` writes it.
//!
//! Here: which values of a card are part of it. Not here: which parts of a card are signed (`sign`).

use interlingua_core::Json;
use interlingua_core::tree::{Kind, Node};
use serde_json::{Number, Value};

/// Handling of empty strings, lists and objects, and of `null`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Empty {
    /// Keep them, as the RFC does.
    Kept,
    /// Drop them, and containers that become empty: some verifiers cannot distinguish an empty value from an absent
    /// one, among them the Python and JavaScript SDKs.
    Dropped,
}

/// Returns the canonical form of a value.
pub(super) fn canonical(value: &Json, empty: Empty) -> String {
    let kept = Node::parse(value.text().as_bytes()).ok().and_then(|node| keep(&node, empty));
    kept.and_then(|value| serde_json_canonicalizer::to_string(&value).ok()).unwrap_or_else(|| "{}".to_owned())
}

/// Reads a value. `None` if it is dropped.
///
/// [`Node`] accepts more than `Value` does: any nesting, half surrogate pairs and numbers beyond the range of `f64`.
fn keep(node: &Node<'_>, empty: Empty) -> Option<Value> {
    let (value, is_empty) = match node.kind() {
        Kind::Null => (Value::Null, true),
        Kind::Bool => (Value::Bool(node.text() == "true"), false),
        Kind::Number => (node.text().parse().ok().and_then(Number::from_f64).map_or(Value::Null, Value::Number), false),
        Kind::String => {
            let text = node.string().unwrap_or_default();
            let is_empty = text.is_empty();
            (Value::String(text.into_owned()), is_empty)
        }
        Kind::Array => {
            let values: Vec<Value> = node.array().unwrap_or_default().filter_map(|value| keep(&value, empty)).collect();
            let is_empty = values.is_empty();
            (Value::Array(values), is_empty)
        }
        Kind::Object => {
            let object = node.object().ok()?;
            let fields: serde_json::Map<String, Value> =
                object.iter().filter_map(|(name, value)| Some((name.to_owned(), keep(&value, empty)?))).collect();
            let is_empty = fields.is_empty();
            (Value::Object(fields), is_empty)
        }
    };
    (empty == Empty::Kept || !is_empty).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, empty: Empty) -> String {
        canonical(&Json::parse(text).expect("JSON"), empty)
    }

    #[test]
    fn numbers_are_formatted_like_ecmascript() {
        for (value, wanted) in [
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("1e21", "1e+21"),
            ("100000000000000000000.0", "100000000000000000000"),
            ("1E1", "10"),
            ("1.0", "1"),
            ("42", "42"),
            ("-17", "-17"),
            ("0", "0"),
            ("-0.0", "0"),
            ("0.1", "0.1"),
            ("3.14159", "3.14159"),
            ("9007199254740991", "9007199254740991"),
            ("-123.456", "-123.456"),
            ("0.30000000000000004", "0.30000000000000004"),
            ("100", "100"),
            ("1.25e-7", "1.25e-7"),
            ("-1.5e300", "-1.5e+300"),
            ("0.00000123", "0.00000123"),
            ("123456789012345680000", "123456789012345680000"),
            // RFC 8785, appendix B.
            ("5e-324", "5e-324"),
            ("-1.7976931348623157e308", "-1.7976931348623157e+308"),
            ("295147905179352830000", "295147905179352830000"),
            ("9.999999999999997e22", "9.999999999999997e+22"),
            ("1e23", "1e+23"),
            ("999999999999999700000", "999999999999999700000"),
            ("9.999999999999997e-7", "9.999999999999997e-7"),
            ("333333333.33333329", "333333333.3333333"),
            ("333333333.3333334", "333333333.3333334"),
            ("-0.0000033333333333333333", "-0.0000033333333333333333"),
            ("1424953923781206.25", "1424953923781206.2"),
        ] {
            assert_eq!(of(&format!("{{\"n\":{value}}}"), Empty::Kept), format!("{{\"n\":{wanted}}}"), "{value}");
        }
    }

    #[test]
    fn names_are_sorted_in_utf_16_order() {
        for (value, wanted) in [
            (r#"{"zebra":1,"apple":2,"mango":3}"#, r#"{"apple":2,"mango":3,"zebra":1}"#),
            (r#"{"apple":1,"Apple":2}"#, r#"{"Apple":2,"apple":1}"#),
            (r#"{"10":1,"2":2,"1":3}"#, r#"{"1":3,"10":1,"2":2}"#),
            (r#"{"a":2,"":1}"#, r#"{"":1,"a":2}"#),
            ("{\"b\u{ff01}key\":2,\"b\u{1f600}key\":1}", "{\"b\u{1f600}key\":1,\"b\u{ff01}key\":2}"),
            ("{\"x\u{e000}end\":2,\"x\u{10000}end\":1}", "{\"x\u{10000}end\":1,\"x\u{e000}end\":2}"),
            // No Unicode normalization: two encodings of one letter are two names.
            ("{\"caf\u{e9}\":1,\"cafe\u{301}\":2}", "{\"cafe\u{301}\":2,\"caf\u{e9}\":1}"),
            (r#"{"deep":[{"x":[1,{"y":2,"b":1}]},{"x":[]}]}"#, r#"{"deep":[{"x":[1,{"b":1,"y":2}]},{"x":[]}]}"#),
        ] {
            assert_eq!(of(value, Empty::Kept), wanted);
        }
    }

    #[test]
    fn strings_are_escaped_only_where_required() {
        for (value, wanted) in [
            (r#""Caf\u00e9 \ud83d\ude00 \/""#, "\"Caf\u{e9} \u{1f600} /\""),
            (r#""a \"quoted\" \\ path\u000awith""#, r#""a \"quoted\" \\ path\nwith""#),
            (r#""a\u0001\u001fb\u0008\u0009\u000c\u000d""#, r#""a\u0001\u001fb\b\t\f\r""#),
            ("\"a\u{7f}b\"", "\"a\u{7f}b\""),
            ("\"\u{627}\u{644}\"", "\"\u{627}\u{644}\""),
        ] {
            assert_eq!(of(&format!("{{\"t\": {value} }}"), Empty::Kept), format!("{{\"t\":{wanted}}}"));
        }
    }

    #[test]
    fn empty_values_are_kept_or_dropped_with_their_containers() {
        let value = r#"{"a":"","b":[],"c":{},"d":null,"e":[{"x":[""]},1,false,0],"f":{"g":{"h":[]}},"i":" "}"#;
        let kept = r#"{"a":"","b":[],"c":{},"d":null,"e":[{"x":[""]},1,false,0],"f":{"g":{"h":[]}},"i":" "}"#;
        assert_eq!(of(value, Empty::Kept), kept);
        assert_eq!(of(value, Empty::Dropped), r#"{"e":[1,false,0],"i":" "}"#);
        assert_eq!(of(r#"{"a":{"b":[]}}"#, Empty::Dropped), "{}");
    }

    #[test]
    fn values_that_no_parser_agrees_on_do_not_empty_a_card() {
        assert_eq!(of(r#"{"b":1e400,"a":"\ud800"}"#, Empty::Kept), "{\"a\":\"\u{fffd}\",\"b\":null}");
        assert_eq!(of(r#"{"a":1,"b":2,"a":3}"#, Empty::Kept), r#"{"a":3,"b":2}"#);
        let deep = format!("{}1{}", "{\"a\":".repeat(128), "}".repeat(128));
        assert_eq!(of(&deep, Empty::Dropped), deep);
    }
}
