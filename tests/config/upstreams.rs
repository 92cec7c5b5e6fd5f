//! The settings of upstreams: endpoints, what agents learn of callers, and how connections are made.

use std::time::Duration;

use interlingua::config::{Affinity, IdentityKind};
use interlingua_core::answer::{ALL_DECISIONS, NATIVE_DECISIONS, PLAIN_DECISIONS};
use secrecy::ExposeSecret as _;

use super::{good, read};

#[test]
fn an_agent_may_have_several_endpoints() {
    let settings = good("pools");
    let upstream = &settings.agent("friday").expect("an agent of the file").upstream;
    let endpoints: Vec<_> = upstream.endpoints.iter().map(|one| (one.shown(), one.weight)).collect();
    assert_eq!(endpoints, [("http://a:8090/process".to_owned(), 2), ("http://b:8090/process".to_owned(), 1)]);
    assert_eq!(upstream.endpoints[0].url.query(), Some("team=k"));
    assert_eq!(upstream.affinity, Affinity::Strict);
    assert_eq!(upstream.forward, ["x-request-id"]);
    assert_eq!((upstream.eject.failures, upstream.eject.pause), (3, Duration::from_secs(10)));
    let health = upstream.health.as_ref().expect("checks are configured");
    assert_eq!((health.path.as_str(), health.every, health.unhealthy), ("/health?deep=no", Duration::from_secs(5), 2));
    assert_eq!((upstream.limits.runs, upstream.limits.queue), (100, 200));
    assert!(!format!("{settings:?}").contains("team=k"));

    let upstream = |name: &str| &settings.agent(name).expect("an agent of the file").upstream;
    assert_eq!(upstream("friday").identity.kind(), IdentityKind::None);
    let monday = upstream("monday");
    let tls = monday.tls.as_ref().expect("it has TLS settings");
    assert!(tls.has_ca && tls.has_certificate && monday.identity.kind() == IdentityKind::Jwt);
    assert_eq!(tls.server_name.as_deref(), Some("agent.internal"));
    let proxy = upstream("tuesday").proxy.as_ref().expect("it has a proxy");
    let (name, password) = proxy.credentials.as_ref().expect("with credentials");
    assert_eq!((proxy.url.as_str(), name.as_str(), password.expose_secret()), ("http://proxy:3128/", "ada", "hunter2"));
    assert!(!format!("{settings:?}").contains("hunter"));
    assert!(upstream("wednesday").proxy.as_ref().is_some_and(|open| open.credentials.is_none()));
}

#[test]
fn the_approval_extension_widens_the_decisions_of_an_agent() {
    let decisions = |setting: &str| {
        let upstream = format!("protocol = \"agent-api\", url = \"http://a:1\", approval_extension = {setting}");
        let (settings, found) =
            read(&format!("[agents.a]\nupstream = {{ {upstream} }}"), "gateway.toml").expect("a valid file");
        assert!(!found.render(false).contains("approval_extension"), "{}", found.render(false));
        settings.agents[0].upstream.capabilities.decisions
    };
    assert_eq!(decisions("false"), NATIVE_DECISIONS);
    assert_eq!(decisions("true"), ALL_DECISIONS);
}

#[test]
fn the_approval_extension_leaves_the_decisions_of_other_protocols_alone() {
    let source = "[agents.a]\nupstream = { protocol = \"stateless\", approval_extension = true }";
    let (settings, found) = read(source, "gateway.toml").expect("a valid file");
    assert_eq!(settings.agents[0].upstream.capabilities.decisions, PLAIN_DECISIONS);
    assert!(found.render(false).contains("\"approval_extension\" has no effect"), "{}", found.render(false));
}
