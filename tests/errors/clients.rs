//! Reads the error in an answer as a client of each protocol does, and applies the retry rules of the official SDKs.

use interlingua_core::FaultKind as K;
use serde_json::Value;

use crate::expected::ExpectedReport;
use crate::rows::HIDDEN;
use crate::support::gateway::Gateway;
use crate::support::http::Response;
use crate::support::pairs::{Protocol, frames};

/// Asks an agent in a session of its own.
pub(crate) async fn ask(gateway: &Gateway, client: Protocol, agent: &str, session: &str, streamed: bool) -> Response {
    let mut turn = client.turn(session, "hi", streamed);
    let path = turn.path.replace("/demo", &format!("/{agent}"));
    if turn.body.get("model").is_some() {
        turn.body["model"] = agent.into();
    }
    if let Some(tool) = turn.body.pointer_mut("/params/name") {
        *tool = agent.into();
    }
    let body = turn.body.to_string();
    gateway.open("POST", &path, &turn.headers(), body.as_bytes()).await.response().await
}

/// Whether the official SDKs of OpenAI and Anthropic repeat a request that was answered so.
fn sdk_repeats(answer: &Response) -> bool {
    match answer.header("x-should-retry") {
        Some("true") => true,
        Some("false") => false,
        _ => matches!(answer.status, 408 | 409 | 429 | 500..),
    }
}

/// Compares an answer with what a client has to be reported. `begun`: the agent had said something before. Returns what
/// is wrong.
pub(crate) fn judge(client: Protocol, answer: &Response, reported: &ExpectedReport, begun: bool) -> Result<(), String> {
    let text = answer.text();
    for hidden in HIDDEN.split(' ') {
        if text.contains(hidden) {
            return Err(format!("it shows {hidden}: {text}"));
        }
    }
    if matches!(answer.status, 401 | 403) {
        return Err(format!("it looks like the client's own credentials: {} {text}", answer.status));
    }

    let has_status = answer.status != 200;
    let seen = if has_status { refused(client, answer) } else { failed(client, answer) };
    let seen = seen.ok_or_else(|| format!("it has no error: {} {text}", answer.status))?;
    let wanted = wanted(client, reported, has_status);
    if (answer.status, &seen) != (wanted.0, &wanted.1) {
        return Err(format!("{} {seen:?} instead of {wanted:?}: {text}", answer.status));
    }

    let is_sdk = matches!(client, Protocol::Responses | Protocol::ChatCompletions | Protocol::AnthropicMessages);
    let may_repeat = has_status && !begun && reported.retry_helps;
    if is_sdk && sdk_repeats(answer) != may_repeat {
        return Err(format!(
            "its SDK repeats it, or does not: {} {:?}",
            answer.status,
            answer.header("x-should-retry")
        ));
    }
    if is_sdk && !begun && !has_status {
        return Err(format!("nothing was said before, and the status is 200: {text}"));
    }
    let has_pause = answer.header("retry-after").is_some();
    if has_status && has_pause && !reported.retry_helps {
        return Err(format!("it names a pause, and asking again does not help: {}", answer.status));
    }
    if reported.class == K::UpstreamContextTooLong
        && client == Protocol::AnthropicMessages
        && !text.contains("prompt is too long")
    {
        return Err(format!("clients do not know that the conversation is too long: {text}"));
    }
    Ok(())
}

/// Status and words of an answer.
fn wanted(client: Protocol, reported: &ExpectedReport, has_status: bool) -> (u16, Vec<String>) {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let (status, found): (u16, Vec<String>) = match client {
        Protocol::AgentApi | Protocol::AgUi => (reported.status, words(&[reported.code])),
        Protocol::AgKit if has_status => (reported.status, vec![reported.code.to_lowercase()]),
        Protocol::AgKit | Protocol::Hitl => (reported.status, Vec::new()),
        Protocol::Responses if !has_status => (200, words(&[reported.response])),
        Protocol::Responses | Protocol::ChatCompletions => {
            (reported.openai.0, words(&[reported.openai.1, reported.openai.2]))
        }
        Protocol::AnthropicMessages => (reported.anthropic.0, words(&[reported.anthropic.1])),
        Protocol::A2a if has_status => (reported.a2a.0, words(&[reported.a2a.1])),
        // What an agent does is for the model, in a result.
        Protocol::A2a | Protocol::Mcp => (200, words(&[reported.code])),
    };
    (if has_status { status } else { 200 }, found)
}

fn word(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// The words of an error with a status.
fn refused(client: Protocol, answer: &Response) -> Option<Vec<String>> {
    let body: Value = serde_json::from_slice(&answer.body).ok()?;
    let error = &body["error"];
    match client {
        Protocol::AgentApi => Some(vec![own_code(word(&body["code"])?)]),
        Protocol::AgKit => Some(vec![own_code(word(&error["code"])?.to_uppercase()).to_lowercase()]),
        Protocol::AgUi => Some(vec![own_code(word(&error["code"])?)]),
        Protocol::Responses | Protocol::ChatCompletions => {
            let has_all = ["message", "type", "param", "code"].iter().all(|key| error.get(*key).is_some());
            has_all.then(|| Some(vec![word(&error["type"])?, word(&error["code"])?]))?
        }
        Protocol::AnthropicMessages => (body["type"] == "error").then(|| Some(vec![word(&error["type"])?]))?,
        Protocol::A2a => Some(vec![word(&error["status"])?]),
        Protocol::Hitl => body["detail"].is_string().then(Vec::new),
        Protocol::Mcp => Some(vec![own_code(word(&error["data"]["code"])?)]),
    }
}

/// An agent's own code stands for the class of all failures.
fn own_code(code: String) -> String {
    let is_known = crate::expected::REPORTED.iter().any(|reported| reported.code == code);
    if is_known { code } else { K::AgentFailed.code().to_owned() }
}

/// The words of an error that ends a stream, or of one in a whole answer with status 200.
fn failed(client: Protocol, answer: &Response) -> Option<Vec<String>> {
    let events = frames(answer.text());
    let whole = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
    let last = events.last().or(Some(&whole));
    match client {
        Protocol::AgentApi => Some(vec![own_code(word(&last?["error"]["code"])?)]),
        Protocol::Responses => {
            let body = if events.is_empty() { answer.json() } else { last?["response"].clone() };
            (body["status"] == "failed").then(|| Some(vec![word(&body["error"]["code"])?]))?
        }
        Protocol::ChatCompletions => {
            let error = &last?["error"];
            Some(vec![word(&error["type"])?, word(&error["code"])?])
        }
        Protocol::AnthropicMessages => Some(vec![word(&last?["error"]["type"])?]),
        Protocol::A2a => {
            let status = &last?["statusUpdate"]["status"];
            let status = if status.is_null() { &last?["task"]["status"] } else { status };
            if status["state"] != "TASK_STATE_FAILED" {
                return None;
            }
            let code = status["message"]["metadata"]["agent_api"]["error"]["code"].clone();
            Some(vec![own_code(word(&code)?)])
        }
        Protocol::AgUi => (last?["type"] == "RUN_ERROR").then(|| Some(vec![own_code(word(&last?["code"])?)]))?,
        Protocol::AgKit => (last?["type"] == "error").then(Vec::new),
        Protocol::Hitl => (answer.json()["status"] == "error").then(Vec::new),
        Protocol::Mcp => {
            let (result, error) = (&last?["result"], &last?["error"]);
            let reported =
                if result["isError"] == true { &result["_meta"]["interlingua/error"] } else { &error["data"] };
            Some(vec![own_code(word(&reported["code"])?)])
        }
    }
}
