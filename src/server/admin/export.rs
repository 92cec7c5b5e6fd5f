//! A run as one file: what the console knows of it, and its events with their frames in every protocol of its agent.
//!
//! It is written as it is read: a run may have many megabytes. Not here: what is known of a run ([`super::run_view`]).

use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::web::Bytes;
use futures_util::stream;
use interlingua_core::{Fault, RunId};
use serde_json::json;

use super::prism::{AGENT_API, Prism, Shown};
use super::{State, run_view};
use crate::engine::RunHandle;

/// Events are written together up to this size, in bytes.
const MAX_CHUNK: usize = 64 << 10;

/// What is left to be written.
struct Export {
    state: Arc<State>,
    run: RunHandle,
    prism: Prism,
    next: u64,
    /// The events that there were at the beginning. Those that come later are not in the file.
    end: u64,
    /// The latest event: what protocols write once the run waits or is over belongs to it.
    last: Option<Shown>,
    has_events: bool,
    /// What is written and not sent.
    text: String,
    is_done: bool,
}

/// Whether an export is asked for without texts: `?mask`, or `?mask=1`.
///
/// # Errors
/// Other parameters and values.
pub(super) fn is_masked(query: &str) -> Result<bool, Fault> {
    let mut is_masked = false;
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match (&*name, &*value) {
            ("mask", "" | "1" | "true") => is_masked = true,
            ("mask", "0" | "false") => is_masked = false,
            ("mask", _) => return Err(Fault::invalid("mask", "must be 1 or 0")),
            (other, _) => return Err(Fault::invalid(other.to_owned(), "is not a parameter of this")),
        }
    }
    Ok(is_masked)
}

/// The file.
///
/// # Errors
/// If there is no such run, or the store fails.
pub(super) async fn file(state: &Arc<State>, texts: bool, id: RunId, run: RunHandle) -> Result<HttpResponse, Fault> {
    let detail = run_view::detail(state, texts, id).await?;
    // A page reads events in the Agent API, whether the agent has a route of it or not.
    let mut protocols: Vec<String> = detail.protocols.iter().map(|name| (*name).to_owned()).collect();
    if !protocols.iter().any(|name| name == AGENT_API) {
        protocols.push(AGENT_API.to_owned());
    }

    let (prism, end) = (Prism::open(state, &run, &protocols, texts), run.view_safe(|view| view.record.len()));
    let text = format!("{{\"interlingua\":\"{}\",\"detail\":{},\"events\":[", env!("CARGO_PKG_VERSION"), json!(detail));
    let export = Export {
        state: Arc::clone(state),
        run,
        prism,
        next: 0,
        end,
        last: None,
        has_events: false,
        text,
        is_done: false,
    };
    let chunks = stream::unfold(export, |mut export| async move {
        if export.is_done {
            return None;
        }
        export.fill().await;
        let chunk = Bytes::from(std::mem::take(&mut export.text));
        Some((Ok::<_, actix_web::Error>(chunk), export))
    });
    Ok(HttpResponse::Ok().content_type("application/json").streaming(chunks))
}

/// How far the events of a chunk have come.
enum Read {
    /// The chunk is large enough.
    Enough,
    /// The run waited at this point, or is over.
    Paused,
    /// There is nothing more.
    End,
}

impl Export {
    /// Writes more events.
    async fn fill(&mut self) {
        loop {
            match self.read() {
                Read::Enough => return,
                Read::Paused => {
                    let more = self.prism.pause(&self.state, &self.run).await;
                    if let Some(last) = &mut self.last {
                        last.add(more);
                    }
                }
                Read::End => {
                    self.write(None);
                    self.text.push_str("]}");
                    self.is_done = true;
                    return;
                }
            }
        }
    }

    fn read(&mut self) -> Read {
        let run = self.run.clone();
        run.view_safe(|view| {
            let (from, end) = (self.next, self.end);
            for step in view.record.steps(from).take_while(|step| step.sequence < end) {
                let Some(shown) = self.prism.step(view, step) else { return Read::Paused };
                self.next = step.sequence + 1;
                self.write(Some(shown));
                if self.text.len() >= MAX_CHUNK {
                    return Read::Enough;
                }
            }
            let is_still = self.end < view.record.len() || view.info.state.is_working();
            if !is_still && self.prism.is_to_pause() { Read::Paused } else { Read::End }
        })
    }

    /// Writes the latest event, to which nothing more belongs, and keeps the next one.
    fn write(&mut self, next: Option<Shown>) {
        let Some(shown) = std::mem::replace(&mut self.last, next) else { return };
        if self.has_events {
            self.text.push(',');
        }
        self.has_events = true;
        self.text.push_str(&shown.to_json().to_string());
    }
}
