//! What the log says of a turn that failed, and what clients are told of it: one line with everything that helps, and
//! nothing of it that is not theirs.

use serde_json::{Value, json};

use crate::support::agent::{announced, beginning, saying, word};
use crate::support::gateway::{JSON, ROUTE, agent, last_said, says_in};
use crate::support::process::Process;
use crate::support::until;
use crate::support::upstream::{Answer, Upstream};

/// What an agent does, and what has to come of it.
struct Case {
    /// What it is told, and does then.
    word: &'static str,
    code: &'static str,
    /// What clients are told.
    told: &'static str,
    /// What the log line holds besides, in any field.
    logged: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case { word: "breaks off", code: "UPSTREAM_TRUNCATED", told: "the agent broke off its answer", logged: &[] },
    Case {
        word: "breaks off at once",
        code: "UPSTREAM_TRUNCATED",
        told: "the agent broke off its answer",
        logged: &[],
    },
    Case { word: "says that it failed", code: "MODEL_DOWN", told: "the model is down", logged: &["the model is down"] },
    Case {
        word: "speaks chat completions",
        code: "UPSTREAM_PROTOCOL_ERROR",
        told: "the agent's answer is not in the protocol that it is asked in",
        logged: &["content-type: text/event-stream", "chat.completion.chunk"],
    },
    Case {
        word: "speaks something of its own",
        code: "UPSTREAM_PROTOCOL_ERROR",
        told: "the agent's answer is not in the protocol that it is asked in",
        logged: &["content-type: text/event-stream", "hi there"],
    },
    Case {
        word: "speaks plain text",
        code: "UPSTREAM_PROTOCOL_ERROR",
        told: "the agent's answer is not in the protocol that it is asked in",
        logged: &["content-type: text/plain", "hello, world"],
    },
    Case {
        word: "has no such path",
        code: "UPSTREAM_REFUSED",
        told: "the agent has nothing at the URL that the gateway asks",
        logged: &["/process answered 404", "who-reads-this"],
    },
    Case {
        word: "redirects",
        code: "UPSTREAM_REFUSED",
        told: "the agent redirects elsewhere, and redirects are not followed",
        logged: &["/process answered 307, to http://elsewhere.example/process/"],
    },
    Case {
        word: "refuses",
        code: "UPSTREAM_REFUSED",
        told: "the agent refused the request: the colour is not one",
        logged: &["the colour is not one"],
    },
];

fn plays(word: &str) -> Answer {
    const STREAM: &[(&str, &str)] = &[("content-type", "text/event-stream")];
    const BODY: &[(&str, &str)] = &[("content-type", "application/json")];
    match word {
        "breaks off" => {
            let said = beginning().into_iter().chain([super::support::agent::word("so far")]);
            said.fold(Answer::events(), |answer, frame| answer.frame(&frame)).done()
        }
        "breaks off at once" => Answer::events().done(),
        "says that it failed" => {
            let failed = json!({ "object": "response", "status": "failed", "id": "response_up",
                "error": { "code": "MODEL_DOWN", "message": "the model is down" } });
            let said = beginning().into_iter().chain([failed.to_string()]);
            said.fold(Answer::events(), |answer, frame| answer.frame(&frame)).done()
        }
        "speaks chat completions" => {
            let chunk =
                json!({ "id": "c", "object": "chat.completion.chunk", "choices": [{ "delta": { "content": "hi" } }] });
            Answer::frames([chunk.to_string(), "[DONE]".to_owned()])
        }
        "speaks something of its own" => Answer::whole(200, STREAM, "data: {\"text\":\"hi there\"}\n\n"),
        "speaks plain text" => Answer::whole(200, &[("content-type", "text/plain")], "hello, world"),
        "has no such path" => {
            let long = format!(r#"{{"detail":"who-reads-this {}"}}"#, "x".repeat(4000));
            Answer::whole(404, BODY, long)
        }
        "redirects" => {
            let to = "http://user:hidden@elsewhere.example/process/?token=hidden";
            Answer::whole(307, &[("location", to)], "")
        }
        "refuses" => Answer::whole(422, BODY, r#"{"detail":"the colour is not one"}"#),
        _ => saying(&["hello"]),
    }
}

/// The lines of a log that were written so far.
fn lines(folder: &std::path::Path) -> Vec<Value> {
    let log = std::fs::read_to_string(folder.join("log")).expect("a log");
    log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("a line of JSON: {line}"))).collect()
}

#[tokio::test]
async fn a_turn_that_fails_has_one_warning_with_its_cause() {
    let upstream = Upstream::deciding(|asked| plays(&last_said(&asked.json())));
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("{}?key=in-the-query", upstream.url("/process"));
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nkind = \"memory\"\n{}{ROUTE}",
        agent("friday", &url, "", "retries = 0")
    );
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    let process = Process::start_logging(folder.path());
    for (number, case) in CASES.iter().enumerate() {
        let session = format!("s-{number}");
        let mut body = says_in(&session, case.word);
        body["stream"] = json!(false);
        let body = body.to_string();
        let answer = process.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await.answer().await;
        let told = answer.text();
        assert!(told.contains(case.code) && told.contains(case.told), "{}: {told}", case.word);
        for hidden in ["who-reads-this", "hidden", "in-the-query", "elsewhere.example"] {
            assert!(!told.contains(hidden), "{}: {told}", case.word);
        }
        let ended = until("the turn to be logged", async || {
            let of_turn = |line: &Value| line["session"] == session.as_str();
            let lines = lines(folder.path());
            lines.iter().any(of_turn).then_some(lines)
        })
        .await;
        let warnings: Vec<&Value> =
            ended.iter().filter(|line| line["level"] == "WARN" || line["level"] == "ERROR").collect();
        assert_eq!(warnings.len(), number + 1, "{}: one warning for one fault: {warnings:#?}", case.word);
        let line = warnings[number];
        assert_eq!(line["message"], "turn failed", "{}", case.word);
        let fields = ["code", "session", "agent", "route", "protocol", "blame"].map(|name| line[name].as_str());
        let blame = "upstream";
        let expected = [case.code, session.as_str(), "friday", "/agents/friday", "agent-api", blame].map(Some);
        assert_eq!(fields, expected, "{}: {line}", case.word);
        assert!(line["run"].is_string() && line["cause"].is_string(), "{}: {line}", case.word);
        let text = line.to_string();
        for logged in case.logged {
            assert!(text.contains(logged), "{}: {logged} is missing in {line}", case.word);
        }
        assert!(!text.contains("hidden") && !text.contains("in-the-query"), "{}: {line}", case.word);
        assert!(text.len() < 2048, "{}: a line has {} bytes", case.word, text.len());
    }
    // A good one is told of, and is no warning.
    let body = says_in("good", "hello").to_string();
    let answer = process.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await.answer().await;
    assert_eq!(answer.status, 200);
    let lines = until("the good turn to be logged", async || {
        let lines = lines(folder.path());
        lines.iter().any(|line| line["session"] == "good").then_some(lines)
    })
    .await;
    assert_eq!(lines.iter().filter(|line| line["level"] == "WARN").count(), CASES.len());
}

#[tokio::test]
async fn a_frame_that_says_nothing_known_is_shown_in_the_log_of_its_turn() {
    let upstream = Upstream::deciding(|_| {
        let said = beginning().into_iter().chain([json!({ "object": "chunk", "text": "odd one" }).to_string()]);
        let said = said.chain([announced(), word("so far")]);
        said.fold(Answer::events(), |answer, frame| answer.frame(&frame)).done()
    });
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nkind = \"memory\"\n{}{ROUTE}",
        agent("friday", &upstream.url("/process"), "", "")
    );
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    let process = Process::start_logging(folder.path());
    let body = says_in("s", "hi").to_string();
    let answer = process.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await.answer().await;
    assert!(answer.text().contains("UPSTREAM_TRUNCATED"), "{}", answer.text());
    let line =
        until("the turn to be logged", async || lines(folder.path()).into_iter().find(|line| line["session"] == "s"))
            .await;
    assert_eq!(line["ignored_frames"], 1, "{line}");
    assert!(line["first_ignored"].as_str().is_some_and(|frame| frame.contains("odd one")), "{line}");
}
