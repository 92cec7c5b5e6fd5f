//! Agents whose connection breaks: at every frame boundary and inside every frame, closed and reset, behind every
//! protocol of clients. The client gets exactly one ending, and it is the failure of its own protocol.
//!
//! Not here: cuts at every byte of one pair (`tests/behaviour/ends.rs`), and agents that are silent or send garbage
//! (there, too).

use std::ops::Range;

use futures_util::StreamExt as _;
use serde_json::json;

use crate::support::endings::{Ending, TRUNCATED};
use crate::support::gateway::{Gateway, user_turn};
use crate::support::pairs::{ALL_PROTOCOLS, ROUTES, ending, frames};
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

/// The form of a broken connection, and the number of bytes of the stream before it.
#[derive(Clone, Copy, Debug)]
struct StreamCut {
    reset: bool,
    at: usize,
}

impl StreamCut {
    /// The client's text, which the agent reads in any protocol.
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
    fn cuts(&self) -> Vec<StreamCut> {
        let frames = self.frames();
        let last = frames.iter().position(|frame| self.stream[frame.clone()].contains(self.last_frame));
        let incomplete = &frames[..=last.expect("a stream has an end")];
        // At its start, in its middle; what follows is the start of the next.
        let places = incomplete.iter().flat_map(|frame| [frame.start, frame.start + frame.len() / 2]);
        places.flat_map(|at| [false, true].map(|reset| StreamCut { reset, at })).collect()
    }

    async fn behind_a_gateway(&self, upstream: &Upstream) -> Gateway {
        let (protocol, settings) = (self.protocol, self.settings);
        let url = upstream.url(if protocol == "agent-api" { "/process" } else { "/v1" });
        let agent =
            format!("[agents.demo.upstream]\nprotocol = \"{protocol}\"\nurl = \"{url}\"\nretries = 0\n{settings}\n");
        Gateway::with_config(&format!("[store]\nkind = \"memory\"\n{agent}{ROUTES}")).await
    }
}

/// Says something to an agent for each of these cuts, over each protocol, and looks at how it ends.
async fn try_all(gateway: &Gateway, cuts: &[StreamCut], expected: Ending) {
    let pairs = ALL_PROTOCOLS.iter().flat_map(|client| cuts.iter().map(move |cut| (*client, *cut)));
    let trials = pairs.map(|(client, cut)| async move {
        let session = format!("{}-{}", cut.word(), client.name());
        let answer = client.turn(&session, &cut.word(), true).send(gateway).await;
        let found = ending(client, &answer, &TRUNCATED);
        assert_eq!(found, expected, "{client:?}, {cut:?}: {}", answer.text());
        if expected == Ending::Failed {
            client.expect_no_call(&frames(answer.text()));
        }
    });

    let mut trials = futures_util::stream::iter(trials.map(Box::pin)).buffer_unordered(TRIALS_AT_ONCE);
    while trials.next().await.is_some() {}
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
            StreamCut::parse(request).map_or_else(no_such_task, |cut| cut.reply(stream))
        });
        let gateway = agent.behind_a_gateway(&upstream).await;
        let cuts = agent.cuts();
        try_all(&gateway, &cuts, Ending::Failed).await;

        let asked = upstream.requests().iter().filter(|request| StreamCut::parse(request).is_some()).count();
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
    let upstream = Upstream::with_handler(move |request| match StreamCut::parse(request) {
        Some(cut) => cut.reply(agent.stream),
        None => {
            let artifact = json!({ "artifactId": "artifact-1", "parts": [{ "text": "It is 18 °C in Paris." }] });
            let status = json!({ "state": "TASK_STATE_COMPLETED" });
            let task = json!({ "id": "task-1", "contextId": "context-1", "status": status, "artifacts": [artifact] });
            Reply::frames([json!({ "task": task }).to_string()])
        }
    });
    let gateway = agent.behind_a_gateway(&upstream).await;

    // Before the first frame the gateway does not know the task; bytes before a reset may be lost.
    let first = agent.frames()[0].end;
    let cuts: Vec<StreamCut> = agent.cuts().into_iter().filter(|cut| cut.at >= first && !cut.reset).collect();
    try_all(&gateway, &cuts, Ending::Completed).await;
    for cut in cuts {
        let transcript = gateway.run_turn("demo", &user_turn(&cut.word())).await.expect_completed();
        let answer = transcript.messages.last().expect("an answer");
        assert_eq!(answer["content"][0]["text"], "It is 18 °C in Paris.", "{cut:?}: nothing is missing or repeated");
    }
}
