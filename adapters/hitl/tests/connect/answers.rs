//! The effect of answers, and of decisions about them.

use interlingua_core::answer::CheckedDecision;
use interlingua_core::pending::{Decision, PendingKind};
use interlingua_core::{End, Json};
use serde_json::{Value, json};

use crate::support::{answering, body, completed, driven, response, sent, tale, turn, turn_of};

fn conversation() -> Value {
    json!([
        {"type": "system", "content": "Be short."},
        {"type": "human", "content": "before"},
        {"type": "ai", "content": "Old.", "tool_calls": []},
        {"type": "human", "content": "hi"},
        {"type": "ai", "content": "I look it up.", "id": "m1", "additional_kwargs": {"reasoning_content": "Hm."},
            "tool_calls": [{"name": "weather", "args": {"city": "Paris"}, "id": "c1", "type": "tool_call"}],
            "invalid_tool_calls": [{"name": "weather", "args": "{\"city\":", "id": "c2", "error": null}]},
        {"type": "tool", "content": "18 C", "tool_call_id": "c1", "name": "weather", "status": "success"},
        {"type": "tool", "content": "bad arguments", "tool_call_id": "c2", "status": "error"},
        {"type": "remove", "id": "x"},
        {"type": "ai", "content": [{"type": "text", "text": "It is "}, "18 C", {"type": "image_url", "image_url": {"url": "https://x/y"}}]}
    ])
}

fn interrupted(timestamp: f64, data: &Value) -> Value {
    response("interrupted", timestamp, json!({ "interrupt_data": data }))
}

fn action(config: &Value) -> Value {
    json!({
        "action_request": {"action": "send", "args": {"to": "x"}}, "config": config,
        "description": "Send?", "interrupt_type": "unknown", "more": 1
    })
}

#[test]
fn what_follows_the_last_query_is_the_answer() {
    let driven = driven(&mut *turn("{}"), [body(&completed(5.0, &conversation()))]);
    insta::assert_snapshot!(tale(&driven));
}

#[test]
fn each_question_becomes_a_pending_item() {
    let all = json!({"allow_accept": true, "allow_edit": false, "allow_respond": true, "allow_ignore": true});
    let mut tales = String::new();
    for data in [
        action(&Value::Null),
        action(&all),
        json!({"action_request": {"action": "locate", "args": {"precise": true}}, "interrupt_type": "tool"}),
        json!({
            "action_request": {"action": "color", "args": {}}, "description": "Which?", "interrupt_type": "input",
            "response_schema": {"type": "object"}
        }),
        json!({"action_request": {"action": "", "args": {}}, "description": "Log in.", "interrupt_type": "auth"}),
        json!({}),
        Value::Null,
        json!([1]),
    ] {
        let driven = driven(&mut *turn("{}"), [body(&interrupted(5.5, &data))]);
        tales.push_str(&format!("## {data}\n{}\n", tale(&driven)));
    }
    insta::assert_snapshot!(tales);
}

#[test]
fn decisions_have_the_words_of_the_service() {
    let mut first = turn("{}");
    let asked = driven(&mut *first, [body(&interrupted(5.0, &action(&Value::Null)))]);
    let state = first.session_state().expect("a state");
    let [item] = asked.record.run().pending().try_into().expect("one question");
    let decided = |decision| CheckedDecision {
        arguments: (decision == Decision::Edit).then(|| r#"{"to":"y"}"#.to_owned()),
        text: matches!(decision, Decision::Respond | Decision::Reject).then(|| "no".to_owned()),
        ..CheckedDecision::new(decision)
    };
    for (options, decision, word, args, losses) in [
        ("{}", Decision::Accept, "accept", Value::Null, 0),
        ("{}", Decision::Edit, "edit", json!({"args": {"to": "y"}}), 0),
        ("{}", Decision::Respond, "response", json!({"args": "no"}), 0),
        ("{}", Decision::Reject, "reject", Value::Null, 1),
        ("{}", Decision::Cancel, "reject", Value::Null, 1),
        (r#"{"words":"approve"}"#, Decision::Accept, "approve", Value::Null, 0),
        (r#"{"words":"approve"}"#, Decision::Edit, "edit", json!({"edited_args": {"to": "y"}}), 0),
        (r#"{"words":"approve"}"#, Decision::Respond, "response", json!({"message": "no"}), 0),
    ] {
        let mut turn = answering(options, &item, decided(decision), &state);
        let (request, sent) = sent(&mut *turn);
        assert_eq!(request.url, "http://agent.example/service/agent/resume");
        let mut expected = json!({"user_id": "s 1", "session_id": "hitl_1", "response_type": word});
        if !args.is_null() {
            expected["args"] = args;
        }
        assert_eq!(sent, expected);
        assert_eq!(turn.losses().len(), losses, "{decision:?}");
    }
}

#[test]
fn the_output_of_a_tool_and_a_value_are_answers() {
    let tool = json!({"action_request": {"action": "locate", "args": {}}, "interrupt_type": "tool"});
    let mut first = turn("{}");
    let asked = driven(&mut *first, [body(&interrupted(5.0, &tool))]);
    let [item] = asked.record.run().pending().try_into().expect("one call");
    assert_eq!((item.kind, item.id.as_str()), (PendingKind::Tool, "hitl_1:5"));
    let output = CheckedDecision { text: Some("here".into()), ..CheckedDecision::new(Decision::Respond) };
    let state = first.session_state().expect("a state");
    let (_, sent_output) = sent(&mut *answering("{}", &item, output, &state));
    assert_eq!(sent_output["args"], json!({"args": "here"}));
    assert_eq!(sent_output["session_id"], "hitl_1");

    let question = json!({"action_request": {"action": "color"}, "interrupt_type": "input"});
    let asked = driven(&mut *turn("{}"), [body(&interrupted(5.0, &question))]);
    let [item] = asked.record.run().pending().try_into().expect("one question");
    let value =
        CheckedDecision { payload: Json::parse(r#"{"color":"blue"}"#), ..CheckedDecision::new(Decision::Respond) };
    let (_, sent_value) = sent(&mut *answering("{}", &item, value, &Json::null()));
    assert_eq!(
        (&sent_value["args"], &sent_value["session_id"]),
        (&json!({"args": {"color": "blue"}}), &json!("hitl_1"))
    );
}

#[test]
fn messages_of_an_interrupted_answer_are_not_repeated() {
    let shown = json!([
        {"type": "human", "content": "hi"},
        {"type": "ai", "content": "First.", "tool_calls": [{"name": "send", "args": {}, "id": "c1"}]}
    ]);
    let mut asked = interrupted(5.0, &action(&Value::Null));
    asked["result"] = json!({ "messages": shown });
    let mut first = turn("{}");
    let waiting = driven(&mut *first, [body(&asked)]);
    assert_eq!(waiting.record.run().messages.len(), 3);
    let state = first.session_state().expect("a state");
    let own = r#""connector":{"session_id":"hitl_1","timestamp":5.0,"shown":1}}"#;
    assert!(state.text().ends_with(own), "{state:?}");
    let [item] = waiting.record.run().pending().try_into().expect("one question");

    let mut all = shown.as_array().expect("a list").clone();
    all.push(json!({"type": "tool", "content": "sent", "tool_call_id": "c1"}));
    all.push(json!({"type": "ai", "content": "Done."}));
    let mut second = answering("{}", &item, CheckedDecision::new(Decision::Accept), &state);
    let done = driven(&mut *second, [body(&completed(6.0, &json!(all)))]);
    let kinds: Vec<String> = done.record.run().messages.iter().map(|message| message.kind.to_string()).collect();
    assert_eq!(kinds, ["plugin_call_output", "message"]);
    let state = second.session_state().expect("a change");
    assert!(state.text().ends_with(r#""connector":{"session_id":"hitl_1","timestamp":6.0}}"#), "{state:?}");
}

#[test]
fn failures_of_the_agent_fail_the_run() {
    let failed = response("error", 5.0, json!({ "message": "The database is away." }));
    let driven = driven(&mut *turn("{}"), [body(&failed)]);
    let run = driven.record.run();
    assert_eq!(run.end, Some(End::Failed));
    assert_eq!(run.turns[0].error.as_ref().expect("an error").message, "The database is away.");
    // The session continues.
    let state = r#"{"session_id":"hitl_1","timestamp":5.0}"#;
    assert_eq!(turn_of("{}", r#"{"input":[{"role":"user","content":"again"}]}"#, state).session_state(), None);
}
