//! Matching of conversations (docs/protocols/chat-completions.md#conversations).

use interlingua_core::End;
use interlingua_core::answer::{AnswerBody, AskPolicy};
use interlingua_core::call::{Resent, Thread};
use interlingua_core::model::MessageType;
use interlingua_core::policy::Busy;
use interlingua_core_testkit::TestRun;
use serde_json::{Value, json};

use crate::support::{HELLO, RunBuilder, SentRequest, route};

fn send(options: &str, messages: &Value, headers: &[(&str, &str)]) -> SentRequest {
    let body = json!({
        "model": "demo", "messages": messages, "session_id": "of-body", "metadata": {"session_id": "of-metadata"},
        "tools": [{"type": "function", "function": {"name": "get_weather"}}],
    });
    route(options).send("POST", "/chat/completions", &body.to_string(), headers)
}

fn resent(sent: &SentRequest) -> &Resent {
    match &sent.run_call().thread {
        Thread::Resent(resent) => resent,
        other => panic!("another thread: {other:?}"),
    }
}

#[test]
fn messages_are_split_into_instructions_history_and_new_input() {
    let sent = send(
        "{}",
        &json!([
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "system", "content": "now in French"},
            {"role": "user", "content": "c"},
        ]),
        &[],
    );
    let texts = |messages: &[interlingua_core::model::Message]| {
        messages.iter().map(interlingua_core::model::Message::text).collect::<Vec<_>>()
    };
    let call = sent.run_call();
    assert_eq!(texts(&call.preamble), ["be kind"]);
    assert_eq!(texts(&resent(&sent).history), ["a", "b"]);
    assert_eq!(texts(&call.request.input), ["now in French", "c"]);
    assert!(resent(&sent).session.is_none() && resent(&sent).in_words.is_none());

    let last = send("{}", &json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]), &[]);
    assert!(last.run_call().request.input.is_empty() && resent(&last).history.len() == 2);
}

#[test]
fn the_route_selects_the_name_of_the_session() {
    let hello = json!([{"role": "user", "content": "hi"}]);
    let named = |options: &str, headers: &[(&str, &str)]| resent(&send(options, &hello, headers)).session.clone();
    let header = [("x-session-id", "of-header"), ("x-chat-id", "of-chat")];
    assert_eq!(named("{}", &[]), None);
    assert_eq!(named("{}", &header).as_deref(), Some("of-header"));
    assert_eq!(named(r#"{"session":["x-chat-id","session_id"]}"#, &header).as_deref(), Some("of-chat"));
    assert_eq!(named(r#"{"session":["x-other","session_id"]}"#, &header).as_deref(), Some("of-body"));
    assert_eq!(named(r#"{"session":["metadata.session_id"]}"#, &[]).as_deref(), Some("of-metadata"));
    assert_eq!(named(r#"{"session":[]}"#, &header), None);
}

#[test]
fn a_history_fits_if_it_ends_with_the_latest_answer() {
    let mut run = RunBuilder::begin();
    run.say(MessageType::Reasoning, &["hm"]);
    run.say(MessageType::Message, &["Let me see.\n"]);
    run.call(MessageType::FunctionCall, "call_1", "get_weather", &[r#"{"city": "Paris", "days": 2}"#]);
    let record = run.finish(End::Completed);
    let asked = send("{}", &json!([{"role": "user", "content": "hi"}]), &[]);
    let info = asked.info(&record);

    let call = |arguments: &str| json!({"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}});
    let fits = |answer: Value| {
        let sent =
            send("{}", &json!([{"role": "user", "content": "hi"}, answer, {"role": "user", "content": "so?"}]), &[]);
        resent(&sent).judge.ends_with(TestRun::with_info(&record, info.clone()).view())
    };
    let answer = |text: &str, calls: Value| json!({"role": "assistant", "content": text, "tool_calls": calls});
    assert!(fits(answer("Let me see.", json!([call(r#"{"days":2,"city":"Paris"}"#)]))));
    assert!(fits(json!({"role": "assistant", "content": [{"type": "text", "text": " Let me see. "}],
                        "reasoning_content": "other", "tool_calls": [call(r#"{"city": "Paris", "days": 2}"#)]})));
    assert!(!fits(answer("Let me think.", json!([call(r#"{"days":2,"city":"Paris"}"#)]))));
    assert!(!fits(answer("Let me see.", json!([call(r#"{"days":3,"city":"Paris"}"#)]))));
    assert!(!fits(answer("Let me see.", json!(null))));
    let none = send("{}", &json!([{"role": "user", "content": "hi"}]), &[]);
    assert!(!resent(&none).judge.ends_with(TestRun::with_info(&record, info.clone()).view()));
}

#[test]
fn a_word_after_a_marker_is_an_answer() {
    let answered = |asked: &str, new: Value| {
        let mut messages =
            vec![json!({"role": "user", "content": "hi"}), json!({"role": "assistant", "content": asked})];
        messages.extend(new.as_array().expect("a list").iter().cloned());
        let sent = send("{}", &json!(messages), &[]);
        resent(&sent).in_words.clone().map(|answer| (answer.id, answer.given))
    };
    let user = |text: &str| json!([{"role": "user", "content": text}]);
    let approval = "I want to.\n[approval appr_1]";
    let text = |word: &str| AnswerBody::Text(word.to_owned());
    assert_eq!(answered(approval, user("approve")), Some(("appr_1".to_owned(), text("approve"))));
    assert_eq!(answered("Which?\n[question q]", user("blue")), Some(("q".to_owned(), text("blue"))));
    let undecided = answered(approval, user("yes, but to Grace")).expect("an answer that decides nothing");
    assert_ne!(undecided.1, text("yes"), "nothing is approved by other words");

    assert_eq!(answered("no marker here", user("approve")), None);
    assert_eq!(answered("in [approval appr_1] a line", user("approve")), None);
    assert_eq!(
        answered(approval, json!([{"role": "user", "content": "approve"}, {"role": "user", "content": "now"}])),
        None
    );
}

#[test]
fn options_and_declared_functions_say_how_items_are_answered() {
    let policy = |options: &str, body: &str| {
        let sent = route(options).create(body);
        let call = sent.run_call();
        (call.answer_policy.asking, call.answer_policy.ttl.is_some(), call.policy.detached, call.policy.busy)
    };
    assert_eq!(policy("{}", HELLO), (AskPolicy::OneByOne, false, false, Some(Busy::Refuse)));
    let declares = HELLO.replace(
        "\"stream\"",
        r#""tools":[{"type":"function","function":{"name":"request_approval"}},{"type":"function","function":{"name":"request_input"}}],"stream""#,
    );
    assert_eq!(policy("{}", &declares).0, AskPolicy::Together);
    let other = policy(r#"{"approvals":"refuse","disconnect":"detach","busy":"queue"}"#, HELLO);
    assert_eq!(other, (AskPolicy::OneByOne, true, true, Some(Busy::Queue)));
}
