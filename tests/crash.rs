//! `kill -9` under load: the real process with a SQLite store and dozens of active streams and tasks is killed several
//! times at different moments. After each restart it is checked against everything that clients had received.
//!
//! Guarantees: a run whose end a client saw is stored byte for byte; an accepted background run is never lost; a run
//! cut by the crash is closed as failed with its own code, after all events that were sent; sessions continue; pending
//! items stay pending. Not here: the store alone (`tests/store`).

#[path = "crash/mcp.rs"]
mod mcp;
#[path = "crash/resend.rs"]
mod resend;
#[path = "crash/resume.rs"]
mod resume;
use interlingua_testing_support as support;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, mpsc};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use support::agent::paced_reply;
use support::cluster::stream::{self, Frame};
use support::cluster::{GatewayProcess, Oracle, Protocol, RunView, Task};
use support::gateway::{ROUTE, agent, last_input_text, user_turn, user_turn_in};
use support::http::TEST_TIMEOUT;
use support::transcript::Transcript;
use support::upstream::Upstream;

/// Concurrent streams, in addition to tasks and sessions.
const STREAMS: usize = 24;
/// Milliseconds from the first finished stream of each process to its kill.
const KILLED_AFTER: [u64; 4] = [40, 150, 350, 90];
/// Number of words of the agent's answers.
const WORDS: usize = 20;
const SERVER: &str = "[server]\nlisten = \"{{listen}}\"\n[store]\nkind = \"sqlite\"\npath = \"store.db\"\n";

/// Everything that the clients of all processes received.
#[derive(Default)]
struct ClientRecords {
    /// Runs of which a client received a part of the stream, or all of it.
    streamed: Vec<RunView>,
    /// Runs whose complete response a client received without streaming.
    collected: BTreeMap<String, String>,
    /// Accepted tasks.
    tasks: Vec<String>,
    /// Tasks that a client saw finished, with their status.
    finished: BTreeMap<String, String>,
    /// Completed turns of the one long conversation, in order.
    completed_turns: Vec<String>,
}

/// The clients of one process, and everything that they received.
struct Clients {
    address: SocketAddr,
    round: usize,
    records: Mutex<ClientRecords>,
}

impl Clients {
    fn records(&self) -> MutexGuard<'_, ClientRecords> {
        self.records.lock().expect("no client panics")
    }

    /// Runs a turn and records its frames until the response or the process ends. True if the run ended.
    fn stream(&self, agent: &'static str, session: &str, text: &str) -> bool {
        let answer = if agent == "friday" { words(text).concat() } else { String::new() };
        let task = Task { session: Some(session.to_owned()), answer, ..Task::new(agent, text) };
        let seen = RunView::begin(self.address, Protocol::AgentApi, task, TEST_TIMEOUT, |_| false);
        assert!(seen.wrong.is_empty(), "{:?}", seen.wrong);

        // A terminal frame ends the run, whether or not the chunk after it arrived.
        let ended = seen.is_ended();
        assert!(ended || !seen.is_complete, "the response ended without a terminal frame: {seen:?}");
        if seen.id.is_some() {
            self.records().streamed.push(seen);
        }
        ended
    }

    /// Runs a turn without streaming and records the response. True if it arrived.
    fn collect_response(&self, mut body: Value) -> bool {
        body["stream"] = json!(false);
        let Some(answer) = self.answer("POST", "/agents/friday/process", &body.to_string()) else { return false };
        self.records().collected.insert(text_of(&answer, "id"), answer);
        true
    }

    /// Sends a request and reads the response body. `None` if the process died.
    fn answer(&self, method: &str, path: &str, body: &str) -> Option<String> {
        let answer = stream::send(self.address, &stream::request(method, path, &[], body)).ok()?;
        answer.is_complete.then_some(answer.text)
    }

    /// Begins tasks until there are enough. True for `watched`: polls each until it finishes.
    fn run_tasks(&self, watched: bool) -> Option<()> {
        while self.records().tasks.len() < 16 * (self.round + 1) {
            let words = if watched { "long 5 1" } else { "long 40 4" };
            let accepted = self.answer("POST", "/agents/demo/process/task", &user_turn(words).to_string())?;
            let id = text_of(&accepted, "task_id");
            self.records().tasks.push(id.clone());
            if !watched {
                continue;
            }
            loop {
                let status = self.answer("GET", &format!("/agents/demo/process/task/{id}"), "")?;
                if text_of(&status, "status") == "finished" {
                    self.records().finished.insert(id, status);
                    break;
                }
            }
        }
        Some(())
    }

    /// Runs all clients until the process is gone.
    fn load(&self, finished: &mpsc::Sender<()>) {
        let round = self.round;
        thread::scope(|scope| {
            for client in 0..STREAMS {
                scope.spawn(move || {
                    for turn in 0.. {
                        let (agent, words) = if client % 2 == 0 { ("demo", "long 30 2") } else { ("friday", "slowly") };
                        let (session, text) = (format!("{round}-{client}"), format!("{words} {turn}"));
                        let is_alive = if client % 4 == 1 {
                            self.collect_response(user_turn_in(&session, &text))
                        } else {
                            let is_alive = self.stream(agent, &session, &text);
                            let _ = finished.send(());
                            is_alive
                        };
                        if !is_alive {
                            return;
                        }
                    }
                });
            }

            // One conversation of many turns.
            scope.spawn(|| {
                for turn in 0.. {
                    let text = format!("turn {round}.{turn}");
                    if !self.stream("friday", "long", &text) {
                        return;
                    }
                    self.records().completed_turns.push(text);
                }
            });

            for watched in [false, true, true, true] {
                scope.spawn(move || self.run_tasks(watched));
            }
        });
    }
}

/// A text in a JSON object.
fn text_of(object: &str, field: &str) -> String {
    let value: Value = serde_json::from_str(object).expect("it is JSON");
    value[field].as_str().unwrap_or_else(|| panic!("no {field}: {object}")).to_owned()
}

/// The words of the agent's answer.
fn words(input: &str) -> Vec<String> {
    (0..WORDS).map(|number| format!("{input}:{number} ")).collect()
}

fn values(frames: &[Frame]) -> Vec<Value> {
    frames.iter().map(Frame::value).collect()
}

/// Checks that everything that clients received is still true.
fn check_observed(gateway: &GatewayProcess, received: &mut ClientRecords) {
    let oracle = Oracle::default();
    for seen in &mut received.streamed {
        let is_cut = !seen.is_ended();
        if is_cut {
            seen.resume(gateway.address, TEST_TIMEOUT, |_| false);
        }
        oracle.check_view(seen);
        oracle.compare(seen, gateway.address).expect("the gateway answers");

        let id = seen.id.as_deref().expect("it has a frame");
        let run = gateway.get(&format!("/agents/{}/runs/{id}", seen.task.agent));
        assert_eq!(run.status, 200, "run {id} is lost although a client saw it");
        assert_eq!(run.text, seen.frames.last().expect("it has an end").data, "run {id}");
        let transcript = Transcript::parse(&values(&seen.frames));
        if is_cut && transcript.status != "completed" {
            transcript.expect_failed("GATEWAY_RESTARTED");
        }
    }
    oracle.expect_none("clients received otherwise");

    for (id, answer) in &received.collected {
        assert_eq!(&gateway.get(&format!("/agents/friday/runs/{id}")).text, answer, "run {id}");
    }
    for task in &received.tasks {
        let status = gateway.get(&format!("/agents/demo/process/task/{task}")).json();
        assert_eq!(status["status"], "finished", "task {task}: {status}");
        let result = &status["result"];
        let restarted = result["status"] == "failed" && result["error"]["code"] == "GATEWAY_RESTARTED";
        assert!(result["status"] == "completed" || restarted, "{status}");
    }
    for (task, status) in &received.finished {
        assert_eq!(&gateway.get(&format!("/agents/demo/process/task/{task}")).text, status, "task {task}");
    }

    for agent in ["demo", "friday"] {
        let mut next = String::new();
        loop {
            let page = gateway.get(&format!("/agents/{agent}/runs?limit=100{next}")).json();
            for run in page["data"].as_array().expect("a list") {
                assert!(
                    ["completed", "failed"].contains(&run["status"].as_str().expect("a status")),
                    "left open: {run}"
                );
            }
            let Some(cursor) = page["next"].as_str() else { break };
            next = format!("&cursor={cursor}");
        }
    }
}

/// The user messages in the last request of the long conversation.
fn history(upstream: &Upstream) -> Vec<String> {
    let requests = upstream.requests();
    let last =
        requests.iter().rev().map(support::upstream::ReceivedRequest::json).find(|body| body["session_id"] == "long");
    let input = last.expect("the conversation went on")["input"].as_array().cloned().expect("an input");
    let users = input.iter().filter(|message| message["role"] == "user");
    users.map(|message| message["content"][0]["text"].as_str().expect("a text").to_owned()).collect()
}

/// Starts the built gateway with a store in a file.
fn start(config: &str) -> GatewayProcess {
    let gateway = GatewayProcess::start_built(&format!("{SERVER}{config}"));
    expect_fast_start(&gateway);
    gateway
}

/// Starts it again on its file.
fn restart(gateway: &mut GatewayProcess) {
    gateway.kill();
    gateway.restart().expect("the gateway starts again");
    expect_fast_start(gateway);
}

fn expect_fast_start(gateway: &GatewayProcess) {
    assert!(gateway.took < Duration::from_secs(3), "the start took {:?}", gateway.took);
}

#[test]
fn everything_that_clients_received_survives_kill_9() {
    let upstream = Upstream::with_handler(|exchange| {
        paced_reply(&words(&last_input_text(&exchange.json())), Duration::from_millis(2))
    });
    let friday = agent("friday", &upstream.url("/process"), "history = \"gateway\"", "");
    let demo = "[agents.demo]\nupstream = { protocol = \"demo\", options = { pace_ms = 1 } }\n";
    let mut gateway = start(&format!("{demo}{friday}{ROUTE}"));
    let mut records = ClientRecords::default();
    let mut pending: Option<(String, String)> = None;

    for (round, after) in KILLED_AFTER.into_iter().enumerate() {
        let waiting_session = format!("waits {round}");
        let asked = gateway.post("/agents/demo/process", &user_turn_in(&waiting_session, "approval"));
        let transcript = Transcript::parse(&values(&asked.frames())).expect_completed();
        let clients = Clients { address: gateway.address, round, records: Mutex::new(records) };
        let (finished, first_finished) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| clients.load(&finished));
            let is_finished = first_finished.recv_timeout(TEST_TIMEOUT);
            thread::sleep(Duration::from_millis(after));
            gateway.kill();
            is_finished.expect("a stream finishes");
        });

        restart(&mut gateway);
        assert_eq!(gateway.get("/readyz").status, 200);
        records = clients.records.into_inner().expect("no client panics");
        let ended = records.streamed.iter().filter(|seen| seen.is_ended()).count();
        assert!(ended > 0 && ended < records.streamed.len(), "the process was killed while it worked");
        check_observed(&gateway, &mut records);

        // The conversation continues: the agent receives all completed turns as history.
        let text = format!("after {round}");
        let answer = gateway.post("/agents/friday/process", &user_turn_in("long", &text));
        assert_eq!(answer.status, 200, "{}", answer.text);
        let history = history(&upstream);
        let mut seen = history.iter();
        let window = records.completed_turns.len().saturating_sub(40);
        for input in records.completed_turns[window..].iter().chain([&text]) {
            assert!(seen.any(|one| one == input), "{input} is missing, or out of order: {history:?}");
        }
        records.completed_turns.push(text);

        // Pending items are still pending and can be answered once.
        for (session, run) in
            [Some((waiting_session.clone(), transcript.id.clone())), pending.take()].into_iter().flatten()
        {
            let held = gateway.post("/agents/demo/process", &user_turn_in(&session, "well?"));
            assert_eq!((held.status, &held.json()["response_id"]), (409, &json!(run)), "{}", held.text);
            if session != waiting_session {
                let id = held.json()["pending"][0]["id"].clone();
                let data = json!({ "approval_request_id": id, "approve": true });
                let decided = json!({ "session_id": session, "input": [
                    { "type": "mcp_approval_response", "role": "user", "content": [{ "type": "data", "data": data }] },
                ] });
                let done = gateway.post("/agents/demo/process", &decided);
                assert!(done.text.contains("The mail was sent"), "{}", done.text);
                assert_eq!(gateway.post("/agents/demo/process", &decided).status, 409);
            }
        }
        pending = Some((waiting_session, transcript.id));
        restart(&mut gateway);
    }
}
