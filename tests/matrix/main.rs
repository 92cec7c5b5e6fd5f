//! The matrix: every client protocol with every agent protocol, over scenarios that say what an agent and a client do.
//! What one end says is compared with what the other end is shown; what differs must be in the gateway's log.
//!
//! ```text
//! cargo test --test matrix                                      the part that CI runs
//! cargo xtask matrix                                            the whole
//! MATRIX=hitl,a2a,two-approvals cargo test --test matrix        one client, agent, scenario; each may be empty
//! ```
//!
//! Not here: the scenarios (`core/src/testkit/scenario`), agents (`testing/agents`) and clients (`testing/clients`).

#[path = "../support/mod.rs"]
mod support;

mod losses;
mod oracle;
mod play;
mod stand;

use oracle::judge;
use stand::Stand;

/// What `MATRIX` chooses: a client, an agent, a scenario. Empty ones choose all.
fn chosen(place: usize, name: &str) -> bool {
    let wanted = std::env::var("MATRIX").unwrap_or_default();
    let wanted = wanted.split(',').nth(place).unwrap_or_default().to_owned();
    wanted.is_empty() || wanted == name
}

/// Plays every scenario with this agent and every client that can.
async fn plays(protocol: &str) {
    if !chosen(1, protocol) {
        return;
    }
    let agent = interlingua_testing_agents::find(protocol);
    let stand = Stand::start(agent).await;
    let mut wrong = Vec::new();
    for client in interlingua_testing_clients::all().iter().filter(|client| chosen(0, client.protocol())) {
        if client.protocol() != "agent-api" && std::env::var_os("MATRIX").is_none() {
            continue;
        }
        for scenario in interlingua_core::testkit::scenario::scenarios() {
            if !chosen(2, scenario.name) || !stand.can_play(&**client, &scenario) {
                continue;
            }
            let played = stand.play(&**client, &scenario, None).await;
            let verdict = judge(&scenario, &played);
            let place = format!("{} ← {protocol}, {}", client.protocol(), scenario.name);
            wrong.extend(verdict.wrong.iter().map(|wrong| format!("{place}: {wrong}")));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn agent_api() {
    plays("agent-api").await;
}

#[tokio::test]
async fn chat_completions() {
    plays("chat-completions").await;
}

#[tokio::test]
async fn anthropic_messages() {
    plays("anthropic-messages").await;
}
