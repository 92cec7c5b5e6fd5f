//! Conversations of scripted clients with the scripted agents of every protocol: the first turn is in the store, the
//! second one is played by the gateway of today. So the state that each connector keeps of its session is read again.

use std::collections::BTreeSet;

use interlingua_core::loss::ContentKind;
use interlingua_core::pending::Decision;
use interlingua_core_testkit::scenario::{AgentAct, Ask, Call, ClientAct, Ending, Item, Scenario, Tool, Turn};
use interlingua_testing_clients::{End, ScriptedClient, ShownTurn, Talk};
use serde_json::{Value, json};

use crate::OpenedCopy;
use crate::contents::{PlayedTurn, StoredTalk};
use crate::demo::{newest, open_items};
use crate::stand::{Stand, client};

const MAIL: Call = Call { name: "a", tool: "send_mail", arguments: &[r#"{"to":"ada@example.com"}"#] };
const WIPE: Call = Call { name: "b", tool: "wipe_disk", arguments: &[r#"{"disk":"sda"}"#] };
const PARIS: Call = Call { name: "a", tool: "weather", arguments: &[r#"{"city":"Paris"}"#] };
const WEATHER: Tool = Tool {
    name: "weather",
    description: "The weather of a city.",
    parameters: r#"{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}"#,
};
const DONE: AgentAct = AgentAct::Text(&["It is ", "done."]);

/// The scenarios, each with the agent's question and the answers in the second turn: to accept, and to refuse where a
/// client can. Never changed: the first turns are in the stores.
#[allow(clippy::type_complexity, reason = "a table with a name, a question and two answers in each row")]
fn scenarios() -> Vec<(&'static str, Vec<AgentAct>, [Vec<ClientAct>; 2])> {
    let decide = |decision| vec![ClientAct::Decide(0, decision)];
    let decide_both = |first, second| vec![ClientAct::Decide(0, first), ClientAct::Decide(1, second)];
    let same = |act: ClientAct| [vec![act], vec![act]];
    let (accept, reject) = (Decision::Accept, Decision::Reject);
    let ask = AgentAct::Ask;
    vec![
        ("approval", vec![ask(Ask::Approval(MAIL))], [decide(accept), decide(reject)]),
        (
            "approvals",
            vec![ask(Ask::Approval(MAIL)), ask(Ask::Approval(WIPE))],
            [decide_both(accept, reject), decide_both(reject, accept)],
        ),
        ("question", vec![ask(Ask::Question("a", "Which colour?", None))], same(ClientAct::Answer(0, "blue"))),
        ("login", vec![ask(Ask::Login("a", "https://example.com/login"))], same(ClientAct::LoggedIn(0))),
        ("client-tool", vec![AgentAct::ClientCall(PARIS)], same(ClientAct::Output(0, "18 C"))),
        ("words", vec![DONE], same(ClientAct::Say("And now?"))),
    ]
}

/// A scenario with one of its two ends.
fn scenario(name: &'static str, question: &[AgentAct], answers: &[ClientAct]) -> Scenario {
    let mut client = vec![ClientAct::Say("hello")];
    if question.iter().any(|act| matches!(act, AgentAct::ClientCall(_))) {
        client.push(ClientAct::Declare(WEATHER));
    }
    let mut second = answers.to_vec();
    if matches!(second[..], [ClientAct::Say(_)]) {
        second.push(ClientAct::Remember);
    }
    let first = Turn { client, agent: question.to_vec(), ending: Ending::Completed };
    let second = Turn { client: second, agent: vec![DONE], ending: Ending::Completed };
    Scenario { name, turns: vec![first, second] }
}

fn find(name: &str, end: usize) -> Scenario {
    let (name, question, answers) = scenarios().into_iter().find(|(known, ..)| *known == name).unwrap();
    scenario(name, &question, &answers[end])
}

/// The scenarios of the stored conversations, in the order in which they were opened, all with the same of two ends.
pub(crate) fn plays(played: &[PlayedTurn], end: usize) -> Vec<Scenario> {
    let numbers: Vec<usize> = played.iter().map(|turn| turn.talk.restore().mark.play as usize).collect();
    assert!(numbers.iter().copied().eq(0..played.len()), "plays are numbered in order");
    played.iter().map(|turn| find(scenario_name(&turn.scenario), end)).collect()
}

fn scenario_name(name: &str) -> &'static str {
    scenarios().into_iter().map(|(known, ..)| known).find(|known| *known == name).expect("a known scenario")
}

/// Plays the first turn of each scenario with every agent, each with another client.
pub(crate) async fn write(stand: &Stand) -> Vec<PlayedTurn> {
    let mut written = Vec::new();
    let mut next = 0;
    for agent in interlingua_testing_agents::all() {
        for (name, ..) in scenarios() {
            let ends = [0, 1].map(|end| find(name, end));
            if !ends.iter().all(|scenario| scenario.turns.iter().all(|turn| agent.plays(turn))) {
                continue;
            }
            let clients = interlingua_testing_clients::all();
            let count = clients.len();
            let can = |client: &dyn ScriptedClient| {
                ends.iter()
                    .flat_map(|scenario| &scenario.turns)
                    .flat_map(|turn| &turn.client)
                    .all(|act| client.can(act))
            };
            let mut candidates = clients.iter().cycle().skip(next % count).take(count);
            let Some(client) = candidates.find(|client| can(&***client)) else { continue };
            next += 1;
            written.push(begin(stand, agent.protocol(), &**client, &ends[0]).await);
        }
    }
    written
}

async fn begin(stand: &Stand, agent: &str, client: &dyn ScriptedClient, scenario: &Scenario) -> PlayedTurn {
    let play = stand.stage.open(scenario.clone(), None);
    let session = format!("{}-{agent}-{}", client.protocol(), scenario.name);
    let mut talk = Talk::new(agent, &session, play);
    let (shown, answer) = exchange(stand, client, &scenario.turns[0].client, &mut talk).await;
    assert_eq!(shown.end, Some(End::Completed), "{session}: {answer}");
    let run = newest(&stand.ann(), agent).await;
    let id = run["id"].as_str().unwrap().to_owned();
    let run = stand.ann().run(agent, &id).await;
    let items = if scenario.name == "words" { Vec::new() } else { open_items(&run) };
    PlayedTurn {
        agent: agent.to_owned(),
        scenario: scenario.name.to_owned(),
        client: client.protocol().to_owned(),
        items,
        run: id,
        session: run["session_id"].as_str().unwrap().to_owned(),
        talk: StoredTalk::new(&talk),
    }
}

/// Sends a request of a scripted client and reads the answer.
async fn exchange(
    stand: &Stand,
    client: &dyn ScriptedClient,
    acts: &[ClientAct],
    talk: &mut Talk,
) -> (ShownTurn, String) {
    let request = client.request(acts, talk);
    let mut open = stand.send(&request).await;
    let status = open.status().await;
    let is_stream = open.header("content-type").await.is_some_and(|kind| kind.starts_with("text/event-stream"));
    let answer = if !is_stream || open.header("content-length").await.is_some() {
        open.read_response().await.text().to_owned()
    } else {
        let mut text = String::new();
        while let Some(event) = open.event().await {
            text.push_str(&event);
            text.push_str("\n\n");
            if client.leaves_at().is_some_and(|word| event.contains(word)) {
                break;
            }
        }
        text
    };
    (client.read(status, &answer, talk), format!("{}\n{status} {answer}", request.body))
}

/// Plays the second turn of every stored conversation with its own client, with one of the two ends.
pub(crate) async fn continue_all(opened: &OpenedCopy, end: usize) {
    for turn in &opened.contents.played {
        let scenario = find(scenario_name(&turn.scenario), end);
        let what = format!("{}: {} with {} and {}, end {end}", opened.what, turn.scenario, turn.agent, turn.client);
        let client = client(&turn.client);
        let mut talk = turn.talk.restore();
        let mut answers = Vec::new();
        let mut last = ShownTurn::default();
        for acts in requests(&*client, &scenario.turns[1].client) {
            let (shown, answer) = exchange(&opened.stand, &*client, &acts, &mut talk).await;
            answers.push(answer);
            last = shown;
        }
        assert_eq!(last.end, Some(End::Completed), "{what}: {answers:#?}");
        assert!(last.items.contains(&Item::new(ContentKind::Text, "It is done.")), "{what}: {last:?} {answers:#?}");
        assert_received(opened, turn, &scenario, &what);
    }
}

/// Answers the items of every stored conversation over the Agent API, the last one first.
pub(crate) async fn answer_all_over_the_agent_api(opened: &OpenedCopy, end: usize) {
    let ann = opened.stand.ann();
    for turn in &opened.contents.played {
        let scenario = find(scenario_name(&turn.scenario), end);
        let what =
            format!("{}: {} with {}, answered over agent-api, end {end}", opened.what, turn.scenario, turn.agent);
        let acts = &scenario.turns[1].client;
        let mut input: Vec<Value> = acts.iter().filter_map(|act| message(act, &turn.items)).collect();
        if input.is_empty() {
            continue;
        }
        input.reverse();
        let body = json!({ "session_id": turn.session, "stream": false, "input": input });
        let answer = ann.post(&format!("/agents/{}/process", turn.agent), &body).await;
        assert_eq!(answer.status, 200, "{what}: {}", answer.text());
        assert!(answer.text().contains("It is done."), "{what}: {}", answer.text());
        assert_received(opened, turn, &scenario, &what);
    }
}

/// An answer as a message of the Agent API.
fn message(act: &ClientAct, items: &[String]) -> Option<Value> {
    let id = items.get(act.answers()?)?;
    if let ClientAct::Output(_, output) = act {
        let data = json!({ "call_id": id, "output": output });
        return Some(
            json!({ "type": "function_call_output", "role": "tool", "content": [{ "type": "data", "data": data }] }),
        );
    }
    let (approve, interrupt) = match act {
        ClientAct::Decide(_, decision) => (*decision == Decision::Accept, json!({ "decision": decision.as_str() })),
        ClientAct::Answer(_, words) => (true, json!({ "decision": "respond", "text": words })),
        ClientAct::LoggedIn(_) => (true, json!({ "decision": "accept" })),
        other => panic!("no scenario answers with {other:?}"),
    };
    let data = json!({ "approval_request_id": id, "id": id, "approve": approve, "interrupt": interrupt });
    Some(json!({ "type": "mcp_approval_response", "role": "user", "content": [{ "type": "data", "data": data }] }))
}

/// The agent received what the client sent, and nothing else.
fn assert_received(opened: &OpenedCopy, turn: &PlayedTurn, scenario: &Scenario, what: &str) {
    let mark = turn.talk.restore().mark;
    let received = opened.stand.stage.received(mark).unwrap_or_else(|| panic!("{what}: no request reached the agent"));
    let ignored = |kind: ContentKind| match kind {
        ContentKind::ToolDeclaration => true,
        // The scripted client of Chat Completions names no session, so an agent with a memory of its own begins a new
        // one.
        ContentKind::History => scenario.name != "words" || turn.client == "chat-completions",
        _ => false,
    };
    let sorted =
        |items: Vec<Item>| -> BTreeSet<Item> { items.into_iter().filter(|item| !ignored(item.kind)).collect() };
    assert_eq!(sorted(received), sorted(scenario.turns[1].sent()), "{what}");
}

/// The acts of each request: all at once, or each answer alone.
fn requests(client: &dyn ScriptedClient, acts: &[ClientAct]) -> Vec<Vec<ClientAct>> {
    let answers = acts.iter().filter(|act| act.answers().is_some()).count();
    if answers < 2 || !acts.iter().any(|act| client.answers_alone(act)) {
        return vec![acts.to_vec()];
    }
    acts.iter().map(|act| vec![act.to(0)]).collect()
}
