//! The request for a canonical request.

mod support;

use interlingua_core::answer::CheckedDecision;
use interlingua_core::capability::{HistoryNeed, Media, ToolOutputs};
use interlingua_core::connector::{Next, TurnRequest};
use interlingua_core::model::AgentRequest;
use interlingua_core::pending::{Decision, Pending};
use interlingua_core::probe::ProbeAnswer;
use interlingua_core::{Change, ContentKind, Json};
use interlingua_core_testkit::{self as testkit, Answer};
use serde_json::{Value, json};
use support::{chunk, connector, sent, stream, turn_of};

/// The messages of a request.
fn messages(options: &str, input: &Value, state: &str) -> Value {
    sent(options, &json!({ "input": input }).to_string(), state)["messages"].clone()
}

fn call(kind: &str, id: &str, name: &str, arguments: &str) -> Value {
    json!({ "type": kind, "role": "assistant", "content": [{ "type": "data",
        "data": { "call_id": id, "name": name, "arguments": arguments } }] })
}

fn output(kind: &str, id: &str, output: &str) -> Value {
    json!({ "type": kind, "role": "tool", "content": [{ "type": "data", "data": { "call_id": id, "output": output } }] })
}

fn said(role: &str, text: &str) -> Value {
    json!({ "role": role, "content": [{ "type": "text", "text": text }] })
}

fn reasoning(text: &str) -> Value {
    json!({ "type": "reasoning", "role": "assistant", "content": [{ "type": "text", "text": text }] })
}

#[test]
fn every_field_has_its_place() {
    let body = json!({
        "input": [said("user", "hi")],
        "model": "named-by-client", "session_id": "s", "user_id": "u",
        "temperature": 0.5, "top_p": 0.9, "frequency_penalty": 0.1, "presence_penalty": 0.2, "max_tokens": 50,
        "stop": ["a"], "seed": 3, "n": 2,
        "tools": [
            { "type": "function", "function": { "name": "f", "parameters": {} } },
            { "type": "web_search" },
            { "type": "function", "name": "flat" }
        ],
        "tool_choice": { "type": "function", "name": "f" },
        "parallel_tool_calls": false,
        "text": { "format": { "type": "json_schema", "name": "n", "schema": { "type": "object" }, "strict": true } },
        "reasoning": { "effort": "low" },
        "top_k": 4, "store": true
    });
    let options = r#"{"model":"m","user_field":"user","session_field":"session","forward_extras":["top_k"]}"#;
    insta::assert_json_snapshot!(sent(options, &body.to_string(), "null"));
}

/// The losses of a request, in short.
fn losses(options: &str, request: &Value) -> Vec<(ContentKind, Change)> {
    let turn = turn_of(options, &request.to_string(), "null");
    turn.losses().iter().map(|loss| (loss.kind, loss.change)).collect()
}

#[test]
fn the_request_overrides_parameters_of_the_operator() {
    let options = r#"{"instructions":"Be brief.","parameters":{"temperature":0.2,"top_k":4},
        "tools":[{"type":"function","function":{"name":"f","description":"the operator's"}},
                 {"type":"function","function":{"name":"g"}},{"type":"web_search"}]}"#;
    let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
    let body = json!({ "input": [said("system", "be kind"), said("user", "hi")], "temperature": 0.9, "tools": tools });
    let with_own = sent(options, &body.to_string(), "null");
    assert_eq!(
        with_own["messages"],
        json!([
            { "role": "system", "content": "Be brief." },
            { "role": "system", "content": "be kind" },
            { "role": "user", "content": "hi" }
        ])
    );
    assert_eq!((&with_own["temperature"], &with_own["top_k"]), (&json!(0.9), &json!(4)));
    let function = |name: &str| json!({ "type": "function", "function": { "name": name } });
    assert_eq!(with_own["tools"], json!([function("f"), function("g"), { "type": "web_search" }]));

    let plain = sent(options, &json!({ "input": [] }).to_string(), "null");
    assert_eq!(
        (&plain["temperature"], &plain["tools"][0]["function"]["description"]),
        (&json!(0.2), &json!("the operator's"))
    );
}

#[test]
fn content_that_is_not_sent_is_counted() {
    let (lost, changed) = (Change::Lost, Change::Changed);
    for (options, request, wanted) in [
        ("{}", json!({ "n": 2 }), vec![(ContentKind::Sampling, lost)]),
        ("{}", json!({ "seed": 2, "n": 1 }), vec![]),
        ("{}", json!({ "tools": [{ "type": "web_search" }] }), vec![(ContentKind::ToolDeclaration, lost)]),
        (
            "{}",
            json!({ "tools": [{ "type": "function", "function": { "name": "f" } }], "tool_choice": { "type": "mcp" } }),
            vec![(ContentKind::ToolChoice, lost)],
        ),
        ("{}", json!({ "user_id": "u" }), vec![(ContentKind::User, lost)]),
        (r#"{"user_field":"user"}"#, json!({ "user_id": "u" }), vec![]),
        (
            "{}",
            json!({ "input": [call("function_call", "a", "f", "{}"), output("function_call_output", "b", "")] }),
            vec![(ContentKind::ClientCall, lost), (ContentKind::ClientOutput, lost)],
        ),
        (
            "{}",
            json!({ "input": [call("function_call", "a", "f", "x"), output("function_call_output", "a", "")] }),
            vec![(ContentKind::ClientCall, changed)],
        ),
        ("{}", json!({ "input": [reasoning("hm"), said("assistant", "a")] }), vec![(ContentKind::History, lost)]),
        (r#"{"reasoning_input":"always"}"#, json!({ "input": [reasoning("hm"), said("assistant", "a")] }), vec![]),
        (
            "{}",
            json!({ "input": [{ "role": "user", "content": [
                { "type": "image", "image_url": "https://a/b.png" },
                { "type": "file", "file_url": "https://a/b.pdf" },
                { "type": "data", "data": { "x": 1 } }
            ] }] }),
            vec![(ContentKind::FileIn, lost), (ContentKind::DataIn, changed)],
        ),
        (
            r#"{"parts":[]}"#,
            json!({ "input": [{ "role": "user", "content": [{ "type": "image", "image_url": "https://a/b.png" }] }] }),
            vec![(ContentKind::ImageIn, lost)],
        ),
    ] {
        let mut request = request;
        if request.get("input").is_none() {
            request["input"] = json!([]);
        }
        assert_eq!(losses(options, &request), wanted, "{request}");
    }
}

#[test]
fn a_probe_reads_the_list_of_models() {
    let mut probe = connector(r#"{"model":"m"}"#).probe();
    assert_eq!(probe.next().map(|request| request.url).as_deref(), Some("http://agent/v1/models"));
    let body = br#"{"data":[{"id":"m"}]}"#;
    probe.on_answer(Ok(ProbeAnswer { status: 200, headers: &[], body }));
    let texts: Vec<&str> = probe.findings().iter().map(|finding| finding.text.as_str()).collect();
    assert_eq!(texts, ["reachable: 200", "the server has the model \"m\""]);
}

#[test]
fn a_plain_request_has_no_field_that_strict_servers_refuse() {
    let body = json!({ "input": [said("user", "hi")], "session_id": "s", "user_id": "u", "model": "named-by-client",
                       "max_tokens": 5, "tools": [], "tool_choice": "auto", "metadata": {}, "parallel_tool_calls": null });
    assert_eq!(
        sent(r#"{"usage":false}"#, &body.to_string(), "null"),
        json!({ "model": "named-by-client", "messages": [{ "role": "user", "content": "hi" }], "stream": true, "max_tokens": 5 })
    );
    let limit = sent(r#"{"limit_field":"max_completion_tokens"}"#, &body.to_string(), "null");
    assert_eq!((&limit["max_completion_tokens"], &limit["max_tokens"]), (&json!(5), &Value::Null));
}

#[test]
fn a_choice_among_tools_is_nested() {
    let choice = |choice: Value| {
        let body = json!({ "input": [], "tools": [{ "type": "function", "function": { "name": "f" } }], "tool_choice": choice });
        sent("{}", &body.to_string(), "null")["tool_choice"].clone()
    };
    assert_eq!(choice(json!("required")), json!("required"));
    assert_eq!(choice(json!({ "type": "web_search" })), Value::Null);
    let nested = json!({ "type": "function", "function": { "name": "f" } });
    assert_eq!(choice(json!({ "type": "custom", "name": "f" })), nested);
    assert_eq!(choice(nested.clone()), nested);
    assert_eq!(
        choice(json!({ "type": "allowed_tools", "mode": "auto", "tools": [{ "type": "function", "name": "f" }] })),
        json!({ "type": "allowed_tools", "allowed_tools": { "mode": "auto", "tools": [nested] } })
    );
}

#[test]
fn a_conversation_becomes_messages_that_servers_take() {
    let input = json!([
        said("system", "be kind"),
        said("user", "weather?"),
        reasoning("two cities"),
        said("assistant", "let me look"),
        call("function_call", "a", "weather", "{\"city\":\"Paris\"}"),
        call("function_call", "b", "weather", "Rome"),
        call("function_call", "lost", "weather", "{}"),
        said("user", "hurry"),
        output("function_call_output", "b", "21 C"),
        output("function_call_output", "a", "18 C"),
        output("function_call_output", "unknown", "?"),
        said("assistant", "18 and 21"),
        said("developer", "be brief"),
        call("plugin_call", "p", "search", "{}"),
        output("plugin_call_output", "p", "found"),
        reasoning("so"),
        call("mcp_call", "q", "read", "{}"),
        output("mcp_call_output", "q", "text"),
        said("assistant", "here"),
        reasoning("only thought"),
        { "type": "error", "role": "assistant", "code": "X", "message": "no", "content": [] }
    ]);
    insta::assert_json_snapshot!(messages("{}", &input, "null"));
    insta::assert_json_snapshot!(
        "merged",
        messages(r#"{"merge_system":true,"system_role":"developer"}"#, &input, "null")
    );
}

#[test]
fn a_call_id_that_comes_twice_keeps_its_outputs_apart() {
    let input = json!([
        call("function_call", "a", "f", "{}"),
        output("function_call_output", "a", "one"),
        said("user", "again"),
        call("function_call", "a", "f", "{}"),
        output("function_call_output", "a", "two")
    ]);
    let messages = messages("{}", &input, "null");
    let outputs: Vec<&str> = messages
        .as_array()
        .expect("a list")
        .iter()
        .filter(|message| message["role"] == "tool")
        .filter_map(|message| message["content"].as_str())
        .collect();
    assert_eq!(outputs, ["one", "two"]);
}

#[test]
fn reasoning_goes_back_where_the_server_wants_it() {
    let mut detailed = reasoning("hm");
    detailed["metadata"] = json!({ "reasoning_details": [{ "type": "reasoning.encrypted", "data": "x" }] });
    let plain = json!([reasoning("hm"), said("assistant", "a")]);
    let calling = json!([detailed, call("function_call", "a", "f", "{}"), output("function_call_output", "a", "1")]);
    let seen = r#"{"reasoning":"reasoning"}"#;

    let sent = |options: &str, input: &Value, state: &str| messages(options, input, state)[0].clone();
    assert_eq!(sent("{}", &plain, "null")["reasoning_content"], Value::Null);
    assert_eq!(sent("{}", &plain, seen)["reasoning"], "hm");
    assert_eq!(sent("{}", &calling, "null")["reasoning_content"], "hm");
    assert_eq!(sent("{}", &calling, "null")["reasoning_details"][0]["data"], "x");
    assert_eq!(sent("{}", &calling, "null")["content"], Value::Null);
    assert_eq!(sent(r#"{"reasoning_input":"always"}"#, &plain, "null")["reasoning_content"], "hm");
    let never = sent(r#"{"reasoning_input":"never"}"#, &calling, seen);
    assert!(never.get("reasoning").is_none() && never.get("reasoning_details").is_none(), "{never}");
}

#[test]
fn a_signature_goes_back_with_its_call() {
    let mut signed = call("function_call", "a", "f", "{}");
    signed["metadata"] = json!({ "extra_content": { "google": { "thought_signature": "s" } } });
    let messages = messages("{}", &json!([signed.clone(), output("function_call_output", "a", "1")]), "null");
    assert_eq!(messages[0]["tool_calls"][0]["extra_content"]["google"]["thought_signature"], "s");

    signed["metadata"]["origin"] = json!("chat-completions/another");
    let foreign = json!({ "input": [signed, output("function_call_output", "a", "1")] });
    assert_eq!(sent("{}", &foreign.to_string(), "null")["messages"][0]["tool_calls"][0].get("extra_content"), None);
    assert_eq!(losses("{}", &foreign), [(ContentKind::Opaque, Change::Lost)]);
}

#[test]
fn media_are_parts_or_lines_of_text() {
    let input = json!([{ "role": "user", "content": [
        { "type": "text", "text": "look" },
        { "type": "image", "image_url": "https://a/b.png", "detail": "low" },
        { "type": "image", "image_url": "data:image/png;base64,AAAA" },
        { "type": "audio", "data": "data:audio/mpeg;base64,AAAA" },
        { "type": "audio", "data": "AAAA", "format": "wav" },
        { "type": "audio", "data": "https://a/b.wav" },
        { "type": "video", "video_url": "https://a/b.mp4" },
        { "type": "file", "file_url": "https://a/b.pdf", "filename": "b.pdf" },
        { "type": "file", "file_data": "AAAA", "filename": "c.pdf" },
        { "type": "file", "file_id": "file-1" },
        { "type": "data", "data": { "x": 1.50 } }
    ] }]);
    insta::assert_json_snapshot!(
        "parts",
        messages(r#"{"parts":["text","image","audio","file","video"]}"#, &input, "null")
    );
    insta::assert_json_snapshot!("lines", messages(r#"{"parts":[]}"#, &input, "null"));
}

#[test]
fn approvals_are_sent_as_text() {
    let item = Pending::parse(&Json::parse(r#"{"id":"p1","name":"send_mail","arguments":"{}"}"#).expect("JSON"))
        .expect("an item");
    let asked = json!({ "type": "mcp_approval_request", "role": "assistant", "content": [{ "type": "data",
        "data": { "id": "p1", "name": "send_mail", "arguments": "{\"to\":\"a\"}" } }] });
    let rejected = CheckedDecision { text: Some("not today".into()), ..CheckedDecision::new(Decision::Reject) };
    let answer = serde_json::to_value(rejected.message(&item, false)).expect("JSON");
    assert_eq!(
        messages("{}", &json!([asked, answer]), "null"),
        json!([
            { "role": "assistant", "content": "I ask for approval of send_mail with {\"to\":\"a\"}." },
            { "role": "user", "content": "I do not approve send_mail. not today" }
        ])
    );

    // Without the request in the history, the item says what was decided about.
    let input = vec![CheckedDecision::new(Decision::Accept).message(&item, false)];
    let request = AgentRequest { input: input.into(), ..AgentRequest::default() };
    let (state, answered) = (Json::null(), [item]);
    let turn = TurnRequest::new(&request, &state, &answered);
    let Ok(Next::Send(request)) = connector("{}").turn(&turn).expect("a turn").next(0) else { panic!("a request") };
    let body: Value = serde_json::from_slice(&request.body).expect("JSON");
    assert_eq!(body["messages"][0]["content"], "I approve send_mail.");
}

#[test]
fn tools_stay_declared_and_the_reasoning_field_is_remembered() {
    let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
    let body = json!({ "input": [said("user", "hi")], "tools": tools }).to_string();
    let mut turn = turn_of("{}", &body, "null");
    let answer = stream(&[&chunk(r#""reasoning":"hm""#, ""), &chunk(r#""content":"a""#, "stop"), "[DONE]"]);
    testkit::drive(&mut *turn, [Answer::stream(&answer)]);
    let state = turn.session_state().expect("something new");
    assert_eq!(state.text(), json!({ "reasoning": "reasoning", "tools": tools }).to_string());

    let next = json!({ "input": [said("user", "more")] }).to_string();
    assert_eq!(sent("{}", &next, state.text())["tools"], tools);
    assert_eq!(sent(r#"{"sticky_tools":false}"#, &next, state.text()).get("tools"), None);
    let none = json!({ "input": [said("user", "more")], "tools": [] }).to_string();
    assert_eq!(sent("{}", &none, state.text()).get("tools"), None);
    assert_eq!(turn_of("{}", &next, state.text()).session_state(), None, "nothing new");
}

#[test]
fn the_session_is_named_where_the_operator_wants_it() {
    let named = |session: &str| {
        let body = json!({ "input": [], "session_id": session }).to_string();
        let Ok(Next::Send(request)) = turn_of(r#"{"session_header":"X-Session-Id"}"#, &body, "null").next(0) else {
            panic!("a request")
        };
        assert_eq!(request.url, "http://agent/v1/chat/completions");
        request.headers.into_iter().find(|(name, _)| name == "x-session-id").map(|(_, value)| value)
    };
    assert_eq!(named("s-1").as_deref(), Some("s-1"));
    assert_eq!(named("a\r\nb"), None);
}

#[test]
fn capabilities_follow_the_options() {
    let capabilities = connector(r#"{"parts":["text","file"],"usage":false}"#).capabilities();
    assert_eq!(capabilities.history, HistoryNeed::SentEachTime);
    assert_eq!(capabilities.tool_outputs, ToolOutputs::Together);
    assert_eq!(capabilities.input_media, Media { file: true, ..Media::NONE });
    assert!(capabilities.client_tools && capabilities.reasoning && !capabilities.usage);
    assert!(capabilities.decisions.is_empty());
}
