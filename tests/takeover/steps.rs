//! A fault at every step of a turn: each call of the store before it begins and after it is done, each event before it
//! is written, each commit before its gateway learns of it. At any step, the run has one end, the same on all gateways;
//! the agent is called at most once; its session continues; and no client has seen events that are not stored.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Client, ReceivedAnswer};
use crate::stand::Stand;
use crate::support::agent::{approval_request, text_reply};
use crate::support::cluster::stream::Frame;
use crate::support::cluster::{Member, Oracle, Protocol, RunView, Task};
use crate::support::gateway::{approval_in, last_input_text, user_turn_in};
use crate::support::poll_until;
use crate::support::replicas::{Fault, StepSelector};
use crate::support::upstream::Upstream;

/// Time that a turn may still take steps after its client received the end.
const AFTERWARDS: Duration = Duration::from_millis(150);
/// More steps than a turn has.
const MAX_STEPS: usize = 400;

/// The request to the gateway that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Api {
    Agent,
    Responses,
    A2a,
    Hitl,
}

/// The turn that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plot {
    /// The first one of a session.
    First,
    /// The answer to what a run has asked on another gateway.
    Answer,
}

/// The fault of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Killed,
    /// For longer than its lease.
    Paused,
    CutOff,
    /// For a moment.
    PausedBriefly,
    CutOffBriefly,
}

impl Kind {
    const fn fault(self) -> Fault {
        match self {
            Self::Killed => Fault::Kill,
            Self::Paused | Self::PausedBriefly => Fault::Pause,
            Self::CutOff | Self::CutOffBriefly => Fault::CutOff,
        }
    }

    const fn is_brief(self) -> bool {
        matches!(self, Self::PausedBriefly | Self::CutOffBriefly)
    }
}

/// An agent that asks for an approval on request, and otherwise repeats its input.
fn agent() -> Upstream {
    Upstream::with_handler(|request| {
        let body = request.json();
        let text = last_input_text(&body);
        match text.strip_prefix("ask ") {
            Some(name) => approval_request(name),
            None if text.is_empty() => text_reply(&["thank ", "you"]),
            None => text_reply(&["you said ", &text]),
        }
    })
}

fn calls(stand: &Stand) -> usize {
    stand.agent.requests().len()
}

/// A session in which a run may wait.
struct Scene {
    client: Api,
    session: String,
    /// The run that waits, as clients of the protocol name it, and what it asks.
    waiting: Option<(String, String)>,
}

impl Scene {
    async fn new(client: Api, plot: Plot, name: &str, other: &Member) -> Self {
        let mut scene = Self { client, session: name.to_owned(), waiting: None };
        if plot == Plot::Answer {
            let item = format!("item-{name}");
            let known: HashSet<String> = other.runs().await.into_iter().collect();
            let asked = scene.say(other, &format!("ask {item}")).await.end().await;
            assert_eq!(asked.status, Some(200), "{asked:?}");
            let run = other.runs().await.into_iter().find(|run| !known.contains(run)).expect("a run");
            scene.session = other.run(&run).await["session_id"].as_str().unwrap().to_owned();
            scene.waiting = Some((run, item));
        }
        scene
    }

    /// Says something, and follows what comes.
    async fn say(&self, member: &Member, words: &str) -> Client {
        let session = &self.session;
        let (path, body) = match self.client {
            Api::Agent => ("/agents/demo/process", user_turn_in(session, words)),
            Api::Responses => ("/v1/responses", json!({ "model": "demo", "input": words, "stream": true })),
            Api::A2a => ("/a2a/demo/message:stream", self.message(json!({ "text": words }))),
            Api::Hitl => {
                let body = json!({ "user_id": "pat", "session_id": session, "query": words });
                ("/hitl/demo/agent/invoke", body)
            }
        };
        Client::new(member.start_post(path, &body).await)
    }

    fn message(&self, part: Value) -> Value {
        let mut message = json!({ "messageId": format!("m-{}", self.session), "role": "ROLE_USER", "parts": [part] });
        match &self.waiting {
            Some((run, _)) => message["taskId"] = run.trim_start_matches("response_").into(),
            None => message["contextId"] = self.session.as_str().into(),
        }
        json!({ "message": message })
    }

    /// Accepts what the waiting run asks.
    async fn accept(&self, member: &Member) -> Client {
        let (run, item) = self.waiting.as_ref().expect("a run that waits");
        let (path, body) = match self.client {
            Api::Agent => ("/agents/demo/process", approval_in(&self.session, item)),
            Api::Responses => {
                let previous = run.replace("response_", "resp_").replace('-', "");
                let input = [json!({ "type": "mcp_approval_response", "approval_request_id": item, "approve": true })];
                let body = json!({ "model": "demo", "previous_response_id": previous, "input": input, "stream": true });
                ("/v1/responses", body)
            }
            Api::A2a => {
                let part = json!({ "data": { "interrupt_id": item, "decision": "accept" } });
                ("/a2a/demo/message:stream", self.message(part))
            }
            Api::Hitl => {
                let body = json!({
                    "user_id": "pat", "session_id": self.session, "response_type": "accept", "args": null,
                });
                ("/hitl/demo/agent/resume", body)
            }
        };
        Client::new(member.start_post(path, &body).await)
    }

    async fn turn(&self, member: &Member) -> Client {
        match self.waiting {
            Some(_) => self.accept(member).await,
            None => self.say(member, "hello").await,
        }
    }
}

/// Waits for the end of a run, and checks that it is the same on all these gateways. Returns its events. `None`: the
/// run was deleted, because its turn could not begin.
async fn ended(members: &[&Member], id: &str, what: &str) -> Option<Vec<Value>> {
    let first = members[0];
    let is_deleted = poll_until(&format!("run {id} to end, {what}"), async || {
        let Some(run) = first.find_run(id).await else { return Some(true) };
        let state = run["status"].as_str().unwrap_or_default().to_owned();
        ["completed", "failed", "canceled", "incomplete"].contains(&&*state).then_some(false)
    })
    .await;
    if is_deleted {
        for member in members {
            assert_eq!(member.find_run(id).await, None, "{what}");
        }
        return None;
    }
    let (oracle, mut seen) = (Oracle::default(), RunView::new(Protocol::AgentApi, Task::new("demo", "")));
    seen.take(whole(first, id, what).await);
    oracle.check_view(&seen);
    for other in &members[1..] {
        oracle.compare_frames(&seen, 200, &whole(other, id, what).await, "on another gateway");
        assert_eq!(other.run(id).await, first.run(id).await, "{what}");
    }
    oracle.expect_none(what);
    Some(seen.frames.iter().map(Frame::value).collect())
}

/// The events of a run that has ended. A gateway that learns in this moment that another one has taken the run over
/// ends the stream without a word, and a client begins it again.
async fn whole(member: &Member, id: &str, what: &str) -> Vec<Frame> {
    poll_until(&format!("the events of run {id}, {what}"), async || {
        let frames = member.frames(id).await;
        frames.iter().any(Frame::is_end).then_some(frames)
    })
    .await
}

/// The events that a client of the Agent API received are the stored ones.
fn expect_stored(received: &ReceivedAnswer, stored: &[Value], what: &str) {
    for frame in &received.frames {
        let is_stored = stored.iter().any(|known| known == frame);
        // A stream that was broken off may say so: that is no event of the run.
        let is_notice = frame["sequence_number"].is_null() || frame["error"]["code"] == "GATEWAY_RESTARTED";
        assert!(is_stored || is_notice, "{what}: a client has seen {frame}, which is not stored: {stored:?}");
    }
}

/// Plays a turn with a fault at a step. `None`: it passed without reaching the step.
async fn play(stand: &mut Stand, client: Api, plot: Plot, kind: Kind, step: StepSelector) -> Option<String> {
    let number = match step {
        StepSelector::Number(number) => number.to_string(),
        StepSelector::Name(name) => name.replace(' ', "-"),
    };
    let name = format!("{client:?}-{plot:?}-{kind:?}-{number}");
    let scene = Scene::new(client, plot, &name, &stand.members[1]).await;
    let known: HashSet<String> = stand.members[1].runs().await.into_iter().collect();
    let calls_before = calls(stand);

    let failing = &stand.members[0];
    failing.replica.fault_at(step, kind.fault());
    let mut stopped = failing.replica.stopped();
    let asking = scene.turn(failing).await;
    let reached = poll_until(&format!("{name}: a fault, or the end of the turn"), async || {
        let name = stopped.borrow_and_update().clone();
        if name.is_none() && !asking.is_over() {
            return None;
        }
        Some(name)
    })
    .await;
    let reached = match reached {
        Some(reached) => Some(reached),
        None => {
            let waited = tokio::time::timeout(AFTERWARDS, stopped.wait_for(Option::is_some)).await;
            waited.ok().and_then(|stopped| stopped.unwrap().clone())
        }
    };
    failing.replica.no_fault();
    let Some(reached) = reached else {
        let received = asking.end().await;
        assert!(received.is_complete && received.status == Some(200), "{name}: {received:?}");
        return None;
    };

    let what = format!("{name}, {reached}");
    settle(stand, &scene, asking, kind, &known, calls_before, &what).await;
    Some(reached)
}

/// Lets the other gateways continue, and checks the result.
async fn settle(
    stand: &mut Stand,
    scene: &Scene,
    asking: Client,
    kind: Kind,
    known: &HashSet<String>,
    calls_before: usize,
    what: &str,
) {
    if kind.is_brief() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    } else {
        stand.take_over().await;
    }
    let received = if kind == Kind::Killed {
        stand.members[0] = stand.join().await;
        asking.leave().await
    } else {
        stand.members[0].replica.undo(kind.fault());
        asking.end().await
    };

    let members: Vec<&Member> = stand.members.iter().collect();
    // A turn that was not begun may be begun again: what waited waits.
    let mut called = calls(stand) - calls_before;
    assert!(called <= 1, "{what}: the agent was called {called} times");
    if scene.waiting.is_some() && called == 0 {
        // Refused if the turn was begun: then its run has failed.
        scene.accept(members[2]).await.end().await;
        called = calls(stand) - calls_before;
        assert!(called <= 1, "{what}: the agent was called {called} times");
    }

    let all = members[1].runs().await;
    let mut seen = Vec::new();
    for id in all.iter().filter(|id| !known.contains(*id)) {
        match ended(&members, id, what).await {
            Some(events) => seen.extend(events),
            None => assert_ne!(received.status, Some(200), "{what}: only the run of a refused turn is deleted"),
        }
    }
    if scene.client == Api::Agent {
        expect_stored(&received, &seen, what);
    }
    let end = seen.last().cloned().unwrap_or_default();
    let session = end["session_id"].as_str().unwrap_or(&scene.session);
    for (index, member) in members.iter().enumerate() {
        let next = format!("next {index}");
        let calls_before = calls(stand);
        let answer = Client::new(member.start_post("/agents/demo/process", &user_turn_in(session, &next)).await);
        let answer = answer.end().await;
        let last = answer.frames.last().cloned().unwrap_or_default();
        assert_eq!(last["status"], "completed", "{what}: the next turn on gateway {index}: {answer:?}");
        assert_eq!(calls(stand) - calls_before, 1, "{what}: {next}");
        let request = stand.agent.requests().last().unwrap().json();
        let input = request["input"].as_array().unwrap().iter().map(Value::to_string);
        let times = input.filter(|message| message.contains("\"user\"") && message.contains("hello")).count();
        assert!(times <= 1, "{what}: the session has the turn once: {request}");
        if scene.waiting.is_none() && end["status"] == "completed" {
            assert_eq!(times, 1, "{what}: the session has what was completed: {request}");
        }
    }
}

/// Plays the turn with a fault at each of its steps.
async fn every_step(client: Api, plot: Plot, kind: Kind) {
    let mut stand = Stand::with_history(agent(), 3).await;
    let mut steps = Vec::new();
    while let Some(step) = play(&mut stand, client, plot, kind, StepSelector::Number(steps.len())).await {
        steps.push(step);
        assert!(steps.len() < MAX_STEPS, "{steps:?}");
    }
    // The order of background steps differs between turns, so that counting may miss one.
    for wanted in ["before open", "after a commit"] {
        if !steps.iter().any(|step| step == wanted) {
            let reached = play(&mut stand, client, plot, kind, StepSelector::Name(wanted)).await;
            assert_eq!(reached.as_deref(), Some(wanted), "{steps:?}");
        }
    }
}

macro_rules! every_step {
    ($($name:ident: $client:ident $plot:ident $kind:ident,)+) => {
        $(
            #[tokio::test]
            async fn $name() {
                every_step(Api::$client, Plot::$plot, Kind::$kind).await;
            }
        )+
    };
}

every_step! {
    a_turn_of_the_agent_api_whose_gateway_is_killed: Agent First Killed,
    a_turn_of_the_agent_api_whose_gateway_is_paused: Agent First Paused,
    a_turn_of_the_agent_api_whose_gateway_is_cut_off: Agent First CutOff,
    a_turn_of_the_agent_api_whose_gateway_is_paused_briefly: Agent First PausedBriefly,
    a_turn_of_the_agent_api_whose_gateway_is_cut_off_briefly: Agent First CutOffBriefly,
    a_turn_of_responses_whose_gateway_is_killed: Responses First Killed,
    a_turn_of_responses_whose_gateway_is_paused: Responses First Paused,
    a_turn_of_a2a_whose_gateway_is_killed: A2a First Killed,
    a_turn_of_a2a_whose_gateway_is_cut_off: A2a First CutOff,
    a_turn_of_hitl_whose_gateway_is_killed: Hitl First Killed,
    a_turn_of_hitl_whose_gateway_is_paused: Hitl First Paused,
    an_answer_over_the_agent_api_whose_gateway_is_killed: Agent Answer Killed,
    an_answer_over_the_agent_api_whose_gateway_is_paused: Agent Answer Paused,
    an_answer_over_responses_whose_gateway_is_cut_off: Responses Answer CutOff,
    an_answer_over_a2a_whose_gateway_is_killed: A2a Answer Killed,
    an_answer_over_a2a_whose_gateway_is_paused: A2a Answer Paused,
    an_answer_over_hitl_whose_gateway_is_killed: Hitl Answer Killed,
}
