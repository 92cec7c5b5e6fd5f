//! The result of a turn: noted in its session, recorded in its run, written, and published.
//!
//! Not here: how the turn ended ([`super::turn_driver`]), and how ends are made safe ([`crate::runs::commit`]).

use std::sync::{Arc, Weak};

use interlingua_core::agent_event::Awaits;
use interlingua_core::answer::AskContext;
use interlingua_core::call::RunState;
use interlingua_core::event::Millis;
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::{End, FaultKind, Json, Run, RunId};
use tokio::time::Instant;

use super::transcripts::Transcripts;
use crate::backoff::Backoff;
use crate::pending::{LinkedRuns, PendingIndex};
use crate::runs::{ActiveRun, ConnectionCache, Prepared, Publish, RunTable, Turn, commit};
use crate::sessions::{AgentMemory, TurnNote, TurnSuccess};
use interlingua_base::clock;

/// Notes, writes and publishes the results of turns.
pub(crate) struct Concluder {
    runs: Arc<RunTable>,
    transcripts: Arc<Transcripts>,
    pending_index: Arc<PendingIndex>,
}

/// A turn that has ended in the record.
pub(super) struct Concluded<'a> {
    pub(crate) run: &'a Arc<ActiveRun>,
    pub(super) turn: &'a mut Turn,
    /// The connection its request came over, if that keeps responses.
    pub(super) connection: Option<&'a Weak<ConnectionCache>>,
    /// The runs that it answered.
    pub(super) linked: LinkedRuns,
    /// `None`: the turn ended before its request was prepared.
    pub(super) prepared: Option<&'a mut Prepared>,
    /// The connector's state for the next turn of the session.
    pub(crate) connector_state: Option<Json>,
}

/// The end of a turn, from the record.
struct Ended {
    end: End,
    /// Its index in the run.
    number: usize,
    /// True if it never reached the agent, so that the run returns to the state before it.
    is_withdrawn: bool,
    /// The pending items of the run.
    asked: Vec<Pending>,
    /// The condition that the agent waits for, besides pending items.
    awaits: Option<Awaits>,
}

impl Ended {
    fn new(run: &Run) -> Self {
        Self {
            end: run.turn().and_then(|turn| turn.end).unwrap_or(End::Failed),
            number: run.turns.len().saturating_sub(1),
            is_withdrawn: run.turn().is_some_and(|turn| turn.withdrawn),
            asked: run.pending(),
            awaits: run.turn().and_then(|turn| turn.awaits),
        }
    }

    const fn is_good(&self) -> bool {
        matches!(self.end, End::Completed | End::Incomplete)
    }

    /// Its index in the run, in the type of session entries.
    fn index(&self) -> u32 {
        u32::try_from(self.number).unwrap_or(u32::MAX)
    }

    /// The state of the run after the turn, if these items are open and no queued turn is next.
    fn next_state(&self, turn: &Turn, open: &[Pending]) -> RunState {
        let turns = turn.policy.turns;
        let waits = turns.are_many()
            && self.is_good()
            && (!open.is_empty() || turns.pause_on(self.end) || self.awaits.is_some());
        let waits_for_auth = if open.is_empty() {
            self.awaits == Some(Awaits::Auth)
        } else {
            open.iter().any(|item| item.kind == PendingKind::Auth)
        };

        match turn.resumes {
            // A turn before this one answered its items.
            Some(_) if self.is_withdrawn && open.is_empty() && !self.asked.is_empty() => {
                RunState::Ended(End::Completed)
            }
            Some(resumes) if self.is_withdrawn => resumes,
            _ if waits && waits_for_auth => RunState::WaitingForAuth,
            _ if waits => RunState::Waiting,
            _ => RunState::Ended(self.end),
        }
    }
}

impl Concluder {
    pub(crate) const fn new(
        runs: Arc<RunTable>,
        transcripts: Arc<Transcripts>,
        pending_index: Arc<PendingIndex>,
    ) -> Self {
        Self { runs, transcripts, pending_index }
    }

    /// Notes, writes and publishes the result of a turn.
    pub(super) async fn conclude(&self, concluded: Concluded<'_>) {
        let Concluded { run, turn, connection, linked, prepared, connector_state } = concluded;
        if run.is_lost() {
            // Another replica ends it. Changes of its session in this process are not written.
            return self.runs.sessions().forget(&turn.session);
        }

        let now = clock::now();
        let ended = run.view(|view| Ended::new(view.run()));
        let is_of_connection = connection.is_some();
        let connection = connection.and_then(Weak::upgrade);
        let is_kept = turn.policy.stored || connection.is_some();

        let was_prepared = prepared.is_some();
        let changes_session = was_prepared || ended.is_withdrawn;
        let (branch, stored) = (turn.spoken.basis.branch(None), turn.policy.stored);
        let before = if ended.is_good() && prepared.is_some() && !ended.is_withdrawn {
            Box::pin(self.transcripts.entries_before(&turn.session, branch, stored, is_of_connection)).await
        } else {
            None
        };
        if stored {
            turn.session.store_from_now_on();
        }
        let open = if ended.is_withdrawn {
            // As if the agent had not been called.
            turn.session.pending_of(run.id())
        } else if let Some(prepared) = prepared {
            let success = ended.is_good().then(|| TurnSuccess {
                asked: ended.asked.clone(),
                context: ask_context(run, turn, now),
                before,
                is_kept,
                connector_state,
                user: prepared.request.user_id.clone(),
            });
            note_in_session(run, turn, prepared, &ended, success)
        } else {
            Vec::new()
        };

        let next = ended.next_state(turn, &open);
        let (limit, began) = (self.runs.store().write_timeout(), Instant::now());
        if changes_session && !run.is_unobserved() {
            // Other replicas may read an end as soon as it is recorded: the session has its result by then.
            commit::within(limit, self.save_session(run, turn, &open)).await;
        }

        let is_handed_over = self.advance(run, turn, next, &open).await;
        // The run was stopped meanwhile.
        let is_kept_here = !is_handed_over && turn.session.take_handed_over(run.id()).is_some();
        // A turn that never reached its session leaves the items of earlier turns there.
        let may_ask = !next.is_ended() || !was_prepared;
        let is_withdrawn = may_ask && run.view(|view| view.run().end.is_some()) && turn.session.withdraw(run.id());

        // The runs it answered end first: a client that sees this end finds them ended.
        let error = run.view(|view| view.run().turns.get(ended.number).and_then(|turn| turn.error.clone()));
        linked.end(ended.end, error.as_ref()).await;

        let save_session = async {
            if is_withdrawn || is_kept_here {
                self.save_session(run, turn, if is_withdrawn { &[] } else { &open }).await;
            }
        };

        if let Some(connection) = &connection {
            connection.turn_concluded(run, turn, ended.is_good());
        }

        let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
        if commit::publish_when_safe(self.runs.store(), run, left, save_session).await {
            if is_handed_over && self.runs.store().runs_move() {
                // The process whose turn is next in the queue may be lost.
                self.runs.watch_handover(run.id(), &turn.session);
            }
            return;
        }
        if run.is_lost() {
            self.runs.sessions().forget(&turn.session);
        }

        take_back(run.id(), turn, ended.index(), connection.as_deref());
    }

    /// Sets the state of a run after a turn. True if a queued turn is next.
    async fn advance(&self, run: &Arc<ActiveRun>, turn: &Turn, next: RunState, open: &[Pending]) -> bool {
        let may_continue = turn.policy.turns.are_many();
        let mut transition = Transition { next, may_continue, is_noted: None };
        if self.runs.store().runs_move() {
            // As late as possible: a turn that another process queues after this finds the run ended. If the queue
            // cannot be read, the run is handed over, and ends later if no turn was queued.
            let sessions = self.runs.sessions();
            let has_next = may_continue && sessions.is_continued(&turn.session, run.id()).await.unwrap_or(true);
            transition.is_noted = Some(has_next);
        }

        let now = clock::now();
        loop {
            if let (Some(true), RunState::Ended(end)) = (transition.is_noted, next) {
                turn.session.hand_over(run.id(), end);
                // In the session before the run waits, too: for clients of other replicas it never does.
                self.save_session(run, turn, open).await;
            }
            match transition.apply(run, open, now) {
                Next::Queued => return true,
                Next::AtRest => return false,
                Next::QueuedSince => transition.is_noted = Some(true),
            }
        }
    }

    /// Writes the session of a turn. If the store fails, it tries again until the run is lost: the run must not end
    /// before its session is written.
    async fn save_session(&self, run: &ActiveRun, turn: &Turn, asked: &[Pending]) {
        let mut backoff = Backoff::new();
        // The replica that has a lost run writes its session, too.
        while !run.is_lost() {
            let added = self.pending_index.add(&turn.session, run, asked).await;
            let saved = match added {
                Ok(()) => self.runs.sessions().save(&turn.session).await,
                // Others may have taken this replica's runs over: nothing more may be written of them.
                Err(fault) => Err(fault),
            };
            let Err(fault) = saved else { return };
            // A run that is not stored ends without delay, also while the store fails: it is not read later.
            let is_awaited = run.view(|view| view.info.stored) || self.runs.store().runs_move();
            if fault.kind != FaultKind::Overloaded || !is_awaited {
                let (code, detail) = (fault.code(), fault.detail.as_deref());
                return tracing::warn!(run = %run.id(), code, detail, "{}", fault.message);
            }
            backoff.pause().await;
        }
    }
}

fn ask_context<'a>(run: &ActiveRun, turn: &'a Turn, now: Millis) -> AskContext<'a> {
    AskContext {
        run: run.id(),
        now,
        terms: turn.spoken.answer_policy,
        tools: turn.spoken.request.tools.as_deref().unwrap_or_default(),
        decisions: run.agent.card.decisions,
        tool_outputs: run.agent.upstream.capabilities().tool_outputs,
    }
}

/// Notes a turn in its session. Returns the items that are open.
fn note_in_session(
    run: &ActiveRun,
    turn: &Turn,
    prepared: &mut Prepared,
    ended: &Ended,
    success: Option<TurnSuccess<'_>>,
) -> Vec<Pending> {
    let is_discarded = turn.policy.discard_if_unreached && !run.view(|view| view.info.stored);
    let is_good = ended.is_good();
    let memory = match is_good {
        true if turn.policy.record_only => AgentMemory::Unchanged,
        true => AgentMemory::Current,
        false if prepared.is_unknown => AgentMemory::Unchanged,
        false => AgentMemory::Unclear,
    };

    turn.session.note_turn(TurnNote {
        run: run.id(),
        turn: ended.index(),
        is_latest: !is_discarded,
        taken: prepared.taken.take(),
        memory,
        known_entries: prepared.known_entries,
        leaves_stale: prepared.leaves_stale,
        success,
        home: prepared.home.clone(),
        is_home_lost: !is_good && prepared.resent.is_some(),
        upstream_id: &prepared.upstream_id,
    })
}

/// The change of a run after a turn.
#[derive(Clone, Copy)]
struct Transition {
    /// The state of the run if no queued turn is next.
    next: RunState,
    /// False for a run with a single turn.
    may_continue: bool,
    /// Whether the session notes that a queued turn is next. `None`: no other process can queue one, so no note is
    /// needed.
    is_noted: Option<bool>,
}

/// The result of a [`Transition`].
enum Next {
    /// The run waits or has ended.
    AtRest,
    /// A queued turn is next.
    Queued,
    /// Nothing has changed: this process queued a turn after the store's queue was read.
    QueuedSince,
}

impl Transition {
    /// Sets the state of the run. The turns that this process queued are counted under the same lock.
    fn apply(self, run: &ActiveRun, open: &[Pending], now: Millis) -> Next {
        let Self { next, may_continue, is_noted } = self;
        run.update(Publish::Later, |state| {
            if state.record.is_finished() {
                // The run was ended from outside while the turn was under way.
                return Next::AtRest;
            }

            if state.ends_after_turn && !next.is_ended() {
                // It was ended at the moment of its pause.
                state.cut(End::Canceled, None);
                return Next::AtRest;
            }

            let is_stopped =
                run.cancel.is_set() && (next.is_ended() || state.ends_after_turn || state.cancel_reason.is_some());
            let has_queued = may_continue && state.queued_turns() > 0;
            match is_noted {
                _ if is_stopped => {}
                None if has_queued => {
                    // A later cancellation is for the queued turn.
                    run.cancel.reset();
                    state.fallback = Some(next);
                    return Next::Queued;
                }
                Some(false) if has_queued && next.is_ended() => return Next::QueuedSince,
                Some(true) if next.is_ended() => {
                    state.pending = open.to_vec();
                    state.fallback = Some(next);
                    state.set(RunState::Waiting, state.record.now());
                    return Next::Queued;
                }
                _ => {}
            }

            state.pending = open.to_vec();
            match next {
                RunState::Ended(end) => {
                    state.record.set_time(now);
                    state.record.finish_run(end);
                    state.set(next, now);
                }
                // At the very time that followers see.
                _ => state.set(next, state.record.now()),
            }
            Next::AtRest
        })
    }
}

/// Removes the notes of a turn that could not be written, and that ended as failed instead.
fn take_back(run: RunId, turn: &Turn, index: u32, connection: Option<&ConnectionCache>) {
    if let Some(connection) = connection {
        connection.evict(run);
    }
    turn.session.take_back(run, index);
}
