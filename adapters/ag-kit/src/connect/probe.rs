//! Checks whether a server exists, without running its agent.

use interlingua_core::Fault;
use interlingua_core::connector::HttpRequest;
use interlingua_core::probe::{AgentProbe, Finding, ProbeAnswer};
use serde::Deserialize;

/// Asks for the server's health.
pub(super) struct AgKitProbe {
    request: Option<HttpRequest>,
    findings: Vec<Finding>,
}

/// The health document of the Python server.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Health {
    service: Option<String>,
    version: Option<String>,
}

impl AgKitProbe {
    pub(super) fn new(base: &str) -> Self {
        Self { request: Some(HttpRequest::lookup(format!("{base}/healthz"))), findings: Vec::new() }
    }
}

impl AgentProbe for AgKitProbe {
    fn next(&mut self) -> Option<HttpRequest> {
        self.request.take()
    }

    fn on_answer(&mut self, answer: Result<ProbeAnswer<'_>, &Fault>) {
        let finding = match answer {
            Ok(ProbeAnswer { status: 200, body, .. }) => {
                let Health { service, version } = serde_json::from_slice(body).unwrap_or_default();
                let named = [service, version].into_iter().flatten().collect::<Vec<_>>().join(" ");
                let named = if named.is_empty() { String::new() } else { format!(": {named}") };
                Finding::good(format!("the server says that it is healthy{named}"))
            }
            Ok(ProbeAnswer { status: 404 | 405, .. }) => Finding::note(
                "the server has no healthz beside its endpoint: the URL may still be right, since not all servers have one",
            ),
            Ok(ProbeAnswer { status: 401 | 403, .. }) => {
                Finding::problem("the server refuses the gateway's credentials: set upstream.headers")
            }
            Ok(ProbeAnswer { status, .. }) => Finding::problem(format!("the server answers its healthz with {status}")),
            Err(fault) => Finding::problem(fault.message.clone()),
        };
        self.findings.push(finding);
        self.findings.push(Finding::note(
            "the protocol has neither reasoning, media, usage nor errors: what of them the agent makes is lost in its server",
        ));
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }
}
