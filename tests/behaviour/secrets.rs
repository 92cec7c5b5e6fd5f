//! A secret of the configuration in every place an agent can put it: it is in no answer to a client and in no log line.
//!
//! Not here: what only looks like a secret (the tests of `interlingua_core::filter`), and what an agent says in its
//! answer, which is passed on as it is.

use std::fs::{self, File};
use std::sync::Mutex;

use crate::support::gateway::JSON;
use crate::support::process::{Process, binary};
use crate::support::upstream::{Answer, Upstream};

/// Nothing about it looks like a secret.
const CANARY: &str = "correct-horse-canary";
/// `ada:swordfish-canary`
const BASIC: &str = "YWRhOnN3b3JkZmlzaC1jYW5hcnk=";
/// `correct-horse-canary` as basic credentials would have it.
const PACKED: &str = "Y29ycmVjdC1ob3JzZS1jYW5hcnk=";

/// An answer of an agent that repeats what it was sent, in every place there is.
fn answers(said: &str) -> Vec<Answer> {
    let json = [("content-type", "application/json")];
    let mut answers: Vec<Answer> = [400, 401, 404, 409, 422, 429, 500, 503]
        .into_iter()
        .flat_map(|status| {
            [
                format!(r#"{{"detail":"you sent {said}"}}"#),
                format!(r#"{{"detail":[{{"loc":["body","{said}"],"msg":"not {said}"}}]}}"#),
            ]
            .map(|body| Answer::whole(status, &json, body))
        })
        .collect();
    answers.extend(
        [
            format!(r#"{{"object":"response","status":"failed","id":"r","error":{{"code":"{said}","message":"no {said}"}}}}"#),
            format!(r#"{{"error":"no {said}"}}"#),
            format!(r#"{{"code":"{said}","message":"no {said}"}}"#),
            format!(r#"{{"object":"message","type":"error","id":"m","status":"failed","code":"{said}","message":"no {said}"}}"#),
            format!("<html>{said}</html>"),
            format!(r#"{{"ignored":"{said}"}}"#),
        ]
        .map(|frame| Answer::frames([frame])),
    );
    answers.push(Answer::whole(200, &json, format!(r#"{{"detail":"{said}"}}"#)));
    answers.push(Answer::whole(200, &json, format!(r#"{{"other":"{said}"}}"#)));
    answers.push(Answer::whole(200, &[("content-type", said)], "x"));
    answers.push(Answer::whole(200, &[("content-type", "application/json"), ("content-encoding", said)], "x"));
    answers.push(Answer::raw(format!("HTTP/1.1 {said}\r\n\r\n")).close());
    answers
}

#[tokio::test]
async fn a_secret_of_the_configuration_is_in_no_answer_and_no_log_line() {
    for format in ["pretty", "json"] {
        let told = [CANARY, &format!("Bearer {CANARY}"), BASIC, PACKED, "swordfish-canary"];
        let mut answers: Vec<Answer> = told.iter().flat_map(|said| answers(said)).collect();
        answers.reverse();
        let count = answers.len();
        let answers = Mutex::new(answers);
        let agent =
            Upstream::deciding(move |_| answers.lock().expect("no panic").pop().unwrap_or_else(Answer::silence));
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
            let mut asked = gateway.open("POST", &format!("/agents/{name}/process"), JSON, body).await;
            asked.status().await;
            let answer = asked.answer_here().await;
            let answer = answer.text();
            for secret in [CANARY, "swordfish-canary", BASIC, PACKED] {
                assert!(!answer.contains(secret), "{number}: {secret} in {answer}");
            }
        }
        assert_eq!(agent.asked().len(), count, "every answer was given");
        drop(gateway);
        let logged = fs::read_to_string(&log).expect("log lines");
        assert!(logged.contains("***"), "what was said was logged, and masked");
        for secret in [CANARY, "swordfish-canary", BASIC, PACKED] {
            let line = logged.lines().find(|line| line.contains(secret));
            assert!(line.is_none(), "{secret} in {line:?}");
        }
    }
}
