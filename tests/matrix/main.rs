//! The matrix: every client protocol with every agent protocol, over scenarios that say what an agent and a client do.
//! What one end says is compared with what the other end is shown; what differs must be in the gateway's log.
//!
//! ```text
//! cargo test --test matrix                                      what CI runs: every scenario of every pair, some cuts
//! cargo xtask matrix                                            the whole: answers are cut at every frame, streams that
//!                                                               are taken up again at every event, all of the variants
//! cargo xtask matrix --write                                    and writes docs/matrix.md
//! MATRIX=hitl,a2a,two-approvals cargo test --test matrix        one client, agent, scenario; each may be empty
//! ```
//!
//! Not here: the scenarios (`crates/core-testkit/src/scenario`), agents (`testing/agents`) and clients
//! (`testing/clients`).

use interlingua_testing_support as support;

mod background;
mod cuts;
mod decisions;
mod leaving;
mod losses;
mod oracle;
mod play;
mod stand;
mod table;
mod variants;

use interlingua_core_testkit::scenario::scenarios;
use oracle::judge;
use stand::Stand;
use table::Table;

/// The selected cells, by an environment variable: all, or one client, agent or scenario.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice(Vec<String>);

impl Choice {
    fn of_environment() -> Self {
        let wanted = std::env::var("MATRIX").unwrap_or_default();
        Self(wanted.split(',').map(str::to_owned).collect())
    }

    fn takes(&self, place: usize, name: &str) -> bool {
        self.0.get(place).is_none_or(|wanted| wanted.is_empty() || wanted == name)
    }

    fn client(&self, name: &str) -> bool {
        self.takes(0, name)
    }

    fn agent(&self, name: &str) -> bool {
        self.takes(1, name)
    }

    fn scenario(&self, name: &str) -> bool {
        self.takes(2, name)
    }

    fn is_all(&self) -> bool {
        self.0.iter().all(String::is_empty)
    }
}

/// Whether everything is tried, not only what CI has time for.
fn is_whole() -> bool {
    std::env::var_os("MATRIX_WHOLE").is_some()
}

/// Plays every scenario with this agent and every client that can, and compares the table.
async fn contents(protocol: &str) {
    let choice = Choice::of_environment();
    if !choice.agent(protocol) {
        return;
    }
    let stand = Stand::start(interlingua_testing_agents::find(protocol)).await;
    let mut table = Table::default();
    let mut wrong = Vec::new();
    let clients = interlingua_testing_clients::all();
    // Large scenarios take long: in CI one client for each agent plays them.
    let with_large = AGENTS.iter().position(|name| *name == protocol).unwrap_or(0) % clients.len();
    for (place, client) in clients.iter().enumerate().filter(|(_, client)| choice.client(client.protocol())) {
        for scenario in scenarios().iter().filter(|scenario| choice.scenario(scenario.name)) {
            let is_left_out =
                scenario.name.starts_with("large-") && place != with_large && !is_whole() && choice.is_all();
            if is_left_out || !stand.can_play(&**client, scenario) {
                continue;
            }
            let played = stand.play(&**client, scenario, None).await;
            let verdict = judge(scenario, &played);
            let pair = format!("{} ← {protocol}, {:?}", client.protocol(), scenario.name);
            wrong.extend(verdict.wrong.iter().map(|wrong| format!("{pair}: {wrong}")));
            // Not every client plays the large ones in CI.
            if !scenario.name.starts_with("large-") {
                table.add(client.protocol(), &verdict);
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    if choice.is_all() {
        table.check(protocol);
    }
}

macro_rules! agents {
    ($($name:ident = $protocol:literal),+ $(,)?) => {
        $(mod $name {
            #[tokio::test]
            async fn contents_arrive_or_are_reported() {
                super::contents($protocol).await;
            }

            #[tokio::test]
            async fn answers_that_are_cut_end_well() {
                super::cuts::play($protocol).await;
            }

            #[tokio::test]
            async fn turns_without_a_client_are_read_later() {
                super::background::play($protocol).await;
            }

            #[tokio::test]
            async fn clients_cancel_leave_and_come_back() {
                super::leaving::play($protocol).await;
            }
        })+

        /// The protocols with tests here.
        const AGENTS: &[&str] = &[$($protocol),+];
    };
}

agents! {
    agent_api = "agent-api",
    a2a = "a2a",
    agentscope = "agentscope",
    ag_kit = "ag-kit",
    ag_ui = "ag-ui",
    anthropic_messages = "anthropic-messages",
    chat_completions = "chat-completions",
    hitl = "hitl",
    responses = "responses",
}

macro_rules! asking_agents {
    ($($name:ident = $protocol:literal),+ $(,)?) => {
        mod asking {
            $(#[tokio::test]
            async fn $name() {
                crate::decisions::play($protocol).await;
            })+
        }
    };
}

asking_agents! {
    agents_of_agent_api_run_what_was_decided = "agent-api",
    agents_of_a2a_run_what_was_decided = "a2a",
    agents_of_agentscope_run_what_was_decided = "agentscope",
    agents_of_ag_kit_run_what_was_decided = "ag-kit",
    agents_of_ag_ui_run_what_was_decided = "ag-ui",
    agents_of_hitl_run_what_was_decided = "hitl",
    agents_of_responses_run_what_was_decided = "responses",
}

#[test]
fn every_scripted_agent_has_its_tests() {
    let mut scripted: Vec<&str> = interlingua_testing_agents::all().iter().map(|agent| agent.protocol()).collect();
    let mut tested = AGENTS.to_vec();
    scripted.sort_unstable();
    tested.sort_unstable();
    assert_eq!(scripted, tested);

    // The demo agent is built in.
    let protocols = interlingua::Gateway::builtin().protocols();
    let mut built_in: Vec<&str> = protocols.upstream_names().filter(|name| *name != "demo").collect();
    built_in.sort_unstable();
    assert_eq!(tested, built_in, "each protocol of agents is played");
}

#[test]
fn every_client_protocol_is_played() {
    let clients = interlingua_testing_clients::all();
    let mut scripted: Vec<&str> = clients.iter().map(|client| client.protocol()).collect();
    let protocols = interlingua::Gateway::builtin().protocols();
    let mut built_in: Vec<&str> = protocols.client_names().collect();
    scripted.sort_unstable();
    built_in.sort_unstable();
    assert_eq!(scripted, built_in);
}
