//! Requests as agents receive them (docs/protocols/chat-completions.md#what-the-agent-receives).

use interlingua_core::call::Thread;
use serde_json::{Value, json};

use crate::support::route;

/// The request to the agent, as JSON, with the instructions and the history apart.
fn agent_request(options: &str, body: &Value) -> Value {
    let sent = route(options).create(&body.to_string());
    let call = sent.run_call();
    let mut value = serde_json::to_value(&call.request).expect("JSON");
    if !call.preamble.is_empty() {
        value["preamble"] = serde_json::to_value(&call.preamble).expect("JSON");
    }
    if let Thread::Resent(resent) = &call.thread
        && !resent.history.is_empty()
    {
        value["history"] = serde_json::to_value(&resent.history).expect("JSON");
    }
    value
}

fn hello(more: Value) -> Value {
    let mut body = json!({ "model": "demo", "messages": [{ "role": "user", "content": "hi" }] });
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

#[test]
fn every_setting_reaches_the_agent() {
    insta::assert_json_snapshot!(agent_request(
        "{}",
        &hello(json!({
            "temperature": 0.7, "top_p": 1, "max_completion_tokens": 50, "max_tokens": 7, "presence_penalty": -1,
            "frequency_penalty": 0.5, "seed": 3, "stop": ["a", "b"], "n": 1, "logprobs": true, "top_logprobs": 3,
            "logit_bias": {"1": 2}, "parallel_tool_calls": false, "metadata": {"a": "b"}, "reasoning_effort": "low",
            "verbosity": "low", "user": "u-1", "safety_identifier": "s-1", "store": true, "service_tier": "flex",
            "modalities": ["text", "audio"], "audio": {"voice": "v", "format": "wav"}, "prediction": {"type": "content"},
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": true}},
            "tools": [
                {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": true}},
                {"type": "function", "name": "flat"},
                {"type": "custom", "custom": {"name": "code", "format": {"type": "text"}}},
                {"type": "web_search"},
                {"type": "function", "function": {"name": "request_approval"}},
            ],
            "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
                {"type": "function", "function": {"name": "f"}}]}},
            "top_k": 5,
        }))
    ));
}

#[test]
fn every_message_reaches_the_agent() {
    insta::assert_json_snapshot!(agent_request(
        "{}",
        &json!({ "model": "demo", "messages": [
            {"role": "system", "content": "be kind"},
            {"role": "developer", "content": [{"type": "text", "text": "be brief"}]},
            {"role": "user", "name": "ada", "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "high"}},
                {"type": "image_url", "image_url": "https://a/b.png"},
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
                {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA", "filename": "b.pdf"}},
                {"type": "file", "file": {"file_data": "https://a/b.pdf"}},
                {"type": "video_url", "video_url": {"url": "https://a/b.mp4"}},
            ]},
            {"role": "system", "content": "now in French"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I see"}],
             "refusal": "but no", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}, "extra_content": {"google": {"s": "x"}}},
                {"id": "c2", "type": "custom", "custom": {"name": "code", "input": "print(1)"}},
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "tool", "tool_call_id": "c2", "name": "code", "content": [{"type": "image_url", "image_url": {"url": "u"}}]},
            {"role": "assistant", "content": "", "reasoning": "so", "reasoning_details": [{"type": "reasoning.text", "text": "so"}],
             "function_call": {"name": "g", "arguments": "{}"}},
            {"role": "function", "name": "g", "content": "done"},
            {"role": "user", "content": "go on"},
        ]})
    ));
}

#[test]
fn tools_are_not_sent_if_none_may_be_called() {
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let request =
        |options: &str, choice: &str| agent_request(options, &hello(json!({ "tools": tools, "tool_choice": choice })));
    // An empty list takes back the tools that the session keeps.
    let none = request("{}", "none");
    assert_eq!((&none["tools"], none.get("tool_choice")), (&json!([]), None));
    assert_eq!(request("{}", "auto")["tools"].as_array().map(Vec::len), Some(1));
    assert_eq!(agent_request("{}", &hello(json!({ "function_call": "none" })))["tools"], json!([]));
    assert!(request(r#"{"client_tools":"ignore"}"#, "none").get("tools").is_none());
    assert!(request(r#"{"client_tools":"ignore"}"#, "auto").get("tools").is_none());
    let deprecated =
        agent_request("{}", &hello(json!({ "functions": [{"name": "f"}], "function_call": {"name": "f"} })));
    assert_eq!(deprecated["tool_choice"], json!({ "type": "function", "name": "f" }));
    assert_eq!(deprecated["tools"][0]["function"]["name"], "f");
}

#[test]
fn functions_of_the_gateway_are_left_out_of_allowed_tools() {
    let named = |name: &str| json!({ "type": "function", "function": { "name": name } });
    let request = |allowed: &[&str]| {
        let allowed: Vec<Value> = allowed.iter().map(|name| named(name)).collect();
        let choice = json!({ "type": "allowed_tools", "allowed_tools": { "mode": "auto", "tools": allowed } });
        let tools = json!([named("f"), named("request_approval")]);
        agent_request("{}", &hello(json!({ "tools": tools, "tool_choice": choice })))
    };
    let both = request(&["request_approval", "f"]);
    assert_eq!(both["tool_choice"]["tools"], json!([{ "type": "function", "name": "f" }]));
    // The agent may call none of its own.
    let own = request(&["request_approval"]);
    assert_eq!((&own["tools"], own.get("tool_choice")), (&json!([]), None));
}

#[test]
fn options_change_the_request_to_the_agent() {
    let wanted = hello(json!({ "response_format": {"type": "json_object"}, "top_k": 5 }));
    let instructed = agent_request(r#"{"structured_output":"instruct"}"#, &wanted);
    assert!(instructed["preamble"][0]["content"][0]["text"].as_str().expect("a text").contains("JSON object"));
    assert!(instructed.get("text").is_none());
    assert_eq!(agent_request(r#"{"forward_model":true}"#, &wanted)["model"], "demo");
    assert_eq!(agent_request(r#"{"forward_fields":["top_k"]}"#, &wanted)["top_k"], 5);
    assert!(agent_request("{}", &wanted).get("top_k").is_none());

    let history = json!({ "model": "demo", "messages": [
        {"role": "assistant", "content": "x", "refusal": "no", "reasoning_content": "hm"},
        {"role": "user", "content": "y"},
    ]});
    let kinds = |options: &str| {
        let request = agent_request(options, &history);
        let list = request["history"].as_array().expect("a list").clone();
        let of = |message: &Value| {
            let contents = message["content"].as_array().expect("contents").iter();
            format!("{} {:?}", message["type"], contents.map(|part| part["type"].clone()).collect::<Vec<_>>())
        };
        list.iter().map(of).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(kinds("{}").matches("reasoning").count(), 1);
    assert!(kinds("{}").contains("refusal"));
    let other = kinds(r#"{"reasoning_input":"drop","refusal_input":"text"}"#);
    assert!(!other.contains("reasoning") && !other.contains("refusal"), "{other}");

    let image = json!({ "model": "demo", "messages": [
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}]},
    ]});
    let output = |options: &str| agent_request(options, &image)["input"][0]["content"][0]["data"]["output"].clone();
    assert!(output("{}").as_str().expect("a text").starts_with('['));
    assert_eq!(output(r#"{"tool_parts":"text"}"#), "a");
}

#[test]
fn ignored_parameters_are_reported() {
    let body = hello(json!({ "tools": [{"type": "web_search"}] })).to_string();
    let sent = route("{}").create(&body);
    let losses = sent.exchange.losses();
    assert_eq!(losses.len(), 1, "{losses:?}");
}
