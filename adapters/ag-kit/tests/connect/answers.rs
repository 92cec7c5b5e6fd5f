//! The rows of the mapping: the effect of each event, and of answers to questions.

use interlingua_core::answer::CheckedDecision;
use interlingua_core::pending::{Decision, Pending, PendingKind};
use interlingua_core::{End, Json};

use crate::support::{answering, driven, record, request, sent, stream, turn, turn_of};

const ASK: &str = r#"{"type":"interrupt","id":"i1","reason":"agent requested interrupt","payload":PAYLOAD}"#;
const ACTION: &str = r#"{"action_request":{"action":"send","args":{"to":"x"}},"config":null,"description":"Send?"}"#;

fn asked(payload: &str) -> Vec<Pending> {
    record(&[&ASK.replace("PAYLOAD", payload), "[DONE]"]).run().pending()
}

fn kinds(lines: &[&str]) -> Vec<String> {
    let record = record(lines);
    record.run().messages.iter().map(|message| message.kind.to_string()).collect()
}

#[test]
fn a_call_is_the_clients_if_it_is_declared_or_has_no_result() {
    let call = |name: &str| {
        [
            format!(r#"{{"type":"tool-call-start","toolCallId":"c1","toolCallName":"{name}"}}"#),
            r#"{"type":"tool-call-args","toolCallId":"c1","delta":"{}"}"#.to_owned(),
            r#"{"type":"tool-call-end","toolCallId":"c1"}"#.to_owned(),
        ]
    };
    let lines = |name: &str, tail: &[&str]| {
        let call = call(name);
        let all: Vec<&str> = call.iter().map(String::as_str).chain(tail.iter().copied()).collect();
        kinds(&all)
    };
    let result = r#"{"type":"tool-result","toolCallId":"c1","result":"ok"}"#;
    assert_eq!(lines("locate", &["[DONE]"]), ["function_call"]);
    assert_eq!(lines("other", &["[DONE]"]), ["function_call"]);
    assert_eq!(lines("other", &[result, "[DONE]"]), ["plugin_call", "plugin_call_output"]);
    assert_eq!(lines("locate", &[result, "[DONE]"]), ["function_call", "function_call_output"]);
    let ask = ASK.replace("PAYLOAD", "\"Which?\"");
    assert_eq!(lines("other", &[&ask, "[DONE]"]), ["plugin_call", "mcp_approval_request"]);

    let call = call("other");
    let lines: Vec<&str> = call.iter().map(String::as_str).chain(["[DONE]"]).collect();
    let (driven, _) = driven(&mut *turn(r#"{"unanswered_calls":"plugin"}"#), stream(&lines));
    assert!(driven.record.run().pending().is_empty());
}

#[test]
fn the_tools_of_a_session_stay_declared() {
    let mut first = turn("{}");
    let _ = driven(&mut *first, stream(&["[DONE]"]));
    let state = first.session_state().expect("a state");
    assert_eq!(state.text(), r#"{"tools":["locate"]}"#);

    let without_tools = request(r#"{"input":[{"role":"user","content":"again"}]}"#);
    let mut second = turn_of("{}", &without_tools, state.text());
    let call = r#"{"type":"tool-call-start","toolCallId":"c1","toolCallName":"locate"}"#;
    let (driven, _) = driven(&mut *second, stream(&[call, "[DONE]"]));
    assert_eq!(driven.record.run().messages[0].announced.to_string(), "function_call");
    let kept = second.session_state().expect("the id of the call");
    assert!(kept.text().starts_with(r#"{"tools":["locate"],"call_ids":"#), "{kept:?}");
}

#[test]
fn payloads_contain_the_question() {
    for (payload, kind, message, schema) in [
        (ACTION, PendingKind::Approval, Some("Send?"), false),
        ("\"Which color?\"", PendingKind::Input, Some("Which color?"), false),
        (r#"{"message":"Which?","response_schema":{"type":"object"}}"#, PendingKind::Input, Some("Which?"), true),
        (r#"{"reason":"auth_required","message":"Log in."}"#, PendingKind::Auth, Some("Log in."), false),
        ("7", PendingKind::Input, None, false),
    ] {
        // Objects come as texts, too.
        let text = serde_json::to_string(payload).expect("a text");
        for payload in [payload, text.as_str()].into_iter().take(if payload.starts_with('{') { 2 } else { 1 }) {
            let [item] = asked(payload).try_into().expect("one question");
            let found = (item.kind, item.message.as_deref(), item.response_schema.is_some());
            assert_eq!(found, (kind, message, schema), "{payload}");
        }
    }
}

#[test]
fn an_answer_has_the_form_that_the_question_expects() {
    let decided = |decision, text: Option<&str>, payload: Option<&str>| CheckedDecision {
        arguments: (decision == Decision::Edit).then(|| r#"{"to":"y"}"#.to_owned()),
        text: text.map(str::to_owned),
        payload: payload.map(|payload| Json::parse(payload).expect("JSON")),
        ..CheckedDecision::new(decision)
    };
    let listed = format!("[{ACTION}]");
    for (payload, options, decided, expected) in [
        (ACTION, "{}", decided(Decision::Accept, None, None), r#"{"type":"accept","args":null}"#),
        (
            ACTION,
            "{}",
            decided(Decision::Edit, None, None),
            r#"{"type":"edit","args":{"action":"send","args":{"to":"y"}}}"#,
        ),
        (ACTION, "{}", decided(Decision::Reject, None, None), r#"{"type":"ignore","args":null}"#),
        (&listed, "{}", decided(Decision::Respond, Some("no"), None), r#"[{"type":"response","args":"no"}]"#),
        // A client that answers in the agent's own form is passed on; another form is not understood there.
        (
            ACTION,
            "{}",
            decided(Decision::Accept, None, Some(r#"{"type":"accept","by":"me"}"#)),
            r#"{"type":"accept","by":"me"}"#,
        ),
        (
            ACTION,
            "{}",
            decided(Decision::Accept, None, Some(r#"{"approved":true}"#)),
            r#"{"type":"accept","args":null}"#,
        ),
        // An answer of the client's that says more than was decided is not passed on.
        (
            ACTION,
            "{}",
            decided(Decision::Edit, None, Some(r#"{"type":"accept","args":{"args":{"to":"y"}}}"#)),
            r#"{"type":"edit","args":{"action":"send","args":{"to":"y"}}}"#,
        ),
        (
            ACTION,
            "{}",
            decided(Decision::Reject, None, Some(r#"{"type":"ignore","args":{"args":{"to":"y"}}}"#)),
            r#"{"type":"ignore","args":null}"#,
        ),
        (ACTION, r#"{"resume_style":"approved"}"#, decided(Decision::Edit, None, None), r#"{"editedArgs":{"to":"y"}}"#),
        (
            ACTION,
            r#"{"resume_style":"approved"}"#,
            decided(Decision::Reject, Some("why"), None),
            r#"{"approved":false,"text":"why"}"#,
        ),
        ("\"Which?\"", "{}", decided(Decision::Respond, Some("blue"), None), "blue"),
        ("\"Which?\"", "{}", decided(Decision::Respond, None, Some(r#"{"color":"blue"}"#)), r#"{"color":"blue"}"#),
    ] {
        let [item] = asked(payload).try_into().expect("one question");
        let mut turn = answering(options, &[(&item, decided)], &Json::null()).expect("an answer");
        let sent = sent(&mut *turn);
        assert_eq!(sent["resume"]["payload"], expected, "{payload}");
        assert_eq!(
            (&sent["resume"]["interruptId"], sent["messages"].as_array().map(Vec::len)),
            (&"i1".into(), Some(0))
        );
    }
}

#[test]
fn several_actions_are_answered_together_and_in_order() {
    let payload = r#"{"action_requests":[{"name":"a","args":{}},{"name":"b","args":{}}],"review_configs":[]}"#;
    let items = asked(payload);
    let ids: Vec<&str> = items.iter().map(|item| item.id.as_str()).collect();
    assert_eq!(ids, ["i1:0", "i1:1"]);
    let decided =
        [(&items[0], CheckedDecision::new(Decision::Accept)), (&items[1], CheckedDecision::new(Decision::Reject))];
    let mut turn = answering("{}", &decided, &Json::null()).expect("an answer");
    let sent = sent(&mut *turn);
    assert_eq!(sent["resume"]["interruptId"], "i1");
    assert_eq!(sent["resume"]["payload"], r#"{"decisions":[{"type":"approve"},{"type":"reject"}]}"#);

    let mut other = asked("\"Which?\"").remove(0);
    other.extension = None;
    other.id = "i2".to_owned();
    let decided =
        [(&items[0], CheckedDecision::new(Decision::Accept)), (&other, CheckedDecision::new(Decision::Accept))];
    let fault = answering("{}", &decided, &Json::null()).err().expect("two questions");
    assert_eq!(fault.code(), "ANSWER_NOT_TAKEN");
}

#[test]
fn a_call_before_a_pause_is_not_shown_again_after_it() {
    let start = r#"{"type":"tool-call-start","toolCallId":"c1","toolCallName":"send"}"#;
    let args = r#"{"type":"tool-call-args","toolCallId":"c1","delta":"{\"to\":\"x\"}"}"#;
    let end = r#"{"type":"tool-call-end","toolCallId":"c1"}"#;
    let result = r#"{"type":"tool-result","toolCallId":"c1","result":"sent"}"#;
    let mut first = turn("{}");
    let (asked, _) = driven(&mut *first, stream(&[start, args, end, &ASK.replace("PAYLOAD", ACTION), "[DONE]"]));
    let [item] = asked.record.run().pending().try_into().expect("one question");
    assert_eq!(item.call_id.as_deref(), Some("c1"));
    let state = first.session_state().expect("a state");

    for lines in [&[start, args, end, result, result, "[DONE]"][..], &[result, "[DONE]"]] {
        let mut second =
            answering("{}", &[(&item, CheckedDecision::new(Decision::Accept))], &state).expect("an answer");
        let (driven, losses) = driven(&mut *second, stream(lines));
        let messages = &driven.record.run().messages;
        let kinds: Vec<String> = messages.iter().map(|message| message.kind.to_string()).collect();
        assert_eq!(kinds, ["plugin_call_output"]);
        assert_eq!(messages[0].slots[0].output().expect("an output").call_id, "c1");
        assert_eq!(losses, []);
        let kept = second.session_state().expect("a change");
        assert!(kept.text().starts_with(r#"{"tools":["locate"],"call_ids":"#), "{kept:?}");
    }

    // The agent's framework gave the approval to another call.
    let other = [
        r#"{"type":"tool-call-start","toolCallId":"c2","toolCallName":"send"}"#,
        r#"{"type":"tool-call-args","toolCallId":"c2","delta":"{\"to\":\"z\"}"}"#,
        r#"{"type":"tool-result","toolCallId":"c2","result":"sent"}"#,
        "[DONE]",
    ];
    let mut second = answering("{}", &[(&item, CheckedDecision::new(Decision::Accept))], &state).expect("an answer");
    let (driven, losses) = driven(&mut *second, stream(&other));
    assert_eq!(driven.record.run().messages.len(), 2);
    assert_eq!(losses[0].how, "the agent ran a call with other arguments than were approved");
}

#[test]
fn each_end_is_told_apart() {
    let word = r#"{"type":"text","content":"Hello"}"#;
    for (lines, end, code) in [
        (&[word, "[DONE]"][..], End::Completed, None),
        (&["[DONE]"], End::Completed, None),
        (&[word], End::Failed, Some("UPSTREAM_TRUNCATED")),
        (&[], End::Failed, Some("UPSTREAM_TRUNCATED")),
        (&[word, r#"{"type":"error","error":"away"}"#, "[DONE]"], End::Failed, Some("AGENT_ERROR")),
        (&[r#"{"error":"Server error","details":"away"}"#], End::Failed, Some("AGENT_ERROR")),
        (&[r#"{"type":"RUN_STARTED","threadId":"t"}"#], End::Failed, Some("UPSTREAM_PROTOCOL_ERROR")),
    ] {
        let record = record(lines);
        let run = record.run();
        assert_eq!(run.end, Some(end), "{lines:?}");
        let found = run.turns[0].error.as_ref().map(|error| error.code.as_str());
        if found != code {
            panic!("{lines:?}: {found:?}, not {code:?}");
        }
        if lines.first() == Some(&word) {
            assert_eq!(run.messages[0].text(), "Hello", "what came stays");
        }
    }
}
