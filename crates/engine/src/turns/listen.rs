//! Reading the answers of the agent until the turn ends: passes chunks to the connector, which adds events to the
//! record.
//!
//! Not here: sending the request and the result of the turn ([`super::turn_driver`]).

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

/// The maximum size of consecutive chunks that are published together.
const MAX_BATCH_BYTES: usize = 16 * 1024;
/// Interval at which the gaps of an answer are added to the metrics, in milliseconds.
const GAPS_INTERVAL_MS: Millis = 5_000;

/// Reads the answers of one turn.
pub(crate) struct Listener<'a> {
    store: &'a Arc<dyn Store>,
    unread: &'a Arc<UnreadBudget>,
    run: &'a Arc<ActiveRun>,
    journal: Arc<dyn Journal>,
    conversation: &'a mut Conversation,
    normalizer: &'a mut Normalizer,
    turn: &'a mut Turn,
    /// Bytes that were read since followers were last woken.
    unpublished: usize,
    coalescer: Coalescer,
    /// False: the store publishes events once they are written, so that nothing is coalesced here.
    is_safe_at_once: bool,
    /// Keep-alives of the agent that were forwarded to followers.
    keep_alives: u64,
    gaps: Gaps,
}

/// The gaps between the chunks of an answer. Counted locally, because the shared histogram is expensive to update.
struct Gaps {
    shared: Histogram,
    local: LocalCounts,
    /// Time of the last chunk.
    last: Option<Millis>,
    /// Time of the last update of the shared histogram.
    merged_at: Millis,
}

impl Gaps {
    fn new(shared: &Histogram) -> Self {
        Self { local: shared.local(), shared: shared.clone(), last: None, merged_at: 0 }
    }

    /// Counts a chunk.
    fn chunk_arrived(&mut self, now: Millis) {
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

    /// Reads answers until the turn ends.
    pub(super) async fn listen(mut self) -> Result<(), Fault> {
        loop {
            let (fed, has_room) = match self.next_chunk().await {
                Ok(Some(chunk)) => self.feed(&chunk),
                ended => {
                    let flow = match ended {
                        Err(fault) => self.fail(fault)?,
                        Ok(_) => self.finish()?,
                    };
                    if flow == Flow::Ended {
                        return Ok(());
                    }
                    // The turn continues with another request.
                    (Ok(()), true)
                }
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
                Box::pin(wait_for_room(self.run, self.unread, self.store.write_timeout())).await?;
            }
        }
    }

    /// Waits for the next chunk of an answer. `None`: the answer has ended.
    ///
    /// One packet can contain several chunks, which are published together: followers are woken when no further chunk
    /// is ready. If a task of its own reads the connection, it is ready after that task has run.
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        if self.unpublished >= MAX_BATCH_BYTES || (self.unpublished > 0 && self.run.cancel.is_set()) {
            self.run.notify();
            self.unpublished = 0;
            if self.conversation.is_gathered() {
                // Followers write before more is read: no other task limits how much an agent sends at once.
                tokio::task::yield_now().await;
            }
        }

        if self.unpublished > 0 {
            if let Poll::Ready(chunk) = poll_once(|context| self.conversation.poll_chunk(context)).await {
                return chunk;
            }
            if !self.conversation.is_gathered() {
                tokio::task::yield_now().await;
                if let Poll::Ready(chunk) = poll_once(|context| self.conversation.poll_chunk(context)).await {
                    return chunk;
                }
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

    /// Processes a chunk. The flag is false if the store or the readers are too far behind to read on.
    fn feed(&mut self, chunk: &Bytes) -> (Result<(), Fault>, bool) {
        let now = clock::now();
        self.gaps.chunk_arrived(now);
        let publish = if !self.is_safe_at_once {
            Publish::Deferred
        } else if self.coalescer.add_chunk(now) {
            Publish::Now
        } else {
            self.unpublished += chunk.len();
            Publish::Deferred
        };

        let Self { run, conversation, normalizer, turn, unread, .. } = self;
        let fed = run.update_turn(publish, |state| {
            state.record.set_time(now);
            let was_waiting = !state.has_begun();
            let fed = conversation.feed(chunk, &mut Recording { record: &mut state.record, normalizer });
            if was_waiting && state.has_begun() {
                // The run starts to work with this event.
                state.about.changed_at = state.record.now();
                turn.note_first_event();
            }
            (fed, state.has_room(MAX_BACKLOG, unread))
        });
        fed.unwrap_or_else(|ended| (Err(ended), true))
    }

    /// Processes the regular end of an answer.
    fn finish(&mut self) -> Result<Flow, Fault> {
        let Self { run, conversation, normalizer, .. } = self;
        run.update_turn(Publish::Now, |state| {
            state.record.set_time(clock::now());
            let flow = conversation.finish(&mut Recording { record: &mut state.record, normalizer })?;
            if flow == Flow::Ended {
                // For an answer in another protocol, report that instead of a truncated answer.
                if !is_understood(normalizer)
                    && let Some(foreign) = conversation.foreign()
                {
                    return Err(foreign);
                }
                normalizer.end_of_body(&mut state.record);
            }
            Ok(flow)
        })?
    }

    /// Processes a truncated answer, or the failure of a further request.
    fn fail(&mut self, fault: Fault) -> Result<Flow, Fault> {
        let Self { run, conversation, normalizer, .. } = self;
        run.update_turn(Publish::Now, |state| {
            let flow = conversation.fail(fault, &mut Recording { record: &mut state.record, normalizer })?;
            if flow == Flow::Ended && !normalizer.has_ended() {
                normalizer.end_of_body(&mut state.record);
            }
            Ok(flow)
        })?
    }

    fn forward_keep_alives(&mut self) {
        if self.normalizer.heartbeats() != self.keep_alives {
            self.keep_alives = self.normalizer.heartbeats();
            self.run.keep_alive();
        }
    }
}

/// True if any part of the answer was in the expected protocol.
fn is_understood(normalizer: &Normalizer) -> bool {
    normalizer.has_begun() || normalizer.has_ended() || normalizer.heartbeats() > 0 || normalizer.complaint().is_some()
}
