//! Clients that disconnect in the middle of an answer, and clients that cancel it. The agent's turn is stopped in the
//! form of its protocol, or continues if the client's protocol says so.
//!
//! Not here: turns that no client waits for (`background`).

use interlingua_core_testkit::scenario::{AgentAct, ClientAct, Ending, Mark, Scenario, Turn};
use interlingua_testing_clients::{End, ScriptedClient, Talk};

use crate::Choice;
use crate::stand::{AGENT, Stand};
use crate::support::http::Exchange;
use crate::support::poll_until;

/// An agent that never finishes.
fn endless() -> Scenario {
    let agent = vec![AgentAct::Text(&["So far."]), AgentAct::Hang];
    Scenario {
        name: "endless",
        turns: vec![Turn { client: vec![ClientAct::Say("hello")], agent, ending: Ending::Completed }],
    }
}

/// Leaves and cancels answers of this agent.
pub(crate) async fn play(protocol: &str) {
    let choice = Choice::of_environment();
    if !choice.agent(protocol) {
        return;
    }
    let stand = Stand::start(interlingua_testing_agents::find(protocol)).await;
    for client in interlingua_testing_clients::all().iter().filter(|client| choice.client(client.protocol())) {
        leave(&stand, &**client).await;
        cancel(&stand, &**client).await;
    }
}

/// Begins an endless answer, and waits until the agent works on it. Returns the id of its run.
async fn begin(stand: &Stand, client: &dyn ScriptedClient, name: &str) -> (Talk, Exchange, String) {
    let scenario = endless();
    let play = stand.stage.open(scenario.clone(), None);
    let mut talk = Talk::new(AGENT, &format!("{}-{name}-{play}", client.protocol()), play);
    let open = stand.send(&client.request(&scenario.turns[0].client, &mut talk)).await;

    let mark = Mark { play, turn: 0 };
    poll_until("the agent to be asked", async || stand.stage.received(mark)).await;
    let runs = stand.gateway.get(&format!("/agents/{AGENT}/runs")).await.json();
    let run = runs["data"][0]["id"].as_str().expect("a run").trim_start_matches("response_").to_owned();
    (talk, open, run)
}

/// Waits until a run is canceled and the agent's connection is closed. An agent that is called with several requests
/// may have no open one in this moment.
async fn wait_until_canceled(stand: &Stand, run: &str, disconnects: usize) {
    poll_until("a canceled run", async || {
        let found = stand.gateway.get(&format!("/agents/{AGENT}/runs/{run}")).await.json();
        (found["status"] == "canceled").then_some(())
    })
    .await;
    stand.server.wait_for_disconnects_or_idle(disconnects + 1).await;
}

async fn leave(stand: &Stand, client: &dyn ScriptedClient) {
    let disconnects = stand.server.disconnects();
    let (_, open, run) = begin(stand, client, "leaves").await;
    drop(open);
    if client.leaves_runs_behind() {
        let found = stand.gateway.get(&format!("/agents/{AGENT}/runs/{run}")).await.json();
        assert_eq!(found["status"], "in_progress", "{} goes on", client.protocol());
        stand.gateway.post(&format!("/agents/{AGENT}/runs/{run}/cancel"), &serde_json::json!({})).await;
    }
    wait_until_canceled(stand, &run, disconnects).await;
}

async fn cancel(stand: &Stand, client: &dyn ScriptedClient) {
    let disconnects = stand.server.disconnects();
    let (mut talk, open, run) = begin(stand, client, "cancels").await;
    let Some(request) = client.cancel(&run, &talk) else {
        drop(open);
        return;
    };
    let answer = stand.send(&request).await.response().await;
    assert_eq!(answer.status, 200, "{}: {}", client.protocol(), answer.text());
    wait_until_canceled(stand, &run, disconnects).await;

    let answer = open.response().await;
    let shown = client.read(answer.status, answer.text(), &mut talk);
    // A service without a word for it shows an error, and so does one that had not answered yet.
    assert!(
        matches!(shown.end, Some(End::Canceled | End::Failed | End::Refused(_))),
        "{}: {shown:?}",
        client.protocol()
    );
}
