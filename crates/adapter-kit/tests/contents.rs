//! The contents of a turn, for every script.

use std::fmt::Write as _;

use interlingua_adapter_kit::contents;
use interlingua_core::loss::{Change, ContentKind, Losses};
use interlingua_core_testkit::{script, scripts};

#[test]
fn every_script_has_these_contents() {
    let mut table = String::new();
    for script in scripts().iter().filter(|script| !script.is_large()) {
        let record = script.record();
        let mut kinds = Vec::new();
        contents::each(record.run(), |found| {
            kinds.push(format!("{}{}", found.kind.as_str(), if found.is_inline() { " (inline)" } else { "" }));
        });
        let _ = writeln!(table, "{}: {}", script.name, kinds.join(", "));
    }
    insta::assert_snapshot!(table);
}

#[test]
fn a_loss_is_noted_for_each_content_that_has_one() {
    let record = script("reasoning_before").record();
    let mut losses = Losses::new();
    contents::note(record.run(), &mut losses, |found| match found.kind {
        ContentKind::Reasoning => Some((Change::Lost, "hidden")),
        ContentKind::Text => Some((Change::Changed, "in capitals")),
        _ => None,
    });
    let shown: Vec<String> = losses.as_slice().iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["reasoning (hidden)", "text (in capitals)"]);
}
