//! Exports a run as one file: its detail, and its events with their frames in every protocol of its agent.
//!
//! The file is sent in pieces, because a run may have many megabytes. Not here: the detail of a run
//! ([`super::run_view`]), and memory and threads for encoding ([`super::streams`]).

use std::sync::Arc;

use actix_web::HttpResponse;
use interlingua_core::{Fault, RunId};
use serde_json::json;
use tokio::sync::oneshot;

use super::feed::size_of;
use super::guard::OperatorIdentity;
use super::prism::{AGENT_API, EventHead, Prism};
use super::streams::{Access, Pieces, StreamClosed, StreamCounts};
use super::{AdminState, run_view};
use interlingua_engine::RunHandle;

/// True if the query asks for an export without texts: `?mask`, `?mask=1` or `?mask=true`.
///
/// # Errors
/// Unknown parameters and invalid values.
pub(super) fn is_masked(query: &str) -> Result<bool, Fault> {
    let mut is_masked = false;
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match (&*name, &*value) {
            ("mask", "" | "1" | "true") => is_masked = true,
            ("mask", "0" | "false") => is_masked = false,
            ("mask", _) => return Err(Fault::invalid("mask", "must be 1 or 0")),
            (other, _) => return Err(Fault::invalid(other.to_owned(), "is not a parameter of this path")),
        }
    }
    Ok(is_masked)
}

/// The response with the file. `masked`: without texts, even if the reader may read them.
///
/// # Errors
/// If there is no such run, the reader has too many streams, or the store fails.
pub(super) async fn file(
    state: &Arc<AdminState>,
    who: OperatorIdentity,
    masked: bool,
    id: RunId,
    run: RunHandle,
) -> Result<HttpResponse, Fault> {
    let permit = StreamCounts::begin(state, &who)?;
    let access = Access::new(state, who);
    let access = if masked { access.without_texts() } else { access };
    let detail = run_view::detail(state, access.texts, id).await?;
    // The console reads events in the Agent API, even if the agent has no route of it.
    let mut protocols: Vec<String> = detail.protocols.iter().map(|name| (*name).to_owned()).collect();
    if !protocols.iter().any(|name| name == AGENT_API) {
        protocols.push(AGENT_API.to_owned());
    }
    let begin =
        format!("{{\"interlingua\":\"{}\",\"detail\":{},\"events\":[", env!("CARGO_PKG_VERSION"), json!(detail));

    let (end, ended) = oneshot::channel();
    let (pieces, body) = Pieces::new(ended);
    let writing = Arc::clone(state);
    state.encoders.spawn(move || async move {
        let (_permit, closed) = (permit, pieces.closed());
        let mut export = Export { access, run, out: pieces, state: writing };
        let written = tokio::select! {
            written = export.write(&begin, &protocols) => written,
            () = closed.clone() => return,
        };
        drop(export);
        if written.is_ok() {
            // The client has not read the last chunks yet.
            closed.await;
        }
        // If the reader lost access, this cuts off the file.
        drop(end);
    });
    Ok(HttpResponse::Ok().content_type("application/json").streaming(body))
}

/// The writer of an exported run.
struct Export {
    state: Arc<AdminState>,
    access: Access,
    run: RunHandle,
    out: Pieces,
}

impl Export {
    async fn write(&mut self, begin: &str, protocols: &[String]) -> Result<(), StreamClosed> {
        self.out.push(begin).await?;
        let mut prism = Prism::open(&self.state, &self.run, protocols, self.access.texts);
        // Events that arrive during the export are not in the file.
        let end = self.run.view_safe(|view| view.record.len());
        for number in 0..end {
            if !self.access.holds() {
                return Err(StreamClosed);
            }
            self.write_event(&mut prism, number, end).await?;
        }
        self.out.push("]}").await?;
        self.out.flush().await
    }

    /// Writes an event with its frames. Frames that protocols write when the run waits or has ended belong to the last
    /// event before.
    async fn write_event(&mut self, prism: &mut Prism, number: u64, end: u64) -> Result<(), StreamClosed> {
        let Some((head, is_last)) = self.run.view_safe(|view| {
            let head = view.record.step(number).map(EventHead::from_step)?;
            let is_last = match view.record.step(number + 1).filter(|next| next.sequence < end) {
                Some(next) => EventHead::from_step(next).begins_turn,
                None => number + 1 >= view.record.len() && !view.info.state.is_working(),
            };
            Some((head, is_last))
        }) else {
            return Ok(());
        };
        let _memory = self.state.encoders.reserve(size_of(&self.run)).await;
        let comma = if number == 0 { "" } else { "," };
        self.out.push(&format!("{comma}{}", head.open_json())).await?;
        prism.advance(number);
        let paused = is_last.then(|| prism.pause(&self.run));
        for pane in 0..prism.len() {
            let comma = if pane == 0 { "" } else { "," };
            self.out.push(&format!("{comma}\"{}\":\"", prism.protocol(pane))).await?;
            let frames = self.run.view_safe(|view| {
                view.record.step(number).map(|step| prism.frames_of(pane, view, step)).unwrap_or_default()
            });
            self.out.push_escaped(&frames).await?;
            drop(frames);
            if let Some(paused) = &paused {
                let more = prism.paused(pane, &self.state, &self.run, paused).await;
                self.out.push_escaped(&more).await?;
            }
            self.out.push("\"").await?;
        }
        // Let other streams encode on this thread.
        tokio::task::yield_now().await;
        self.out.push("}}").await
    }
}
