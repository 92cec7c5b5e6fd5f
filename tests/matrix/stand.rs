//! A gateway with one scripted agent behind it and a route for every client protocol in front of it.

use std::path::Path;
use std::sync::Arc;

use interlingua::config::{self, Env};
use interlingua_core::capability::{ClientCapabilities, UpstreamCapabilities};
use interlingua_core::pending::Decision;
use interlingua_core_testkit::scenario::{AgentAct, Ask, ClientAct, Media, Scenario};
use interlingua_testing_agents::{ScriptedAgent, Stage, Upstream};
use interlingua_testing_clients::ScriptedClient;

use crate::losses::AccessLog;
use crate::support::gateway::Gateway;

/// See the module.
pub(crate) struct Stand {
    pub(crate) gateway: Gateway,
    pub(crate) agent: Arc<dyn ScriptedAgent>,
    pub(crate) stage: Arc<Stage>,
    pub(crate) log: AccessLog,
    pub(crate) server: Upstream,
    /// Its other endpoints.
    pub(crate) others: Vec<Upstream>,
    capabilities: UpstreamCapabilities,
}

/// The agent's name in the configuration.
pub(crate) const AGENT: &str = "played";

/// The settings of a gateway.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Runs are kept in a file, not in memory.
    pub(crate) has_file: bool,
    /// The number of the agent's endpoints, which share their memory.
    pub(crate) endpoints: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Self { has_file: false, endpoints: 1 }
    }
}

/// The configuration of the agent.
fn agent(agent: &dyn ScriptedAgent, servers: &[Upstream]) -> String {
    let (protocol, path) = (agent.protocol(), agent.path());
    let urls: Vec<String> = servers.iter().map(|server| format!("\"{}\"", server.url(path))).collect();
    let place = match urls.as_slice() {
        [url] => format!("url = {url}"),
        urls => {
            let urls: Vec<String> = urls.iter().map(|url| format!("{{ url = {url} }}")).collect();
            format!("urls = [{}]", urls.join(", "))
        }
    };
    format!(
        "[agents.{AGENT}]\n{}\n[agents.{AGENT}.upstream]\nprotocol = \"{protocol}\"\n{place}\n{}\n",
        agent.agent_settings(),
        agent.settings()
    )
}

fn upstream_capabilities(source: &str) -> UpstreamCapabilities {
    let protocols = interlingua::Gateway::builtin().protocols();
    let parsed = config::read(source, Path::new("gateway.toml"), &protocols, &Env::process());
    let (settings, _) = parsed.unwrap_or_else(|errors| panic!("{}", errors.render(false)));
    settings.agents[0].upstream.capabilities.clone()
}

fn client_capabilities(protocol: &str) -> ClientCapabilities {
    let all = interlingua::Gateway::builtin().client_capabilities();
    let found = all.into_iter().find(|(name, _)| *name == protocol);
    found.unwrap_or_else(|| panic!("{protocol} is not built in")).1
}

impl Stand {
    pub(crate) async fn start(of: Arc<dyn ScriptedAgent>) -> Self {
        Self::set_up(of, Setup::default()).await
    }

    /// Starts it in another way.
    pub(crate) async fn set_up(of: Arc<dyn ScriptedAgent>, setup: Setup) -> Self {
        let stage = Arc::new(Stage::default());
        let serve = || interlingua_testing_agents::serve(Arc::clone(&of), Arc::clone(&stage));
        let mut servers: Vec<Upstream> = (0..setup.endpoints).map(|_| serve()).collect();
        let agent = agent(&*of, &servers);
        let server = servers.remove(0);
        let routes: String = interlingua_testing_clients::all()
            .iter()
            .map(|client| {
                let (protocol, path) = (client.protocol(), client.route());
                format!("[[routes]]\nprotocol = \"{protocol}\"\npath = \"{path}\"\n{}\n", client.route_settings())
            })
            .collect();
        let store = if setup.has_file { "kind = \"sqlite\"\npath = \"runs.db\"" } else { "kind = \"memory\"" };
        let source = format!("[store]\n{store}\n{}\n{agent}\n{routes}", AccessLog::CONFIG);
        let gateway = Gateway::with_config(&source).await;
        Self {
            log: AccessLog::of(&gateway.folder()),
            gateway,
            stage,
            server,
            others: servers,
            capabilities: upstream_capabilities(&agent),
            agent: of,
        }
    }

    /// Whether both ends have words for all of a scenario.
    pub(crate) fn can_play(&self, client: &dyn ScriptedClient, scenario: &Scenario) -> bool {
        let capabilities = client_capabilities(client.protocol());
        scenario.turns.iter().all(|turn| {
            self.agent.plays(turn)
                && turn.client.iter().all(|act| client.can(act) && self.decides(&capabilities, act))
                && (!client.attaches_what_is_taken() || turn.client.iter().all(|act| self.takes(act)))
                && turn.agent.iter().all(|act| self.asks(act))
        })
    }

    /// Whether such a decision can be made by the client and taken by the agent, if it is one.
    fn decides(&self, client: &ClientCapabilities, act: &ClientAct) -> bool {
        let decision = match act {
            // Every protocol can withdraw.
            ClientAct::Decide(_, decision) if *decision != Decision::Cancel => *decision,
            ClientAct::Edit(..) => Decision::Edit,
            ClientAct::Respond(..) => Decision::Respond,
            _ => return true,
        };
        client.decisions.contains(&decision) && self.capabilities.decisions.contains(&decision)
    }

    /// Whether media can be sent to the agent, if the act has any.
    fn takes(&self, act: &ClientAct) -> bool {
        let taken = self.capabilities.input_media;
        match act {
            ClientAct::Attach(Media::Image(_)) => taken.image,
            ClientAct::Attach(Media::Audio(_)) => taken.audio,
            ClientAct::Attach(Media::Video(_)) => taken.video,
            ClientAct::Attach(Media::File(..)) => taken.file,
            _ => true,
        }
    }

    /// Whether the agent can do this, according to the gateway.
    fn asks(&self, act: &AgentAct) -> bool {
        match act {
            AgentAct::ClientCall(_) => self.capabilities.client_tools,
            AgentAct::Ask(Ask::Approval(_)) => !self.capabilities.decisions.is_empty(),
            _ => true,
        }
    }
}
