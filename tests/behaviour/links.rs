//! Agents that keep one connection for all turns: a real program on its standard streams.

use serde_json::json;

use crate::support::gateway::{Gateway, user_turn_in};
use crate::support::pairs::{Decision, Protocol, ROUTES, texts_of};
use crate::support::poll_until;

struct Fixture {
    gateway: Gateway,
    folder: tempfile::TempDir,
}

impl Fixture {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let agent = format!(
            "[store]\nkind = \"memory\"\n[agents.demo]\nupstream = {{ protocol = \"lines\", options = {{ log = {log:?} }} }}\n"
        );
        Self { gateway: Gateway::with_config(&format!("{agent}{ROUTES}")).await, folder }
    }

    /// The text of the answer, or the whole body if it is none.
    async fn say(&self, session: &str, text: &str) -> String {
        let answer = self.gateway.post("/agents/demo/process", &user_turn_in(session, text)).await;
        texts_of(answer.text())
    }

    /// The process of the agent.
    async fn process(&self, session: &str) -> String {
        let text = self.say(session, "hello").await;
        assert!(text.contains(": hello"), "{text}");
        let digits = text.split(": hello").next().unwrap_or_default();
        digits.chars().rev().take_while(char::is_ascii_digit).collect()
    }

    async fn cancelled(&self) -> String {
        let log = self.folder.path().join("log");
        let whole_lines = async || std::fs::read_to_string(&log).ok().filter(|text| text.ends_with('\n'));
        poll_until("the agent to be cancelled", whole_lines).await
    }
}

#[tokio::test]
async fn turns_of_all_sessions_share_one_connection() {
    let fixture = Fixture::start().await;
    let process = fixture.process("one").await;
    for session in ["one", "two", "one"] {
        assert_eq!(fixture.process(session).await, process);
    }

    let mut waiting = fixture.gateway.start_turn("demo", &user_turn_in("three", "wait")).await;
    let mut text = String::new();
    while !text.contains("waiting") {
        text.push_str(&waiting.frame().await.expect("the turn goes on").to_string());
    }
    fixture.say("four", "go").await;
    let rest = waiting.frames().await;
    assert!(json!(rest).to_string().contains("released by"), "{rest:?}");
}

#[tokio::test]
async fn a_question_stays_open_on_the_connection_until_another_protocol_answers_it() {
    let fixture = Fixture::start().await;
    let process = fixture.process("s").await;
    for (session, decision, expected) in
        [("s", Decision::Accept, "decided: accept"), ("t", Decision::Reject, "decided: reject")]
    {
        let question = Protocol::A2a.ask(&fixture.gateway, session, "approve").await;
        // Other sessions use the connection meanwhile.
        assert_eq!(fixture.process("other").await, process);
        let answer = Protocol::ChatCompletions.answer(&fixture.gateway, &question, decision).await.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(texts_of(answer.text()).contains(expected), "{}", answer.text());
        assert_eq!(fixture.process(session).await, process);
    }
}

#[tokio::test]
async fn an_agent_that_crashes_ends_its_turns_and_is_started_again() {
    let fixture = Fixture::start().await;
    let process = fixture.process("s").await;
    let question = Protocol::A2a.ask(&fixture.gateway, "asks", "approve").await;

    let answer = fixture.gateway.post("/agents/demo/process", &user_turn_in("s", "crash")).await;
    assert!(answer.text().contains("last words") && answer.text().contains("UPSTREAM_TRUNCATED"), "{}", answer.text());
    let other = fixture.process("s").await;
    assert_ne!(other, process);

    // The process that asked is gone: nothing is decided.
    let late = Protocol::AgentApi.answer(&fixture.gateway, &question, Decision::Accept).await.expect("an answer");
    assert!(late.text().contains("the agent no longer waits for this decision"), "{}", late.text());
    assert!(!late.text().contains("decided"), "{}", late.text());
    assert_eq!(fixture.process("s").await, other);
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_turn_and_no_other() {
    let fixture = Fixture::start().await;
    let process = fixture.process("s").await;
    let mut turn = fixture.gateway.start_turn("demo", &user_turn_in("s", "hang")).await;
    let mut text = String::new();
    while !text.contains("working") {
        text.push_str(&turn.frame().await.expect("the turn goes on").to_string());
    }
    drop(turn);
    let log = fixture.cancelled().await;
    assert!(log.starts_with("cancelled ") && log.lines().count() == 1, "{log}");
    assert_eq!(fixture.process("s").await, process);
}

#[tokio::test]
async fn messages_between_two_turns_begin_the_next_one() {
    let fixture = Fixture::start().await;
    fixture.say("s", "later").await;
    // The agent writes in order: a message of another session comes after that of the first one.
    fixture.process("other").await;
    let text = fixture.say("s", "hello").await;
    assert!(text.contains("from the background, "), "{text}");
}
