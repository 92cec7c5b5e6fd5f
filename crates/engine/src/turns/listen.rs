//! Reading the agent's answers to the end of a turn: chunks are fed to the connector's turn, and the events it emits go
//! into the record.
//!
//! Not here: how the answer was requested, and what the turn comes to ([`super::turn_driver`]).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use interlingua_core::Fault;
use interlingua_core::event::Millis;
use interlingua_core::normalize::Normalizer;
use interlingua_core::recording::Recording;

use super::coalescer::Coalescer;
use crate::faults;
use crate::runs::{ActiveRun, MAX_BACKLOG, Publish, Turn, UnreadBudget, poll_once, wait_for_room};
use interlingua_base::clock;
use interlingua_observe::metrics::{Histogram, LocalCounts};
use interlingua_store::{Journal, Store};
use interlingua_upstream::{Conversation, Flow};

/// Chunks that come together are published together, up to so many bytes.
const MAX_BATCH_BYTES: usize = 16 * 1024;
/// How often the pauses of a long answer are reported, in milliseconds.
const GAPS_INTERVAL_MS: Millis = 5_000;

/// An answer that is being read.
pub(crate) struct Listener<'a> {
    store: &'a Arc<dyn Store>,
    unread: &'a Arc<UnreadBudget>,
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
    gaps: Gaps,
}

/// The pauses between the pieces of an answer, counted here and reported from time to time.
struct Gaps {
    shared: Histogram,
    local: LocalCounts,
    /// When the last piece came.
    last: Option<Millis>,
    /// When they were reported last.
    merged_at: Millis,
}

impl Gaps {
    fn new(shared: &Histogram) -> Self {
        Self { local: shared.local(), shared: shared.clone(), last: None, merged_at: 0 }
    }

    /// A piece came.
    fn note(&mut self, now: Millis) {
        if let Some(last) = self.last.replace(now) {
            self.local.observe(Duration::from_millis(now.saturating_sub(last)));
        }
        if now.saturating_sub(self.merged_at) >= GAPS_INTERVAL_MS {
            self.merged_at = now;
            self.shared.merge(&mut self.local);
        }
    }
}

impl Drop for Gaps {
    fn drop(&mut self) {
        self.shared.merge(&mut self.local);
    }
}

impl<'a> Listener<'a> {
    pub(crate) fn new(
        (store, unread): (&'a Arc<dyn Store>, &'a Arc<UnreadBudget>),
        run: &'a Arc<ActiveRun>,
        conversation: &'a mut Conversation,
        normalizer: &'a mut Normalizer,
        turn: &'a mut Turn,
    ) -> Self {
        Self {
            store,
            unread,
            run,
            journal: run.journal(),
            conversation,
            keep_alives: normalizer.heartbeats(),
            normalizer,
            gaps: Gaps::new(turn.agent.metrics.event_gap()),
            turn,
            unpublished: 0,
            coalescer: Coalescer::new(),
            is_safe_at_once: run.is_safe_at_once(),
        }
    }

    /// Reads answers until the turn has ended.
    pub(super) async fn listen(mut self) -> Result<(), Fault> {
        loop {
            let (fed, has_room) = match self.next_chunk().await {
                Ok(Some(chunk)) => self.feed(&chunk),
                // The turn may go on with another request.
                Ok(None) => match self.finish()? {
                    Flow::Ended => return Ok(()),
                    Flow::Continues => (Ok(()), true),
                },
                Err(fault) => match self.fail(fault)? {
                    Flow::Ended => return Ok(()),
                    Flow::Continues => (Ok(()), true),
                },
            };

            self.forward_keep_alives();
            self.store.touch(&self.journal);
            if self.normalizer.has_begun() {
                self.conversation.began();
                self.turn.report_start(Ok(()));
            }
            if self.normalizer.has_ended() {
                return Ok(());
            }
            fed?;
            if !has_room {
                Box::pin(wait_for_room(self.run, self.unread, self.store.shared().is_some())).await?;
            }
        }
    }

    /// Waits for the next piece of an answer. `None`: that answer has ended.
    ///
    /// What comes in one packet comes in several chunks, which are published together: followers are woken once every
    /// other task that is ready has run and nothing more has come.
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        if self.unpublished >= MAX_BATCH_BYTES || (self.unpublished > 0 && self.run.cancel.is_set()) {
            self.run.notify();
            self.unpublished = 0;
        }

        if self.unpublished > 0 {
            if let Poll::Ready(chunk) = poll_once(|context| self.conversation.poll_chunk(context)).await {
                return chunk;
            }
            tokio::task::yield_now().await;
            if let Poll::Ready(chunk) = poll_once(|context| self.conversation.poll_chunk(context)).await {
                return chunk;
            }

            self.run.notify();
            self.coalescer.pause();
            self.unpublished = 0;
        }

        let (run, conversation) = (self.run, &mut *self.conversation);
        poll_fn(|context| {
            if run.cancel.poll_set(context).is_ready() {
                return Poll::Ready(Err(faults::canceled()));
            }
            conversation.poll_chunk(context)
        })
        .await
    }

    /// Reads a piece of an answer. The result of that, and true unless the store or the readers are too far behind.
    fn feed(&mut self, chunk: &Bytes) -> (Result<(), Fault>, bool) {
        let now = clock::now();
        self.gaps.note(now);
        let publish = if !self.is_safe_at_once {
            Publish::Deferred
        } else if self.coalescer.is_alone(now) {
            Publish::Now
        } else {
            self.unpublished += chunk.len();
            Publish::Deferred
        };

        let Self { run, conversation, normalizer, turn, unread, .. } = self;
        run.update(publish, |state| {
            state.record.set_time(now);
            let was_waiting = !state.has_begun();
            let fed = conversation.feed(chunk, &mut Recording { record: &mut state.record, normalizer });
            if was_waiting && state.has_begun() {
                // The agent works since now, and followers see it at the same time.
                state.about.changed_at = state.record.now();
                turn.note_first_event();
            }
            (fed, state.has_room(MAX_BACKLOG, unread))
        })
    }

    /// An answer has ended in order.
    fn finish(&mut self) -> Result<Flow, Fault> {
        let Self { run, conversation, normalizer, .. } = self;
        run.update(Publish::Now, |state| {
            state.record.set_time(clock::now());
            let flow = conversation.finish(&mut Recording { record: &mut state.record, normalizer })?;
            if flow == Flow::Ended {
                // An answer in another protocol is worth a clearer fault than one that ends too early.
                if !is_understood(normalizer)
                    && let Some(foreign) = conversation.foreign()
                {
                    return Err(foreign);
                }
                normalizer.end_of_body(&mut state.record);
            }
            Ok(flow)
        })
    }

    /// An answer broke off, or a further request failed.
    fn fail(&mut self, fault: Fault) -> Result<Flow, Fault> {
        let Self { run, conversation, normalizer, .. } = self;
        run.update(Publish::Now, |state| {
            let flow = conversation.fail(fault, &mut Recording { record: &mut state.record, normalizer })?;
            if flow == Flow::Ended && !normalizer.has_ended() {
                normalizer.end_of_body(&mut state.record);
            }
            Ok(flow)
        })
    }

    fn forward_keep_alives(&mut self) {
        if self.normalizer.heartbeats() != self.keep_alives {
            self.keep_alives = self.normalizer.heartbeats();
            self.run.keep_alive();
        }
    }
}

/// True if anything was understood of what the agent sent.
fn is_understood(normalizer: &Normalizer) -> bool {
    normalizer.has_begun() || normalizer.has_ended() || normalizer.heartbeats() > 0 || normalizer.complaint().is_some()
}
