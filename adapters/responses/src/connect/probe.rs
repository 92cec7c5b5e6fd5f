//! Facts about a server, read without running it: the facts of any model server, and whether this one stores responses.

use interlingua_adapter_kit::model_probe::ModelProbe;
use interlingua_core::Fault;
use interlingua_core::connector::HttpRequest;
use interlingua_core::probe::{AgentProbe, Finding, ProbeAnswer};
use serde_json::Value;

use super::endpoint::Endpoint;
use super::options::{Background, Chain, UpstreamOptions};

/// The request that is being answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    Models,
    Store,
}

/// The probe of a server that speaks Responses.
pub(super) struct ResponsesProbe {
    models: ModelProbe,
    /// The id of a response that no server has: the form of the refusal shows whether the server stores responses.
    /// `None`: it was requested already.
    store: Option<String>,
    asker: Option<Asker>,
    chain: Chain,
    background: Background,
    findings: Vec<Finding>,
}

impl ResponsesProbe {
    pub(super) fn new(endpoint: &Endpoint, options: &UpstreamOptions) -> Self {
        Self {
            models: ModelProbe::new(&endpoint.models(), options.model.as_deref(), Vec::new()),
            store: Some(endpoint.response("resp_none", "", "")),
            asker: None,
            chain: options.chain,
            background: options.background,
            findings: Vec::new(),
        }
    }

    fn store(&mut self, answer: &ProbeAnswer<'_>) {
        let is_json = serde_json::from_slice::<Value>(answer.body).is_ok_and(|body| body.is_object());
        // FastAPI says no more of a path that it does not have.
        let is_path = answer.body.trim_ascii() == br#"{"detail":"Not Found"}"#;
        let has_store = matches!(answer.status, 400 | 404) && is_json && !is_path;
        if has_store {
            return self.findings.push(Finding::good("the server can keep responses"));
        }
        if self.chain == Chain::Full {
            return self.findings.push(Finding::good("the server keeps no responses, and is asked for none"));
        }

        let remedy = "set options.chain = \"full\" and history = \"gateway\"";
        let text = format!("the server seems to keep no responses ({}): {remedy}", answer.status);
        self.findings.push(Finding::problem(text));
        if self.background != Background::Off {
            self.findings.push(Finding::problem("options.background needs a server that keeps responses"));
        }
    }
}

impl AgentProbe for ResponsesProbe {
    fn next(&mut self) -> Option<HttpRequest> {
        // After the list of models: an unreachable server, or one that refuses credentials, gets no further request.
        if self.asker.is_some()
            && !self.models.is_over()
            && let Some(url) = self.store.take()
        {
            self.asker = Some(Asker::Store);
            return Some(HttpRequest::lookup(url));
        }
        self.asker = Some(Asker::Models);
        self.models.next()
    }

    fn on_answer(&mut self, answer: Result<ProbeAnswer<'_>, &Fault>) {
        match (self.asker, answer) {
            (Some(Asker::Store), Ok(answer)) => self.store(&answer),
            (Some(Asker::Store), Err(_)) => {}
            (_, answer) => {
                let known = self.models.findings().len();
                self.models.on_answer(answer);
                self.findings.extend(self.models.findings()[known..].iter().cloned());
            }
        }
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }
}
