//! Tools and calls on their way to the server and back: names, ids, forms, and media in outputs.

mod support;

use interlingua_core::{ContentKind, Json};
use interlingua_core_testkit::{self as testkit, Answer};
use serde_json::{Value, json};
use support::{chunks, sent, stream, turn_of};

fn call(id: &str, name: &str, arguments: &str, metadata: &Value) -> Value {
    json!({ "type": "function_call", "role": "assistant", "metadata": metadata,
        "content": [{ "type": "data", "data": { "call_id": id, "name": name, "arguments": arguments } }] })
}

fn output(id: &str, output: &str) -> Value {
    json!({ "type": "function_call_output", "role": "tool",
        "content": [{ "type": "data", "data": { "call_id": id, "output": output } }] })
}

fn said(role: &str, text: &str) -> Value {
    json!({ "role": role, "content": [{ "type": "text", "text": text }] })
}

fn function(name: &str) -> Value {
    json!({ "type": "function", "function": { "name": name, "parameters": { "type": "object" } } })
}

fn is_accepted(name: &Value) -> bool {
    let name = name.as_str().unwrap_or_default();
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

#[test]
fn names_and_ids_are_mapped_to_accepted_characters() {
    let long = "x".repeat(90);
    let body = json!({
        "input": [
            said("user", "u"),
            call(&long, &long, "{}", &json!({})),
            call("fc:1/ä", "get weather", "{}", &json!({})),
            output(&long, "1"),
            output("fc:1/ä", "2"),
        ],
        "tools": [function(&long), function("get.weather"), function("get_weather"), function("größe")],
        "tool_choice": { "type": "function", "name": "get.weather" },
    });
    let sent = sent("{}", &body.to_string(), "null");
    let tools: Vec<&Value> =
        sent["tools"].as_array().expect("tools").iter().map(|tool| &tool["function"]["name"]).collect();
    let calls = sent["messages"][1]["tool_calls"].as_array().expect("calls");
    assert!(tools.iter().all(|name| is_accepted(name)), "{tools:?}");
    assert!(calls.iter().all(|call| is_accepted(&call["id"]) && is_accepted(&call["function"]["name"])), "{calls:?}");

    // A name that needs no change keeps it, and all stay distinct.
    assert_eq!((tools[1], tools[2]), (&json!("get_weather_2"), &json!("get_weather")));
    assert_eq!(calls[0]["function"]["name"], *tools[0]);
    assert_eq!(calls[1]["function"]["name"], "get_weather_3");
    assert_eq!(sent["tool_choice"]["function"]["name"], "get_weather_2");
    for (place, text) in ["1", "2"].into_iter().enumerate() {
        let output = &sent["messages"][2 + place];
        assert_eq!((&output["tool_call_id"], output["content"].as_str()), (&calls[place]["id"], Some(text)));
    }
}

#[test]
fn a_tool_is_called_by_the_name_that_the_client_gave_it() {
    let body = json!({ "input": [said("user", "hi")], "tools": [function("get.weather")] });
    let mut turn = turn_of("{}", &body.to_string(), "null");
    let lines = chunks(&[
        r#""tool_calls":[{"index":0,"id":"a","function":{"name":"get_","arguments":""}}]"#,
        r#""tool_calls":[{"index":0,"function":{"name":"weather","arguments":"{}"}}] => tool_calls"#,
        "[DONE]",
    ]);
    let answer = stream(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let record = testkit::drive(&mut *turn, [Answer::stream(&answer)]).record;
    assert_eq!(record.run().pending()[0].name, "get.weather");
}

#[test]
fn an_odd_id_of_the_server_goes_back_to_it_alone() {
    let lines = chunks(&[
        r#""tool_calls":[{"index":0,"id":"functions.f:0","function":{"name":"f","arguments":"{}"}}] => tool_calls"#,
        "[DONE]",
    ]);
    let answer = stream(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let record = testkit::drive(&mut *support::turn("{}"), [Answer::stream(&answer)]).record;
    let metadata = record.run().messages[0].metadata.clone().expect("its author");
    let metadata: Value = metadata.decode().expect("JSON");
    assert_eq!(metadata["origin"], "chat-completions/friday");

    for (origin, wanted) in [("chat-completions/friday", "functions.f:0"), ("chat-completions/other", "functions_f_0")]
    {
        let input = json!([
            said("user", "u"),
            call("functions.f:0", "f", "{}", &json!({ "origin": origin })),
            output("functions.f:0", "1")
        ]);
        let messages = sent("{}", &json!({ "input": input }).to_string(), "null")["messages"].clone();
        assert_eq!(messages[1]["tool_calls"][0]["id"], wanted);
        assert_eq!(messages[2]["tool_call_id"], wanted);
    }
}

#[test]
fn tools_of_other_forms_are_read_and_schemas_are_repaired() {
    let body = json!({ "input": [said("user", "u")], "tools": [
        { "type": "function", "name": "flat", "parameters": { "type": "object", "title": "p" } },
        { "name": "claude", "input_schema": { "type": "object", "title": "i" } },
        { "type": "custom", "name": "patch", "description": "d" },
        { "type": "function", "function": { "name": "any", "parameters": { "type": null, "title": "n" } } },
    ], "tool_choice": { "type": "custom", "name": "patch" } });
    let turn = turn_of("{}", &body.to_string(), "null");
    let kinds: Vec<(ContentKind, u32)> = turn.losses().iter().map(|loss| (loss.kind, loss.count)).collect();
    assert_eq!(kinds, [(ContentKind::ToolDeclaration, 1), (ContentKind::ToolDeclaration, 1)]);

    let sent = sent("{}", &body.to_string(), "null");
    let parameters = |place: usize| &sent["tools"][place]["function"]["parameters"];
    assert!(sent["tools"].as_array().expect("tools").iter().all(|tool| tool["type"] == "function"));
    assert_eq!((&parameters(0)["title"], &parameters(1)["title"]), (&json!("p"), &json!("i")));
    assert_eq!(parameters(2)["required"], json!(["input"]));
    assert_eq!(*parameters(3), json!({ "title": "n" }));
    assert_eq!(sent["tool_choice"], json!({ "type": "function", "function": { "name": "patch" } }));
}

#[test]
fn a_custom_tool_of_the_operator_is_called_and_answered_with_free_text() {
    let options = r#"{"tools":[{"type":"custom","custom":{"name":"look"}}]}"#;
    let metadata = json!({ "type": "custom_tool_call", "origin": "chat-completions/friday" });
    let lines = chunks(&[
        r#""tool_calls":[{"index":0,"id":"functions.look:0","type":"custom","custom":{"name":"look","input":"a\"b"}}]"#,
        "=> tool_calls",
        "[DONE]",
    ]);
    let answer = stream(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let record = support::driven(options, Answer::stream(&answer)).record;
    let pending = record.run().pending().remove(0);
    assert_eq!((pending.name.as_str(), pending.arguments.as_str()), ("look", r#"{"input":"a\"b"}"#));
    let found: Value = record.run().messages[0].metadata.as_ref().and_then(Json::decode).expect("metadata");
    assert_eq!(found, metadata);

    let input = json!([said("user", "u"), call("c", "look", r#"{"input":"a\"b"}"#, &metadata), output("c", "seen")]);
    let sent = sent(options, &json!({ "input": input }).to_string(), "null");
    let wanted = json!({ "id": "c", "type": "custom", "custom": { "name": "look", "input": "a\"b" } });
    assert_eq!(sent["messages"][1]["tool_calls"][0], wanted);
    assert_eq!(sent["messages"][2], json!({ "role": "tool", "content": "seen", "tool_call_id": "c" }));
}

#[test]
fn media_in_outputs_follow_the_outputs_in_a_message_of_the_user() {
    let blocks = json!([
        { "type": "text", "text": "seen" },
        { "type": "image", "source": { "type": "base64", "media_type": "image/jpg", "data": "AA\nAA" } },
    ]);
    let input = json!([
        said("user", "u"),
        call("a", "photo", "{}", &json!({})),
        call("b", "clock", "{}", &json!({})),
        output("a", &blocks.to_string()),
        output("b", "noon"),
    ]);
    let body = json!({ "input": input }).to_string();
    let messages = sent("{}", &body, "null")["messages"].clone();
    assert_eq!(messages[2], json!({ "role": "tool", "content": "seen", "tool_call_id": "a" }));
    assert_eq!(messages[3], json!({ "role": "tool", "content": "noon", "tool_call_id": "b" }));
    let image = json!({ "type": "image_url", "image_url": { "url": "data:image/jpeg;base64,AAAA" } });
    assert_eq!(
        messages[4],
        json!({ "role": "user", "content": [{ "type": "text", "text": "[output of photo]" }, image] })
    );
    assert_eq!(messages.as_array().map(Vec::len), Some(5));
    assert!(turn_of("{}", &body, "null").losses().iter().any(|loss| loss.kind == ContentKind::ClientOutput));

    // A server that takes no images gets a line of text instead.
    let messages = sent(r#"{"parts":["text"]}"#, &body, "null")["messages"].clone();
    assert!(messages[4].to_string().contains("[image]") && !messages.to_string().contains("AAAA"), "{messages}");
}

#[test]
fn pictures_are_written_as_servers_take_them() {
    for (url, wanted) in [
        ("data:image/jpg;base64,AAAA", "data:image/jpeg;base64,AAAA"),
        ("data:IMAGE/PNG;base64,AA\r\nA", "data:image/png;base64,AAA="),
        ("data:image/png;base64,-_8", "data:image/png;base64,+/8="),
        ("https://host/a.JPG", "https://host/a.JPG"),
    ] {
        let input = json!([{ "role": "user", "content": [{ "type": "image", "image_url": url }] }]);
        let messages = sent("{}", &json!({ "input": input }).to_string(), "null")["messages"].clone();
        assert_eq!(messages[0]["content"][0]["image_url"]["url"], wanted);
    }
}

#[test]
fn reasoning_goes_back_in_the_fields_in_which_it_came() {
    let metadata = json!({ "reasoning_opaque": "x==", "thinking_blocks": [{ "type": "thinking" }],
        "origin": "chat-completions/friday" });
    let thought = json!({ "type": "reasoning", "role": "assistant", "metadata": metadata,
        "content": [{ "type": "text", "text": "hm" }] });
    let input = json!([said("user", "u"), thought, said("assistant", "a"), said("user", "v")]);
    let state = r#"{"reasoning":"reasoning_text"}"#;
    let message = sent("{}", &json!({ "input": input }).to_string(), state)["messages"][1].clone();
    assert_eq!(message["reasoning_text"], "hm");
    assert_eq!(message["reasoning_opaque"], "x==");
    assert_eq!(message["thinking_blocks"], json!([{ "type": "thinking" }]));
}
