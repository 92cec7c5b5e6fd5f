//! Resolves what a request refers to before the agent is called: the previous response, the conversation, referenced
//! items, and the calls whose outputs it contains (docs/protocols/responses.md#state).
//!
//! A separate state machine, since three endpoints use it: it returns the next lookup, accepts the reply, and ends with
//! messages for the agent. Not here: choosing the session and loading its history for the agent, which the engine does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use interlingua_core::answer::{Answer, AnswerBody};
use interlingua_core::call::{RunState, RunView, SessionCall, SessionView};
use interlingua_core::model::{Message, MessageType, Role};
use interlingua_core::pending::{Pending, PendingKind, approval_id};
use interlingua_core::run::{Run, Slot};
use interlingua_core::{Call, Fault, FaultKind, Json, Reply, RunId};

use super::{MountedRoute, target};
use crate::decode::{CreateRequest, InputEntry};
use crate::fault::{input_conflict, not_found, previous_not_found};
use crate::ids::{self, ItemLocation};
use crate::options::OpenCalls;

/// Maximum number of responses whose items one request may reference. Each needs a lookup.
const MAX_REFERENCED_RUNS: usize = 200;

/// Something to look up.
#[derive(Clone, Debug)]
enum Lookup {
    /// The previous response.
    Previous {
        run: RunId,
        id: String,
    },
    Conversation(String),
    /// Items of a run.
    Items(RunId),
    /// All items in the session of the previous response.
    Session(String),
    /// Deletes an unused conversation that was created with another agent.
    Delete(Box<SessionView>),
    /// Recreates that conversation for the requested agent.
    Recreate(Box<SessionView>),
}

/// The state of the resolution.
pub(crate) struct Context {
    shared: Arc<MountedRoute>,
    /// The requested agent. `None` if the request names none.
    agent: Option<String>,
    /// True if the request names a previous response or a conversation.
    chained: bool,
    entries: Vec<InputEntry>,
    todo: VecDeque<Lookup>,
    current: Option<Lookup>,
    /// Unresolved references, by their run.
    references: BTreeMap<RunId, Vec<(String, ItemLocation)>>,
    /// Resolved references, by item id.
    found: BTreeMap<String, Vec<Message>>,
    /// Ids of the calls to which an output may belong.
    calls: BTreeSet<String>,
    /// Pending items of the previous response or the conversation.
    pending: Vec<Pending>,
    /// The previous response.
    previous_run: Option<RunId>,
    /// Session of the previous response.
    session: Option<String>,
    /// True if a run is in progress in the conversation.
    busy: bool,
    /// Earlier messages. `None` if the endpoint does not need them.
    history: Option<Vec<Message>>,
    /// True if the request came over a WebSocket.
    socket: bool,
}

#[derive(Debug, Default)]
pub(crate) struct ResolvedRequest {
    /// New messages for the agent.
    pub(crate) input: Vec<Message>,
    /// Answers to pending items that are not messages.
    pub(crate) answers: Vec<Answer>,
    /// Earlier messages, if the endpoint needs them.
    pub(crate) history: Vec<Message>,
    /// True if a pending item is answered. The run then belongs to the session of that item.
    pub(crate) has_decision: bool,
    /// True if the input contains a tool output.
    pub(crate) has_tool_output: bool,
    /// True if a run is in progress in the conversation.
    pub(crate) busy: bool,
}

impl Context {
    /// `history`: true if the endpoint also needs the earlier messages.
    ///
    /// # Errors
    /// A reference that cannot be resolved.
    pub(crate) fn new(
        shared: Arc<MountedRoute>,
        create: &mut CreateRequest,
        socket: bool,
        history: bool,
    ) -> Result<Self, Fault> {
        let agent = shared.names.agent(&create.echo.model).ok().map(str::to_owned);
        let mut context = Self {
            shared,
            agent,
            chained: create.previous.is_some() || create.conversation.is_some(),
            entries: std::mem::take(&mut create.entries),
            todo: VecDeque::new(),
            current: None,
            references: BTreeMap::new(),
            found: BTreeMap::new(),
            calls: BTreeSet::new(),
            pending: Vec::new(),
            previous_run: create.previous.as_ref().map(|(run, _)| *run),
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
        context.collect_references(create.conversation.is_some())?;

        Ok(context)
    }

    /// Collects the references in the input.
    fn collect_references(&mut self, in_conversation: bool) -> Result<(), Fault> {
        let mut seen = BTreeSet::new();
        for entry in &self.entries {
            let InputEntry::Reference { id, path } = entry else { continue };
            if !seen.insert(id.as_str()) {
                return Err(Fault::invalid(path, format!("duplicate item found with id '{id}'")));
            }
            match ids::parse_item_id(id) {
                Some((run, location)) => {
                    self.references.entry(run).or_default().push((id.clone(), location));
                    if self.references.len() > MAX_REFERENCED_RUNS {
                        let message = format!("references items of more than {MAX_REFERENCED_RUNS} responses");
                        return Err(Fault::invalid("input", message));
                    }
                }
                // Items of a conversation may have ids chosen by the client.
                None if in_conversation => {}
                None => return Err(not_found("Item", id)),
            }
        }
        Ok(())
    }

    /// The next lookup. `None` if everything is resolved.
    pub(crate) fn next(&mut self) -> Option<Call> {
        if self.todo.is_empty() {
            let run = self.references.keys().next().copied();
            self.todo.extend(run.map(Lookup::Items));
        }
        if self.todo.is_empty() && (self.unknown_output().is_some() || self.history.is_some()) {
            self.todo.extend(self.session.take().map(Lookup::Session));
        }

        self.current = self.todo.pop_front();
        Some(match self.current.clone()? {
            Lookup::Previous { run, .. } | Lookup::Items(run) => Call::Fetch(target(run)),
            Lookup::Conversation(session) | Lookup::Session(session) => Call::Session(SessionCall::Get { session }),
            Lookup::Delete(view) => Call::Session(SessionCall::Delete { session: view.id }),
            Lookup::Recreate(view) => Call::Session(SessionCall::Create {
                agent: self.agent.clone().unwrap_or_default(),
                session: view.id,
                items: view.items.into_iter().map(|item| Message { id: Some(item.id), ..item.message }).collect(),
                labels: view.labels,
            }),
        })
    }

    /// Accepts the reply to the current lookup.
    ///
    /// # Errors
    /// What the request refers to does not exist.
    pub(crate) fn accept(&mut self, reply: &Reply<'_>) -> Result<(), Fault> {
        match (self.current.take(), reply) {
            (Some(Lookup::Previous { run, id }), Reply::Run(view)) => self.accept_previous(run, &id, view),
            (Some(Lookup::Items(run)), Reply::Run(view)) => self.accept_items(run, view),
            (Some(Lookup::Conversation(id)), Reply::Session([view, ..])) => self.accept_conversation(&id, view),
            (Some(Lookup::Session(_)), Reply::Session([view, ..])) => {
                self.accept_session(view);
                Ok(())
            }
            (Some(Lookup::Delete(_)), Reply::Done) | (Some(Lookup::Recreate(_)), Reply::Session(_)) => Ok(()),
            (Some(lookup), Reply::Session([])) => Err(Self::not_found(&lookup)),
            _ => Err(Fault::unexpected_reply()),
        }
    }

    /// Maps a fault of the engine to one about the current lookup.
    pub(crate) fn map_fault(&self, fault: &Fault) -> Fault {
        match &self.current {
            Some(lookup) if fault.kind == FaultKind::NotFound => match (lookup, self.references.values().next()) {
                (Lookup::Items(_), Some(items)) => not_found("Item", &items[0].0),
                _ => Self::not_found(lookup),
            },
            _ => fault.clone(),
        }
    }

    fn not_found(lookup: &Lookup) -> Fault {
        match lookup {
            Lookup::Previous { id, .. } => previous_not_found(id),
            Lookup::Conversation(id) => not_found("Conversation", id),
            Lookup::Items(run) => not_found("Item", &run.to_prefixed("")),
            Lookup::Delete(view) | Lookup::Recreate(view) => not_found("Conversation", &view.id),
            Lookup::Session(_) => input_conflict("no tool call found for this function call output"),
        }
    }

    /// True if this caller may refer to a run: a stored one, or over a WebSocket one that the connection retains
    /// (docs/protocols/responses.md#websocket). Other unstored runs do not exist for clients once they have ended.
    fn may_use(&self, view: &RunView<'_>) -> bool {
        view.info.stored || (self.socket && view.run().end.is_some())
    }

    fn accept_previous(&mut self, run: RunId, id: &str, view: &RunView<'_>) -> Result<(), Fault> {
        if !self.may_use(view) {
            return Err(previous_not_found(id));
        }

        let previous = view.run();
        self.pending = view.pending.to_vec();
        self.session = Some(previous.session_id.clone());
        self.calls.extend(
            previous.conversation().flat_map(|message| message.calls().collect::<Vec<_>>()).map(|call| call.call_id),
        );
        if let Some(history) = &mut self.history {
            history.extend(previous.conversation());
        }
        if self.references.contains_key(&run) {
            self.accept_items(run, view)?;
        }
        Ok(())
    }

    /// Takes the calls of the session, and the history up to the previous response.
    fn accept_session(&mut self, view: &SessionView) {
        for item in &view.items {
            self.calls.extend(item.message.calls().map(|call| call.call_id));
        }
        // The history of a branch is in another session, if anywhere. Then only the response itself is known.
        let last = view.items.iter().rposition(|item| item.run.is_some() && item.run == self.previous_run);
        if let (Some(history), Some(last)) = (&mut self.history, last) {
            *history = view.items[..=last].iter().map(|item| item.message.clone()).collect();
        }
    }

    fn accept_conversation(&mut self, id: &str, view: &SessionView) -> Result<(), Fault> {
        if view.labels.get(ids::NAME).is_none() {
            return Err(not_found("Conversation", id));
        }

        // A conversation is created before its agent is known, but a session has one agent. An unused conversation is
        // recreated for the requested agent.
        if let Some(agent) = &self.agent
            && view.agent != *agent
        {
            if view.latest.is_some() {
                let message = format!("belongs to the model '{}'", view.agent);
                return Err(Fault::invalid("conversation", message));
            }
            let view = Box::new(view.clone());
            self.todo.extend([Lookup::Delete(view.clone()), Lookup::Recreate(view)]);
        }

        self.busy = matches!(view.state, Some(RunState::Queued | RunState::Running));
        self.pending.clone_from(&view.pending);

        let mut by_id: BTreeMap<String, &Message> = BTreeMap::new();
        for item in &view.items {
            self.calls.extend(item.message.calls().map(|call| call.call_id));
            by_id.insert(ids::session_item_id(item), &item.message);
        }
        for entry in &self.entries {
            let InputEntry::Reference { id, .. } = entry else { continue };
            if let Some(message) = by_id.get(id.as_str()) {
                self.found.insert(id.clone(), vec![Message::clone(message)]);
            } else if ids::parse_item_id(id).is_none() {
                return Err(not_found("Item", id));
            }
        }

        // References found in the conversation need no further lookup.
        let found = &self.found;
        self.references.retain(|_, items| {
            items.retain(|(id, _)| !found.contains_key(id));
            !items.is_empty()
        });
        if let Some(history) = &mut self.history {
            history.extend(view.items.iter().map(|item| item.message.clone()));
        }
        Ok(())
    }

    fn accept_items(&mut self, run: RunId, view: &RunView<'_>) -> Result<(), Fault> {
        let Some(items) = self.references.remove(&run) else { return Ok(()) };

        let outputs = outputs_by_call(view.run());
        for (id, location) in items {
            let messages = if self.may_use(view) { find_item(view.run(), &id, location, &outputs) } else { None };
            let messages = messages.ok_or_else(|| not_found("Item", &id))?;
            self.found.insert(id, messages);
        }
        Ok(())
    }

    /// The `call_id` of an output whose call is not known yet.
    fn unknown_output(&self) -> Option<String> {
        let outputs = self.entries.iter().filter_map(|entry| match entry {
            InputEntry::ToolOutput { call_id, .. } => Some(call_id),
            _ => None,
        });
        let mut outputs = outputs.peekable();
        outputs.peek()?;

        let messages = self.entries.iter().filter_map(|entry| match entry {
            InputEntry::Message(message) => Some(message),
            _ => None,
        });
        let calls: BTreeSet<String> =
            messages.chain(self.found.values().flatten()).flat_map(Message::calls).map(|call| call.call_id).collect();
        let is_pending = |id: &String| self.pending.iter().any(|item| item.id == *id);

        outputs.find(|id| !self.calls.contains(*id) && !calls.contains(*id) && !is_pending(id)).cloned()
    }

    /// Builds the request for the agent, once everything is resolved.
    ///
    /// # Errors
    /// An output without its call, or, if the options say so, a call without its output.
    pub(crate) fn finish(mut self) -> Result<ResolvedRequest, Fault> {
        if let Some(id) = self.unknown_output() {
            return Err(input_conflict(format!("No tool call found for function call output with call_id {id}.")));
        }
        self.refuse_open_calls()?;

        let history = self.history.take().unwrap_or_default();
        let mut resolved = ResolvedRequest { history, busy: self.busy, ..ResolvedRequest::default() };
        if let Some(answer) = self.plain_text_answer() {
            resolved.answers.push(answer);
            resolved.has_decision = true;
            return Ok(resolved);
        }

        // A question that was sent as a call is answered by an output (docs/human-in-the-loop.md#answering).
        let questions = self.answered_questions();
        resolved.has_decision = self.drop_settled_entries(&questions);
        resolved.has_tool_output = self.entries.iter().any(|entry| matches!(entry, InputEntry::ToolOutput { .. }));

        resolved.input.reserve_exact(self.entries.len());
        for entry in self.entries {
            match entry {
                InputEntry::Message(message) => {
                    if !message.calls().any(|call| questions.contains(&call.call_id)) {
                        resolved.input.push(message);
                    }
                }
                InputEntry::Reference { id, .. } => {
                    let messages = self.found.remove(&id).ok_or_else(|| not_found("Item", &id))?;
                    resolved.input.extend(messages);
                }
                InputEntry::ToolOutput { call_id, output, .. } if questions.contains(&call_id) => {
                    resolved.answers.push(Answer::new(call_id, AnswerBody::Text(output)));
                }
                InputEntry::ToolOutput { message, .. } => resolved.input.push(message),
            }
        }
        Ok(resolved)
    }

    /// Clients without a chain send their complete history. Approvals in it that the agent has already acted on are
    /// dropped together with their requests, since their outcome follows in the history. Before a new decision,
    /// everything the session already contains is dropped (docs/protocols/responses.md#sessions-and-history). True if
    /// there is a new decision.
    fn drop_settled_entries(&mut self, questions: &BTreeSet<String>) -> bool {
        let approval = |entry: &InputEntry, kind: &MessageType| match entry {
            InputEntry::Message(message) if message.kind == *kind => {
                message.content.iter().find_map(|content| approval_id(content.as_data()?))
            }
            _ => None,
        };

        let last_agent_entry = self.last_agent_entry();
        let (mut old, mut new) = (BTreeSet::new(), BTreeSet::new());
        for (index, entry) in self.entries.iter().enumerate() {
            if let Some(id) = approval(entry, &MessageType::McpApprovalResponse) {
                if index < last_agent_entry {
                    old.insert(id)
                } else {
                    new.insert(id)
                };
            }
        }

        let is_about = |entry: &InputEntry, ids: &BTreeSet<String>| {
            let kinds = [MessageType::McpApprovalRequest, MessageType::McpApprovalResponse];
            kinds.iter().any(|kind| approval(entry, kind).is_some_and(|id| ids.contains(&id)))
        };
        old.retain(|id| !new.contains(id));
        self.entries.retain(|entry| !is_about(entry, &old));
        if new.is_empty() && questions.is_empty() {
            return false;
        }

        if !self.chained {
            let first = self.entries.iter().position(|entry| {
                let is_question = match entry {
                    InputEntry::Message(message) => message.calls().any(|call| questions.contains(&call.call_id)),
                    InputEntry::ToolOutput { call_id, .. } => questions.contains(call_id),
                    InputEntry::Reference { .. } => false,
                };
                is_question || is_about(entry, &new)
            });
            self.entries.drain(..first.unwrap_or(0));
        }
        true
    }

    /// Index of the agent's last entry that is not an approval request; 0 if all entries are approval requests.
    fn last_agent_entry(&self) -> usize {
        let by_agent = |entry: &InputEntry| match entry {
            InputEntry::Message(message) => {
                message.role == Some(Role::Assistant) && message.kind != MessageType::McpApprovalRequest
            }
            InputEntry::Reference { id, .. } => {
                matches!(ids::parse_item_id(id), Some((_, ItemLocation::Output { .. })))
            }
            InputEntry::ToolOutput { .. } => false,
        };
        self.entries.iter().rposition(by_agent).unwrap_or(0)
    }

    /// Ids of the questions that outputs in this request answer.
    fn answered_questions(&self) -> BTreeSet<String> {
        let is_question = |item: &&Pending| matches!(item.kind, PendingKind::Input | PendingKind::Auth);
        let mut questions: BTreeSet<String> =
            self.pending.iter().filter(is_question).map(|item| item.id.clone()).collect();
        let outputs: BTreeSet<&str> = self
            .entries
            .iter()
            .filter_map(|entry| match entry {
                InputEntry::ToolOutput { call_id, .. } => Some(call_id.as_str()),
                _ => None,
            })
            .collect();
        questions.retain(|id| outputs.contains(id.as_str()));

        // Without a chain the complete history is in the input, including the question. Questions before the agent's
        // last entry are settled.
        let mut sent_questions = BTreeSet::new();
        let last_agent_entry = self.last_agent_entry();
        for (index, entry) in self.entries.iter().enumerate() {
            match entry {
                InputEntry::Message(message) if message.kind == MessageType::FunctionCall => {
                    let name = &self.shared.options.request_input;
                    sent_questions.extend(message.calls().filter(|call| call.name == *name).map(|call| call.call_id));
                }
                InputEntry::ToolOutput { call_id, .. }
                    if index > last_agent_entry && sent_questions.contains(call_id) =>
                {
                    questions.insert(call_id.clone());
                }
                _ => {}
            }
        }
        questions
    }

    /// A plain text of the user answers a question if it is the only pending item.
    fn plain_text_answer(&self) -> Option<Answer> {
        let [item] = self.pending.as_slice() else { return None };
        if item.kind != PendingKind::Input {
            return None;
        }
        let [InputEntry::Message(message)] = self.entries.as_slice() else { return None };

        let plain = message.kind == MessageType::Message
            && message.role == Some(Role::User)
            && message.content.iter().all(|content| content.as_text().is_some());
        plain.then(|| Answer::new(item.id.clone(), AnswerBody::Text(message.text())))
    }

    fn refuse_open_calls(&self) -> Result<(), Fault> {
        if self.shared.options.open_calls == OpenCalls::Allow {
            return Ok(());
        }

        let answered = |id: &str| {
            self.entries.iter().any(|entry| matches!(entry, InputEntry::ToolOutput { call_id, .. } if call_id == id))
        };

        let open = self.pending.iter().find(|item| item.kind == PendingKind::Tool && !answered(&item.id));
        match open {
            Some(item) => Err(input_conflict(format!("No tool output found for function call {}.", item.id))),
            None => Ok(()),
        }
    }
}

/// Indexes of the messages with the outputs of a run's calls, by `call_id`.
fn outputs_by_call(run: &Run) -> BTreeMap<String, Vec<usize>> {
    let mut outputs: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, message) in run.messages.iter().enumerate().filter(|(_, message)| message.kind.is_output()) {
        for output in message.slots.iter().filter_map(Slot::output) {
            outputs.entry(output.call_id).or_default().push(index);
        }
    }
    outputs
}

/// The messages of an item. An `mcp_call` consists of two: the call and its output.
fn find_item(
    run: &Run,
    id: &str,
    location: ItemLocation,
    outputs: &BTreeMap<String, Vec<usize>>,
) -> Option<Vec<Message>> {
    match location {
        ItemLocation::Input { turn, index } => {
            let message = run.turns.get(turn)?.input.get(index)?;
            (ids::input_item_id(message, run.id, turn, index) == id).then(|| vec![message.clone()])
        }
        ItemLocation::Output { message, content } => {
            let source = run.messages.get(message)?;
            let mut item = source.to_model();
            // Calls and images are separate items, several in one message.
            if source.kind.is_call() || id.starts_with("ig_") {
                let part = item.content.get(content)?.clone();
                item.content = vec![part];
            }

            let mut messages = vec![item];
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

/// This protocol's label on a session. `None` if the session is not a conversation.
pub(crate) fn conversation_label(view: &SessionView) -> Option<&Json> {
    view.labels.get(ids::NAME)
}
