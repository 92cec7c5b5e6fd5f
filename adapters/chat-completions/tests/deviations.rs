//! Deviations of real servers from the protocol, row by row of
//! `docs/protocols/chat-completions.md#deviations-and-repairs`.
//!
//! The cases are in `deviations/*.txt`: a name, options of the upstream in some cases, and the chunks of the answer as
//! [`support::chunks`] reads them. The snapshots show the outcome of each.

mod support;

use support::tale;

/// The tale of each case, under its name.
fn table(cases: &str) -> String {
    let mut rendered = String::new();
    for case in cases.split("## ").skip(1) {
        let mut lines = case.lines().filter(|line| !line.is_empty()).peekable();
        let name = lines.next().expect("a case has a name");
        let options =
            lines.next_if(|line| line.starts_with("options: ")).map_or("{}", |line| &line["options: ".len()..]);
        let chunks: Vec<&str> = lines.collect();
        rendered.push_str(&format!("## {name}\n{}\n\n", tale(options, &chunks)));
    }
    rendered
}

#[test]
fn calls() {
    insta::assert_snapshot!(table(include_str!("deviations/calls.txt")));
}

#[test]
fn choices_and_content() {
    insta::assert_snapshot!(table(include_str!("deviations/choices_and_content.txt")));
}

#[test]
fn reasoning() {
    insta::assert_snapshot!(table(include_str!("deviations/reasoning.txt")));
}

#[test]
fn ends_and_usage() {
    insta::assert_snapshot!(table(include_str!("deviations/ends_and_usage.txt")));
}

#[test]
fn errors_inside_a_200() {
    insta::assert_snapshot!(table(include_str!("deviations/errors_inside_a_200.txt")));
}
