//! A run as one file: what the console knows of it, and its events with their frames in every protocol of its agent.
//!
//! The file leaves in pieces: a run may have many megabytes. Not here: the data about a run ([`super::run_view`]), and memory
//! and threads of encoding ([`super::streams`]).

use std::sync::Arc;

use actix_web::HttpResponse;
use interlingua_core::{Fault, RunId};
use serde_json::json;
use tokio::sync::oneshot;

use super::feed::size_of;
use super::guard::OperatorIdentity;
use super::prism::{AGENT_API, Head, Prism};
use super::streams::{Access, Pieces, StreamClosed, Streams};
use super::{AdminState, run_view};
use crate::engine::RunHandle;

/// Whether an export without texts is requested: `?mask`, or `?mask=1`.
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

/// The file. `masked`: without texts, whatever the reader may read.
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
    let permit = Streams::begin(state, &who)?;
    let access = Access::new(state, who);
    let access = if masked { access.without_texts() } else { access };
    let detail = run_view::detail(state, access.texts, id).await?;
    // A page reads events in the Agent API, whether the agent has a route of it or not.
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
        // After lost access, this cuts the file off.
        drop(end);
    });
    Ok(HttpResponse::Ok().content_type("application/json").streaming(body))
}

/// A run that is written to a file.
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
        // Events that come later are not in the file.
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

    /// Writes an event with its frames. What protocols write once the run waits or is over belongs to the event before.
    async fn write_event(&mut self, prism: &mut Prism, number: u64, end: u64) -> Result<(), StreamClosed> {
        let Some((head, is_last)) = self.run.view_safe(|view| {
            let head = view.record.step(number).map(Head::from_step)?;
            let is_last = match view.record.step(number + 1).filter(|next| next.sequence < end) {
                Some(next) => Head::from_step(next).begins_turn,
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
        // Other answers are encoded on this thread, too.
        tokio::task::yield_now().await;
        self.out.push("}}").await
    }
}
