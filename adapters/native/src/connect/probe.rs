//! Asks a server of the Agent API what it is, without running its agent.

use interlingua_core::Fault;
use interlingua_core::connector::HttpRequest;
use interlingua_core::probe::{AgentProbe, Finding, ProbeAnswer};

/// Asks for the server's health, then whether there is an endpoint at the agent's URL.
pub(crate) struct NativeProbe {
    health: Option<HttpRequest>,
    endpoint: Option<HttpRequest>,
    /// True until the answer to the first request.
    asks_health: bool,
    findings: Vec<Finding>,
}

impl NativeProbe {
    /// `origin`: of the agent's URL.
    pub(crate) fn new(url: &str, origin: &str) -> Self {
        Self {
            health: Some(HttpRequest::lookup(format!("{origin}/health"))),
            endpoint: Some(HttpRequest::lookup(url)),
            asks_health: true,
            findings: Vec::new(),
        }
    }

    fn on_endpoint(&mut self, answer: Result<ProbeAnswer<'_>, &Fault>) {
        self.findings.push(match answer {
            // It takes POST alone, and says so.
            Ok(ProbeAnswer { status: 405, .. }) => Finding::good("there is an endpoint at the URL"),
            Ok(ProbeAnswer { status: 401 | 403, .. }) => {
                Finding::problem("the agent refuses the gateway's credentials: set upstream.headers")
            }
            Ok(ProbeAnswer { status: 404, .. }) => Finding::problem(
                "there is nothing at the URL: agents of the Agent API usually answer at the path \"/process\"",
            ),
            Ok(ProbeAnswer { status, .. }) => Finding::note(format!("a GET of the URL is answered with {status}")),
            Err(fault) => Finding::problem(fault.message.clone()),
        });
    }
}

impl AgentProbe for NativeProbe {
    fn next(&mut self) -> Option<HttpRequest> {
        self.health.take().or_else(|| self.endpoint.take())
    }

    fn on_answer(&mut self, answer: Result<ProbeAnswer<'_>, &Fault>) {
        if !std::mem::replace(&mut self.asks_health, false) {
            self.on_endpoint(answer);
            return;
        }
        self.findings.push(match answer {
            Ok(ProbeAnswer { status: 200, .. }) => Finding::good("the server says that it is healthy"),
            // 501: servers that know no GET at all, such as Python's http.server.
            Ok(ProbeAnswer { status: status @ (500 | 502..), .. }) => {
                Finding::problem(format!("the server's health check answers with {status}"))
            }
            Ok(_) => Finding::note("the server has no health check at /health"),
            Err(fault) => Finding::problem(fault.message.clone()),
        });
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_reads_the_health_and_the_endpoint() {
        let found = |health: u16, endpoint: u16| {
            let mut probe = NativeProbe::new("http://h:1/process?k=v", "http://h:1");
            let urls: Vec<String> = [health, endpoint]
                .into_iter()
                .map(|status| {
                    let request = probe.next().expect("a request");
                    probe.on_answer(Ok(ProbeAnswer { status, headers: &[], body: b"" }));
                    assert_eq!(request.method, "GET", "nothing runs");
                    request.url
                })
                .collect();
            assert_eq!(urls, ["http://h:1/health", "http://h:1/process?k=v"]);
            assert!(probe.next().is_none());
            probe.findings().iter().map(|finding| finding.level.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(found(200, 405), ["ok", "ok"]);
        assert_eq!(found(404, 404), ["note", "problem"]);
        assert_eq!(found(503, 401), ["problem", "problem"]);
        assert_eq!(found(404, 200), ["note", "note"]);
        assert_eq!(found(501, 501), ["note", "note"], "the smallest agent knows no GET");
    }
}
