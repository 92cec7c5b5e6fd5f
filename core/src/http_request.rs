//! A request to an agent, as data.
//!
//! Not here: its creation ([`crate::connector`], [`crate::probe`]) and sending it (the gateway).

use std::borrow::Cow;

/// A request to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// Such as `POST`.
    pub method: &'static str,
    /// Absolute URL, with scheme and host.
    pub url: String,
    /// Headers of the protocol, names in lower case. The operator's headers are added and take precedence.
    pub headers: Vec<(Cow<'static, str>, String)>,
    /// The body. Empty: the request has no body.
    pub body: Vec<u8>,
    /// The purpose of the request.
    pub purpose: Purpose,
    /// True if the operator allowed this host for the agent: the request carries the agent's configured headers, as
    /// requests to the agent's own origin do.
    pub is_trusted: bool,
}

/// The purpose of a request, which determines the handling of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The agent's answer, or a further part of it: an event stream or a body, read with a sink. A client waits for the
    /// first one.
    Ask,
    /// A small document that the turn needs first. Read whole and passed to
    /// [`AgentTurn::on_lookup`](crate::connector::AgentTurn::on_lookup). Sent again after any failure.
    Lookup,
    /// A lookup whose answer does not depend on the caller: the gateway may cache it by the rules of HTTP.
    Published,
}

impl HttpRequest {
    /// A `POST` of JSON ([`Purpose::Ask`]), answered by an event stream or by JSON.
    #[must_use]
    pub fn post(url: impl Into<String>, body: Vec<u8>) -> Self {
        const JSON: &str = "application/json";
        let headers = vec![
            (Cow::Borrowed("content-type"), JSON.to_owned()),
            (Cow::Borrowed("accept"), format!("text/event-stream, {JSON}")),
        ];
        Self { method: "POST", url: url.into(), headers, body, purpose: Purpose::Ask, is_trusted: false }
    }

    /// A `GET` of a document ([`Purpose::Lookup`]).
    #[must_use]
    pub fn lookup(url: impl Into<String>) -> Self {
        let headers = vec![(Cow::Borrowed("accept"), "application/json".to_owned())];
        Self { method: "GET", url: url.into(), headers, body: Vec::new(), purpose: Purpose::Lookup, is_trusted: false }
    }

    /// A `GET` of a document that does not depend on the caller ([`Purpose::Published`]).
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
