//! What a server is, found out without running it.

use interlingua_core::Fault;
use interlingua_core::connector::HttpRequest;
use interlingua_core::probe::{AgentProbe, Finding, ProbeAnswer};
use serde_json::Value;

use super::endpoint::Endpoint;
use super::options::{Background, Chain, UpstreamOptions};

/// How many names of models a finding lists.
const NAMED: usize = 5;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// The list of models.
    Models,
    /// A response that no server has: whether it would keep one is seen by how it says so.
    Store,
    /// Which server it is, by a path that only one kind answers.
    Kind(&'static str),
}

/// Paths that one kind of server answers, with its name.
const KINDS: [(&str, &str, &str); 5] = [
    ("/version", "vLLM", "version"),
    ("/api/version", "Ollama", "version"),
    ("/props", "llama.cpp", "build_info"),
    ("/get_model_info", "SGLang", "model_path"),
    ("/health/liveliness", "LiteLLM", ""),
];

/// The probe of a server that speaks Responses.
pub(super) struct ResponsesProbe {
    /// Still to be asked, the next one last.
    questions: Vec<(Question, String)>,
    asked: Option<Question>,
    model: Option<String>,
    chain: Chain,
    background: Background,
    findings: Vec<Finding>,
}

impl ResponsesProbe {
    pub(super) fn new(endpoint: &Endpoint, options: &UpstreamOptions) -> Self {
        let mut questions: Vec<(Question, String)> =
            KINDS.iter().map(|(path, ..)| (Question::Kind(path), endpoint.root(path))).collect();
        questions.reverse();
        questions.push((Question::Store, endpoint.response("resp_none", "", "")));
        questions.push((Question::Models, endpoint.models()));
        Self {
            questions,
            asked: None,
            model: options.model.clone(),
            chain: options.chain,
            background: options.background,
            findings: Vec::new(),
        }
    }

    fn models(&mut self, answer: &ProbeAnswer<'_>) {
        let status = answer.status;
        if matches!(status, 401 | 403) {
            let text = format!("the server refuses the gateway's credentials ({status}): set headers of the upstream");
            return self.findings.push(Finding::problem(text));
        }
        self.findings.push(Finding::good("reachable"));
        if !matches!(status, 200..=299) {
            // Gateways in front of a server without such a list answer so, and serve nevertheless.
            return self.findings.push(Finding::note(format!("it lists no models ({status})")));
        }

        let listed: Option<Value> = serde_json::from_slice(answer.body).ok();
        let entries = listed.as_ref().and_then(|listed| listed.get("data")?.as_array());
        let names = entries.into_iter().flatten().filter_map(|model| model.get("id")?.as_str());
        let names: Vec<&str> = names.collect();
        let Some(model) = &self.model else {
            if !names.is_empty() {
                let text = format!("options.model is not set; the server has {}", quoted(&names));
                self.findings.push(Finding::note(text));
            }
            return;
        };
        if names.contains(&model.as_str()) {
            self.findings.push(Finding::good(format!("the server has the model \"{model}\"")));
        } else if !names.is_empty() {
            let text = format!("the server has no model \"{model}\": it has {}. Set options.model", quoted(&names));
            self.findings.push(Finding::problem(text));
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

    fn kind(&mut self, path: &str, answer: &ProbeAnswer<'_>) {
        let Some((_, name, field)) = KINDS.iter().find(|(known, ..)| *known == path) else { return };
        if answer.status != 200 {
            return;
        }
        let body: Option<Value> = serde_json::from_slice(answer.body).ok();
        let found = body.as_ref().and_then(|body| body.get(field)?.as_str());
        if let Some(found) = found {
            self.findings.push(Finding::note(format!("the server looks like {name} ({found})")));
        } else if field.is_empty() && body.is_some_and(|body| body.is_string()) {
            self.findings.push(Finding::note(format!("the server looks like {name}")));
        } else {
            return;
        }
        // One kind is enough.
        self.questions.clear();
    }
}

fn quoted(names: &[&str]) -> String {
    let mut list: Vec<String> = names.iter().take(NAMED).map(|name| format!("\"{name}\"")).collect();
    if names.len() > NAMED {
        list.push(format!("{} more", names.len() - NAMED));
    }
    list.join(", ")
}

impl AgentProbe for ResponsesProbe {
    fn next(&mut self) -> Option<HttpRequest> {
        let (question, url) = self.questions.pop()?;
        self.asked = Some(question);
        Some(HttpRequest::lookup(url))
    }

    fn on_answer(&mut self, answer: Result<ProbeAnswer<'_>, &Fault>) {
        match (self.asked.take(), answer) {
            (Some(Question::Models), Ok(answer)) => self.models(&answer),
            (Some(Question::Models), Err(fault)) => {
                self.findings.push(Finding::problem(format!("not reachable: {}", fault.message)));
                // The rest would say the same.
                self.questions.clear();
            }
            (Some(Question::Store), Ok(answer)) => self.store(&answer),
            (Some(Question::Kind(path)), Ok(answer)) => self.kind(path, &answer),
            _ => {}
        }
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }
}
