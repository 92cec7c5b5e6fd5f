//! The interface to an agent for the engine: start a turn, then read its answers piece by piece.
//!
//! [`Upstream`] is one agent: [`http::HttpUpstream`] for agents on the network, [`demo::DemoUpstream`] for the built-in
//! one, [`link::LinkUpstream`] for agents that keep one connection. A [`Conversation`] is one active turn.
//!
//! Not here: the meaning of an answer (the connectors and [`interlingua_core::normalize`]), runs whose agent fails, and
//! when to stop reading because there is no follower (the engine).

mod answer_words;
mod attempts;
pub mod builder;
pub mod client;
mod conversation;
pub mod demo;
pub mod dialogue;
mod documents;
mod forwarded;
mod headers;
pub mod http;
pub mod jwks;
pub mod link;
pub mod message_client;
pub mod otlp;
mod own_listeners;
pub mod pool;
pub mod push;
pub mod scheme_error;
mod send_error;
mod timeouts;
mod tls;
mod trace;

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use interlingua_core::capability::UpstreamCapabilities;
use interlingua_core::connector::TurnRequest;
use interlingua_core::probe::Finding;
use interlingua_core::well_known::{FetchedDocument, WellKnownDocument};
use interlingua_core::{Fault, Owner};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

pub use self::own_listeners::OwnListeners;

use pool::{EndpointPermit, EndpointPool};

pub use attempts::{AttemptLog, Attempts, Retry};
pub use conversation::{Body, Conversation, Flow, Form, Reply, StopAnswer, StopOutcome, Transport};
pub use forwarded::ForwardedHeaders;
pub use headers::Identity;
pub use send_error::{RefusalDetails, SendCause, SendError, SendProgress};
pub use timeouts::ResponseTimeouts;
pub use tls::install_crypto;
pub use trace::Trace;

/// An agent that is part of the gateway: reached without a URL, and registered like a protocol for agents.
pub trait InProcessAgent: 'static {
    /// The name in `gateway.toml`: `protocol = "…"` of an agent's upstream.
    const NAME: &'static str;

    /// Its own section of an agent: `upstream.options = { … }`.
    type Options: DeserializeOwned + JsonSchema + Default + Send + Sync + 'static;

    /// The agent.
    fn open(options: Self::Options) -> Arc<dyn Upstream>;

    /// JSON Schema of the options, for `interlingua schema`.
    #[must_use]
    fn options_schema() -> serde_json::Value {
        interlingua_core::options::schema::<Self::Options>()
    }
}

/// The context of a new turn beside its request.
#[derive(Default)]
pub struct SendOptions<'a> {
    /// Its place at one of the agent's endpoints. `None`: at the first one, or the agent has none.
    pub seat: Option<EndpointPermit>,
    /// The trace that the client's request is part of, with the turn's span as the caller.
    pub trace: Option<&'a Trace>,
    /// The headers of the client's request that agents may get.
    pub forwarded: ForwardedHeaders,
    /// Where it is noted what is sent again.
    pub attempts: Arc<Attempts>,
    /// The caller. `None`: an anonymous one.
    pub caller: Option<Caller<'a>>,
}

/// A caller that proved who it is.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// To whom the session belongs.
    pub owner: &'a Owner,
    /// The caller's name.
    pub name: &'a str,
}

/// The way to one agent.
///
/// A conversation has to be polled on the thread that started it: connections belong to the runtime of that thread, so
/// that no wake-up ever crosses threads. A run lives on one thread.
pub trait Upstream: Send + Sync + 'static {
    /// The agent's abilities.
    fn capabilities(&self) -> UpstreamCapabilities;

    /// Starts a turn. Nothing is sent before [`Conversation::begin`].
    ///
    /// # Errors
    /// If the request cannot be expressed in the agent's protocol.
    fn start(&self, request: &TurnRequest<'_>, via: SendOptions<'_>) -> Result<Conversation, Fault>;

    /// The agent's endpoints, each turn at one of which needs a [`EndpointPermit`]. `None`: it has none, since it is in
    /// this process.
    fn pool(&self) -> Option<&Arc<EndpointPool>> {
        None
    }

    /// Checks the agent's endpoints for as long as it exists. `None`: they are not checked.
    fn watch(&self) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// Asks one of the agent's endpoints what it is, without running it. `limit`: how long each answer may take.
    fn probe(&self, endpoint: usize, limit: Duration) -> BoxFuture<'static, Vec<Finding>> {
        let _ = (endpoint, limit);
        ready(vec![Finding::good("part of the gateway")]).boxed()
    }

    /// A document that the agent's own server publishes, or the cached one after a limited time. `None`: the server
    /// publishes none.
    fn published(&self, wanted: &WellKnownDocument) -> BoxFuture<'static, Option<Arc<FetchedDocument>>> {
        let _ = wanted;
        ready(None).boxed()
    }
}
