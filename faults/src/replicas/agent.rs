//! The agent of the cluster, in the Agent API: it answers a text with known words, and counts the requests for each
//! text, so that a turn that is executed twice is detected.
//!
//! Not here: other agents of the rig.

use std::collections::HashMap;
use std::time::Duration;

use interlingua_testing_support::agent::{approval_request, paced_reply, text_reply};
use interlingua_testing_support::cluster::Task;
use interlingua_testing_support::gateway::last_input_text;
use interlingua_testing_support::upstream::{Reply, Upstream};
use serde_json::Value;

/// A task for the agent: the text of the request has its key, the number of deltas in the answer and the time before
/// each delta.
pub(crate) fn task(key: String, words: usize, pace: Duration) -> Task {
    let text = format!("{key} {words} {}", pace.as_millis());
    let answer = answer(&key, words).concat();
    Task { agent: "demo", key, session: None, text, answer }
}

/// The key, the words and the pace of a task.
fn parse(text: &str) -> Option<(&str, usize, Duration)> {
    let mut parts = text.split(' ');
    let (key, words, pace) = (parts.next()?, parts.next()?, parts.next()?);
    Some((key, words.parse().ok()?, Duration::from_millis(pace.parse().ok()?)))
}

fn answer(key: &str, words: usize) -> Vec<String> {
    (0..words).map(|number| format!("{key}.{number} ")).collect()
}

/// The agent. It answers until it is dropped.
pub(crate) struct Agent(Upstream);

impl Agent {
    pub(crate) fn start() -> Self {
        Self(Upstream::with_handler(|request| reply(&request.json()).1))
    }

    /// Where it takes requests.
    pub(crate) fn url(&self) -> String {
        self.0.url("/process")
    }

    /// The number of requests for each text, by the key of its task.
    pub(crate) fn asked(&self) -> HashMap<String, usize> {
        let mut counts = HashMap::new();
        for request in self.0.requests() {
            *counts.entry(reply(&request.json()).0).or_default() += 1;
        }
        counts
    }
}

/// The key of a request, and the reply.
fn reply(body: &Value) -> (String, Reply) {
    let (last, text) = (body["input"].as_array().and_then(|input| input.last()), last_input_text(body));
    if let Some(last) = last.filter(|last| last["type"] == "mcp_approval_response") {
        let given = &last["content"][0]["data"];
        let id = given["approval_request_id"].as_str().or_else(|| given["id"].as_str()).unwrap_or_default();
        (decided(id), text_reply(&["done"]))
    } else if let Some(id) = text.strip_prefix("ask ") {
        (text.clone(), approval_request(id))
    } else if let Some((key, words, pace)) = parse(&text) {
        (key.to_owned(), paced_reply(&answer(key, words), pace))
    } else {
        (text, Reply::nothing())
    }
}

/// The text of a request that makes the agent ask for an approval of this id.
pub(crate) fn asking(id: &str) -> String {
    format!("ask {id}")
}

/// The count's key for a decision that reached the agent.
pub(crate) fn decided(id: &str) -> String {
    format!("decision {id}")
}
