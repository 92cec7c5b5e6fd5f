//! Everything in a store that needs no scripted agent: the runs of the demo agent over every client protocol, and the
//! documents that clients keep.
//!
//! Not here: the checks of it (`check`).

use serde_json::{Value, json};

use crate::contents::{Contents, Documents, EndedRun, Push, Resent, Waiting};
use crate::stand::Stand;
use crate::support::gateway::{Gateway, user_turn_in};
use crate::support::http::Response;
use crate::support::pairs::{ALL_PROTOCOLS, Protocol, latest, runs, texts_of};
use crate::support::upstream::unused_address;

/// The commands that make the demo agent wait.
const QUESTIONS: [&str; 5] = ["approval", "approvals", "question", "login", "client tool"];
/// The commands whose runs end.
const ENDS: [&str; 6] = ["tool echo done", "reasoning", "fail", "incomplete", "cancel", "unicode"];

/// Writes it all. Scripted agents are left to others.
pub(crate) async fn write(stand: &Stand) -> Contents {
    let ann = stand.ann();
    let mut waiting = Vec::new();
    for protocol in ALL_PROTOCOLS {
        for command in QUESTIONS {
            let session = format!("{}-{}", protocol.name(), command.replace(' ', "-"));
            waiting.push(ask(&ann, protocol, &session, command).await);
        }
    }

    let mut ended = Vec::new();
    for protocol in ALL_PROTOCOLS {
        for command in ENDS {
            ended.push(end(&ann, protocol, command).await);
        }
    }
    let resent = vec![
        resend(&ann, Protocol::ChatCompletions).await,
        resend(&ann, Protocol::AnthropicMessages).await,
        resend(&ann, Protocol::AgUi).await,
    ];
    let push = push(&ann).await;
    let documents = documents(stand, &ann).await;
    let day = day_of_today();
    Contents { waiting, ended, resent, played: Vec::new(), received: Vec::new(), push, documents, day }
}

/// The current day in UTC, in days since 1970.
pub(crate) fn day_of_today() -> u64 {
    interlingua::clock::now() / 86_400_000
}

/// Asks the demo agent for something that waits.
async fn ask(gateway: &Gateway, protocol: Protocol, session: &str, command: &str) -> Waiting {
    let interrupt = protocol.ask(gateway, session, command).await;
    let run = gateway.run("demo", &interrupt.run).await;
    let items = open_items(&run);
    assert_eq!(items.len(), if command == "approvals" { 2 } else { 1 }, "{run}");
    Waiting {
        protocol: protocol.name().to_owned(),
        command: command.to_owned(),
        session: interrupt.session,
        run: interrupt.run,
        items,
    }
}

/// The ids of the items that a run asks for, as the Agent API shows them.
pub(crate) fn open_items(run: &Value) -> Vec<String> {
    let messages = run["output"].as_array().expect("messages");
    let asks = messages
        .iter()
        .filter(|message| matches!(message["type"].as_str(), Some("mcp_approval_request" | "function_call")));
    let data =
        asks.flat_map(|message| message["content"].as_array().expect("contents")).map(|content| &content["data"]);
    data.map(|data| data["id"].as_str().or(data["call_id"].as_str()).expect("an id").to_owned()).collect()
}

/// The texts of a run, as the Agent API shows it.
pub(crate) fn texts_of_run(run: &Value) -> String {
    texts_of(&run["output"].to_string())
}

async fn end(gateway: &Gateway, protocol: Protocol, command: &str) -> EndedRun {
    let name = format!("{}-{}", protocol.name(), command.replace(' ', "-"));
    let answer = protocol.say(gateway, &name, command, None).await;
    // A client of Responses names no session, so its latest run of all is the one.
    let path = "/agents/demo/runs?limit=1";
    let run = match protocol {
        Protocol::Responses => gateway.get(path).await.json()["data"][0].clone(),
        _ => latest(gateway, &name).await,
    };
    let id = run["id"].as_str().expect("an id").to_owned();
    let run = gateway.run("demo", &id).await;
    assert_ne!(run["status"], "in_progress", "{}", answer.text());
    EndedRun {
        protocol: protocol.name().to_owned(),
        command: command.to_owned(),
        session: run["session_id"].as_str().expect("a session").to_owned(),
        run: id,
        status: run["status"].as_str().expect("a status").to_owned(),
        texts: texts_of_run(&run),
        code: run["error"]["code"].as_str().unwrap_or_default().to_owned(),
    }
}

/// A message in the form of a protocol whose clients send the whole conversation.
pub(crate) fn message(protocol: Protocol, role: &str, number: usize, text: &str) -> Value {
    match protocol {
        Protocol::AgUi => json!({ "id": format!("message-{number}"), "role": role, "content": text }),
        _ => json!({ "role": role, "content": text }),
    }
}

/// A conversation of two turns.
async fn resend(gateway: &Gateway, protocol: Protocol) -> Resent {
    let name = format!("{}-resent", protocol.name());
    let mut messages = Vec::new();
    for words in ["one", "two"] {
        messages.push(message(protocol, "user", messages.len(), &format!("echo {words}")));
        let turn = protocol.resend(&name, words, &json!(messages), &Value::Null, false);
        let answer = turn.send(gateway).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        messages.push(message(protocol, "assistant", messages.len(), words));
    }
    let run = newest(gateway, "demo").await;
    let session = run["session_id"].as_str().expect("a session").to_owned();
    let runs = runs(gateway, &session).await.len();
    assert_eq!(runs, 2, "one conversation is one session");
    Resent { protocol: protocol.name().to_owned(), name, session, messages, runs }
}

/// The newest run of an agent.
pub(crate) async fn newest(gateway: &Gateway, agent: &str) -> Value {
    let listed = gateway.get(&format!("/agents/{agent}/runs?limit=1")).await;
    assert_eq!(listed.status, 200, "{}", listed.text());
    listed.json()["data"][0].clone()
}

/// Calls a method of A2A 1.0 over JSON-RPC at the demo agent, and returns the result.
pub(crate) async fn a2a(gateway: &Gateway, method: &str, params: &Value) -> Value {
    let headers = [("a2a-version", "1.0"), ("content-type", "application/json")];
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let answer = gateway.open("POST", "/a2a/demo", &headers, body.as_bytes()).await.response().await;
    let answer = answer.json();
    assert!(answer["error"].is_null(), "{method}: {answer}");
    answer["result"].clone()
}

/// A waiting task with a push config.
async fn push(gateway: &Gateway) -> Push {
    let waiting = ask(gateway, Protocol::A2a, "pushed", "approval").await;
    let receiver = format!("http://{}", unused_address());
    let task = waiting.run.trim_start_matches("response_");
    let config = json!({ "taskId": task, "id": "hook", "url": format!("{receiver}/hook"), "token": "secret" });
    let made = a2a(gateway, "CreateTaskPushNotificationConfig", &config).await;
    let config = made["id"].as_str().expect("an id").to_owned();
    Push { receiver, waiting, config }
}

async fn documents(stand: &Stand, ann: &Gateway) -> Documents {
    let text = |words: &str| json!({ "role": "user", "type": "message", "content": [{ "type": "input_text", "text": words }] });
    let items = vec!["first".to_owned(), "second".to_owned()];
    let sent: Vec<Value> = items.iter().map(|item| text(item)).collect();
    let conversation = created(ann.post("/v1/conversations", &json!({ "items": sent })).await);

    let response = created(ann.post("/v1/responses", &json!({ "model": "kept", "input": "echo one" })).await);
    let metadata = json!({ "topic": "upgrade" });
    let messages = json!([{ "role": "user", "content": "echo stored" }]);
    let completion = json!({ "model": "demo", "messages": messages, "store": true, "metadata": metadata });
    let completion = created(ann.post("/v1/chat/completions", &completion).await);

    for words in ["echo one", "echo two"] {
        turn(ann, "kept", "kept", words).await;
    }
    let mut tokens = 0;
    let eve = stand.caller("eve");
    while tokens < crate::stand::TOKENS {
        let answer = turn(&eve, "demo", "costly", "usage a few words").await;
        tokens += answer["usage"]["total_tokens"].as_u64().expect("a number");
    }
    let foreign = turn(&stand.caller("bob"), "demo", "private", "echo secret").await;
    let foreign = foreign["id"].as_str().expect("an id").to_owned();

    let runs = total(ann).await;
    Documents { conversation, items, response, completion, kept_session: "kept".to_owned(), tokens, runs, foreign }
}

/// The number of runs with the demo agent.
pub(crate) async fn total(gateway: &Gateway) -> u64 {
    gateway.get("/agents/demo/runs?limit=1").await.json()["total"].as_u64().expect("a number")
}

fn created(answer: Response) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["id"].as_str().expect("an id").to_owned()
}

/// Runs a turn over the Agent API and returns its end.
pub(crate) async fn turn(gateway: &Gateway, agent: &str, session: &str, words: &str) -> Value {
    let mut body = user_turn_in(session, words);
    body["stream"] = false.into();
    let answer = gateway.post(&format!("/agents/{agent}/process"), &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}
