//! Runs as the engine has them while they grow, without the engine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use interlingua::store::{Journal, Mark, Store, Stored};
use interlingua_core::call::{Delivery, RetentionOwner, RunInfo, RunState};
use interlingua_core::event::{End, Millis};
use interlingua_core::json::Json;
use interlingua_core::model::{AgentRequest, ContentType, Message, MessageType, Role};
use interlingua_core::run::{Announced, MessageEnd, Record, Run};
use interlingua_core::{Extra, RunId};
use uuid::Uuid;

pub(crate) struct ActiveRun {
    id: RunId,
    state: Mutex<(Record, RunInfo)>,
    mark: Mark,
    /// So many of its events are safe, as the store said.
    safe: AtomicU64,
}

impl Journal for ActiveRun {
    fn id(&self) -> RunId {
        self.id
    }

    fn with(&self, look: &mut dyn FnMut(&Record, &RunInfo)) {
        let state = self.state.lock().unwrap();
        look(&state.0, &state.1);
    }

    fn mark(&self) -> &Mark {
        &self.mark
    }

    fn committed(&self, events: u64) {
        self.safe.fetch_max(events, Ordering::SeqCst);
    }
}

pub(crate) fn id(number: u128) -> RunId {
    RunId(Uuid::from_u128(number))
}

/// A run to be made, with the facts queries ask for.
#[derive(Clone)]
pub(crate) struct Made<'a> {
    pub(crate) id: RunId,
    pub(crate) agent: &'a str,
    pub(crate) owner: &'a str,
    pub(crate) session: &'a str,
    pub(crate) protocol: &'a str,
    pub(crate) at: Millis,
    /// The route whose rules it is kept by, and whether others are built upon it.
    pub(crate) keeper: Option<(&'a str, bool)>,
}

impl Default for Made<'_> {
    fn default() -> Self {
        Self { id: id(1), agent: "friday", owner: "olga", session: "s", protocol: "agent-api", at: 1000, keeper: None }
    }
}

impl ActiveRun {
    pub(crate) fn new(made: &Made<'_>) -> Arc<Self> {
        let about = RunInfo {
            protocol: made.protocol.into(),
            owner: made.owner.into(),
            state: RunState::Queued,
            changed_at: made.at,
            previous: None,
            delivery: Delivery::Stream,
            stored: true,
            request: AgentRequest { model: Some("m".into()), ..AgentRequest::default() },
            labels: Json::parse("{ \"kept\": [1.0] }").unwrap(),
            retention: made.keeper.map(|(route, remembered)| RetentionOwner { route: route.into(), remembered }),
        };
        let record = Record::new(Run::new(made.id, made.agent, made.session, made.at));
        Self::again(Stored { record, about })
    }

    pub(crate) fn again(stored: Stored) -> Arc<Self> {
        let id = stored.record.run().id;
        Arc::new(Self {
            id,
            state: Mutex::new((stored.record, stored.about)),
            mark: Mark::default(),
            safe: AtomicU64::new(0),
        })
    }

    pub(crate) fn numbered(number: u128) -> Arc<Self> {
        Self::new(&Made { id: id(number), ..Made::default() })
    }

    pub(crate) fn journal(self: &Arc<Self>) -> Arc<dyn Journal> {
        Arc::clone(self) as Arc<dyn Journal>
    }

    /// How many events the store said are safe.
    pub(crate) fn safe(&self) -> u64 {
        self.safe.load(Ordering::SeqCst)
    }

    /// Waits until the store has said that so many events are safe.
    pub(crate) async fn until_safe(&self, events: u64) {
        let begun = Instant::now();
        while self.safe() < events {
            assert!(begun.elapsed() < Duration::from_secs(20), "{} of {events} events are safe", self.safe());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Takes back what was told from an event on, and ends it.
    pub(crate) fn take_back(&self, to: u64, end: End) {
        self.change(|record, about| {
            record.rewind(to);
            record.cut(end, None);
            about.state = RunState::Ended(end);
            about.changed_at = record.now();
            self.mark.rewritten();
        });
    }

    pub(crate) fn stored(&self) -> Stored {
        let state = self.state.lock().unwrap();
        Stored { record: state.0.clone(), about: state.1.clone() }
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Record, &mut RunInfo) -> T) -> T {
        let mut state = self.state.lock().unwrap();
        let (record, about) = &mut *state;
        change(record, about)
    }

    /// Begins a turn, and a text in it.
    pub(crate) fn begin(&self) {
        self.change(|record, about| {
            record.at(record.now() + 1);
            record.start_turn(vec![Message::user("hi")]);
            let message = record.start_message(Announced::new("", MessageType::Message, Role::Assistant));
            record.start_content(message, ContentType::Text, None);
            about.state = RunState::Running;
            about.changed_at = record.now();
        });
    }

    /// Adds to the text, and says so with the run's lock held, as the engine may.
    pub(crate) fn say(self: &Arc<Self>, store: &dyn Store, text: &str) {
        let journal = self.journal();
        self.change(|record, _| {
            let message = u32::try_from(record.run().messages.len() - 1).unwrap();
            record.at(record.now() + 1);
            record.push(message, 0, text);
            store.touch(&journal);
        });
    }

    /// Ends the turn; the run waits.
    pub(crate) fn wait(&self) {
        self.change(|record, about| {
            record.close_messages(End::Completed);
            record.note(Some("up_1"), Json::parse("{\"total_tokens\":3}"), Extra::new());
            record.finish_turn(End::Completed, None);
            about.state = RunState::Waiting;
            about.changed_at = record.now();
        });
    }

    /// Ends the run, and the turn if one is under way.
    pub(crate) fn end(&self, end: End) {
        self.change(|record, about| {
            if record.in_turn()
                && let Some(message) = record.run().messages.len().checked_sub(1)
                && record.run().messages[message].end.is_none()
            {
                let message = u32::try_from(message).unwrap();
                record.finish_content(message, 0, None, Extra::new());
                record.finish_message(message, MessageEnd::new(End::Completed));
            }
            record.cut(end, None);
            about.state = RunState::Ended(end);
            about.changed_at = record.now();
        });
    }
}
