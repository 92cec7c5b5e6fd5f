//! Sample requests of the clients of a protocol, for the operator's console. It shows them to be copied, sends them
//! from its playground, and opens exchanges with them to show a run in the protocol.
//!
//! Not here: making a sample request (the adapters), and sending it (the server).

use std::borrow::Cow;

use crate::id::RunId;
use crate::method::Method;
use crate::model::Role;
use crate::run::Run;

/// Makes a sample request. With a thread, its call continues that session.
pub type Sample = Box<dyn Fn(&SampleInput<'_>) -> SampleRequest + Send + Sync>;

/// The contents of a sample request.
#[derive(Clone, Copy, Debug)]
pub struct SampleInput<'a> {
    /// The agent's name; one of the route's agents.
    pub agent: &'a str,
    /// The user's text.
    pub text: &'a str,
    /// An unused id, for protocols whose clients choose one.
    pub id: RunId,
    /// The run that such a request began, for protocols that repeat the client's own values in their answers. `None`:
    /// the request begins a run.
    pub began: Option<&'a Run>,
    /// The conversation that the request continues. `None`: the request begins one.
    pub thread: Option<SampleThread<'a>>,
}

/// A conversation, whatever protocols its requests came over.
#[derive(Clone, Copy, Debug)]
pub struct SampleThread<'a> {
    /// Its session.
    pub session: &'a str,
    /// The run to continue, for protocols whose clients name one. `None`: the request names none.
    pub previous: Option<RunId>,
    /// The history, for protocols whose clients send it again: role and text, the oldest first.
    pub said: &'a [(Role, String)],
}

/// A request that runs an agent, as a client of the protocol would send it: streamed, if the protocol streams.
#[derive(Clone, Debug)]
pub struct SampleRequest {
    /// The HTTP method.
    pub method: Method,
    /// The endpoint: [`Endpoint::path`].
    pub endpoint: &'static str,
    /// The values of the path's parameters.
    pub params: Vec<(String, String)>,
    /// Headers beside `content-type: application/json`, names in lower case.
    pub headers: Vec<(Cow<'static, str>, String)>,
    /// The body.
    pub body: serde_json::Value,
}

impl SampleRequest {
    /// A POST to an endpoint without parameters.
    #[must_use]
    pub const fn post(endpoint: &'static str, body: serde_json::Value) -> Self {
        Self { method: Method::Post, endpoint, params: Vec::new(), headers: Vec::new(), body }
    }

    /// The same with a header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The path below the mount point.
    #[must_use]
    pub fn path(&self) -> String {
        let fill = |path: String, (name, value): &(String, String)| path.replace(&format!("{{{name}}}"), value);
        self.params.iter().fold(self.endpoint.to_owned(), fill)
    }
}
