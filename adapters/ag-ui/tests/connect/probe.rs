//! The findings of a probe.

use interlingua_core::fault::{Fault, FaultKind};
use interlingua_core::probe::ProbeAnswer;

use crate::support::connector;

/// The requests of a probe, and its findings, of an endpoint that answers `GET` so and a page about its health.
fn probed(endpoint: Result<u16, &str>, health: (u16, &str)) -> (Vec<String>, Vec<String>) {
    let mut probe = connector("{}").probe();
    let mut asked = Vec::new();
    while let Some(request) = probe.next() {
        let is_health = request.url.ends_with("/health");
        asked.push(format!("{} {}", request.method, request.url));
        let (status, body) = if is_health { health } else { (endpoint.unwrap_or(0), "") };
        match endpoint {
            Err(message) if !is_health => probe.on_answer(Err(&Fault::new(FaultKind::UpstreamUnreachable, message))),
            _ => probe.on_answer(Ok(ProbeAnswer { status, headers: &[], body: body.as_bytes() })),
        }
    }
    let findings = probe.findings().iter().map(|finding| format!("{} {}", finding.level.as_str(), finding.text));
    (asked, findings.collect())
}

#[test]
fn a_probe_does_not_run_the_agent() {
    let (asked, findings) = probed(Ok(405), (200, r#"{"status":"ok","agent":{"name":"travel"}}"#));
    assert_eq!(asked, ["GET http://agent/", "GET http://agent/health"]);
    assert!(findings[0].starts_with("ok reachable"), "{findings:?}");
    assert_eq!(findings[1], "ok agent \"travel\", health: ok");
    assert!(findings[2].starts_with("note whether the agent remembers"), "{findings:?}");
}

#[test]
fn each_answer_is_judged() {
    for (answer, beginning) in [
        (Ok(405), "ok reachable"),
        (Ok(200), "note reachable: GET is answered by 200"),
        (Ok(401), "problem the agent refuses the gateway's credentials"),
        (Ok(404), "problem nothing is at this URL"),
        (Ok(307), "problem the agent redirects elsewhere"),
        (Ok(500), "problem the agent's server fails (500)"),
        (Err("no route"), "problem not reachable: no route"),
    ] {
        let (asked, findings) = probed(answer, (404, ""));
        assert!(findings[0].starts_with(beginning), "{answer:?}: {findings:?}");
        assert_eq!(asked.len(), if answer.is_err() { 1 } else { 2 }, "{answer:?}");
        assert!(findings.iter().all(|finding| !finding.contains("health")), "{findings:?}");
    }
    assert!(probed(Ok(405), (200, r#"{"status":"degraded"}"#)).1[1].starts_with("note health: degraded"));
}
