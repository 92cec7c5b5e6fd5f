//! One turn of a run: it waits for its session, sends the request to the agent, and ends with a result in every case.
//!
//! Not here: the task of the turn ([`super::driver`]), reading the answer ([`super::listen`]), and writing the result
//! ([`super::conclude`]).

use std::sync::{Arc, Weak};
use std::time::Instant;

use interlingua_core::call::{RunState, RunView};
use interlingua_core::model::Input;
use interlingua_core::normalize::Normalizer;
use interlingua_core::{End, Fault, FaultKind};

use super::calling::Caller;
use super::conclude::{Concluded, Concluder};
use super::context::ContextBuilder;
use super::listen::Listener;
use super::log::TurnReport;
use super::unreached::{discard, end_unreached};
use super::{calling, log, spent};
use crate::faults;
use crate::pending::{LinkedRuns, RunLinker};
use crate::runs::{
    ActiveRun, ConnectionCache, Place, Prepared, Publish, RunTable, Turn, UnreadBudget, commit, note_stop,
    unless_canceled,
};
use crate::sessions::TurnGuard;
use interlingua_base::clock;
use interlingua_store::StoreFuture;
use interlingua_upstream::Conversation;

/// The parts of the engine that turns use.
pub(crate) struct TurnServices {
    pub(crate) runs: Arc<RunTable>,
    pub(crate) context: ContextBuilder,
    pub(crate) linker: Arc<RunLinker>,
    pub(crate) concluder: Concluder,
    /// Shared by all runs.
    pub(crate) unread: Arc<UnreadBudget>,
}

/// A turn under way.
pub(super) struct TurnDriver<'a> {
    services: &'a TurnServices,
    run: &'a Arc<ActiveRun>,
    turn: Box<Turn>,
    connection: Option<Weak<ConnectionCache>>,
    normalizer: Normalizer,
    /// The runs whose items the turn answers.
    linked: LinkedRuns,
    /// The fault of the turn, for the log.
    cause: Option<Fault>,
    /// The reason why the agent was never reached, for the client.
    refusal: Option<Fault>,
}

/// A turn that has its session, and the result of its request.
struct SentRequest {
    guard: TurnGuard,
    prepared: Box<Prepared>,
    /// `Ok(None)`: the agent is not called.
    opened: Result<Option<Conversation>, Fault>,
}

/// A fault before the request was prepared.
struct Unprepared {
    fault: Fault,
    /// The session's turn, if it was acquired. Kept until the end is written: until then no other turn may begin.
    guard: Option<TurnGuard>,
}

impl From<Fault> for Unprepared {
    fn from(fault: Fault) -> Self {
        Self { fault, guard: None }
    }
}

/// The contact of a turn with its agent.
#[derive(Default)]
struct AgentContact {
    /// The session's turn, until the end is written. `None`: the turn failed before it had its session.
    guard: Option<TurnGuard>,
    prepared: Option<Box<Prepared>>,
    /// `None`: the agent was not reached, or is not called.
    conversation: Option<Conversation>,
}

impl<'a> TurnDriver<'a> {
    pub(crate) fn new(
        services: &'a TurnServices,
        run: &'a Arc<ActiveRun>,
        mut turn: Box<Turn>,
        connection: Option<Weak<ConnectionCache>>,
    ) -> Self {
        // All requests of the turn to its agent are part of one span.
        let trace = turn.trace.take().map(|trace| Arc::new(trace.child(clock::new_span_id())));
        turn.trace = trace;

        let mut normalizer = Normalizer::new(turn.agent.max_run_bytes).masking(interlingua_base::secrets::mask);
        if !turn.policy.turns.are_many() {
            normalizer = normalizer.ending_the_run();
        }
        Self {
            services,
            run,
            turn,
            connection,
            normalizer,
            linked: LinkedRuns::none(Arc::clone(&services.runs)),
            cause: None,
            refusal: None,
        }
    }

    /// Takes the turn, or ends it with the fault of `refused` before it begins. `opened` resolves once the store has
    /// the run.
    pub(super) async fn take(mut self, refused: Option<Fault>, opened: Option<StoreFuture<()>>) {
        let began_at = Instant::now();
        self.turn.began_at = Some(began_at);
        // The steps before and after the answer are boxed: the task needs no memory for them while it reads the answer.
        let requested = match refused {
            Some(fault) => Err(fault.into()),
            None => Box::pin(self.request(opened)).await,
        };

        let AgentContact { guard, mut prepared, mut conversation } = Box::pin(self.note_start(requested)).await;

        if let Some(conversation) = &mut conversation {
            let store = self.services.runs.store();
            let stores = (store, &self.services.unread);
            let listener = Listener::new(stores, self.run, conversation, &mut self.normalizer, &mut self.turn);
            let result = listener.listen().await;
            self.note_end(result);
        }

        if self.turn.policy.record_only && self.refusal.is_none() {
            self.end_unanswered();
        }

        let error = self.run.view(|view| view.run().turn().and_then(|turn| turn.error.clone()));
        if let Some(conversation) = &mut conversation {
            let is_reported = self.normalizer.complaint().is_some();
            conversation.report(calling::outcome(self.cause.as_ref(), error.as_ref(), is_reported));
        }

        self.discard_if_unreached();

        let mut losses = prepared.as_ref().map(|prepared| prepared.losses.clone()).unwrap_or_default();
        if let Some(conversation) = &conversation {
            losses.extend(conversation.losses().as_slice());
        }
        losses.extend(self.normalizer.losses());
        let connector_state = conversation.as_ref().and_then(Conversation::session_state);
        let first_ignored = conversation.as_ref().and_then(Conversation::first_ignored).map(str::to_owned);
        if self.run.cancel.is_set() {
            self.stop_agent(conversation);
        } else if let Some(conversation) = conversation {
            conversation.release();
        }

        self.release();
        let concluded = Concluded {
            run: self.run,
            turn: &mut self.turn,
            connection: self.connection.as_ref(),
            linked: self.linked,
            prepared: prepared.as_deref_mut(),
            connector_state,
        };

        Box::pin(self.services.concluder.conclude(concluded)).await;

        let report = TurnReport {
            fault: self.cause.as_ref(),
            error: error.as_ref(),
            agent_error: self.normalizer.complaint(),
            ignored: self.normalizer.ignored(),
            first_ignored: first_ignored.as_deref(),
            losses,
            took: began_at.elapsed(),
        };

        log::turn_ended(self.run, &mut self.turn, &report);
        // After the log has read the run: another thread may take the next turn at once.
        drop(guard);
        // A client that still waits for the turn to begin gets its end only now: everything about it can be found.
        self.turn.report_start(self.refusal.map_or(Ok(()), |fault| Err(faults::logged(fault))));
    }

    /// Waits for the session's turn, prepares the request, and sends it while the store writes the run.
    async fn request(&mut self, opened: Option<StoreFuture<()>>) -> Result<SentRequest, Unprepared> {
        let (guard, mut prepared) = self.prepare().await?;
        let turns_before = self.run.view(|view| view.run().turns.len().saturating_sub(1));
        let number = u32::try_from(turns_before).unwrap_or(u32::MAX);
        prepared.name(&self.turn.session.id, self.run.id(), number);
        self.turn.answers = prepared.answered.len();
        let decisions = log::decisions(&prepared);
        if let Err(fault) = self.note_request(&mut prepared) {
            return Ok(SentRequest { guard, prepared, opened: Err(fault) });
        }
        if !prepared.freed.is_empty() {
            self.linked = self.services.linker.link(&prepared.freed, self.run.id()).await;
        }

        // A decision is safe before it has an effect.
        let sessions = self.services.runs.sessions();
        let saved = if prepared.decided { sessions.save(&self.turn.session).await } else { Ok(()) };
        if saved.is_ok() {
            log::audit_decisions(&self.turn, self.run, &decisions);
        }
        let opened = match saved {
            Ok(()) => self.open(&mut prepared, opened).await,
            Err(fault) => Err(fault),
        };

        // The record has the input. Drop our copies: a turn can take minutes.
        self.turn.spoken.request.input = Input::default();
        self.turn.spoken.basis.forget_history();
        prepared.request.input = Input::default();
        prepared.said = Input::default();
        (prepared.origins, prepared.message_ids) = (Vec::new(), Vec::new());
        Ok(SentRequest { guard, prepared, opened })
    }

    /// Waits for the session's turn and prepares the request, unless that was done when the turn arrived.
    async fn prepare(&mut self) -> Result<(TurnGuard, Box<Prepared>), Unprepared> {
        match self.turn.place.take() {
            Some(Place::Ready(guard, prepared)) => Ok((guard, prepared)),
            None => Err(Fault::new(FaultKind::Internal, "the turn was taken before").into()),
            Some(Place::Behind(queued)) => {
                let guard = unless_canceled(self.run, queued.turn()).await?;
                match self.prepare_queued(&guard).await {
                    Ok(prepared) => Ok((guard, prepared)),
                    Err(fault) => Err(Unprepared { fault, guard: Some(guard) }),
                }
            }
        }
    }

    /// Prepares the request of a turn that had to wait for its session.
    async fn prepare_queued(&mut self, guard: &TurnGuard) -> Result<Box<Prepared>, Fault> {
        // Its caller may have lost its rights while it waited.
        self.turn.caller.recheck(self.turn.protocol, Some(&self.run.agent.name))?;
        if let Some(permits) = &mut self.turn.permits {
            permits.begin_now();
        }

        let TurnServices { runs, context, .. } = self.services;
        let Turn { session, agent, spoken, .. } = &*self.turn;
        let preparing = async {
            runs.sessions().begin(guard).await?;
            context.prepare(session, agent, spoken).await
        };
        unless_canceled(self.run, preparing).await?.ready()
    }

    fn note_request(&self, prepared: &mut Prepared) -> Result<(), Fault> {
        let now = clock::now();
        let caller = Some(&self.turn.caller).filter(|caller| caller.is_authenticated());
        self.run.update_turn(Publish::Now, |state| {
            state.caller = caller.map(|caller| caller.name.as_str().into());
            state.record.set_time(now);
            state.set(RunState::Running, now);
            if let Some(input) = prepared.input.take() {
                state.record.set_input(input);
            }
        })
    }

    /// Calls the agent, and waits until the store has the run.
    async fn open(
        &self,
        prepared: &mut Prepared,
        opened: Option<StoreFuture<()>>,
    ) -> Result<Option<Conversation>, Fault> {
        let session = &self.turn.session;
        let begins = prepared.begins || self.services.runs.sessions().is_unknown_elsewhere(session);
        let stored = async {
            let opened = async {
                match opened {
                    Some(opened) => commit::opened(opened).await,
                    None => Ok(()),
                }
            };
            let sessions = self.services.runs.sessions();
            let saved = async { if begins { commit::saved(sessions, &self.turn.session).await } else { Ok(()) } };
            // The client that gets this refusal does not know the run, and no other client may find it.
            tokio::try_join!(opened, saved).map(drop).inspect_err(|_| discard(self.run, &self.turn))
        };

        if self.turn.policy.record_only {
            return stored.await.map(|()| None);
        }

        let mut conversation = None;
        let caller = Caller { agent: &self.turn.agent, turn: &self.turn, context: &self.services.context };
        let calling = unless_canceled(self.run, caller.call(prepared, &mut conversation));
        // A run that cannot be stored does not begin: the failure drops the call.
        let begun = async { tokio::try_join!(calling, stored) }.await;
        if begun.is_err() {
            self.stop_agent(conversation.take());
        }

        begun.map(|_| conversation)
    }

    /// Notes whether the agent was reached.
    async fn note_start(&mut self, requested: Result<SentRequest, Unprepared>) -> AgentContact {
        match requested {
            Ok(SentRequest { guard, prepared, opened: Ok(conversation) }) => {
                self.linked.start_answers();
                AgentContact { guard: Some(guard), prepared: Some(prepared), conversation }
            }
            Ok(SentRequest { guard, mut prepared, opened: Err(fault) }) => {
                prepared.forget_home();
                // A decision that did not arrive can be repeated (docs/human-in-the-loop.md#rule-3).
                if fault.kind != FaultKind::Canceled
                    && let Some(taken) = prepared.taken.take()
                {
                    self.turn.session.reopen(taken);
                    self.linked.wait_again(&prepared.freed, &self.turn.session).await;
                }
                self.end_unreached(fault);
                AgentContact { guard: Some(guard), prepared: Some(prepared), conversation: None }
            }
            Err(Unprepared { fault, guard }) => {
                self.turn.reopen_answers();
                self.end_unreached(fault);
                AgentContact { guard, ..AgentContact::default() }
            }
        }
    }

    /// Counts the tokens of the turn and releases its permits: a client that sees its end may send the next one.
    fn release(&mut self) {
        let usage = |view: RunView<'_>| view.run().turn().and_then(|turn| turn.usage.as_ref().map(spent::tokens_in));
        let tokens = self.run.view(usage).unwrap_or(0);
        spent::note(self.services.runs.store(), &self.turn.caller, tokens);
        self.turn.permits = None;
    }

    fn end_unreached(&mut self, fault: Fault) {
        self.cause = (fault.kind != FaultKind::Canceled).then(|| fault.clone());
        self.refusal = end_unreached(self.run, &mut self.normalizer, &self.turn, fault);
    }

    /// Records the end of the answer.
    fn note_end(&mut self, result: Result<(), Fault>) {
        let Self { run, normalizer, cause, .. } = self;
        let Err(fault) = result else {
            return run.update(Publish::Now, |state| state.record.set_time(clock::now()));
        };
        let is_canceled = run.cancel.is_set() && fault.kind == FaultKind::Canceled;
        *cause = Some(fault);
        // If the run was ended from outside, the turn has its end.
        let _ = run.update_turn(Publish::Now, |state| {
            state.record.set_time(clock::now());
            if is_canceled {
                cause.clone_from(&state.cancel_reason);
            }
            match cause {
                Some(fault) => normalizer.fail(&mut state.record, fault),
                None => normalizer.cancel(&mut state.record),
            }
        });
    }

    /// Ends a turn that only records its input.
    fn end_unanswered(&self) {
        // If the run was ended from outside, the turn has its end.
        let _ = self.run.update_turn(Publish::Now, |state| {
            state.record.set_time(clock::now());
            state.record.start_answer();
            state.record.finish_turn(End::Completed, None);
        });
    }

    /// Sends a stop request to the agent if the turn was canceled. Not awaited: the connection is closed anyway.
    fn stop_agent(&self, conversation: Option<Conversation>) {
        if self.run.cancel.is_set()
            && let Some(stopping) = conversation.and_then(Conversation::stop)
        {
            let (run, agent) = (self.run.id(), Arc::clone(&self.turn.agent));
            tokio::task::spawn_local(async move { note_stop(run, &agent, stopping.await) });
        }
    }

    /// If the agent never began to answer, the client gets the reason instead of the run.
    fn discard_if_unreached(&mut self) {
        // An agent that has only reported an error has not begun. A run that existed before keeps the error.
        if self.refusal.is_none() && !self.normalizer.has_begun() && self.turn.resumes.is_none() {
            // A fault has more fields than the error of the run, such as the pause before a retry.
            let cause = self.cause.clone().filter(|cause| cause.kind != FaultKind::Canceled);
            self.refusal = cause.or_else(|| self.run.view(|view| view.run().error().map(faults::from_run_error)));
        }
        if self.turn.policy.discard_if_unreached && self.refusal.is_some() && self.turn.is_awaited() {
            discard(self.run, &self.turn);
        }
    }
}
