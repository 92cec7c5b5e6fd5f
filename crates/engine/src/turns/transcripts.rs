//! Reads the entries of a session as messages for the agent, and as items for the owner of the session.
//!
//! Not here: the choice of messages for a turn ([`super::context`]) and stored entries
//! ([`crate::sessions::entries`]).

use std::collections::HashSet;
use std::sync::Arc;

use interlingua_core::call::{RunView, SessionItem};
use interlingua_core::model::{Message, MessageType};
use interlingua_core::{End, Fault, Run, RunId};

use crate::agent::HistoryLimit;
use crate::runs::RunTable;
use crate::sessions::{Entry, EntryList, MessageOrigin, Replacement, Session, sizes};

/// The maximum number of turns that a branch copies from the session that it branches off.
const MAX_CHAIN_TURNS: usize = 1000;

/// The maximum number of runs of a chain that are read for each turn of the history: failed runs have no turn in it.
const RUNS_PER_TURN: usize = 2;

/// The maximum number of runs of a chain that are read for a branch.
const MAX_CHAIN_RUNS: usize = RUNS_PER_TURN * MAX_CHAIN_TURNS;

/// A message of the history.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(crate) message: Message,
    pub(crate) origin: MessageOrigin,
}

/// The part of the history that is sent.
#[derive(Default)]
pub(crate) struct Past {
    pub(super) messages: Vec<Said>,
    /// True if older turns were left out.
    pub(crate) is_cut: bool,
}

/// Collects turns, the latest first, within a limit.
struct HistoryBudget {
    limit: HistoryLimit,
    turns: Vec<Vec<Said>>,
    bytes: usize,
}

impl HistoryBudget {
    const fn new(limit: HistoryLimit) -> Self {
        Self { limit, turns: Vec::new(), bytes: 0 }
    }

    /// Adds an older turn. False: the limit is reached. The latest turn is added whatever its size if it has a question:
    /// the answer makes no sense without it.
    fn add(&mut self, messages: Vec<Said>) -> bool {
        if messages.is_empty() {
            return true;
        }
        self.bytes += size_of(&messages);
        let is_needed = self.turns.is_empty() && has_question(&messages);
        let has_room = self.turns.len() < self.limit.turns && (self.bytes <= self.limit.bytes || is_needed);
        if has_room {
            self.turns.push(messages);
        }
        has_room
    }

    fn finish(self, is_cut: bool) -> Past {
        Past { messages: with_complete_calls(self.turns.into_iter().rev().flatten().collect()), is_cut }
    }
}

/// The sessions of the runs of a chain. Most runs of a chain have the same session, which is found once.
#[derive(Default)]
struct ChainSessions {
    /// The number of runs that were read.
    visited: usize,
    /// The session of the latest run.
    latest: Option<(ChainKey, Arc<Session>)>,
}

/// The agent of a run, the id of its session, and its user: runs with the same key have the same session.
type ChainKey = (String, String, Option<String>);

impl ChainSessions {
    /// The session of a run. `find` finds it.
    async fn of(
        &mut self,
        run: ChainKey,
        find: impl Future<Output = Result<Arc<Session>, Fault>>,
    ) -> Result<&Arc<Session>, Fault> {
        self.visited += 1;
        let latest = match self.latest.take().filter(|(known, _)| *known == run) {
            Some(latest) => latest,
            None => (run, find.await?),
        };
        Ok(&self.latest.insert(latest).1)
    }
}

fn chain_key(view: RunView<'_>) -> ChainKey {
    let run = view.run();
    (run.agent.clone(), run.session_id.clone(), view.info.request.user_id.clone())
}

pub(crate) struct Transcripts {
    runs: Arc<RunTable>,
}

impl Transcripts {
    pub(crate) const fn new(runs: Arc<RunTable>) -> Self {
        Self { runs }
    }

    /// The latest messages of a session, within a limit.
    pub(crate) async fn history(
        &self,
        session: &Session,
        list: &EntryList,
        limit: HistoryLimit,
    ) -> Result<Past, Fault> {
        let mut budget = HistoryBudget::new(limit);
        for indices in list.windows(true) {
            for (_, entry) in self.runs.sessions().entries().read(session, list, indices).await?.into_iter().rev() {
                let Some(messages) = self.messages_of(session, &entry).await? else { continue };
                if !budget.add(messages) {
                    return Ok(budget.finish(true));
                }
            }
        }

        Ok(budget.finish(list.is_cut))
    }

    /// The messages of a run and of its predecessors, within a limit.
    pub(super) async fn chain(&self, last: RunId, limit: HistoryLimit) -> Result<Past, Fault> {
        let mut budget = HistoryBudget::new(limit.of_chains());
        let (mut next, mut first) = (Some(last), last);
        let mut sessions = ChainSessions::default();
        while let Some(id) = next {
            if sessions.visited >= budget.limit.turns.saturating_mul(RUNS_PER_TURN) {
                return Ok(budget.finish(true));
            }
            let Some(handle) = self.runs.find(id).await? else { break };
            let session = sessions.of(handle.view(chain_key), self.runs.session_of(&handle)).await?;
            let (messages, previous) = handle.view(|view| {
                let run = view.run();
                let messages: Vec<Said> = if is_in_history(run) || id == last {
                    (0..run.turns.len()).flat_map(|turn| kept_messages(session, id, run, turn)).collect()
                } else {
                    Vec::new()
                };
                (messages, view.info.previous)
            });

            if !budget.add(messages) {
                return Ok(budget.finish(true));
            }
            (next, first) = (previous, id);
        }

        let initial = self.initial_entries(first).await?;
        let messages: Vec<Said> = initial.iter().filter_map(message_of).collect();
        let is_cut = budget.bytes + size_of(&messages) > budget.limit.bytes;
        budget.turns.extend((!is_cut).then_some(messages));
        Ok(budget.finish(is_cut))
    }

    /// The entries of a session that branches off after a run: the turns of that run and of its predecessors. Also
    /// returns the ids of the items of these turns that were removed.
    async fn chain_entries(&self, last: RunId) -> Result<(Vec<Entry>, Vec<String>), Fault> {
        let (mut entries, mut removed) = (Vec::new(), Vec::new());
        let (mut next, mut first) = (Some(last), last);
        let mut sessions = ChainSessions::default();
        while let Some(id) = next.filter(|_| entries.len() < MAX_CHAIN_TURNS && sessions.visited < MAX_CHAIN_RUNS) {
            let Some(handle) = self.runs.find(id).await? else { break };
            let session = sessions.of(handle.view(chain_key), self.runs.session_of(&handle)).await?;
            removed.extend(session.removed_items_of(id));
            next = handle.view(|view| {
                let run = view.run();
                if is_in_history(run) || id == last {
                    let turns = (0..u32::try_from(run.turns.len()).unwrap_or(u32::MAX)).rev();
                    entries.extend(turns.map(|turn| Entry::Turn { run: id, turn }));
                }
                view.info.previous
            });
            first = id;
        }

        if next.is_none() {
            entries.extend(self.initial_entries(first).await?.into_iter().rev());
        }
        entries.reverse();
        Ok((entries, removed))
    }

    /// The messages before the first run of a session, which its client sent. Empty if `run` is not the first run.
    async fn initial_entries(&self, run: RunId) -> Result<Vec<Entry>, Fault> {
        let Some(handle) = self.runs.find(run).await? else { return Ok(Vec::new()) };
        let session = self.runs.session_of(&handle).await?;
        let latest = session.latest();
        let list = session.entries();

        let mut messages = Vec::new();
        for indices in list.windows(false) {
            for (_, entry) in self.runs.sessions().entries().read(&session, &list, indices).await? {
                if matches!(entry, Entry::Turn { .. }) {
                    return Ok(if entry.is_turn_of(run) { messages } else { Vec::new() });
                }
                messages.push(entry);
            }
        }

        // The run is no entry, because it has not ended, or not successfully.
        Ok(if latest == Some(run) { messages } else { Vec::new() })
    }

    /// The messages that the agent has not received: added by clients, or from turns in which it was not called.
    /// `is_stale`: the agent remembers something else than the entries. Then the turns that an agent has answered are
    /// left out: it may have taken them while clients added messages.
    pub(super) async fn unseen(&self, session: &Session, list: &EntryList, is_stale: bool) -> Result<Vec<Said>, Fault> {
        let mut unseen = Vec::new();
        for (_, entry) in self.runs.sessions().entries().read(session, list, list.unseen()).await? {
            if is_stale && self.is_answered(&entry).await? {
                continue;
            }
            unseen.extend(self.messages_of(session, &entry).await?.unwrap_or_default());
        }
        Ok(unseen)
    }

    /// True for a turn with an answer of the agent. A turn that is only recorded has none.
    async fn is_answered(&self, entry: &Entry) -> Result<bool, Fault> {
        let Entry::Turn { run, turn } = entry else { return Ok(false) };
        let Some(handle) = self.runs.find(*run).await? else { return Ok(false) };
        Ok(handle.view(|view| !view.run().messages_of(*turn as usize).is_empty()))
    }

    /// The messages of an entry of a session, without removed items. `None`: its run was deleted.
    async fn messages_of(&self, session: &Session, entry: &Entry) -> Result<Option<Vec<Said>>, Fault> {
        match entry {
            Entry::Turn { run, turn } => {
                let Some(handle) = self.runs.find(*run).await? else { return Ok(None) };
                Ok(Some(handle.view(|view| kept_messages(session, *run, view.run(), *turn as usize))))
            }
            Entry::Message { .. } => Ok(Some(message_of(entry).into_iter().collect())),
        }
    }

    /// The entries that replace those of a session before a turn is added to it. `None`: the session keeps its entries.
    ///
    /// A new branch gets the entries up to the run `branch`. If the session is `stored`, runs that end with their
    /// `connection` are replaced by their messages. A failure is only logged, because the turn itself succeeded.
    pub(super) async fn entries_before(
        &self,
        session: &Session,
        branch: Option<RunId>,
        stored: bool,
        connection: bool,
    ) -> Option<Replacement> {
        let replacement = self.replacement(session, branch, stored, connection).await;
        replacement.inspect_err(log_unreadable).ok().flatten()
    }

    async fn replacement(
        &self,
        session: &Session,
        branch: Option<RunId>,
        stored: bool,
        connection: bool,
    ) -> Result<Option<Replacement>, Fault> {
        let branch = match branch {
            Some(run) if self.may_branch_off(session, run).await? => Some(run),
            _ => None,
        };
        if branch.is_none() && !(stored && connection) {
            return Ok(None);
        }

        let list = {
            // A write that is under way may move entries.
            let _blocked = self.runs.sessions().block_writes(session).await?;
            session.prepare_replacement()
        };
        let known = self.runs.sessions().entries().read_all(session, &list).await?;
        let branch = branch.filter(|_| !known.iter().any(|entry| matches!(entry, Entry::Turn { .. })));
        let (entries, added) = if let Some(run) = branch {
            let (entries, removed) = self.chain_entries(run).await?;
            session.hide_items(removed);
            (entries, known)
        } else if known.iter().any(|entry| self.is_unstored(entry)) {
            (known, Vec::new())
        } else {
            return Ok(None);
        };

        let entries = if stored { self.with_unstored_inlined(session, entries).await? } else { entries };
        let mut replacement = Replacement { entries, added: Vec::new(), is_branch: branch.is_some() };
        added.into_iter().for_each(|entry| replacement.add(entry));
        Ok(Some(replacement))
    }

    /// True if the session may be a new branch after a run. A turn also joins the session of that run while the run is
    /// under way. If the run then fails and adds no entry, that session keeps the entries that it has.
    async fn may_branch_off(&self, session: &Session, run: RunId) -> Result<bool, Fault> {
        let list = session.entries();
        // The agent receives the entries of a session with its first turn that ends well.
        if !list.is_unseen() || list.is_empty() {
            return Ok(list.is_unseen());
        }
        let handle = self.runs.find(run).await?;
        Ok(handle.is_some_and(|handle| handle.view(|view| view.run().session_id != session.id)))
    }

    /// True if an entry refers to a run that ends with its connection.
    fn is_unstored(&self, entry: &Entry) -> bool {
        matches!(entry, Entry::Turn { run, .. } if self.runs.unstored().get(*run).is_some())
    }

    /// Replaces unstored runs by their messages, for a session that outlives them.
    async fn with_unstored_inlined(&self, session: &Session, entries: Vec<Entry>) -> Result<Vec<Entry>, Fault> {
        let mut inlined = Vec::with_capacity(entries.len());
        for entry in entries {
            if self.is_unstored(&entry) {
                let messages = self.messages_of(session, &entry).await?.unwrap_or_default();
                inlined.extend(messages.iter().map(|said| Entry::from_message(&said.message)));
            } else {
                inlined.push(entry);
            }
        }
        Ok(inlined)
    }

    /// At least `least` of the newest or oldest items of a session, if it has that many. Oldest first.
    pub(crate) async fn items(&self, session: &Session, newest: bool, least: usize) -> Result<Vec<SessionItem>, Fault> {
        if least == 0 {
            return Ok(Vec::new());
        }

        let list = session.entries();
        let mut parts: Vec<Vec<SessionItem>> = Vec::new();
        let mut count = 0;
        'windows: for indices in list.windows(newest) {
            let mut entries = self.runs.sessions().entries().read(session, &list, indices).await?;
            if newest {
                entries.reverse();
            }
            for (_, entry) in entries {
                let mut items = self.items_of(&entry).await?;
                items.retain(|item| !session.is_removed(&item.id));
                count += items.len();
                parts.push(items);
                if count >= least {
                    break 'windows;
                }
            }
        }

        if newest {
            parts.reverse();
        }

        Ok(parts.into_iter().flatten().collect())
    }

    async fn items_of(&self, entry: &Entry) -> Result<Vec<SessionItem>, Fault> {
        match entry {
            Entry::Message { id, .. } => {
                let item = |message| SessionItem { id: id.clone(), run: None, message };
                Ok(entry.to_message().map(item).into_iter().collect())
            }
            Entry::Turn { run, turn } => {
                let Some(handle) = self.runs.find(*run).await? else { return Ok(Vec::new()) };
                Ok(handle.view_safe(|view| {
                    let item = |Said { message, origin }| {
                        let id = origin.id(&view.run().session_id, *run, *turn);
                        SessionItem { id, run: Some(*run), message }
                    };
                    turn_messages(*run, view.run(), *turn as usize, is_item).into_iter().map(item).collect()
                }))
            }
        }
    }

    /// Removes an item from a session. False: it has no item of that id.
    pub(crate) async fn remove_item(&self, session: &Session, item: &str) -> Result<bool, Fault> {
        let list = session.entries();
        for indices in list.windows(true) {
            for (index, entry) in self.runs.sessions().entries().read(session, &list, indices).await? {
                match &entry {
                    Entry::Message { id, .. } if id == item => {
                        return self.runs.sessions().entries().remove(session, index, &entry).await;
                    }
                    // The ids of the items of a turn contain the id of its run.
                    Entry::Turn { run, .. }
                        if item.contains(&run.0.simple().to_string())
                            && self.items_of(&entry).await?.iter().any(|known| known.id == item) =>
                    {
                        return Ok(session.remove_turn_item(item));
                    }
                    _ => {}
                }
            }
        }

        Ok(false)
    }
}

/// The message of an entry. `None` for a turn.
fn message_of(entry: &Entry) -> Option<Said> {
    let origin = MessageOrigin::Entry(entry.message_id().to_owned());
    entry.to_message().map(|message| Said { message, origin })
}

fn log_unreadable(fault: &Fault) {
    tracing::error!("cannot read the history of a session: {fault}");
}

/// True if a run is part of the history of its successors.
const fn is_in_history(run: &Run) -> bool {
    matches!(run.end, Some(End::Completed | End::Incomplete) | None)
}

/// The input of one turn and its answer, as history, without the items that were removed from the session.
fn kept_messages(session: &Session, id: RunId, run: &Run, index: usize) -> Vec<Said> {
    let mut messages = turn_messages(id, run, index, is_history);
    if session.has_removed_items() {
        // The origin of a message of a turn names the turn.
        messages.retain(|said| !session.is_removed(&said.origin.id(&run.session_id, id, 0)));
    }
    messages
}

/// The input of one turn, and its answer without the kinds of messages that `is_included` rejects.
fn turn_messages(id: RunId, run: &Run, index: usize, is_included: fn(&MessageType) -> bool) -> Vec<Said> {
    let Some(turn) = run.turns.get(index) else { return Vec::new() };
    let number = u32::try_from(index).unwrap_or(u32::MAX);
    let input = turn.input.iter().enumerate().map(|(place, message)| Said {
        message: message.clone(),
        origin: MessageOrigin::Input { run: id, turn: number, place },
    });
    let answer = run.messages_of(index).iter().enumerate().filter(|(_, message)| is_included(&message.kind));
    let answer = answer.map(|(place, message)| Said {
        message: message.to_model(),
        origin: MessageOrigin::Answer { run: id, place: turn.first_message + place },
    });
    input.chain(answer).collect()
}

const fn is_item(kind: &MessageType) -> bool {
    !matches!(kind, MessageType::Error | MessageType::ProtocolEvent)
}

/// True for the kinds of items that agents can read as history.
const fn is_history(kind: &MessageType) -> bool {
    is_item(kind) && !matches!(kind, MessageType::Heartbeat | MessageType::McpListTools)
}

fn size_of(messages: &[Said]) -> usize {
    messages.iter().map(|said| sizes::message(&said.message)).sum()
}

/// True if a turn calls a tool of the client or waits for a decision.
fn has_question(messages: &[Said]) -> bool {
    let is_question = |kind: &MessageType| matches!(kind, MessageType::FunctionCall | MessageType::McpApprovalRequest);
    messages.iter().any(|said| is_question(&said.message.kind))
}

/// Drops outputs whose call was left out: agents refuse an output without its call.
fn with_complete_calls(messages: Vec<Said>) -> Vec<Said> {
    let mut called = HashSet::new();
    messages
        .into_iter()
        .filter(|said| {
            called.extend(said.message.calls().map(|call| call.call_id));
            said.message.outputs().all(|output| called.contains(&output.call_id))
        })
        .collect()
}
