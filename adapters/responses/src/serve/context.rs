//! What a request builds on, looked up before the agent is asked: the response it follows, its conversation, the
//! items it refers to, the calls whose outputs it holds (sections 4, 11 and 12).
//!
//! A machine of its own, since three endpoints need it: it says what to look up next, takes what was found, and ends
//! with native messages. Which session it all belongs to, and what went before, is the engine's to know.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use interlingua_core::answer::{Answer, Given};
use interlingua_core::call::{RunState, RunView, SessionCall, SessionView};
use interlingua_core::model::{Message, MessageType, Role};
use interlingua_core::pending::{Pending, PendingKind, approval_id};
use interlingua_core::run::{Run, Slot};
use interlingua_core::{Call, Fault, FaultKind, Json, Reply, RunId};

use super::{Shared, astray, target};
use crate::decode::{Create, Entry};
use crate::fault::{about_input, not_found, previous_not_found};
use crate::ids::{self, Place};
use crate::options::OpenCalls;

/// Items of so many responses may be referred to in one request: each is looked up.
const MAX_RUNS: usize = 200;

/// Something to look up.
#[derive(Clone, Debug)]
enum Lookup {
    /// The response that is followed.
    Previous { run: RunId, id: String },
    /// The conversation.
    Conversation(String),
    /// Items of a run.
    Items(RunId),
    /// All that was said in the session of the response that is followed.
    Session(String),
    /// The conversation leaves the agent it was made with, since nothing was asked in it yet.
    Leave(Box<SessionView>),
    /// And comes to the one that is asked.
    Come(Box<SessionView>),
}

/// What is known so far.
pub(crate) struct Context {
    shared: Arc<Shared>,
    /// The agent that is asked, if any is.
    agent: Option<String>,
    /// Whether the request names what it follows.
    chained: bool,
    entries: Vec<Entry>,
    todo: VecDeque<Lookup>,
    current: Option<Lookup>,
    /// References by the run they lead to.
    wanted: BTreeMap<RunId, Vec<(String, Place)>>,
    found: BTreeMap<String, Vec<Message>>,
    /// Calls an output may belong to.
    calls: BTreeSet<String>,
    /// What waits for an answer where the request goes.
    pending: Vec<Pending>,
    /// The response that is followed, and its session.
    followed: Option<RunId>,
    session: Option<String>,
    /// Whether a run is under way in the conversation.
    busy: bool,
    /// Whether everything said before is wanted, and what it is.
    history: Option<Vec<Message>>,
    /// Whether this came over a WebSocket.
    socket: bool,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    /// What is new, as it goes to the agent.
    pub(crate) input: Vec<Message>,
    /// Answers that are no native messages.
    pub(crate) answers: Vec<Answer>,
    /// What went before, where it was wanted.
    pub(crate) history: Vec<Message>,
    /// Whether a question is answered: the session is the one where it was asked.
    pub(crate) decides: bool,
    /// Whether a tool's output is in the input.
    pub(crate) returns: bool,
    /// Whether a run is under way in the conversation.
    pub(crate) busy: bool,
}

impl Context {
    /// Begins. `history`: whether everything that went before is wanted too.
    ///
    /// # Errors
    /// A reference that cannot lead anywhere.
    pub(crate) fn new(shared: Arc<Shared>, create: &mut Create, socket: bool, history: bool) -> Result<Self, Fault> {
        let agent = shared.agent(&create.echo.model).ok().map(str::to_owned);
        let mut context = Self {
            shared,
            agent,
            chained: create.previous.is_some() || create.conversation.is_some(),
            entries: std::mem::take(&mut create.entries),
            todo: VecDeque::new(),
            current: None,
            wanted: BTreeMap::new(),
            found: BTreeMap::new(),
            calls: BTreeSet::new(),
            pending: Vec::new(),
            followed: create.previous.as_ref().map(|(run, _)| *run),
            session: None,
            busy: false,
            history: history.then(Vec::new),
            socket,
        };
        if let Some((run, id)) = &create.previous {
            context.todo.push_back(Lookup::Previous { run: *run, id: id.clone() });
        }
        if let Some(id) = &create.conversation {
            if !ids::is_conversation(id) {
                return Err(not_found("Conversation", id));
            }
            context.todo.push_back(Lookup::Conversation(id.clone()));
        }
        context.references(create.conversation.is_some())?;
        Ok(context)
    }

    /// Notes what the input refers to.
    fn references(&mut self, in_conversation: bool) -> Result<(), Fault> {
        let mut seen = BTreeSet::new();
        for entry in &self.entries {
            let Entry::Reference { id, path } = entry else { continue };
            if !seen.insert(id.as_str()) {
                return Err(Fault::invalid(path, format!("duplicate item found with id '{id}'")));
            }
            match ids::place(id) {
                Some((run, place)) => {
                    self.wanted.entry(run).or_default().push((id.clone(), place));
                    if self.wanted.len() > MAX_RUNS {
                        let message = format!("refers to items of more than {MAX_RUNS} responses");
                        return Err(Fault::invalid("input", message));
                    }
                }
                // Items of a conversation may have ids of their own.
                None if in_conversation => {}
                None => return Err(not_found("Item", id)),
            }
        }
        Ok(())
    }

    /// What to look up next. None: everything is known.
    pub(crate) fn next(&mut self) -> Option<Call> {
        if self.todo.is_empty() {
            let run = self.wanted.keys().next().copied();
            self.todo.extend(run.map(Lookup::Items));
        }
        if self.todo.is_empty() && (self.unknown_output().is_some() || self.history.is_some()) {
            self.todo.extend(self.session.take().map(Lookup::Session));
        }
        self.current = self.todo.pop_front();
        Some(match self.current.clone()? {
            Lookup::Previous { run, .. } | Lookup::Items(run) => Call::Fetch(target(run)),
            Lookup::Conversation(session) | Lookup::Session(session) => Call::Session(SessionCall::Look { session }),
            Lookup::Leave(view) => Call::Session(SessionCall::Delete { session: view.id }),
            Lookup::Come(view) => Call::Session(SessionCall::Create {
                agent: self.agent.clone().unwrap_or_default(),
                session: view.id,
                items: view.items.into_iter().map(|item| Message { id: Some(item.id), ..item.message }).collect(),
                labels: view.labels,
            }),
        })
    }

    /// Takes what was found.
    ///
    /// # Errors
    /// What the client built on is not there.
    pub(crate) fn take(&mut self, reply: &Reply<'_>) -> Result<(), Fault> {
        match (self.current.take(), reply) {
            (Some(Lookup::Previous { run, id }), Reply::Run(view)) => self.previous(run, &id, view),
            (Some(Lookup::Items(run)), Reply::Run(view)) => self.items(run, view),
            (Some(Lookup::Conversation(id)), Reply::Session([view, ..])) => self.conversation(&id, view),
            (Some(Lookup::Session(_)), Reply::Session([view, ..])) => {
                self.session_items(view);
                Ok(())
            }
            (Some(Lookup::Leave(_)), Reply::Done) | (Some(Lookup::Come(_)), Reply::Session(_)) => Ok(()),
            (Some(lookup), Reply::Session([])) => Err(Self::gone(&lookup)),
            _ => Err(astray()),
        }
    }

    /// What a fault means at this point: what was looked up is not there.
    pub(crate) fn lost(&self, fault: &Fault) -> Fault {
        match &self.current {
            Some(lookup) if fault.kind == FaultKind::NotFound => match (lookup, self.wanted.values().next()) {
                (Lookup::Items(_), Some(items)) => not_found("Item", &items[0].0),
                _ => Self::gone(lookup),
            },
            _ => fault.clone(),
        }
    }

    fn gone(lookup: &Lookup) -> Fault {
        match lookup {
            Lookup::Previous { id, .. } => previous_not_found(id),
            Lookup::Conversation(id) => not_found("Conversation", id),
            Lookup::Items(run) => not_found("Item", &run.to_prefixed("")),
            Lookup::Leave(view) | Lookup::Come(view) => not_found("Conversation", &view.id),
            Lookup::Session(_) => about_input("no tool call found for this function call output"),
        }
    }

    /// Whether this caller may build on a run: stored ones, and over a WebSocket those that it keeps (section 13). Others
    /// that are not stored are found by nobody once they have ended.
    fn may_use(&self, view: &RunView<'_>) -> bool {
        view.about.stored || (self.socket && view.run().end.is_some())
    }

    fn previous(&mut self, run: RunId, id: &str, view: &RunView<'_>) -> Result<(), Fault> {
        if !self.may_use(view) {
            return Err(previous_not_found(id));
        }
        let told = view.run();
        self.pending = view.pending.to_vec();
        self.session = Some(told.session_id.clone());
        self.calls.extend(
            told.conversation().flat_map(|message| message.calls().collect::<Vec<_>>()).map(|call| call.call_id),
        );
        if let Some(history) = &mut self.history {
            history.extend(told.conversation());
        }
        if self.wanted.contains_key(&run) {
            self.items(run, view)?;
        }
        Ok(())
    }

    /// All that was said in the session: the calls in it, and what went before the response that is followed.
    fn session_items(&mut self, view: &SessionView) {
        for item in &view.items {
            self.calls.extend(item.message.calls().map(|call| call.call_id));
        }
        // A branch has what went before under another session, if at all: then the response itself is what is known.
        let last = view.items.iter().rposition(|item| item.run.is_some() && item.run == self.followed);
        if let (Some(history), Some(last)) = (&mut self.history, last) {
            *history = view.items[..=last].iter().map(|item| item.message.clone()).collect();
        }
    }

    fn conversation(&mut self, id: &str, view: &SessionView) -> Result<(), Fault> {
        if view.labels.get(crate::NAME).is_none() {
            return Err(not_found("Conversation", id));
        }
        // A conversation is made before it is known which agent will be asked in it; a session has one agent.
        if let Some(agent) = &self.agent
            && view.agent != *agent
        {
            if view.latest.is_some() {
                let message = format!("belongs to the model '{}'", view.agent);
                return Err(Fault::invalid("conversation", message));
            }
            let view = Box::new(view.clone());
            self.todo.extend([Lookup::Leave(view.clone()), Lookup::Come(view)]);
        }
        self.busy = matches!(view.state, Some(RunState::Queued | RunState::Running));
        self.pending.clone_from(&view.pending);
        let mut by_id: BTreeMap<String, &Message> = BTreeMap::new();
        for item in &view.items {
            self.calls.extend(item.message.calls().map(|call| call.call_id));
            by_id.insert(ids::of_session(item), &item.message);
        }
        for entry in &self.entries {
            let Entry::Reference { id, .. } = entry else { continue };
            if let Some(message) = by_id.get(id.as_str()) {
                self.found.insert(id.clone(), vec![Message::clone(message)]);
            } else if ids::place(id).is_none() {
                return Err(not_found("Item", id));
            }
        }
        let found = &self.found;
        self.wanted.retain(|_, items| {
            items.retain(|(id, _)| !found.contains_key(id));
            !items.is_empty()
        });
        if let Some(history) = &mut self.history {
            history.extend(view.items.iter().map(|item| item.message.clone()));
        }
        Ok(())
    }

    fn items(&mut self, run: RunId, view: &RunView<'_>) -> Result<(), Fault> {
        let Some(items) = self.wanted.remove(&run) else { return Ok(()) };
        let told = view.run();
        let outputs = outputs(told);
        for (id, place) in items {
            let messages = if self.may_use(view) { found(told, &id, place, &outputs) } else { None };
            let messages = messages.ok_or_else(|| not_found("Item", &id))?;
            self.found.insert(id, messages);
        }
        Ok(())
    }

    /// An output whose call is not known yet.
    fn unknown_output(&self) -> Option<String> {
        let returned = self.entries.iter().filter_map(|entry| match entry {
            Entry::Returned { call_id, .. } => Some(call_id),
            _ => None,
        });
        let mut returned = returned.peekable();
        returned.peek()?;
        let said = self.entries.iter().filter_map(|entry| match entry {
            Entry::Said(message) => Some(message),
            _ => None,
        });
        let said: BTreeSet<String> =
            said.chain(self.found.values().flatten()).flat_map(Message::calls).map(|call| call.call_id).collect();
        let waits = |id: &String| self.pending.iter().any(|item| item.id == *id);
        returned.find(|id| !self.calls.contains(*id) && !said.contains(*id) && !waits(id)).cloned()
    }

    /// Everything is known: the request as the agent will see it.
    ///
    /// # Errors
    /// An output without its call; a call without its output, where the operator wants it so.
    pub(crate) fn finish(mut self) -> Result<Resolved, Fault> {
        if let Some(id) = self.unknown_output() {
            return Err(about_input(format!("No tool call found for function call output with call_id {id}.")));
        }
        self.refuse_open_calls()?;
        let history = self.history.take().unwrap_or_default();
        let mut resolved = Resolved { history, busy: self.busy, ..Resolved::default() };
        if let Some(answer) = self.plain_answer() {
            resolved.answers.push(answer);
            resolved.decides = true;
            return Ok(resolved);
        }
        // A question that came as a call is answered by an output (human-in-the-loop page, section 6).
        let questions: BTreeSet<String> = self.questions();
        resolved.decides = self.keep_answers(&questions);
        resolved.returns = self.entries.iter().any(|entry| matches!(entry, Entry::Returned { .. }));
        resolved.input.reserve_exact(self.entries.len());
        for entry in self.entries {
            match entry {
                Entry::Said(message) => {
                    if !message.calls().any(|call| questions.contains(&call.call_id)) {
                        resolved.input.push(message);
                    }
                }
                Entry::Reference { id, .. } => {
                    let messages = self.found.remove(&id).ok_or_else(|| not_found("Item", &id))?;
                    resolved.input.extend(messages);
                }
                Entry::Returned { call_id, output, .. } if questions.contains(&call_id) => {
                    resolved.answers.push(Answer::new(call_id, Given::Text(output)));
                }
                Entry::Returned { message, .. } => resolved.input.push(message),
            }
        }
        Ok(resolved)
    }

    /// Clients without a chain send their whole history. Answers in it that the agent has gone on from long ago go
    /// no further, with their questions: what came of them stands behind them. In front of an answer that is new,
    /// everything the session knows already is left out (section 15). True if there is one.
    fn keep_answers(&mut self, questions: &BTreeSet<String>) -> bool {
        let approval = |entry: &Entry, kind: &MessageType| match entry {
            Entry::Said(message) if message.kind == *kind => {
                message.content.iter().find_map(|content| approval_id(content.as_data()?))
            }
            _ => None,
        };
        let gone_on = self.last_of_agent();
        let (mut old, mut new) = (BTreeSet::new(), BTreeSet::new());
        for (index, entry) in self.entries.iter().enumerate() {
            if let Some(id) = approval(entry, &MessageType::McpApprovalResponse) {
                if index < gone_on {
                    old.insert(id)
                } else {
                    new.insert(id)
                };
            }
        }
        let asks_or_answers = |entry: &Entry, ids: &BTreeSet<String>| {
            let kinds = [MessageType::McpApprovalRequest, MessageType::McpApprovalResponse];
            kinds.iter().any(|kind| approval(entry, kind).is_some_and(|id| ids.contains(&id)))
        };
        old.retain(|id| !new.contains(id));
        self.entries.retain(|entry| !asks_or_answers(entry, &old));
        if new.is_empty() && questions.is_empty() {
            return false;
        }
        if !self.chained {
            let first = self.entries.iter().position(|entry| {
                let question = match entry {
                    Entry::Said(message) => message.calls().any(|call| questions.contains(&call.call_id)),
                    Entry::Returned { call_id, .. } => questions.contains(call_id),
                    Entry::Reference { .. } => false,
                };
                question || asks_or_answers(entry, &new)
            });
            self.entries.drain(..first.unwrap_or(0));
        }
        true
    }

    /// Where the last thing stands that the agent said or did, questions apart.
    fn last_of_agent(&self) -> usize {
        let by_agent = |entry: &Entry| match entry {
            Entry::Said(message) => {
                message.role == Some(Role::Assistant) && message.kind != MessageType::McpApprovalRequest
            }
            Entry::Reference { id, .. } => matches!(ids::place(id), Some((_, Place::Output { .. }))),
            Entry::Returned { .. } => false,
        };
        self.entries.iter().rposition(by_agent).unwrap_or(0)
    }

    /// The ids of questions that are answered by outputs in this request.
    fn questions(&self) -> BTreeSet<String> {
        let asks = |item: &&Pending| matches!(item.kind, PendingKind::Input | PendingKind::Auth);
        let mut questions: BTreeSet<String> = self.pending.iter().filter(asks).map(|item| item.id.clone()).collect();
        let returned: BTreeSet<&str> = self
            .entries
            .iter()
            .filter_map(|entry| match entry {
                Entry::Returned { call_id, .. } => Some(call_id.as_str()),
                _ => None,
            })
            .collect();
        questions.retain(|id| returned.contains(id.as_str()));
        // Without a chain the whole history is in the input, the question included. What the agent has gone on from
        // is history too.
        let mut asked = BTreeSet::new();
        let gone_on = self.last_of_agent();
        for (index, entry) in self.entries.iter().enumerate() {
            match entry {
                Entry::Said(message) if message.kind == MessageType::FunctionCall => {
                    let name = &self.shared.options.request_input;
                    asked.extend(message.calls().filter(|call| call.name == *name).map(|call| call.call_id));
                }
                Entry::Returned { call_id, .. } if index > gone_on && asked.contains(call_id) => {
                    questions.insert(call_id.clone());
                }
                _ => {}
            }
        }
        questions
    }

    /// Plain text of the user where exactly one question is open answers it.
    fn plain_answer(&self) -> Option<Answer> {
        let [item] = self.pending.as_slice() else { return None };
        if item.kind != PendingKind::Input {
            return None;
        }
        let [Entry::Said(message)] = self.entries.as_slice() else { return None };
        let plain = message.kind == MessageType::Message
            && message.role == Some(Role::User)
            && message.content.iter().all(|content| content.as_text().is_some());
        plain.then(|| Answer::new(item.id.clone(), Given::Text(message.text())))
    }

    fn refuse_open_calls(&self) -> Result<(), Fault> {
        if self.shared.options.open_calls == OpenCalls::Allow {
            return Ok(());
        }
        let answered = |id: &str| {
            self.entries.iter().any(|entry| matches!(entry, Entry::Returned { call_id, .. } if call_id == id))
        };
        let open = self.pending.iter().find(|item| item.kind == PendingKind::Tool && !answered(&item.id));
        match open {
            Some(item) => Err(about_input(format!("No tool output found for function call {}.", item.id))),
            None => Ok(()),
        }
    }
}

/// The messages that hold the outputs of a run's calls, by `call_id`.
fn outputs(run: &Run) -> BTreeMap<String, Vec<usize>> {
    let mut found: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, message) in run.messages.iter().enumerate().filter(|(_, message)| message.kind.is_output()) {
        for output in message.slots.iter().filter_map(Slot::output) {
            found.entry(output.call_id).or_default().push(index);
        }
    }
    found
}

/// The item of an id, as native messages. An `mcp_call` is two: the call and its output.
fn found(run: &Run, id: &str, place: Place, outputs: &BTreeMap<String, Vec<usize>>) -> Option<Vec<Message>> {
    match place {
        Place::Input { turn, index } => {
            let message = run.turns.get(turn)?.input.get(index)?;
            (ids::of_input(message, run.id, turn, index) == id).then(|| vec![message.clone()])
        }
        Place::Output { message, content } => {
            let told = run.messages.get(message)?;
            let mut whole = told.to_model();
            // Calls and images are items of their own, several to a message.
            if told.kind.is_call() || id.starts_with("ig_") {
                let one = whole.content.get(content)?.clone();
                whole.content = vec![one];
            }
            let mut messages = vec![whole];
            if id.starts_with("mcp_") {
                let indexes: Vec<usize> =
                    messages[0].calls().filter_map(|call| outputs.get(&call.call_id)).flatten().copied().collect();
                messages.extend(
                    indexes
                        .into_iter()
                        .filter_map(|index| run.messages.get(index))
                        .map(interlingua_core::run::Message::to_model),
                );
            }
            Some(messages)
        }
    }
}

/// Whether a session was made as a conversation, and its own facts.
pub(crate) fn label(view: &SessionView) -> Option<&Json> {
    view.labels.get(crate::NAME)
}
