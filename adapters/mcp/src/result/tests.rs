//! Tests of results: every row of the tables of contents, states and errors.

mod contents;
mod long;
mod scripts;
mod states;

use interlingua_core::Record;
use interlingua_core::call::RunState;
use interlingua_core::model::{Body, Content, ContentType, MessageType};
use interlingua_core_testkit::{RunBuilder, TestRun};
use serde_json::{Value, json};

use super::*;

fn options(text: Value) -> Options {
    serde_json::from_value(text).expect("options")
}

fn context(options: &Options, revision: Revision) -> ResultContext<'_> {
    ResultContext { options, revision, resources: options.resources }
}

/// A record whose answer is one message with these contents.
fn answered(contents: Vec<Content>) -> Record {
    let mut run = RunBuilder::begin();
    let message = run.message(MessageType::Message);
    for content in contents {
        match &content.body {
            Body::Text(text) => {
                run.text(message, ContentType::Text, &[text]);
            }
            Body::Refusal(text) => {
                run.text(message, ContentType::Refusal, &[text]);
            }
            _ => run.value(message, content),
        }
    }
    run.end(message);
    run.finish(End::Completed)
}

/// The result of a run that has ended, for a client of the newest revision.
fn ended(record: &Record, options_text: Value) -> Result<Value, RpcError> {
    let options = options(options_text);
    call_result(&context(&options, Revision::July2026), &[TestRun::new(record).view()], Outcome::Ended)
}

/// The result of a run that waits.
fn waiting(record: &Record, options_text: Value) -> Value {
    let options = options(options_text);
    let run = TestRun::new(record).state(RunState::Waiting);
    let outcome = Outcome::of(run.view());
    assert_eq!(outcome, Outcome::Waiting { reason: None });
    call_result(&context(&options, Revision::July2026), &[run.view()], outcome).expect("a result")
}

/// The texts of the blocks; other blocks as JSON.
fn shown(result: &Value) -> Vec<String> {
    let blocks = result["content"].as_array().expect("a list");
    blocks.iter().map(|block| block["text"].as_str().map_or_else(|| block.to_string(), str::to_owned)).collect()
}

const NOTE: &str = "[session session-1]";

fn plain() -> Value {
    json!({ "session_note": false })
}
