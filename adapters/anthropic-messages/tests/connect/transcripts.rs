//! Exchanges with real servers, recorded byte for byte, and what a run holds of them.

use std::path::Path;

use interlingua_core::connector::Refusal;
use interlingua_core_testkit::{RecordedExchange, recorded_exchanges};

use crate::support::{driven, lines, turn};

/// The runs of all exchanges in a folder.
fn table(folder: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts/anthropic-messages").join(folder);
    let exchanges = recorded_exchanges(&folder);
    exchanges.iter().map(|(name, exchange)| format!("# {name}\n{}\n\n", outcome(exchange))).collect()
}

fn outcome(exchange: &RecordedExchange) -> String {
    if exchange.status == 200 {
        return lines(&driven("{}", exchange.answer()));
    }
    let refusal = Refusal { status: exchange.status, body: &exchange.body, retry_after: None };
    let fault = turn("{}").map_refusal(&refusal);
    format!("{} {}: {}", exchange.status, fault.code(), fault.message)
}

#[test]
fn litellm_is_read_as_it_was_recorded() {
    insta::assert_snapshot!(table("litellm-1.104.9"));
}

#[test]
fn a_scripted_model_is_read_as_it_was_recorded() {
    insta::assert_snapshot!(table("scripted-model"));
}
