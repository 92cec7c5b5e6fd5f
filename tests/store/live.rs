//! Active runs as the engine has them, without the engine.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use interlingua::store::{Claim, DirtyFlag, Journal, Store, StoredRun};
use interlingua_core::call::{Delivery, RetentionOwner, RunInfo, RunState};
use interlingua_core::event::{End, Millis};
use interlingua_core::json::Json;
use interlingua_core::model::{AgentRequest, ContentType, Message, MessageType, Role};
use interlingua_core::run::{MessageEnd, MessageStart, Record, Run, RunError};
use interlingua_core::{Extra, RunId};
use uuid::Uuid;

pub(crate) struct ActiveRun {
    id: RunId,
    state: Mutex<(Record, RunInfo)>,
    dirty: DirtyFlag,
    /// Number of durable events, as reported by the store.
    durable: AtomicU64,
    /// Number of events that the store does not read again.
    archived: AtomicU64,
    /// True if the store has it already.
    known: AtomicBool,
    /// True once another replica has taken it over.
    lost: AtomicBool,
}

impl Journal for ActiveRun {
    fn id(&self) -> RunId {
        self.id
    }

    fn with(&self, inspect: &mut dyn FnMut(&Record, &RunInfo)) {
        let state = self.state.lock().unwrap();
        inspect(&state.0, &state.1);
    }

    fn dirty_flag(&self) -> &DirtyFlag {
        &self.dirty
    }

    fn committed(&self, events: u64) {
        self.durable.fetch_max(events, Ordering::SeqCst);
    }

    fn archived(&self, events: u64) {
        self.archived.fetch_max(events, Ordering::SeqCst);
    }

    fn lost(&self) {
        self.lost.store(true, Ordering::SeqCst);
    }
}

pub(crate) fn id(number: u128) -> RunId {
    RunId(Uuid::from_u128(number))
}

/// The attributes of a run to create.
#[derive(Clone)]
pub(crate) struct RunSpec<'a> {
    pub(crate) id: RunId,
    pub(crate) agent: &'a str,
    pub(crate) owner: &'a str,
    pub(crate) session: &'a str,
    pub(crate) protocol: &'a str,
    pub(crate) at: Millis,
    pub(crate) tags: &'a [(&'a str, &'a str)],
    /// The route whose retention rules apply, and whether other runs continue from this one.
    pub(crate) retention: Option<(&'a str, bool)>,
}

impl Default for RunSpec<'_> {
    fn default() -> Self {
        Self {
            id: id(1),
            agent: "friday",
            owner: "olga",
            session: "s",
            protocol: "agent-api",
            at: 1000,
            tags: &[],
            retention: None,
        }
    }
}

impl ActiveRun {
    pub(crate) fn new(spec: &RunSpec<'_>) -> Arc<Self> {
        let info = RunInfo {
            protocol: spec.protocol.into(),
            owner: spec.owner.into(),
            state: RunState::Queued,
            changed_at: spec.at,
            previous: None,
            delivery: Delivery::Stream,
            stored: true,
            request: AgentRequest { model: Some("m".into()), ..AgentRequest::default() },
            labels: Json::parse("{ \"kept\": [1.0] }").unwrap(),
            tags: spec.tags.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            retention: spec.retention.map(|(route, remembered)| RetentionOwner { route: route.into(), remembered }),
        };

        let record = Record::new(Run::new(spec.id, spec.agent, spec.session, spec.at));
        Self::with_known(StoredRun { record, info }, false)
    }

    pub(crate) fn restore(stored: StoredRun) -> Arc<Self> {
        Self::with_known(stored, true)
    }

    fn with_known(stored: StoredRun, known: bool) -> Arc<Self> {
        let id = stored.record.run().id;
        Arc::new(Self {
            id,
            state: Mutex::new((stored.record, stored.info)),
            dirty: DirtyFlag::default(),
            durable: AtomicU64::new(0),
            archived: AtomicU64::new(0),
            known: AtomicBool::new(known),
            lost: AtomicBool::new(false),
        })
    }

    pub(crate) fn numbered(number: u128) -> Arc<Self> {
        Self::new(&RunSpec { id: id(number), ..RunSpec::default() })
    }

    pub(crate) fn journal(self: &Arc<Self>) -> Arc<dyn Journal> {
        Arc::clone(self) as Arc<dyn Journal>
    }

    /// The stored part of it when it is opened: nothing at first, everything afterwards.
    pub(crate) fn claim(&self) -> Claim {
        if self.known.swap(true, Ordering::SeqCst) {
            Claim::Existing { events: self.stored().record.len() }
        } else {
            Claim::New
        }
    }

    /// True once another replica has taken it over.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// Number of events that the store reported as durable.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::SeqCst)
    }

    /// Evicts the events that the store does not read again. Returns how many that are.
    pub(crate) fn evict(&self) -> u64 {
        let archived = self.archived.load(Ordering::SeqCst);
        self.change(|record, _| record.evict(archived));
        archived
    }

    /// Waits until the store has reported this many events as durable.
    pub(crate) async fn until_durable(&self, events: u64) {
        let started = Instant::now();
        while self.durable() < events {
            assert!(started.elapsed() < Duration::from_secs(20), "{} of {events} events are durable", self.durable());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Withdraws all events from `to` on, and ends the run.
    pub(crate) fn withdraw(&self, to: u64, end: End) {
        self.change(|record, info| {
            record.rewind(to);
            record.close(end, None);
            info.state = RunState::Ended(end);
            info.changed_at = record.now();
            self.dirty.bump_generation();
        });
    }

    pub(crate) fn stored(&self) -> StoredRun {
        let state = self.state.lock().unwrap();
        StoredRun { record: state.0.clone(), info: state.1.clone() }
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Record, &mut RunInfo) -> T) -> T {
        let mut state = self.state.lock().unwrap();
        let (record, info) = &mut *state;

        change(record, info)
    }

    /// Starts a turn with a text content.
    pub(crate) fn start(&self) {
        self.change(|record, info| {
            record.set_time(record.now() + 1);
            record.start_turn(vec![Message::user("hi")]);
            let message = record.start_message(MessageStart::new("", MessageType::Message, Role::Assistant));
            record.start_content(message, ContentType::Text, None);
            info.state = RunState::Running;
            info.changed_at = record.now();
        });
    }

    /// Appends to the text and touches the store while the run's lock is held, as the engine does.
    pub(crate) fn append(self: &Arc<Self>, store: &dyn Store, text: &str) {
        let journal = self.journal();
        self.change(|record, _| {
            let message = u32::try_from(record.run().messages.len() - 1).unwrap();
            record.set_time(record.now() + 1);
            record.push(message, 0, text);
            store.touch(&journal);
        });
    }

    /// Finishes the turn; the run waits for input.
    pub(crate) fn finish_turn(&self) {
        self.change(|record, info| {
            record.close_messages(End::Completed);
            record.update_turn(Some("up_1"), Json::parse("{\"total_tokens\":3}"), Extra::new());
            record.finish_turn(End::Completed, None);
            info.state = RunState::Waiting;
            info.changed_at = record.now();
        });
    }

    /// Ends the run as failed with an error code.
    pub(crate) fn fail(&self, code: &str) {
        self.change(|record, info| {
            record.close_messages(End::Incomplete);
            record.close(End::Failed, Some(RunError { code: code.to_owned(), message: "it failed".to_owned() }));
            info.state = RunState::Ended(End::Failed);
            info.changed_at = record.now();
        });
    }

    /// Ends the run, and the turn if one is in progress.
    pub(crate) fn end(&self, end: End) {
        self.change(|record, info| {
            if record.in_turn()
                && let Some(message) = record.run().messages.len().checked_sub(1)
                && record.run().messages[message].end.is_none()
            {
                let message = u32::try_from(message).unwrap();
                record.finish_content(message, 0, None, Extra::new());
                record.finish_message(message, MessageEnd::new(End::Completed));
            }

            record.close(end, None);
            info.state = RunState::Ended(end);
            info.changed_at = record.now();
        });
    }
}
