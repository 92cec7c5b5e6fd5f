//! A configured secret that an agent repeats in every possible place: it appears in no response and in no log line.
//!
//! Not here: text that only looks like a secret (the tests of `interlingua_core::filter`), and the output of a
//! successful turn, which is passed on unchanged.

use std::fs::{self, File};
use std::sync::Mutex;

use crate::support::gateway::JSON;
use crate::support::process::{Process, binary};
use crate::support::upstream::{Reply, Upstream};

/// Does not match any pattern of a secret.
const CANARY: &str = "correct-horse-canary";
/// `ada:swordfish-canary`
const BASIC: &str = "YWRhOnN3b3JkZmlzaC1jYW5hcnk=";
/// `correct-horse-canary` in base64.
const PACKED: &str = "Y29ycmVjdC1ob3JzZS1jYW5hcnk=";

/// Replies of an agent that repeat a text in every possible place.
fn answers(text: &str) -> Vec<Reply> {
    let json = [("content-type", "application/json")];
    let mut answers: Vec<Reply> = [400, 401, 404, 409, 422, 429, 500, 503]
        .into_iter()
        .flat_map(|status| {
            [
                format!(r#"{{"detail":"you sent {text}"}}"#),
                format!(r#"{{"detail":[{{"loc":["body","{text}"],"msg":"not {text}"}}]}}"#),
            ]
            .map(|body| Reply::complete(status, &json, body))
        })
        .collect();
    answers.extend(
        [
            format!(r#"{{"object":"response","status":"failed","id":"r","error":{{"code":"{text}","message":"no {text}"}}}}"#),
            format!(r#"{{"error":"no {text}"}}"#),
            format!(r#"{{"code":"{text}","message":"no {text}"}}"#),
            format!(r#"{{"object":"message","type":"error","id":"m","status":"failed","code":"{text}","message":"no {text}"}}"#),
            format!("<html>{text}</html>"),
            format!(r#"{{"ignored":"{text}"}}"#),
        ]
        .map(|frame| Reply::frames([frame])),
    );
    answers.push(Reply::complete(200, &json, format!(r#"{{"detail":"{text}"}}"#)));
    answers.push(Reply::complete(200, &json, format!(r#"{{"other":"{text}"}}"#)));
    answers.push(Reply::complete(200, &[("content-type", text)], "x"));
    answers.push(Reply::complete(200, &[("content-type", "application/json"), ("content-encoding", text)], "x"));
    answers.push(Reply::raw(format!("HTTP/1.1 {text}\r\n\r\n")).close());
    answers
}

#[tokio::test]
async fn a_configured_secret_appears_in_no_response_and_no_log_line() {
    for format in ["pretty", "json"] {
        let received = [CANARY, &format!("Bearer {CANARY}"), BASIC, PACKED, "swordfish-canary"];
        let mut answers: Vec<Reply> = received.iter().flat_map(|text| answers(text)).collect();
        answers.reverse();
        let count = answers.len();
        let answers = Mutex::new(answers);
        let agent =
            Upstream::with_handler(move |_| answers.lock().expect("no panic").pop().unwrap_or_else(Reply::silence));
        let folder = tempfile::tempdir().expect("a folder");
        let url = agent.url("/process");
        let settings = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n[store]\nkind = \"memory\"\n\
             [agents.one.upstream]\nprotocol = \"agent-api\"\nurl = \"{url}\"\nretries = 0\n\
             headers = {{ authorization = {{ env = \"CANARY\", prefix = \"Bearer \" }} }}\n\
             [agents.two.upstream]\nprotocol = \"agent-api\"\nurl = \"{url}\"\nretries = 0\n\
             headers = {{ authorization = {{ env = \"BASIC\", prefix = \"Basic \" }} }}\n\
             [[routes]]\nprotocol = \"agent-api\"\npath = \"/agents/{{agent}}\"\n"
        );
        fs::write(folder.path().join("gateway.toml"), settings).expect("the configuration");
        let log = folder.path().join("log");
        let lines = File::create(&log).expect("a file");
        let mut command = binary(folder.path());
        command.args(["--log", "debug", "--log-format", format]).stderr(lines);
        command.env("CANARY", CANARY).env("BASIC", BASIC);
        let gateway = Process::spawn(command);
        let body = br#"{"input":[{"role":"user","content":"hi"}]}"#;
        for number in 0..count {
            let name = if number % 2 == 0 { "one" } else { "two" };
            let mut exchange = gateway.open("POST", &format!("/agents/{name}/process"), JSON, body).await;
            exchange.status().await;
            let answer = exchange.read_response().await;
            let answer = answer.text();
            for secret in [CANARY, "swordfish-canary", BASIC, PACKED] {
                assert!(!answer.contains(secret), "{number}: {secret} in {answer}");
            }
        }
        assert_eq!(agent.requests().len(), count, "every reply was sent");

        drop(gateway);
        let logged = fs::read_to_string(&log).expect("log lines");
        assert!(logged.contains("***"), "the replies were logged and masked");
        for secret in [CANARY, "swordfish-canary", BASIC, PACKED] {
            let line = logged.lines().find(|line| line.contains(secret));
            assert!(line.is_none(), "{secret} in {line:?}");
        }
    }
}
