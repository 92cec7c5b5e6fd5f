//! Reloading the configuration of a running process: by signal, by a change of its files and by the admin listener.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::agent::{text_reply, text_reply_until};
use crate::support::gateway::{JSON, ROUTE, agent, user_turn};
use crate::support::poll_until;
use crate::support::process::Process;
use crate::support::tls::Authority;
use crate::support::transcript::Transcript;
use crate::support::upstream::Upstream;

const HEAD: &str = "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\nworkers = 1\n[store]\nkind = \"memory\"\n\
    [admin]\nlisten = \"127.0.0.1:0\"\nconsole = false\n[observe]\naudit = \"audit.jsonl\"\n";

fn write(folder: &Path, agents: &[String]) {
    let config = format!("{HEAD}{}{ROUTE}", agents.concat());
    // Renamed into its place, as editors and deployments do.
    std::fs::write(folder.join("new"), config).expect("a file");
    std::fs::rename(folder.join("new"), folder.join("gateway.toml")).expect("a file");
}

fn start(agents: &[String]) -> (tempfile::TempDir, Process) {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), agents);
    let process = Process::start(folder.path());
    (folder, process)
}

async fn status(process: &Process, agent: &str) -> u16 {
    let path = format!("/agents/{agent}/process");
    process.open("POST", &path, JSON, user_turn("hi").to_string().as_bytes()).await.response().await.status
}

async fn reload(process: &Process) -> (u16, Value) {
    let response = process.operate("POST", "/api/reload", &[], b"").await;
    (response.status, response.json())
}

/// The values of the header `x-key` of all requests to an agent.
fn keys(upstream: &Upstream) -> Vec<String> {
    upstream.requests().iter().filter_map(|request| request.headers.get("x-key").cloned()).collect()
}

#[tokio::test]
async fn agents_come_change_and_go_while_others_keep_their_connections() {
    let (kept, changed) = (Upstream::always(text_reply(&["kept"])), Upstream::always(text_reply(&["changed"])));
    let one = |name: &str, upstream: &Upstream, path: &str| agent(name, &upstream.url(path), "", "");
    let (folder, process) = start(&[one("kept", &kept, "/process"), one("changed", &changed, "/process")]);
    assert_eq!([status(&process, "kept").await, status(&process, "changed").await], [200, 200]);
    assert_eq!(status(&process, "added").await, 404);

    write(
        folder.path(),
        &[one("kept", &kept, "/process"), one("changed", &changed, "/other"), one("added", &kept, "/process")],
    );
    let (code, body) = reload(&process).await;
    assert_eq!((code, body["changed_agents"].as_u64(), &body["restart"]), (200, Some(2), &json!([])), "{body}");
    let connections = kept.connections();
    assert_eq!([status(&process, "kept").await, status(&process, "changed").await], [200, 200]);
    assert_eq!(kept.connections(), connections, "an agent that has not changed keeps its connection");
    let path = changed.requests().last().map(|request| request.path.clone());
    assert_eq!(path.as_deref(), Some("/other"));
    assert_eq!(status(&process, "added").await, 200);

    write(folder.path(), &[one("kept", &kept, "/process")]);
    assert_eq!(reload(&process).await.0, 200);
    assert_eq!([status(&process, "changed").await, status(&process, "kept").await], [404, 200]);
}

#[tokio::test]
async fn a_wrong_file_changes_nothing_and_says_where_it_is_wrong() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let (folder, process) = start(&[agent("friday", &upstream.url("/process"), "", "")]);
    write(folder.path(), &["[agents.friday]\nupstream = { protocol = \"nonsense\" }\n".to_owned()]);
    let (code, body) = reload(&process).await;
    assert_eq!((code, body["code"].as_str()), (422, Some("CONFIG_INVALID")), "{body}");
    let error = &body["errors"][0];
    assert!(error["line"].as_u64() > Some(8) && error["message"].as_str().unwrap_or("").contains("nonsense"), "{body}");
    assert_eq!(status(&process, "friday").await, 200);

    let last = process.operate("GET", "/api/gateway", &[], b"").await.json()["reload"].clone();
    assert_eq!((last["successful"].as_bool(), last["trigger"].as_str()), (Some(false), Some("admin")), "{last}");
    let metrics = process.operate("GET", "/metrics", &[], b"").await;
    assert!(metrics.text().contains("interlingua_reloads_total{result=\"failed\"} 1\n"), "{}", metrics.text());
    assert!(metrics.text().contains("interlingua_config_last_reload_successful 0\n"));
    let audit = std::fs::read_to_string(folder.path().join("audit.jsonl")).expect("the audit log");
    assert!(audit.lines().any(|line| line.contains("\"what\":\"reload\"") && line.contains("failed")), "{audit}");
}

#[tokio::test]
async fn settings_that_need_a_restart_are_named() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let (folder, process) = start(&[agent("friday", &upstream.url("/process"), "", "")]);
    Authority::new().server().write(folder.path());
    let path = folder.path().join("gateway.toml");
    let config = std::fs::read_to_string(&path).expect("the file");
    let config = config
        .replacen(
            "listen = \"127.0.0.1:0\"",
            "listen = \"127.0.0.1:1\"\ntls = { cert = \"cert.pem\", key = \"key.pem\" }",
            1,
        )
        .replacen("workers = 1", "workers = 7", 1)
        .replace("kind = \"memory\"", "kind = \"sqlite\"")
        .replace("agents.friday", "agents.monday");
    std::fs::write(&path, config).expect("a file");
    let (code, body) = reload(&process).await;
    let restart = json!(["server.listen", "server.tls", "server.workers", "store.kind"]);
    assert_eq!((code, &body["restart"]), (200, &restart), "{body}");
    assert_eq!([status(&process, "friday").await, status(&process, "monday").await], [404, 200]);
    let in_force = process.operate("GET", "/api/config", &[], b"").await.json()["in_force"].clone();
    assert_eq!(
        (in_force["store"]["kind"].as_str(), in_force["server"]["listen"].as_str()),
        (Some("memory"), Some("127.0.0.1:0"))
    );
}

#[tokio::test]
async fn a_rotated_secret_counts_from_the_next_turn_on() {
    let upstream = Upstream::always(text_reply_until(&["so far"], "on"));
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "first-secret-of-friday").expect("a file");
    let headers = "headers = { x-key = { file = \"secret\" } }";
    write(folder.path(), &[agent("friday", &upstream.url("/process"), "", headers)]);
    let process = Process::start(folder.path());

    let mut stream = process.open("POST", "/agents/friday/process", JSON, user_turn("hi").to_string().as_bytes()).await;
    let mut seen = stream.read_until("so far").await;
    std::fs::write(&secret, "other-secret-of-friday").expect("a file");
    process.hang_up();
    poll_until("the signal to arrive", async || {
        let metrics = process.operate("GET", "/metrics", &[], b"").await;
        metrics.text().contains("interlingua_reloads_total{result=\"taken\"} 1\n").then_some(())
    })
    .await;
    upstream.open("on");
    seen.extend(stream.frames().await);
    assert_eq!(Transcript::parse(&seen).expect_completed().text(), "so far", "the turn under way is not disturbed");
    assert_eq!(status(&process, "friday").await, 200);
    assert_eq!(keys(&upstream), ["first-secret-of-friday", "other-secret-of-friday"]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_change_of_a_file_is_noticed_also_behind_a_link() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let (folder, process) = start(&[agent("friday", &upstream.url("/process"), "", "")]);
    let visible_after = async |name: &str| {
        let began = Instant::now();
        poll_until("the change to be noticed", async || (status(&process, name).await == 200).then_some(())).await;
        began.elapsed()
    };
    write(folder.path(), &[agent("monday", &upstream.url("/process"), "", "")]);
    let took = visible_after("monday").await;
    assert!(took < Duration::from_secs(8), "{took:?}");

    // As Kubernetes mounts a configuration: a link that is replaced.
    let target = folder.path().join("second");
    std::fs::create_dir(&target).expect("a folder");
    write(&target, &[agent("tuesday", &upstream.url("/process"), "", "")]);
    std::os::unix::fs::symlink(target.join("gateway.toml"), folder.path().join("link")).expect("a link");
    std::fs::rename(folder.path().join("link"), folder.path().join("gateway.toml")).expect("replaced");
    visible_after("tuesday").await;
    assert_eq!(status(&process, "monday").await, 404);
}
