//! The request of a run, for every row of the table in docs/protocols/ag-ui.md.

use interlingua_core::Json;
use interlingua_core::connector::Next;
use interlingua_core::pending::Pending;
use serde_json::{Value, json};

use crate::support::{Case, connector, decision, driven, stream, summary};
use interlingua_core_testkit::Answer;

fn messages(request: &Value, options: &str, history: usize) -> Vec<Value> {
    let request = request.to_string();
    let sent = Case { options, request: &request, history, ..Case::default() }.sent();
    sent["messages"].as_array().cloned().expect("messages")
}

#[test]
fn servers_before_1_0_get_the_fields_that_they_demand() {
    let sent = Case { request: r#"{"input":[{"role":"user","content":"hi"}]}"#, ..Case::default() }.sent();
    assert_eq!(
        sent,
        json!({
            "threadId": "thread-1", "runId": "run-7", "state": {}, "context": [], "forwardedProps": {}, "tools": [],
            "messages": [{ "id": "id-0", "role": "user", "content": "hi" }]
        })
    );
    let Ok(Next::Send(request)) = Case::default().turn().next(0) else { panic!("a request") };
    assert_eq!((request.method, request.url.as_str()), ("POST", "http://agent/"));
    assert!(request.headers.contains(&("accept".into(), "text/event-stream, application/json".to_owned())));
}

#[test]
fn fields_of_this_protocol_pass_through() {
    let request = json!({
        "input": [{ "role": "user", "content": "hi" }], "state": { "a": [1.50] }, "parent_run_id": "run-6",
        "context": [{ "description": "d", "value": "v" }], "forwarded_props": { "x": null },
        "tools": [
            { "type": "function", "function": { "name": "f", "description": "F", "parameters": { "type": "object" } } },
            { "type": "function", "name": "g" },
            { "type": "web_search" }
        ],
        "temperature": 0.5, "tool_choice": "none", "text": { "format": { "type": "json_object" } }
    })
    .to_string();
    let mut turn = Case { options: r#"{"protocol_version":"1.0"}"#, request: &request, ..Case::default() }.turn();
    let sent = crate::support::body_of(&mut *turn);
    assert_eq!(sent["protocolVersion"], "1.0");
    assert_eq!(sent["state"].to_string(), r#"{"a":[1.5]}"#);
    assert_eq!((&sent["parentRunId"], &sent["forwardedProps"]), (&json!("run-6"), &json!({ "x": null })));
    assert_eq!(sent["context"], json!([{ "description": "d", "value": "v" }]));
    assert_eq!(
        sent["tools"],
        json!([
            { "name": "f", "description": "F", "parameters": { "type": "object" } },
            { "name": "g", "description": "", "parameters": { "type": "object", "properties": {} } }
        ])
    );
    let losses: Vec<String> = turn.losses().iter().map(ToString::to_string).collect();
    assert_eq!(
        losses,
        [
            "tool_declaration (the protocol declares functions alone)",
            "sampling (the protocol has no parameters of the model)",
            "tool_choice (the protocol does not choose among tools)",
            "output_format (the protocol has no form of the answer)"
        ]
    );
}

#[test]
fn a_later_turn_of_a_run_is_a_run_of_its_own() {
    let request = crate::support::request(r#"{"input":[]}"#);
    let state = Json::null();
    let turn = interlingua_core::connector::TurnRequest::new(&request, &state, &[]).with_turn(2);
    let mut turn = connector("{}").turn(&turn).expect("it can be expressed");
    assert_eq!(crate::support::body_of(&mut *turn)["runId"], "run-7-2");
}

#[test]
fn media_of_users_are_parts() {
    let content = json!([
        { "type": "text", "text": "look" },
        { "type": "image", "image_url": "data:image/png;base64,QUJD" },
        { "type": "image", "image_url": "https://a/x.png" },
        { "type": "audio", "data": "QUJD", "format": "mp3" },
        { "type": "video", "video_url": "https://a/x.mp4" },
        { "type": "file", "file_data": "QUJD", "filename": "a.bin" },
        { "type": "file", "file_url": "https://a/a.pdf" },
        { "type": "file", "file_id": "file-1" },
        { "type": "data", "data": { "n": 1 } }
    ]);
    let request = json!({ "input": [{ "role": "user", "content": content }] });
    let typed = messages(&request, "{}", 0)[0]["content"].clone();
    assert_eq!(
        typed,
        json!([
            { "type": "text", "text": "look" },
            { "type": "image", "source": { "type": "data", "value": "QUJD", "mimeType": "image/png" } },
            { "type": "image", "source": { "type": "url", "value": "https://a/x.png" } },
            { "type": "audio", "source": { "type": "data", "value": "QUJD", "mimeType": "audio/mp3" } },
            { "type": "video", "source": { "type": "url", "value": "https://a/x.mp4" } },
            { "type": "document", "source": { "type": "data", "value": "QUJD", "mimeType": "application/octet-stream" }, "metadata": { "filename": "a.bin" } },
            { "type": "document", "source": { "type": "url", "value": "https://a/a.pdf" } },
            { "type": "document", "source": { "type": "file", "value": "file-1" } },
            { "type": "text", "text": "{\"n\":1}" }
        ])
    );
    let binary = messages(&request, r#"{"parts":"binary"}"#, 0)[0]["content"].clone();
    assert_eq!(binary[1], json!({ "type": "binary", "mimeType": "image/png", "data": "QUJD" }));
    assert_eq!(binary[2], json!({ "type": "binary", "mimeType": "image/png", "url": "https://a/x.png" }));
    assert_eq!(
        binary[5],
        json!({ "type": "binary", "mimeType": "application/octet-stream", "data": "QUJD", "filename": "a.bin" })
    );
    assert_eq!(binary[7], json!({ "type": "binary", "mimeType": "application/octet-stream", "id": "file-1" }));
}

/// A conversation with everything in it. The first eight messages are history.
fn conversation() -> Value {
    let call = |id: &str, metadata: Value| {
        json!({ "type": "plugin_call", "role": "assistant", "metadata": metadata,
            "content": [{ "type": "data", "data": { "call_id": id, "name": "look", "arguments": "{\"x\":1}" } }] })
    };
    let output = |id: &str, metadata: Value| {
        json!({ "type": "plugin_call_output", "role": "tool", "metadata": metadata,
            "content": [{ "type": "data", "data": { "call_id": id, "output": "seen" } }] })
    };
    let own = |id: &str| json!({ "id": id, "origin": "ag-ui/travel" });
    let sealed = json!({ "id": "r1", "origin": "ag-ui/travel", "encrypted_content": "secret" });
    let others = json!({ "id": "r2", "origin": "ag-ui/other", "encrypted_content": "secret" });
    json!({ "input": [
        { "role": "user", "content": "look" },
        { "type": "reasoning", "role": "assistant", "content": "Hm", "metadata": sealed },
        { "role": "assistant", "content": "I look.", "metadata": own("m1") },
        call("a", own("m1")),
        call("b", own("m1")),
        output("b", sealed.clone()),
        output("a", others),
        { "role": "assistant", "content": "Seen.", "metadata": json!({ "id": "m9", "origin": "responses/other" }) },
        { "role": "user", "content": "and now?" }
    ] })
}

#[test]
fn a_history_has_whole_pairs_and_the_agents_own_ids() {
    let sent = messages(&conversation(), "{}", 8);
    assert_eq!(
        sent,
        [
            json!({ "id": "id-0", "role": "user", "content": "look" }),
            json!({ "id": "m1", "role": "assistant", "content": "I look.", "toolCalls": [
                { "id": "a", "type": "function", "function": { "name": "look", "arguments": "{\"x\":1}" } },
                { "id": "b", "type": "function", "function": { "name": "look", "arguments": "{\"x\":1}" } }
            ] }),
            json!({ "id": "id-6", "role": "tool", "toolCallId": "a", "content": "seen" }),
            json!({ "id": "r1", "role": "tool", "toolCallId": "b", "content": "seen", "encryptedValue": "secret" }),
            json!({ "id": "id-7", "role": "assistant", "content": "Seen." }),
            json!({ "id": "id-8", "role": "user", "content": "and now?" }),
        ]
    );
    let with_reasoning = messages(&conversation(), r#"{"reasoning_input":"send"}"#, 8);
    assert_eq!(
        with_reasoning[1],
        json!({ "id": "r1", "role": "reasoning", "content": "Hm", "encryptedValue": "secret" })
    );
    assert_eq!(with_reasoning.len(), sent.len() + 1);
}

#[test]
fn an_agent_that_remembers_gets_outputs_alone() {
    let output = json!({ "type": "function_call_output", "role": "tool",
        "content": [{ "type": "data", "data": { "call_id": "c1", "output": "48.85" } }] });
    let alone = json!({ "input": [output] });
    assert_eq!(
        messages(&alone, "{}", 0),
        [json!({ "id": "id-0", "role": "tool", "toolCallId": "c1", "content": "48.85" })]
    );
    // With a history, the call of such an output was cut off, and servers refuse it.
    let after_history = json!({ "input": [{ "role": "user", "content": "hi" }, output] });
    assert_eq!(messages(&after_history, "{}", 1).len(), 1);
}

#[test]
fn the_call_that_a_decision_concerns_stays_without_an_output() {
    let call = |id: &str| {
        json!({ "type": "plugin_call", "role": "assistant",
            "content": [{ "type": "data", "data": { "call_id": id, "name": "delete_file", "arguments": "{}" } }] })
    };
    let data = json!({ "id": "int-1", "name": "delete_file", "arguments": "{}", "interrupt": { "kind": "approval", "call_id": "c1" } });
    let request =
        json!({ "type": "mcp_approval_request", "role": "assistant", "content": [{ "type": "data", "data": data }] });
    let item = Pending::parse(&Json::from_serialize(&data)).expect("an item");
    let input = json!({ "input": [
        { "role": "user", "content": "delete" }, call("c0"), call("c1"), request,
        decision("int-1", json!({ "decision": "accept" }))
    ] })
    .to_string();
    let sent = Case { request: &input, history: 4, answered: &[item], ..Case::default() }.sent();
    let ids: Vec<&Value> =
        sent["messages"][1]["toolCalls"].as_array().expect("calls").iter().map(|call| &call["id"]).collect();
    assert_eq!((sent["messages"].as_array().map(Vec::len), ids), (Some(2), vec![&json!("c1")]));
    assert_eq!(
        sent["resume"],
        json!([{ "interruptId": "int-1", "status": "resolved", "payload": { "approved": true } }])
    );
}

#[test]
fn an_answer_that_decides_nothing_is_refused() {
    let data = json!({ "id": "int-1", "name": "f", "arguments": "{}", "interrupt": { "kind": "approval" } });
    let item = Pending::parse(&Json::from_serialize(&data)).expect("an item");
    let request = crate::support::request(
        r#"{"input":[{"type":"mcp_approval_response","role":"user","content":[{"type":"data","data":{"id":"int-1"}}]}]}"#,
    );
    let (state, items) = (Json::null(), [item]);
    let turn = interlingua_core::connector::TurnRequest::new(&request, &state, &items);
    let fault = connector("{}").turn(&turn).err().expect("a fault");
    assert_eq!(fault.code(), "ANSWER_UNDECIDED");
}

#[test]
fn capabilities_follow_the_options() {
    let with = |options: &str| connector(options).capabilities();
    assert_eq!(with("{}").protocol_events, Some("ag-ui"));
    assert_eq!(with(r#"{"events":"drop"}"#).protocol_events, None);
    assert!(with("{}").reasoning && !with(r#"{"reasoning":"drop"}"#).reasoning);
    assert!(with("{}").message_ids && with("{}").client_tools && with("{}").asks.approval);
}

#[test]
fn options_select_the_kept_content() {
    let events = [
        r#"REASONING_MESSAGE_START {"messageId":"r","role":"reasoning"}"#,
        r#"REASONING_MESSAGE_CONTENT {"messageId":"r","delta":"Hm"}"#,
        r#"REASONING_MESSAGE_END {"messageId":"r"}"#,
        r#"STATE_SNAPSHOT {"snapshot":{},"rawEvent":{"big":1}}"#,
        r#"RAW {"event":{}}"#,
        "RUN_FINISHED",
    ];
    let kept = |options: &str, protocol_events: bool| {
        let case = Case { options, protocol_events, ..Case::default() };
        let mut turn = case.turn();
        let record = driven(&mut *turn, [Answer::stream(&stream(&events))]).record;
        let kinds: Vec<String> = record.run().messages.iter().map(|message| message.kind.to_string()).collect();
        (kinds.join(" "), summary(&record, &*turn))
    };
    assert_eq!(kept("{}", true).0, "reasoning protocol_event");
    assert_eq!(kept("{}", false).0, "reasoning");
    assert_eq!(kept(r#"{"events":"keep"}"#, false).0, "reasoning protocol_event");
    assert_eq!(kept(r#"{"events":"drop"}"#, true).0, "reasoning");
    assert_eq!(kept(r#"{"reasoning":"drop"}"#, true).0, "protocol_event");
    assert!(!kept("{}", true).1.contains("big"));
    let (kinds, all) = kept(r#"{"events":"all"}"#, false);
    assert_eq!(kinds, "reasoning protocol_event protocol_event");
    assert!(all.contains(r#""rawEvent":{"big":1}"#) && !all.contains("Lost"));
}
