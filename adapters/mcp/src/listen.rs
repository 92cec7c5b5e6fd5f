//! `subscriptions/listen` (docs/protocols/mcp.md#lists): notices of changed lists, and of changed tasks.
//!
//! The gateway has no stream that follows several runs. So the stream of a subscription to tasks leaves its notices for
//! a moment, loads each task, and returns to them: a change of a task is noticed after the poll interval.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use interlingua_core::call::{Listen, Notice};
use interlingua_core::event::Millis;
use interlingua_core::{Call, Reply, RunId};
use serde_json::{Map, Value, json};

use crate::envelope::{ClientAbilities, Params, RpcError, RpcId, missing_tasks};
use crate::forms::Modes;
use crate::options::Options;
use crate::result::ResultContext;
use crate::tasks::{LoadStep, TaskLoader, current};

/// The key of a subscription in the metadata of its notices.
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
/// Maximum number of tasks of one subscription.
const MAX_TASKS: usize = 64;
/// The shortest time between two looks at a task, in milliseconds.
const SHORTEST_POLL: Millis = 200;
/// The time between two looks at tasks that do not change grows up to this time, in milliseconds.
const LONGEST_POLL: Millis = 5_000;

/// The lists whose changes a client can subscribe to, with the methods of their notices.
const LISTS: [(&str, &str); 3] = [
    ("toolsListChanged", "notifications/tools/list_changed"),
    ("promptsListChanged", "notifications/prompts/list_changed"),
    ("resourcesListChanged", "notifications/resources/list_changed"),
];

/// The method of a notice that a list has changed, by the names in the capabilities: for streams of sessions, which
/// subscribe to all of them.
pub(crate) fn list_notices(options: &Options) -> Vec<Value> {
    let offered = LISTS.iter().filter(|(name, _)| is_offered(name, options));
    offered.map(|(_, method)| json!({ "jsonrpc": "2.0", "method": method })).collect()
}

/// A subscription.
pub(crate) struct Subscription {
    /// The id of its request.
    id: RpcId,
    /// The lists of the subscription, as indexes into [`LISTS`].
    lists: Vec<usize>,
    /// The tasks that have not ended.
    tasks: Vec<WatchedTask>,
    /// The tasks that the subscription named and the caller has.
    honored: Vec<RunId>,
    /// The task that is being loaded.
    loading: Option<(usize, TaskLoader)>,
    modes: Modes,
    is_acknowledged: bool,
    /// The tasks as they were when the subscription began.
    first: Vec<Value>,
    now: Millis,
    shortest_poll: Millis,
    poll: Millis,
    has_changed: bool,
    poll_at: Option<Millis>,
}

struct WatchedTask {
    id: RunId,
    /// The hash of the task as the client knows it.
    hash: Option<u64>,
    /// True if it cannot change any longer, or was deleted.
    is_over: bool,
}

impl Subscription {
    /// Reads a request, and makes its first call.
    ///
    /// # Errors
    /// The parameters are wrong, or the client lacks the extension for tasks.
    pub(crate) fn decode(
        id: RpcId,
        params: &Params,
        client: ClientAbilities,
        options: &Options,
        now: Millis,
    ) -> Result<(Self, Call), RpcError> {
        let Some(Value::Object(wanted)) = params.get("notifications") else {
            return Err(RpcError::params("\"notifications\" must be an object"));
        };
        let wants = |name: &str| wanted.get(name) == Some(&Value::Bool(true));
        let lists = LISTS.iter().enumerate().filter(|(_, (name, _))| wants(name) && is_offered(name, options));
        let tasks = read_tasks(wanted, client)?;

        let shortest_poll = u64::try_from(options.poll_interval.0.as_millis()).unwrap_or(u64::MAX).max(SHORTEST_POLL);
        let mut subscription = Self {
            id,
            lists: lists.map(|(index, _)| index).collect(),
            tasks: tasks.into_iter().map(|id| WatchedTask { id, hash: None, is_over: false }).collect(),
            honored: Vec::new(),
            loading: None,
            modes: client.modes,
            is_acknowledged: false,
            first: Vec::new(),
            now,
            shortest_poll,
            poll: shortest_poll,
            has_changed: false,
            poll_at: None,
        };
        let call = subscription.load(0);
        Ok((subscription, call))
    }

    /// Continues with a reply of the engine. Notices are added to `out`.
    ///
    /// # Errors
    /// The reply does not match.
    pub(crate) fn reply(
        &mut self,
        reply: Reply<'_>,
        context: &ResultContext<'_>,
        out: &mut Vec<Value>,
    ) -> Result<Call, RpcError> {
        let Some((index, mut loader)) = self.loading.take() else {
            return Ok(self.listen());
        };
        if matches!(reply, Reply::Done) && loader.on_not_found().is_none() {
            // The task is not, or no longer, there.
            self.tasks[index].is_over = true;
            return Ok(self.load(index + 1));
        }
        let (modes, now) = (self.modes, self.now);
        let loaded = loader.reply(reply, |runs, dismissed| current(runs, context, modes, dismissed, now))?;
        match loaded {
            LoadStep::Call(call) => {
                self.loading = Some((index, loader));
                Ok(call)
            }
            LoadStep::Done(task) => {
                self.see(index, task, out);
                Ok(self.load(index + 1))
            }
        }
    }

    /// The call to make instead of one that found no run.
    pub(crate) fn on_not_found(&self) -> Option<Call> {
        self.loading.as_ref().map(|(_, loader)| loader.on_not_found().unwrap_or(Call::Nothing))
    }

    /// Reads a notice. Notices of the subscription are added to `out`.
    pub(crate) fn on_notice(&mut self, notice: Notice, out: &mut Vec<Value>) {
        match notice {
            Notice::Begin if !self.is_acknowledged => {
                self.is_acknowledged = true;
                out.push(self.acknowledgement());
                out.append(&mut self.first);
            }
            Notice::Agents => {
                out.extend(self.lists.iter().map(|list| self.notice(LISTS[*list].1, Map::new())));
            }
            Notice::Begin | Notice::Run(_) => {}
        }
    }

    /// The time of the next look at the tasks. `None`: none of them can change.
    pub(crate) const fn wake_at(&self) -> Option<Millis> {
        self.poll_at
    }

    /// True if the stream continues with [`Subscription::next_call`].
    pub(crate) fn on_time(&mut self, now: Millis) -> bool {
        self.now = now;
        self.poll_at.is_some_and(|at| at <= now)
    }

    /// The call that looks at the tasks.
    pub(crate) fn next_call(&mut self) -> Call {
        self.poll_at = None;
        self.has_changed = false;
        self.load(0)
    }

    /// The result with which the gateway ends the subscription.
    pub(crate) fn result(&self) -> Value {
        json!({ "resultType": "complete", "_meta": { SUBSCRIPTION: self.id } })
    }

    /// Loads the next task that can change, beginning with this one, or returns to the notices.
    fn load(&mut self, from: usize) -> Call {
        let next = (from..self.tasks.len()).find(|index| !self.tasks[*index].is_over);
        match next {
            Some(index) => {
                let (loader, call) = TaskLoader::new(self.tasks[index].id);
                self.loading = Some((index, loader));
                call
            }
            None => self.listen(),
        }
    }

    fn listen(&mut self) -> Call {
        let waits = self.tasks.iter().any(|task| !task.is_over);
        self.poll = if self.has_changed || !self.is_acknowledged {
            self.shortest_poll
        } else {
            (self.poll * 2).min(LONGEST_POLL.max(self.shortest_poll))
        };
        self.poll_at = waits.then(|| self.now.saturating_add(self.poll));
        Call::Listen(Listen { session: None, agents: !self.lists.is_empty() })
    }

    /// Compares a task with what the client knows of it.
    fn see(&mut self, index: usize, task: Value, out: &mut Vec<Value>) {
        let mut hasher = DefaultHasher::new();
        task.to_string().hash(&mut hasher);
        let hash = hasher.finish();
        let watched = &mut self.tasks[index];
        watched.is_over = matches!(task["status"].as_str(), Some("completed" | "failed" | "cancelled"));
        if watched.hash == Some(hash) {
            return;
        }
        let is_new = watched.hash.replace(hash).is_none();
        let id = watched.id;
        self.has_changed = true;
        let Value::Object(task) = task else { return };
        let notice = self.notice("notifications/tasks", task);
        if self.is_acknowledged {
            out.push(notice);
        } else {
            self.first.push(notice);
        }
        if is_new {
            self.honored.push(id);
        }
    }

    fn acknowledgement(&self) -> Value {
        let mut honored: Map<String, Value> =
            self.lists.iter().map(|list| (LISTS[*list].0.to_owned(), Value::Bool(true))).collect();
        if !self.honored.is_empty() {
            let ids: Vec<String> = self.honored.iter().map(RunId::to_string).collect();
            honored.insert("taskIds".to_owned(), Value::from(ids));
        }
        let params = Map::from_iter([("notifications".to_owned(), Value::Object(honored))]);
        self.notice("notifications/subscriptions/acknowledged", params)
    }

    fn notice(&self, method: &str, mut params: Map<String, Value>) -> Value {
        params.insert("_meta".to_owned(), json!({ SUBSCRIPTION: self.id }));
        json!({ "jsonrpc": "2.0", "method": method, "params": params })
    }
}

fn is_offered(list: &str, options: &Options) -> bool {
    match list {
        "promptsListChanged" => options.prompts,
        "resourcesListChanged" => options.resources,
        _ => true,
    }
}

/// The tasks that a subscription names. A malformed id names no task of the caller.
fn read_tasks(wanted: &Map<String, Value>, client: ClientAbilities) -> Result<Vec<RunId>, RpcError> {
    let wrong = || RpcError::params(format!("\"taskIds\" must be a list of at most {MAX_TASKS} strings"));
    let ids = match wanted.get("taskIds") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(ids)) if ids.len() <= MAX_TASKS => ids,
        Some(_) => return Err(wrong()),
    };
    if !client.tasks && !ids.is_empty() {
        return Err(missing_tasks());
    }
    let mut tasks: Vec<RunId> = Vec::new();
    for id in ids {
        if let Some(id) = RunId::parse(id.as_str().ok_or_else(wrong)?)
            && !tasks.contains(&id)
        {
            tasks.push(id);
        }
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests;
