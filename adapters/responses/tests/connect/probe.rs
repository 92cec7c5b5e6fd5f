//! The findings of a probe.

use interlingua_core::Fault;
use interlingua_core::fault::FaultKind;
use interlingua_core::probe::ProbeAnswer;

use crate::support::connector;

const MISSING: &str = r#"{"error":{"message":"Response with id 'resp_none' not found."}}"#;

/// The findings in lines, for a server that answers the paths that end so, and 404 with FastAPI's words to all others.
fn findings(options: &str, answers: &[(&str, u16, &str)]) -> Vec<String> {
    let mut probe = connector(options).probe();
    while let Some(request) = probe.next() {
        assert_eq!(request.method, "GET", "nothing is run");
        assert!(request.url.starts_with("http://agent/"), "{}", request.url);
        let found = answers.iter().find(|(path, ..)| request.url.ends_with(path));
        let (status, body) = found.map_or((404, r#"{"detail":"Not Found"}"#), |(_, status, body)| (*status, *body));
        match status {
            0 => probe.on_answer(Err(&Fault::new(FaultKind::UpstreamUnreachable, "the agent cannot be reached"))),
            status => probe.on_answer(Ok(ProbeAnswer { status, headers: &[], body: body.as_bytes() })),
        }
    }
    probe.findings().iter().map(|finding| format!("{} {}", finding.level.as_str(), finding.text)).collect()
}

#[test]
fn a_probe_reports_supported_features() {
    let models = r#"{"data":[{"id":"a"},{"id":"b"},{"id":"c"},{"id":"d"},{"id":"e"},{"id":"f"}]}"#;
    let kept = ("/responses/resp_none", 404, MISSING);
    for (options, answers, expected) in [
        (
            r#"{"model":"b"}"#,
            vec![("/models", 200, models), kept, ("/version", 200, r#"{"version":"0.12"}"#)],
            vec![
                "ok reachable: 200",
                "ok the server has the model \"b\"",
                "ok the server can keep responses",
                "note the server looks like vLLM (0.12)",
            ],
        ),
        (
            r#"{"model":"z"}"#,
            vec![("/models", 200, models), kept],
            vec![
                "ok reachable: 200",
                "problem the server has no model \"z\": it has \"a\", \"b\", \"c\", \"d\", \"e\", 1 more. Set options.model",
                "ok the server can keep responses",
            ],
        ),
        (
            "{}",
            vec![("/models", 200, r#"{"data":[{"id":"a"}]}"#), kept, ("/health/liveliness", 200, "\"I'm alive!\"")],
            vec![
                "ok reachable: 200",
                "note options.model is not set; the server has \"a\"",
                "ok the server can keep responses",
                "note the server looks like LiteLLM",
            ],
        ),
        // SMG serves, and lists no models.
        (
            r#"{"model":"a"}"#,
            vec![("/models", 503, r#"{"error":{"code":"no_models_available"}}"#), kept],
            vec![
                "note reachable, but http://agent/v1/models lists no models (503): is the path of the URL right?",
                "ok the server can keep responses",
            ],
        ),
        (
            r#"{"model":"a","background":"poll"}"#,
            vec![("/models", 200, "not JSON")],
            vec![
                "ok reachable: 200",
                "problem the server seems to keep no responses (404): set options.chain = \"full\" and history = \"gateway\"",
                "problem options.background needs a server that keeps responses",
            ],
        ),
        (
            r#"{"model":"a","chain":"full"}"#,
            vec![("/models", 200, "{}")],
            vec!["ok reachable: 200", "ok the server keeps no responses, and is asked for none"],
        ),
        (
            r#"{"model":"a"}"#,
            vec![("/models", 401, ""), kept],
            vec!["problem the server refuses the gateway's credentials (401): set headers"],
        ),
        ("{}", vec![("/models", 0, "")], vec!["problem not reachable: the agent cannot be reached"]),
    ] {
        assert_eq!(findings(options, &answers), expected, "{options} {answers:?}");
    }
}
