//! Exchanges with real servers, recorded byte for byte, and what a run holds of them.

use std::path::Path;

use interlingua_core_testkit::{Answer, RecordedExchange, recorded_exchanges};

use crate::support::{driven, refused, summary, turn_of};

/// A state in which a request continues a response that the server stores.
const GOES_ON: &str = r#"{"response":"resp_before"}"#;

/// The runs of all exchanges in a folder.
fn table(folder: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts/responses").join(folder);
    let mut table = String::new();
    for (name, exchange) in recorded_exchanges(&folder) {
        table.push_str(&format!("# {name}\n{}\n", outcome(&name, &exchange)));
    }
    table
}

fn outcome(name: &str, exchange: &RecordedExchange) -> String {
    let is_conversation = name == "conversation";
    let options = if is_conversation { r#"{"chain":"conversation"}"# } else { "{}" };
    let mut turn = turn_of(options, r#"{"input":[{"role":"user","content":"hi"}]}"#, GOES_ON);
    let answer = match exchange.status {
        200 | 201 => exchange.answer(),
        status if name == "background-cancel" => {
            return format!("{:?}\n", turn.cancel_refused(status, &exchange.body));
        }
        status => {
            // As the gateway does: asked, and refused.
            let _ = turn.next(0);
            Answer::Fault(refused(&*turn, status, &exchange.body))
        }
    };

    let mut answers = vec![answer];
    if is_conversation {
        // What follows in it is another exchange.
        answers.push(Answer::body(r#"{"object":"response","id":"resp_1","status":"completed","output":[]}"#));
    }
    if !matches!(exchange.status, 200 | 201) {
        let fault = match answers.remove(0) {
            Answer::Fault(fault) => fault,
            other => panic!("{other:?}"),
        };
        let said = format!("{} {:?} {:?}\n", fault.code(), fault.message, fault.retry_after);
        let failed = turn.on_failure(fault).is_err();
        return format!("{said}fails {failed}, needs the history {}\n", turn.needs_history());
    }
    let driven = driven(&mut *turn, answers);
    summary(&driven.record, &*turn)
}

#[test]
fn smg_is_read_as_it_was_recorded() {
    insta::assert_snapshot!(table("smg-1.13.0"));
}

#[test]
fn litellm_is_read_as_it_was_recorded() {
    insta::assert_snapshot!(table("litellm-1.104.9"));
}
