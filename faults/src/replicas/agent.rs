//! The agent of the cluster, in the Agent API: it answers a text with known words, and counts the requests for each
//! text, so that a turn that is executed twice is detected.
//!
//! Not here: other agents of the rig.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use interlingua_testing_support::cluster::Task;
use serde_json::{Value, json};

use crate::frames::{EVENTS, closing, data, delta, opening, response};
use crate::server::{Request, Server, chunk};

/// A task for the agent: the text of the request has its key, the number of deltas in the answer and the time before each
/// delta.
pub(crate) fn task(key: String, words: usize, pace: Duration) -> Task {
    let text = format!("{key} {words} {}", pace.as_millis());
    let answer = (0..words).map(|number| word(&key, number)).collect();
    Task { agent: "demo", key, session: None, text, answer }
}

/// The key, the words and the pace of a task.
fn parse(text: &str) -> Option<(&str, usize, Duration)> {
    let mut parts = text.split(' ');
    let (key, words, pace) = (parts.next()?, parts.next()?, parts.next()?);
    Some((key, words.parse().ok()?, Duration::from_millis(pace.parse().ok()?)))
}

fn word(key: &str, number: usize) -> String {
    format!("{key}.{number} ")
}

/// The agent. It answers until it is dropped.
pub(crate) struct Agent {
    server: Server,
    asked: Arc<Mutex<HashMap<String, usize>>>,
}

impl Agent {
    pub(crate) fn start() -> Result<Self> {
        let asked = Arc::new(Mutex::new(HashMap::new()));
        let counts = Arc::clone(&asked);
        let server = Server::start(move |request, connection| answer(request, connection, &counts))?;
        Ok(Self { server, asked })
    }

    /// Where it takes requests.
    pub(crate) fn url(&self) -> String {
        self.server.url("/process")
    }

    /// The number of requests for each text, by the key of its task.
    pub(crate) fn asked(&self) -> HashMap<String, usize> {
        locked(&self.asked).clone()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(
    request: &Request,
    connection: &mut TcpStream,
    asked: &Mutex<HashMap<String, usize>>,
) -> std::io::Result<bool> {
    if let Some((key, frames)) = decision(&request.body) {
        *locked(asked).entry(key).or_default() += 1;
        connection.write_all(EVENTS.as_bytes())?;
        connection.write_all(&chunk(frames.as_bytes()))?;
        connection.write_all(b"0\r\n\r\n")?;
        return Ok(true);
    }
    let text = last_text(&request.body).unwrap_or_default();
    let Some((key, words, pace)) = parse(&text) else { return Ok(false) };
    *locked(asked).entry(key.to_owned()).or_default() += 1;
    connection.write_all(EVENTS.as_bytes())?;
    connection.write_all(&chunk(opening().as_bytes()))?;
    for number in 0..words {
        thread::sleep(pace);
        connection.write_all(&chunk(delta(&word(key, number)).as_bytes()))?;
    }
    connection.write_all(&chunk(closing().as_bytes()))?;
    connection.write_all(b"0\r\n\r\n")?;
    Ok(true)
}

/// The text of a request that makes the agent ask for an approval of this id.
pub(crate) fn asking(id: &str) -> String {
    format!("ask {id}")
}

/// The count's key for a decision that reached the agent.
pub(crate) fn decided(id: &str) -> String {
    format!("decision {id}")
}

/// The count's key and the answer, for a request about an approval.
fn decision(body: &[u8]) -> Option<(String, String)> {
    let parsed: Value = serde_json::from_slice(body).ok()?;
    let last = parsed["input"].as_array()?.last()?;
    if last["type"] == "mcp_approval_response" {
        let given = &last["content"][0]["data"];
        let id = given["approval_request_id"].as_str().or_else(|| given["id"].as_str())?;
        return Some((decided(id), [opening(), delta("done"), closing()].concat()));
    }

    let text = last_text(body)?;
    let id = text.strip_prefix("ask ")?;
    let asked = json!({ "id": id, "name": "rm", "arguments": "{}", "server_label": "files" });
    let content = json!({ "object": "content", "status": "completed", "type": "data", "index": 0, "delta": false,
                          "msg_id": "ask", "data": asked });
    let message = json!({ "object": "message", "status": "completed", "id": "ask", "type": "mcp_approval_request",
                          "role": "assistant", "content": [content] });
    let frames = [response("created"), response("in_progress"), data(&content.to_string()), data(&message.to_string())];
    Some((text.clone(), frames.concat() + &response("completed")))
}

/// The text of the last message of a request.
fn last_text(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let content = &body["input"].as_array()?.last()?["content"];
    let text = content.as_str().or_else(|| content.as_array()?.iter().find_map(|part| part["text"].as_str()));
    text.map(str::to_owned)
}
