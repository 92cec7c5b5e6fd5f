//! Facts about an agent that speaks AG-UI, read without running it. Its endpoint accepts only `POST`; some frameworks
//! have a health page.

use interlingua_core::Fault;
use interlingua_core::connector::HttpRequest;
use interlingua_core::http_url::Url;
use interlingua_core::probe::{AgentProbe, Finding, ProbeAnswer};
use serde::Deserialize;

/// The requested document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeRequest {
    Endpoint,
    Health,
}

/// A probe of one agent.
pub(super) struct AgUiProbe {
    /// The next one last.
    to_ask: Vec<(ProbeRequest, String)>,
    asked: Option<ProbeRequest>,
    findings: Vec<Finding>,
}

impl AgUiProbe {
    pub(super) fn new(url: &str) -> Self {
        let mut to_ask = Vec::new();
        if let Some(parsed) = Url::parse(url) {
            to_ask.push((ProbeRequest::Health, format!("{}{}/health", parsed.origin, parsed.path())));
        }
        to_ask.push((ProbeRequest::Endpoint, url.to_owned()));
        Self { to_ask, asked: None, findings: Vec::new() }
    }

    fn endpoint(&mut self, answer: Result<ProbeAnswer<'_>, &Fault>) {
        let finding = match answer {
            Err(fault) => Finding::problem(format!("not reachable: {}", fault.message)),
            Ok(answer) => match answer.status {
                401 | 403 => Finding::problem(
                    "the agent refuses the gateway's credentials: set a header such as authorization in the upstream's headers",
                ),
                405 => Finding::good("reachable: the endpoint is there (GET is answered by 405, as it should be)"),
                404 => {
                    Finding::problem("nothing is at this URL (404): the url must be that of the AG-UI endpoint itself")
                }
                300..=399 => Finding::problem(
                    "the agent redirects elsewhere, and redirects are not followed: set url to that place",
                ),
                500..=599 => Finding::problem(format!("the agent's server fails ({})", answer.status)),
                status => {
                    Finding::note(format!("reachable: GET is answered by {status}, which says nothing about POST"))
                }
            },
        };
        self.findings.push(finding);
    }

    fn health(&mut self, answer: Result<ProbeAnswer<'_>, &Fault>) {
        #[derive(Deserialize)]
        struct Health {
            status: Option<String>,
            agent: Option<Agent>,
        }
        #[derive(Deserialize)]
        struct Agent {
            name: Option<String>,
        }
        let health = answer.ok().filter(|answer| answer.status == 200);
        let Some(health) = health.and_then(|answer| serde_json::from_slice::<Health>(answer.body).ok()) else { return };
        let name =
            health.agent.and_then(|agent| agent.name).map(|name| format!("agent \"{name}\", ")).unwrap_or_default();
        if let Some(status) = health.status {
            let is_good = matches!(status.as_str(), "ok" | "healthy" | "OK");
            let text = format!("{name}health: {status}");
            self.findings.push(if is_good { Finding::good(text) } else { Finding::note(text) });
        }
    }
}

impl AgentProbe for AgUiProbe {
    fn next(&mut self) -> Option<HttpRequest> {
        let Some((asked, url)) = self.to_ask.pop() else {
            if self.asked.take().is_some() {
                self.findings.push(Finding::note(
                    "whether the agent remembers a thread is seen by asking it alone: if it does not, set history = \"gateway\"",
                ));
            }
            return None;
        };
        self.asked = Some(asked);
        Some(HttpRequest::lookup(url))
    }

    fn on_answer(&mut self, answer: Result<ProbeAnswer<'_>, &Fault>) {
        match self.asked {
            Some(ProbeRequest::Endpoint) => {
                if answer.is_err() {
                    self.to_ask.clear();
                }
                self.endpoint(answer);
            }
            Some(ProbeRequest::Health) => self.health(answer),
            None => {}
        }
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }
}
