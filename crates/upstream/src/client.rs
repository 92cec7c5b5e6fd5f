//! The small client of `interlingua call`: asks, prints the answer as it comes, and says what the run waits for.
//!
//! It reads event streams with `eventsource-stream`, which is quadratic in the size of an event; that is fine for a
//! terminal. Not here: reading the person's decisions (`src/cli`).

use std::fmt;
use std::io::Write;

use anyhow::{Context as _, bail};
use eventsource_stream::Eventsource as _;
use futures_util::StreamExt as _;
use interlingua_core::agent_api::Frame;
use interlingua_core::answer::AnswerBody;
use interlingua_core::json::Json;
use interlingua_core::model::ToolCall;
use interlingua_core::pending::{Decision, Pending, PendingKind};
use serde_json::{Value, json};

use super::answer_words;
use super::scheme_error::{SPEAKS_HTTP, is_answer_in_clear};

/// The limit for a connection, TLS included. An answer may take any time.
const CONNECT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
/// The type of messages that ask a person.
const QUESTION: &str = "mcp_approval_request";

/// The request, and the display of its answer.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The agent's URL, with or without `/process`.
    pub url: &'a str,
    /// The message, or the answer to `item`.
    pub text: &'a str,
    /// The pending item that `text` answers. None: `text` is a message.
    pub item: Option<&'a Pending>,
    /// The session to continue. None: a new one.
    pub session: Option<&'a str>,
    /// The caller's key or token. `None`: an anonymous request.
    pub key: Option<&'a str>,
    /// Print the frames as they come.
    pub raw: bool,
}

/// The outcome of a completed run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The session, to continue it.
    pub session: Option<String>,
    /// The run's id.
    pub run: Option<String>,
    /// The pending items of the run, oldest first.
    pub pending: Vec<Pending>,
}

/// A refusal: the server's text about the request.
#[derive(Debug)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    text: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Refusal {}

/// Sends one request, and writes the answer as it comes.
///
/// # Errors
/// If the URL cannot be reached, the answer is an error, or the run does not complete.
pub async fn ask(question: &Question<'_>, out: &mut impl Write) -> anyhow::Result<Outcome> {
    super::install_crypto();
    let base = question.url.trim_end_matches('/');
    let url = if base.ends_with("/process") { base.to_owned() } else { format!("{base}/process") };

    let input = match question.item {
        None => json!({ "role": "user", "content": [{ "type": "text", "text": question.text }] }),
        Some(item) => answer(item, question.text),
    };
    let mut body = json!({ "input": [input] });
    if let Some(session) = question.session {
        body["session_id"] = session.into();
    }

    let client = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).build().context("no HTTP client")?;
    let request = client.post(&url).header("content-type", "application/json").header("accept", "text/event-stream");
    let request = match question.key {
        Some(key) => request.bearer_auth(key),
        None => request,
    };
    let response = match request.body(body.to_string()).send().await {
        Ok(response) => response,
        Err(error) if is_answer_in_clear(&error) => bail!("cannot reach {url}: {SPEAKS_HTTP}"),
        Err(error) => return Err(error).with_context(|| format!("cannot reach {url}")),
    };
    let status = response.status();
    if !status.is_success() {
        let text = response.text().await.unwrap_or_default();
        return Err(Refusal { status: status.as_u16(), text: format!("{url} answered {status}: {text}") }.into());
    }

    let mut frames = std::pin::pin!(response.bytes_stream().eventsource());
    let mut shown = PrintedAnswer { raw: question.raw, ..PrintedAnswer::default() };
    while let Some(frame) = frames.next().await {
        let frame = frame.context("the answer broke off")?;
        if question.raw {
            writeln!(out, "{}", frame.data)?;
        }
        let Some(received) = Frame::parse(frame.data.as_bytes()) else { continue };
        if received.object.as_deref() == Some("response")
            && let Ok(Ids { session_id: Some(session) }) = serde_json::from_str(&frame.data)
        {
            shown.outcome.session = Some(session);
        }
        shown.show(&received, out)?;
        out.flush()?;
    }
    shown.end()
}

/// True if a GET of this URL succeeds.
pub async fn is_there(url: &str) -> bool {
    const LIMIT: std::time::Duration = std::time::Duration::from_secs(5);
    super::install_crypto();
    let Ok(client) = reqwest::Client::builder().timeout(LIMIT).redirect(reqwest::redirect::Policy::none()).build()
    else {
        return false;
    };
    client.get(url).send().await.is_ok_and(|response| response.status().is_success())
}

/// The JSON document at a URL. `None` if a GET fails, takes longer than 5 s, or answers with something else or with
/// more than 1 MiB.
pub async fn document(url: &str) -> Option<Value> {
    const LIMIT: std::time::Duration = std::time::Duration::from_secs(5);
    const MAX_BYTES: usize = 1 << 20;
    super::install_crypto();
    let policy = reqwest::redirect::Policy::none();
    let client = reqwest::Client::builder().timeout(LIMIT).redirect(policy).build().ok()?;
    read_document(client.get(url), MAX_BYTES).await
}

async fn read_document(request: reqwest::RequestBuilder, max_bytes: usize) -> Option<Value> {
    let response = request.send().await.ok().filter(|response| response.status().is_success())?;
    let (mut body, mut chunks) = (Vec::new(), response.bytes_stream());
    while let Some(chunk) = chunks.next().await {
        body.extend_from_slice(&chunk.ok()?);
        if body.len() > max_bytes {
            return None;
        }
    }
    serde_json::from_slice(&body).ok()
}

/// The pending item of a session, from the session's runs. `None` if the server lists no runs, as only this gateway
/// does, or none of them waits for the item.
pub async fn find_item(url: &str, session: &str, item: &str, key: Option<&str>) -> Option<Pending> {
    const LIMIT: std::time::Duration = std::time::Duration::from_secs(10);
    const MAX_BYTES: usize = 64 << 20;
    super::install_crypto();
    let base = url.trim_end_matches('/');
    let base = base.strip_suffix("/process").unwrap_or(base);
    let mut runs = reqwest::Url::parse(&format!("{base}/runs")).ok()?;
    runs.query_pairs_mut().append_pair("session_id", session).append_pair("limit", "20");
    let client = reqwest::Client::builder().timeout(LIMIT).build().ok()?;
    let get = async |url: reqwest::Url| {
        let request = client.get(url);
        let request = if let Some(key) = key { request.bearer_auth(key) } else { request };
        read_document(request, MAX_BYTES).await
    };

    // The list has no outputs.
    let listed = get(runs).await?;
    for run in listed["data"].as_array()? {
        let Some(id) = run["id"].as_str() else { continue };
        let Some(run) = get(reqwest::Url::parse(&format!("{base}/runs/{id}")).ok()?).await else { continue };
        if let Some(found) = pending(&run["output"]).into_iter().find(|pending| pending.id == item) {
            return Some(found);
        }
    }
    None
}

/// An item of which only the id is known: approvals of this gateway have ids of their own form, all others are calls.
#[must_use]
pub fn unknown_item(id: &str) -> Pending {
    let mut item = Pending::tool(ToolCall { call_id: id.to_owned(), ..ToolCall::default() });
    if id.starts_with("appr_") {
        item.kind = PendingKind::Approval;
    }
    item
}

/// The native message that answers a pending item.
fn answer(item: &Pending, text: &str) -> Value {
    let (decision, arguments, text) = match answer_words::read(item, text) {
        AnswerBody::Decided { decision, arguments, text, .. } => (decision, arguments, text),
        AnswerBody::Text(output) => {
            return json!({
                "type": "function_call_output", "role": "tool",
                "content": [{ "type": "data", "data": { "call_id": item.id, "output": output } }],
            });
        }
        AnswerBody::Payload(payload) => (Decision::Respond, None, Some(payload.text().to_owned())),
    };
    let mut interrupt = json!({ "decision": decision.as_str() });
    for (name, value) in [("arguments", &arguments), ("text", &text)] {
        if let Some(value) = value {
            interrupt[name] = value.as_str().into();
        }
    }
    let mut data = json!({
        "approval_request_id": item.id,
        "approve": matches!(decision, Decision::Accept | Decision::Edit),
        "interrupt": interrupt,
    });
    if let Some(text) = text {
        data["reason"] = text.into();
    }
    json!({ "type": "mcp_approval_response", "role": "user", "content": [{ "type": "data", "data": data }] })
}

#[derive(serde::Deserialize)]
struct Ids {
    session_id: Option<String>,
}

/// The printed part of the answer, and its end.
#[derive(Default)]
struct PrintedAnswer {
    raw: bool,
    /// The content under way was printed piece by piece.
    printed: bool,
    /// The message under way is a question, which is printed with the commands that answer it.
    is_question: bool,
    end: Option<String>,
    error: Option<String>,
    outcome: Outcome,
}

impl PrintedAnswer {
    fn show(&mut self, received: &Frame<'_>, out: &mut impl Write) -> anyhow::Result<()> {
        match received.object.as_deref() {
            Some("message") if !self.raw => self.show_message(received, out)?,
            Some("content") if !self.raw => self.show_content(received, out)?,
            Some("response") => {
                self.error = received.error.map(|error| error.get().to_owned()).or(self.error.take());
                self.end = Some(received.status.as_deref().unwrap_or("").to_owned());
                if let Some(id) = &received.id {
                    self.outcome.run = Some(id.clone().into_owned());
                }
                let output = received.output.and_then(|output| serde_json::from_str::<Value>(output.get()).ok());
                self.outcome.pending = output.map(|output| pending(&output)).unwrap_or_default();
            }
            _ => {}
        }
        Ok(())
    }

    fn show_message(&mut self, received: &Frame<'_>, out: &mut impl Write) -> anyhow::Result<()> {
        let kind = received.kind.as_deref().unwrap_or("message");
        let begins = received.status.as_deref() == Some("in_progress");
        if kind == QUESTION {
            self.is_question = begins;
            return Ok(());
        }
        if begins && kind != "message" && kind != "error" {
            writeln!(out, "[{kind}]")?;
        }
        if begins {
            return Ok(());
        }
        if kind == "error" {
            let (code, message) = (received.code.as_deref(), received.message.as_deref());
            writeln!(out, "[error] {}: {}", code.unwrap_or("unknown"), message.unwrap_or(""))?;
        } else {
            writeln!(out)?;
        }
        Ok(())
    }

    fn show_content(&mut self, received: &Frame<'_>, out: &mut impl Write) -> anyhow::Result<()> {
        if self.is_question {
            return Ok(());
        }
        let text = received.text.as_deref().or(received.refusal.as_deref());
        if received.delta {
            if received.refusal.is_some() && !self.printed {
                write!(out, "[refusal] ")?;
            }
            write!(out, "{}", text.unwrap_or(""))?;
            self.printed = true;
            return Ok(());
        }

        if received.status.as_deref() == Some("completed") {
            match text {
                // It came in pieces before.
                Some(_) if self.printed => {}
                Some(text) if received.refusal.is_some() => write!(out, "[refusal] {text}")?,
                Some(text) => write!(out, "{text}")?,
                None => write!(out, "{}", Json::from_serialize(&received.clone().into_content().to_content()).text())?,
            }
            self.printed = false;
        }
        Ok(())
    }

    fn end(self) -> anyhow::Result<Outcome> {
        match (self.end.as_deref(), self.error) {
            (Some("completed"), _) => Ok(self.outcome),
            (Some(end), Some(error)) => bail!("the run ended as {end}: {error}"),
            (Some(end), None) => bail!("the run ended as {end}"),
            (None, _) => bail!("the answer ended without its last event"),
        }
    }
}

/// The calls and questions of a final response that have no output or answer in it.
fn pending(output: &Value) -> Vec<Pending> {
    let messages = || output.as_array().into_iter().flatten();
    let data = |message: &Value| message["content"].get(0).map(|content| content["data"].clone()).unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);

    let closed: Vec<String> = messages()
        .filter(|message| matches!(message["type"].as_str(), Some("function_call_output" | "mcp_approval_response")))
        .filter_map(|message| text(&data(message)["call_id"]).or_else(|| text(&data(message)["approval_request_id"])))
        .collect();

    let asked = messages().filter_map(|message| {
        let data = Json::from_serialize(&data(message));
        match message["type"].as_str()? {
            "function_call" => data.decode::<ToolCall>().filter(|call| !call.call_id.is_empty()).map(Pending::tool),
            QUESTION => Pending::parse(&data),
            _ => None,
        }
    });
    asked.filter(|item| !closed.contains(&item.id)).collect()
}
