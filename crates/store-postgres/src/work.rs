//! The requests of callers to the writer, and their replies. Not here: their execution ([`super::flush`]).

use std::sync::Arc;

use interlingua_core::event::Millis;
use interlingua_core::id::RunId;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::text;
use interlingua_store::{Claim, Conflict, DocumentWrite, Journal, Signal, StoreError, Ticket, Version};

/// Where the result of some work goes. The caller may have stopped waiting.
pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// Work for the writer, in the order of the calls.
pub(super) enum WriteCommand {
    /// A run has new events.
    Touch(Arc<dyn Journal>),
    Open {
        run: Arc<dyn Journal>,
        claim: Claim,
        reply: Reply<()>,
    },
    Settle {
        run: Arc<dyn Journal>,
        reply: Reply<()>,
    },
    Remove {
        run: RunId,
        reply: Reply<bool>,
    },
    Documents(DocumentsWork),
    QueueTurn {
        session: String,
        continues: Option<RunId>,
        most: usize,
        id: Uuid,
        reply: Reply<Option<Ticket>>,
    },
    LeaveTurn {
        ticket: Ticket,
        reply: Reply<()>,
    },
    Signal {
        run: RunId,
        signal: Signal,
        id: Uuid,
        reply: Reply<()>,
    },
    /// Confirms that all before it is done.
    Flush(Reply<()>),
    /// The last one: leaves the other replicas.
    Close(Reply<()>),
}

/// Documents that are written together.
pub(super) struct DocumentsWork {
    /// The id of the write, to find its result after a lost connection.
    pub(super) id: Uuid,
    pub(super) writes: Vec<DocumentWriteOwned>,
    pub(super) now: Millis,
    pub(super) reply: Reply<Result<WriteOutcome, Conflict>>,
}

/// A [`DocumentWrite`] of any collection.
pub(super) struct DocumentWriteOwned {
    pub(super) collection: String,
    /// The stored form.
    pub(super) key: String,
    pub(super) value: Option<bytes::Bytes>,
    /// -1: nothing is expected; 0: no document; otherwise a version.
    pub(super) expected: i64,
}

/// The result of documents that were written together.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteOutcome {
    pub(super) version: Version,
    /// True if a document was deleted.
    pub(super) deleted: bool,
}

impl From<DocumentWrite> for DocumentWriteOwned {
    fn from(write: DocumentWrite) -> Self {
        let expected = expected(write.expect);
        let key = text::kept(&write.key).into_owned();
        Self { collection: write.collection.to_owned(), key, value: write.value, expected }
    }
}

/// A precondition as the database gets it.
pub(super) fn expected(expect: interlingua_store::Expect) -> i64 {
    match expect {
        interlingua_store::Expect::Any => -1,
        interlingua_store::Expect::Absent => 0,
        // No document has version 0.
        interlingua_store::Expect::Version(Version(version)) => i64::try_from(version.max(1)).unwrap_or(i64::MAX),
    }
}

impl WriteCommand {
    /// True if it is for a run that does not exist before it.
    pub(super) const fn begins_run(&self) -> bool {
        matches!(self, Self::Open { claim: Claim::New, .. } | Self::QueueTurn { continues: None, .. })
    }

    /// Whether a caller may have decided it by the replica's state, so that another replica must not write it. A place
    /// in a queue is requested before any decision, and of its runs a replica writes only those it has.
    pub(super) const fn follows_from_earlier(&self) -> bool {
        !matches!(self, Self::QueueTurn { continues: None, .. } | Self::Touch(_) | Self::Close(_))
    }

    /// Answers with an error.
    pub(super) fn fail(self, error: &StoreError) {
        fn send<T>(reply: Reply<T>, error: &StoreError) {
            let _ = reply.send(Err(error.clone()));
        }
        match self {
            Self::Touch(_) => {}
            Self::Open { reply, .. }
            | Self::Settle { reply, .. }
            | Self::LeaveTurn { reply, .. }
            | Self::Signal { reply, .. }
            | Self::Flush(reply)
            | Self::Close(reply) => send(reply, error),
            Self::Remove { reply, .. } => send(reply, error),
            Self::Documents(work) => send(work.reply, error),
            Self::QueueTurn { reply, .. } => send(reply, error),
        }
    }
}
