//! The request for a canonical request.

use interlingua_core::answer::CheckedDecision;
use interlingua_core::capability::{HistoryNeed, Media, ToolOutputs};
use interlingua_core::pending::{Decision, Pending};
use interlingua_core::{Change, ContentKind, Json};
use interlingua_core_testkit::{self as testkit, Answer};
use serde_json::{Value, json};

use crate::support::{connector, events, http, sent, sent_with_losses, turn_of};

fn said(role: &str, text: &str) -> Value {
    json!({ "role": role, "content": [{ "type": "text", "text": text }] })
}

fn call(kind: &str, id: &str, name: &str, arguments: &str) -> Value {
    json!({ "type": kind, "role": "assistant", "content": [{ "type": "data",
        "data": { "call_id": id, "name": name, "arguments": arguments } }] })
}

fn output(kind: &str, id: &str, output: &str) -> Value {
    json!({ "type": kind, "role": "tool", "content": [{ "type": "data", "data": { "call_id": id, "output": output } }] })
}

fn thought(text: &str, metadata: &Value) -> Value {
    json!({ "type": "reasoning", "role": "assistant", "metadata": metadata,
        "content": [{ "type": "text", "text": text }] })
}

fn body(options: &str, input: &Value) -> Value {
    sent(options, &json!({ "input": input }).to_string(), "null")
}

fn messages(options: &str, input: &Value) -> Value {
    body(options, input)["messages"].clone()
}

/// The losses of a request, in short.
fn losses(options: &str, request: &Value) -> Vec<(ContentKind, Change)> {
    sent_with_losses(options, request).1.iter().map(|loss| (loss.kind, loss.change)).collect()
}

#[test]
fn every_field_has_its_place() {
    let body = json!({
        "input": [said("system", "be kind"), said("user", "hi")],
        "model": "named-by-client", "session_id": "s", "user_id": "u",
        "temperature": 0.5, "top_p": 0.9, "max_tokens": 50, "stop": ["a", " "],
        "tools": [
            { "type": "function", "function": { "name": "f", "description": "does f", "strict": true,
                "parameters": { "properties": {} } } },
            { "type": "function", "function": { "name": "g" } }
        ],
        "tool_choice": { "type": "function", "name": "f" },
        "parallel_tool_calls": false,
        "text": { "format": { "type": "json_schema", "name": "n", "schema": { "type": "object" }, "strict": true } },
        "reasoning": { "effort": "minimal" },
        "top_k": 4, "service_tier": "auto", "store": true
    });
    let options = r#"{"model":"m","instructions":"You are Claude.","user_field":"metadata","cache":true,
        "forward_extras":["service_tier"],"parameters":{"temperature":0,"inference_geo":"eu"},
        "tools":[{"type":"web_search_20260101","name":"web_search"},{"name":"f","input_schema":{"type":"object"}}]}"#;
    insta::assert_json_snapshot!(sent(options, &body.to_string(), "null"));
    assert_eq!(losses(options, &body), []);
}

#[test]
fn a_plain_request_has_only_required_fields() {
    let body = json!({ "input": [said("user", "hi")], "model": "m", "session_id": "s", "tools": [], "tool_choice": "auto",
        "metadata": {}, "parallel_tool_calls": null });
    assert_eq!(
        sent("{}", &body.to_string(), "null"),
        json!({ "model": "m", "max_tokens": 8192, "stream": true,
            "messages": [{ "role": "user", "content": [{ "type": "text", "text": "hi" }] }] })
    );
    let nothing = sent("{}", r#"{"input":[]}"#, "null");
    assert_eq!(nothing["messages"], json!([{ "role": "user", "content": [{ "type": "text", "text": "…" }] }]));
}

#[test]
fn headers_name_the_version() {
    let headers = |options: &str| {
        let request = http(&mut *turn_of(options, r#"{"input":[],"model":"m"}"#, "null"));
        assert_eq!(request.url, "http://agent/anthropic/v1/messages");
        let named =
            |name: &str| request.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        let body: Value = serde_json::from_slice(&request.body).expect("JSON");
        (named("anthropic-version"), named("anthropic-beta"), body["model"].clone(), body["anthropic_version"].clone())
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(headers("{}"), (some("2023-06-01"), None, json!("m"), Value::Null));
    assert_eq!(
        headers(r#"{"version":"2026-10-21","beta":["a","b"]}"#),
        (some("2026-10-21"), some("a,b"), json!("m"), Value::Null)
    );
    assert_eq!(
        headers(r#"{"body_version":"vertex-2023-10-16"}"#),
        (None, None, Value::Null, json!("vertex-2023-10-16"))
    );
}

#[test]
fn a_conversation_becomes_messages_that_servers_take() {
    let input = json!([
        said("assistant", "Welcome."),
        said("user", "weather?"),
        thought("two cities", &json!({ "signature": "s1", "origin": "anthropic-messages/claude" })),
        said("assistant", "let me look"),
        call("function_call", "a", "weather", "{\"city\":\"Paris\"}"),
        call("function_call", "b", "weather", "Rome"),
        call("function_call", "lost", "weather", "{}"),
        said("user", "hurry"),
        output("function_call_output", "b", "21 C"),
        output("function_call_output", "a", "18 C"),
        output("function_call_output", "unknown", "?"),
        said("assistant", "18 and 21"),
        said("system", "be brief"),
        said("user", "and?"),
        said("user", "now"),
        call("plugin_call", "p", "search", ""),
        output("plugin_call_output", "p", "found"),
        said("assistant", "here  \n")
    ]);
    insta::assert_json_snapshot!(body("{}", &input));
    insta::assert_json_snapshot!("inline", messages(r#"{"system_messages":"inline"}"#, &input));
    insta::assert_json_snapshot!("user", messages(r#"{"system_messages":"user"}"#, &input));
}

#[test]
fn ids_and_names_have_allowed_characters_and_stay_unique() {
    let input = json!([
        call("function_call", "fc:1", "get.weather", "{}"),
        output("function_call_output", "fc:1", "1"),
        said("user", "again"),
        call("function_call", "fc:1", "get weather", "{}"),
        output("function_call_output", "fc:1", "2")
    ]);
    let messages = messages("{}", &input);
    let of = |place: usize| &messages[place]["content"][0];
    assert_eq!((&of(1)["id"], &of(1)["name"]), (&json!("fc_1"), &json!("get_weather")));
    assert_eq!((&of(2)["tool_use_id"], &of(2)["content"]), (&json!("fc_1"), &json!("1")));
    assert_eq!((&of(3)["id"], &of(3)["name"]), (&json!("fc_1_2"), &json!("get_weather_2")));
    assert_eq!((&of(4)["tool_use_id"], &of(4)["content"]), (&json!("fc_1_2"), &json!("2")));
}

#[test]
fn a_tool_is_called_by_the_name_that_the_client_gave_it() {
    let body = json!({ "input": [said("user", "hi")],
        "tools": [{ "type": "function", "function": { "name": "get.weather" } }] });
    let mut turn = turn_of("{}", &body.to_string(), "null");
    let answer = events(&["start", "0 tool a get_weather", "0 .", "end tool_use", "stop"]);
    let record = testkit::drive(&mut *turn, [Answer::stream(&answer)]).record;
    assert_eq!(record.run().pending()[0].name, "get.weather");
}

#[test]
fn thoughts_go_back_to_their_author_alone() {
    let own = json!({ "signature": "s", "origin": "anthropic-messages/claude" });
    let other = json!({ "signature": "s", "origin": "anthropic-messages/other" });
    let redacted = json!({ "redacted": "x", "origin": "anthropic-messages/claude" });
    let first = |options: &str, metadata: &Value| {
        let input = json!([said("user", "u"), thought("hm", metadata), said("assistant", "a"), said("user", "u")]);
        messages(options, &input)[1]["content"][0].clone()
    };
    let signed = json!({ "type": "thinking", "thinking": "hm", "signature": "s" });
    assert_eq!(first("{}", &own), signed);
    assert_eq!(first("{}", &json!({ "signature": "s" })), signed, "the client brought it itself");
    assert_eq!(first("{}", &redacted), json!({ "type": "redacted_thinking", "data": "x" }));
    assert_eq!(first("{}", &other)["type"], "text");
    assert_eq!(first("{}", &Value::Null)["type"], "text");
    let unsigned = json!({ "type": "thinking", "thinking": "hm", "signature": "" });
    assert_eq!(first(r#"{"unsigned_thinking":"send"}"#, &Value::Null), unsigned);

    let request = json!({ "input": [thought("hm", &other), said("assistant", "a")] });
    assert_eq!(
        losses("{}", &request)[..2],
        [(ContentKind::Opaque, Change::Lost), (ContentKind::History, Change::Lost)]
    );
    let alone = messages("{}", &json!([said("user", "u"), thought("hm", &own)]));
    assert_eq!(alone.as_array().map(Vec::len), Some(1), "no message of nothing but thoughts");
}

#[test]
fn blocks_of_server_tools_are_sent_back_unchanged() {
    let answer = events(&[
        "start",
        r#"0 {"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}"#,
        r#"0 > {"query":"rain"}"#,
        "0 .",
        r#"1 {"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}"#,
        "1 .",
        r#"2 {"type":"container_upload","file_id":"file_1"}"#,
        "2 .",
        "3 text",
        "3 + It rains.",
        "3 .",
        "end end_turn",
        "stop",
    ]);
    let mut turn = turn_of("{}", r#"{"input":[{"role":"user","content":"hi"}]}"#, "null");
    let run = testkit::drive(&mut *turn, [Answer::stream(&answer)]).record;
    let history: Vec<Value> =
        run.run().messages.iter().map(|message| serde_json::to_value(message.to_model()).expect("JSON")).collect();
    let input = json!([[said("user", "hi")], history, [said("user", "and now?")]]);
    let input: Vec<Value> =
        input.as_array().into_iter().flatten().flat_map(|part| part.as_array().cloned()).flatten().collect();
    let input = Value::from(input);

    let sent = messages("{}", &input);
    assert_eq!(
        sent[1]["content"],
        json!([
            { "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": { "query": "rain" } },
            { "type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [] },
            { "type": "container_upload", "file_id": "file_1" },
            { "type": "text", "text": "It rains." }
        ])
    );

    // To another agent they are calls of ordinary tools.
    let text = input.to_string().replace("anthropic-messages/claude", "anthropic-messages/other");
    let foreign: Value = serde_json::from_str(&text).expect("JSON");
    let sent = messages("{}", &foreign);
    assert_eq!(
        sent[1]["content"].as_array().and_then(|content| content.last()).map(|last| last["type"].clone()),
        Some(json!("tool_use"))
    );
    assert_eq!(sent[2]["content"][0]["type"], "tool_result");
    let losses = losses("{}", &json!({ "input": foreign }));
    assert!(losses.contains(&(ContentKind::AgentCall, Change::Changed)), "{losses:?}");
}

#[test]
fn a_paused_turn_continues_with_its_call() {
    let mut paused = call("plugin_call", "srvtoolu_1", "web_search", "{}");
    let item = json!({ "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {} });
    paused["metadata"] = json!({ "item": item, "origin": "anthropic-messages/claude" });
    let going_on = messages("{}", &json!([said("user", "u"), said("assistant", "I look."), paused]));
    assert_eq!(going_on[1]["content"][1], item);

    // Another word of the user's ends the pause.
    let request = json!({ "input": [said("user", "u"), paused, said("user", "stop")] });
    let (sent, losses) = sent_with_losses("{}", &request);
    assert_eq!(sent["messages"].as_array().map(Vec::len), Some(1));
    assert_eq!((losses[0].kind, losses[0].change), (ContentKind::AgentCall, Change::Lost));
}

#[test]
fn calls_of_mcp_tools_are_pairs_or_blocks_of_their_own() {
    let mut called = call("mcp_call", "m", "read", "{\"path\":1}");
    called["content"][0]["data"]["server_label"] = json!("files");
    let mut failed = output("mcp_call_output", "m", "no");
    failed["status"] = json!("failed");
    let input = json!([said("user", "u"), called, failed]);
    let pairs = messages("{}", &input);
    assert_eq!(
        (&pairs[1]["content"][0]["type"], &pairs[2]["content"][0]["is_error"]),
        (&json!("tool_use"), &json!(true))
    );
    assert_eq!(
        messages(r#"{"mcp_history":"keep"}"#, &input)[1]["content"],
        json!([
            { "type": "mcp_tool_use", "id": "m", "name": "read", "server_name": "files", "input": { "path": 1 } },
            { "type": "mcp_tool_result", "tool_use_id": "m", "is_error": true, "content": [{ "type": "text", "text": "no" }] }
        ])
    );
}

#[test]
fn approvals_are_sent_as_text() {
    let item = Pending::parse(&Json::parse(r#"{"id":"p1","name":"send_mail","arguments":"{}"}"#).expect("JSON"))
        .expect("an item");
    let asked = json!({ "type": "mcp_approval_request", "role": "assistant", "content": [{ "type": "data",
        "data": { "id": "p1", "name": "send_mail", "arguments": "{\"to\":\"a\"}" } }] });
    let answer = serde_json::to_value(CheckedDecision::new(Decision::Accept).message(&item, false)).expect("JSON");
    let request = json!({ "input": [said("user", "mail"), asked, answer] });
    let (sent, losses) = sent_with_losses("{}", &request);
    assert_eq!(sent["messages"][1]["content"][0]["text"], "I ask for approval of send_mail with {\"to\":\"a\"}.");
    assert_eq!(sent["messages"][2]["content"][0]["text"], "I approve send_mail.");
    assert_eq!((losses[0].kind, losses[0].count), (ContentKind::Approval, 2));
}

#[test]
fn a_choice_among_tools_has_the_words_of_the_protocol() {
    let choice = |choice: Value, parallel: Value| {
        let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
        let body = json!({ "input": [], "tools": tools, "tool_choice": choice, "parallel_tool_calls": parallel });
        sent("{}", &body.to_string(), "null")["tool_choice"].clone()
    };
    let null = Value::Null;
    for (given, parallel, wanted) in [
        (json!("auto"), null.clone(), json!({ "type": "auto" })),
        (json!("required"), null.clone(), json!({ "type": "any" })),
        (json!("none"), json!(false), json!({ "type": "none" })),
        (
            json!({ "type": "function", "function": { "name": "f" } }),
            null.clone(),
            json!({ "type": "tool", "name": "f" }),
        ),
        (null.clone(), json!(true), null.clone()),
        (null.clone(), json!(false), json!({ "type": "auto", "disable_parallel_tool_use": true })),
        (json!("required"), json!(false), json!({ "type": "any", "disable_parallel_tool_use": true })),
        (json!({ "type": "allowed_tools", "tools": [] }), null.clone(), null),
    ] {
        assert_eq!(choice(given.clone(), parallel), wanted, "{given}");
    }
}

#[test]
fn settings_that_servers_refuse_are_not_sent() {
    let request = json!({ "input": [], "temperature": 1.5, "top_p": 0.5, "top_k": 3 });
    let fields = |options: &str| {
        let sent = sent(options, &request.to_string(), "null");
        (sent["temperature"].clone(), sent["top_p"].clone(), sent["top_k"].clone())
    };
    let all = (json!(1.0), json!(0.5), json!(3));
    let none = (Value::Null, Value::Null, Value::Null);
    assert_eq!(fields("{}"), all);
    assert_eq!(fields(r#"{"version":"2026-10-21"}"#), none);
    assert_eq!(fields(r#"{"version":"2026-10-21","sampling":"forward"}"#), all);
    assert_eq!(fields(r#"{"sampling":"drop"}"#), none);
    assert_eq!(fields(r#"{"thinking":"adaptive"}"#), none);
}

#[test]
fn thinking_is_requested_where_it_is_supported() {
    let thinking = |options: &str, request: Value| sent(options, &request.to_string(), "null")["thinking"].clone();
    let plain = json!({ "input": [] });
    assert_eq!(thinking("{}", plain.clone()), Value::Null);
    assert_eq!(thinking(r#"{"thinking":"adaptive"}"#, plain.clone()), json!({ "type": "adaptive" }));
    assert_eq!(thinking(r#"{"thinking":2048}"#, plain), json!({ "type": "enabled", "budget_tokens": 2048 }));
    assert_eq!(thinking(r#"{"thinking":2048}"#, json!({ "input": [], "max_tokens": 2048 })), Value::Null);
    let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
    let forced = json!({ "input": [], "tools": tools, "tool_choice": "required" });
    assert_eq!(thinking(r#"{"thinking":"adaptive"}"#, forced), Value::Null);
}

#[test]
fn content_that_is_not_sent_is_counted() {
    let (lost, changed) = (Change::Lost, Change::Changed);
    for (request, wanted) in [
        (
            json!({ "seed": 1, "n": 2, "frequency_penalty": 0.1, "presence_penalty": 0.1 }),
            vec![(ContentKind::Sampling, lost); 4],
        ),
        (json!({ "temperature": 2.0 }), vec![(ContentKind::Sampling, changed)]),
        (json!({ "tools": [{ "type": "web_search" }] }), vec![(ContentKind::ToolDeclaration, lost)]),
        (json!({ "text": { "format": { "type": "json_object" } } }), vec![(ContentKind::OutputFormat, lost)]),
        (json!({ "text": { "format": { "type": "text" } } }), vec![]),
        (json!({ "user_id": "u" }), vec![(ContentKind::User, lost)]),
        (json!({ "input": [said("user", "u"), said("system", "s")] }), vec![(ContentKind::Instructions, changed)]),
        (
            json!({ "input": [call("function_call", "a", "f", "{}"), output("function_call_output", "b", "")] }),
            vec![(ContentKind::ClientCall, lost), (ContentKind::ClientOutput, lost)],
        ),
        (
            json!({ "input": [call("function_call", "a", "f", "x"), output("function_call_output", "a", "")] }),
            vec![(ContentKind::ClientCall, changed)],
        ),
        (
            json!({ "input": [{ "role": "user", "content": [{ "type": "audio", "data": "AAAA" }, { "type": "data", "data": { "x": 1 } }] }] }),
            vec![(ContentKind::AudioIn, lost), (ContentKind::DataIn, changed)],
        ),
    ] {
        let mut request = request;
        if request.get("input").is_none() {
            request["input"] = json!([]);
        }
        assert_eq!(losses("{}", &request), wanted, "{request}");
    }
}

#[test]
fn tools_stay_declared() {
    let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
    let body = json!({ "input": [said("user", "hi")], "tools": tools }).to_string();
    let mut turn = turn_of("{}", &body, "null");
    testkit::drive(&mut *turn, [Answer::stream(&events(&["start", "0 + a", "end end_turn", "stop"]))]);
    let state = turn.session_state().expect("something new");
    assert_eq!(state.text(), json!({ "tools": tools }).to_string());

    let next = json!({ "input": [said("user", "more")] }).to_string();
    assert_eq!(sent("{}", &next, state.text())["tools"][0]["name"], "f");
    assert_eq!(sent(r#"{"sticky_tools":false}"#, &next, state.text()).get("tools"), None);
    let none = json!({ "input": [], "tools": [] }).to_string();
    assert_eq!(sent("{}", &none, state.text()).get("tools"), None);
    assert_eq!(turn_of("{}", &next, state.text()).session_state(), None, "nothing new");
}

#[test]
fn capabilities_are_those_of_the_protocol() {
    let capabilities = connector("{}").capabilities();
    assert_eq!(capabilities.history, HistoryNeed::SentEachTime);
    assert_eq!(capabilities.tool_outputs, ToolOutputs::Together);
    assert_eq!(capabilities.input_media, Media { image: true, file: true, ..Media::NONE });
    assert_eq!(capabilities.output_media, Media::NONE);
    assert!(capabilities.client_tools && capabilities.reasoning && capabilities.usage);
    assert!(capabilities.decisions.is_empty());
}
