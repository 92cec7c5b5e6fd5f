//! Encodes a run in several protocols at once, event by event, for a page's stream and for an exported file.
//!
//! In the pause between two turns, some protocols end the stream, and others send a whole response. The pause of a
//! waiting run uses its current state; for earlier pauses of a continued run, the state at that time is reconstructed.
//! Not here: one protocol ([`super::panes`]), and sending ([`super::streams`]).

use std::collections::HashSet;
use std::sync::Arc;

use interlingua_core::call::{DocumentCall, Reply, RunInfo, RunState, RunView, SessionCall, SessionItem, SessionView};
use interlingua_core::event::Millis;
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::{Call, Event, Fault, Record, Step};
use serde_json::{Map, Value, json};

use super::panes::{Encoding, Pane, PaneOutput};
use super::{AdminState, pending};
use interlingua_engine::{Answer, RunHandle};

/// The protocol that the console reads.
pub(super) const AGENT_API: &str = "agent-api";
/// Maximum lookups of a pane for one response.
const MAX_LOOKUPS: usize = 4;

/// Frames by protocol.
pub(super) type ProtocolFrames = Map<String, Value>;

/// One event of a run, with its frames.
pub(super) struct EncodedEvent {
    pub(super) number: u64,
    pub(super) at: Millis,
    pub(super) kind: &'static str,
    pub(super) frames: ProtocolFrames,
}

/// An event of a run without its frames.
pub(super) struct EventHead {
    pub(super) number: u64,
    at: Millis,
    kind: &'static str,
    /// True if the event starts a turn after the first: the run paused before it.
    pub(super) begins_turn: bool,
}

impl EventHead {
    pub(super) const fn from_step(step: Step<'_>) -> Self {
        let begins_turn = matches!(step.event, Event::TurnStarted { turn } if turn > 0);
        Self { number: step.sequence, at: step.at, kind: kind(step.event), begins_turn }
    }

    /// The event as JSON up to and including the opening brace of its frames. The caller writes the frames and `}}`.
    pub(super) fn open_json(&self) -> String {
        format!("{{\"event\":{},\"at\":{},\"kind\":\"{}\",\"frames\":{{", self.number, self.at, self.kind)
    }
}

impl EncodedEvent {
    pub(super) fn to_json(&self) -> Value {
        json!({ "event": self.number, "at": self.at, "kind": self.kind, "frames": self.frames })
    }
}

/// The panes of a run, and their position.
pub(super) struct Prism {
    panes: Vec<Pane>,
    /// The number of steps at the last pause that was written. `None`: none so far.
    paused_at: Option<u64>,
    next: u64,
}

impl Prism {
    /// Opens panes for these protocols, in this order, without duplicates. Each pane uses the agent's first route of
    /// its protocol. The Agent API needs no route, because the console reads it. Without `texts`, only the Agent API
    /// has a pane, and its texts are masked.
    pub(super) fn open(state: &AdminState, run: &RunHandle, protocols: &[String], texts: bool) -> Self {
        let agent = run.view(|view| view.run().agent.clone());
        let routes = state.admin.control.routes_of(&agent);
        let own = |protocol: &str| {
            let mounted = (protocol == AGENT_API).then(|| (state.admin.agent_api)(&agent)).flatten();
            mounted.map(|mounted| Encoding::Own(AGENT_API, mounted.into()))
        };
        let of = |protocol: &str| {
            let route = routes.iter().find(|route| route.scope.protocol == protocol);
            route.map(|route| Encoding::Route(Arc::clone(route))).or_else(|| own(protocol))
        };
        let mut named = HashSet::new();
        let wanted = protocols.iter().filter(|protocol| texts || *protocol == AGENT_API);
        let wanted = wanted.filter(|protocol| named.insert(protocol.as_str()));
        let panes = run.view_safe(|view| wanted.filter_map(|protocol| Pane::open(of(protocol)?, view)).collect());
        Self { panes, paused_at: None, next: 0 }.masked_unless(texts)
    }

    fn masked_unless(self, texts: bool) -> Self {
        if texts {
            return self;
        }
        Self { panes: self.panes.into_iter().map(Pane::masked).collect(), ..self }
    }

    /// Encodes the next event. `None`: the event starts a turn, and [`Self::pause`] has to be called first.
    pub(super) fn step(&mut self, view: RunView<'_>, step: Step<'_>) -> Option<EncodedEvent> {
        self.next = step.sequence;
        if EventHead::from_step(step).begins_turn && self.needs_pause_frames() {
            return None;
        }
        let frames = self.panes.iter_mut().map(|pane| (pane.protocol().to_owned(), pane.step(view, step).into()));
        let shown =
            EncodedEvent { number: step.sequence, at: step.at, kind: kind(step.event), frames: frames.collect() };
        self.next = step.sequence + 1;
        Some(shown)
    }

    /// True if the frames of a pause at the current position were not written yet.
    pub(super) fn needs_pause_frames(&self) -> bool {
        self.paused_at != Some(self.next)
    }

    pub(super) const fn len(&self) -> usize {
        self.panes.len()
    }

    pub(super) fn protocol(&self, pane: usize) -> &'static str {
        self.panes[pane].protocol()
    }

    /// Encodes an event in one pane. Callers encode every event in every pane, in order, and call [`Self::advance`]
    /// after each event.
    pub(super) fn frames_of(&mut self, pane: usize, view: RunView<'_>, step: Step<'_>) -> String {
        self.panes[pane].step(view, step)
    }

    /// Moves past an event that all panes have encoded.
    pub(super) const fn advance(&mut self, number: u64) {
        self.next = number + 1;
    }

    /// Starts the frames of a pause: the run waits, or has ended. They belong to the latest event. Callers call
    /// [`Self::paused`] for every pane.
    pub(super) fn pause(&mut self, run: &RunHandle) -> PausedRun {
        self.paused_at = Some(self.next);
        PausedRun(run.view_safe(|view| RunDisplay::new(view, self.next)))
    }

    /// The frames of one pane in a pause. Empty if its protocol has none.
    pub(super) async fn paused(
        &mut self,
        pane: usize,
        state: &Arc<AdminState>,
        run: &RunHandle,
        paused: &PausedRun,
    ) -> String {
        let (pane, past) = (&mut self.panes[pane], paused.0.as_ref());
        match run.view_safe(|view| pane.pause(past.map_or(view, RunDisplay::view))) {
            PaneOutput::Frames(text) => text,
            PaneOutput::Asks(call) => answer_pane(state, run, past, pane, call).await,
        }
    }
}

/// The state of a run at a pause. `None`: the current state.
pub(super) struct PausedRun(Option<RunDisplay>);

/// An earlier state of a run: at a pause, before its next turn.
struct RunDisplay {
    record: Record,
    info: RunInfo,
    pending: Vec<Pending>,
}

impl RunDisplay {
    /// `None`: it has not gone on since.
    fn new(view: RunView<'_>, steps: u64) -> Option<Self> {
        if steps >= view.record.len() {
            return None;
        }
        let mut record = view.record.clone();
        record.rewind(steps);
        let pending = record.run().pending();
        let waits_for_login = pending.iter().any(|item| item.kind == PendingKind::Auth);
        let mut info = view.info.clone();
        info.state = if waits_for_login { RunState::WaitingForAuth } else { RunState::Waiting };
        info.changed_at = record.now();
        Some(Self { record, info, pending })
    }

    const fn view(&self) -> RunView<'_> {
        RunView { record: &self.record, info: &self.info, pending: self.pending.as_slice() }
    }
}

/// Answers the lookups of a pane until it returns its frames. Empty after too many lookups.
async fn answer_pane(
    state: &Arc<AdminState>,
    run: &RunHandle,
    past: Option<&RunDisplay>,
    pane: &mut Pane,
    call: Call,
) -> String {
    let mut call = call;
    for _ in 0..MAX_LOOKUPS {
        let written = match &call {
            Call::Session(SessionCall::Get { session }) => match session_at(state, run, past, session).await {
                Ok(view) => pane.reply(Reply::Session(&[view])),
                Err(fault) => pane.fail(&fault),
            },
            Call::Document(DocumentCall::Get { .. } | DocumentCall::List { .. }) => pane.reply(Reply::Documents(&[])),
            _ => pane.reply(Reply::Done),
        };
        match written {
            PaneOutput::Frames(text) => return text,
            PaneOutput::Asks(next) => call = next,
        }
    }
    String::new()
}

/// The run's session at the time of a pause, without later messages. `None` for `past`: at the current time.
///
/// # Errors
/// If the session is gone, or the store fails.
async fn session_at(
    state: &AdminState,
    run: &RunHandle,
    past: Option<&RunDisplay>,
    session: &str,
) -> Result<SessionView, Fault> {
    let scope = state.admin.engine.operator().in_scope_of(run, pending::scope_of(state, run)?);
    let call = Call::Session(SessionCall::Get { session: session.to_owned() });
    let Answer::Session(views) = state.admin.engine.answer(call, &scope).await? else {
        return Err(Fault::unexpected_reply());
    };
    let mut view = views.into_iter().next().ok_or_else(|| Fault::not_found("the session"))?;

    let is_of_run = |item: &SessionItem| item.run == Some(run.id());
    let last = match past {
        None => view.items.iter().rposition(is_of_run),
        // The session also has later turns of the run: find the last item of the state.
        Some(past) => {
            let said: HashSet<String> = past.record.run().conversation().filter_map(|message| message.id).collect();
            let is_said = |item: &SessionItem| item.message.id.as_ref().is_some_and(|id| said.contains(id));
            view.items.iter().rposition(|item| is_of_run(item) && is_said(item))
        }
    };
    match last {
        Some(last) => view.items.truncate(last + 1),
        None => view.items.retain(|item| item.run.is_some_and(|other| other < run.id())),
    }
    Ok(view)
}

/// The name of an event's kind.
const fn kind(event: Event) -> &'static str {
    match event {
        Event::RunStarted => "run_started",
        Event::TurnStarted { .. } => "turn_started",
        Event::AnswerStarted { .. } => "answer_started",
        Event::MessageStarted { .. } => "message_started",
        Event::ContentStarted { .. } => "content_started",
        Event::ContentDelta { .. } => "content_delta",
        Event::ContentReplaced { .. } => "content_replaced",
        Event::ContentFinished { .. } => "content_finished",
        Event::MessageFinished { .. } => "message_finished",
        Event::TurnFinished { .. } => "turn_finished",
        Event::RunFinished { .. } => "run_finished",
    }
}
