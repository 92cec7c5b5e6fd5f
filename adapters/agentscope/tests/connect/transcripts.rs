//! Recorded answers of a real service, byte for byte: `tests/transcripts/agentscope`. The connector's requests are
//! compared with the recorded ones.

use std::fmt::Write as _;
use std::path::Path;

use interlingua_agentscope::{AgentscopeUpstream, UpstreamOptions};
use interlingua_core::answer::CheckedDecision;
use interlingua_core::connector::UpstreamAdapter;
use interlingua_core::model::AgentRequest;
use interlingua_core::pending::{Decision, Pending};
use interlingua_core::{Json, pending};
use interlingua_core_testkit::{self as testkit, Answer, RecordedExchange};
use serde_json::Value;

use crate::support::{Outcome, Session, URL, answering, answers_of, refusal, says};

/// The recorded exchanges of a turn, in order: `NAME-1-create`, `NAME-2-chat` …
fn recorded(name: &str) -> Vec<RecordedExchange> {
    let folder = "../../tests/transcripts/agentscope/agentscope-2.0.10";
    let is_part = |known: &str| {
        let rest = known.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
        rest.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    let all = testkit::recorded_exchanges(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
    let found: Vec<_> = all.into_iter().filter(|(known, _)| is_part(known)).map(|(_, exchange)| exchange).collect();
    assert!(!found.is_empty(), "{name}");
    found
}

/// A session with the service of a recording.
fn session(name: &str) -> Session {
    let create: Value = serde_json::from_str(&recorded(name)[0].request).expect("JSON");
    let mut fields = create.as_object().expect("an object").clone();
    let agent = fields.remove("agent_id").expect("an agent");
    let options = serde_json::json!({ "agent_id": agent, "user": "ada", "session": fields });
    let options: UpstreamOptions = serde_json::from_value(options).expect("options");
    let connector = AgentscopeUpstream::connect(URL, options).expect("a connector");
    Session { connector, state: Json::null(), are_events_read: false }
}

/// Drives a turn over a recording, and compares what is sent.
fn play(session: &mut Session, name: &str, request: &AgentRequest, answered: &[Pending]) -> Outcome {
    let exchanges = recorded(name);
    let turn = session.turn(request, answered);
    let answers = exchanges.iter().map(|exchange| match exchange.status {
        200..=299 => exchange.answer(),
        status => refusal(turn.as_ref(), status, &String::from_utf8_lossy(&exchange.body)),
    });
    let answers: Vec<Answer> = answers.collect();
    let outcome = session.drive(request, answered, answers);

    let json = |text: &str| -> Value { serde_json::from_str(text).unwrap_or_default() };
    for (sent, exchange) in outcome.driven.requests.iter().zip(&exchanges) {
        let path = sent.url.strip_prefix(URL).expect("the service's URL");
        assert_eq!((sent.method, path), (exchange.method.as_str(), exchange.path.as_str()), "{name}");
        assert_eq!(json(&String::from_utf8_lossy(&sent.body)), json(&exchange.request), "{name}");
        assert!(sent.headers.iter().any(|(name, value)| name == "x-user-id" && value == "ada"));
    }
    assert_eq!(outcome.driven.requests.len(), exchanges.len(), "{name}");
    outcome
}

fn first(session: &mut Session, name: &str, text: &str) -> Outcome {
    play(session, name, &says(text), &[])
}

/// A summary without ids of the service, which are random.
fn tale(outcome: &Outcome) -> String {
    let summary = outcome.summary();
    let mut tale = String::new();
    let mut known: Vec<&str> = Vec::new();
    let mut rest = summary.as_str();
    while let Some(start) = rest.find(|next: char| next.is_ascii_hexdigit()) {
        let (before, tail) = rest.split_at(start);
        tale.push_str(before);
        let end = tail.find(|next: char| !next.is_ascii_hexdigit()).unwrap_or(tail.len());
        let (word, after) = tail.split_at(end);
        rest = after;
        if word.len() != 32 {
            tale.push_str(word);
            continue;
        }
        let number = known.iter().position(|old| *old == word).unwrap_or_else(|| {
            known.push(word);
            known.len() - 1
        });
        let _ = write!(tale, "ID{number}");
    }
    tale.push_str(rest);
    tale
}

#[test]
fn each_recorded_reply_becomes_a_run() {
    let mut tales = String::new();
    for name in ["hello", "reasoning", "tool", "parallel", "unicode", "empty", "refusal", "incomplete", "fail", "cut"] {
        let outcome = first(&mut session(name), name, &format!("{name} please"));
        let _ = writeln!(tales, "## {name}\n{}", tale(&outcome));
    }
    let outcome = first(&mut session("client-tool"), "client-tool", "client tool please");
    let _ = writeln!(tales, "## client-tool\n{}", tale(&outcome));
    insta::assert_snapshot!(tales);
}

#[test]
fn a_recorded_approval_is_answered_as_recorded() {
    let mut tales = String::new();
    let edited =
        CheckedDecision { arguments: Some(r#"{"path":"b.txt"}"#.to_owned()), ..CheckedDecision::new(Decision::Edit) };
    for (name, answer, decided) in [
        ("approval", "approval-accept", CheckedDecision::new(Decision::Accept)),
        ("approval2", "approval2-reject", CheckedDecision::new(Decision::Reject)),
        ("approval3", "approval3-edit", edited),
        // The reply was over when its stream was opened.
        ("approval4", "approval4-late", CheckedDecision::new(Decision::Accept)),
    ] {
        let mut session = session(name);
        let asked = first(&mut session, name, "approval please");
        let (request, items) = answering(&asked, &decided);
        let outcome = play(&mut session, answer, &request, &items);
        if name == "approval" {
            let _ = writeln!(tales, "## {name}\n{}", tale(&asked));
        }
        let _ = writeln!(tales, "## {answer}\n{}", tale(&outcome));
    }
    insta::assert_snapshot!(tales);
}

#[test]
fn words_in_place_of_an_answer_stop_the_reply_that_waits() {
    let mut session = session("approval5");
    first(&mut session, "approval5", "approval please");
    let mut request = says("history");
    request.id = Some("response_8".to_owned());
    let outcome = play(&mut session, "approval5-words", &request, &[]);
    assert_eq!(outcome.end(), "completed");
    assert!(outcome.texts()[0].contains("approval please"), "{:?}", outcome.texts());
}

#[test]
fn an_output_of_the_client_is_sent_as_recorded() {
    let mut session = session("client-tool");
    let asked = first(&mut session, "client-tool", "client tool please");
    let items = asked.driven.record.run().pending();
    assert_eq!(items[0].kind, pending::PendingKind::Tool);
    let output = CheckedDecision { text: Some("48.85,2.35".to_owned()), ..CheckedDecision::new(Decision::Respond) };
    let request = answers_of(vec![output.message(&items[0], false)]);
    let outcome = play(&mut session, "client-tool-output", &request, &items);
    // The client knows its own output.
    assert_eq!((outcome.texts(), outcome.end()), (vec!["I got ['48.85,2.35']".to_owned()], "completed".to_owned()));
}

#[test]
fn the_second_turn_skips_events_of_the_first() {
    let mut session = session("history");
    first(&mut session, "history", "hello there");
    let mut request = says("history");
    request.id = Some("response_8".to_owned());
    let outcome = play(&mut session, "history-second", &request, &[]);
    assert_eq!(outcome.texts(), ["Before, you said: ['hello there']"]);
}

#[test]
fn a_reply_that_is_over_when_its_stream_is_opened_is_read_from_the_session() {
    let late = first(&mut session("late"), "late", "tool please");
    let whole = first(&mut session("tool"), "tool", "tool please");
    let same = |outcome: &Outcome| {
        let run = outcome.driven.record.run();
        let messages = run.messages.iter().map(|message| {
            let shown = message.to_model();
            (shown.kind.clone(), shown.content.iter().map(|content| format!("{content:?}")).collect::<Vec<_>>())
        });
        (messages.collect::<Vec<_>>(), run.turns[0].usage.clone(), outcome.end())
    };
    assert_eq!(same(&late), same(&whole));
}

#[test]
fn a_cut_stream_resumes() {
    let words = |count: u32| (0..count).map(|number| format!("{number} ")).collect::<String>();
    // The reply continues: the stream is read again, without the part that was read before.
    let outcome = first(&mut session("long"), "long", "long 20 60");
    assert_eq!((outcome.texts(), outcome.end()), (vec![words(20)], "completed".to_owned()));
    // It has ended meanwhile.
    let outcome = first(&mut session("gone"), "gone", "long 12 60");
    assert_eq!((outcome.texts(), outcome.end()), (vec![words(12)], "completed".to_owned()));
}

#[test]
fn refusals_of_the_service_have_their_faults() {
    let folder = "../../tests/transcripts/agentscope/agentscope-2.0.10";
    let all = testkit::recorded_exchanges(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
    let turn = session("hello").turn(&says("hi"), &[]);
    let mut found = Vec::new();
    for (name, exchange) in all.iter().filter(|(_, exchange)| exchange.status >= 400) {
        let Answer::Fault(fault) = refusal(turn.as_ref(), exchange.status, &String::from_utf8_lossy(&exchange.body))
        else {
            panic!("a fault")
        };
        let sentence = fault.message.chars().take(58).collect::<String>();
        found.push(format!("{name}: {} {} {sentence}", exchange.status, fault.code()));
    }
    let expected = [
        "refused-agent: 404 UPSTREAM_MISCONFIGURED the agent's service does not know the session",
        "refused-input: 422 UPSTREAM_REFUSED the agent refused the request: input.function-after[valida",
        "refused-no-user: 422 UPSTREAM_MISCONFIGURED the agent's service wants to know who asks: options.user n",
        "refused-session: 404 UPSTREAM_MISCONFIGURED the agent's service does not know the session",
        "stop-3-busy: 409 SESSION_BUSY the agent is still at work in this session",
    ];
    assert_eq!(found, expected);
}
