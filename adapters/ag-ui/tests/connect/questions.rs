//! Questions of agents in every form, and the answers to them.

use interlingua_core::Json;
use interlingua_core::pending::Pending;
use interlingua_core_testkit::Answer;
use serde_json::{Value, json};

use crate::support::{Case, decision, driven, pending, stream, summary};

const CALL: &[&str] = &[
    r#"TOOL_CALL_START {"toolCallId":"c1","toolCallName":"delete_file","parentMessageId":"m1"}"#,
    r#"TOOL_CALL_ARGS {"toolCallId":"c1","delta":"{\"path\":\"a.txt\"}"}"#,
    r#"TOOL_CALL_END {"toolCallId":"c1"}"#,
];

/// The items that a run with these interrupts ends with.
fn interrupted(interrupts: &Value) -> Vec<Pending> {
    let end = format!(r#"RUN_FINISHED {{"outcome":{{"type":"interrupt","interrupts":{interrupts}}}}}"#);
    let events: Vec<&str> = CALL.iter().copied().chain([end.as_str()]).collect();
    pending(&events, "{}")
}

/// The items that a run with a custom event ends with.
fn asked_in_event(value: &Value, options: &str) -> Vec<Pending> {
    let event = format!(r#"CUSTOM {{"name":"on_interrupt","value":{value}}}"#);
    let events: Vec<&str> = CALL.iter().copied().chain([event.as_str(), "RUN_FINISHED"]).collect();
    pending(&events, options)
}

/// The answer for decisions about all items.
fn sent(items: &[Pending], options: &str, decisions: &[Value]) -> Value {
    let input: Vec<Value> =
        items.iter().zip(decisions).map(|(item, extension)| decision(&item.id, extension.clone())).collect();
    let request = json!({ "input": input }).to_string();
    Case { options, request: &request, answered: items, ..Case::default() }.sent()
}

fn line(items: &[Pending]) -> String {
    let words = |item: &Pending| {
        let decisions: Vec<&str> = item.decisions.iter().map(|decision| decision.as_str()).collect();
        format!(
            "{:?} {} {} {} call {:?} message {:?} [{}]",
            item.kind,
            item.id,
            item.name,
            item.arguments,
            item.call_id.as_deref().unwrap_or(""),
            item.message.as_deref().unwrap_or(""),
            decisions.join(" ")
        )
    };
    items.iter().map(words).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_reason_says_the_kind_unless_the_payload_does() {
    let action = json!({ "action_request": { "action": "delete_file", "args": { "path": "a.txt" } } });
    for (interrupt, expected) in [
        (json!({ "id": "i", "reason": "tool_call", "toolCallId": "c1" }), "Approval delete_file c1"),
        (json!({ "id": "i", "reason": "confirmation", "message": "Sure?" }), "Approval confirmation "),
        (json!({ "id": "i", "reason": "input_required", "message": "Which?" }), "Input input_required "),
        (json!({ "id": "i", "reason": "acme:review", "message": "Which?" }), "Input acme:review "),
        (json!({ "id": "i", "reason": "acme:review", "toolCallId": "c1" }), "Approval delete_file c1"),
        (
            json!({ "id": "i", "reason": "langgraph:interrupt", "metadata": { "langgraph": { "raw": action } } }),
            "Approval delete_file c1",
        ),
        (
            json!({ "id": "i", "reason": "x", "metadata": { "langgraph": { "raw": { "value": action } } } }),
            "Approval delete_file c1",
        ),
        (json!({ "id": "i", "reason": "x", "metadata": { "payload": [action] } }), "Approval delete_file c1"),
        (json!({ "id": "i", "metadata": { "payload": "Which?" } }), "Input input_required "),
        (json!({ "id": "i" }), "Input input_required "),
    ] {
        let items = interrupted(&json!([interrupt]));
        let [item] = items.as_slice() else { panic!("{interrupt}: {}", line(&items)) };
        let call = item.call_id.as_deref().unwrap_or("");
        assert_eq!(format!("{:?} {} {call}", item.kind, item.name), expected, "{interrupt}");
        assert_eq!(item.id, "i");
    }
}

#[test]
fn an_item_contains_the_fields_of_the_interrupt() {
    let schema = json!({ "type": "object", "properties": { "approved": { "type": "boolean" }, "editedArgs": { "type": "object" } } });
    let items = interrupted(&json!([{
        "id": "int_1", "reason": "tool_call", "toolCallId": "c1", "message": "May I?", "responseSchema": schema,
        "expiresAt": "2027-01-01T00:00:00Z", "metadata": { "level": 3 }, "subagentRunId": "s1"
    }]));
    assert_eq!(
        line(&items),
        r#"Approval int_1 delete_file {"path":"a.txt"} call "c1" message "May I?" [accept edit reject cancel]"#
    );
    assert_eq!(items[0].expires_at.as_deref(), Some("2027-01-01T00:00:00Z"));
    assert_eq!(items[0].response_schema.as_ref().map(Json::text), Some(schema.to_string().as_str()));
    let extension: Value = items[0].extension.as_ref().and_then(Json::decode).expect("an extension");
    assert_eq!(extension["metadata"], json!({ "level": 3 }));

    // Without a place for new arguments, none are offered.
    let items = interrupted(&json!([{ "id": "int_1", "reason": "tool_call", "toolCallId": "c1" }]));
    assert!(line(&items).ends_with("[accept reject cancel]"));
}

#[test]
fn an_outcome_counts_and_the_custom_event_before_it_does_not() {
    let events = [
        r#"CUSTOM {"name":"on_interrupt","value":"\"Which color?\""}"#,
        r#"RUN_FINISHED {"outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"input_required"}]}}"#,
    ];
    assert_eq!(line(&pending(&events, "{}")), r#"Input i input_required {} call "" message "" [respond]"#);
    assert!(interrupted(&json!([])).is_empty());
    // A run that failed or was stopped has no pending items.
    for end in ["RUN_ERROR {\"message\":\"no\"}", "RUN_FINISHED {\"outcome\":{\"type\":\"cancelled\"}}"] {
        assert!(pending(&[events[0], end], "{}").is_empty());
    }
}

#[test]
fn custom_events_ask_in_every_form() {
    let action =
        json!({ "action_request": { "action": "delete_file", "args": { "path": "a.txt" } }, "description": "May I?" });
    for (value, expected) in [
        (action.clone(), r#"Approval I delete_file {"path":"a.txt"} call "c1" message "May I?" [accept reject]"#),
        (
            json!(action.to_string()),
            r#"Approval I delete_file {"path":"a.txt"} call "c1" message "May I?" [accept reject]"#,
        ),
        (json!("Which color?"), r#"Input I input_required "Which color?" call "" message "Which color?" [respond]"#),
        (
            json!("\"Which color?\""),
            r#"Input I input_required "\"Which color?\"" call "" message "\"Which color?\"" [respond]"#,
        ),
        (
            json!({ "question": "Which?" }),
            r#"Input I input_required {"question":"Which?"} call "" message "Which?" [respond]"#,
        ),
        (json!(7), r#"Input I input_required 7 call "" message "" [respond]"#),
        (Value::Null, r#"Input I input_required null call "" message "" [respond]"#),
    ] {
        let items = asked_in_event(&value, "{}");
        let [item] = items.as_slice() else { panic!("{value}: {}", line(&items)) };
        assert_eq!(line(&items).replace(&item.id, "I"), expected, "{value}");
        // Asked again, it is the same item.
        assert_eq!(asked_in_event(&value, "{}")[0].id, item.id);
    }

    let two = json!({ "action_requests": [{ "name": "a", "args": {} }, { "name": "b", "args": { "x": 1 } }] });
    let items = asked_in_event(&two, "{}");
    assert_eq!(items.iter().map(|item| item.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn an_outcome_is_answered_in_resume() {
    let schema = json!({ "properties": { "approved": {}, "editedArgs": {}, "reason": {} }, "required": ["approved"] });
    let approval =
        interrupted(&json!([{ "id": "i", "reason": "tool_call", "toolCallId": "c1", "responseSchema": schema }]));
    for (extension, expected) in [
        (json!({ "decision": "accept" }), json!({ "status": "resolved", "payload": { "approved": true } })),
        (
            json!({ "decision": "reject", "text": "no" }),
            json!({ "status": "resolved", "payload": { "approved": false, "reason": "no" } }),
        ),
        (
            json!({ "decision": "edit", "arguments": "{\"path\":\"b.txt\"}" }),
            json!({ "status": "resolved", "payload": { "approved": true, "editedArgs": { "path": "b.txt" } } }),
        ),
        (json!({ "decision": "cancel" }), json!({ "status": "cancelled" })),
        // The client's own answer is passed on unchanged, if it fits.
        (
            json!({ "decision": "accept", "payload": { "approved": true, "extra": 1 } }),
            json!({ "status": "resolved", "payload": { "approved": true, "extra": 1 } }),
        ),
        (
            json!({ "decision": "accept", "payload": { "type": "accept" } }),
            json!({ "status": "resolved", "payload": { "approved": true } }),
        ),
    ] {
        let sent = sent(&approval, "{}", std::slice::from_ref(&extension));
        let mut expected = expected;
        expected["interruptId"] = json!("i");
        assert_eq!(sent["resume"], json!([expected]), "{extension}");
        assert_eq!(sent["messages"], json!([]), "{extension}");
    }

    let question =
        interrupted(&json!([{ "id": "q", "reason": "input_required", "responseSchema": { "type": "object" } }]));
    let answer = json!({ "decision": "respond", "payload": { "color": "blue" } });
    assert_eq!(
        sent(&question, "{}", &[answer])["resume"],
        json!([{ "interruptId": "q", "status": "resolved", "payload": { "color": "blue" } }])
    );
}

#[test]
fn all_questions_of_a_run_are_answered_together() {
    let two = interrupted(&json!([
        { "id": "i1", "reason": "confirmation" },
        { "id": "i2", "reason": "x", "metadata": { "payload": { "action_requests": [
            { "name": "a", "args": {} }, { "name": "b", "args": {} }
        ] } } }
    ]));
    assert_eq!(two.iter().map(|item| item.id.as_str()).collect::<Vec<_>>(), ["i1", "i2:0", "i2:1"]);
    let decisions = [
        json!({ "decision": "accept" }),
        json!({ "decision": "accept" }),
        json!({ "decision": "reject", "text": "no" }),
    ];
    assert_eq!(
        sent(&two, "{}", &decisions)["resume"],
        json!([
            { "interruptId": "i1", "status": "resolved", "payload": { "approved": true } },
            { "interruptId": "i2", "status": "resolved", "payload": { "decisions": [{ "type": "approve" }, { "type": "reject", "message": "no" }] } }
        ])
    );
}

#[test]
fn decisions_about_several_actions_have_the_order_of_the_actions() {
    let asked = interrupted(&json!([{ "id": "i", "reason": "x", "metadata": { "payload": { "action_requests": [
        { "name": "a", "args": { "n": 1 } }, { "name": "a", "args": { "n": 1 } }, { "name": "b", "args": {} }
    ] } } }]));
    let answers = [
        decision(&asked[0].id, json!({ "decision": "accept" })),
        decision(&asked[1].id, json!({ "decision": "reject" })),
        decision(&asked[2].id, json!({ "decision": "accept" })),
    ];
    for order in [[0, 1, 2], [1, 0, 2], [2, 1, 0], [1, 2, 0]] {
        let input: Vec<&Value> = order.iter().map(|place| &answers[*place]).collect();
        let request = json!({ "input": input }).to_string();
        let sent = Case { request: &request, answered: &asked, ..Case::default() }.sent();
        assert_eq!(
            sent["resume"][0]["payload"],
            json!({ "decisions": [{ "type": "approve" }, { "type": "reject" }, { "type": "approve" }] }),
            "{order:?}"
        );
    }
}

#[test]
fn an_ambiguous_answer_of_the_client_is_refused() {
    let schema = json!({ "properties": { "approved": {}, "editedArgs": {} } });
    let asked =
        interrupted(&json!([{ "id": "i", "reason": "tool_call", "toolCallId": "c1", "responseSchema": schema }]));
    for (answer, expected) in [
        (
            json!({ "decision": "edit", "arguments": "{\"path\":\"b\"}",
                "payload": { "approved": true, "arguments": { "path": "b" } } }),
            json!({ "approved": true, "editedArgs": { "path": "b" } }),
        ),
        (
            json!({ "decision": "reject", "payload": { "approved": false, "editedArgs": { "path": "b" } } }),
            json!({ "approved": false }),
        ),
        (
            json!({ "decision": "accept", "payload": { "approved": true, "arguments": { "path": "a.txt" } } }),
            json!({ "approved": true }),
        ),
        (
            json!({ "decision": "accept", "payload": { "approved": true, "note": "x" } }),
            json!({ "approved": true, "note": "x" }),
        ),
    ] {
        assert_eq!(sent(&asked, "{}", std::slice::from_ref(&answer))["resume"][0]["payload"], expected, "{answer}");
    }
}

#[test]
fn a_custom_event_is_answered_by_a_command_or_as_the_option_says() {
    let config = json!({ "allow_accept": true, "allow_respond": true });
    let action = json!({ "action_request": { "action": "delete_file", "args": {} }, "config": config });
    let asked = asked_in_event(&action, "{}");
    let respond = json!({ "decision": "respond", "text": "tell her" });
    let answered = |options: &str| sent(&asked, options, std::slice::from_ref(&respond));
    let payload = json!({ "type": "response", "args": "tell her" });

    let command = answered("{}");
    assert_eq!(
        (&command["forwardedProps"], &command["resume"]),
        (&json!({ "command": { "resume": payload } }), &Value::Null)
    );
    let standard = answered(r#"{"resume_style":"standard"}"#);
    assert_eq!(standard["resume"][0]["payload"], payload);
    assert_eq!(standard["forwardedProps"], json!({}));

    let outcome = interrupted(&json!([{ "id": "i", "reason": "confirmation" }]));
    let command = sent(&outcome, r#"{"resume_style":"command"}"#, &[json!({ "decision": "accept" })]);
    assert_eq!(command["forwardedProps"], json!({ "command": { "resume": { "approved": true } } }));

    // The answer is a part of what the client sends besides.
    let input = decision(&asked[0].id, json!({ "decision": "accept" }));
    let request = json!({ "input": [input], "forwarded_props": { "a": 1, "command": { "b": 2 } } }).to_string();
    let sent = Case { request: &request, answered: &asked, ..Case::default() }.sent();
    let answer = json!({ "type": "accept", "args": null });
    assert_eq!(sent["forwardedProps"], json!({ "a": 1, "command": { "b": 2, "resume": answer } }));
}

#[test]
fn several_custom_events_are_answered_by_the_ids_of_their_interrupts() {
    let asked = pending(
        &[
            r#"CUSTOM {"name":"on_interrupt","value":"First?","rawEvent":{"id":"x1"}}"#,
            r#"CUSTOM {"name":"on_interrupt","value":"Second?","rawEvent":{"id":"x2"}}"#,
            "RUN_FINISHED",
        ],
        "{}",
    );
    let decisions = [json!({ "decision": "respond", "text": "1" }), json!({ "decision": "respond", "text": "2" })];
    assert_eq!(sent(&asked, "{}", &decisions)["forwardedProps"]["command"]["resume"], json!({ "x1": "1", "x2": "2" }));
}

#[test]
fn calls_that_ask_by_being_left_unanswered_are_answered_by_their_output() {
    let options = r#"{"confirm_calls":["delete_file"],"input_calls":["paint"]}"#;
    let paint = [
        r#"TOOL_CALL_START {"toolCallId":"c2","toolCallName":"paint"}"#,
        r#"TOOL_CALL_ARGS {"toolCallId":"c2","delta":"{\"what\":\"wall\"}"}"#,
        "RUN_FINISHED",
    ];
    let events: Vec<&str> = CALL.iter().copied().chain(paint).collect();
    let asked = pending(&events, options);
    assert_eq!(
        line(&asked),
        "Approval c1-confirmation delete_file {\"path\":\"a.txt\"} call \"c1\" message \"\" [accept reject]\n\
         Input c2-confirmation input_required {\"name\":\"paint\",\"arguments\":{\"what\":\"wall\"}} call \"c2\" \
         message \"The tool paint needs more arguments.\" [respond]"
    );

    let outputs = |decisions: &[Value]| {
        let sent = sent(&asked, options, decisions);
        assert_eq!(sent["resume"], Value::Null);
        let messages = sent["messages"].as_array().cloned().expect("messages");
        messages
            .iter()
            .map(|message| format!("{} {} {}", message["role"], message["toolCallId"], message["content"]))
            .collect::<Vec<_>>()
    };
    let color = json!({ "decision": "respond", "payload": { "color": "blue" } });
    assert_eq!(
        outputs(&[json!({ "decision": "accept" }), color.clone()]),
        [r#""tool" "c1" "{\"accepted\":true}""#, r#""tool" "c2" "{\"values\":{\"color\":\"blue\"}}""#]
    );
    let chosen = json!({ "decision": "respond", "payload": { "selections": { "q": ["a"] } } });
    assert_eq!(
        outputs(&[json!({ "decision": "reject", "text": "no" }), chosen]),
        [r#""tool" "c1" "{\"accepted\":false,\"note\":\"no\"}""#, r#""tool" "c2" "{\"selections\":{\"q\":[\"a\"]}}""#]
    );
}

#[test]
fn a_call_announced_before_the_question_is_not_announced_again() {
    let asked = interrupted(&json!([{ "id": "i", "reason": "tool_call", "toolCallId": "c1" }]));
    let request = json!({ "input": [decision("i", json!({ "decision": "accept" }))] }).to_string();
    let case = Case { request: &request, answered: &asked, ..Case::default() };
    let result = [
        r#"TOOL_CALL_RESULT {"toolCallId":"c1","messageId":"r1","content":"deleted"}"#,
        r#"TEXT_MESSAGE_CHUNK {"messageId":"m2","delta":"Done."}"#,
        "RUN_FINISHED",
    ];
    let again: Vec<&str> = CALL.iter().copied().chain(result).collect();
    let read = case.read(Answer::stream(&stream(&again)));
    insta::assert_snapshot!(read, @r#"
    r1 tool plugin_call_output completed
      data {"call_id":"c1","name":"delete_file","output":"deleted"}
      metadata {"id":"r1","origin":"ag-ui/travel"}
    m2 assistant message completed
      text "Done."
      metadata {"id":"m2","origin":"ag-ui/travel"}
    completed
    "#);
    assert_eq!(case.read(Answer::stream(&stream(&result))), read);
}

#[test]
fn another_call_than_the_approved_one_is_reported() {
    let both = [
        CALL,
        &[
            r#"TOOL_CALL_START {"toolCallId":"c2","toolCallName":"delete_file"}"#,
            r#"TOOL_CALL_ARGS {"toolCallId":"c2","delta":"{\"path\":\"b.txt\"}"}"#,
            r#"RUN_FINISHED {"outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"x","metadata":{"payload":{"action_request":{"action":"delete_file","args":{"path":"a.txt"}}}}}]}}"#,
        ],
    ]
    .concat();
    let asked = pending(&both, "{}");
    assert_eq!(asked[0].call_id.as_deref(), Some("c1"));

    let request = json!({ "input": [decision("i", json!({ "decision": "accept" }))] }).to_string();
    let mut turn = Case { request: &request, answered: &asked, ..Case::default() }.turn();
    let answer = stream(&[r#"TOOL_CALL_RESULT {"toolCallId":"c2","content":"deleted"}"#, "RUN_FINISHED"]);
    let record = driven(&mut *turn, [Answer::stream(&answer)]).record;
    let read = summary(&record, &*turn);
    assert!(
        read.contains("Changed approval: the agent ran another call of the tool than the one that was approved ×1"),
        "{read}"
    );
}

#[test]
fn a_confirmation_of_adk_is_an_approval_that_takes_yes_and_no() {
    let arguments = json!({
        "originalFunctionCall": { "id": "c1", "name": "order", "args": { "tons": 40 } },
        "toolConfirmation": { "hint": "Order 40 tons?", "confirmed": false }
    });
    let events = [
        r#"TOOL_CALL_START {"toolCallId":"adk-1","toolCallName":"adk_request_confirmation"}"#.to_owned(),
        format!("TOOL_CALL_ARGS {}", json!({ "toolCallId": "adk-1", "delta": arguments.to_string() })),
        r#"TOOL_CALL_END {"toolCallId":"adk-1"}"#.to_owned(),
        "RUN_FINISHED".to_owned(),
    ];
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let asked = pending(&events, "{}");
    assert_eq!(
        line(&asked),
        r#"Approval adk-1-confirmation order {"tons":40} call "c1" message "Order 40 tons?" [accept reject]"#
    );
    for (decision, expected) in [("accept", true), ("reject", false)] {
        let sent = sent(&asked, "{}", &[json!({ "decision": decision, "text": "yes" })]);
        let message = &sent["messages"][0];
        assert_eq!((&message["role"], &message["toolCallId"]), (&json!("tool"), &json!("adk-1")));
        let content: Value = serde_json::from_str(message["content"].as_str().expect("a text")).expect("JSON");
        assert_eq!(content, json!({ "confirmed": expected }));
    }
}
