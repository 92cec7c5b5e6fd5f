//! Variants that are no pair of protocols of their own: agents that answer in other forms or with other settings,
//! clients that use their protocol in other ways, runs in a file, and agents with several endpoints. Each is tried with
//! one client.
//!
//! Not here: tables. The pages of the protocols describe contents that arrive in another form than by default.

use interlingua_core_testkit::scenario::{Scenario, find, scenarios};
use interlingua_testing_clients::ScriptedClient;

use crate::oracle::judge;
use crate::stand::{Setup, Stand};
use crate::{Choice, is_whole};

/// The scenarios for CI of variants that concern the gateway more than a protocol.
const SOME: [&str; 9] = [
    "text",
    "parallel-agent-tools",
    "parallel-client-tools",
    "approval-accept",
    "two-approvals",
    "question-with-schema",
    "failure-after-words",
    "after-a-failure",
    "memory",
];

/// So many further sessions one of two endpoints may be left out by chance.
const MAX_MORE: usize = 100;

/// Plays scenarios of one pair. Returns what is wrong.
async fn play(stand: &Stand, name: &str, client: &dyn ScriptedClient, scenarios: &[Scenario]) -> Vec<String> {
    let choice = Choice::of_environment();
    let mut wrong = Vec::new();
    for scenario in scenarios.iter().filter(|scenario| choice.scenario(scenario.name)) {
        if !choice.client(client.protocol()) || !stand.can_play(client, scenario) {
            continue;
        }
        let played = stand.play(client, scenario, None).await;
        let pair = format!("{} ← {name}, {:?}", client.protocol(), scenario.name);
        wrong.extend(judge(scenario, &played).wrong.iter().map(|wrong| format!("{pair}: {wrong}")));
    }
    wrong
}

fn expect_nothing(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The scenarios that are played here.
fn some() -> Vec<Scenario> {
    let mut some = scenarios();
    some.retain(|scenario| is_whole() || SOME.contains(&scenario.name));
    some
}

/// Plays every scenario with each form of an agent.
async fn forms(protocol: &str) {
    // The one client that can say everything.
    let clients = interlingua_testing_clients::all();
    let client = clients.iter().find(|client| client.protocol() == "agent-api").expect("a client");
    let mut wrong = Vec::new();
    let forms = interlingua_testing_agents::variants().into_iter().filter(|(_, agent)| agent.protocol() == protocol);
    for (name, agent) in forms.filter(|_| Choice::of_environment().agent(protocol)) {
        let stand = Stand::start(agent).await;
        wrong.extend(play(&stand, name, &**client, &scenarios()).await);
    }
    expect_nothing(&wrong);
}

#[tokio::test]
async fn every_version_and_binding_of_a2a_says_the_same() {
    forms("a2a").await;
}

#[tokio::test]
async fn every_kind_of_responses_server_says_the_same() {
    forms("responses").await;
}

#[tokio::test]
async fn servers_of_chat_completions_say_the_same() {
    forms("chat-completions").await;
}

#[tokio::test]
async fn agents_of_ag_ui_say_the_same() {
    forms("ag-ui").await;
}

#[tokio::test]
async fn servers_of_anthropic_messages_say_the_same() {
    forms("anthropic-messages").await;
}

#[tokio::test]
async fn clients_that_use_their_protocol_in_other_ways_are_shown_the_same() {
    let mut wrong = Vec::new();
    let mut scenarios = scenarios();
    scenarios.retain(|scenario| is_whole() || !scenario.name.starts_with("large-"));
    // The agent that can say everything, and one with words that only their author can read.
    for protocol in ["agent-api", "anthropic-messages"] {
        if !Choice::of_environment().agent(protocol) {
            continue;
        }
        let stand = Stand::start(interlingua_testing_agents::find(protocol)).await;
        for (name, client) in interlingua_testing_clients::variants() {
            let pair = format!("{protocol} to {name}");
            wrong.extend(play(&stand, &pair, &*client, &scenarios).await);
        }
    }
    expect_nothing(&wrong);
}

#[test]
fn every_form_is_played() {
    let played = ["a2a", "ag-ui", "responses", "chat-completions", "anthropic-messages"];
    for (name, agent) in interlingua_testing_agents::variants() {
        assert!(played.contains(&agent.protocol()), "{name}");
    }
}

#[tokio::test]
async fn runs_kept_in_a_file_are_the_same() {
    let (clients, agents) = (interlingua_testing_clients::all(), interlingua_testing_agents::all());
    let mut wrong = Vec::new();
    // Another client for each agent.
    for (agent, client) in agents.into_iter().zip(clients.iter().cycle()) {
        if Choice::of_environment().agent(agent.protocol()) {
            let name = agent.protocol();
            let stand = Stand::set_up(agent, Setup { has_file: true, ..Setup::default() }).await;
            wrong.extend(play(&stand, name, &**client, &some()).await);
        }
    }
    expect_nothing(&wrong);
}

#[tokio::test]
async fn agents_with_two_endpoints_answer_the_same() {
    let clients = interlingua_testing_clients::all();
    let mut wrong = Vec::new();
    for (agent, client) in interlingua_testing_agents::all().into_iter().zip(clients.iter().cycle().skip(1)) {
        let choice = Choice::of_environment();
        if !choice.agent(agent.protocol()) || !choice.is_all() {
            continue;
        }
        let name = agent.protocol();
        let stand = Stand::set_up(agent, Setup { endpoints: 2, ..Setup::default() }).await;
        wrong.extend(play(&stand, name, &**client, &some()).await);
        // Sessions are spread by their names.
        let text = [find("text")];
        let is_left_out = || stand.others.iter().chain([&stand.server]).any(|server| server.requests().is_empty());
        for _ in 0..MAX_MORE {
            if is_left_out() {
                wrong.extend(play(&stand, name, &**client, &text).await);
            }
        }
        assert!(!is_left_out(), "{name}: each endpoint has a share");
    }
    expect_nothing(&wrong);
}
