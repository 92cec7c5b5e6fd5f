//! What a turn has come to: noted in its session, recorded in its run, written, and published.
//!
//! Not here: how the turn ended ([`super::turn_driver`]), and how ends are made safe ([`crate::runs::commit`]).

use std::sync::{Arc, Weak};

use interlingua_core::agent_event::Awaits;
use interlingua_core::answer::AskContext;
use interlingua_core::call::RunState;
use interlingua_core::event::Millis;
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::{End, FaultKind, Json, Run, RunId};

use super::transcripts::Transcripts;
use crate::backoff::Backoff;
use crate::faults;
use crate::pending::{LinkedRuns, PendingIndex};
use crate::runs::{ActiveRun, ConnectionCache, Handover, Prepared, Publish, RunTable, Turn, commit};
use crate::sessions::{AgentMemory, TurnNote, TurnSuccess};
use interlingua_base::clock;

/// Notes, writes and publishes what turns come to.
pub(crate) struct Concluder {
    runs: Arc<RunTable>,
    transcripts: Arc<Transcripts>,
    pending_index: Arc<PendingIndex>,
    handover: Arc<Handover>,
}

/// A turn that has ended in the record.
pub(super) struct Concluded<'a> {
    pub(crate) run: &'a Arc<ActiveRun>,
    pub(super) turn: &'a mut Turn,
    /// The connection its request came over, if that keeps responses.
    pub(super) connection: Option<&'a Weak<ConnectionCache>>,
    /// The runs it answered.
    pub(super) linked: LinkedRuns,
    /// `None`: it was never found out what to ask.
    pub(super) prepared: Option<&'a mut Prepared>,
    /// What the connector wants to have again with the session's next turn.
    pub(crate) connector_state: Option<Json>,
}

/// How a turn ended, as the record has it.
struct Ended {
    end: End,
    /// Its index in the run.
    number: usize,
    /// True if it never reached the agent and the run goes back to where it was.
    is_withdrawn: bool,
    /// What the run asks.
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

    /// As entries count turns.
    fn index(&self) -> u32 {
        u32::try_from(self.number).unwrap_or(u32::MAX)
    }

    /// Where the run stands after the turn, with these items open.
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
            // What it asked was answered by a turn before this one.
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
        handover: Arc<Handover>,
    ) -> Self {
        Self { runs, transcripts, pending_index, handover }
    }

    /// Notes, writes and publishes what a turn has come to. Returns the turn that was queued behind it.
    pub(super) async fn conclude(&self, concluded: Concluded<'_>) -> Option<Turn> {
        let Concluded { run, turn, connection, linked, prepared, connector_state } = concluded;
        if run.is_lost() {
            // Another replica ends it; what was changed here of its session is not written.
            self.runs.sessions().forget(&turn.session);
            return None;
        }

        let now = clock::now();
        let ended = run.view(|view| Ended::new(view.run()));
        let is_of_connection = connection.is_some();
        let connection = connection.and_then(Weak::upgrade);
        let is_kept = turn.policy.stored || connection.is_some();

        let changes_session = prepared.is_some() || ended.is_withdrawn;
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

        let state = ended.next_state(turn, &open);
        let is_shared = self.runs.is_shared();
        if is_shared && changes_session && !run.is_unobserved() {
            // Other replicas may read an end as soon as it is recorded: what it comes to is in the session by then.
            self.save_session(run, turn, &open).await;
        }

        let may_continue = turn.policy.turns.are_many();
        let continued = may_continue && self.runs.is_continued(run.id()).await.unwrap_or(false);
        if let (true, RunState::Ended(end)) = (continued, state) {
            // In the session before the run waits, too: for clients of other replicas it never does.
            turn.session.hand_over(run.id(), end);
            self.save_session(run, turn, &open).await;
        }

        let asked = open.clone();
        let (next, is_handed_over) = advance(run, Comes { to: state, continued }, open, now);
        // It was stopped meanwhile, or has its next turn here.
        let is_kept_here = !is_handed_over && turn.session.take_handed_over(run.id()).is_some();
        let is_withdrawn = next.is_none() && !state.is_ended() && run.view(|view| view.run().end.is_some());
        if is_withdrawn {
            turn.session.withdraw(run.id());
        }

        // The runs it answered end first: a client that sees this end finds them ended.
        let error = run.view(|view| view.run().turns.get(ended.number).and_then(|turn| turn.error.clone()));
        linked.end(ended.end, error.as_ref()).await;

        let save_session = async {
            if is_withdrawn || is_kept_here || (changes_session && !is_shared) {
                self.save_session(run, turn, if is_withdrawn { &[] } else { &asked }).await;
            }
        };

        if let Some(connection) = &connection {
            connection.turn_concluded(run, turn, ended.is_good());
        }

        if commit::publish_when_safe(self.runs.store(), run, save_session).await {
            if is_handed_over {
                self.handover.watch(run, &turn.session);
            }
            return next;
        }
        if run.is_lost() {
            self.runs.sessions().forget(&turn.session);
        }

        take_back(run.id(), turn, ended.index(), connection.as_deref(), next);
        None
    }

    /// Writes the session of a turn. Other replicas read it there, so a shared store that cannot be reached is waited
    /// for as long as the run is not lost: the run's end must not be there without it.
    async fn save_session(&self, run: &ActiveRun, turn: &Turn, asked: &[Pending]) {
        let mut backoff = Backoff::new();
        // The replica that has a lost run writes its session, too.
        while !run.is_lost() {
            let added = self.pending_index.add(&turn.session, run, asked).await;
            // Refused because others have taken this replica's runs over: nothing more may be written of them.
            let is_refused = added.is_err() && self.runs.is_shared();
            let saved = if is_refused { added } else { added.and(self.runs.sessions().save(&turn.session).await) };
            let Err(fault) = saved else { return };
            if !self.runs.is_shared() || fault.kind != FaultKind::Overloaded {
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

/// What a run comes to after a turn.
#[derive(Clone, Copy)]
struct Comes {
    to: RunState,
    /// True if another replica takes its next turn: it waits for that.
    continued: bool,
}

/// Moves a run on after a turn: to the turn that is queued next, to waiting, or to its end. Returns the queued turn,
/// and true if it waits for another replica to take its next turn.
fn advance(run: &ActiveRun, comes: Comes, open: Vec<Pending>, now: Millis) -> (Option<Turn>, bool) {
    let Comes { to: comes_to, continued } = comes;
    run.update(Publish::Later, |state| {
        if state.record.is_finished() {
            // The run was ended from outside while the turn was under way.
            return (None, false);
        }

        state.pending = open;
        if state.ends_after_turn && !comes_to.is_ended() {
            // It was ended in the moment it came to its pause.
            state.cut(End::Canceled, None);
            return (None, false);
        }

        let is_stopped =
            run.cancel.is_set() && (comes_to.is_ended() || state.ends_after_turn || state.cancel_reason.is_some());
        let next = if is_stopped { None } else { state.queued.pop_front() };
        if let Some(mut next) = next {
            run.cancel.reset();
            next.resumes = Some(comes_to);
            state.record.set_time(now);
            state.record.start_turn(next.spoken.request.input.clone());
            state.set(RunState::Running, now);
            return (Some(next), false);
        }

        state.queued.clear();
        match comes_to {
            RunState::Ended(_) if continued && !is_stopped => {
                state.is_handed_over = true;
                state.set(RunState::Waiting, state.record.now());
                return (None, true);
            }
            RunState::Ended(end) => {
                state.record.set_time(now);
                state.record.finish_run(end);
                state.set(comes_to, now);
            }
            // At the very time that followers see.
            _ => state.set(comes_to, state.record.now()),
        }
        (None, false)
    })
}

/// Takes back what was noted of a turn that could not be written, and that ended as failed instead.
fn take_back(run: RunId, turn: &Turn, index: u32, connection: Option<&ConnectionCache>, next: Option<Turn>) {
    if let Some(connection) = connection {
        connection.evict(run);
    }
    turn.session.take_back(run, index);
    if let Some(mut next) = next {
        next.report_start(Err(faults::not_written()));
    }
}
