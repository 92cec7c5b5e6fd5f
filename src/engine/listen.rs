//! Reading the agent's answer to its end: chunks are fed to the reader, and what it reports goes into the record.
//!
//! Not here: how the answer was requested, and what the turn comes to ([`super::turn_driver`]).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use interlingua_core::connector::Ear;
use interlingua_core::heard::Heard;
use interlingua_core::normalize::Normalizer;
use interlingua_core::{Fault, Record};

use super::active_run::{ActiveRun, Publish};
use super::coalescer::Coalescer;
use super::faults;
use super::turn::Turn;
use super::waits::{MAX_BACKLOG, poll_once, wait_for_room};
use crate::clock;
use crate::store::{Journal, Store};
use crate::upstream::Conversation;

/// Chunks that come together are published together, up to so many bytes.
const MAX_BATCH_BYTES: usize = 16 * 1024;

/// Puts what the reader reports into the record.
struct Sink<'a> {
    record: &'a mut Record,
    normalizer: &'a mut Normalizer,
}

impl Ear for Sink<'_> {
    fn hear(&mut self, heard: &Heard<'_>) -> Result<(), Fault> {
        self.normalizer.hear(self.record, heard).map(|_| ())
    }

    fn ignored(&self) -> u64 {
        self.normalizer.ignored()
    }
}

/// An answer that is being read.
pub(super) struct Listener<'a> {
    store: &'a Arc<dyn Store>,
    run: &'a Arc<ActiveRun>,
    journal: Arc<dyn Journal>,
    conversation: &'a mut Conversation,
    normalizer: &'a mut Normalizer,
    turn: &'a mut Turn,
    /// How many bytes were read that no follower was woken for.
    unpublished: usize,
    coalescer: Coalescer,
    /// False: the store publishes what it has written, and wakes followers. Nothing is coalesced here then.
    is_safe_at_once: bool,
    keep_alives: u64,
}

impl<'a> Listener<'a> {
    pub(super) fn new(
        store: &'a Arc<dyn Store>,
        run: &'a Arc<ActiveRun>,
        conversation: &'a mut Conversation,
        normalizer: &'a mut Normalizer,
        turn: &'a mut Turn,
    ) -> Self {
        Self {
            store,
            run,
            journal: run.journal(),
            conversation,
            keep_alives: normalizer.heartbeats(),
            normalizer,
            turn,
            unpublished: 0,
            coalescer: Coalescer::new(),
            is_safe_at_once: run.is_safe_at_once(),
        }
    }

    /// Reads the answer to its end.
    pub(super) async fn listen(mut self) -> Result<(), Fault> {
        loop {
            let (fed, has_room) = match self.next_chunk().await {
                Ok(Some(chunk)) => self.feed(&chunk),
                Ok(None) => return self.finish(),
                Err(fault) => return self.fail(fault),
            };

            self.forward_keep_alives();
            self.store.touch(&self.journal);
            if self.turn.started.is_some() && self.normalizer.has_begun() {
                self.turn.report_start(Ok(()));
            }
            if self.normalizer.has_ended() {
                return Ok(());
            }
            fed?;
            if !has_room {
                Box::pin(wait_for_room(self.run)).await?;
            }
        }
    }

    /// Waits for the next piece of the body. `None`: the body has ended.
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        if let Poll::Ready(chunk) = self.chunk_of_batch().await {
            return chunk;
        }

        self.unpublished = 0;
        let (run, conversation) = (self.run, &mut *self.conversation);
        poll_fn(|context| {
            if run.cancel.poll_set(context).is_ready() {
                return Poll::Ready(Err(faults::canceled()));
            }
            conversation.poll_chunk(context)
        })
        .await
    }

    /// What comes in one packet comes in several chunks, which are published together: followers are woken once every
    /// other task that is ready has run and nothing more has come.
    async fn chunk_of_batch(&mut self) -> Poll<Result<Option<Bytes>, Fault>> {
        if self.unpublished >= MAX_BATCH_BYTES || (self.unpublished > 0 && self.run.cancel.is_set()) {
            self.run.notify();
            self.unpublished = 0;
        }
        if self.unpublished == 0 {
            return Poll::Pending;
        }

        let mut chunk = poll_once(|context| self.conversation.poll_chunk(context)).await;
        if chunk.is_pending() {
            tokio::task::yield_now().await;
            chunk = poll_once(|context| self.conversation.poll_chunk(context)).await;
        }
        if chunk.is_pending() {
            self.run.notify();
            self.coalescer.pause();
        }
        chunk
    }

    /// Reads a piece of the body. The result of that, and true unless the store or the readers are too far behind.
    fn feed(&mut self, chunk: &Bytes) -> (Result<(), Fault>, bool) {
        let now = clock::now();
        let publish = if !self.is_safe_at_once {
            Publish::Deferred
        } else if self.coalescer.is_alone(now) {
            Publish::Now
        } else {
            self.unpublished += chunk.len();
            Publish::Deferred
        };

        let Self { run, conversation, normalizer, .. } = self;
        run.update(publish, |state| {
            state.record.at(now);
            let was_waiting = !state.has_begun();
            let fed = conversation.feed(chunk, &mut Sink { record: &mut state.record, normalizer });
            if was_waiting && state.has_begun() {
                // The agent works since now, and followers see it at the same time.
                state.about.changed_at = state.record.now();
            }
            (fed, state.has_room(MAX_BACKLOG))
        })
    }

    /// The body has ended in order.
    fn finish(&mut self) -> Result<(), Fault> {
        let Self { run, conversation, normalizer, .. } = self;
        run.update(Publish::Now, |state| {
            state.record.at(clock::now());
            conversation.finish(&mut Sink { record: &mut state.record, normalizer })?;
            let is_understood = normalizer.has_begun()
                || normalizer.has_ended()
                || normalizer.heartbeats() > 0
                || normalizer.complaint().is_some();
            // An answer in another protocol: that is worth a clearer fault than one that ends too early.
            if !is_understood && let Some(foreign) = conversation.foreign() {
                return Err(foreign);
            }
            normalizer.end_of_body(&mut state.record);
            Ok(())
        })
    }

    /// The body broke off.
    fn fail(&mut self, fault: Fault) -> Result<(), Fault> {
        let Self { run, conversation, normalizer, .. } = self;
        run.update(Publish::Now, |state| {
            // A last complete frame may have come before the connection broke. What is wrong with it does not matter.
            let _ = conversation.finish(&mut Sink { record: &mut state.record, normalizer });
        });
        if self.normalizer.has_ended() { Ok(()) } else { Err(fault) }
    }

    fn forward_keep_alives(&mut self) {
        if self.normalizer.heartbeats() != self.keep_alives {
            self.keep_alives = self.normalizer.heartbeats();
            self.run.keep_alive();
        }
    }
}
