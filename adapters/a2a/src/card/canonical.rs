//! The canonical form of JSON (RFC 8785), which card signatures cover: names in UTF-16 order, numbers as in ECMAScript,
//! no whitespace.
//!
//! Not here: which parts of a card are signed (`sign`).

use interlingua_core::Json;
use interlingua_core::tree::{Kind, Node};

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
    let nothing = || "{}".to_owned();
    Node::parse(value.text().as_bytes()).map_or_else(|_| nothing(), |node| write(&node, empty).unwrap_or_else(nothing))
}

/// `None`: the value is dropped.
fn write(node: &Node<'_>, empty: Empty) -> Option<String> {
    let keep_unless_empty = |text: String, is_empty: bool| (empty == Empty::Kept || !is_empty).then_some(text);
    match node.kind() {
        Kind::Null => keep_unless_empty("null".to_owned(), true),
        Kind::Bool => Some(node.text().to_owned()),
        Kind::Number => Some(number(node.text().parse().unwrap_or(0.0))),
        Kind::String => {
            let text = node.string().unwrap_or_default();
            keep_unless_empty(Json::from_serialize(&text).text().to_owned(), text.is_empty())
        }
        Kind::Array => {
            let written: Vec<String> =
                node.array().unwrap_or_default().filter_map(|value| write(&value, empty)).collect();
            keep_unless_empty(format!("[{}]", written.join(",")), written.is_empty())
        }
        Kind::Object => {
            let object = node.object().ok()?;
            let mut fields: Vec<(&str, String)> =
                object.iter().filter_map(|(name, value)| Some((name, write(&value, empty)?))).collect();
            fields.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
            let written: Vec<String> =
                fields.iter().map(|(name, value)| format!("{}:{value}", Json::from_serialize(name).text())).collect();
            keep_unless_empty(format!("{{{}}}", written.join(",")), written.is_empty())
        }
    }
}

/// Formats a number like ECMAScript: the shortest digits that round-trip, with an exponent only from 1e21 on and below
/// 1e-6.
fn number(value: f64) -> String {
    if value == 0.0 {
        // Negative zero is written as 0.
        return "0".to_owned();
    }

    let sign = if value < 0.0 { "-" } else { "" };
    // If two shortest spellings are equally close, ECMAScript takes the even one. serde_json does too, but Rust's
    // `Display` does not.
    let shortest = Json::from_serialize(&value.abs());

    let (mantissa, power) = shortest.text().split_once('e').unwrap_or((shortest.text(), "0"));
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{integer}{fraction}");
    let significant = all.trim_start_matches('0');
    let length = |text: &str| i32::try_from(text.len()).unwrap_or(i32::MAX);
    // Number of digits before the decimal point; negative if zeros follow it.
    let point = length(integer) + power.parse().unwrap_or(0) - (length(&all) - length(significant));

    let digits = significant.trim_end_matches('0');
    let (power, count) = (point - 1, length(digits));

    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
    let plain = if point > 21 || point <= -6 {
        let mantissa = if count == 1 { digits.to_owned() } else { format!("{}.{}", &digits[..1], &digits[1..]) };
        format!("{mantissa}e{}{}", if power < 0 { '-' } else { '+' }, power.abs())
    } else if point >= count {
        format!("{digits}{}", zeros(point - count))
    } else if point > 0 {
        let (integer, rest) = digits.split_at(usize::try_from(point).unwrap_or(0));
        format!("{integer}.{rest}")
    } else {
        format!("0.{}{digits}", zeros(-point))
    };

    format!("{sign}{plain}")
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
}
