//! Recorded answers of real servers, byte for byte: `tests/transcripts/a2a`.

use std::fmt::Write as _;
use std::path::Path;

use interlingua_core::connector::Refusal;
use interlingua_core::pending::Decision;
use interlingua_core_testkit::{self as testkit, Answer, DrivenTurn, RecordedExchange};
use serde_json::{Value, json};

use super::agent::{Dialect, Session, V1, V1_REST, V03, V03_REST, decided, end, fixed, texts};

const SERVERS: [&str; 3] = ["a2a-sdk-1.3.0", "a2a-sdk-0.3.26", "a2a-js-sdk-1.3.0"];

fn recorded(server: &str) -> Vec<(String, RecordedExchange)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts/a2a").join(server);
    testkit::recorded_exchanges(&folder)
}

fn exchange(server: &str, name: &str) -> RecordedExchange {
    let found = recorded(server).into_iter().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("{server} has no recording {name}")).1
}

/// The dialect of a recorded request, if it sends a message.
fn dialect(server: &str, exchange: &RecordedExchange) -> Option<Dialect> {
    let is_rest = exchange.path.contains("/message:");
    let request: Value = serde_json::from_str(&exchange.request).unwrap_or_default();
    let method = request["method"].as_str().unwrap_or_default();
    let is_old = server.contains("-0.3") || exchange.path.contains("/v1/") || method.starts_with("message/");
    let sends = is_rest || matches!(method, "SendStreamingMessage" | "SendMessage" | "message/stream" | "message/send");
    sends.then_some(match (is_rest, is_old) {
        (false, false) => V1,
        (true, false) => V1_REST,
        (false, true) => V03,
        (true, true) => V03_REST,
    })
}

/// The answer, with the number of the connector's call in place of the recorder's `r1`.
fn answer(exchange: &RecordedExchange, call: u64) -> Answer {
    let text = String::from_utf8(exchange.body.clone()).expect("UTF-8");
    let text =
        text.replace(r#""id": "r1""#, &format!("\"id\":{call}")).replace(r#""id":"r1""#, &format!("\"id\":{call}"));
    RecordedExchange { body: text.into_bytes(), ..exchange.clone() }.answer()
}

/// The outcome of an answer, without its pieces, whose sizes depend on timing.
fn tale(driven: &DrivenTurn) -> String {
    let run = driven.record.run();
    let pending = run.pending();
    let pending: String = pending.iter().map(|item| format!("waits for {}\n", item.to_data().text())).collect();
    let is_piece = |line: &&str| !line.trim_start().split_once(' ').is_some_and(|(_, rest)| rest.starts_with("+ "));
    let tale = testkit::render(&driven.record);
    format!("{}\n{pending}", tale.lines().filter(is_piece).collect::<Vec<_>>().join("\n"))
}

#[test]
fn each_recorded_answer_becomes_a_run() {
    for server in SERVERS {
        let mut tales = String::new();
        for (name, exchange) in recorded(server) {
            let Some(dialect) = dialect(server, &exchange) else { continue };
            // Cut answers continue with other requests, and answers need the question before them: see below.
            if exchange.is_cut || name.contains("-answer") || name.starts_with("wedge") || name == "immediately" {
                continue;
            }
            let mut options = fixed(dialect);
            options["streaming"] = json!(exchange.media_type == "text/event-stream");
            let mut session = Session::new(&options);
            let answer = if exchange.status == 200 {
                answer(&exchange, 1)
            } else {
                let turn = session.turn(&super::agent::request(Vec::new()), &[]);
                let refusal = Refusal { status: exchange.status, body: &exchange.body, retry_after: None };
                Answer::Fault(turn.map_refusal(&refusal))
            };
            // Where a dialect is refused, another one is tried, to no avail.
            let again = match &answer {
                Answer::Fault(fault) => Answer::Fault(fault.clone()),
                _ => Answer::body(r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"no other"}}"#),
            };
            let driven = session.send_text("a word", std::iter::once(answer).chain(vec![again; 8]));
            let _ = writeln!(tales, "## {name} ({} {})\n{}", dialect.version, dialect.binding, tale(&driven));
        }
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(server, tales) });
    }
}

#[test]
fn recorded_questions_are_answered() {
    // The recorded agent of the JavaScript server continues a task without naming it, which that server refuses.
    for server in &SERVERS[..2] {
        let dialect = if server.contains("-0.3") { V03 } else { V1 };
        for (name, decision, text) in [
            ("question", Decision::Respond, Some("blue")),
            ("login", Decision::Accept, None),
            ("approval", Decision::Respond, Some("yes")),
        ] {
            let mut session = Session::new(&fixed(dialect));
            let waiting = session.send_text("a word", [answer(&exchange(server, name), 1)]);
            let second = answer(&exchange(server, &format!("{name}-answer")), 1);
            let driven = session.decide(&waiting, &decided(decision, text), [second]);
            assert_eq!(end(&driven), "completed", "{server} {name}");
            let said = texts(&driven);
            assert_eq!(said.len(), 1, "only what is new: {said:?}");
            assert!(said[0].1.starts_with(&format!("Your answer to the {name}: ")), "{server}: {said:?}");
        }
    }
}

#[test]
fn a_recorded_cut_is_taken_up_exactly() {
    for server in ["a2a-sdk-1.3.0", "a2a-js-sdk-1.3.0"] {
        let mut session = Session::new(&fixed(V1));
        // What the task says at its end is what counts.
        let names = ["long-cut", "long-subscribe", "long-subscribe-2", "long-get-after"];
        let answers = names.iter().zip(1..).map(|(name, call)| answer(&exchange(server, name), call));
        let driven = session.send_text("long", answers);
        // The recorder canceled the task in the end.
        assert_eq!(end(&driven), "canceled", "{server}");
        let text = driven.record.run().messages[0].text();
        let count = text.split_whitespace().count();
        assert!(count > 15, "{text}");
        let whole: String = (0..count).map(|number| format!("{number} ")).collect();
        assert_eq!(text, whole, "{server}");
    }
}

/// 0.3.26 stores events twice during a resubscription; the connector polls the task instead.
#[test]
fn a_recorded_cut_of_0_3_is_polled() {
    let server = "a2a-sdk-0.3.26";
    let (cut, known) = (answer(&exchange(server, "long-cut"), 1), answer(&exchange(server, "long-get"), 2));
    let same = answer(&exchange(server, "long-get"), 3);
    let Answer::Body(body) = same else { panic!("a body") };
    let ended = String::from_utf8(body).expect("UTF-8").replace("\"working\"", "\"completed\"");
    let driven = Session::new(&fixed(V03)).send_text("long", [cut, known, Answer::Body(ended.into_bytes())]);
    assert_eq!(end(&driven), "completed");
    let whole: String = (0..11).map(|number| format!("{number} ")).collect();
    assert_eq!(texts(&driven), [("message".to_owned(), whole)]);
    let methods: Vec<String> = driven
        .requests
        .iter()
        .map(|request| serde_json::from_slice::<Value>(&request.body).expect("JSON")["method"].to_string())
        .collect();
    assert_eq!(methods, ["\"message/stream\"", "\"tasks/get\"", "\"tasks/get\""]);

    // The agent's code failed: the connection is cut, and the task never changes.
    for name in ["raise", "broken"] {
        let stays = exchange(server, &format!("{name}-get"));
        let answers =
            std::iter::once(answer(&exchange(server, name), 1)).chain((2..40).map(|call| answer(&stays, call)));
        let driven = Session::new(&fixed(V03)).send_text(name, answers);
        assert!(end(&driven).starts_with("failed UPSTREAM_TRUNCATED"), "{}", end(&driven));
    }
}

#[test]
fn the_recorded_cards_name_an_interface() {
    for (server, expected) in [
        ("a2a-sdk-1.3.0", "SendStreamingMessage"),
        ("a2a-sdk-0.3.26", "message/stream"),
        ("a2a-js-sdk-1.3.0", "SendStreamingMessage"),
    ] {
        let card = Answer::Body(exchange(server, "card").body);
        let hello = answer(&exchange(server, "hello"), 1);
        let mut session = Session::new(&json!({}));
        let driven = session.send_text("hello", [card, hello]);
        assert_eq!(end(&driven), "completed", "{server}");
        let sent: Value = serde_json::from_slice(&driven.requests[1].body).expect("JSON");
        assert_eq!(sent["method"], expected, "{server}");
        // The recorded host is another one: only its path counts.
        assert!(driven.requests[1].url.starts_with("https://agent.example/"), "{}", driven.requests[1].url);
    }
}

#[test]
fn bytes_that_0_3_26_encodes_twice_over_rest_are_decoded_once() {
    let exchange = exchange("a2a-sdk-0.3.26", "rest-image");
    let driven = Session::new(&fixed(V03_REST)).send_text("image", [exchange.answer()]);
    let tale = testkit::render(&driven.record);
    assert!(tale.contains("data:image/png;base64,iVBORw0KGgo"), "{tale}");
}
