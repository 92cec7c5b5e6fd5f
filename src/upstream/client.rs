//! The small client of `interlingua call`: one question, its answer printed as it comes.
//!
//! It reads event streams with `eventsource-stream`: quadratic in the size of an event, which nobody minds here.

use std::io::Write;

use anyhow::{Context as _, bail};
use eventsource_stream::Eventsource as _;
use futures_util::StreamExt as _;
use interlingua_core::heard::Heard;
use interlingua_core::json::Json;

/// What to ask, and how to show the answer.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The agent's URL, with or without `/process`.
    pub url: &'a str,
    /// What to say.
    pub text: &'a str,
    /// The session to go on with.
    pub session: Option<&'a str>,
    /// Print the frames as they come.
    pub raw: bool,
}

/// Asks, and writes the answer as it comes.
///
/// # Errors
/// If nobody answers, the answer is a refusal, or the run does not complete.
pub async fn ask(question: &Question<'_>, out: &mut impl Write) -> anyhow::Result<()> {
    // Fails only if there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let base = question.url.trim_end_matches('/');
    let url = if base.ends_with("/process") { base.to_owned() } else { format!("{base}/process") };
    let mut body =
        serde_json::json!({ "input": [{ "role": "user", "content": [{ "type": "text", "text": question.text }] }] });
    if let Some(session) = question.session {
        body["session_id"] = session.into();
    }
    let client = reqwest::Client::builder().build().context("no HTTP client")?;
    let request = client.post(&url).header("content-type", "application/json").header("accept", "text/event-stream");
    let response = request.body(body.to_string()).send().await.with_context(|| format!("{url} cannot be reached"))?;
    let status = response.status();
    if !status.is_success() {
        let text = response.text().await.unwrap_or_default();
        bail!("{url} answered {status}: {text}");
    }
    let mut frames = std::pin::pin!(response.bytes_stream().eventsource());
    let mut shown = Shown::default();
    while let Some(frame) = frames.next().await {
        let frame = frame.context("the answer broke off")?;
        if question.raw {
            writeln!(out, "{}", frame.data)?;
        }
        let Some(heard) = Heard::read(frame.data.as_bytes()) else { continue };
        shown.hear(&heard, question.raw, out)?;
        out.flush()?;
    }
    shown.end()
}

#[derive(Default)]
struct Shown {
    kind: String,
    end: Option<String>,
    error: Option<String>,
}

impl Shown {
    fn hear(&mut self, heard: &Heard<'_>, raw: bool, out: &mut impl Write) -> anyhow::Result<()> {
        let status = heard.status.as_deref().unwrap_or("");
        match heard.object.as_deref() {
            Some("message") if status == "in_progress" => {
                self.kind = heard.kind.as_deref().unwrap_or("message").to_owned();
                if !raw && self.kind != "message" {
                    writeln!(out, "[{}]", self.kind)?;
                }
            }
            Some("message") if !raw => writeln!(out)?,
            Some("content") if !raw => {
                if heard.delta {
                    write!(out, "{}", heard.text.as_deref().or(heard.refusal.as_deref()).unwrap_or(""))?;
                } else if status == "completed" && heard.text.is_none() && heard.refusal.is_none() {
                    write!(out, "{}", Json::of(&heard.body()).text())?;
                }
            }
            Some("response") => {
                self.error = heard.error.map(|error| error.get().to_owned()).or(self.error.take());
                self.end = Some(status.to_owned());
            }
            _ => {}
        }
        Ok(())
    }

    fn end(self) -> anyhow::Result<()> {
        match (self.end.as_deref(), self.error) {
            (Some("completed"), _) => Ok(()),
            (Some(end), Some(error)) => bail!("the run ended as {end}: {error}"),
            (Some(end), None) => bail!("the run ended as {end}"),
            (None, _) => bail!("the answer had no end"),
        }
    }
}
