//! The request for a canonical request (docs/protocols/responses.md#what-is-sent).

use interlingua_core::Json;
use interlingua_core::answer::CheckedDecision;
use interlingua_core::capability::Media;
use interlingua_core::connector::{AgentTurn, UpstreamAdapter as _};
use interlingua_core::pending::{Decision, Pending};
use interlingua_responses::{ResponsesUpstream, UpstreamOptions};
use serde_json::{Value, json};

use crate::support::{body_of, connector, loss_line, sent, turn_of, turn_with_history};

const GOES_ON: &str = r#"{"response":"resp_1"}"#;
const FULL: &str = r#"{"chain":"full"}"#;

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

/// The items of a request with these messages, and what the turn lost.
fn items(options: &str, input: &Value, state: &str) -> (Value, Vec<String>) {
    let mut turn = turn_of(options, &json!({ "input": input }).to_string(), state);
    let items = body_of(&mut *turn)["input"].clone();
    (items, losses(&*turn))
}

fn losses(turn: &dyn AgentTurn) -> Vec<String> {
    turn.losses().iter().map(loss_line).collect()
}

#[test]
fn every_field_has_its_place() {
    let body = json!({
        "input": [said("system", "be kind"), said("user", "hi")],
        "model": "named-by-client", "session_id": "s", "user_id": "u",
        "temperature": 0.5, "top_p": 0.9, "frequency_penalty": 0.1, "presence_penalty": 0.2, "max_tokens": 50,
        "stop": ["a"], "seed": 3, "n": 2,
        "tools": [
            { "type": "function", "function": { "name": "f", "parameters": {}, "strict": true } },
            { "type": "function", "name": "flat", "description": "d" },
            { "type": "web_search" }
        ],
        "tool_choice": { "type": "function", "function": { "name": "f" } },
        "parallel_tool_calls": false,
        "text": { "format": { "type": "json_schema", "name": "n", "schema": { "type": "object" } } },
        "reasoning": { "effort": "low" }, "metadata": { "a": "b" }, "include": ["web_search_call.results"],
        "truncation": "auto", "service_tier": "flex", "top_k": 4,
        "store": false, "background": true, "previous_response_id": "resp_of_the_client", "conversation": "c"
    });
    let options = r#"{"model":"m","instructions":"first","penalties":"forward","user":"safety_identifier",
        "system_role":"instructions","forward_extras":["top_k"],"parameters":{"prompt_cache_key":"k","temperature":1},
        "tools":[{"type":"web_search"},{"type":"function","name":"f","parameters":{"own":true}}]}"#;
    let mut turn = turn_of(options, &body.to_string(), "null");
    insta::assert_json_snapshot!(body_of(&mut *turn));
    insta::assert_debug_snapshot!(losses(&*turn));
}

#[test]
fn a_plain_request_has_no_field_that_strict_servers_refuse() {
    let body = json!({ "input": [said("user", "hi")], "session_id": "s", "user_id": "u", "model": "named-by-client",
        "max_tokens": 5, "tools": [], "tool_choice": "auto", "metadata": { "a": 1 }, "parallel_tool_calls": null,
        "frequency_penalty": 0.5 });
    let mut turn = turn_of("{}", &body.to_string(), "null");
    assert_eq!(
        body_of(&mut *turn),
        json!({
            "model": "named-by-client", "stream": true, "store": true, "max_output_tokens": 5,
            "input": [{ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "hi" }] }],
        })
    );
    assert_eq!(
        losses(&*turn),
        [
            "lost sampling (penalties are not sent (option penalties))",
            "lost metadata (the protocol has texts as metadata only)"
        ]
    );
}

#[test]
fn a_request_disables_storage() {
    let body = json!({ "input": [said("user", "hi")] }).to_string();
    let full = sent(FULL, &body, GOES_ON);
    assert_eq!(full["store"], false);
    assert_eq!(full["include"], json!(["reasoning.encrypted_content"]));
    assert_eq!(full["previous_response_id"], Value::Null);
    let plain = sent(r#"{"chain":"full","encrypted_reasoning":false}"#, &body, "null");
    assert_eq!(plain["include"], Value::Null);
    // A client's own `include` entries are kept, and none is sent twice.
    let body = json!({ "input": [], "include": ["reasoning.encrypted_content", "x"] }).to_string();
    assert_eq!(sent(FULL, &body, "null")["include"], json!(["reasoning.encrypted_content", "x"]));
}

#[test]
fn a_conversation_becomes_items() {
    let encrypted = json!({ "type": "reasoning", "role": "assistant", "content": [{ "type": "text", "text": "Hm" }],
        "metadata": { "encrypted_content": "c2VjcmV0", "id": "rs_1", "origin": "responses/travel" } });
    let custom = json!({ "type": "function_call", "metadata": { "type": "custom_tool_call" }, "content": [{ "type": "data",
        "data": { "call_id": "c2", "name": "patch", "arguments": "{\"input\":\"a\\nb\"}" } }] });
    let custom_output = json!({ "type": "function_call_output", "metadata": { "type": "custom_tool_call_output" },
        "content": [{ "type": "data", "data": { "call_id": "c2", "output": "done" } }] });
    let input = json!([
        said("system", "be kind"),
        said("user", "hi"),
        encrypted,
        { "role": "assistant", "metadata": { "phase": "commentary" },
          "content": [{ "type": "text", "text": "I look" }, { "type": "refusal", "refusal": "no" }] },
        call("function_call", "c1", "f", "{\"a\": 1}"),
        call("plugin_call", "p1", "search", "{}"),
        output("function_call_output", "c1", "[{\"type\":\"input_text\",\"text\":\"21\"}]"),
        output("plugin_call_output", "p1", "[1,2]"),
        custom,
        custom_output,
        call("mcp_call", "m1", "geo", "{}"),
        output("mcp_call_output", "m1", "here"),
        { "type": "data", "role": "user", "content": [{ "type": "data", "data": { "k": [1] } }] },
    ]);
    let (found, lost) = items(FULL, &input, "null");
    insta::assert_json_snapshot!(found);
    assert_eq!(lost, ["changed data_in (sent as text)"]);

    let keep = r#"{"chain":"full","mcp_history":"keep"}"#;
    let (kept, _) =
        items(keep, &json!([call("mcp_call", "m1", "geo", "{}"), output("mcp_call_output", "m1", "here")]), "null");
    assert_eq!(
        kept,
        json!([{ "type": "mcp_call", "id": "m1", "server_label": "", "name": "geo", "arguments": "{}", "output": "here" }])
    );
}

#[test]
fn calls_and_outputs_come_in_pairs() {
    let pair = |id: &str, text: &str| [call("function_call", id, "f", "{}"), output("function_call_output", id, text)];
    let ids = |found: &Value| -> Vec<String> {
        let word = |item: &Value| {
            format!("{} {}", item["type"].as_str().unwrap_or(""), item["call_id"].as_str().unwrap_or(""))
        };
        found.as_array().expect("items").iter().map(word).collect()
    };

    // One id in two turns, as scripted models have it.
    let twice = [pair("a", "1"), pair("a", "2")].concat();
    let (found, lost) = items(FULL, &json!(twice), "null");
    let pairs = ["function_call a", "function_call_output a", "function_call a_2", "function_call_output a_2"];
    assert_eq!((ids(&found), lost.len()), (pairs.iter().map(ToString::to_string).collect(), 0));

    // An output before its call, an output alone, a call alone.
    let input = json!([
        output("function_call_output", "a", "1"),
        call("function_call", "a", "f", "{}"),
        call("plugin_call", "b", "g", "{}"),
        said("user", "hi")
    ]);
    let (found, lost) = items(FULL, &input, "null");
    assert_eq!(ids(&found), ["message "]);
    assert_eq!(
        lost,
        [
            "lost client_output (an output without its call is left out)",
            "lost client_call (a call without an output is left out of the history)",
            "lost agent_call (a call without an output is left out of the history)",
        ]
    );

    // A server that remembers knows the call, also if a client repeats it.
    let waits = r#"{"response":"resp_1","open_calls":["a"]}"#;
    let (found, lost) = items("{}", &json!(pair("a", "1")), waits);
    assert_eq!((ids(&found), lost.len()), (vec!["function_call_output a".to_owned()], 0));
}

#[test]
fn opaque_values_go_back_to_their_author_alone() {
    let search = json!({ "id": "ws_1", "type": "web_search_call", "status": "completed", "action": { "query": "x" } });
    let message = |origin: &str| {
        json!([
            { "type": "plugin_call", "metadata": { "item": search, "origin": origin }, "content": [{ "type": "data",
              "data": { "call_id": "ws_1", "name": "web_search", "arguments": "{}" } }] },
            output("plugin_call_output", "ws_1", "found"),
            { "type": "reasoning", "metadata": { "encrypted_content": "x", "origin": origin }, "content": [] },
            said("assistant", "yes"),
        ])
    };

    let yes = json!({ "type": "message", "role": "assistant",
                      "content": [{ "type": "output_text", "text": "yes", "annotations": [] }] });
    let (own, lost) = items(FULL, &message("responses/travel"), "null");
    assert_eq!(own, json!([search, { "type": "reasoning", "summary": [], "encrypted_content": "x" }, yes]));
    assert_eq!(lost, [""; 0]);

    let (other, lost) = items(FULL, &message("responses/elsewhere"), "null");
    assert_eq!(other[0]["type"], "function_call");
    assert_eq!(other.as_array().map(Vec::len), Some(3));
    assert_eq!(
        lost,
        [
            "changed agent_call (a call of another server is sent as a function's)",
            "lost opaque (made by another agent)"
        ]
    );

    // Reasoning in plain words.
    let (found, lost) =
        items(FULL, &json!([{ "type": "reasoning", "content": [{ "type": "text", "text": "Hm" }] }]), "null");
    assert_eq!(found, json!([]));
    assert_eq!(lost, ["lost reasoning (a server takes back only reasoning that it encrypted)"]);

    // An item that a client brought itself.
    let brought = json!([{ "type": "plugin_call", "content": [{ "type": "data",
        "data": { "call_id": "ws_1", "name": "web_search", "arguments": "{}", "item": search } }] }]);
    assert_eq!(items(FULL, &brought, "null").0, json!([search]));
}

#[test]
fn reasoning_is_sent_with_its_output() {
    let thought = json!({ "type": "reasoning", "metadata": { "encrypted_content": "x" }, "content": [] });
    let kinds = |found: &Value| -> Vec<String> {
        let items = found.as_array().expect("items").iter();
        items.map(|item| item["type"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let call = call("function_call", "a", "f", "{}");
    let output = output("function_call_output", "a", "1");

    let (found, lost) = items(FULL, &json!([thought, thought, call, output, said("user", "hi")]), "null");
    assert_eq!(kinds(&found), ["reasoning", "reasoning", "function_call", "function_call_output", "message"]);
    assert_eq!(lost, [""; 0]);

    // The call is left out, since it has no output.
    let (found, lost) = items(FULL, &json!([said("assistant", "I look"), thought, call, said("user", "hi")]), "null");
    assert_eq!(kinds(&found), ["message", "message"]);
    assert_eq!(lost.len(), 2, "{lost:?}");
    assert_eq!(lost[1], "lost reasoning (reasoning about what is left out is left out, too)");
}

#[test]
fn media_are_parts_or_a_line_of_text() {
    let media = json!([{ "role": "user", "content": [
        { "type": "text", "text": "look" },
        { "type": "image", "image_url": "https://a/b.png", "detail": "low" },
        { "type": "file", "file_url": "https://a/b.pdf", "filename": "b.pdf" },
        { "type": "file", "file_id": "file_1" },
        { "type": "file", "file_data": "data:text/plain;base64,YQ==" },
        { "type": "audio", "data": "data:audio/mpeg;base64,AQID" },
        { "type": "audio", "data": "https://a/b.wav" },
        { "type": "video", "video_url": "https://a/b.mp4" },
    ] }]);
    let (all, lost) = items(r#"{"parts":["image","file","audio","video"]}"#, &media, "null");
    insta::assert_json_snapshot!(all[0]["content"]);
    assert_eq!(lost, ["lost audio_in (not taken by this agent: a line of text names it)"]);

    let (text, lost) = items(r#"{"parts":[]}"#, &media, "null");
    let texts: Vec<&str> =
        text[0]["content"].as_array().expect("parts").iter().filter_map(|part| part["text"].as_str()).collect();
    assert_eq!(
        texts,
        [
            "look",
            "[image: https://a/b.png]",
            "[file: https://a/b.pdf]",
            "[file: file_1]",
            "[file]",
            "[audio]",
            "[audio: https://a/b.wav]",
            "[video: https://a/b.mp4]"
        ]
    );
    assert_eq!(lost.len(), 4, "{lost:?}");

    let media = |options: &str| connector(options).capabilities().input_media;
    assert_eq!(media("{}"), Media { image: true, file: true, ..Media::NONE });
    assert_eq!(media(r#"{"parts":["audio","video"]}"#), Media { audio: true, video: true, ..Media::NONE });
}

#[test]
fn a_decision_answers_the_question_of_the_server() {
    let data = r#"{"id":"mcpr_1","name":"delete","arguments":"{\"a\":1}","server_label":"geo"}"#;
    let item = Pending::parse(&Json::parse(data).expect("JSON")).expect("an item");
    let question = json!({ "type": "mcp_approval_request", "role": "assistant",
        "content": [{ "type": "data", "data": serde_json::from_str::<Value>(data).expect("JSON") }] });
    let response = |approve: bool, reason: Option<&str>| {
        let mut response =
            json!({ "type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": approve });
        if let Some(reason) = reason {
            response["reason"] = reason.into();
        }
        response
    };

    let with = |decision, text: Option<&str>| CheckedDecision {
        text: text.map(str::to_owned),
        ..CheckedDecision::new(decision)
    };
    for (decided, expected) in [
        (CheckedDecision::new(Decision::Accept), response(true, None)),
        (with(Decision::Reject, Some("not today")), response(false, Some("not today"))),
        (CheckedDecision::new(Decision::Cancel), response(false, Some("cancelled"))),
        (CheckedDecision::new(Decision::Edit), response(false, Some("the upstream does not support edits"))),
    ] {
        let answer = serde_json::to_value(decided.message(&item, false)).expect("JSON");
        // The server that asked knows the question.
        let (found, lost) = items("{}", &json!([question, answer]), GOES_ON);
        assert_eq!(found, json!([expected]));
        let no_one = "changed approval (a decision that no one made is sent as a no)";
        let expected_losses = if decided.decision == Decision::Cancel { vec![no_one] } else { Vec::new() };
        assert_eq!(lost, expected_losses);

        // Another one gets it with the answer.
        let (found, _) = items(FULL, &json!([question, answer]), "null");
        let asked = json!({ "type": "mcp_approval_request", "id": "mcpr_1", "server_label": "geo", "name": "delete",
                            "arguments": "{\"a\":1}" });
        assert_eq!(found, json!([asked, expected]));
    }

    // Without a decision it is left out.
    let (found, lost) = items(FULL, &json!([question]), "null");
    assert_eq!(found, json!([]));
    assert_eq!(lost, ["lost approval (a question without a decision is left out of the history)"]);
    // Nothing is approved by translation.
    let vague =
        json!([{ "type": "mcp_approval_response", "content": [{ "type": "data", "data": { "id": "mcpr_1" } }] }]);
    assert_eq!(items("{}", &vague, GOES_ON).0, json!([response(false, None)]));
}

#[test]
fn a_request_with_history_has_no_previous_response() {
    let body = json!({ "input": [said("user", "before"), said("assistant", "yes"), said("user", "now")] }).to_string();
    let found = body_of(&mut *turn_with_history("{}", &body, GOES_ON, 2));
    assert_eq!((&found["previous_response_id"], &found["store"]), (&Value::Null, &json!(true)));
    assert_eq!(found["input"].as_array().map(Vec::len), Some(3));
}

#[test]
fn an_operator_is_warned() {
    let warnings = |url: &str, options: &str| {
        let options: UpstreamOptions = serde_json::from_str(options).expect("options");
        ResponsesUpstream::connect(url, options).expect("a URL").warnings()
    };
    assert_eq!(warnings("http://a/v1", r#"{"model":"m"}"#), Vec::<String>::new());
    assert!(warnings("http://a", r#"{"model":"m"}"#)[0].contains("no path"));
    let wrong = serde_json::from_str::<UpstreamOptions>(r#"{"store":false}"#).expect("options");
    assert!(ResponsesUpstream::connect("http://a/v1", wrong).is_err());
    assert!(ResponsesUpstream::connect("ftp://a", UpstreamOptions::default()).is_err());
}
