//! The rules in docs/human-in-the-loop.md#rules, one by one.

use std::time::Duration;

use uuid::Uuid;

use super::*;
use crate::answer::{ALL_DECISIONS, NATIVE_DECISIONS};
use crate::duration::Ttl;
use crate::model::{Content, ToolCall};

const RUN: RunId = RunId(Uuid::from_u128(7));
const ALL_TOGETHER: AnswerPolicy = AnswerPolicy {
    asking: AskPolicy::Together,
    ttl: None,
    orphans: OrphanPolicy::Refuse,
    accepts_single_answers: false,
    asks_again: false,
};
const ONE_BY_ONE: AnswerPolicy = AnswerPolicy { asking: AskPolicy::OneByOne, ..ALL_TOGETHER };
const WITH_TOOLS: AnswerPolicy = AnswerPolicy { asking: AskPolicy::OneByOneWithTools, ..ALL_TOGETHER };

fn context<'a>() -> AskContext<'a> {
    AskContext {
        run: RUN,
        now: 1_000,
        terms: ALL_TOGETHER,
        tools: &[],
        decisions: ALL_DECISIONS,
        tool_outputs: ToolOutputs::Each,
    }
}

fn approval(id: &str) -> Pending {
    let data =
        format!(r#"{{"id":"{id}","name":"send_mail","arguments":"{{}}","interrupt":{{"call_id":"call_{id}"}}}}"#);
    Pending::parse(&Json::parse(&data).expect("JSON")).expect("an item")
}

fn tool(id: &str) -> Pending {
    Pending::tool(ToolCall { call_id: id.into(), name: "set_bg".into(), ..ToolCall::default() })
}

fn waiting(items: Vec<Pending>) -> Waiting {
    let mut waiting = Waiting::default();
    waiting.ask(SentAnswers(()), items, &context());
    waiting
}

fn answer(id: &str, text: &str) -> Answer {
    Answer::new(id.into(), AnswerBody::Text(text.into()))
}

fn output(id: &str, text: &str) -> Message {
    let data = Json::parse(&format!(r#"{{"call_id":"{id}","output":{text:?}}}"#)).expect("JSON");
    Message::new(MessageType::FunctionCallOutput, Some(Role::Tool), vec![Content::data(&data)])
}

fn sent(outcome: Outcome) -> Vec<String> {
    match outcome {
        Outcome::Send { input, .. } => input
            .iter()
            .map(|message| match message.content[0].as_data() {
                Some(data) => format!("{} {}", message.kind, data.text()),
                None => format!("{} {}", message.kind, message.text()),
            })
            .collect(),
        other => panic!("does not go upstream: {other:?}"),
    }
}

fn refused(outcome: Outcome) -> Fault {
    match outcome {
        Outcome::Refused(fault) => fault,
        other => panic!("is not refused: {other:?}"),
    }
}

fn open(waiting: &Waiting) -> Vec<&str> {
    waiting.open().map(|open| open.item.id.as_str()).collect()
}

// docs/human-in-the-loop.md#rule-1.

#[test]
fn an_answer_without_a_decision_is_refused_and_leaves_the_item_open() {
    let mut waiting = waiting(vec![approval("a")]);
    let before = waiting.clone();
    for text in ["", "maybe", "{}", "null", "{\"approved\":\"yes\"}"] {
        let fault = refused(waiting.take(Vec::new(), vec![answer("a", text)], ALL_TOGETHER, 1_000));
        assert_eq!(fault.code(), crate::answer::UNDECIDED, "{text}");
    }
    assert_eq!(waiting, before);
}

#[test]
fn a_protocol_that_asks_again_does_so_after_an_answer_without_a_decision() {
    let terms = AnswerPolicy { asks_again: true, ..ALL_TOGETHER };
    let mut waiting = waiting(vec![approval("a"), approval("b")]);
    let before = waiting.clone();
    for answers in [vec![answer("a", "maybe")], vec![answer("a", "yes"), answer("b", "perhaps")]] {
        assert!(matches!(waiting.take(Vec::new(), answers, terms, 1_000), Outcome::Wait(_)));
        assert_eq!(waiting, before, "no answer counts");
    }
    // An item that is not open cannot be asked for again.
    let fault = refused(waiting.take(Vec::new(), vec![answer("c", "yes")], terms, 1_000));
    assert_eq!(fault.code(), NOT_WAITING);
}

#[test]
fn a_new_user_message_approves_nothing() {
    let mut waiting = waiting(vec![approval("a")]);
    let outcome = waiting.take(vec![Message::user("yes")], Vec::new(), ALL_TOGETHER, 1_000);
    assert!(matches!(outcome, Outcome::Wait(_)));
    assert_eq!(open(&waiting), ["a"]);
}

// docs/human-in-the-loop.md#rule-2.

#[test]
fn an_edit_for_an_upstream_that_does_not_accept_edits_is_refused() {
    let mut waiting = Waiting::default();
    waiting.ask(SentAnswers(()), vec![approval("a")], &AskContext { decisions: NATIVE_DECISIONS, ..context() });
    let offered = &waiting.open().next().expect("open").item.decisions;
    assert_eq!(*offered, [Decision::Accept, Decision::Respond, Decision::Reject]);
    let edit = answer("a", r#"{"approved":true,"editedArgs":{"to":"b"}}"#);
    assert_eq!(refused(waiting.take(Vec::new(), vec![edit], ALL_TOGETHER, 1_000)).code(), NOT_TAKEN);
    assert_eq!(open(&waiting), ["a"]);
}

#[test]
fn edited_arguments_must_match_the_schema_of_the_tool() {
    let tools = [Json::parse(r#"{"type":"function","function":{"name":"send_mail","parameters":{"type":"object","properties":{"to":{"type":"string"}}}}}"#).expect("JSON")];
    let mut waiting = Waiting::default();
    waiting.ask(SentAnswers(()), vec![approval("a")], &AskContext { tools: &tools, ..context() });
    let edit = |to: &str| vec![answer("a", &format!(r#"{{"type":"edit","args":{{"to":{to}}}}}"#))];
    let fault = refused(waiting.take(Vec::new(), edit("7"), ALL_TOGETHER, 1_000));
    assert_eq!(fault.message, "the answer does not match its schema: to must be of type string");
    let input = sent(waiting.take(Vec::new(), edit("\"b\""), ALL_TOGETHER, 1_000));
    assert!(input[0].contains(r#""interrupt":{"decision":"edit","arguments":"{\"to\":\"b\"}""#), "{input:?}");
}

// docs/human-in-the-loop.md#rule-3.

#[test]
fn an_item_cannot_be_decided_twice() {
    let mut waiting = waiting(vec![approval("a")]);
    sent(waiting.take(Vec::new(), vec![answer("a", "yes")], ALL_TOGETHER, 1_000));
    for again in ["yes", "no"] {
        // Whether or not the upstream has accepted the answer yet.
        let fault = refused(waiting.take(Vec::new(), vec![answer("a", again)], ALL_TOGETHER, 1_000));
        assert_eq!((fault.kind, fault.code()), (FaultKind::Conflict, NOT_WAITING));
        waiting.confirm_sent(TakenAnswers::new());
    }
    let twice = vec![answer("b", "yes"), answer("b", "no")];
    waiting.ask(SentAnswers(()), vec![approval("b")], &context());
    assert_eq!(refused(waiting.take(Vec::new(), twice, ALL_TOGETHER, 1_000)).code(), NOT_TAKEN);
    assert_eq!(open(&waiting), ["b"]);
}

#[test]
fn an_answer_the_upstream_did_not_accept_can_be_given_again() {
    let mut waiting = waiting(vec![approval("a"), approval("b")]);
    let both = vec![answer("a", "yes"), answer("b", "no")];
    let first = sent(waiting.take(Vec::new(), both.clone(), ALL_TOGETHER, 1_000));
    waiting.reopen(TakenAnswers::new());
    assert_eq!(open(&waiting), ["a", "b"]);
    assert_eq!(sent(waiting.take(Vec::new(), both, ALL_TOGETHER, 1_000)), first);
}

#[test]
fn the_number_of_remembered_ids_is_limited() {
    let mut waiting = Waiting::default();
    for number in 0..1_000 {
        let id = format!("a{number}");
        waiting.ask(SentAnswers(()), vec![approval(&id)], &context());
        sent(waiting.take(Vec::new(), vec![answer(&id, "yes")], ALL_TOGETHER, 1_000));
        waiting.confirm_sent(TakenAnswers::new());
    }
    assert_eq!(waiting.closed.len(), MAX_CLOSED);
    assert!(waiting.open.is_empty() && waiting.sent.is_empty());
}

// docs/human-in-the-loop.md#rule-4.

#[test]
fn answers_given_together_must_be_complete() {
    let mut waiting = waiting(vec![approval("a"), tool("c"), approval("b")]);
    let fault = refused(waiting.take(Vec::new(), vec![answer("a", "yes")], ALL_TOGETHER, 1_000));
    assert_eq!(fault.message, "all pending items must be answered in one request: 'b' is missing");
    assert_eq!(open(&waiting), ["a", "c", "b"]);
    let input = sent(waiting.take(Vec::new(), vec![answer("b", "no"), answer("a", "yes")], ALL_TOGETHER, 1_000));
    assert!(input[0].contains("\"a\"") && input[1].contains("\"b\""), "in the order they were asked: {input:?}");
    assert_eq!(open(&waiting), ["c"]);
}

#[test]
fn answers_given_one_by_one_are_collected_until_the_last_one() {
    let mut waiting = waiting(vec![approval("a"), approval("b")]);
    assert!(matches!(waiting.take(Vec::new(), vec![answer("a", "yes")], ONE_BY_ONE, 1_000), Outcome::Wait(_)));
    assert_eq!(open(&waiting), ["b"]);
    let fault = refused(waiting.take(Vec::new(), vec![answer("a", "no")], ONE_BY_ONE, 1_000));
    assert_eq!(fault.code(), NOT_WAITING);
    let stored = serde_json::to_string(&waiting).expect("a document");
    let mut restarted: Waiting = serde_json::from_str(&stored).expect("the same document");
    assert_eq!(restarted, waiting);
    // The rest is answered over another protocol.
    let input = sent(restarted.take(Vec::new(), vec![answer("b", "no")], ALL_TOGETHER, 1_000));
    assert!(input[0].contains(r#""id":"a","approve":true"#) && input[1].contains(r#""id":"b","approve":false"#));
}

#[test]
fn an_upstream_that_accepts_single_answers_gets_them_immediately() {
    let mut waiting = waiting(vec![approval("a"), approval("b")]);
    let terms = AnswerPolicy { accepts_single_answers: true, ..ONE_BY_ONE };
    assert_eq!(sent(waiting.take(Vec::new(), vec![answer("a", "yes")], terms, 1_000)).len(), 1);
    assert_eq!(open(&waiting), ["b"]);
}

#[test]
fn one_answer_with_a_decision_per_action_answers_all_items_of_the_payload() {
    let payload = Json::parse(r#"{"action_requests":[{"name":"x","args":{}},{"name":"y","args":{}}]}"#).expect("JSON");
    let mut waiting = waiting(crate::answer::payload::items("i", None, &payload));
    assert_eq!(open(&waiting), ["i:0", "i:1"]);
    let answer = answer("i:0", r#"{"decisions":[{"type":"approve"},{"type":"reject","message":"why"}]}"#);
    let input = sent(waiting.take(Vec::new(), vec![answer], ONE_BY_ONE, 1_000));
    assert!(input[0].contains(r#""id":"i:0","approve":true"#), "{input:?}");
    assert!(input[1].contains(r#""id":"i:1","approve":false,"reason":"why""#), "{input:?}");
}

// docs/human-in-the-loop.md#rule-5.

#[test]
fn new_input_waits_for_open_items_but_not_for_open_tool_calls() {
    let mut waiting = waiting(vec![tool("c")]);
    assert_eq!(sent(waiting.take(vec![Message::user("go on")], Vec::new(), ALL_TOGETHER, 1_000)), ["message go on"]);
    assert!(open(&waiting).is_empty(), "the client continued without it");
    waiting.ask(SentAnswers(()), vec![tool("c"), approval("a")], &context());
    assert!(waiting.blocks());
    assert!(matches!(waiting.take(vec![Message::user("go on")], Vec::new(), ALL_TOGETHER, 1_000), Outcome::Wait(_)));
    let input = vec![Message::user("and quickly")];
    let input = sent(waiting.take(input, vec![answer("a", "yes")], ALL_TOGETHER, 1_000));
    assert_eq!((input.len(), input[1].as_str()), (2, "message and quickly"));
}

#[test]
fn each_call_of_a_client_tool_is_an_item() {
    let mut waiting = waiting(vec![tool("c"), tool("d")]);
    assert!(matches!(waiting.take(vec![Message::user("hi")], Vec::new(), WITH_TOOLS, 1_000), Outcome::Wait(_)));
    assert!(matches!(waiting.take(Vec::new(), vec![answer("c", "blue")], WITH_TOOLS, 1_000), Outcome::Wait(_)));
    let input = sent(waiting.take(Vec::new(), vec![answer("d", "")], WITH_TOOLS, 1_000));
    assert_eq!(
        input,
        [
            r#"function_call_output {"call_id":"c","output":"blue"}"#,
            r#"function_call_output {"call_id":"d","output":""}"#
        ]
    );
}

/// Items of an agent that takes the outputs of all calls of a turn in one request.
fn waiting_together(items: Vec<Pending>) -> Waiting {
    let mut waiting = Waiting::default();
    waiting.ask(SentAnswers(()), items, &AskContext { tool_outputs: ToolOutputs::Together, ..context() });
    waiting
}

#[test]
fn outputs_for_an_agent_that_takes_them_together_are_collected() {
    for terms in [ALL_TOGETHER, ONE_BY_ONE, AnswerPolicy { accepts_single_answers: true, ..ONE_BY_ONE }] {
        let mut waiting = waiting_together(vec![tool("c"), tool("d"), tool("e")]);
        assert!(matches!(waiting.take(vec![output("d", "2")], Vec::new(), terms, 1_000), Outcome::Wait(_)));
        assert_eq!(open(&waiting), ["c", "e"]);

        let stored = serde_json::to_string(&waiting).expect("a document");
        let mut waiting: Waiting = serde_json::from_str(&stored).expect("the same document");
        let system = Message { role: Some(Role::System), ..Message::user("be brief") };
        let outcome = waiting.take(vec![system, output("c", "1")], Vec::new(), terms, 1_000);
        assert!(matches!(outcome, Outcome::Wait(_)), "instructions say nothing new");

        // Clients that repeat what they have sent are understood, and the last output counts.
        let input = sent(waiting.take(vec![output("d", "two"), output("e", "3")], Vec::new(), terms, 1_000));
        assert_eq!(
            input,
            [
                r#"function_call_output {"call_id":"c","output":"1"}"#,
                r#"function_call_output {"call_id":"d","output":"two"}"#,
                r#"function_call_output {"call_id":"e","output":"3"}"#
            ]
        );
        assert!(open(&waiting).is_empty());
    }
}

#[test]
fn words_release_the_outputs_that_were_collected() {
    let mut waiting = waiting_together(vec![tool("c"), tool("d"), tool("e")]);
    assert!(matches!(waiting.take(vec![output("c", "1")], Vec::new(), ALL_TOGETHER, 1_000), Outcome::Wait(_)));
    let input = vec![output("d", "2"), Message::user("never mind the rest")];
    let input = sent(waiting.take(input, Vec::new(), ALL_TOGETHER, 1_000));
    assert_eq!(input.len(), 3, "{input:?}");
    assert!(input[0].contains(r#""call_id":"c""#) && input[2] == "message never mind the rest", "{input:?}");
    assert!(open(&waiting).is_empty());
}

#[test]
fn decisions_and_outputs_for_an_agent_that_takes_them_together_go_together() {
    let mut waiting = waiting_together(vec![approval("a"), tool("c")]);
    assert!(matches!(waiting.take(Vec::new(), vec![answer("a", "yes")], ALL_TOGETHER, 1_000), Outcome::Wait(_)));
    let fault = refused(waiting.take(Vec::new(), vec![answer("a", "no")], ALL_TOGETHER, 1_000));
    assert_eq!(fault.code(), NOT_WAITING, "a decision is made once");
    let input = sent(waiting.take(vec![output("c", "1")], Vec::new(), ALL_TOGETHER, 1_000));
    assert!(input[0].starts_with("mcp_approval_response") && input[1].starts_with("function_call_output"), "{input:?}");

    // Another run's calls are no part of it.
    waiting.ask(SentAnswers(()), vec![tool("d")], &AskContext { tool_outputs: ToolOutputs::Together, ..context() });
    let other = RunId(Uuid::from_u128(8));
    waiting.ask(
        SentAnswers(()),
        vec![tool("e")],
        &AskContext { run: other, tool_outputs: ToolOutputs::Together, ..context() },
    );
    assert_eq!(sent(waiting.take(vec![output("d", "1")], Vec::new(), ALL_TOGETHER, 1_000)).len(), 1);
}

// docs/human-in-the-loop.md#rule-6 is up to the engine. These tests show that answers of any protocol count.

#[test]
fn canonical_answers_are_read_from_the_input_and_replaced_in_place() {
    let mut waiting = waiting(vec![approval("a"), tool("c")]);
    let plain = CheckedDecision::new(Decision::Accept).message(&approval("a"), false);
    let input = vec![approval("a").request().expect("a request"), plain, output("c", "blue"), Message::user("well?")];
    let input = sent(waiting.take(input, Vec::new(), ALL_TOGETHER, 1_000));
    assert!(input[0].starts_with("mcp_approval_request"));
    assert!(input[1].starts_with(r#"mcp_approval_response {"approval_request_id":"a","id":"a","approve":true"#));
    assert_eq!(input[2..], [r#"function_call_output {"call_id":"c","output":"blue"}"#, "message well?"]);
}

#[test]
fn the_output_of_the_call_that_an_approval_concerns_is_its_answer() {
    for id in ["a", "call_a"] {
        let mut waiting = waiting(vec![approval("a")]);
        let fault = refused(waiting.take(vec![output(id, "done")], Vec::new(), ALL_TOGETHER, 1_000));
        assert_eq!(fault.code(), crate::answer::UNDECIDED);
        let input = sent(waiting.take(vec![output(id, "approved")], Vec::new(), ALL_TOGETHER, 1_000));
        assert!(input[0].starts_with("mcp_approval_response"), "{input:?}");
        assert!(open(&waiting).is_empty());
    }
}

// docs/human-in-the-loop.md#rule-7.

#[test]
fn an_expired_item_can_only_be_cancelled() {
    let day = Ttl(Duration::from_secs(60));
    let mut waiting = Waiting::default();
    let context = AskContext { terms: AnswerPolicy { ttl: Some(day.0), ..ONE_BY_ONE }, ..context() };
    waiting.ask(SentAnswers(()), vec![approval("a"), tool("c")], &context);
    assert_eq!(waiting.open().next().expect("open").item.expires_at.as_deref(), Some("1970-01-01T00:01:01Z"));
    let late = 1_000 + 60_000;
    let fault = refused(waiting.take(Vec::new(), vec![answer("a", "yes")], ONE_BY_ONE, late));
    assert_eq!((fault.kind, fault.code()), (FaultKind::Conflict, NOT_WAITING));
    let input = sent(waiting.clone().take(Vec::new(), vec![answer("a", "cancel")], ONE_BY_ONE, late));
    assert!(input[0].contains(r#""approve":false,"reason":"cancelled""#), "{input:?}");
    // The upstream also gets the cancellation when the conversation continues.
    let input = sent(waiting.take(vec![Message::user("hello?")], Vec::new(), ONE_BY_ONE, late));
    assert!(input[0].contains(r#""approve":false,"reason":"cancelled""#), "{input:?}");
    assert_eq!(input[1], "message hello?");
}

#[test]
fn the_source_s_expiry_takes_precedence_over_the_route_s() {
    let mut item = approval("a");
    item.expires_at = Some("1970-01-01T00:00:02Z".into());
    let mut waiting = Waiting::default();
    waiting.ask(
        SentAnswers(()),
        vec![item],
        &AskContext { terms: AnswerPolicy { ttl: Some(Duration::from_secs(60)), ..ALL_TOGETHER }, ..context() },
    );
    refused(waiting.take(Vec::new(), vec![answer("a", "yes")], ALL_TOGETHER, 2_000));
    sent(waiting.take(Vec::new(), vec![answer("a", "yes")], ALL_TOGETHER, 1_999));
}

// docs/human-in-the-loop.md#rule-8.

#[test]
fn the_answer_s_payload_is_passed_on_verbatim() {
    let mut waiting = waiting(vec![approval("a")]);
    let payload = r#"{ "approved":true , "note":1.50}"#;
    let answer = Answer::new("a".into(), AnswerBody::Payload(Json::parse(payload).expect("JSON")));
    let input = sent(waiting.take(Vec::new(), vec![answer], ALL_TOGETHER, 1_000));
    assert!(input[0].contains(&format!(r#""payload":{payload}"#)), "{input:?}");
}

// Unexpected answers.

#[test]
fn an_answer_to_an_unknown_item_is_refused_unless_the_route_forwards_it() {
    let mut waiting = Waiting::default();
    let fault = refused(waiting.take(Vec::new(), vec![answer("x", "yes")], ALL_TOGETHER, 1_000));
    assert_eq!((fault.kind, fault.message.as_str()), (FaultKind::Conflict, "no pending item has the id 'x'"));
    let forward = AnswerPolicy { orphans: OrphanPolicy::Forward, ..ALL_TOGETHER };
    assert!(sent(waiting.take(Vec::new(), vec![answer("x", "yes")], forward, 1_000))[0].contains("\"approve\":true"));
    refused(waiting.take(Vec::new(), vec![answer("x", "well")], forward, 1_000));
    let native = CheckedDecision::new(Decision::Accept).message(&approval("x"), false);
    refused(waiting.take(vec![native.clone()], Vec::new(), ALL_TOGETHER, 1_000));
    assert_eq!(sent(waiting.take(vec![native], Vec::new(), forward, 1_000)).len(), 1);
}

#[test]
fn unknown_outputs_pass_and_repeated_ones_do_not() {
    let mut waiting = waiting(vec![tool("c")]);
    assert_eq!(sent(waiting.take(vec![output("x", "1")], Vec::new(), ALL_TOGETHER, 1_000)).len(), 1);
    sent(waiting.take(vec![output("c", "1")], Vec::new(), ALL_TOGETHER, 1_000));
    waiting.confirm_sent(TakenAnswers::new());
    assert_eq!(refused(waiting.take(vec![output("c", "1")], Vec::new(), ALL_TOGETHER, 1_000)).code(), NOT_WAITING);
    // The complete conversation, as clients without a session send it.
    let data = Json::parse(r#"{"call_id":"c","name":"set_bg","arguments":"{}"}"#).expect("JSON");
    let call = Message::new(MessageType::FunctionCall, Some(Role::Assistant), vec![Content::data(&data)]);
    let history = vec![Message::user("blue"), call, output("c", "1")];
    assert_eq!(sent(waiting.take(history.clone(), Vec::new(), ALL_TOGETHER, 1_000)).len(), 3);
    let mut longer = history;
    longer.extend([Message::assistant("It is blue."), Message::user("thanks")]);
    assert_eq!(sent(waiting.take(longer, Vec::new(), ALL_TOGETHER, 1_000)).len(), 5);
}

#[test]
fn an_upstream_that_asks_endlessly_uses_bounded_memory() {
    let mut waiting = waiting(vec![approval("first")]);
    waiting.ask(SentAnswers(()), (0..10_000).map(|number| tool(&number.to_string())).collect(), &context());
    assert_eq!(waiting.open.len(), MAX_OPEN);
    assert_eq!(open(&waiting)[0], "first");
}

#[test]
fn an_item_asked_again_is_open_again() {
    let mut waiting = waiting(vec![approval("a")]);
    sent(waiting.take(Vec::new(), vec![answer("a", "yes")], ALL_TOGETHER, 1_000));
    waiting.confirm_sent(TakenAnswers::new());
    waiting.ask(SentAnswers(()), vec![approval("a")], &context());
    sent(waiting.take(Vec::new(), vec![answer("a", "no")], ALL_TOGETHER, 1_000));
}

#[test]
fn the_items_of_a_cancelled_run_are_withdrawn() {
    let mut waiting = waiting(vec![approval("a")]);
    let other = RunId(Uuid::from_u128(8));
    waiting.ask(SentAnswers(()), vec![approval("b")], &AskContext { run: other, ..context() });
    waiting.withdraw(RUN);
    assert_eq!(open(&waiting), ["b"]);
    assert_eq!(waiting.pending_of(RUN), []);
    let fault = refused(waiting.take(Vec::new(), vec![answer("a", "yes")], ALL_TOGETHER, 1_000));
    assert_eq!(fault.code(), NOT_WAITING);
}

fn freed(outcome: Outcome) -> Vec<RunId> {
    match outcome {
        Outcome::Send { freed, .. } => freed,
        other => panic!("does not go upstream: {other:?}"),
    }
}

#[test]
fn the_answer_to_the_last_item_of_a_run_frees_the_run() {
    let one_by_one = AnswerPolicy { accepts_single_answers: true, ..ALL_TOGETHER };
    let mut waiting = waiting(vec![approval("a"), approval("b")]);
    assert_eq!(waiting.runs(), [RUN]);
    let first = waiting.take(Vec::new(), vec![answer("a", "yes")], one_by_one, 2_000);
    assert_eq!(freed(first), [], "it still waits for the other item");
    waiting.confirm_sent(TakenAnswers::new());
    assert_eq!(freed(waiting.take(Vec::new(), vec![answer("b", "no")], one_by_one, 2_000)), [RUN]);
    assert_eq!(waiting.runs(), []);
    waiting.reopen(TakenAnswers::new());
    assert_eq!(waiting.runs(), [RUN], "the answer did not arrive");
}

#[test]
fn a_run_without_its_tool_outputs_is_freed_unless_the_request_does_not_arrive() {
    let mut waiting = waiting(vec![tool("t")]);
    assert_eq!(freed(waiting.take(vec![Message::user("never mind")], Vec::new(), ALL_TOGETHER, 2_000)), [RUN]);
    assert_eq!(waiting.runs(), []);
    waiting.reopen(TakenAnswers::new());
    assert_eq!(waiting.pending_of(RUN).len(), 1);
    assert_eq!(sent(waiting.take(vec![output("t", "Paris")], Vec::new(), ALL_TOGETHER, 2_000)).len(), 1);
}

#[test]
fn an_answer_to_a_withdrawn_item_fails_with_its_id() {
    let mut waiting = waiting(vec![approval("a")]);
    assert!(waiting.withdraw(RUN));
    assert!(!waiting.withdraw(RUN));
    let fault = refused(waiting.take(Vec::new(), vec![answer("a", "yes")], ALL_TOGETHER, 2_000));
    assert_eq!((fault.kind, fault.code.as_deref()), (FaultKind::Conflict, Some(NOT_WAITING)));
    assert!(fault.message.contains("'a'"), "{}", fault.message);
    assert_eq!(sent(waiting.take(vec![Message::user("hi")], Vec::new(), ALL_TOGETHER, 2_000)).len(), 1);
}

#[test]
fn the_newest_questions_stay_and_tool_calls_are_dropped_first() {
    let mut waiting = waiting(vec![approval("a"), tool("t"), approval("b")]);
    let more = (0..MAX_OPEN).map(|number| tool(&format!("t{number}"))).chain([approval("c"), approval("a")]);
    waiting.ask(SentAnswers(()), more.collect(), &context());
    let open = open(&waiting);
    assert_eq!(open.len(), MAX_OPEN);
    assert_eq!((open[0], open[1], open[MAX_OPEN - 3]), ("b", "t3", "t255"));
    assert_eq!(open[MAX_OPEN - 2..], ["c", "a"], "a repeated question takes the place of the old one");
}

#[test]
fn decisions_of_earlier_requests_stay_if_a_request_is_not_sent() {
    let mut waiting = waiting(vec![approval("a"), approval("b")]);
    let first = waiting.take(Vec::new(), vec![answer("a", "yes")], ONE_BY_ONE, 1_000);
    assert!(matches!(first, Outcome::Wait(_)), "{first:?}");
    let second = waiting.take(Vec::new(), vec![answer("b", "no")], ONE_BY_ONE, 1_000);
    let Outcome::Send { taken, .. } = second else { panic!("both are decided: {second:?}") };
    waiting.put_back(taken);
    let decided: Vec<_> = waiting.open.iter().map(|open| (&*open.item.id, open.decided.is_some())).collect();
    assert_eq!(decided, [("a", true), ("b", false)]);
    let again = waiting.take(Vec::new(), vec![answer("b", "no")], ONE_BY_ONE, 1_000);
    assert!(matches!(again, Outcome::Send { .. }), "{again:?}");
}
