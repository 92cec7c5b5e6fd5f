//! The reported losses of an answer (docs/protocols/anthropic-messages.md#what-is-lost).

use interlingua_core::model::{Body, Content, ContentType, MessageType};
use interlingua_core::run::MessageEnd;
use interlingua_core::{End, Json};
use serde_json::json;

use crate::support::{RunBuilder, route};

/// The reported losses of an answer with one of each part that may arrive late.
fn reported(options: &str, stream: bool, end: End) -> Vec<String> {
    let mut run = RunBuilder::begin();
    let image = run.message(MessageType::Message);
    run.value(image, Content::new(Body::Image(Some("data:image/png;base64,AAAA".to_owned()))));
    run.end(image);
    let text = run.message(MessageType::Message);
    run.text(text, ContentType::Text, &["So far."]);
    let metadata = Json::parse(r#"{"annotations":[{"type":"url_citation","url":"https://a","title":"A"}]}"#);
    run.record.finish_message(text, MessageEnd { metadata, ..MessageEnd::new(End::Completed) });
    run.call(MessageType::FunctionCall, "call_1", "unknown", &["{}"]);
    let record = run.finish(end);

    let body = json!({ "model": "demo", "max_tokens": 100, "messages": [{ "role": "user", "content": "hi" }], "stream": stream });
    let mut sent = route(options).create(&body.to_string());
    let answer = if stream { sent.stream(&record) } else { sent.whole(&record) };
    assert_eq!(answer.status == 200, stream || end == End::Completed, "{}", answer.body);
    sent.exchange.losses().iter().map(|loss| format!("{:?} {loss}", loss.change)).collect()
}

#[test]
fn content_after_a_failure_is_lost() {
    let completed = reported("{}", true, End::Completed);
    assert_eq!(completed, ["Changed image_out (only its name and size are shown, in the text)"]);
    assert_eq!(reported("{}", false, End::Completed), completed);

    let streamed = [
        "Changed image_out (only its name and size are shown, in the text)",
        "Lost usage (an answer that failed has no usage)",
        "Changed error_code (sent as an error type of this protocol)",
        "Lost client_call (the agent failed before it was clear who runs the call)",
    ];
    assert_eq!(reported("{}", true, End::Failed), streamed);

    let lost = |kind: &str| format!("Lost {kind} (an answer that failed has its error only)");
    let mut whole = ["image_out", "text", "annotation", "client_call", "usage"].map(lost).to_vec();
    whole.push("Changed error_code (sent as an error type of this protocol)".to_owned());
    assert_eq!(reported("{}", false, End::Failed), whole);
}

#[test]
fn the_loss_of_an_image_matches_its_display() {
    let as_link = reported(r#"{"inline_images":"markdown"}"#, true, End::Completed);
    assert_eq!(as_link, ["Changed image_out (shown as a link in the text)"]);
}
