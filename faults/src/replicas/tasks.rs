//! Clients of A2A: they begin tasks with a receiver of notifications, follow them by subscribing elsewhere when a
//! stream breaks, and compare what they saw with the task on every gateway; and the receiver, which compares the order.
//!
//! Not here: clients that resume by number (`load.rs`).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use interlingua_testing_support::cluster::Task;
use serde_json::{Value, json};

use super::agent::task;
use super::cluster::Cluster;
use super::random::Random;
use crate::check::Check;
use crate::http;
use crate::server::{Server, answer};
use crate::stream::{Answer, read_while_active};

const SILENCE: Duration = Duration::from_secs(4);
/// Time that a client follows a task, and that the receiver waits for the last notifications.
const LIMIT: Duration = Duration::from_secs(60);
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Notifications, in the order of their arrival, by task.
type TaskNotifications = Arc<Mutex<HashMap<String, Vec<Value>>>>;

/// Clients at work, and their receiver.
pub(crate) struct Tasks {
    stopping: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<TaskView>>>,
    received: TaskNotifications,
    _receiver: Server,
}

/// A client's view of one task.
struct TaskView {
    task: Task,
    id: String,
    /// The state in which it ended.
    end: Option<String>,
}

impl Tasks {
    pub(crate) fn start(addresses: &[SocketAddr], clients: usize, random: &mut Random) -> Result<Self> {
        let (stopping, received) = (Arc::new(AtomicBool::new(false)), TaskNotifications::default());
        let receiving = Arc::clone(&received);
        let receiver = Server::start(move |request, connection| {
            if let Ok(body) = serde_json::from_slice::<Value>(&request.body) {
                let id = body.get("task").map(|task| &task["id"]);
                let update = body.get("statusUpdate").or_else(|| body.get("artifactUpdate"));
                let id = id.or_else(|| update.map(|update| &update["taskId"])).and_then(Value::as_str);
                let id = id.unwrap_or_default().to_owned();
                receiving.lock().unwrap_or_else(PoisonError::into_inner).entry(id).or_default().push(body);
            }
            answer(connection, "200 OK", "application/json", b"{}")
        })?;
        let hook = receiver.url("/hook");
        let clients = (0..clients).map(|number| {
            let (stopping, addresses, mut random) = (Arc::clone(&stopping), addresses.to_vec(), random.branch());
            let hook = hook.clone();
            thread::spawn(move || {
                let mut all = Vec::new();
                for run in 0.. {
                    if stopping.load(Ordering::Relaxed) {
                        break;
                    }
                    let (words, pace) = (3 + random.below(10), Duration::from_millis(300));
                    let task = task(format!("t{number}-{run}"), words, pace);
                    all.extend(follow(&addresses, task, &hook, &mut random));
                }
                all
            })
        });
        let clients = clients.collect();
        Ok(Self { stopping, clients, received, _receiver: receiver })
    }

    /// Ends the work, waits for the last notifications, and compares.
    pub(crate) fn stop(self, cluster: &Cluster) -> Result<Vec<Check>> {
        self.stopping.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for client in self.clients {
            all.extend(client.join().map_err(|_| anyhow!("a client of A2A panicked"))?);
        }
        let received = await_last(&self.received, &all);
        let (mut silent, mut disordered, mut again, mut differing, mut endless) = (0, 0, 0, 0, 0);
        for seen in &all {
            let got = received.get(&seen.id).map(Vec::as_slice).unwrap_or_default();
            silent += usize::from(!got.last().is_some_and(is_last));
            let order = Order::of(seen, got);
            if order.is_broken {
                eprintln!("notifications of {} ({:?}): {}", seen.id, seen.end, summary(got));
            }
            disordered += usize::from(order.is_broken);
            again += order.again;
            endless += usize::from(seen.end.is_none());
            differing += usize::from(!agree(cluster, seen));
        }
        Ok(vec![
            Check::at_least("A2A tasks", all.len() as f64, 1.0, ""),
            Check::at_most("… without an end", endless as f64, 0.0, ""),
            Check::at_most("… that gateways show otherwise than they were seen", differing as f64, 0.0, ""),
            Check::at_most("… without the last notification", silent as f64, 0.0, ""),
            Check::at_most("… with notifications out of order or missing", disordered as f64, 0.0, ""),
            Check::info("… notifications that came again after a takeover", again as f64, ""),
        ])
    }
}

fn rpc(method: &str, params: &Value) -> Vec<u8> {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    http::request("POST", "/a2a/demo", &[("a2a-version", "1.0")], &body)
}

/// Begins a task and follows it to its end. `None`: it is not known whether there is one.
fn follow(addresses: &[SocketAddr], task: Task, hook: &str, random: &mut Random) -> Option<TaskView> {
    let message = json!({ "messageId": task.key, "role": "ROLE_USER", "parts": [{ "text": task.text }] });
    let configuration = json!({ "taskPushNotificationConfig": { "url": hook } });
    let params = json!({ "message": message, "configuration": configuration });
    let address = addresses[random.below(addresses.len())];
    let began = read_while_active(address, &rpc("SendStreamingMessage", &params), SILENCE);
    let Some(id) = began.as_ref().ok().and_then(|answer| results(answer).find_map(|result| task_id(&result))) else {
        thread::sleep(RETRY_INTERVAL);
        return None;
    };

    let mut end = began.ok().and_then(|answer| results(&answer).find_map(|result| end_of(&result)));
    let started = Instant::now();
    while end.is_none() && started.elapsed() < LIMIT {
        let address = addresses[random.below(addresses.len())];
        // A task that has ended cannot be subscribed to.
        for method in ["SubscribeToTask", "GetTask"] {
            if let Ok(answer) = read_while_active(address, &rpc(method, &json!({ "id": id })), SILENCE) {
                end = end.or_else(|| results(&answer).find_map(|result| end_of(&result)));
            }
        }
        thread::sleep(RETRY_INTERVAL);
    }
    Some(TaskView { task, id, end })
}

/// The results of an answer, streamed or not.
fn results(answer: &Answer) -> impl Iterator<Item = Value> {
    let whole = serde_json::from_str::<Value>(&answer.text).ok();
    let streamed: Vec<Value> = answer.data().filter_map(|data| serde_json::from_str(data).ok()).collect();
    whole.into_iter().chain(streamed).map(|mut answer| answer["result"].take())
}

fn task_id(result: &Value) -> Option<String> {
    Some(result.get("task")?["id"].as_str()?.to_owned())
}

/// The state of a task that has ended, in a task or in an update.
fn end_of(result: &Value) -> Option<String> {
    let of = |value: &Value| value["status"]["state"].as_str().map(str::to_owned);
    let update = result.get("task").or_else(|| result.get("statusUpdate")).unwrap_or(result);
    of(update).filter(|state| ["COMPLETED", "FAILED", "CANCELED", "REJECTED"].iter().any(|end| state.ends_with(end)))
}

fn is_last(notification: &Value) -> bool {
    end_of(notification).is_some()
}

/// Whether the task is the same on all gateways, ended as it was seen, and has the agent's answer if it completed.
fn agree(cluster: &Cluster, seen: &TaskView) -> bool {
    let request = rpc("GetTask", &json!({ "id": seen.id }));
    let mut tasks = Vec::new();
    for address in cluster.addresses() {
        let answer = read_while_active(address, &request, SILENCE);
        tasks.push(answer.ok().and_then(|answer| results(&answer).next()).unwrap_or_default());
    }
    let text = || {
        let parts = tasks[0]["artifacts"][0]["parts"].as_array().cloned().unwrap_or_default();
        parts.iter().filter_map(|part| part["text"].as_str()).collect::<String>()
    };
    let is_complete = !seen.end.as_ref().is_some_and(|end| end.ends_with("COMPLETED")) || text() == seen.task.answer;
    let same = tasks.iter().all(|task| *task == tasks[0]) && end_of(&tasks[0]) == seen.end && is_complete;
    if !same {
        eprintln!("{} ended as {:?}: {tasks:?}", seen.id, seen.end);
    }
    same
}

/// Waits until the last notification of every task has come, or none will.
fn await_last(received: &TaskNotifications, all: &[TaskView]) -> HashMap<String, Vec<Value>> {
    let started = Instant::now();
    loop {
        let now = received.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let done = all.iter().all(|seen| now.get(&seen.id).and_then(|got| got.last()).is_some_and(is_last));
        if done || started.elapsed() > LIMIT {
            return now;
        }
        thread::sleep(RETRY_INTERVAL);
    }
}

/// The notifications of a task as positions: 0 is the task, 1 that it works, then the words, and last the end.
struct Order {
    is_broken: bool,
    /// The number of repeated notifications.
    again: usize,
}

impl Order {
    fn of(seen: &TaskView, got: &[Value]) -> Self {
        let end = seen.task.answer.split_whitespace().count() + 2;
        let (mut order, mut last) = (Self { is_broken: false, again: 0 }, None);
        for notification in got {
            let Some((first, to)) = positions(seen, notification, end) else { continue };
            // A task that failed need not have got to its last word.
            let is_end = first == end;
            let skips = !is_end || seen.end.as_ref().is_some_and(|end| end.ends_with("COMPLETED"));
            // Also after a step back: a sender that continues there sends everything from there, and it is the only
            // sender.
            order.is_broken |= skips && first > last.unwrap_or(0) + 1;
            order.again += usize::from(last.is_some_and(|last| first <= last));
            last = Some(to);
        }
        order
    }
}

/// The first and the last position of a notification. `None`: it has none.
fn positions(seen: &TaskView, notification: &Value, end: usize) -> Option<(usize, usize)> {
    if is_last(notification) {
        return Some((end, end));
    }
    if notification.get("task").is_some() {
        return Some((0, 0));
    }
    if let Some(update) = notification.get("statusUpdate") {
        return update["status"]["state"].as_str().is_some_and(|state| state.ends_with("WORKING")).then_some((1, 1));
    }
    let parts = notification["artifactUpdate"]["artifact"]["parts"].as_array()?;
    let text: String = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    let number = |word: &str| word.strip_prefix(&format!("{}.", seen.task.key))?.parse::<usize>().ok();
    let numbers: Vec<usize> = text.split_whitespace().filter_map(number).collect();
    Some((numbers.first()? + 2, numbers.last()? + 2))
}

fn summary(got: &[Value]) -> String {
    let short = |notification: &Value| {
        let artifact = &notification["artifactUpdate"]["artifact"]["parts"];
        let state = notification.get("task").or_else(|| notification.get("statusUpdate"));
        state.map_or_else(|| artifact.to_string(), |state| state["status"]["state"].to_string())
    };
    got.iter().map(short).collect::<Vec<_>>().join(", ")
}
