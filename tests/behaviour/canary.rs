//! A secret in every place that may hold one, and an agent that repeats them: none of them is in anything that
//! operators read, in any usual spelling.

use std::path::Path;
use std::process::Stdio;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::support::collector::{http_collector, received};
use crate::support::gateway::{JSON, agent, user_turn};
use crate::support::process::{Process, binary, run};
use crate::support::upstream::{ReceivedRequest, Reply, Upstream};

const IN_VARIABLE: &str = "canary-variable-4f9c1d7e2b";
const IN_FILE: &str = "canary-file-8a3e5b1f60c2";
const IN_URL: &str = "canary-url-97d2c4e8a1b3";
const IN_PROXY: &str = "canary-proxy-6b0d9e27f3";
const IN_ADMIN_KEY: &str = "canary-admin-key-0123456789-abcdefghij";
const IN_COLLECTOR_KEY: &str = "canary-collector-key-2c81f0";
const IN_AUTHORIZATION: &str = "canary-client-bearer-71e5";
const IN_API_KEY: &str = "canary-client-api-key-c3a9";
const IN_QUERY: &str = "canary-client-query-5d20";
const ALL: [&str; 9] =
    [IN_VARIABLE, IN_FILE, IN_URL, IN_PROXY, IN_ADMIN_KEY, IN_COLLECTOR_KEY, IN_AUTHORIZATION, IN_API_KEY, IN_QUERY];

/// The key that signs tokens for the agent.
static IDENTITY_KEY: LazyLock<String> = LazyLock::new(|| rcgen::KeyPair::generate().expect("a key").serialize_pem());

/// Repeats what it was sent: as the body of a refusal, or as the error of a run.
fn echo(request: &ReceivedRequest) -> Reply {
    let reported = format!("no: {} {:?} {}", request.path, request.headers, BASE64_STANDARD.encode(IN_VARIABLE));
    if String::from_utf8_lossy(&request.body).contains("refuse") {
        return Reply::complete(401, &[("content-type", "text/plain")], reported);
    }
    let error = serde_json::json!({
        "object": "response", "status": "failed", "id": "r", "error": { "code": "BROKEN", "message": reported },
    });
    Reply::frames([error.to_string()])
}

fn start(folder: &Path, format: &str) -> Process {
    let log = std::fs::File::create(folder.join(format!("log-{format}"))).expect("a file");
    let mut command = binary(folder);
    command.args(["--log", "debug", "--log-format", format]).stderr(log).stdin(Stdio::null());
    Process::spawn(with_secrets(command))
}

fn with_secrets(mut command: std::process::Command) -> std::process::Command {
    command.env("IN_VARIABLE", IN_VARIABLE).env("ADMIN_KEY", IN_ADMIN_KEY).env("COLLECTOR_KEY", IN_COLLECTOR_KEY);
    command.env("IN_PROXY", IN_PROXY);
    command
}

fn config(upstream: &Upstream, collector: &Upstream) -> String {
    let headers =
        "headers = { x-key = { env = \"IN_VARIABLE\" }, authorization = { file = \"secret\", prefix = \"Bearer \" } }";
    // The agent is its own proxy: it gets what a proxy gets.
    let others = format!(
        "proxy = {{ url = \"http://{}\", user = \"ada\", password = {{ env = \"IN_PROXY\" }} }}\n\
         identity = \"jwt\"\nidentity_key = {{ file = \"identity.pem\" }}",
        upstream.address()
    );
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n[store]\nkind = \"sqlite\"\npath = \"store.db\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\nkey = {{ env = \"ADMIN_KEY\" }}\n\
         [observe]\naccess_log = {{ path = \"access.jsonl\" }}\naudit = \"audit.jsonl\"\n\
         traces = {{ endpoint = \"{}\", content = true, headers = {{ x-key = {{ env = \"COLLECTOR_KEY\" }} }} }}\n\
         metrics = {{}}\nlogs = {{}}\n{}\
         [[routes]]\nprotocol = \"agent-api\"\npath = \"/agents/{{agent}}\"\n",
        collector.url(""),
        agent("friday", &upstream.url(&format!("/process?token={IN_URL}")), "", &format!("{headers}\n{others}"))
    )
}

/// Fails if a text has a secret in it, plainly, in Base64 or as part of a URL.
fn expect_none(place: &str, text: &str) {
    let credentials = BASE64_STANDARD.encode(format!("ada:{IN_PROXY}"));
    let key = IDENTITY_KEY.lines().filter(|line| !line.starts_with("-----"));
    for part in key.chain([credentials.as_str()]) {
        assert!(!text.contains(part), "{place} has {part}:\n{text}");
    }
    for secret in ALL {
        let encoded = BASE64_STANDARD.encode(secret);
        let forms = [secret, encoded.trim_end_matches('='), &secret.replace('-', "%2D")];
        for form in forms {
            assert!(!text.contains(form), "{place} has {secret} as {form}:\n{text}");
        }
    }
}

async fn use_it(process: &Process) {
    let bearer = format!("Bearer {IN_AUTHORIZATION}");
    let headers = [JSON[0], ("authorization", bearer.as_str()), ("x-api-key", IN_API_KEY)];
    for text in ["refuse", "fail"] {
        let path = format!("/agents/friday/process?key={IN_QUERY}");
        process.open("POST", &path, &headers, user_turn(text).to_string().as_bytes()).await.response().await;
    }
    let outside = format!("/nothing?key={IN_QUERY}");
    process.open("GET", &outside, &headers, b"").await.response().await;
}

#[tokio::test]
async fn no_secret_is_shown_to_operators() {
    let (upstream, collector) = (Upstream::with_handler(echo), http_collector());
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("secret"), IN_FILE).expect("a file");
    std::fs::write(path("identity.pem"), &*IDENTITY_KEY).expect("a file");
    std::fs::write(path("gateway.toml"), config(&upstream, &collector)).expect("a file");

    for format in ["json", "pretty"] {
        std::fs::write(path("gateway.toml"), config(&upstream, &collector)).expect("a file");
        let process = start(folder.path(), format);
        use_it(&process).await;
        let key = format!("Bearer {IN_ADMIN_KEY}");
        let headers = [("authorization", key.as_str())];
        for place in [
            "/metrics",
            "/readyz",
            "/api/gateway",
            "/api/config",
            "/api/routes",
            "/api/agents",
            "/api/runs",
            "/api/callers",
            "/api/log",
        ] {
            expect_none(place, process.operate("GET", place, &headers, b"").await.text());
        }

        // A secret that was written where only references may stand, and one in a line with an error.
        let wrong = config(&upstream, &collector).replace("{ env = \"IN_VARIABLE\" }", &format!("\"{IN_VARIABLE}\""));
        std::fs::write(path("gateway.toml"), wrong).expect("a file");
        let refused = process.operate("POST", "/api/reload", &headers, b"").await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        expect_none("the errors of a reload", refused.text());
        process.terminate();
        process.wait().await;
        expect_none("the log", &std::fs::read_to_string(path(&format!("log-{format}"))).expect("the log"));
    }

    for name in ["access.jsonl", "audit.jsonl"] {
        let text = std::fs::read_to_string(path(name)).expect(name);
        assert!(!text.is_empty(), "{name}");
        expect_none(name, &text);
    }
    // Before it is parsed: all bytes, whatever they mean.
    let sent = received(&collector);
    assert!(!sent.spans.is_empty() && !sent.metrics.is_empty() && !sent.logs.is_empty(), "{sent:?}");
    let bytes = String::from_utf8_lossy(&sent.raw).into_owned();
    assert!(bytes.contains("***") && bytes.contains("turn failed"), "the agent's words were sent");
    expect_none("telemetry", &bytes);
    assert!(collector.requests().iter().all(|request| request.headers["x-key"] == IN_COLLECTOR_KEY));

    let log = std::fs::read_to_string(path("log-json")).expect("the log");
    assert!(log.contains("***") && log.contains("turn failed"), "the agent's words were logged: {log}");

    std::fs::write(path("gateway.toml"), config(&upstream, &collector)).expect("a file");
    for command in ["check", "routes"] {
        let output = with_secrets(binary(folder.path())).arg(command).output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        expect_none(command, &String::from_utf8_lossy(&output.stdout));
        expect_none(command, &String::from_utf8_lossy(&output.stderr));
    }
    expect_none("schema", &String::from_utf8_lossy(&run(folder.path(), &["schema"]).stdout));
}
