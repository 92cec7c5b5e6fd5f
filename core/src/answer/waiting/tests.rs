//! The rules of section 3, one by one.

use std::time::Duration;

use uuid::Uuid;

use super::*;
use crate::answer::Ttl;
use crate::model::{Content, ToolCall};

const RUN: RunId = RunId(Uuid::from_u128(7));
const MAX_BATCH_BYTES: AnswerPolicy =
    AnswerPolicy { asking: AskPolicy::Together, ttl: None, orphans: OrphanPolicy::Refuse, taken_one_by_one: false };
const ONE_BY_ONE: AnswerPolicy = AnswerPolicy { asking: AskPolicy::OneByOne, ..MAX_BATCH_BYTES };
const WITH_TOOLS: AnswerPolicy = AnswerPolicy { asking: AskPolicy::OneByOneWithTools, ..MAX_BATCH_BYTES };

fn asked<'a>() -> Asked<'a> {
    Asked { run: RUN, now: 1_000, terms: MAX_BATCH_BYTES, tools: &[], approval_extension: true }
}

fn approval(id: &str) -> Pending {
    let data =
        format!(r#"{{"id":"{id}","name":"send_mail","arguments":"{{}}","interrupt":{{"call_id":"call_{id}"}}}}"#);
    Pending::read(&Json::parse(&data).expect("JSON")).expect("an item")
}

fn tool(id: &str) -> Pending {
    Pending::tool(ToolCall { call_id: id.into(), name: "set_bg".into(), ..ToolCall::default() })
}

fn waiting(items: Vec<Pending>) -> Waiting {
    let mut waiting = Waiting::default();
    waiting.ask(items, &asked());
    waiting
}

fn say(id: &str, text: &str) -> Answer {
    Answer::new(id.into(), Given::Text(text.into()))
}

fn output(id: &str, text: &str) -> Message {
    let data = Json::parse(&format!(r#"{{"call_id":"{id}","output":{text:?}}}"#)).expect("JSON");
    Message::new(MessageType::FunctionCallOutput, Some(Role::Tool), vec![Content::data(&data)])
}

fn goes(outcome: Outcome) -> Vec<String> {
    match outcome {
        Outcome::Goes { input, .. } => input
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

// Rule 1

#[test]
fn an_answer_that_decides_nothing_is_refused_and_leaves_the_item_open() {
    let mut waiting = waiting(vec![approval("a")]);
    let before = waiting.clone();
    for text in ["", "maybe", "{}", "null", "{\"approved\":\"yes\"}"] {
        let fault = refused(waiting.take(Vec::new(), vec![say("a", text)], MAX_BATCH_BYTES, 1_000));
        assert_eq!(fault.code(), crate::answer::UNDECIDED, "{text}");
    }
    assert_eq!(waiting, before);
}

#[test]
fn a_new_user_message_approves_nothing() {
    let mut waiting = waiting(vec![approval("a")]);
    let outcome = waiting.take(vec![Message::user("yes")], Vec::new(), MAX_BATCH_BYTES, 1_000);
    assert!(matches!(outcome, Outcome::Waits));
    assert_eq!(open(&waiting), ["a"]);
}

// Rule 2

#[test]
fn an_edit_towards_an_upstream_that_cannot_take_it_is_refused() {
    let mut waiting = Waiting::default();
    waiting.ask(vec![approval("a")], &Asked { approval_extension: false, ..asked() });
    let offered = &waiting.open().next().expect("open").item.decisions;
    assert_eq!(*offered, [Decision::Accept, Decision::Respond, Decision::Reject]);
    let edit = say("a", r#"{"approved":true,"editedArgs":{"to":"b"}}"#);
    assert_eq!(refused(waiting.take(Vec::new(), vec![edit], MAX_BATCH_BYTES, 1_000)).code(), NOT_TAKEN);
    assert_eq!(open(&waiting), ["a"]);
}

#[test]
fn edited_arguments_have_to_fit_the_tool_the_request_named() {
    let tools = [Json::parse(r#"{"type":"function","function":{"name":"send_mail","parameters":{"type":"object","properties":{"to":{"type":"string"}}}}}"#).expect("JSON")];
    let mut waiting = Waiting::default();
    waiting.ask(vec![approval("a")], &Asked { tools: &tools, ..asked() });
    let edit = |to: &str| vec![say("a", &format!(r#"{{"type":"edit","args":{{"to":{to}}}}}"#))];
    let fault = refused(waiting.take(Vec::new(), edit("7"), MAX_BATCH_BYTES, 1_000));
    assert_eq!(fault.message, "the answer does not fit its schema: to must be of type string");
    let input = goes(waiting.take(Vec::new(), edit("\"b\""), MAX_BATCH_BYTES, 1_000));
    assert!(input[0].contains(r#""interrupt":{"decision":"edit","arguments":"{\"to\":\"b\"}""#), "{input:?}");
}

// Rule 3

#[test]
fn nothing_is_decided_twice() {
    let mut waiting = waiting(vec![approval("a")]);
    goes(waiting.take(Vec::new(), vec![say("a", "yes")], MAX_BATCH_BYTES, 1_000));
    for again in ["yes", "no"] {
        // Whether the upstream has accepted it yet or not.
        let fault = refused(waiting.take(Vec::new(), vec![say("a", again)], MAX_BATCH_BYTES, 1_000));
        assert_eq!((fault.kind, fault.code()), (FaultKind::Conflict, NOT_WAITING));
        waiting.settled();
    }
    let twice = vec![say("b", "yes"), say("b", "no")];
    waiting.ask(vec![approval("b")], &asked());
    assert_eq!(refused(waiting.take(Vec::new(), twice, MAX_BATCH_BYTES, 1_000)).code(), NOT_TAKEN);
    assert_eq!(open(&waiting), ["b"]);
}

#[test]
fn an_answer_the_upstream_did_not_accept_can_be_given_again() {
    let mut waiting = waiting(vec![approval("a"), approval("b")]);
    let both = vec![say("a", "yes"), say("b", "no")];
    let first = goes(waiting.take(Vec::new(), both.clone(), MAX_BATCH_BYTES, 1_000));
    waiting.reopen();
    assert_eq!(open(&waiting), ["a", "b"]);
    assert_eq!(goes(waiting.take(Vec::new(), both, MAX_BATCH_BYTES, 1_000)), first);
}

#[test]
fn the_ids_of_answered_items_are_few() {
    let mut waiting = Waiting::default();
    for number in 0..1_000 {
        let id = format!("a{number}");
        waiting.ask(vec![approval(&id)], &asked());
        goes(waiting.take(Vec::new(), vec![say(&id, "yes")], MAX_BATCH_BYTES, 1_000));
        waiting.settled();
    }
    assert_eq!(waiting.closed.len(), MAX_CLOSED);
    assert!(waiting.open.is_empty() && waiting.sent.is_empty());
}

// Rule 4

#[test]
fn answers_given_together_have_to_be_complete() {
    let mut waiting = waiting(vec![approval("a"), tool("c"), approval("b")]);
    let fault = refused(waiting.take(Vec::new(), vec![say("a", "yes")], MAX_BATCH_BYTES, 1_000));
    assert_eq!(fault.message, "everything that waits has to be answered at once: 'b' is not");
    assert_eq!(open(&waiting), ["a", "c", "b"]);
    let input = goes(waiting.take(Vec::new(), vec![say("b", "no"), say("a", "yes")], MAX_BATCH_BYTES, 1_000));
    assert!(input[0].contains("\"a\"") && input[1].contains("\"b\""), "in the order they were asked: {input:?}");
    assert_eq!(open(&waiting), ["c"]);
}

#[test]
fn answers_given_one_by_one_are_collected_until_the_last_is_there() {
    let mut waiting = waiting(vec![approval("a"), approval("b")]);
    assert!(matches!(waiting.take(Vec::new(), vec![say("a", "yes")], ONE_BY_ONE, 1_000), Outcome::Waits));
    assert_eq!(open(&waiting), ["b"]);
    let fault = refused(waiting.take(Vec::new(), vec![say("a", "no")], ONE_BY_ONE, 1_000));
    assert_eq!(fault.code(), NOT_WAITING);
    let kept = serde_json::to_string(&waiting).expect("a document");
    let mut restarted: Waiting = serde_json::from_str(&kept).expect("read again");
    assert_eq!(restarted, waiting);
    // The rest is answered over another protocol.
    let input = goes(restarted.take(Vec::new(), vec![say("b", "no")], MAX_BATCH_BYTES, 1_000));
    assert!(input[0].contains(r#""id":"a","approve":true"#) && input[1].contains(r#""id":"b","approve":false"#));
}

#[test]
fn an_upstream_that_takes_answers_one_by_one_gets_them_at_once() {
    let mut waiting = waiting(vec![approval("a"), approval("b")]);
    let terms = AnswerPolicy { taken_one_by_one: true, ..ONE_BY_ONE };
    assert_eq!(goes(waiting.take(Vec::new(), vec![say("a", "yes")], terms, 1_000)).len(), 1);
    assert_eq!(open(&waiting), ["b"]);
}

#[test]
fn one_answer_for_all_actions_of_a_payload_answers_the_item_of_each() {
    let payload = Json::parse(r#"{"action_requests":[{"name":"x","args":{}},{"name":"y","args":{}}]}"#).expect("JSON");
    let mut waiting = waiting(crate::answer::langgraph::items("i", None, &payload));
    assert_eq!(open(&waiting), ["i:0", "i:1"]);
    let answer = say("i:0", r#"{"decisions":[{"type":"approve"},{"type":"reject","message":"why"}]}"#);
    let input = goes(waiting.take(Vec::new(), vec![answer], ONE_BY_ONE, 1_000));
    assert!(input[0].contains(r#""id":"i:0","approve":true"#), "{input:?}");
    assert!(input[1].contains(r#""id":"i:1","approve":false,"reason":"why""#), "{input:?}");
}

// Rule 5

#[test]
fn new_input_does_not_pass_open_items_but_it_passes_open_tools() {
    let mut waiting = waiting(vec![tool("c")]);
    assert_eq!(goes(waiting.take(vec![Message::user("go on")], Vec::new(), MAX_BATCH_BYTES, 1_000)), ["message go on"]);
    assert!(open(&waiting).is_empty(), "the client went on without it");
    waiting.ask(vec![tool("c"), approval("a")], &asked());
    assert!(waiting.blocks());
    assert!(matches!(waiting.take(vec![Message::user("go on")], Vec::new(), MAX_BATCH_BYTES, 1_000), Outcome::Waits));
    let input = vec![Message::user("and quickly")];
    let input = goes(waiting.take(input, vec![say("a", "yes")], MAX_BATCH_BYTES, 1_000));
    assert_eq!((input.len(), input[1].as_str()), (2, "message and quickly"));
}

#[test]
fn a_person_in_a_tool_s_place_is_asked_for_each_tool() {
    let mut waiting = waiting(vec![tool("c"), tool("d")]);
    assert!(matches!(waiting.take(vec![Message::user("hi")], Vec::new(), WITH_TOOLS, 1_000), Outcome::Waits));
    assert!(matches!(waiting.take(Vec::new(), vec![say("c", "blue")], WITH_TOOLS, 1_000), Outcome::Waits));
    let input = goes(waiting.take(Vec::new(), vec![say("d", "")], WITH_TOOLS, 1_000));
    assert_eq!(
        input,
        [
            r#"function_call_output {"call_id":"c","output":"blue"}"#,
            r#"function_call_output {"call_id":"d","output":""}"#
        ]
    );
}

// Rule 6 is the engine's; that any protocol's answer counts is shown here.

#[test]
fn native_answers_are_read_from_the_input_and_written_in_their_place() {
    let mut waiting = waiting(vec![approval("a"), tool("c")]);
    let plain = Decided::new(Decision::Accept).message(&approval("a"), false);
    let input = vec![approval("a").request().expect("a request"), plain, output("c", "blue"), Message::user("well?")];
    let input = goes(waiting.take(input, Vec::new(), MAX_BATCH_BYTES, 1_000));
    assert!(input[0].starts_with("mcp_approval_request"));
    assert!(input[1].starts_with(r#"mcp_approval_response {"approval_request_id":"a","id":"a","approve":true"#));
    assert_eq!(input[2..], [r#"function_call_output {"call_id":"c","output":"blue"}"#, "message well?"]);
}

#[test]
fn the_output_of_the_call_an_approval_is_about_is_its_answer() {
    for id in ["a", "call_a"] {
        let mut waiting = waiting(vec![approval("a")]);
        let fault = refused(waiting.take(vec![output(id, "done")], Vec::new(), MAX_BATCH_BYTES, 1_000));
        assert_eq!(fault.code(), crate::answer::UNDECIDED);
        let input = goes(waiting.take(vec![output(id, "approved")], Vec::new(), MAX_BATCH_BYTES, 1_000));
        assert!(input[0].starts_with("mcp_approval_response"), "{input:?}");
        assert!(open(&waiting).is_empty());
    }
}

// Rule 7

#[test]
fn an_expired_item_can_only_be_cancelled() {
    let day = Ttl(Duration::from_secs(60));
    let mut waiting = Waiting::default();
    let asked = Asked { terms: AnswerPolicy { ttl: Some(day.0), ..ONE_BY_ONE }, ..asked() };
    waiting.ask(vec![approval("a"), tool("c")], &asked);
    assert_eq!(waiting.open().next().expect("open").item.expires_at.as_deref(), Some("1970-01-01T00:01:01Z"));
    let late = 1_000 + 60_000;
    let fault = refused(waiting.take(Vec::new(), vec![say("a", "yes")], ONE_BY_ONE, late));
    assert_eq!((fault.kind, fault.code()), (FaultKind::Conflict, NOT_WAITING));
    let input = goes(waiting.clone().take(Vec::new(), vec![say("a", "cancel")], ONE_BY_ONE, late));
    assert!(input[0].contains(r#""approve":false,"reason":"cancelled""#), "{input:?}");
    // The upstream is told, too, when the conversation goes on.
    let input = goes(waiting.take(vec![Message::user("hello?")], Vec::new(), ONE_BY_ONE, late));
    assert!(input[0].contains(r#""approve":false,"reason":"cancelled""#), "{input:?}");
    assert_eq!(input[1], "message hello?");
}

#[test]
fn the_source_s_own_expiry_comes_before_the_route_s() {
    let mut item = approval("a");
    item.expires_at = Some("1970-01-01T00:00:02Z".into());
    let mut waiting = Waiting::default();
    waiting.ask(
        vec![item],
        &Asked { terms: AnswerPolicy { ttl: Some(Duration::from_secs(60)), ..MAX_BATCH_BYTES }, ..asked() },
    );
    refused(waiting.take(Vec::new(), vec![say("a", "yes")], MAX_BATCH_BYTES, 2_000));
    goes(waiting.take(Vec::new(), vec![say("a", "yes")], MAX_BATCH_BYTES, 1_999));
}

// Rule 8

#[test]
fn the_answer_s_payload_goes_along_unchanged() {
    let mut waiting = waiting(vec![approval("a")]);
    let payload = r#"{ "approved":true , "note":1.50}"#;
    let answer = Answer::new("a".into(), Given::Payload(Json::parse(payload).expect("JSON")));
    let input = goes(waiting.take(Vec::new(), vec![answer], MAX_BATCH_BYTES, 1_000));
    assert!(input[0].contains(&format!(r#""payload":{payload}"#)), "{input:?}");
}

// What nobody asked for

#[test]
fn an_answer_to_an_unknown_item_is_refused_unless_it_may_be_passed_on() {
    let mut waiting = Waiting::default();
    let fault = refused(waiting.take(Vec::new(), vec![say("x", "yes")], MAX_BATCH_BYTES, 1_000));
    assert_eq!((fault.kind, fault.message.as_str()), (FaultKind::Conflict, "nothing waits for an answer to 'x'"));
    let forward = AnswerPolicy { orphans: OrphanPolicy::Forward, ..MAX_BATCH_BYTES };
    assert!(goes(waiting.take(Vec::new(), vec![say("x", "yes")], forward, 1_000))[0].contains("\"approve\":true"));
    refused(waiting.take(Vec::new(), vec![say("x", "well")], forward, 1_000));
    let native = Decided::new(Decision::Accept).message(&approval("x"), false);
    refused(waiting.take(vec![native.clone()], Vec::new(), MAX_BATCH_BYTES, 1_000));
    assert_eq!(goes(waiting.take(vec![native], Vec::new(), forward, 1_000)).len(), 1);
}

#[test]
fn outputs_nobody_waits_for_pass_and_repeated_ones_do_not() {
    let mut waiting = waiting(vec![tool("c")]);
    assert_eq!(goes(waiting.take(vec![output("x", "1")], Vec::new(), MAX_BATCH_BYTES, 1_000)).len(), 1);
    goes(waiting.take(vec![output("c", "1")], Vec::new(), MAX_BATCH_BYTES, 1_000));
    waiting.settled();
    assert_eq!(refused(waiting.take(vec![output("c", "1")], Vec::new(), MAX_BATCH_BYTES, 1_000)).code(), NOT_WAITING);
    // The whole conversation, as clients without a session send it.
    let data = Json::parse(r#"{"call_id":"c","name":"set_bg","arguments":"{}"}"#).expect("JSON");
    let call = Message::new(MessageType::FunctionCall, Some(Role::Assistant), vec![Content::data(&data)]);
    let history = vec![Message::user("blue"), call, output("c", "1")];
    assert_eq!(goes(waiting.take(history.clone(), Vec::new(), MAX_BATCH_BYTES, 1_000)).len(), 3);
    let mut longer = history;
    longer.extend([Message::assistant("It is blue."), Message::user("thanks")]);
    assert_eq!(goes(waiting.take(longer, Vec::new(), MAX_BATCH_BYTES, 1_000)).len(), 5);
}

#[test]
fn an_upstream_that_asks_without_end_costs_bounded_memory() {
    let mut waiting = waiting(vec![approval("first")]);
    waiting.ask((0..10_000).map(|number| tool(&number.to_string())).collect(), &asked());
    assert_eq!(waiting.open.len(), MAX_OPEN);
    assert_eq!(open(&waiting)[0], "first");
}

#[test]
fn an_item_asked_again_is_open_again() {
    let mut waiting = waiting(vec![approval("a")]);
    goes(waiting.take(Vec::new(), vec![say("a", "yes")], MAX_BATCH_BYTES, 1_000));
    waiting.settled();
    waiting.ask(vec![approval("a")], &asked());
    goes(waiting.take(Vec::new(), vec![say("a", "no")], MAX_BATCH_BYTES, 1_000));
}

#[test]
fn what_a_cancelled_run_asked_is_withdrawn() {
    let mut waiting = waiting(vec![approval("a")]);
    let other = RunId(Uuid::from_u128(8));
    waiting.ask(vec![approval("b")], &Asked { run: other, ..asked() });
    waiting.withdraw(RUN);
    assert_eq!(open(&waiting), ["b"]);
    assert_eq!(waiting.pending_of(RUN), []);
    let fault = refused(waiting.take(Vec::new(), vec![say("a", "yes")], MAX_BATCH_BYTES, 1_000));
    assert_eq!(fault.code(), NOT_WAITING);
}

fn freed(outcome: Outcome) -> Vec<RunId> {
    match outcome {
        Outcome::Goes { freed, .. } => freed,
        other => panic!("does not go upstream: {other:?}"),
    }
}

#[test]
fn the_answer_to_the_last_item_of_a_run_says_that_it_waits_no_longer() {
    let one_by_one = AnswerPolicy { taken_one_by_one: true, ..MAX_BATCH_BYTES };
    let mut waiting = waiting(vec![approval("a"), approval("b")]);
    assert_eq!(waiting.runs(), [RUN]);
    let first = waiting.take(Vec::new(), vec![say("a", "yes")], one_by_one, 2_000);
    assert_eq!(freed(first), [], "it still waits for the other one");
    waiting.settled();
    assert_eq!(freed(waiting.take(Vec::new(), vec![say("b", "no")], one_by_one, 2_000)), [RUN]);
    assert_eq!(waiting.runs(), []);
    waiting.reopen();
    assert_eq!(waiting.runs(), [RUN], "the answer did not arrive");
}

#[test]
fn a_run_whose_tools_are_gone_on_without_waits_no_longer_unless_that_did_not_arrive() {
    let mut waiting = waiting(vec![tool("t")]);
    assert_eq!(freed(waiting.take(vec![Message::user("never mind")], Vec::new(), MAX_BATCH_BYTES, 2_000)), [RUN]);
    assert_eq!(waiting.runs(), []);
    waiting.reopen();
    assert_eq!(waiting.pending_of(RUN).len(), 1);
    assert_eq!(goes(waiting.take(vec![output("t", "Paris")], Vec::new(), MAX_BATCH_BYTES, 2_000)).len(), 1);
}

#[test]
fn an_answer_to_what_was_withdrawn_is_an_error_that_names_it() {
    let mut waiting = waiting(vec![approval("a")]);
    assert!(waiting.withdraw(RUN));
    assert!(!waiting.withdraw(RUN));
    let fault = refused(waiting.take(Vec::new(), vec![say("a", "yes")], MAX_BATCH_BYTES, 2_000));
    assert_eq!((fault.kind, fault.code.as_deref()), (FaultKind::Conflict, Some(NOT_WAITING)));
    assert!(fault.message.contains("'a'"), "{}", fault.message);
    assert_eq!(goes(waiting.take(vec![Message::user("hi")], Vec::new(), MAX_BATCH_BYTES, 2_000)).len(), 1);
}
