//! Exchanges with real servers, recorded byte for byte, and what a run holds of them.

mod support;

use std::path::Path;

use interlingua_core::connector::Refusal;
use interlingua_core_testkit::{self as testkit, RecordedExchange, recorded_exchanges};
use support::{driven, trimmed, turn};

/// The runs of all exchanges in a folder.
fn table(folder: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts/chat-completions").join(folder);
    let exchanges = recorded_exchanges(&folder);
    exchanges.iter().map(|(name, exchange)| format!("# {name}\n{}\n\n", outcome(exchange))).collect()
}

fn outcome(exchange: &RecordedExchange) -> String {
    if exchange.status != 200 {
        let refusal = Refusal { status: exchange.status, body: &exchange.body, retry_after: None };
        let fault = turn("{}").map_refusal(&refusal);
        return format!("{} {}: {}", exchange.status, fault.code(), fault.message);
    }

    let record = driven("{}", exchange.answer()).record;
    testkit::grammar(&record).expect("the record keeps the grammar");
    let metadata = record
        .run()
        .messages
        .iter()
        .enumerate()
        .filter_map(|(place, message)| Some(format!("\nmetadata {place} {}", message.metadata.as_ref()?.text())));
    trimmed(&record) + &metadata.collect::<String>()
}

#[test]
fn litellm_is_read_as_it_was_recorded() {
    insta::assert_snapshot!(table("litellm-1.104.9"));
}

#[test]
fn the_habits_of_model_servers_are_read_as_they_were_recorded() {
    insta::assert_snapshot!(table("scripted-model"));
}
