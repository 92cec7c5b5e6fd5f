//! Push notifications: the events of a task as requests to the receivers its owner configured
//! (docs/protocols/a2a.md#push-notifications).
//!
//! Text deltas are joined: a notifier buffers them until another event occurs, the artifact is complete, or the gateway
//! flushes at the end of the interval. Not here: sending, retries, and allowed destinations.

use std::sync::Arc;

use interlingua_core::event::{Event, Millis, Span};
use interlingua_core::model::ContentType;
use interlingua_core::push::{PushNotifier, PushNotifiers, PushRequest};
use interlingua_core::step::Step;
use interlingua_core::{Json, Run};
use serde::Serialize;

use crate::decode::input;
use crate::dialect::WireFormat;
use crate::encode::history::History;
use crate::encode::task;
use crate::encode::updates::{Change, Piece, Update, Updates};
use crate::options::{PushEvents, PushV03};
use crate::serve::{COLLECTION, Config};
use crate::time::Timestamp;
use crate::wire::v03::V03;
use crate::wire::{Artifact, ArtifactUpdate, EncodedValue, Item, Part, Raw, Status, StatusUpdate, Task, TaskState};
use crate::{Route, parts};

pub(crate) fn notifiers(route: &Arc<Route>) -> PushNotifiers {
    let receiver_route = Arc::clone(route);
    PushNotifiers {
        collection: COLLECTION,
        policy: route.options.push_policy(),
        pause: route.options.push_interval.0,
        open: Box::new(move |document| {
            let config: Config = document.decode()?;
            (!config.disabled).then(|| Box::new(Receiver::new(&receiver_route, config)) as Box<dyn PushNotifier>)
        }),
        disable: Box::new(|document| {
            let mut config: Config = document.decode()?;
            config.disabled = true;
            Some(Json::from_serialize(&config))
        }),
    }
}

/// One receiver of one task.
struct Receiver {
    route: Arc<Route>,
    config: Config,
    updates: Updates,
    buffered: Option<BufferedText>,
    snapshot: TaskSnapshot,
}

/// Text deltas of one content that were not sent yet.
struct BufferedText {
    artifact: String,
    message: u32,
    content: u32,
    span: Span,
    append: bool,
}

/// Status and history of the task, for receivers of 0.3 that get the complete task each time.
struct TaskSnapshot {
    state: TaskState,
    at: Millis,
    history: History<Json>,
    /// Index of the last started turn, and true if it has ended.
    turn: Option<(usize, bool)>,
}

/// A 0.3 task built from the snapshot.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TaskBody<'a> {
    kind: &'static str,
    id: &'a str,
    context_id: &'a str,
    status: TaskBodyStatus<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    artifacts: Vec<V03<'a, Artifact<'a>>>,
    #[serde(skip_serializing_if = "<[Json]>::is_empty")]
    history: &'a [Json],
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Raw<'static>>,
}

#[derive(Serialize)]
struct TaskBodyStatus<'a> {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a Json>,
    timestamp: Timestamp,
}

impl Receiver {
    fn new(route: &Arc<Route>, config: Config) -> Self {
        Self {
            updates: Updates::new(route),
            route: Arc::clone(route),
            config,
            buffered: None,
            snapshot: TaskSnapshot { state: TaskState::Submitted, at: 0, history: History::new(), turn: None },
        }
    }

    /// Wire format of the receiver's version. In 0.3 this is the bare object with `kind` for both bindings.
    const fn wire_format(&self) -> WireFormat {
        if self.config.v03 { WireFormat::V03 } else { WireFormat::V1 }
    }

    fn sends_tasks(&self) -> bool {
        self.config.v03 && self.route.options.push_v03 == PushV03::Task
    }

    fn sends_artifacts(&self) -> bool {
        self.route.options.push_events == PushEvents::All
    }

    fn request<T: Serialize>(&self, value: &T) -> PushRequest {
        let mut headers = Vec::with_capacity(4);
        if self.config.v03 {
            headers.push(("content-type", "application/json".to_owned()));
        } else {
            headers.push(("content-type", "application/a2a+json".to_owned()));
            headers.push(("a2a-version", "1.0".to_owned()));
        }

        if let Some(scheme) = &self.config.scheme {
            let credentials = self.config.credentials.as_deref().unwrap_or("");
            headers.push(("authorization", format!("{scheme} {credentials}").trim_end().to_owned()));
        }

        if let Some(token) = &self.config.token {
            headers.push(("x-a2a-notification-token", token.clone()));
        }

        PushRequest { headers, body: serde_json::to_vec(value).unwrap_or_default() }
    }

    /// The request for one event, or for the complete task instead.
    fn event_request(&self, item: &Item<'_>, run: &Run) -> PushRequest {
        if self.sends_tasks() { self.task_request(run) } else { self.request(&EncodedValue(item, self.wire_format())) }
    }

    fn task_request(&self, run: &Run) -> PushRequest {
        let artifacts = self.updates.artifacts(run);
        self.request(&TaskBody {
            kind: "task",
            id: &self.config.task,
            context_id: &run.session_id,
            status: TaskBodyStatus {
                state: self.snapshot.state.name(WireFormat::V03),
                message: self.snapshot.history.current(),
                timestamp: Timestamp(self.snapshot.at),
            },
            artifacts: artifacts.iter().map(|artifact| V03(artifact, WireFormat::V03)).collect(),
            history: self.snapshot.history.before(),
            metadata: self.metadata(run),
        })
    }

    /// Task metadata as of the snapshot; the run may already be ahead of it.
    fn metadata(&self, run: &Run) -> Option<Raw<'static>> {
        let (last, last_has_ended) = self.snapshot.turn?;
        let has_ended = |turn: usize| turn < last || last_has_ended;
        let turn = (0..=last).rev().find(|turn| !(has_ended(*turn) && run.turns[*turn].withdrawn))?;
        task::turn_metadata(&self.route, &run.turns[turn], has_ended(turn))
    }

    /// Tracks turns: the metadata of a complete task includes their usage.
    fn track_turn(&mut self, step: Step<'_>) {
        match step.event {
            Event::TurnStarted { turn } => self.snapshot.turn = Some((turn as usize, false)),
            Event::TurnFinished { turn, .. } => self.snapshot.turn = Some((turn as usize, true)),
            _ => {}
        }
    }

    /// Updates status and history of the snapshot. Receivers of single events do not need it.
    fn update_snapshot(&mut self, update: &Update<'_>, step: Step<'_>) {
        if !self.sends_tasks() {
            return;
        }

        let (task, context) = (self.config.task.as_str(), step.run.session_id.as_str());
        match update {
            Update::TurnStarted(turn) => {
                let sent = input::as_sent(step.run, *turn);
                let sent = sent.into_iter().map(|message| message.in_task(task, context));
                self.snapshot
                    .history
                    .add_input(sent.map(|message| Json::from_serialize(&EncodedValue(&message, WireFormat::V03))));
                self.snapshot.at = self.snapshot.at.max(step.at);
            }
            Update::TurnWithdrawn { keep_input } => self.snapshot.history.withdraw(*keep_input),
            Update::Status(change) => {
                let message = change.message.clone().map(|message| message.in_task(task, context));
                let message = message.map(|message| Json::from_serialize(&EncodedValue(&message, WireFormat::V03)));
                self.snapshot.history.set(message, |new, old| new == old);
                (self.snapshot.state, self.snapshot.at) = (change.state, step.at);
            }
            Update::Artifact(_) => {}
        }
    }

    fn handle(&mut self, update: Update<'_>, step: Step<'_>, requests: &mut Vec<PushRequest>) {
        self.update_snapshot(&update, step);
        let run = step.run;
        let task = self.config.task.clone();

        match update {
            Update::TurnStarted(0) if self.sends_artifacts() => {
                let sent = input::as_sent(run, 0);
                let history = sent.into_iter().map(|message| message.in_task(task.as_str(), run.session_id.as_str()));
                let item = Item::Task(Task {
                    id: task.as_str().into(),
                    context: run.session_id.as_str().into(),
                    status: Status { state: TaskState::Submitted, message: None, at: step.at },
                    artifacts: None,
                    history: Some(history.collect()),
                    metadata: None,
                });
                requests.push(self.event_request(&item, run));
            }
            Update::TurnStarted(_) | Update::TurnWithdrawn { .. } => {}
            Update::Status(Change { state, message, metadata }) => {
                self.flush(step, requests);

                let item = Item::Status(StatusUpdate {
                    task: task.as_str().into(),
                    context: run.session_id.as_str().into(),
                    status: Status {
                        state,
                        message: message.map(|message| message.in_task(task.as_str(), run.session_id.as_str())),
                        at: step.at,
                    },
                    metadata,
                    closes: state.is_terminal() || state == TaskState::InputRequired,
                });
                requests.push(self.event_request(&item, run));
            }
            Update::Artifact(_) if !self.sends_artifacts() => {}
            Update::Artifact(Piece { artifact, append, is_delta: true, .. }) => {
                let Event::ContentDelta { message, content, span } = step.event else { return };

                if let Some(buffered) = &mut self.buffered
                    && (buffered.message, buffered.content, buffered.span.version) == (message, content, span.version)
                {
                    buffered.span.end = span.end;
                    return;
                }
                self.flush(step, requests);
                self.buffered =
                    Some(BufferedText { artifact: artifact.id.into_owned(), message, content, span, append });
            }
            Update::Artifact(piece) if piece.closes() => {
                // The end is sent together with the last text; a complete task has no chunk ends.
                let buffered = self.buffered.as_ref().is_some_and(|buffered| buffered.artifact == piece.artifact.id);
                if buffered || self.sends_tasks() {
                    self.flush_text(step, buffered, requests);
                    return;
                }
                self.flush(step, requests);
                let item = Item::Artifact(ArtifactUpdate {
                    task: task.as_str().into(),
                    context: run.session_id.as_str().into(),
                    artifact: piece.artifact,
                    append: true,
                    last_chunk: true,
                });
                requests.push(self.event_request(&item, run));
            }
            Update::Artifact(Piece { artifact, append, last_chunk, .. }) => {
                self.flush(step, requests);
                let item = Item::Artifact(ArtifactUpdate {
                    task: task.as_str().into(),
                    context: run.session_id.as_str().into(),
                    artifact,
                    append,
                    last_chunk,
                });
                requests.push(self.event_request(&item, run));
            }
        }
    }
}

impl PushNotifier for Receiver {
    fn url(&self) -> &str {
        &self.config.url
    }

    fn skip(&mut self, step: Step<'_>) {
        self.track_turn(step);

        let mut updates = Vec::new();
        self.updates.process_without_deltas(step, &mut |update| updates.push(update));
        for update in updates {
            self.update_snapshot(&update, step);
        }
    }

    fn take(&mut self, step: Step<'_>, requests: &mut Vec<PushRequest>) {
        self.track_turn(step);

        let mut updates = Vec::new();
        self.updates.process(step, &mut |update| updates.push(update));
        for update in updates {
            self.handle(update, step, requests);
        }
    }

    fn has_held(&self) -> bool {
        self.buffered.is_some()
    }

    fn flush(&mut self, step: Step<'_>, requests: &mut Vec<PushRequest>) {
        self.flush_text(step, false, requests);
    }
}

impl Receiver {
    /// Sends the buffered text. `last`: the artifact is complete with it.
    fn flush_text(&mut self, step: Step<'_>, last: bool, requests: &mut Vec<PushRequest>) {
        let Some(buffered) = self.buffered.take() else { return };
        let slot =
            step.run.messages.get(buffered.message as usize).and_then(|it| it.slots.get(buffered.content as usize));
        let Some(slot) = slot else { return };

        let text = slot.span(buffered.span);
        let part = if slot.kind == ContentType::Refusal { parts::refusal(text) } else { Part::text(text) };
        let item = Item::Artifact(ArtifactUpdate {
            task: self.config.task.as_str().into(),
            context: step.run.session_id.as_str().into(),
            artifact: Artifact { id: buffered.artifact.as_str().into(), name: None, parts: vec![part], metadata: None },
            append: buffered.append,
            last_chunk: last,
        });
        requests.push(self.event_request(&item, step.run));
    }
}
