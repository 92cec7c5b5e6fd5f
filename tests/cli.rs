//! The command line, as an operator and a script meet it: what it prints, where, and with which exit code.
//!
//! Not here: what is wrong with which configuration (`tests/config.rs`).

#[path = "support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use support::process::{Process, binary, run};

const GOOD: &str = r#"
[server]
listen = "127.0.0.1:0"
[agents.demo]
upstream = { protocol = "demo", options = { pace_ms = 0 } }
[[routes]]
protocol = "agent-api"
path = "/agents/{agent}"
"#;

/// A folder with this configuration in it.
fn folder(config: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    folder
}

fn out(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("output is text")
}

fn complaints(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("complaints are text")
}

#[test]
fn check_says_that_a_configuration_is_right() {
    let folder = folder(GOOD);
    let output = run(folder.path(), &["check"]);
    assert_eq!((output.status.code(), complaints(&output)), (Some(0), ""));
    assert_eq!(out(&output), "gateway.toml: OK (1 agent, 1 route)\n");
}

#[test]
fn check_warns_of_urls_that_are_hardly_meant_so() {
    let folder = folder(&GOOD.replace(
        "protocol = \"demo\", options = { pace_ms = 0 }",
        "protocol = \"agent-api\", url = \"http://127.0.0.1:8090\", options = { stop_url = \"http://127.0.0.1:9000/stop\" }",
    ));
    let output = run(folder.path(), &["check"]);
    let warned = complaints(&output);
    assert_eq!(output.status.code(), Some(0), "{warned}");
    for warning in ["upstream of agent \"demo\": url has no path", "stop_url has another origin than url"] {
        assert!(warned.contains(warning), "{warning} is missing in {warned}");
    }
}

#[test]
fn global_options_stand_before_or_after_the_command() {
    let folder = folder(GOOD);
    let file = folder.path().join("gateway.toml");
    let file = file.to_str().expect("text");
    for words in [
        &["check", "--config", file][..],
        &["--config", file, "check"],
        &["--config", file, "routes"],
        &["routes", "--config", file],
        &["--log", "warn", "check", "--config", file],
        &["--config", file, "--log-format", "json", "check"],
    ] {
        let output = run(Path::new("/"), words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", complaints(&output));
    }
}

#[test]
fn the_shipped_configuration_is_right() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = run(shipped, &["check"]);
    assert_eq!((output.status.code(), complaints(&output)), (Some(0), ""));
}

#[test]
fn every_mistake_is_told_at_once_with_its_place_and_nothing_starts() {
    let folder = folder(
        "[server]\nlisten = \"127.0.0.1:0\"\nlissten = 1\n[agents.demo]\nupstream = { protocol = \"dmo\" }\n\
         [agents.friday]\nupstream = { protocol = \"agent-api\", url = \"http://x/\", headers = { authorization = { env = \"INTERLINGUA_TEST_NOT_SET\" } } }\n\
         [[routes]]\nprotocol = \"agent-api\"\npath = \"agents\"\nagents = [\"nobody\"]\nheartbeat = \"soon\"\n",
    );
    for command in [&["check"][..], &["serve"], &[], &["routes"]] {
        let output = run(folder.path(), command);
        assert_eq!((output.status.code(), out(&output)), (Some(2), ""), "{command:?}");
        for mistake in ["lissten", "listen", "dmo", "INTERLINGUA_TEST_NOT_SET", "nobody", "soon", "gateway.toml:3:1"] {
            assert!(
                complaints(&output).contains(mistake),
                "{command:?} does not tell of {mistake}:\n{}",
                complaints(&output)
            );
        }
    }
}

#[test]
fn a_secret_that_is_set_is_never_shown() {
    let config = format!(
        "{GOOD}[agents.friday]\nupstream = {{ protocol = \"agent-api\", url = \"http://127.0.0.1:1/\", \
         headers = {{ authorization = {{ env = \"INTERLINGUA_TEST_TOKEN\", prefix = \"Bearer \" }} }} }}\n"
    );
    // The table of agents has to stand before the routes' array ends: it does, in any order.
    let folder = folder(&config);
    for command in [&["check"][..], &["routes"], &["routes", "--json"], &["schema"]] {
        let output =
            binary(folder.path()).args(command).env("INTERLINGUA_TEST_TOKEN", "sk-secret").output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{command:?}: {}", complaints(&output));
        assert!(!out(&output).contains("sk-secret") && !complaints(&output).contains("sk-secret"), "{command:?}");
    }
    let output = run(folder.path(), &["check"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(complaints(&output).contains("INTERLINGUA_TEST_TOKEN"), "{}", complaints(&output));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(folder.path(), &["check"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        complaints(&output).contains("gateway.toml") && complaints(&output).contains("--config"),
        "{}",
        complaints(&output)
    );
}

#[test]
fn a_command_line_that_is_wrong_has_its_exit_code() {
    let folder = folder(GOOD);
    for wrong in
        [&["sevre"][..], &["--confg", "x"], &["call"], &["routes", "--yaml"], &["--log-format", "xml", "check"]]
    {
        let output = run(folder.path(), wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(!complaints(&output).is_empty());
    }
    for right in [&["--help"][..], &["--version"], &["help", "call"]] {
        let output = run(folder.path(), right);
        assert_eq!((output.status.code(), complaints(&output)), (Some(0), ""), "{right:?}");
        assert!(!out(&output).is_empty());
    }
}

#[test]
fn routes_are_listed_for_people_and_for_programs() {
    let folder = folder(&format!("{GOOD}[agents.other]\nupstream = {{ protocol = \"demo\" }}\n"));
    let listed: Value = serde_json::from_str(out(&run(folder.path(), &["routes", "--json"]))).expect("JSON");
    let expected = serde_json::json!([
        { "protocol": "agent-api", "path": "/agents/demo", "agents": ["demo"] },
        { "protocol": "agent-api", "path": "/agents/other", "agents": ["other"] },
    ]);
    assert_eq!(listed, expected);
    let table = run(folder.path(), &["routes"]);
    assert!(out(&table).contains("PROTOCOL") && out(&table).contains("/agents/other"), "{}", out(&table));
}

#[test]
fn the_schema_is_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(folder.path(), &["schema"]);
    let schema: Value = serde_json::from_str(out(&output)).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let shipped: toml::Value = toml::from_str(include_str!("../gateway.toml")).expect("TOML");
    let shipped = serde_json::to_value(shipped).expect("JSON");
    assert!(validator.is_valid(&shipped), "the shipped file fits");
    assert!(!validator.is_valid(&serde_json::json!({ "servr": {} })));
}

#[tokio::test]
async fn a_gateway_says_what_it_serves_and_can_be_called() {
    let folder = folder(GOOD);
    let process = Process::start(folder.path());
    let url = format!("http://{}/agents/demo", process.address);
    assert!(process.said.contains(&url), "{}", process.said);
    assert!(process.said.contains(&format!("curl -N {url}/process")), "lines to paste: {}", process.said);
    assert!(process.said.contains("Nothing is authenticated"), "{}", process.said);

    let called = run(folder.path(), &["call", &url, "echo hello there"]);
    assert_eq!((called.status.code(), out(&called).trim()), (Some(0), "hello there"), "{}", complaints(&called));
    let words = run(folder.path(), &["call", &url, "echo", "several", "words"]);
    assert_eq!(out(&words).trim(), "several words");
    let raw = run(folder.path(), &["call", "--raw", &url, "echo hi"]);
    for line in out(&raw).lines() {
        let frame: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(frame["object"].is_string());
    }
    let failed = run(folder.path(), &["call", &url, "fail"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(out(&failed).contains("So far everything went well"), "{}", out(&failed));
    assert!(complaints(&failed).contains("MODEL_EXECUTION_FAILED"), "{}", complaints(&failed));
    let nobody = run(folder.path(), &["call", &format!("http://{}/agents/nobody", process.address), "hi"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(complaints(&nobody).contains("404"), "{}", complaints(&nobody));
    let refused = run(folder.path(), &["call", &url, "refusal"]);
    assert_eq!(refused.status.code(), Some(0));
    assert!(out(&refused).contains("[refusal] "), "{}", out(&refused));
    let warned = run(folder.path(), &["call", &url, "warning"]);
    let warning = out(&warned).lines().find_map(|line| line.strip_prefix("[error] ")).unwrap_or_default();
    assert!(warning.len() > 10, "the text of the warning is shown: {}", out(&warned));
    for text in ["echo one", "history"] {
        let turn = run(folder.path(), &["call", "--session", "s", &url, text]);
        assert_eq!(turn.status.code(), Some(0));
        assert!(text != "history" || out(&turn).contains("message 2"), "{}", out(&turn));
    }

    let base = format!("http://{}", process.address);
    let healthy = run(folder.path(), &["health", &base]);
    assert_eq!((healthy.status.code(), out(&healthy)), (Some(0), "ready\n"));
    process.kill();
    let gone = run(folder.path(), &["health", &base]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(complaints(&gone).contains("error:"), "{}", complaints(&gone));
}

#[tokio::test]
async fn a_call_names_its_session_and_run_and_answers_what_is_asked() {
    let folder = folder(GOOD);
    let process = Process::start(folder.path());
    let url = format!("http://{}/agents/demo", process.address);

    for (answer, wanted) in [("yes", "sent"), ("no", "not")] {
        let asked = run(folder.path(), &["call", &url, "approval"]);
        assert_eq!(asked.status.code(), Some(0), "{}", complaints(&asked));
        let said = complaints(&asked);
        let words: Vec<&str> = said.lines().find(|line| line.contains("--answer")).expect(said).split(' ').collect();
        let after = |word: &str| words[words.iter().position(|known| *known == word).expect(word) + 1];
        let (session, item) = (after("--session"), after("--answer"));
        assert!(said.contains(&format!("session {session}, run response_")), "{said}");
        assert!(item.starts_with("appr_"), "{item}");

        let answered = run(folder.path(), &["call", &url, "--session", session, "--answer", item, answer]);
        assert_eq!(answered.status.code(), Some(0), "{}", complaints(&answered));
        assert!(out(&answered).to_lowercase().contains(wanted), "{answer}: {}", out(&answered));
        assert!(!complaints(&answered).contains("--answer"), "{}", complaints(&answered));
    }
}

#[tokio::test]
async fn a_closed_terminal_drains_as_a_stop_does() {
    let folder = folder(GOOD);
    let process = Process::start(folder.path());
    process.hang_up();
    assert_eq!(process.ended().await.code(), Some(0));
}

#[test]
fn an_address_that_is_taken_is_told() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound").to_string();
    let folder = folder(&GOOD.replace("127.0.0.1:0", &address));
    let output = run(folder.path(), &["serve"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaints(&output).contains(&format!("cannot listen on {address}")), "{}", complaints(&output));
}
