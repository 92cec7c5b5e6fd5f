//! Each kind of content, and each type of message.

use interlingua_core::loss::Losses;
use interlingua_core::model::File;
use interlingua_core::{Json, RunId};
use interlingua_core_testkit::RUN;

use super::*;

fn block_of(body: Body) -> Vec<Value> {
    let result = ended(&answered(vec![Content::new(body)]), plain()).expect("a result");
    result["content"].as_array().expect("a list").clone()
}

fn file(url: Option<&str>, id: Option<&str>, name: Option<&str>, data: Option<&str>) -> Body {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Body::File(File { url: owned(url), id: owned(id), name: owned(name), data: owned(data) })
}

fn audio(data: &str, format: Option<&str>) -> Body {
    Body::Audio { data: Some(data.to_owned()), format: format.map(str::to_owned) }
}

fn image(url: &str) -> Body {
    Body::Image(Some(url.to_owned()))
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

#[test]
fn every_content_becomes_a_block() {
    let part = format!("interlingua://runs/{RUN}/parts/1");
    for (body, block) in [
        (Body::Text("hi".into()), text("hi")),
        (Body::Refusal("no".into()), text("no")),
        (image("data:image/png;base64,AQID"), json!({ "type": "image", "data": "AQID", "mimeType": "image/png" })),
        (
            image("https://x/a/b.png?c=d"),
            json!({ "type": "resource_link", "uri": "https://x/a/b.png?c=d", "name": "b.png", "mimeType": "image/png" }),
        ),
        (image("https://x"), json!({ "type": "resource_link", "uri": "https://x", "name": "image" })),
        (image("static/a.png"), text("[image static/a.png]")),
        (image("data:image/png;base64,no base64!"), text("[image]")),
        (audio("AQID", Some("wav")), json!({ "type": "audio", "data": "AQID", "mimeType": "audio/wav" })),
        (audio("AQID", Some("mp3")), json!({ "type": "audio", "data": "AQID", "mimeType": "audio/mpeg" })),
        (audio("AQID", Some("opus")), json!({ "type": "audio", "data": "AQID", "mimeType": "audio/opus" })),
        (audio("AQID", None), json!({ "type": "audio", "data": "AQID", "mimeType": "audio/wav" })),
        (
            audio("data:audio/ogg;base64,AQID", None),
            json!({ "type": "audio", "data": "AQID", "mimeType": "audio/ogg" }),
        ),
        (
            audio("https://x/a.mp3", Some("mp3")),
            json!({ "type": "resource_link", "uri": "https://x/a.mp3", "name": "a.mp3", "mimeType": "audio/mpeg" }),
        ),
        (
            Body::Video(Some("https://x/a.mp4".into())),
            json!({ "type": "resource_link", "uri": "https://x/a.mp4", "name": "a.mp4", "mimeType": "video/mp4" }),
        ),
        (
            Body::Video(Some("data:video/webm;base64,AQID".into())),
            json!({ "type": "resource", "resource": { "uri": part, "mimeType": "video/webm", "blob": "AQID" } }),
        ),
        (
            file(None, None, Some("a.pdf"), Some("AQID")),
            json!({ "type": "resource", "resource": {
                "uri": part, "mimeType": "application/pdf", "blob": "AQID", "_meta": { "interlingua/name": "a.pdf" },
            } }),
        ),
        (
            file(None, None, None, Some("data:text/csv;base64,aGk=")),
            json!({ "type": "resource", "resource": { "uri": part, "mimeType": "text/csv", "text": "hi" } }),
        ),
        (
            file(None, None, None, Some("data:application/ld+json;base64,e30=")),
            json!({ "type": "resource", "resource": { "uri": part, "mimeType": "application/ld+json", "text": "{}" } }),
        ),
        (
            file(None, None, None, Some("data:text/plain;base64,/w==")),
            json!({ "type": "resource", "resource": { "uri": part, "mimeType": "text/plain", "blob": "/w==" } }),
        ),
        (
            file(None, None, None, Some("AQID")),
            json!({ "type": "resource", "resource": {
                "uri": part, "mimeType": "application/octet-stream", "blob": "AQID",
            } }),
        ),
        (
            file(Some("https://x/y"), None, Some("a.txt"), None),
            json!({ "type": "resource_link", "uri": "https://x/y", "name": "a.txt", "mimeType": "text/plain" }),
        ),
        (file(None, Some("f-1"), Some("a.txt"), None), text("[file a.txt, id f-1]")),
        (file(None, Some("f-1"), None, None), text("[file, id f-1]")),
        (file(Some("gs://bucket/a"), None, Some("a"), None), text("[a gs://bucket/a]")),
        (Body::Data(Json::parse(r#"{"b":1,"a":[2.50]}"#).expect("JSON")), text(r#"{"b":1,"a":[2.50]}"#)),
        (Body::Other("hologram".into()), text(r#"{"type":"hologram"}"#)),
    ] {
        assert_eq!(block_of(body.clone()), [block], "{body:?}");
    }
    for nothing in [
        Body::Text(String::new()),
        Body::Image(None),
        Body::Video(None),
        file(None, None, Some("a"), None),
        Body::Data(Json::null()),
    ] {
        assert_eq!(block_of(nothing.clone()), Vec::<Value>::new(), "{nothing:?}");
    }
}

#[test]
fn texts_of_a_message_are_one_block_and_messages_are_several() {
    let mut run = RunBuilder::begin();
    let first = run.message(MessageType::Message);
    run.text(first, ContentType::Text, &["one ", "and "]);
    run.value(first, Content::new(image("data:image/png;base64,AQID")));
    run.text(first, ContentType::Text, &["two"]);
    run.end(first);
    run.say(MessageType::Message, &["three"]);
    let result = ended(&run.finish(End::Completed), json!({})).expect("a result");

    let image = r#"{"data":"AQID","mimeType":"image/png","type":"image"}"#;
    assert_eq!(shown(&result), ["one and two", image, "three", NOTE]);
    let note = result["content"].as_array().and_then(|blocks| blocks.last()).expect("a block");
    assert_eq!(note["annotations"], json!({ "audience": ["assistant"] }));
}

#[test]
fn messages_of_other_types_are_not_in_a_result() {
    let mut run = RunBuilder::begin();
    run.say(MessageType::Reasoning, &["hm"]);
    run.call(MessageType::PluginCall, "c1", "get_weather", &["{}"]);
    run.output(MessageType::PluginCallOutput, "c1", "18 degrees");
    run.say(MessageType::Error, &["oops"]);
    run.data(MessageType::McpListTools, "{}");
    run.data(MessageType::ProtocolEvent, r#"{"protocol":"x","event":{}}"#);
    run.data(MessageType::A2uiResponse, "{}");
    run.say(MessageType::Heartbeat, &["."]);
    let record = run.finish(End::Completed);
    assert_eq!(shown(&ended(&record, json!({})).expect("a result")), [NOTE]);

    let note = |options_text: Value, has_progress: bool| {
        let options = options(options_text);
        let mut losses = Losses::new();
        note_losses(&context(&options, Revision::July2026), &[TestRun::new(&record).view()], has_progress, &mut losses);
        losses
            .as_slice()
            .iter()
            .map(|loss| format!("{} {}", loss.kind.as_str(), loss.change.as_str()))
            .collect::<Vec<_>>()
    };
    let always = ["agent_call lost", "protocol_event lost", "data_out lost"];
    let changed = ["reasoning changed", "agent_call changed", "agent_output changed", "error_code changed"];
    assert_eq!(note(json!({}), true), [&changed[..], &always].concat());
    let lost = ["reasoning lost", "agent_call lost", "agent_output lost", "error_code lost"];
    assert_eq!(note(json!({}), false).first().map(String::as_str), lost.first().copied());
    let steps = json!({ "reasoning": "drop", "steps": true, "structured": true });
    assert_eq!(note(steps, true), [&["reasoning lost", "error_code changed"][..], &always].concat());
}

#[test]
fn messages_of_an_unknown_type_are_json() {
    let mut run = RunBuilder::begin();
    run.say(MessageType::Other("dance".into()), &["x"]);
    let result = ended(&run.finish(End::Completed), plain()).expect("a result");
    let block: Value = serde_json::from_str(&shown(&result)[0]).expect("JSON");
    assert_eq!((&block["type"], &block["content"][0]["text"]), (&json!("dance"), &json!("x")));
}

#[test]
fn a_refusal_marks_the_result() {
    let result = ended(&answered(vec![Content::new(Body::Refusal("I cannot".into()))]), plain()).expect("a result");
    assert_eq!((&result["_meta"]["interlingua/refusal"], &result["isError"]), (&json!(true), &json!(false)));
    let other = ended(&answered(vec![Content::text("I can")]), plain()).expect("a result");
    assert_eq!(other["_meta"].get("interlingua/refusal"), None);
}

#[test]
fn old_revisions_have_neither_links_nor_structure() {
    let record = answered(vec![Content::new(image("https://x/a.png")), Content::text("hi")]);
    let options = options(json!({ "structured": true }));
    let result = |revision| {
        call_result(&context(&options, revision), &[TestRun::new(&record).view()], Outcome::Ended).expect("a result")
    };
    let old = result(Revision::March2025);
    assert_eq!(shown(&old), ["[a.png](https://x/a.png)", "hi", NOTE]);
    assert_eq!((old.get("structuredContent"), old.get("resultType")), (None, None));
    for revision in [Revision::June2025, Revision::November2025] {
        let newer = result(revision);
        assert_eq!(newer["content"][0]["type"], "resource_link");
        assert_eq!((newer["structuredContent"]["text"].as_str(), newer.get("resultType")), (Some("hi"), None));
    }
    assert_eq!(result(Revision::July2026)["resultType"], "complete");
}

#[test]
fn structured_content_has_the_whole_answer() {
    let mut run = RunBuilder::begin();
    run.call(MessageType::PluginCall, "c1", "get_weather", &[r#"{"city":"Paris"}"#]);
    run.call(MessageType::McpCall, "c2", "broken", &["{"]);
    run.output(MessageType::PluginCallOutput, "c1", "18 degrees");
    run.output(MessageType::McpCallOutput, "c9", "lost");
    run.say(MessageType::Message, &["It is ", "18."]);
    let message = run.message(MessageType::Message);
    run.text(message, ContentType::Text, &["Details:"]);
    run.json(message, r#"{"t":18}"#);
    run.end(message);
    let record = run.finish(End::Completed);

    let result = ended(&record, json!({ "structured": true, "steps": true })).expect("a result");
    let expected = json!({
        "text": "It is 18.\n\nDetails:",
        "status": "completed",
        "session": "session-1",
        "run": RUN.to_string(),
        "data": [{ "t": 18 }],
        "steps": [
            { "name": "get_weather", "arguments": { "city": "Paris" }, "output": "18 degrees" },
            { "name": "broken", "arguments": "{" },
            { "name": "", "output": "lost" },
        ],
        "usage": { "input_tokens": 11, "output_tokens": 7, "total_tokens": 18 },
    });
    assert_eq!(result["structuredContent"], expected);
    assert_eq!(shown(&result), ["It is 18.", "Details:", r#"{"t":18}"#], "no note of the session");

    let plain = ended(&record, json!({ "structured": true })).expect("a result");
    assert_eq!(plain["structuredContent"].get("steps"), None);
    assert_eq!(ended(&record, json!({})).expect("a result").get("structuredContent"), None);
}

#[test]
fn contents_have_numbers_across_runs() {
    let one = answered(vec![Content::text("a"), Content::new(file(None, None, None, Some("AQID")))]);
    let two = answered(vec![Content::new(file(None, None, None, Some("AQID"))), Content::text("b")]);
    let options = options(plain());
    let runs = [TestRun::new(&one), TestRun::new(&two)];
    let views = runs.each_ref().map(TestRun::view);
    let result = call_result(&context(&options, Revision::July2026), &views, Outcome::Ended).expect("a result");
    let uris: Vec<&str> = result["content"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|block| block["resource"]["uri"].as_str())
        .collect();
    let uri = |run: RunId, number: usize| format!("interlingua://runs/{run}/parts/{number}");
    assert_eq!(uris, [uri(RUN, 2), uri(RUN, 3)]);
    assert_eq!(parts(views.iter().map(|view| view.run())).count(), 4);
}
