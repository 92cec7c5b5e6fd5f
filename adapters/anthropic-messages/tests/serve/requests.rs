//! Requests as agents receive them (docs/protocols/anthropic-messages.md#request).

use interlingua_core::call::Resent;
use interlingua_core::policy::Busy;
use interlingua_core::{Call, Delivery, RunCall, Thread};
use serde_json::{Value, json};

use crate::support::route;

fn resent(call: &RunCall) -> &Resent {
    match &call.thread {
        Thread::Resent(resent) => resent,
        other => panic!("{other:?}"),
    }
}

/// The request to the agent, with the history before its input, as JSON.
fn agent_request(options: &str, body: &Value) -> Value {
    let sent = route(options).create(&body.to_string());
    let call = sent.run_call();
    let mut value = serde_json::to_value(&call.request).expect("JSON");
    value["preamble"] = serde_json::to_value(&call.preamble).expect("JSON");
    value["history"] = serde_json::to_value(&resent(call).history).expect("JSON");
    value
}

fn hello(more: Value) -> Value {
    let mut body = json!({ "model": "demo", "max_tokens": 10, "messages": [{ "role": "user", "content": "hi" }] });
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
            "system": [
                { "type": "text", "text": "x-anthropic-billing-header: cc_version=2;" },
                { "type": "text", "text": "Be kind." },
                { "type": "text", "text": "Be brief.", "cache_control": { "type": "ephemeral" } },
            ],
            "stop_sequences": ["END"], "temperature": 0.5, "top_p": 1, "top_k": 40,
            "thinking": { "type": "enabled", "budget_tokens": 2048 },
            "output_config": { "effort": "high", "format": { "type": "json_schema", "schema": { "type": "object" } } },
            "metadata": { "user_id": "{\"device_id\":\"d-1\",\"account_uuid\":\"\",\"session_id\":\"s-1\"}" },
            "cache_control": { "type": "ephemeral" }, "service_tier": "auto", "context_management": { "edits": [] },
            "mcp_servers": [{ "type": "url", "url": "https://a", "name": "a" }],
            "tools": [
                { "name": "f", "description": "d", "input_schema": { "type": "object" }, "strict": true, "cache_control": {} },
                { "type": "custom", "name": "bare", "input_schema": { "type": "object" }, "input_examples": [{}] },
                { "type": "web_search_20250305", "name": "web_search" },
                { "name": "request_approval", "input_schema": { "type": "object" } },
                { "name": "later", "input_schema": { "type": "object" }, "defer_loading": true },
            ],
            "tool_choice": { "type": "tool", "name": "f", "disable_parallel_tool_use": true },
        }))
    ));
}

#[test]
fn every_block_reaches_the_agent() {
    insta::assert_json_snapshot!(agent_request(
        r#"{"error_prefix":true}"#,
        &json!({
            "model": "demo",
            "messages": [
                { "role": "user", "content": [
                    { "type": "text", "text": "look" },
                    { "type": "text", "text": "" },
                    { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AAAA" } },
                    { "type": "image", "source": { "type": "url", "url": "https://a/b.png" } },
                    { "type": "document", "title": "a.pdf", "context": "why",
                      "source": { "type": "base64", "media_type": "application/pdf", "data": "JVBERi0x" } },
                    { "type": "document", "source": { "type": "url", "url": "https://a/b.pdf" } },
                    { "type": "document", "title": "notes", "source": { "type": "text", "media_type": "text/plain", "data": "one" } },
                    { "type": "document", "source": { "type": "content", "content": [{ "type": "text", "text": "two" }] } },
                    { "type": "search_result", "title": "t", "source": "https://s", "content": [{ "type": "text", "text": "found" }] },
                    { "type": "container_upload", "file_id": "file_1" },
                ] },
                { "role": "assistant", "content": [
                    { "type": "thinking", "thinking": "hm", "signature": "c2ln" },
                    { "type": "thinking", "thinking": "", "signature": "" },
                    { "type": "redacted_thinking", "data": "ZGF0YQ==" },
                    { "type": "text", "text": "Let me look." },
                    { "type": "mcp_tool_use", "id": "m1", "name": "time", "server_name": "clock", "input": {}, "text": null },
                    { "type": "mcp_tool_result", "tool_use_id": "m1", "is_error": true, "content": [{ "type": "text", "text": "no" }] },
                    { "type": "server_tool_use", "id": "s1", "name": "web_search", "input": { "query": "x" } },
                    { "type": "web_search_tool_result", "tool_use_id": "s1", "content": [{ "type": "web_search_result", "url": "https://a" }] },
                    { "type": "compaction", "content": "…" },
                    { "type": "tool_use", "id": "c1", "name": "f", "input": { "city": "Paris" } },
                    { "type": "tool_use", "id": "c2", "name": "g", "input": { "_arguments": "not JSON" } },
                ] },
                { "role": "user", "content": [
                    { "type": "text", "text": "and then?" },
                    { "type": "tool_result", "tool_use_id": "c1", "content": [{ "type": "text", "text": "18 C" }, { "type": "text", "text": "dry" }] },
                    { "type": "tool_result", "tool_use_id": "c2", "content": "no such thing", "is_error": true },
                ] },
                { "role": "system", "content": "One more rule." },
            ],
        })
    ));
}

#[test]
fn tools_come_and_go_with_the_messages() {
    let tools = |messages: Value, more: Value| -> Vec<String> {
        let tool = |name: &str, is_deferred: bool| json!({ "name": name, "input_schema": { "type": "object" }, "defer_loading": is_deferred });
        let mut tools = vec![tool("a", false), tool("b", false), tool("later", true)];
        tools.extend(more.as_array().into_iter().flatten().cloned());
        let sent = agent_request("{}", &hello(json!({ "messages": messages, "tools": tools })));
        let named = sent["tools"].as_array().into_iter().flatten();
        named.map(|tool| tool["function"]["name"].as_str().expect("a name").to_owned()).collect()
    };
    let user = json!({ "role": "user", "content": "hi" });
    assert_eq!(tools(json!([user]), json!([])), ["a", "b"]);
    assert_eq!(
        tools(json!([user]), json!([{ "type": "tool_search_tool_regex_20251119", "name": "s" }])),
        ["a", "b", "later"]
    );

    let changes = json!({ "role": "system", "content": [
        { "type": "tool_removal", "tool": { "type": "tool_reference", "name": "a" } },
        { "type": "tool_addition", "tool": { "type": "tool_reference", "name": "later" } },
        { "type": "tool_addition", "tool": { "type": "tool_definition", "definition": { "name": "new", "input_schema": {} } } },
        { "type": "tool_removal", "tool": { "type": "tool_reference", "name": "unknown" } },
    ] });
    assert_eq!(tools(json!([user, changes]), json!([])), ["b", "later", "new"]);

    let found = json!([{ "type": "tool_reference", "tool_name": "later" }]);
    let search = json!([
        user,
        { "role": "assistant", "content": [{ "type": "tool_use", "id": "c", "name": "a", "input": {} }] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "c", "content": found }] },
    ]);
    assert_eq!(tools(search, json!([])), ["a", "b", "later"]);
}

#[test]
fn tool_choices_become_those_that_agents_know() {
    let tool = json!([{ "name": "f", "input_schema": {} }]);
    for (choice, expected) in [
        (json!({ "type": "auto" }), Value::Null),
        (json!({ "type": "any" }), json!("required")),
        (json!({ "type": "tool", "name": "f" }), json!({ "type": "function", "name": "f" })),
    ] {
        let sent = agent_request("{}", &hello(json!({ "tools": tool, "tool_choice": choice })));
        assert_eq!((&sent["tool_choice"], sent["tools"].as_array().map(Vec::len)), (&expected, Some(1)));
    }
    let none = agent_request("{}", &hello(json!({ "tools": tool, "tool_choice": { "type": "none" } })));
    // An empty list takes back the tools that the session keeps.
    assert_eq!((&none["tools"], &none["tool_choice"]), (&json!([]), &Value::Null));
}

#[test]
fn options_select_the_content_for_the_agent() {
    let thoughts = json!([
        { "role": "user", "content": "x" },
        { "role": "assistant", "content": [{ "type": "thinking", "thinking": "hm", "signature": "s" }, { "type": "text", "text": "y" }] },
        { "role": "user", "content": "z" },
    ]);
    let sent = agent_request(r#"{"reasoning_input":"drop"}"#, &hello(json!({ "messages": thoughts })));
    assert_eq!(sent["history"].as_array().map(Vec::len), Some(2), "{sent}");

    let format = json!({ "format": { "type": "json_schema", "schema": { "type": "object" } } });
    let sent = agent_request(r#"{"structured_output":"instruct"}"#, &hello(json!({ "output_config": format })));
    assert!(sent["text"].is_null() && sent["preamble"][0]["content"][0]["text"].as_str().is_some(), "{sent}");

    let sent = agent_request(r#"{"forward_model":true,"any_model":true}"#, &hello(json!({ "model": "claude-x" })));
    assert_eq!(sent["model"], "claude-x");
    let sent = agent_request(
        r#"{"client_tools":"ignore"}"#,
        &hello(json!({ "tools": [{ "name": "f", "input_schema": {} }] })),
    );
    assert!(sent["tools"].is_null());
}

#[test]
fn a_run_is_attached_and_whole_or_streamed() {
    let call = |options: &str, more: Value| route(options).create(&hello(more).to_string()).run_call().clone();
    let plain = call("{}", json!({}));
    assert_eq!(
        (plain.delivery, plain.policy.detached, plain.policy.busy),
        (Delivery::Collect, false, Some(Busy::Refuse))
    );
    assert!(plain.answer_policy.asks_again);
    let other = call(r#"{"disconnect":"detach","busy":"queue"}"#, json!({ "stream": true }));
    assert_eq!((other.delivery, other.policy.detached, other.policy.busy), (Delivery::Stream, true, Some(Busy::Queue)));
}

#[test]
fn a_request_for_no_tokens_does_not_call_the_agent() {
    for stream in [false, true] {
        let mut sent = route("{}").create(&hello(json!({ "max_tokens": 0, "stream": stream })).to_string());
        assert!(matches!(sent.outcome, Ok(Call::CheckAgent(_))));
        let mut out = interlingua_core::Out::new();
        sent.exchange.reply(interlingua_core::Reply::Done, &mut out).expect("an answer");
        let reply = interlingua_core_testkit::HttpResponse::from_out(out);
        let message = if stream { crate::strict::read(&reply.body).message } else { reply.json() };
        assert_eq!((&message["content"], &message["stop_reason"]), (&json!([]), &json!("max_tokens")));
    }
}

#[test]
fn tokens_are_estimated() {
    let body = hello(json!({ "system": "x".repeat(400), "tools": [{ "name": "f", "input_schema": {} }] })).to_string();
    let mut sent = route("{}").send("POST", "/v1/messages/count_tokens", &body, &[]);
    assert!(matches!(sent.outcome, Ok(Call::CheckAgent(_))));
    let mut out = interlingua_core::Out::new();
    sent.exchange.reply(interlingua_core::Reply::Done, &mut out).expect("an answer");
    let tokens =
        interlingua_core_testkit::HttpResponse::from_out(out).json()["input_tokens"].as_u64().expect("a number");
    assert!((110..150).contains(&tokens), "{tokens}");
    let off = route(r#"{"count_tokens":"off"}"#).send("POST", "/v1/messages/count_tokens", &body, &[]);
    assert_eq!(off.outcome.expect_err("off").kind, interlingua_core::FaultKind::NoSuchPath);
}
