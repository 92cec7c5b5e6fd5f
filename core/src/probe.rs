//! Identifies the server of a configured agent, without running the agent (`interlingua probe`).
//!
//! An [`AgentProbe`] is a pure state machine like an [`AgentTurn`](crate::connector::AgentTurn): it returns the
//! documents to fetch and reads them; the gateway sends. Not here: sending the requests, and printing the findings.

use crate::fault::Fault;
use crate::http_request::HttpRequest;

/// One probe of one agent. The gateway sends the request that [`next`](Self::next) returns and passes the answer to
/// [`on_answer`](Self::on_answer), until `next` returns `None`.
pub trait AgentProbe: Send {
    /// The next document to fetch. No request runs the agent.
    fn next(&mut self) -> Option<HttpRequest>;

    /// Reads the answer to the latest request, whatever its status, or the reason for its absence.
    fn on_answer(&mut self, answer: Result<ProbeAnswer<'_>, &Fault>);

    /// The findings, in the order in which an operator should read them.
    fn findings(&self) -> &[Finding];
}

/// An answer to a probe.
#[derive(Clone, Copy, Debug)]
pub struct ProbeAnswer<'a> {
    /// The HTTP status.
    pub status: u16,
    /// Names in lower case.
    pub headers: &'a [(String, String)],
    /// The body, cut at 1 MiB.
    pub body: &'a [u8],
}

impl ProbeAnswer<'_> {
    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The checked feature works.
    Good,
    /// Worth knowing.
    Note,
    /// The checked feature will not work.
    Problem,
}

impl Level {
    /// The word in front of a finding.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

/// One thing that a probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The severity.
    pub level: Level,
    /// A sentence for the operator, without a secret; a problem names its remedy.
    pub text: String,
}

impl Finding {
    /// Something that works.
    #[must_use]
    pub fn good(text: impl Into<String>) -> Self {
        Self { level: Level::Good, text: text.into() }
    }

    /// Something worth knowing.
    #[must_use]
    pub fn note(text: impl Into<String>) -> Self {
        Self { level: Level::Note, text: text.into() }
    }

    /// Something that will not work.
    #[must_use]
    pub fn problem(text: impl Into<String>) -> Self {
        Self { level: Level::Problem, text: text.into() }
    }
}

/// The probe of a protocol that has nothing to ask without running the agent.
#[derive(Clone, Debug)]
pub struct NoProbe([Finding; 1]);

impl Default for NoProbe {
    fn default() -> Self {
        Self([Finding::note("the protocol has nothing to ask an agent without running it")])
    }
}

impl AgentProbe for NoProbe {
    fn next(&mut self) -> Option<HttpRequest> {
        None
    }

    fn on_answer(&mut self, _: Result<ProbeAnswer<'_>, &Fault>) {}

    fn findings(&self) -> &[Finding] {
        &self.0
    }
}
