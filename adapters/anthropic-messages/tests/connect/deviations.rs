//! Deviations of real servers from the protocol.
//!
//! The cases are in `deviations/*.txt`: a name, and the events of the answer as [`support::event`] reads them. The
//! snapshots show the outcome of each.
//!
//! [`support::event`]: crate::support::event

use interlingua_core_testkit::Answer;

use crate::support::{driven, events, lines};

/// The outcome of each case, under its name.
fn table(cases: &str) -> String {
    let mut rendered = String::new();
    for case in cases.split("## ").skip(1) {
        let mut of_case = case.lines().filter(|line| !line.is_empty());
        let name = of_case.next().expect("a case has a name");
        let short: Vec<&str> = of_case.collect();
        let outcome = lines(&driven("{}", Answer::stream(&events(&short))));
        rendered.push_str(&format!("## {name}\n{outcome}\n\n"));
    }
    rendered
}

#[test]
fn blocks() {
    insta::assert_snapshot!(table(include_str!("deviations/blocks.txt")));
}

#[test]
fn calls() {
    insta::assert_snapshot!(table(include_str!("deviations/calls.txt")));
}

#[test]
fn thinking() {
    insta::assert_snapshot!(table(include_str!("deviations/thinking.txt")));
}

#[test]
fn tools_of_the_server() {
    insta::assert_snapshot!(table(include_str!("deviations/tools_of_the_server.txt")));
}

#[test]
fn ends() {
    insta::assert_snapshot!(table(include_str!("deviations/ends.txt")));
}

#[test]
fn errors() {
    insta::assert_snapshot!(table(include_str!("deviations/errors.txt")));
}
