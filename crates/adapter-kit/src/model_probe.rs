//! Identifies a model server: whether it is reachable, whether it has the model, and its software.
//!
//! Sends no request that runs a model. Not here: findings that only the server of one protocol offers (its connector).

use serde_json::Value;

use interlingua_core::connector::HttpRequest;
use interlingua_core::fault::Fault;
use interlingua_core::http_url::Url;
use interlingua_core::probe::{AgentProbe, Finding, ProbeAnswer};

/// Number of model names in a finding.
const NAMED: usize = 5;

/// Paths below the origin that one kind of server answers, its name, and a field of its answer. An empty field: the
/// answer is a text.
const KINDS: [(&str, &str, &str); 5] = [
    ("/version", "vLLM", "version"),
    ("/api/version", "Ollama", "version"),
    ("/props", "llama.cpp", "build_info"),
    ("/get_model_info", "SGLang", "model_path"),
    ("/health/liveliness", "LiteLLM", ""),
];

/// The probe of a server of models.
#[derive(Debug)]
pub struct ModelProbe {
    /// Still to be asked, the next one last.
    questions: Vec<Question>,
    asked: Option<Question>,
    headers: Vec<(&'static str, String)>,
    model: Option<String>,
    findings: Vec<Finding>,
}

#[derive(Clone, Debug)]
enum Question {
    /// The list of models, at this URL.
    Models(String),
    /// The kind of server: its index in [`KINDS`], and the URL.
    Kind(usize, String),
}

impl ModelProbe {
    /// Asks for the list of models at this URL. `model`: the configured name; `headers`: of the protocol.
    #[must_use]
    pub fn new(models: &str, model: Option<&str>, headers: Vec<(&'static str, String)>) -> Self {
        let origin = Url::parse(models).map_or("", |url| url.origin);
        let kind = |(place, (path, ..)): (usize, &(&str, &str, &str))| Question::Kind(place, format!("{origin}{path}"));
        let mut questions: Vec<Question> = KINDS.iter().enumerate().map(kind).collect();
        questions.reverse();
        questions.push(Question::Models(models.to_owned()));
        Self { questions, asked: None, headers, model: model.map(str::to_owned), findings: Vec::new() }
    }

    /// True if nothing is left to ask.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.questions.is_empty()
    }

    fn models(&mut self, url: &str, answer: &ProbeAnswer<'_>) {
        match answer.status {
            200..=299 => self.findings.push(Finding::good(format!("reachable: {}", answer.status))),
            401 | 403 => {
                let text = format!("the server refuses the gateway's credentials ({}): set headers", answer.status);
                self.questions.clear();
                return self.findings.push(Finding::problem(text));
            }
            // Gateways in front of a server that has no such list answer so, and serve nevertheless.
            status => {
                let text = format!("reachable, but {url} lists no models ({status}): is the path of the URL right?");
                return self.findings.push(Finding::note(text));
            }
        }

        let listed: Option<Value> = serde_json::from_slice(answer.body).ok();
        let entries = listed.as_ref().and_then(|listed| listed.get("data")?.as_array());
        let names: Vec<&str> = entries.into_iter().flatten().filter_map(|model| model.get("id")?.as_str()).collect();
        if names.is_empty() {
            return;
        }
        let finding = match &self.model {
            None => Finding::note(format!("options.model is not set; the server has {}", quoted(&names, ""))),
            Some(model) if names.contains(&model.as_str()) => {
                Finding::good(format!("the server has the model \"{model}\""))
            }
            Some(model) => {
                let has = quoted(&names, model);
                Finding::problem(format!("the server has no model \"{model}\": it has {has}. Set options.model"))
            }
        };
        self.findings.push(finding);
    }

    fn kind(&mut self, place: usize, answer: &ProbeAnswer<'_>) {
        let (_, name, field) = KINDS[place];
        let body: Option<Value> = (answer.status == 200).then(|| serde_json::from_slice(answer.body).ok()).flatten();
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

/// Names for a sentence: those that are like the wanted one first.
fn quoted(names: &[&str], wanted: &str) -> String {
    let (like, others): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| is_like(name, wanted));
    let mut list: Vec<String> = like.iter().chain(&others).take(NAMED).map(|name| format!("\"{name}\"")).collect();
    if names.len() > NAMED {
        list.push(format!("{} more", names.len() - NAMED));
    }
    list.join(", ")
}

/// True if one name holds the other, whatever its case and the tag behind a colon.
fn is_like(name: &str, wanted: &str) -> bool {
    let plain = |name: &str| name.split(':').next().unwrap_or_default().to_ascii_lowercase();
    let (name, wanted) = (plain(name), plain(wanted));
    !wanted.is_empty() && (name.contains(&wanted) || wanted.contains(&name))
}

impl AgentProbe for ModelProbe {
    fn next(&mut self) -> Option<HttpRequest> {
        let question = self.questions.pop()?;
        let (Question::Models(url) | Question::Kind(_, url)) = &question;
        let mut request = HttpRequest::lookup(url);
        for (name, value) in &self.headers {
            request = request.with_header(*name, value);
        }
        self.asked = Some(question);
        Some(request)
    }

    fn on_answer(&mut self, answer: Result<ProbeAnswer<'_>, &Fault>) {
        match (self.asked.take(), answer) {
            (Some(Question::Models(url)), Ok(answer)) => self.models(&url, &answer),
            (Some(Question::Models(_)), Err(fault)) => {
                self.findings.push(Finding::problem(format!("not reachable: {}", fault.message)));
                self.questions.clear();
            }
            (Some(Question::Kind(place, _)), Ok(answer)) => self.kind(place, &answer),
            // It is another kind of server.
            (Some(Question::Kind(..)), Err(_)) | (None, _) => {}
        }
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interlingua_core::fault::FaultKind;

    /// The findings of a probe. `answers`: path, status and body; all other paths are 404.
    fn found(model: Option<&str>, answers: &[(&str, u16, &str)]) -> (Vec<String>, Vec<String>) {
        let mut probe = ModelProbe::new("http://agent:9/v1/models", model, vec![("x-version", "1".to_owned())]);
        let mut asked = Vec::new();
        while let Some(request) = probe.next() {
            assert!(request.headers.iter().any(|(name, value)| name == "x-version" && value == "1"));
            let path = request.url.strip_prefix("http://agent:9").expect("the same server").to_owned();
            let known = answers.iter().find(|(known, ..)| *known == path);
            let (status, body) = known.map_or((404, ""), |(_, status, body)| (*status, *body));
            probe.on_answer(Ok(ProbeAnswer { status, headers: &[], body: body.as_bytes() }));
            asked.push(path);
        }
        let findings = probe.findings().iter().map(|found| format!("{} {}", found.level.as_str(), found.text));
        (findings.collect(), asked)
    }

    #[test]
    fn a_probe_finds_the_model_and_the_server() {
        let models = r#"{"data":[{"id":"qwen3:4b"},{"id":"llama3.2:3b"},{"x":1}]}"#;
        let (findings, asked) =
            found(Some("llama3.2"), &[("/v1/models", 200, models), ("/api/version", 200, r#"{"version":"0.12"}"#)]);
        assert_eq!(
            findings,
            [
                "ok reachable: 200",
                "problem the server has no model \"llama3.2\": it has \"llama3.2:3b\", \"qwen3:4b\". Set options.model",
                "note the server looks like Ollama (0.12)",
            ]
        );
        assert_eq!(asked, ["/v1/models", "/version", "/api/version"]);

        let (findings, _) =
            found(Some("qwen3:4b"), &[("/v1/models", 200, models), ("/health/liveliness", 200, "\"I'm alive!\"")]);
        assert_eq!(findings[1..], ["ok the server has the model \"qwen3:4b\"", "note the server looks like LiteLLM"]);
        let (findings, asked) = found(None, &[("/v1/models", 200, models)]);
        assert!(findings[1].starts_with("note options.model is not set"), "{findings:?}");
        assert_eq!(asked.len(), 1 + KINDS.len());
    }

    #[test]
    fn a_probe_reports_the_reason_of_a_failure() {
        let (findings, asked) = found(None, &[("/v1/models", 401, "{}")]);
        assert!(findings[0].starts_with("problem the server refuses the gateway's credentials (401)"));
        assert_eq!(asked.len(), 1);
        let (findings, _) = found(Some("m"), &[("/v1/models", 404, "<html>"), ("/version", 200, "[1]")]);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].starts_with("note reachable, but"), "{findings:?}");
        let (findings, _) = found(Some("m"), &[("/v1/models", 200, "not json")]);
        assert_eq!(findings, ["ok reachable: 200"]);

        let mut probe = ModelProbe::new("http://agent/models", None, Vec::new());
        assert!(probe.next().is_some());
        probe.on_answer(Err(&Fault::new(FaultKind::UpstreamUnreachable, "the agent cannot be reached")));
        assert!(probe.next().is_none());
        assert_eq!(probe.findings()[0].text, "not reachable: the agent cannot be reached");
    }
}
