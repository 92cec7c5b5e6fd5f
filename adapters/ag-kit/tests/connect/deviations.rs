//! Behaviour of real servers that the documentation does not describe.

use crate::support::{driven, stream, tale, turn};

fn story(lines: &[&str]) -> String {
    let (driven, losses) = driven(&mut *turn("{}"), stream(lines));
    let tale = tale(&driven.record, &losses);
    // Without the begin, which is always the same.
    tale.lines().skip(2).collect::<Vec<_>>().join("\n")
}

#[test]
fn deviations() {
    let word = r#"{"type":"text","content":"Hi"}"#;
    let start = |id: &str| format!(r#"{{"type":"tool-call-start","toolCallId":"{id}","toolCallName":"f"}}"#);
    let args = |id: &str, delta: &str| {
        let delta = serde_json::to_string(delta).expect("a text");
        format!(r#"{{"type":"tool-call-args","toolCallId":"{id}","delta":{delta}}}"#)
    };
    let end = |id: &str| format!(r#"{{"type":"tool-call-end","toolCallId":"{id}"}}"#);
    let result = |id: &str, result: &str| format!(r#"{{"type":"tool-result","toolCallId":"{id}","result":{result}}}"#);
    let cases: &[(&str, Vec<String>)] = &[
        ("a tab behind data:", vec![format!("data:\t{word}\n\ndata:\t[DONE]\n")]),
        (
            "empty fragments",
            vec![r#"{"type":"text","content":""}"#.into(), word.into(), r#"{"type":"text","content":""}"#.into()],
        ),
        ("an unknown event within a text", vec![word.into(), r#"{"type":"mood","x":1}"#.into(), word.into()]),
        (
            "an empty piece of arguments, then none",
            vec![start("c1"), args("c1", ""), end("c1"), result("c1", "\"ok\"")],
        ),
        ("a result that is no text", vec![start("c1"), end("c1"), result("c1", r#"{"a": 1}"#)]),
        ("a result twice", vec![start("c1"), end("c1"), result("c1", "\"ok\""), result("c1", "\"ok\"")]),
        ("two results", vec![start("c1"), end("c1"), result("c1", "\"ok\""), result("c1", "\"other\"")]),
        ("a result without a call", vec![result("c9", "\"ok\"")]),
        (
            "a call twice",
            vec![start("c1"), args("c1", "{}"), end("c1"), start("c1"), args("c1", "{}"), end("c1"), result("c1", "1")],
        ),
        ("a call that never ends", vec![start("c1"), args("c1", "{\"a\":")]),
        (
            "two calls in one, with the result of each",
            vec![
                start("c1"),
                args("c1", r#"{"n":"#),
                args("c1", r#"1}{"n":2"#),
                args("c1", "} "),
                end("c1"),
                result("c2", "\"two\""),
                result("c1", "\"one\""),
            ],
        ),
        (
            "two calls in one, with one result",
            vec![start("c1"), args("c1", r#"{"n":1}{"n":2}"#), end("c1"), result("c2", "\"two\"")],
        ),
        ("three calls in one, without a result", vec![start("c1"), args("c1", r#"{"n":1}{"n":2}{"n":3}"#), end("c1")]),
        (
            "two calls mixed",
            vec![start("c1"), args("c1", r#"{"n":1}"#), args("c1", r#"{"m""#), end("c1"), result("c1", "1")],
        ),
        (
            "ids and names missing",
            vec![r#"{"type":"tool-call-start"}"#.into(), args("", "{}"), end(""), result("", "1")],
        ),
        (
            "two interrupts",
            vec![
                r#"{"type":"interrupt","id":"i1","reason":null,"payload":"A?"}"#.into(),
                r#"{"type":"interrupt","id":"i2","reason":"x","payload":"B?"}"#.into(),
            ],
        ),
        ("an interrupt without an id", vec![r#"{"type":"interrupt","payload":null}"#.into()]),
    ];
    let mut found = String::new();
    for (name, lines) in cases {
        let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        lines.push("[DONE]");
        found.push_str(&format!("## {name}\n{}\n", story(&lines)));
    }
    insta::assert_snapshot!(found);
}
