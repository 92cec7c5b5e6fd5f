//! The reported losses of an answer (docs/protocols/chat-completions.md#what-clients-do-not-get).

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

    let body = json!({ "model": "demo", "messages": [{ "role": "user", "content": "hi" }], "stream": stream });
    let mut sent = route(options).create(&body.to_string());
    let answer = if stream { sent.stream(&record) } else { sent.whole(&record) };
    assert_eq!(answer.status == 200, stream || end == End::Completed, "{}", answer.body);
    sent.exchange.losses().iter().map(|loss| format!("{:?} {loss}", loss.change)).collect()
}

#[test]
fn content_after_a_failure_is_lost() {
    let completed = reported("{}", true, End::Completed);
    assert_eq!(reported("{}", false, End::Completed), completed);

    let late = |kind: &str| format!("Lost {kind} (it comes with the end of an answer, and the answer failed)");
    let mut streamed = completed;
    streamed.push("Lost usage (an answer that failed has no usage)".to_owned());
    streamed.extend(["client_call", "annotation", "image_out"].map(late));
    assert_eq!(reported("{}", true, End::Failed), streamed);

    let lost = |kind: &str| format!("Lost {kind} (an answer that failed has its error only)");
    let whole = ["image_out", "text", "annotation", "client_call", "usage"].map(lost);
    assert_eq!(reported("{}", false, End::Failed), whole);
}

/// The reported losses of an answer with the contents of `build`.
fn losses(options: &str, more: &str, end: End, build: impl FnOnce(&mut RunBuilder)) -> Vec<String> {
    let mut run = RunBuilder::begin();
    build(&mut run);
    let record = run.finish(end);
    let body = format!(r#"{{"model":"demo","messages":[{{"role":"user","content":"hi"}}]{more}}}"#);
    let mut sent = route(options).create(&body);
    if more.contains("stream") {
        sent.stream(&record)
    } else {
        sent.whole(&record)
    };
    sent.exchange.losses().iter().map(|loss| format!("{:?} {loss}", loss.change)).collect()
}

#[test]
fn calls_of_the_agent_are_lost_with_the_reasoning_that_would_show_them() {
    let build = |run: &mut RunBuilder| {
        run.call(MessageType::PluginCall, "call_1", "look_up", &["{}"]);
        run.output(MessageType::PluginCallOutput, "call_1", "\"18 C\"");
    };
    let of = |options: &str| {
        let mut found = losses(options, "", End::Completed, build);
        found.retain(|loss| loss.contains("agent_"));
        found
    };
    let shown = ["agent_call", "agent_output"].map(|kind| format!("Changed {kind} (shown as a line of text)"));
    assert_eq!(of(r#"{"tool_items":"reasoning"}"#), shown);
    let hidden = ["agent_call", "agent_output"]
        .map(|kind| format!("Lost {kind} (hidden with the reasoning by the route's option reasoning)"));
    assert_eq!(of(r#"{"tool_items":"reasoning","reasoning":"hide"}"#), hidden);
}

#[test]
fn of_several_audios_all_but_the_last_are_lost() {
    let build = |run: &mut RunBuilder| {
        let message = run.message(MessageType::Message);
        for data in ["AAAA", "BBBB", "CCCC"] {
            run.value(message, Content::new(Body::Audio { data: Some(data.into()), format: Some("wav".into()) }));
        }
        run.end(message);
    };
    let of = |more: &str, end: End| {
        let mut found = losses("{}", &format!(r#","modalities":["text","audio"]{more}"#), end, build);
        found.retain(|loss| loss.contains("audio_out"));
        found
    };
    let replaced = "Lost audio_out (an answer has one audio: the last one) ×2";
    assert_eq!(of("", End::Completed), [replaced]);
    assert_eq!(of(r#","stream":true"#, End::Completed), [replaced]);
    let late = "Lost audio_out (it comes with the end of an answer, and the answer failed)";
    assert_eq!(of(r#","stream":true"#, End::Failed), [replaced, late]);
    assert_eq!(of("", End::Failed), ["Lost audio_out (an answer that failed has its error only) ×3"]);
}
