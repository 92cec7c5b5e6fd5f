//! The way to an agent, as the engine sees it: start a turn, then read its answers piece by piece.
//!
//! [`Upstream`] is one agent's way: [`http::HttpUpstream`] for those on the network, [`demo::DemoUpstream`] for the one in
//! this process. A [`Conversation`] is one turn under way.
//!
//! Not here: what an answer means (the connectors and [`interlingua_core::normalize`]), what becomes of a run whose agent
//! fails, and when to stop reading because nobody follows (the engine).

mod card;
pub mod client;
mod conversation;
pub mod demo;
pub mod http;
pub mod push;
mod timeouts;
mod trace;

use std::future::ready;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use interlingua_core::Fault;
use interlingua_core::capability::UpstreamCapabilities;
use interlingua_core::connector::TurnRequest;
use interlingua_core::well_known::{FetchedDocument, WellKnownDocument};

pub use conversation::{Body, Conversation, Flow, Form, Refused, Reply, SendError, Transport};
pub use timeouts::ResponseTimeouts;
pub use trace::Trace;

/// The way to one agent.
///
/// A conversation has to be polled on the thread that started it: connections belong to the runtime of that thread, so that
/// no wake-up ever crosses threads. A run lives on one thread.
pub trait Upstream: Send + Sync + 'static {
    /// What the agent takes and gives.
    fn capabilities(&self) -> UpstreamCapabilities;

    /// Starts a turn. Nothing is sent before [`Conversation::begin`]. `trace`: the trace that the client's request is part of.
    ///
    /// # Errors
    /// If the request cannot be expressed in the agent's protocol.
    fn start(&self, request: &TurnRequest<'_>, trace: Option<&Trace>) -> Result<Conversation, Fault>;

    /// What the agent's own server publishes about it, as far as that is known after a bounded time. None: nothing is.
    fn published(&self, wanted: &WellKnownDocument) -> BoxFuture<'static, Option<Arc<FetchedDocument>>> {
        let _ = wanted;
        ready(None).boxed()
    }
}
