//! Asks the service what it is, without running its agent.

use interlingua_core::Fault;
use interlingua_core::connector::HttpRequest;
use interlingua_core::http_url::below;
use interlingua_core::probe::{AgentProbe, Finding, ProbeAnswer};
use serde::Deserialize;

/// Asks for the number of sessions.
pub(super) struct HitlProbe {
    request: Option<HttpRequest>,
    findings: Vec<Finding>,
}

#[derive(Deserialize)]
struct SystemInfo {
    sessions_count: u64,
}

impl HitlProbe {
    pub(super) fn new(base: &str) -> Self {
        Self { request: Some(HttpRequest::lookup(below(base, "/system/info"))), findings: Vec::new() }
    }
}

impl AgentProbe for HitlProbe {
    fn next(&mut self) -> Option<HttpRequest> {
        self.request.take()
    }

    fn on_answer(&mut self, answer: Result<ProbeAnswer<'_>, &Fault>) {
        let finding = match answer {
            Ok(ProbeAnswer { status: 200, body, .. }) => match serde_json::from_slice::<SystemInfo>(body) {
                Ok(SystemInfo { sessions_count }) => {
                    Finding::good(format!("the service is there, with {sessions_count} sessions"))
                }
                Err(_) => Finding::problem("what answers at /system/info is another service: correct the URL"),
            },
            Ok(ProbeAnswer { status: 404 | 405, .. }) => {
                Finding::problem("there is no /system/info below the URL: it is the URL above /agent/invoke")
            }
            Ok(ProbeAnswer { status: 401 | 403, .. }) => {
                Finding::problem("the service refuses the gateway's credentials: set upstream.headers")
            }
            Ok(ProbeAnswer { status, .. }) => Finding::problem(format!("the service answers with {status}")),
            Err(fault) => Finding::problem(fault.message.clone()),
        };
        self.findings.push(finding);
        self.findings
            .push(Finding::note("answers come whole: timeouts.first_event of the agent has to cover its longest run"));
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }
}
