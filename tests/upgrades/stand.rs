//! A gateway on a store, with the demo agent, a scripted agent of every agent protocol, and routes for all client
//! protocols. Every route asks for a key.
//!
//! The scripted agents have the same URL each time, because sessions are bound to it: the gateway reaches them through
//! a proxy, and each agent is the proxy of its own URL.

use std::fmt::Write as _;
use std::sync::Arc;

use interlingua_core_testkit::scenario::Scenario;
use interlingua_testing_agents::{ScriptedAgent, Stage, Upstream};
use interlingua_testing_clients::{Request, ScriptedClient};

use crate::contents::ScriptedRequest;
use crate::files::Files;
use crate::support::callers::{AUTH, write_keys};
use crate::support::gateway::{DEMO, Gateway};
use crate::support::http::Exchange;
use crate::support::pairs::{MOUNTS, ROUTES};

/// See the module.
pub(crate) struct Stand {
    gateway: Option<Gateway>,
    pub(crate) stage: Arc<Stage>,
    agents: Vec<(&'static str, Upstream)>,
    files: Files,
}

/// The tokens that caller `eve` may use in a day.
pub(crate) const TOKENS: u64 = 40;

/// An agent without a memory: the gateway keeps its history.
const KEPT: &str =
    "[agents.kept]\nhistory = \"gateway\"\nupstream = { protocol = \"demo\", options = { pace_ms = 0 } }\n";

/// Options of the A2A route: receivers on this machine are allowed, and no task is too old.
const A2A: &str = "options = { push_allow = [\"127.0.0.1\"], push_allow_http = true, task_ttl = \"3650d\", \
                   interrupted_ttl = \"3650d\" }\n";

/// A route on which each message starts one task, also if it is sent again.
const ONCE: &str = "[[routes]]\nprotocol = \"a2a\"\npath = \"/once/a2a/{agent}\"\n\
                    options = { deduplicate = \"context\" }\n";

impl Stand {
    /// Starts the agents, which play these scenarios and receive these requests again, and then the gateway.
    pub(crate) async fn start(files: Files, plays: Vec<Scenario>, received: &[ScriptedRequest]) -> Self {
        let stage = Arc::new(Stage::default());
        for scenario in plays {
            stage.open(scenario, None);
        }
        let mut config = format!(
            "{AUTH}[callers.eve]\nlimits = {{ tokens_per_day = {TOKENS} }}\n{}{DEMO}{KEPT}",
            files.store_table()
        );
        let mut agents = Vec::new();
        for agent in interlingua_testing_agents::all() {
            for request in received.iter().filter(|request| request.agent == agent.protocol()) {
                let _ = agent.answer(&request.restore(), &stage);
            }
            let server = interlingua_testing_agents::serve(Arc::clone(&agent), Arc::clone(&stage));
            config.push_str(&upstream(&*agent, &server));
            agents.push((agent.protocol(), server));
        }
        let path = "path = \"/a2a/{agent}\"\n";
        config.push_str(&ROUTES.replace(path, &format!("{path}{A2A}")));
        config.push_str(ONCE);
        for client in interlingua_testing_clients::all() {
            if !MOUNTS.contains(&(client.protocol(), client.route())) {
                let (protocol, path) = (client.protocol(), client.route());
                let _ = write!(config, "[[routes]]\nprotocol = \"{protocol}\"\npath = \"{path}\"\n");
            }
        }

        write_keys(files.path(), &["ann", "bob", "eve"]);
        let gateway = Gateway::in_folder(&config, files.path().to_owned()).await;
        Self { gateway: Some(gateway), stage, agents, files }
    }

    /// The gateway as a caller sees it.
    pub(crate) fn caller(&self, name: &str) -> Gateway {
        self.gateway.as_ref().unwrap().as_caller(name)
    }

    /// The gateway as caller `ann` sees it, who owns nearly everything.
    pub(crate) fn ann(&self) -> Gateway {
        self.caller("ann")
    }

    /// Stops the gateway in order.
    pub(crate) async fn stop(&mut self) {
        self.gateway.take().unwrap().stop().await;
    }

    /// Stops the gateway in order and returns its store.
    pub(crate) async fn end(mut self) -> Files {
        self.stop().await;
        self.files
    }

    /// The store. Nothing may use it while the gateway runs.
    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    /// All requests that the scripted agents received.
    pub(crate) fn received(&self) -> Vec<ScriptedRequest> {
        let of = |(agent, server): &(&str, Upstream)| -> Vec<ScriptedRequest> {
            server.requests().iter().map(|request| ScriptedRequest::new(agent, request)).collect()
        };
        self.agents.iter().flat_map(of).collect()
    }

    /// Sends the request of a scripted client.
    pub(crate) async fn send(&self, request: &Request) -> Exchange {
        let mut headers = vec![("content-type", "application/json")];
        // The key of the caller takes the place of the client's own.
        let own = request.headers.iter().filter(|(name, _)| *name != "x-api-key");
        headers.extend(own.map(|(name, value)| (*name, value.as_str())));
        self.ann().open(request.method, &request.path, &headers, request.body.as_bytes()).await
    }
}

fn upstream(agent: &dyn ScriptedAgent, server: &Upstream) -> String {
    let (protocol, path) = (agent.protocol(), agent.path());
    format!(
        "[agents.{protocol}]\n{}\n[agents.{protocol}.upstream]\nprotocol = \"{protocol}\"\n\
         url = \"http://{protocol}.test{path}\"\nproxy = \"{}\"\n{}\n",
        agent.agent_settings(),
        server.url(""),
        agent.settings()
    )
}

pub(crate) fn client(protocol: &str) -> Box<dyn ScriptedClient> {
    interlingua_testing_clients::all().into_iter().find(|client| client.protocol() == protocol).unwrap()
}
