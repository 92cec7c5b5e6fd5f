//! The driver that each protocol of clients provides, so that every test over all protocols includes it.

use serde_json::Value;

use super::decision::{Decision, Interrupt};
use super::turn::Turn;
use crate::endings::{Ending, Failure};
use crate::gateway::Gateway;
use crate::http::{Exchange, Response};

/// Expectations of tests over all protocols for one of them.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The name in the configuration.
    pub name: &'static str,
    /// Its clients read a stream. False: one document, once the run has ended.
    pub streams: bool,
    /// Its clients send all of their conversation with each request.
    pub resends: bool,
    /// A run continues by default when its client disconnects.
    pub outlasts_clients: bool,
    /// A run that failed can be a whole answer with status 200.
    pub fails_with_success: bool,
    /// A text at the end of a stream, or of a document, that completed.
    pub end: &'static str,
    /// The words of its errors.
    pub errors: ErrorWords,
}

/// The words of errors in one protocol. Places are JSON pointers into the body, or into the last event of a stream.
#[derive(Clone, Copy, Debug)]
pub struct ErrorWords {
    /// The place of the message.
    pub message: &'static str,
    /// Parts of the answer to wrong credentials, each with its place and its JSON. `$REQUEST` is the header
    /// `request-id`.
    pub wrong_key: &'static [(&'static str, &'static str)],
    /// A text in a refusal because of a rate.
    pub rate: &'static str,
    /// The place of the word for too many runs, and the word.
    pub runs: (&'static str, &'static str),
    /// Status, place and word if the agent limits its rate.
    pub limited_agent: (u16, &'static str, &'static str),
    /// The place of the words for an agent that is away.
    pub away: &'static str,
    /// Status and word if the agent has no capacity.
    pub overloaded: (u16, &'static str),
    /// Status and word if the agent cannot be reached.
    pub unreachable: (u16, &'static str),
    /// The status while the agent drains.
    pub draining: u16,
}

/// A long run that was begun.
pub(super) enum LongRun {
    /// It depends on this connection.
    Open(Exchange),
    /// It continues in the background; this is the answer to its request.
    Background(Response),
}

/// A small client of one protocol. Defaults stand for operations that the protocol does not have.
pub(super) trait Driver {
    const FACTS: Facts;

    async fn say(gateway: &Gateway, session: &str, words: &str, picture: Option<&str>) -> Response;

    async fn answer(gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Option<Response>;

    async fn begin_long(gateway: &Gateway, session: &str) -> LongRun;

    /// The session of an answer. By default the one that the client named.
    async fn session_of(_: &Gateway, _: &Response, session: &str) -> String {
        session.to_owned()
    }

    async fn status(_: &Gateway, _: &Interrupt) -> Option<String> {
        None
    }

    async fn follow(_: &Gateway, _: &Interrupt) -> Option<Exchange> {
        None
    }

    async fn cancel(_: &Gateway, _: &Interrupt) -> Option<Response> {
        None
    }

    fn turn(session: &str, words: &str, streamed: bool) -> Turn;

    fn resend(_: &str, _: &str, _: &Value, _: bool) -> Option<Turn> {
        None
    }

    /// Reads the only end of an answer with status 200, and panics unless it has one.
    fn ending(answer: &Response, failure: &Failure) -> Ending;

    /// The word of an answer with another status, and what is expected: status and word.
    fn refusal(answer: &Response, failure: &Failure) -> (Value, (u16, String));

    /// Panics if the frames of an answer that failed let a client run a call of its tool which was cut.
    fn expect_no_call(_: &[Value]) {}

    /// The text of a whole answer.
    fn text(answer: &Response) -> String;
}
