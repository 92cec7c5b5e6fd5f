//! Deviations of real servers from the protocol, row by row of the table in docs/protocols/ag-ui.md.
//!
//! The cases are in `deviations/*.txt`: a name, options of the upstream in some cases, and events as
//! [`crate::support::stream`] reads them. The snapshots show the outcome of each.

use interlingua_core_testkit::Answer;

use crate::support::{Case, stream};

/// The outcome of each case, under its name.
fn table(cases: &str) -> String {
    let mut rendered = String::new();
    for case in cases.split("## ").skip(1) {
        let mut lines = case.lines().filter(|line| !line.is_empty()).peekable();
        let name = lines.next().expect("a case has a name");
        let options =
            lines.next_if(|line| line.starts_with("options: ")).map_or("{}", |line| &line["options: ".len()..]);
        let events: Vec<&str> = lines.collect();
        let read = Case { options, ..Case::default() }.read(Answer::stream(&stream(&events)));
        rendered.push_str(&format!("## {name}\n{read}\n"));
    }
    rendered
}

#[test]
fn texts() {
    insta::assert_snapshot!(table(include_str!("deviations/texts.txt")));
}

#[test]
fn calls() {
    insta::assert_snapshot!(table(include_str!("deviations/calls.txt")));
}

#[test]
fn others() {
    insta::assert_snapshot!(table(include_str!("deviations/others.txt")));
}
