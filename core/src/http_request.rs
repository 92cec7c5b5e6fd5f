//! A request to an agent, as data.
//!
//! Not here: its creation ([`crate::connector`], [`crate::probe`]) and sending it (the gateway).

use std::borrow::Cow;

/// A request to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// Such as `POST`.
    pub method: &'static str,
    /// Absolute, with scheme and host.
    pub url: String,
    /// Headers of the protocol, names in lower case. The operator's are added, and win.
    pub headers: Vec<(Cow<'static, str>, String)>,
    /// Empty: the request has none.
    pub body: Vec<u8>,
    /// The purpose of the request.
    pub purpose: Purpose,
    /// The operator allowed this host for the agent: it gets the agent's headers, as the agent's own origin does.
    pub is_trusted: bool,
}

/// The purpose of a request, which determines the handling of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The agent's answer, or more of it: an event stream or a body, read with a sink. A client waits for the first
    /// one.
    Ask,
    /// A small document the turn needs first: read whole, handed to
    /// [`AgentTurn::on_lookup`](crate::connector::AgentTurn::on_lookup). Sent again after any failure.
    Lookup,
    /// A lookup whose answer is the same for all: the gateway may keep it by the rules of HTTP.
    Published,
}

impl HttpRequest {
    /// A `POST` of JSON that is answered by an event stream or by JSON.
    #[must_use]
    pub fn post(url: impl Into<String>, body: Vec<u8>) -> Self {
        const JSON: &str = "application/json";
        let headers = vec![
            (Cow::Borrowed("content-type"), JSON.to_owned()),
            (Cow::Borrowed("accept"), format!("text/event-stream, {JSON}")),
        ];
        Self { method: "POST", url: url.into(), headers, body, purpose: Purpose::Ask, is_trusted: false }
    }

    /// A `GET` of a document.
    #[must_use]
    pub fn lookup(url: impl Into<String>) -> Self {
        let headers = vec![(Cow::Borrowed("accept"), "application/json".to_owned())];
        Self { method: "GET", url: url.into(), headers, body: Vec::new(), purpose: Purpose::Lookup, is_trusted: false }
    }

    /// A `GET` of a document that is the same for all.
    #[must_use]
    pub fn published(url: impl Into<String>) -> Self {
        Self { purpose: Purpose::Published, ..Self::lookup(url) }
    }

    /// The same request to a host that the operator allowed for the agent.
    #[must_use]
    pub fn trusted(mut self) -> Self {
        self.is_trusted = true;
        self
    }

    /// The same request with one header more.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}
