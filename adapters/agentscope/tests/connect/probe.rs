//! The requests and findings of a probe.

use std::path::Path;

use interlingua_core::probe::ProbeAnswer;
use interlingua_core_testkit as testkit;
use serde_json::{Value, json};

use crate::support::{URL, connector};

/// The findings of a probe that gets these answers, and the paths that it asked for.
fn probe(options: &Value, answers: &[(u16, &str)]) -> (Vec<String>, Vec<String>) {
    let mut probe = connector(options).probe();
    let mut paths = Vec::new();
    let mut answers = answers.iter();
    while let Some(request) = probe.next() {
        assert_eq!((request.method, request.body.len()), ("GET", 0));
        paths.push(request.url.strip_prefix(URL).expect("the service's URL").to_owned());
        let (status, body) = answers.next().copied().unwrap_or((404, ""));
        probe.on_answer(Ok(ProbeAnswer { status, headers: &[], body: body.as_bytes() }));
    }
    let findings = probe.findings().iter().map(|found| format!("{} {}", found.level.as_str(), found.text));
    (findings.collect(), paths)
}

#[test]
fn a_service_that_works_is_found_well() {
    let folder = "../../tests/transcripts/agentscope/agentscope-2.0.10";
    let all = testkit::recorded_exchanges(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
    let body = |name: &str| {
        let found = all.iter().find(|(known, _)| known == name).expect("a recording");
        String::from_utf8(found.1.body.clone()).expect("text")
    };
    let agents: Value = serde_json::from_str(&body("probe-agents")).expect("JSON");
    let credentials: Value = serde_json::from_str(&body("probe-credentials")).expect("JSON");
    let options = json!({
        "agent_id": agents["agents"][0]["id"],
        "session": { "chat_model_config": { "credential_id": credentials["credentials"][0]["id"] } }
    });
    let (found, paths) = probe(
        &options,
        &[(200, &body("probe-health")), (200, &body("probe-agents")), (200, &body("probe-credentials"))],
    );
    assert_eq!(paths, ["/health", "/agent/", "/credential/"]);
    assert_eq!(
        found,
        [
            "ok the service is well (AgentScope 2.0.10)",
            "ok it has the agent \"scripted\"",
            "ok it has the credential of the model"
        ]
    );
}

#[test]
fn unsupported_features_are_reported_with_a_remedy() {
    let well = (200, r#"{"status":"ok","version":"2.0.10"}"#);
    let agents = (200, r#"{"agents":[{"id":"other","data":{"name":"Bob"}}]}"#);
    let mine = (200, r#"{"agents":[{"id":"agent","data":{"name":"Ann"}}]}"#);
    for (options, answers, finding) in [
        (json!({}), vec![(422, r#"{"detail":[]}"#)], "problem the service wants to know who asks: set options.user"),
        (json!({}), vec![(503, r#"{"status":"not_ready"}"#)], "problem the service is not ready: not_ready"),
        (json!({}), vec![(404, "")], "problem nothing is at /health"),
        (json!({}), vec![(307, "")], "problem /health redirects elsewhere"),
        (json!({}), vec![(401, "")], "problem the service refuses the gateway"),
        (json!({}), vec![(200, "<html>")], "problem /health answers 200, which no AgentScope service does"),
        (json!({}), vec![well, agents], "problem it has no agent \"agent\" for this user: it has \"other\" (Bob)"),
        (json!({}), vec![well, (200, "[]")], "problem /agent/ answers 200 without a list"),
        (json!({}), vec![well, mine, (200, "{}")], "problem options.session has no chat_model_config"),
        (
            json!({ "session": { "chat_model_config": { "credential_id": "k" } } }),
            vec![well, mine, (200, r#"{"credentials":[]}"#)],
            "problem it has no credential \"k\"",
        ),
    ] {
        let (found, _) = probe(&options, &answers);
        assert!(found.iter().any(|found| found.starts_with(finding)), "{found:?}");
    }

    let mut unreachable = connector(&json!({})).probe();
    unreachable.next();
    let fault = interlingua_core::Fault::new(interlingua_core::FaultKind::UpstreamUnreachable, "no one is there");
    unreachable.on_answer(Err(&fault));
    assert_eq!(unreachable.findings()[0].text, "the service cannot be asked: no one is there");
    assert!(unreachable.next().is_none());
}
