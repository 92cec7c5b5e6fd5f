//! Connections to agents: whom the gateway trusts, the certificate that it shows, and proxies.
//!
//! Not here: TLS towards clients ([`super::tls`]).

use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::json;

use crate::support::agent::{approval_request, text_reply, text_reply_then_hang};
use crate::support::front::{Handshake, Proxy, TlsFront};
use crate::support::gateway::{Gateway, JSON, ROUTE, agent, user_turn, user_turn_in};
use crate::support::poll_until;
use crate::support::process::{Process, binary};
use crate::support::tls::{Authority, Identity};
use crate::support::upstream::{Reply, Upstream};

/// An agent that answers, can be stopped, and is healthy.
fn complete_agent() -> Upstream {
    Upstream::with_handler(|request| match request.path.as_str() {
        "/health" | "/stop" => Reply::complete(200, &[("content-type", "application/json")], "{}"),
        _ if String::from_utf8_lossy(&request.body).contains("hang") => text_reply_then_hang(&["so far"]),
        _ => text_reply(&["hi"]),
    })
}

struct Files {
    folder: tempfile::TempDir,
    trusted: Authority,
    client: Identity,
}

impl Files {
    /// A folder with an authority, and a certificate and a key of the gateway.
    fn new() -> Self {
        let (folder, trusted) = (tempfile::tempdir().expect("a folder"), Authority::new());
        let client = trusted.client("spiffe://example.com/gateway", "gateway.example.com");
        fs::write(folder.path().join("ca.pem"), trusted.pem()).expect("a file");
        fs::write(folder.path().join("other-ca.pem"), Authority::new().pem()).expect("a file");
        client.write(folder.path());
        Self { folder, trusted, client }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    async fn gateway(&self, agents: &str) -> Gateway {
        let config = format!("[store]\nkind = \"memory\"\n{agents}\n{ROUTE}");
        Gateway::in_folder(&config, self.path().to_owned()).await
    }
}

const BOTH: &str = "tls = { ca = \"ca.pem\", cert = \"cert.pem\", key = \"key.pem\" }";

/// The status and the code of a run with this agent.
async fn status(gateway: &Gateway, agent: &str) -> (u16, Option<String>) {
    let path = format!("/agents/{agent}/process");
    let mut body = user_turn("hi");
    body["stream"] = false.into();
    let answer = gateway.post(&path, &body).await;
    (answer.status, answer.json()["code"].as_str().map(str::to_owned))
}

fn unreachable() -> (u16, Option<String>) {
    (502, Some("UPSTREAM_UNREACHABLE".to_owned()))
}

#[tokio::test]
async fn only_the_authorities_of_the_agent_are_trusted() {
    let (files, upstream) = (Files::new(), complete_agent());
    let front = TlsFront::start(upstream.address(), &files.trusted.server(), &files.trusted, false);
    let url = front.url("localhost", "/process");
    let agents = agent("known", &url, "", "tls = { ca = \"ca.pem\" }\nhealth = { path = \"/health\" }")
        + &agent("other", &url, "", "tls = { ca = \"other-ca.pem\" }")
        + &agent("system", &url, "", "retries = 0");
    let gateway = files.gateway(&agents).await;
    assert_eq!(status(&gateway, "known").await, (200, None));
    for name in ["other", "system"] {
        assert_eq!(status(&gateway, name).await, unreachable(), "{name}");
    }

    poll_until("a check", async || upstream.requests().iter().find(|one| one.path == "/health").map(drop)).await;
    let runs = upstream.requests().iter().filter(|one| one.path == "/process").count();
    assert_eq!(runs, 1, "nothing was sent to a server that is not trusted");
    assert!(front.handshakes().iter().all(|seen| !seen.has_certificate));
}

#[tokio::test]
async fn the_client_certificate_is_sent_only_to_the_agent() {
    let (files, upstream, elsewhere) = (Files::new(), complete_agent(), complete_agent());
    let server = files.trusted.server();
    let own = TlsFront::start(upstream.address(), &server, &files.trusted, true);
    let foreign = TlsFront::start(elsewhere.address(), &server, &files.trusted, false);
    let url = own.url("localhost", "/process");
    let stops = |url: &str| format!("{BOTH}\nhealth = {{ path = \"/health\" }}\noptions = {{ stop_url = \"{url}\" }}");
    let agents = agent("one", &url, "", &stops("/stop"))
        + &agent("two", &url, "", &stops(&foreign.url("localhost", "/stop")))
        + &agent("without", &url, "", "tls = { ca = \"ca.pem\" }\nretries = 0");
    let gateway = files.gateway(&agents).await;

    assert_eq!(status(&gateway, "without").await.0, 502);
    assert!(own.handshakes().iter().all(|seen| seen.has_certificate), "a handshake without one fails");
    for name in ["one", "two"] {
        let mut stream = gateway.start_turn(name, &user_turn("hang")).await;
        stream.read_until("so far").await;
    }
    let stopped = |agent: &Upstream| agent.requests().iter().filter(|one| one.path == "/stop").count();
    poll_until("both stop requests", async || (stopped(&upstream) + stopped(&elsewhere) == 2).then_some(())).await;
    assert_eq!((stopped(&upstream), stopped(&elsewhere)), (1, 1));
    assert_eq!(foreign.handshakes(), [Handshake { name: Some("localhost".to_owned()), has_certificate: false }]);
}

#[tokio::test]
async fn the_name_in_the_agents_certificate_may_be_pinned() {
    let (files, upstream) = (Files::new(), complete_agent());
    let named = files.trusted.server_named("agent.internal");
    let front = TlsFront::start(upstream.address(), &named, &files.trusted, false);
    let url = front.url("127.0.0.1", "/process");
    let tls = |name: &str| format!("tls = {{ ca = \"ca.pem\"{name} }}\nhealth = {{ path = \"/health\" }}");
    let agents = agent("pinned", &url, "", &tls(", server_name = \"agent.internal\""))
        + &agent("wrong", &url, "", &tls(", server_name = \"other.internal\""))
        + &agent("plain", &url, "", &tls(""));
    let gateway = files.gateway(&agents).await;
    assert_eq!(status(&gateway, "pinned").await, (200, None));
    for name in ["wrong", "plain"] {
        assert_eq!(status(&gateway, name).await, unreachable(), "{name}");
    }

    let request = upstream.requests().into_iter().find(|one| one.path == "/process").expect("a request");
    let host = url.trim_start_matches("https://").trim_end_matches("/process");
    assert_eq!(request.headers.get("host").map(String::as_str), Some(host), "the agent knows itself by its URL");
    let names: Vec<_> = front.handshakes().into_iter().map(|seen| seen.name).collect();
    assert!(names.iter().all(|name| name.as_deref() == Some("agent.internal")), "{names:?}");
    poll_until("a check", async || upstream.requests().iter().find(|one| one.path == "/health").map(drop)).await;
}

#[tokio::test]
async fn requests_go_through_the_proxy_of_the_agent() {
    let (files, upstream, proxy) = (Files::new(), complete_agent(), Proxy::start());
    fs::write(files.path().join("password"), "password-of-the-proxy").expect("a file");
    let front = TlsFront::start(upstream.address(), &files.trusted.server(), &files.trusted, false);
    let url = format!("http://{}", proxy.address);
    let known = format!("proxy = {{ url = \"{url}\", user = \"ada\", password = {{ file = \"password\" }} }}");
    let agents = agent("plain", &upstream.url("/process"), "", &format!("proxy = \"{url}\""))
        + &agent("known", &upstream.url("/process"), "", &known)
        + &agent("secure", &front.url("localhost", "/process"), "", &format!("{BOTH}\n{known}"));
    let gateway = files.gateway(&agents).await;
    for name in ["plain", "known", "secure"] {
        assert_eq!(status(&gateway, name).await, (200, None), "{name}");
    }

    let heads = proxy.heads();
    assert_eq!(heads.len(), 3, "{heads:#?}");
    // base64("ada:password-of-the-proxy"), in lower case.
    let credentials = "proxy-authorization: basic ywrhonbhc3n3b3jklw9mlxrozs1wcm94eq==";
    assert!(heads[0].starts_with(&format!("post {} http/1.1", upstream.url("/process"))), "{}", heads[0]);
    assert!(!heads[0].contains("proxy-authorization"));
    assert!(heads[1].contains(credentials), "{}", heads[1]);
    let authority = format!("localhost:{}", front.address.port());
    assert!(heads[2].starts_with(&format!("connect {authority} http/1.1")), "{}", heads[2]);
    assert!(heads[2].contains(credentials), "{}", heads[2]);
    let requests = upstream.requests();
    assert!(!requests[2].headers.contains_key("proxy-authorization"), "what goes through a tunnel is for the agent");
    assert_eq!(front.handshakes().len(), 1);
    assert!(front.handshakes()[0].has_certificate);
}

#[tokio::test]
async fn a_tunnel_that_the_proxy_refuses_has_sent_nothing() {
    let files = Files::new();
    let upstreams = [(); 2].map(|()| {
        Upstream::with_handler(|request| {
            let body = String::from_utf8_lossy(&request.body).into_owned();
            if body.contains("ask") && !body.contains("appr-1") {
                approval_request("appr-1")
            } else {
                text_reply(&["hi"])
            }
        })
    });
    let server = files.trusted.server();
    let fronts = [0, 1].map(|at: usize| TlsFront::start(upstreams[at].address(), &server, &files.trusted, false));
    let proxy = Proxy::refusing(&[format!(":{} ", fronts[0].address.port())]);
    let urls = [0, 1].map(|at: usize| format!("{{ url = \"{}\" }}", fronts[at].url("localhost", "/process")));
    let agents = format!(
        "[agents.pool.upstream]\nprotocol = \"agent-api\"\nurls = [{}]\ntls = {{ ca = \"ca.pem\" }}\n\
         affinity = \"none\"\nproxy = \"http://{}\"\n",
        urls.join(", "),
        proxy.address
    );
    let gateway = files.gateway(&agents).await;
    for turn in 0..20 {
        assert_eq!(status(&gateway, "pool").await, (200, None), "turn {turn}");
    }
    let refused = proxy.heads().iter().filter(|head| head.contains(&format!(":{} ", fronts[0].address.port()))).count();
    assert!((1..=5).contains(&refused), "after five failures in a row it is asked no more: {refused}");
    assert_eq!((upstreams[0].requests().len(), upstreams[1].requests().len()), (0, 20));

    // Also a decision: no endpoint can have it.
    gateway.run_turn("pool", &user_turn_in("s", "ask")).await.expect_completed();
    let data = json!({ "approval_request_id": "appr-1", "id": "appr-1", "approve": true });
    let decision = json!({
        "session_id": "s",
        "input": [{ "type": "mcp_approval_response", "role": "user", "content": [{ "type": "data", "data": data }] }],
    });
    gateway.run_turn("pool", &decision).await.expect_completed();
}

fn process_in(folder: &Path, agents: &str, environment: &[(&str, String)]) -> Process {
    let head = "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n[store]\nkind = \"memory\"\n\
        [admin]\nlisten = \"127.0.0.1:0\"\nconsole = false\n";
    fs::write(folder.join("gateway.toml"), format!("{head}{agents}{ROUTE}")).expect("a file");
    let mut command = binary(folder);
    command.args(["--log", "warn"]).stderr(Stdio::null());
    for (name, value) in environment {
        command.env(name, value);
    }
    Process::spawn(command)
}

async fn status_of(process: &Process) -> u16 {
    let mut body = user_turn("hi");
    body["stream"] = false.into();
    let body = body.to_string();
    process.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await.response().await.status
}

#[tokio::test]
async fn proxies_of_the_environment_are_not_used() {
    let (files, upstream, proxy) = (Files::new(), complete_agent(), Proxy::start());
    let names = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let environment = names.map(|name| (name, format!("http://{}", proxy.address)));
    let agents = agent("friday", &upstream.url("/process"), "", "");
    let process = process_in(files.path(), &agents, &environment);
    assert_eq!(status_of(&process).await, 200);
    assert_eq!(proxy.heads(), Vec::<String>::new());
}

#[tokio::test]
async fn changed_files_count_from_the_next_reload_on_and_bad_ones_never() {
    let (files, upstream) = (Files::new(), complete_agent());
    let front = TlsFront::start(upstream.address(), &files.trusted.server(), &files.trusted, true);
    let good = fs::read(files.path().join("ca.pem")).expect("the file");
    let other = fs::read(files.path().join("other-ca.pem")).expect("the file");
    fs::write(files.path().join("ca.pem"), &other).expect("a file");
    let agents = agent("friday", &front.url("localhost", "/process"), "", BOTH);
    let process = process_in(files.path(), &agents, &[]);
    assert_eq!(status_of(&process).await, 502);

    fs::write(files.path().join("ca.pem"), &good).expect("a file");
    let reloaded = process.operate("POST", "/api/reload", &[], b"").await;
    assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    assert_eq!(status_of(&process).await, 200);

    // A key of another certificate: the pair before stays.
    let foreign = files.trusted.client("spiffe://example.com/other", "other.example.com");
    fs::write(files.path().join("key.pem"), &foreign.key).expect("a file");
    let refused = process.operate("POST", "/api/reload", &[], b"").await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(refused.text().contains("does not belong to the certificate"), "{}", refused.text());
    assert_eq!(status_of(&process).await, 200);
    assert!(!files.client.cert.is_empty());
}
