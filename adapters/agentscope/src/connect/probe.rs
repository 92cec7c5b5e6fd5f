//! Facts about a service and the configured agent, read without running the agent.

use interlingua_core::connector::HttpRequest;
use interlingua_core::probe::{AgentProbe, Finding, ProbeAnswer};
use interlingua_core::{Extra, Fault, Json};
use serde::Deserialize;

use super::options::UpstreamOptions;
use super::request::Service;
use super::wire::field;

/// Number of names in a finding.
const MAX_NAMES: usize = 5;

/// The next request of the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Health,
    Agents,
    Credentials,
    Nothing,
}

/// A probe of a service.
pub(super) struct Probe {
    service: Service,
    agent_id: String,
    credential: Option<String>,
    next: Question,
    asked: Question,
    findings: Vec<Finding>,
}

impl Probe {
    pub(super) fn new(url: &str, options: &UpstreamOptions) -> Self {
        let model: Option<Extra> = options.session.to_extra().get("chat_model_config").and_then(Json::decode);
        let credential = model.and_then(|model| model.get("credential_id").and_then(Json::decode));
        Self {
            service: Service::new(url, options, None),
            agent_id: options.agent_id.clone(),
            credential,
            next: Question::Health,
            asked: Question::Nothing,
            findings: Vec::new(),
        }
    }

    fn on_health(&mut self, answer: &ProbeAnswer<'_>) {
        let lacks_user = answer.status == 422;
        let status = field(answer.body, "status");
        self.findings.push(match (answer.status, status.as_deref()) {
            (200, Some("ok")) => {
                let version = field(answer.body, "version").unwrap_or_default();
                self.next = Question::Agents;
                Finding::good(format!("the service is well (AgentScope {version})"))
            }
            (_, Some(status)) => {
                Finding::problem(format!("the service is not ready: {status}; look at its components at /health"))
            }
            _ if lacks_user => Finding::problem("the service wants to know who asks: set options.user"),
            (404, _) => Finding::problem(
                "nothing is at /health below url: url is where the service (agentscope.app.create_app) is mounted",
            ),
            (307, _) => Finding::problem("/health redirects elsewhere: url has to be that of the service itself"),
            (401 | 403, _) => Finding::problem("the service refuses the gateway: set its credentials in headers"),
            (status, _) => Finding::problem(format!("/health answers {status}, which no AgentScope service does")),
        });
    }

    fn on_agents(&mut self, answer: &ProbeAnswer<'_>) {
        #[derive(Deserialize)]
        struct Agents {
            agents: Vec<Agent>,
        }
        #[derive(Deserialize)]
        struct Agent {
            id: String,
            data: NamedEntry,
        }
        #[derive(Deserialize)]
        struct NamedEntry {
            #[serde(default)]
            name: String,
        }
        let Ok(list) = serde_json::from_slice::<Agents>(answer.body) else {
            self.findings.push(Finding::problem(format!("/agent/ answers {} without a list of agents", answer.status)));
            return;
        };
        self.next = Question::Credentials;
        if let Some(agent) = list.agents.iter().find(|agent| agent.id == self.agent_id) {
            self.findings.push(Finding::good(format!("it has the agent \"{}\"", agent.data.name)));
            return;
        }
        let known = list.agents.iter().take(MAX_NAMES);
        let known: Vec<String> = known.map(|agent| format!("\"{}\" ({})", agent.id, agent.data.name)).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        self.findings.push(Finding::problem(format!(
            "it has no agent \"{}\" for this user: it has {known}; set options.agent_id, or options.user",
            self.agent_id
        )));
    }

    fn on_credentials(&mut self, answer: &ProbeAnswer<'_>) {
        let Some(credential) = &self.credential else {
            self.findings.push(Finding::problem(
                "options.session has no chat_model_config with a credential_id: the agent has no model",
            ));
            return;
        };
        // Its other fields are secrets.
        let quoted = Json::from_serialize(credential);
        let is_known = answer.status == 200
            && answer.body.windows(quoted.text().len()).any(|window| window == quoted.text().as_bytes());
        self.findings.push(if is_known {
            Finding::good("it has the credential of the model")
        } else {
            Finding::problem(format!("it has no credential \"{credential}\" for this user (GET /credential/)"))
        });
    }
}

impl AgentProbe for Probe {
    fn next(&mut self) -> Option<HttpRequest> {
        self.asked = std::mem::replace(&mut self.next, Question::Nothing);
        Some(match self.asked {
            Question::Health => self.service.document("/health"),
            Question::Agents => self.service.document("/agent/"),
            Question::Credentials => self.service.document("/credential/"),
            Question::Nothing => return None,
        })
    }

    fn on_answer(&mut self, answer: Result<ProbeAnswer<'_>, &Fault>) {
        match (answer, self.asked) {
            (Err(fault), _) => {
                self.findings.push(Finding::problem(format!("the service cannot be asked: {}", fault.message)))
            }
            (Ok(answer), Question::Health) => self.on_health(&answer),
            (Ok(answer), Question::Agents) => self.on_agents(&answer),
            (Ok(answer), Question::Credentials) => self.on_credentials(&answer),
            (Ok(_), Question::Nothing) => {}
        }
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }
}
