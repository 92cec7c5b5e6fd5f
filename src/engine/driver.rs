//! Driving a run: its turns one after the other, each one an exchange with the upstream, to an end whatever happens.
//!
//! Invariant: a turn that was begun ends, the run after its last one, and what clients see of an end is safe in the
//! store before they see it.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::Poll;

use interlingua_core::agent_event::{AgentEvent, Awaits};
use interlingua_core::answer::{Answer, AnswerPolicy};
use interlingua_core::call::{Busy, RunState, Thread};
use interlingua_core::connector::{EventSink, TurnRequest};
use interlingua_core::model::{AgentRequest, Input, Message};
use interlingua_core::normalize::Normalizer;
use interlingua_core::pending::PendingKind;
use interlingua_core::{End, Fault, FaultKind, Record};
use tokio::sync::oneshot;

use super::abort_guard::AbortGuard;
use super::active_run::{ActiveRun, State};
use super::coalescer::Coalescer;
use super::context::{self, Prepared, Preparing};
use super::early::{end_early, fault_of, vanish};
use super::elsewhere::Moved;
use super::entries::Entry;
use super::report::{self, Report};
use super::session::{Queued, Session, TurnGuard};
use super::waits::{BACKLOG, cancellable, poll_once, room};
use super::{ConnectionCache, Engine, Journal, RunHandle, Scope, clock, written};
use crate::store::StoreFuture;
use crate::upstream::{Conversation, Flow, Trace};

/// What comes in one go is told in pieces of this, in bytes.
const MAX_BATCH_BYTES: usize = 16 * 1024;
/// A turn to be taken.
pub(super) struct Turn {
    pub(super) session: Arc<Session>,
    pub(super) place: Option<Place>,
    /// What the client said, and its settings.
    pub(super) request: AgentRequest,
    pub(super) preamble: Vec<Message>,
    pub(super) answers: Vec<Answer>,
    pub(super) answer_policy: AnswerPolicy,
    pub(super) thread: Thread,
    /// Leaves the run waiting if the turn does.
    pub(super) multi_turn: bool,
    /// After which ends it does although nothing is pending.
    pub(super) pause_on: Vec<End>,
    pub(super) stored: bool,
    /// The agent is not asked: what was said is taken down, and the turn ends at once.
    pub(super) record_only: bool,
    /// Keeps the response, if it is not stored.
    pub(super) connection: Option<Weak<ConnectionCache>>,
    pub(super) trace: Option<Arc<Trace>>,
    /// The path of the route it came by.
    pub(super) route: Arc<str>,
    /// Where the run is, or goes back to, if the turn never reaches the agent. None for the first turn: it fails then.
    pub(super) resumes: Option<RunState>,
    /// The runs that wait no longer, since it answers what they asked.
    pub(super) moved: Moved,
    /// Nobody finds the run if its client is told why the agent was never reached.
    pub(super) discard_if_unreached: bool,
    /// Told once the upstream has begun to answer, or why it never did.
    pub(super) started: Option<oneshot::Sender<Result<(), Fault>>>,
}

/// Where a turn stands in its session's queue.
pub(super) enum Place {
    /// It is its turn, and what is to be asked is known.
    Ready(TurnGuard, Box<Prepared>),
    /// Others are before it.
    Behind(Queued),
}

impl Place {
    /// What the client said, its answers in native form, if that is known already.
    pub(super) fn said(&mut self) -> Option<Input> {
        match self {
            Self::Ready(_, prepared) => prepared.said.take(),
            Self::Behind(_) => None,
        }
    }
}

impl Turn {
    /// What is needed to find out what to ask.
    pub(super) fn preparing<'a>(&'a self, agent: &'a super::Agent) -> Preparing<'a> {
        Preparing {
            session: &self.session,
            agent,
            request: &self.request,
            preamble: &self.preamble,
            answers: &self.answers,
            terms: self.answer_policy,
            thread: &self.thread,
        }
    }

    /// Whether it can be asked at once.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.place, Some(Place::Ready(..)))
    }

    /// Whether somebody waits to hear how it began.
    fn is_awaited(&self) -> bool {
        self.started.as_ref().is_some_and(|begun| !begun.is_closed())
    }

    fn tell(&mut self, begun: Result<(), Fault>) {
        if let Some(waiting) = self.started.take() {
            // Whoever asked may have stopped waiting.
            let _ = waiting.send(begun);
        }
    }
}

struct Listener<'a> {
    record: &'a mut Record,
    normalizer: &'a mut Normalizer,
}

impl EventSink for Listener<'_> {
    fn emit(&mut self, event: &AgentEvent<'_>) -> Result<(), Fault> {
        self.normalizer.emit(self.record, event).map(|_| ())
    }

    fn ignored(&self) -> u64 {
        self.normalizer.ignored()
    }

    fn has_ended(&self) -> bool {
        self.normalizer.has_ended()
    }
}

/// Starts the task that takes the turns of a run until none is left. Nothing may be awaited between making a turn
/// known and this call: a client that leaves in between would leave a turn behind that nobody takes.
///
/// The turn is boxed: a future holds what it is handed several times over.
pub(super) fn start(abort_guard: AbortGuard, first: Box<Turn>, beginning: Option<Beginning>) {
    tokio::task::spawn_local(drive(abort_guard, first, beginning));
}

async fn drive(abort_guard: AbortGuard, first: Box<Turn>, beginning: Option<Beginning>) {
    let (engine, live) = (abort_guard.engine(), abort_guard.live());
    let journal: Arc<dyn Journal> = Arc::clone(live) as Arc<dyn Journal>;
    let Begun { mut refused, safe, opened } = match beginning {
        Some(beginning) => Box::pin(begin(engine, live, &first.session, beginning)).await,
        None => Begun::default(),
    };
    let mut next = take(engine, live, &journal, first, refused.clone(), opened).await.map(Box::new);
    if let Some(safe) = safe {
        // Its client may have left.
        let refused = refused.take().filter(|fault| fault.kind != FaultKind::Canceled);
        let _ = safe.send(refused.map_or(Ok(()), |fault| Err(Fault { logged: true, ..fault })));
    }
    while let Some(turn) = next.take() {
        next = take(engine, live, &journal, turn, None, None).await.map(Box::new);
    }
    let (engine, live) = (engine.clone(), Arc::clone(live));
    drop(abort_guard);
    engine.ended(&live);
}

/// What a new run waits for before its first turn.
pub(super) struct Beginning {
    /// The store knows it.
    pub(super) opened: StoreFuture<()>,
    /// Told that the store does, or why it does not. None: nobody waits for that, and the agent is asked meanwhile.
    pub(super) safe: Option<oneshot::Sender<Result<(), Fault>>>,
    /// Where it was begun, if receivers may have been named there.
    pub(super) scope: Option<Box<Scope>>,
}

/// How a new run began.
#[derive(Default)]
struct Begun {
    /// Why it may not take its first turn.
    refused: Option<Fault>,
    /// Who is still to be told.
    safe: Option<oneshot::Sender<Result<(), Fault>>>,
    /// The store is still to say that it knows the run.
    opened: Option<StoreFuture<()>>,
}

/// Waits until a new run may take its first turn.
async fn begin(
    engine: &Engine,
    live: &Arc<ActiveRun>,
    session: &Session,
    Beginning { opened, mut safe, scope }: Beginning,
) -> Begun {
    let mut opened = Some(opened);
    let ready = async {
        if safe.is_some()
            && let Some(opened) = opened.take()
        {
            written::known(opened).await?;
        }
        if let Some(scope) = scope {
            engine.start_deliveries(&RunHandle::InMemory(Arc::clone(live)), true, &scope).await?;
        }
        Ok(())
    };
    let refused = cancellable(live, ready).await.err();
    match &refused {
        None => {
            if let Some(safe) = safe.take() {
                // Its client may have left.
                let _ = safe.send(Ok(()));
            }
        }
        // Who is told of a refusal does not know the run.
        Some(fault) if safe.is_some() && fault.kind != FaultKind::Canceled => vanish(live, session),
        Some(_) => {}
    }
    Begun { refused, safe, opened }
}

/// Takes one turn, or ends it if it is `refused` before it begins; answers the one that was queued behind it.
async fn take(
    engine: &Engine,
    live: &Arc<ActiveRun>,
    journal: &Arc<dyn Journal>,
    mut turn: Box<Turn>,
    refused_before: Option<Fault>,
    opened: Option<StoreFuture<()>>,
) -> Option<Turn> {
    let mut normalizer = Normalizer::new(live.agent.max_run_bytes).masking(crate::secrets::mask);
    let mut conversation = None;
    // What was in the way, for the log.
    let mut cause = None;
    // Why the agent was never reached, for its client.
    let mut refused = None;
    let begun_at = std::time::Instant::now();
    // What comes before the answer and after it is boxed, so that a turn that hears does not hold room for it.
    let asked = match refused_before {
        Some(fault) => Err(fault),
        None => Box::pin(ask(engine, live, &mut turn, opened)).await,
    };
    let (guard, prepared) = match asked {
        Ok(Asked { guard, prepared, opened }) => {
            match opened {
                Ok(opened) => {
                    conversation = opened;
                    turn.moved.begin();
                    (Some(guard), Some(prepared))
                }
                Err(fault) => {
                    // What was decided did not arrive: it can be decided again (human-in-the-loop page, rule 3).
                    if fault.kind != FaultKind::Canceled {
                        turn.session.doc().waiting.reopen();
                        let Turn { moved, session, .. } = &mut *turn;
                        Box::pin(engine.wait_again(moved, &prepared.freed, session)).await;
                    }
                    cause = not_cancelled(&fault);
                    refused = end_early(live, &mut normalizer, &turn, fault);
                    (Some(guard), Some(prepared))
                }
            }
        }
        Err(fault) => {
            cause = not_cancelled(&fault);
            if turn.is_ready() {
                // It was found out what to ask, and nobody was asked.
                turn.session.doc().waiting.reopen();
            }
            refused = end_early(live, &mut normalizer, &turn, fault);
            (None, None)
        }
    };
    if let Some(conversation) = &mut conversation {
        let heard = listen(engine, live, journal, conversation, &mut normalizer, &mut turn).await;
        live.update(|state| {
            state.record.set_time(clock::now());
            match heard {
                Ok(()) => {}
                Err(fault) if live.cancel.is_told() && fault.kind == FaultKind::Canceled => {
                    cause = state.cancelled_for.clone();
                    match &cause {
                        Some(reason) => normalizer.fail(&mut state.record, reason),
                        None => normalizer.cancel(&mut state.record),
                    }
                }
                Err(fault) => {
                    normalizer.fail(&mut state.record, &fault);
                    cause = Some(fault);
                }
            }
        });
    }
    if turn.record_only && refused.is_none() {
        live.update(|state| {
            state.record.set_time(clock::now());
            state.record.start_answer();
            state.record.finish_turn(End::Completed, None);
        });
    }
    if live.cancel.is_told()
        && let Some(cancel) = conversation.as_ref().and_then(Conversation::cancel)
    {
        tokio::task::spawn_local(cancel);
    }
    // An agent that has only complained has not begun. A task that was shown before keeps the complaint.
    if refused.is_none() && !normalizer.has_begun() && turn.resumes.is_none() {
        refused = live.view(|view| view.run().error().map(fault_of));
    }
    if turn.discard_if_unreached && refused.is_some() && turn.is_awaited() {
        vanish(live, &turn.session);
    }
    let remembered = conversation.as_ref().and_then(Conversation::session_state);
    let first_ignored = conversation.as_ref().and_then(|said| said.first_ignored().map(str::to_owned));
    if let Some(conversation) = conversation {
        if live.cancel.is_told() { drop(conversation) } else { conversation.release() }
    }
    let error = live.view(|view| view.run().turn().and_then(|turn| turn.error.clone()));
    let next =
        Box::pin(conclude(engine, live, journal, &mut turn, prepared.as_deref(), remembered, normalizer.awaits()))
            .await;
    drop(guard);
    let report = Report {
        fault: cause.as_ref(),
        error: error.as_ref(),
        agent_error: normalizer.complaint(),
        ignored: normalizer.ignored(),
        first_ignored: first_ignored.as_deref(),
        took: begun_at.elapsed(),
    };
    report::turn_ended(live, &turn, &report);
    // Whoever still waits for the beginning learns of the end, now that all is as it will be found.
    turn.tell(refused.map_or(Ok(()), |fault| Err(Fault { logged: true, ..fault })));
    next
}

struct Asked {
    guard: TurnGuard,
    prepared: Box<Prepared>,
    /// None: the agent is not asked.
    opened: Result<Option<Conversation>, Fault>,
}

/// Waits for the session's turn, finds out what to ask, and asks; meanwhile the store is told of the run.
async fn ask(
    engine: &Engine,
    live: &Arc<ActiveRun>,
    turn: &mut Turn,
    known: Option<StoreFuture<()>>,
) -> Result<Asked, Fault> {
    let (guard, mut prepared) = match turn.place.take() {
        Some(Place::Ready(guard, prepared)) => (guard, prepared),
        None => return Err(Fault::new(FaultKind::Internal, "the turn was taken before")),
        Some(Place::Behind(queued)) => {
            let guard = cancellable(live, async { Ok(queued.turn().await) }).await?;
            let preparing = turn.preparing(&live.agent);
            let prepared = cancellable(live, engine.prepare(preparing)).await?;
            (guard, Box::new(prepared.ready()?))
        }
    };
    // As native clients see it, so that one search finds both sides of a run.
    prepared.request.id = Some(format!("response_{}", live.id()));
    let now = clock::now();
    live.update(|state| {
        state.record.set_time(now);
        state.set(RunState::Running, now);
        if let Some(input) = prepared.said.take() {
            state.amend_input(input);
        }
    });
    if !prepared.freed.is_empty() {
        turn.moved = engine.answer_elsewhere(&prepared.freed, live.id()).await;
    }
    // What was decided is decided, before anything comes of it.
    let saved = if prepared.decided { engine.save_session(&turn.session).await } else { Ok(()) };
    let opened = match saved {
        Ok(()) => {
            let known = async {
                let Some(known) = known else { return Ok(()) };
                // Who is told of the refusal does not know the run, and nobody else will.
                written::known(known).await.inspect_err(|_| vanish(live, &turn.session))
            };
            if turn.record_only {
                known.await.map(|()| None)
            } else {
                match live.agent.upstream.start(&prepared.question(), turn.trace.as_deref()) {
                    Err(fault) => Err(fault),
                    Ok(mut conversation) => {
                        let asking = cancellable(live, conversation.begin());
                        // A run that cannot be stored is not begun: the agent is let go of.
                        let begun = async { tokio::try_join!(asking, known) }.await;
                        if begun.is_err()
                            && live.cancel.is_told()
                            && let Some(cancel) = conversation.cancel()
                        {
                            tokio::task::spawn_local(cancel);
                        }
                        begun.map(|_| Some(conversation))
                    }
                }
            }
        }
        Err(fault) => Err(fault),
    };
    // The record has what was said. An agent that thinks for minutes need not be waited for with copies of it.
    turn.request.input = Input::default();
    prepared.request.input = Input::default();
    Ok(Asked { guard, prepared, opened })
}

/// Hears the answer to its end.
async fn listen(
    engine: &Engine,
    live: &Arc<ActiveRun>,
    journal: &Arc<dyn Journal>,
    conversation: &mut Conversation,
    normalizer: &mut Normalizer,
    turn: &mut Turn,
) -> Result<(), Fault> {
    // How much was heard that nobody was told of yet.
    let mut unseen = 0;
    let mut rhythm = Coalescer::new();
    // A store that outlives the process shows what it has written, and wakes whoever follows: nothing to be told here.
    let at_once = live.is_safe_at_once();
    let mut beats = normalizer.heartbeats();
    loop {
        let mut chunk = Poll::Pending;
        if unseen >= MAX_BATCH_BYTES || (unseen > 0 && live.cancel.is_told()) {
            live.notify();
            unseen = 0;
        }
        if unseen > 0 {
            // What comes in one packet comes in several chunks. They are told together: whoever follows is woken when
            // everything else that is ready has had its turn and nothing more has come.
            chunk = poll_once(|context| conversation.poll_chunk(context)).await;
            if chunk.is_pending() {
                tokio::task::yield_now().await;
                chunk = poll_once(|context| conversation.poll_chunk(context)).await;
            }
            if chunk.is_pending() {
                live.notify();
                rhythm.pause();
            }
        }
        let chunk = match chunk {
            Poll::Ready(chunk) => chunk,
            Poll::Pending => {
                unseen = 0;
                poll_fn(|context| {
                    if live.cancel.poll_told(context).is_ready() {
                        return Poll::Ready(Err(Fault::new(FaultKind::Canceled, "canceled")));
                    }
                    conversation.poll_chunk(context)
                })
                .await
            }
        };
        let (heard, roomy) = match chunk {
            Ok(Some(chunk)) => {
                let now = clock::now();
                let feed = |state: &mut State| {
                    state.record.set_time(now);
                    let waits = !state.has_begun();
                    let heard = conversation.feed(&chunk, &mut Listener { record: &mut state.record, normalizer });
                    if waits && state.has_begun() {
                        // It works since now, as its followers are told.
                        state.about.changed_at = state.record.now();
                    }
                    (heard, state.has_room(BACKLOG))
                };
                if !at_once {
                    live.update_deferred(feed)
                } else if rhythm.is_alone(now) {
                    live.update(feed)
                } else {
                    unseen += chunk.len();
                    live.update_deferred(feed)
                }
            }
            Ok(None) => {
                let flow = live.update(|state| {
                    state.record.set_time(clock::now());
                    let flow = conversation.finish(&mut Listener { record: &mut state.record, normalizer })?;
                    if flow == Flow::Ended {
                        end_of_turn(conversation, normalizer, &mut state.record)?;
                    }
                    Ok::<_, Fault>(flow)
                })?;
                if flow == Flow::Ended {
                    return Ok(());
                }
                continue;
            }
            Err(fault) => {
                let flow = live.update(|state| {
                    let flow = conversation.fail(fault, &mut Listener { record: &mut state.record, normalizer })?;
                    if flow == Flow::Ended && !normalizer.has_ended() {
                        normalizer.end_of_body(&mut state.record);
                    }
                    Ok::<_, Fault>(flow)
                })?;
                if flow == Flow::Ended {
                    return Ok(());
                }
                continue;
            }
        };
        if normalizer.heartbeats() != beats {
            beats = normalizer.heartbeats();
            live.keep_alive();
        }
        engine.store().touch(journal);
        if normalizer.has_begun() && turn.started.is_some() {
            turn.tell(Ok(()));
        }
        if normalizer.has_ended() {
            return Ok(());
        }
        heard?;
        if !roomy {
            Box::pin(room(live)).await?;
        }
    }
}

/// The agent has nothing more to send.
fn end_of_turn(conversation: &Conversation, normalizer: &mut Normalizer, record: &mut Record) -> Result<(), Fault> {
    let understood = normalizer.has_begun()
        || normalizer.has_ended()
        || normalizer.heartbeats() > 0
        || normalizer.complaint().is_some();
    if !understood && let Some(foreign) = conversation.foreign() {
        return Err(foreign);
    }

    normalizer.end_of_body(record);
    Ok(())
}

/// Writes down what a turn has come to, and shows it.
async fn conclude(
    engine: &Engine,
    live: &Arc<ActiveRun>,
    journal: &Arc<dyn Journal>,
    turn: &mut Turn,
    prepared: Option<&Prepared>,
    remembered: Option<interlingua_core::Json>,
    awaits: Option<Awaits>,
) -> Option<Turn> {
    let now = clock::now();
    let (end, number, pending) = live.view(|view| {
        let run = view.run();
        let end = run.turn().and_then(|turn| turn.end).unwrap_or(End::Failed);
        (end, run.turns.len().saturating_sub(1), run.pending())
    });
    let good = matches!(end, End::Completed | End::Incomplete);
    let withdrawn = live.view(|view| view.run().turn().is_some_and(|turn| turn.withdrawn));
    let connection = turn.connection.as_ref().and_then(Weak::upgrade);
    let kept = !turn.stored && connection.is_some();
    let before = Box::pin(engine.entries_before(turn)).await;
    let mut open = Vec::new();
    if withdrawn {
        // As if it had not been asked.
        open = turn.session.doc().waiting.pending_of(live.id());
    } else if let Some(prepared) = prepared {
        let vanished = turn.discard_if_unreached && !live.view(|view| view.info.stored);
        let mut doc = turn.session.doc();
        if !vanished {
            doc.latest = Some(live.id());
        }
        doc.waiting.confirm_sent();
        if good {
            let tools = turn.request.tools.as_deref().unwrap_or_default();
            let asking = context::AskPolicy { now, terms: turn.answer_policy, tools };
            open = context::ask(&mut doc, &live.agent, live.id(), pending.clone(), &asking);
            let branches = doc.is_empty() && before.as_ref().is_some_and(|before| !before.is_empty());
            if let Some(before) = before {
                doc.replace(before);
            }
            if turn.stored || kept {
                let turn = u32::try_from(number).unwrap_or(u32::MAX);
                doc.push(Entry::Turn { run: live.id(), turn });
            }
            if turn.record_only {
                // The upstream was told nothing.
                doc.stale |= branches;
            } else {
                doc.seen = doc.next;
                doc.stale = !(turn.stored || kept);
            }
            if let Some(memory) = remembered {
                doc.memory = memory;
            }
        } else {
            doc.stale = true;
        }
        if prepared.upstream_id != doc.id {
            doc.upstream_id = Some(prepared.upstream_id.clone());
        }
    }
    let waits = turn.multi_turn && good && (!open.is_empty() || turn.pause_on.contains(&end) || awaits.is_some());
    let auth = match open.first() {
        Some(_) => open.iter().any(|item| item.kind == PendingKind::Auth),
        None => awaits == Some(Awaits::Auth),
    };
    let asks = if auth { RunState::WaitingForAuth } else { RunState::Waiting };
    let comes_to = match turn.resumes {
        // What it asked was answered by a turn before this one.
        Some(_) if withdrawn && open.is_empty() && !pending.is_empty() => RunState::Ended(End::Completed),
        Some(resumes) if withdrawn => resumes,
        _ if waits => asks,
        _ => RunState::Ended(end),
    };
    let next = live.update_unpublished(|state| {
        state.pending = open;
        let over = matches!(comes_to, RunState::Ended(_));
        if state.ends && !over {
            // It was told to end in the moment it came to its pause.
            state.cut(End::Canceled, None);
            return None;
        }
        let stopped = live.cancel.is_told() && (over || state.ends || state.cancelled_for.is_some());
        let mut queued = (!state.queued.is_empty() && !stopped).then(|| state.queued.remove(0));
        if let Some(next) = &mut queued {
            live.cancel.reset();
            next.resumes = Some(comes_to);
            state.record.set_time(now);
            state.record.start_turn(next.request.input.clone());
            state.set(RunState::Running, now);
        } else if let RunState::Ended(end) = comes_to {
            state.queued.clear();
            state.record.set_time(now);
            state.record.finish_run(end);
            state.set(comes_to, now);
        } else {
            state.queued.clear();
            // At the very time its followers are told.
            let told = state.record.now();
            state.set(comes_to, told);
        }
        queued
    });
    if next.is_none() && !matches!(comes_to, RunState::Ended(_)) && live.view(|view| view.run().end.is_some()) {
        turn.session.doc().waiting.withdraw(live.id());
    }
    // The runs it answered end with it: before it does, for whoever looks.
    let mut moved = std::mem::take(&mut turn.moved);
    let error = live.view(|view| view.run().turns.get(number).and_then(|turn| turn.error.clone()));
    engine.end_elsewhere(&mut moved, end, error.as_ref()).await;
    let before = async {
        if prepared.is_some() || withdrawn {
            engine.index_pending(&live.agent.name, &turn.session, live).await;
            if let Err(fault) = engine.save_session(&turn.session).await {
                tracing::warn!(run = %live.id(), code = fault.code(), detail = fault.detail.as_deref(), "{}", fault.message);
            }
        }
    };
    if let Some(connection) = &connection {
        connection.concluded(live, turn, good);
    }
    if written::show(engine, live, journal, before).await {
        return next;
    }
    if let Some(connection) = connection {
        connection.evict(live.id());
    }
    // The turn did not come to what its session says about it.
    {
        let mut doc = turn.session.doc();
        doc.take_back(live.id(), u32::try_from(number).unwrap_or(u32::MAX));
        doc.waiting.withdraw(live.id());
        doc.stale = true;
    }
    if let Some(mut next) = next {
        next.tell(Err(written::fault()));
    }
    None
}

/// A cause that the log should know: that somebody stopped the run is none.
fn not_cancelled(fault: &Fault) -> Option<Fault> {
    (fault.kind != FaultKind::Canceled).then(|| fault.clone())
}

/// Whether a busy session lets turns queue.
pub(super) fn queues(agent_queues: bool, busy: Option<Busy>) -> bool {
    busy.map_or(agent_queues, |busy| busy == Busy::Queue)
}

impl Prepared {
    /// The question as the connector gets it.
    pub(super) fn question(&self) -> TurnRequest<'_> {
        TurnRequest { request: &self.request, session_state: &self.memory, answered: &self.answered }
    }
}

impl super::active_run::State {
    /// Whether the agent works on the turn under way.
    fn has_begun(&self) -> bool {
        self.record.run().turn().is_some_and(|turn| turn.answer_started)
    }

    /// The input of the turn under way, once it is known what of it goes to the agent.
    fn amend_input(&mut self, input: Input) {
        self.record.set_input(input);
    }
}
