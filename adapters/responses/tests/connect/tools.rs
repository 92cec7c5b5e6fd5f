//! Tools and calls on their way to the server and back: names, ids, forms, and media in outputs.

use interlingua_core_testkit::Answer;
use serde_json::{Value, json};

use crate::support::{body_of, driven, turn_of, whole_stream};

const FULL: &str = r#"{"chain":"full"}"#;

fn call(id: &str, name: &str, metadata: &Value) -> Value {
    json!({ "type": "function_call", "role": "assistant", "metadata": metadata,
        "content": [{ "type": "data", "data": { "call_id": id, "name": name, "arguments": "{}" } }] })
}

fn output(id: &str, output: &str) -> Value {
    json!({ "type": "function_call_output", "role": "tool",
        "content": [{ "type": "data", "data": { "call_id": id, "output": output } }] })
}

fn sent(body: &Value, state: &str) -> Value {
    body_of(&mut *turn_of(FULL, &body.to_string(), state))
}

fn is_accepted(name: &Value) -> bool {
    let name = name.as_str().unwrap_or_default();
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

#[test]
fn names_and_ids_are_mapped_to_accepted_characters() {
    let long = "x".repeat(90);
    let function = |name: &str| json!({ "type": "function", "function": { "name": name } });
    let body = json!({
        "input": [
            { "role": "user", "content": [{ "type": "text", "text": "u" }] },
            call(&long, &long, &json!({})),
            call("fc:1/ä", "get.weather", &json!({})),
            output("fc:1/ä", "2"),
            output(&long, "1"),
        ],
        "tools": [function(&long), function("get.weather"), { "name": "flat", "input_schema": { "type": null } }],
        "tool_choice": { "type": "allowed_tools", "mode": "auto",
            "tools": [{ "type": "function", "name": "get.weather" }, { "type": "custom", "name": "flat" }] },
    });
    let sent = sent(&body, "null");
    let (tools, items) = (&sent["tools"], &sent["input"]);
    assert!((0..3).all(|place| is_accepted(&tools[place]["name"])), "{tools}");
    assert!((1..5).all(|place| is_accepted(&items[place]["call_id"])), "{items}");
    assert_eq!((&items[1]["name"], &items[2]["name"]), (&tools[0]["name"], &json!("get_weather")));
    assert_eq!((&items[3]["call_id"], &items[3]["output"]), (&items[2]["call_id"], &json!("2")));
    assert_eq!((&items[4]["call_id"], &items[4]["output"]), (&items[1]["call_id"], &json!("1")));
    assert_eq!(tools[2]["parameters"], json!({}));
    let allowed = json!([{ "type": "function", "name": "get_weather" }, { "type": "function", "name": "flat" }]);
    assert_eq!(sent["tool_choice"]["tools"], allowed);
}

#[test]
fn a_tool_is_called_by_the_name_that_the_client_gave_it() {
    let body = json!({ "input": [{ "role": "user", "content": [{ "type": "text", "text": "u" }] }],
        "tools": [{ "type": "function", "function": { "name": "get.weather" } }] });
    let item = r#"{"type":"function_call","id":"fc_1","call_id":"c","name":"get_weather","arguments":"{}"}"#;
    let events = [
        format!(r#"output_item.added {{"output_index":0,"item":{item}}}"#),
        format!(r#"output_item.done {{"output_index":0,"item":{item}}}"#),
    ];
    let mut turn = turn_of("{}", &body.to_string(), "null");
    let answer = whole_stream(&events.each_ref().map(String::as_str));
    let record = driven(&mut *turn, [Answer::stream(&answer)]).record;
    assert_eq!(record.run().pending()[0].name, "get.weather");
}

#[test]
fn an_odd_id_of_the_server_goes_back_to_it_alone() {
    let user = json!({ "role": "user", "content": [{ "type": "text", "text": "u" }] });
    let origin = json!({ "origin": "responses/travel" });
    for (metadata, wanted) in [(origin, "call.1:a"), (json!({ "origin": "responses/other" }), "call_1_a")] {
        let body = json!({ "input": [user, call("call.1:a", "f", &metadata), output("call.1:a", "1")] });
        let items = sent(&body, "null")["input"].clone();
        assert_eq!((&items[1]["call_id"], &items[2]["call_id"]), (&json!(wanted), &json!(wanted)));
    }
}

#[test]
fn media_in_outputs_are_parts_of_the_output() {
    let user = json!({ "role": "user", "content": [{ "type": "text", "text": "u" }] });
    let blocks = json!([
        { "type": "text", "text": "seen" },
        { "type": "image", "source": { "type": "base64", "media_type": "IMAGE/JPG", "data": "AA AA" } },
    ]);
    let body = json!({ "input": [user, call("c", "photo", &json!({})), output("c", &blocks.to_string())] });
    let image = json!({ "type": "input_image", "image_url": "data:image/jpeg;base64,AAAA" });
    let wanted = json!([{ "type": "input_text", "text": "seen" }, image]);
    assert_eq!(sent(&body, "null")["input"][2]["output"], wanted);
}
