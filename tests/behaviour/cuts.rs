//! Agents whose connection breaks: at every frame boundary and inside every frame, closed and reset, behind every
//! protocol of clients. The client gets exactly one ending, and it is the failure of its own protocol.
//!
//! Not here: cuts at every byte of one pair (`tests/behaviour/ends.rs`), and agents that are silent or send garbage
//! (there, too).

use std::ops::Range;

use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::support::gateway::{Gateway, user_turn};
use crate::support::http::Response;
use crate::support::pairs::{ALL_PROTOCOLS, Protocol, ROUTES, frames};
use crate::support::transcript::Transcript;
use crate::support::upstream::{ReceivedRequest, Reply, Upstream};

/// So many trials run at once.
const TRIALS_AT_ONCE: usize = 16;

/// A kind of agent, and what it streams unless its connection breaks.
struct Agent {
    protocol: &'static str,
    /// Further lines of its `upstream` table.
    settings: &'static str,
    stream: &'static str,
    /// A text in the first frame after which the answer is complete, whatever follows.
    last_frame: &'static str,
}

const AGENTS: [Agent; 3] = [
    Agent {
        protocol: "agent-api",
        settings: "",
        stream: include_str!("../transcripts/agentscope/agentscope-tool.sse"),
        last_frame: r#""object":"response","status":"completed""#,
    },
    Agent {
        protocol: "a2a",
        settings: "options = { version = \"1.0\", binding = \"HTTP+JSON\", poll_interval = \"10ms\" }",
        stream: include_str!("../transcripts/a2a/story.sse"),
        last_frame: "TASK_STATE_COMPLETED",
    },
    Agent {
        protocol: "chat-completions",
        settings: "options = { model = \"m\" }",
        stream: include_str!("../transcripts/chat-completions/story.sse"),
        last_frame: r#""finish_reason":"tool_calls""#,
    },
];

/// How a connection breaks, and after how many bytes of the stream.
#[derive(Clone, Copy, Debug)]
struct Cut {
    reset: bool,
    at: usize,
}

impl Cut {
    /// As a client says it, so that the agent reads it in whatever protocol it is asked.
    fn word(self) -> String {
        format!("cut-{}-{}-here", if self.reset { "reset" } else { "close" }, self.at)
    }

    fn parse(request: &ReceivedRequest) -> Option<Self> {
        let body = String::from_utf8_lossy(&request.body);
        let mut words = body.split_once("cut-")?.1.split('-');
        Some(Self { reset: words.next()? == "reset", at: words.next()?.parse().ok()? })
    }

    fn reply(self, stream: &str) -> Reply {
        let begun = Reply::events().chunk(&stream.as_bytes()[..self.at]);
        if self.reset { begun.reset() } else { begun.close() }
    }
}

impl Agent {
    /// The frames of its stream, each with its blank line.
    fn frames(&self) -> Vec<Range<usize>> {
        let ends = self.stream.match_indices("\n\n").map(|(at, end)| at + end.len());
        let starts = std::iter::once(0).chain(ends.clone());
        starts.zip(ends).map(|(start, end)| start..end).collect()
    }

    /// Every cut that leaves its answer incomplete.
    fn cuts(&self) -> Vec<Cut> {
        let frames = self.frames();
        let last = frames.iter().position(|frame| self.stream[frame.clone()].contains(self.last_frame));
        let incomplete = &frames[..=last.expect("a stream has an end")];
        // At its start, in its middle; what follows is the start of the next.
        let places = incomplete.iter().flat_map(|frame| [frame.start, frame.start + frame.len() / 2]);
        places.flat_map(|at| [false, true].map(|reset| Cut { reset, at })).collect()
    }

    async fn behind_a_gateway(&self, upstream: &Upstream) -> Gateway {
        let (protocol, settings) = (self.protocol, self.settings);
        let url = upstream.url(if protocol == "agent-api" { "/process" } else { "/v1" });
        let agent =
            format!("[agents.demo.upstream]\nprotocol = \"{protocol}\"\nurl = \"{url}\"\nretries = 0\n{settings}\n");
        Gateway::with_config(&format!("[store]\nkind = \"memory\"\n{agent}{ROUTES}")).await
    }
}

/// Says something, streaming if the protocol streams, and reads the whole answer.
async fn say(client: Protocol, gateway: &Gateway, words: &str) -> Response {
    match client {
        Protocol::AgentApi => gateway.post("/agents/demo/process", &user_turn(words)).await,
        Protocol::Responses => {
            gateway.post("/v1/responses", &json!({ "model": "demo", "input": words, "stream": true })).await
        }
        Protocol::A2a => {
            let headers = [("a2a-version", "1.0"), ("content-type", "application/json")];
            let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": words }] });
            let body = json!({ "message": message }).to_string();
            gateway.open("POST", "/a2a/demo/message:stream", &headers, body.as_bytes()).await.response().await
        }
        Protocol::AgKit => {
            let body =
                json!({ "conversationId": format!("{words}-kit"), "messages": [{ "role": "user", "content": words }] });
            gateway.post("/kit/demo/send-message", &body).await
        }
        Protocol::AgUi => {
            let messages = json!([{ "role": "user", "content": words }]);
            let body = json!({ "threadId": format!("{words}-agui"), "runId": "r", "messages": messages });
            gateway.post("/ag-ui/demo", &body).await
        }
        Protocol::Hitl => {
            let body = json!({ "user_id": "pat", "session_id": format!("{words}-hitl"), "query": words });
            gateway.post("/hitl/demo/agent/invoke", &body).await
        }
    }
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Completed,
    Failed,
}

/// Reads the only ending of an answer in the client's protocol. Panics if there is none, another one, or more.
fn ending(client: Protocol, answer: &Response) -> Ending {
    if answer.status != 200 {
        assert_eq!(refusal(client, &answer.json()), (answer.status, "UPSTREAM_TRUNCATED".to_owned()));
        return Ending::Failed;
    }

    let received = frames(answer.text());
    match client {
        Protocol::AgentApi => {
            let transcript = Transcript::parse(&received);
            match transcript.status.as_str() {
                "completed" => Ending::Completed,
                status => {
                    assert_eq!((status, transcript.code()), ("failed", "UPSTREAM_TRUNCATED"));
                    Ending::Failed
                }
            }
        }
        Protocol::Responses => {
            let last = only_end(&received, |frame| {
                let kind = frame["type"].as_str().expect("events have types");
                ["response.completed", "response.failed", "response.incomplete", "error"].contains(&kind)
            });
            let response = &last["response"];
            if last["type"] == "response.completed" {
                assert_eq!((&response["status"], &response["error"]), (&json!("completed"), &Value::Null));
                return Ending::Completed;
            }
            let failed = (&last["type"], &response["status"], response["error"]["code"].is_string());
            assert_eq!(failed, (&json!("response.failed"), &json!("failed"), true), "{last}");
            Ending::Failed
        }
        Protocol::A2a => {
            let last = only_end(&received, |frame| {
                let state = frame["statusUpdate"]["status"]["state"].as_str().unwrap_or("TASK_STATE_WORKING");
                !["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"].contains(&state)
            });
            let status = &last["statusUpdate"]["status"];
            if status["state"] == "TASK_STATE_COMPLETED" {
                return Ending::Completed;
            }
            assert_eq!(status["state"], "TASK_STATE_FAILED");
            assert!(status.to_string().contains("the agent"), "it says why: {status}");
            Ending::Failed
        }
        Protocol::AgKit => {
            let text = answer.text();
            assert!(text.matches("data: [DONE]").count() == 1 && text.ends_with("data: [DONE]\n\n"), "{text}");
            let is_error = |frame: &&Value| frame["type"] == "error";
            let errors = received.iter().filter(is_error).count();
            assert_eq!(usize::from(received.last().is_some_and(|last| is_error(&last))), errors, "{text}");
            if errors == 0 { Ending::Completed } else { Ending::Failed }
        }
        Protocol::AgUi => ag_ui_ending(&received),
        Protocol::Hitl => {
            let body = answer.json();
            if body["status"] == "completed" {
                return Ending::Completed;
            }
            assert_eq!((&body["status"], &body["result"]), (&json!("error"), &Value::Null), "{body}");
            assert!(body["message"].as_str().is_some_and(|message| message.contains("the agent")), "{body}");
            Ending::Failed
        }
    }
}

fn ag_ui_ending(received: &[Value]) -> Ending {
    let last = only_end(received, |frame| {
        ["RUN_FINISHED", "RUN_ERROR"].contains(&frame["type"].as_str().expect("events have types"))
    });
    if last["type"] == "RUN_FINISHED" {
        return Ending::Completed;
    }
    assert_eq!(last["code"], "UPSTREAM_TRUNCATED", "{last}");
    Ending::Failed
}

/// The last frame, which has to be the only end.
fn only_end(frames: &[Value], is_end: impl Fn(&Value) -> bool) -> &Value {
    let last = frames.last().expect("a stream has frames");
    let ends = frames.iter().filter(|frame| is_end(frame)).count();
    assert!(ends == 1 && is_end(last), "{ends} endings: {frames:#?}");
    last
}

/// The expected status of a refusal, and the gateway's code in it as far as the protocol has one.
fn refusal(client: Protocol, body: &Value) -> (u16, String) {
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("no code in {body}")).to_owned();
    match client {
        Protocol::AgentApi => (502, text(&body["code"])),
        Protocol::Responses => {
            assert_eq!(body["error"]["code"], "upstream_error", "{body}");
            (502, "UPSTREAM_TRUNCATED".to_owned())
        }
        Protocol::A2a => (500, text(&body["error"]["details"][0]["metadata"]["code"])),
        Protocol::AgKit => (502, text(&body["error"]["code"]).to_uppercase()),
        Protocol::AgUi => panic!("errors of the agent are events there: {body}"),
        Protocol::Hitl => panic!("errors of the agent are regular answers there: {body}"),
    }
}

/// Says something to an agent for each of these cuts, over each protocol, and looks at how it ends.
async fn try_all(gateway: &Gateway, cuts: &[Cut], expected: Ending) {
    let pairs = ALL_PROTOCOLS.iter().flat_map(|client| cuts.iter().map(move |cut| (*client, *cut)));
    let trials = pairs.map(|(client, cut)| async move {
        let answer = say(client, gateway, &cut.word()).await;
        let found = ending(client, &answer);
        assert_eq!(found, expected, "{client:?}, {cut:?}: {}", answer.text());
        if expected == Ending::Failed {
            no_call_is_to_be_run(client, &frames(answer.text()));
        }
    });

    let mut trials = futures_util::stream::iter(trials.map(Box::pin)).buffer_unordered(TRIALS_AT_ONCE);
    while trials.next().await.is_some() {}
}

/// A call of a tool of the client that was cut must not look as if it were to be run.
fn no_call_is_to_be_run(client: Protocol, frames: &[Value]) {
    let count = |kind: &str| frames.iter().filter(|frame| frame["type"] == kind).count();
    if client == Protocol::AgKit {
        assert_eq!(count("tool-call-end"), count("tool-result"), "{frames:#?}");
    }
    if client != Protocol::Responses {
        return;
    }

    let items = frames.iter().filter(|frame| frame["type"] == "response.output_item.done").map(|frame| &frame["item"]);
    for item in items.filter(|item| item["type"] == "function_call" && item["call_id"] == "call-1") {
        assert_eq!(item["status"], "incomplete", "{item}");
    }
}

/// The answer of an agent that has forgotten its task.
fn no_such_task() -> Reply {
    let detail = json!({
        "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "TASK_NOT_FOUND", "domain": "a2a-protocol.org"
    });
    let error = json!({ "code": 404, "status": "NOT_FOUND", "message": "Task not found", "details": [detail] });
    Reply::complete(404, &[("content-type", "application/json")], json!({ "error": error }).to_string())
}

#[tokio::test]
async fn an_agent_that_breaks_off_fails_its_run_in_every_protocol() {
    for agent in &AGENTS {
        let stream = agent.stream;
        let upstream = Upstream::with_handler(move |request| {
            Cut::parse(request).map_or_else(no_such_task, |cut| cut.reply(stream))
        });
        let gateway = agent.behind_a_gateway(&upstream).await;
        let cuts = agent.cuts();
        try_all(&gateway, &cuts, Ending::Failed).await;

        let asked = upstream.requests().iter().filter(|request| Cut::parse(request).is_some()).count();
        assert_eq!(asked, ALL_PROTOCOLS.len() * cuts.len(), "{}: no turn is asked for twice", agent.protocol);
        let runs = gateway.get("/agents/demo/runs?limit=100").await.json();
        let runs = runs["data"].as_array().expect("a list");
        assert_eq!(runs.len(), 100, "{}", agent.protocol);
        assert!(runs.iter().all(|run| run["status"] == "failed"), "{}: {runs:#?}", agent.protocol);
    }
}

#[tokio::test]
async fn an_agent_that_lets_its_task_be_taken_up_completes_it_in_every_protocol() {
    let agent = &AGENTS[1];
    let upstream = Upstream::with_handler(move |request| match Cut::parse(request) {
        Some(cut) => cut.reply(agent.stream),
        None => {
            let artifact = json!({ "artifactId": "artifact-1", "parts": [{ "text": "It is 18 °C in Paris." }] });
            let status = json!({ "state": "TASK_STATE_COMPLETED" });
            let task = json!({ "id": "task-1", "contextId": "context-1", "status": status, "artifacts": [artifact] });
            Reply::frames([json!({ "task": task }).to_string()])
        }
    });
    let gateway = agent.behind_a_gateway(&upstream).await;

    // Before the first frame the gateway does not know the task; what was sent before a reset may be lost.
    let first = agent.frames()[0].end;
    let cuts: Vec<Cut> = agent.cuts().into_iter().filter(|cut| cut.at >= first && !cut.reset).collect();
    try_all(&gateway, &cuts, Ending::Completed).await;
    for cut in cuts {
        let transcript = gateway.run_turn("demo", &user_turn(&cut.word())).await.expect_completed();
        let answer = transcript.messages.last().expect("an answer");
        assert_eq!(answer["content"][0]["text"], "It is 18 °C in Paris.", "{cut:?}: nothing is missing or repeated");
    }
}
