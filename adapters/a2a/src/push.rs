//! Push notifications: the events of a task as requests to the places its owner named (section 11).
//!
//! Text deltas are joined: a notifier holds them back until something else happens, the artifact is complete, or the
//! gateway says that the interval is over. Not here: sending, retries, and where may be sent to.

use std::sync::Arc;

use interlingua_core::event::{Event, Millis, Span, Step};
use interlingua_core::model::ContentType;
use interlingua_core::push::{PushNotifier, PushNotifiers, PushRequest};
use interlingua_core::{Json, Run};
use serde::Serialize;

use crate::dialect::Form;
use crate::history::History;
use crate::input;
use crate::options::{PushEvents, PushOld};
use crate::serve::{COLLECTION, Config};
use crate::time::Timestamp;
use crate::updates::{Change, Piece, Update, Updates};
use crate::wire::v03::Old;
use crate::wire::{Artifact, ArtifactUpdate, Item, Part, Raw, Spelled, State, Status, StatusUpdate, Task};
use crate::{Route, parts, task};

/// What a route delivers.
pub(crate) fn notifiers(route: &Arc<Route>) -> PushNotifiers {
    let owned = Arc::clone(route);
    PushNotifiers {
        collection: COLLECTION,
        policy: route.options.push_policy(),
        pause: route.options.push_interval,
        open: Box::new(move |document| {
            let config: Config = document.decode()?;
            (!config.given_up).then(|| Box::new(Receiver::new(&owned, config)) as Box<dyn PushNotifier>)
        }),
        give_up: Box::new(|document| {
            let mut config: Config = document.decode()?;
            config.given_up = true;
            Some(Json::from_serialize(&config))
        }),
    }
}

/// One receiver of one task.
struct Receiver {
    route: Arc<Route>,
    config: Config,
    updates: Updates,
    held: Option<Held>,
    known: Known,
}

/// Running text that was not sent yet: a piece of one content.
struct Held {
    artifact: String,
    message: u32,
    content: u32,
    span: Span,
    append: bool,
}

/// What a whole task consists of besides its artifacts, as it goes to receivers of 0.3.
struct Known {
    state: State,
    at: Millis,
    history: History<Json>,
    /// The last turn that has begun, and whether it has ended.
    turn: Option<(usize, bool)>,
}

/// A task of 0.3, made of what is known.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Whole<'a> {
    kind: &'static str,
    id: &'a str,
    context_id: &'a str,
    status: WholeStatus<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    artifacts: Vec<Old<'a, Artifact<'a>>>,
    #[serde(skip_serializing_if = "<[Json]>::is_empty")]
    history: &'a [Json],
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Raw<'static>>,
}

#[derive(Serialize)]
struct WholeStatus<'a> {
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
            held: None,
            known: Known { state: State::Submitted, at: 0, history: History::new(), turn: None },
        }
    }

    /// The dialect its receiver was made in. Over 0.3 the bare object with `kind` is sent, whatever the binding.
    const fn form(&self) -> Form {
        if self.config.old { Form::V03 } else { Form::V1 }
    }

    fn sends_tasks(&self) -> bool {
        self.config.old && self.route.options.push_v03 == PushOld::Task
    }

    fn sends_artifacts(&self) -> bool {
        self.route.options.push_events == PushEvents::All
    }

    fn parcel<T: Serialize>(&self, value: &T) -> PushRequest {
        let mut headers = Vec::with_capacity(4);
        if self.config.old {
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

    /// One event, or the whole task in its place.
    fn event(&self, item: &Item<'_>, run: &Run) -> PushRequest {
        if self.sends_tasks() { self.whole(run) } else { self.parcel(&Spelled(item, self.form())) }
    }

    fn whole(&self, run: &Run) -> PushRequest {
        let artifacts = self.updates.artifacts(run);
        self.parcel(&Whole {
            kind: "task",
            id: &self.config.task,
            context_id: &run.session_id,
            status: WholeStatus {
                state: self.known.state.word(Form::V03),
                message: self.known.history.current(),
                timestamp: Timestamp(self.known.at),
            },
            artifacts: artifacts.iter().map(|artifact| Old(artifact, Form::V03)).collect(),
            history: self.known.history.before(),
            metadata: self.metadata(run),
        })
    }

    /// What the task says of itself besides, as it stood when what is told happened: the run may be further.
    fn metadata(&self, run: &Run) -> Option<Raw<'static>> {
        let (last, done) = self.known.turn?;
        let has_ended = |turn: usize| turn < last || done;
        let turn = (0..=last).rev().find(|turn| !(has_ended(*turn) && run.turns[*turn].withdrawn))?;
        task::metadata_of(&self.route, &run.turns[turn], has_ended(turn))
    }

    /// Keeps up with turns, whose usage a whole task tells.
    fn count(&mut self, step: Step<'_>) {
        match step.event {
            Event::TurnStarted { turn } => self.known.turn = Some((turn as usize, false)),
            Event::TurnFinished { turn, .. } => self.known.turn = Some((turn as usize, true)),
            _ => {}
        }
    }

    /// Keeps up with status and history. Who is told events alone needs neither.
    fn learn(&mut self, update: &Update<'_>, step: Step<'_>) {
        if !self.sends_tasks() {
            return;
        }
        let (task, context) = (self.config.task.as_str(), step.run.session_id.as_str());
        match update {
            Update::Said(turn) => {
                let sent = input::as_sent(step.run, *turn);
                let sent = sent.into_iter().map(|message| message.on(task, context));
                self.known.history.say(sent.map(|message| Json::from_serialize(&Spelled(&message, Form::V03))));
                self.known.at = self.known.at.max(step.at);
            }
            Update::Unasked { said } => self.known.history.unask(*said),
            Update::Status(change) => {
                let message = change.message.clone().map(|message| message.on(task, context));
                let message = message.map(|message| Json::from_serialize(&Spelled(&message, Form::V03)));
                self.known.history.set(message, |new, old| new == old);
                (self.known.state, self.known.at) = (change.state, step.at);
            }
            Update::Artifact(_) => {}
        }
    }

    fn tell(&mut self, update: Update<'_>, step: Step<'_>, parcels: &mut Vec<PushRequest>) {
        self.learn(&update, step);
        let run = step.run;
        let task = self.config.task.clone();
        match update {
            Update::Said(0) if self.sends_artifacts() => {
                let sent = input::as_sent(run, 0);
                let history = sent.into_iter().map(|message| message.on(task.as_str(), run.session_id.as_str()));
                let item = Item::Task(Task {
                    id: task.as_str().into(),
                    context: run.session_id.as_str().into(),
                    status: Status { state: State::Submitted, message: None, at: step.at },
                    artifacts: None,
                    history: Some(history.collect()),
                    metadata: None,
                });
                parcels.push(self.event(&item, run));
            }
            Update::Said(_) | Update::Unasked { .. } => {}
            Update::Status(Change { state, message, metadata }) => {
                self.flush(step, parcels);
                let item = Item::Status(StatusUpdate {
                    task: task.as_str().into(),
                    context: run.session_id.as_str().into(),
                    status: Status {
                        state,
                        message: message.map(|message| message.on(task.as_str(), run.session_id.as_str())),
                        at: step.at,
                    },
                    metadata,
                    closes: state.is_terminal() || state == State::InputRequired,
                });
                parcels.push(self.event(&item, run));
            }
            Update::Artifact(_) if !self.sends_artifacts() => {}
            Update::Artifact(Piece { artifact, append, is_delta: true, .. }) => {
                let Event::ContentDelta { message, content, span } = step.event else { return };
                if let Some(held) = &mut self.held
                    && (held.message, held.content, held.span.version) == (message, content, span.version)
                {
                    held.span.end = span.end;
                    return;
                }
                self.flush(step, parcels);
                self.held = Some(Held { artifact: artifact.id.into_owned(), message, content, span, append });
            }
            Update::Artifact(piece) if piece.closes() => {
                // The end goes along with the last of the text; a whole task says nothing of ends.
                let held = self.held.as_ref().is_some_and(|held| held.artifact == piece.artifact.id);
                if held || self.sends_tasks() {
                    self.send_held(step, held, parcels);
                    return;
                }
                self.flush(step, parcels);
                let item = Item::Artifact(ArtifactUpdate {
                    task: task.as_str().into(),
                    context: run.session_id.as_str().into(),
                    artifact: piece.artifact,
                    append: true,
                    last_chunk: true,
                });
                parcels.push(self.event(&item, run));
            }
            Update::Artifact(Piece { artifact, append, last_chunk, .. }) => {
                self.flush(step, parcels);
                let item = Item::Artifact(ArtifactUpdate {
                    task: task.as_str().into(),
                    context: run.session_id.as_str().into(),
                    artifact,
                    append,
                    last_chunk,
                });
                parcels.push(self.event(&item, run));
            }
        }
    }
}

impl PushNotifier for Receiver {
    fn url(&self) -> &str {
        &self.config.url
    }

    fn skip(&mut self, step: Step<'_>) {
        self.count(step);
        let mut told = Vec::new();
        self.updates.take_quietly(step, &mut |update| told.push(update));
        for update in told {
            self.learn(&update, step);
        }
    }

    fn take(&mut self, step: Step<'_>, parcels: &mut Vec<PushRequest>) {
        self.count(step);
        let mut told = Vec::new();
        self.updates.take(step, &mut |update| told.push(update));
        for update in told {
            self.tell(update, step, parcels);
        }
    }

    fn has_held(&self) -> bool {
        self.held.is_some()
    }

    fn flush(&mut self, step: Step<'_>, parcels: &mut Vec<PushRequest>) {
        self.send_held(step, false, parcels);
    }
}

impl Receiver {
    /// Sends the text that was held back. `last`: with it the artifact is complete.
    fn send_held(&mut self, step: Step<'_>, last: bool, parcels: &mut Vec<PushRequest>) {
        let Some(held) = self.held.take() else { return };
        let slot = step.run.messages.get(held.message as usize).and_then(|it| it.slots.get(held.content as usize));
        let Some(slot) = slot else { return };
        let text = slot.span(held.span);
        let part = if slot.kind == ContentType::Refusal { parts::refusal(text) } else { Part::text(text) };
        let item = Item::Artifact(ArtifactUpdate {
            task: self.config.task.as_str().into(),
            context: step.run.session_id.as_str().into(),
            artifact: Artifact { id: held.artifact.as_str().into(), name: None, parts: vec![part], metadata: None },
            append: held.append,
            last_chunk: last,
        });
        parcels.push(self.event(&item, step.run));
    }
}
