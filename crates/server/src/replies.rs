//! Answers of the engine: passed to the exchange as replies, or streamed.

use interlingua_core::call::{Page, Reply};
use interlingua_core::{Exchange, Fault, Next, Out};

use interlingua_engine::{Answer, Follower, ListedRun, Listener, RunHandle, Scope};

/// The source of a streamed response.
pub(super) enum StreamSource {
    /// A run: from its first step on, or, with `attach`, from its current state on.
    Run { follower: Follower, attach: bool },
    /// Notices that belong to no run.
    Notices(Listener),
}

impl StreamSource {
    /// The run, if it streams one.
    pub(super) fn run(&self) -> Option<RunHandle> {
        match self {
            Self::Run { follower, .. } => Some(follower.run()),
            Self::Notices(_) => None,
        }
    }
}

/// The next step of a request after an answer of the engine.
pub(super) enum ReplyOutcome {
    /// A stream.
    Stream(StreamSource),
    /// The exchange has read the answer.
    Next(Next),
}

/// Passes an answer of the engine to the exchange, unless it is a stream.
pub(super) fn reply(
    exchange: &mut dyn Exchange,
    answer: Answer,
    scope: &Scope,
    out: &mut Out,
) -> Result<ReplyOutcome, Fault> {
    let next = match answer {
        Answer::Steps { follower, attach } => return Ok(ReplyOutcome::Stream(StreamSource::Run { follower, attach })),
        Answer::Notices(listener) => return Ok(ReplyOutcome::Stream(StreamSource::Notices(listener))),
        Answer::Run(run) => run.view_safe(|view| exchange.reply(Reply::Run(view), out)),
        Answer::Waiting(run, reason) => {
            run.view_safe(|view| exchange.reply(Reply::Waiting(view, reason.as_deref()), out))
        }
        Answer::Runs { runs, total, next } => {
            let runs = runs.iter().map(ListedRun::view).collect();
            exchange.reply(Reply::Runs(Page { runs, total, next }), out)
        }
        Answer::Agents => {
            let agents: Vec<_> = scope.agents.iter().cloned().collect();
            exchange.reply(Reply::Agents(&agents), out)
        }
        Answer::Session(sessions) => exchange.reply(Reply::Session(&sessions), out),
        Answer::Sessions(page) => exchange.reply(Reply::Sessions(&page), out),
        Answer::Documents(documents) => exchange.reply(Reply::Documents(&documents), out),
        Answer::FetchedDocument(found) => exchange.reply(Reply::FetchedDocument(found.as_deref()), out),
        Answer::Done => exchange.reply(Reply::Done, out),
    };
    next.map(ReplyOutcome::Next)
}
