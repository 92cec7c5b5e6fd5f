//! The command line as seen by operators and scripts: output, streams and exit codes.
//!
//! Not here: errors in configurations (`tests/config.rs`).

use interlingua_testing_support as support;
#[path = "cli/mcp_bridge.rs"]
mod mcp_bridge;
#[path = "cli/mcp_host.rs"]
mod mcp_host;
#[path = "cli/mcp_session.rs"]
mod mcp_session;
#[path = "cli/words.rs"]
mod words;

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use support::agent::text_reply;
use support::process::{Process, binary, run};
use support::upstream::{Reply, Upstream, unused_address};

const GOOD: &str = r#"
[server]
listen = "127.0.0.1:0"
[agents.demo]
upstream = { protocol = "demo", options = { pace_ms = 0 } }
[[routes]]
protocol = "agent-api"
path = "/agents/{agent}"
"#;

/// A folder that contains this configuration.
fn folder(config: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    folder
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("output is text")
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("output is text")
}

#[test]
fn check_accepts_a_valid_configuration() {
    let folder = folder(GOOD);
    let output = run(folder.path(), &["check"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    assert_eq!(stdout(&output), "gateway.toml: OK (1 agent, 1 route)\n");
}

#[test]
fn check_warns_about_suspicious_urls() {
    let folder = folder(&GOOD.replace(
        "protocol = \"demo\", options = { pace_ms = 0 }",
        "protocol = \"agent-api\", url = \"http://127.0.0.1:8090\", options = { stop_url = \"http://127.0.0.1:9000/stop\" }",
    ));
    let output = run(folder.path(), &["check"]);
    let warned = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{warned}");

    for warning in ["upstream of agent \"demo\": url has no path", "stop_url has another origin than url"] {
        assert!(warned.contains(warning), "{warning} is missing in {warned}");
    }
}

#[test]
fn check_refuses_pairs_of_options_that_cannot_work() {
    for (upstream, history, error, remedy) in [
        ("hitl", "gateway", "agent \"friday\" cannot be sent its history", "history = \"upstream\""),
        ("chat-completions", "upstream", "agent \"friday\" would forget every turn", "history = \"gateway\""),
    ] {
        let agent = format!(
            "[agents.friday]\nhistory = \"{history}\"\n\
             upstream = {{ protocol = \"{upstream}\", url = \"http://127.0.0.1:1/v1\" }}\n"
        );
        let output = run(folder(&format!("{GOOD}{agent}")).path(), &["check"]);
        assert_eq!(output.status.code(), Some(2), "{upstream}");
        for text in [error, remedy, "gateway.toml:10:11"] {
            assert!(stderr(&output).contains(text), "{text} is not in {}", stderr(&output));
        }
    }
}

#[test]
fn global_options_may_come_before_or_after_the_command() {
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
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", stderr(&output));
    }
}

#[test]
fn the_shipped_configuration_is_valid() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = run(shipped, &["check"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
}

#[test]
fn all_errors_are_reported_with_their_location_and_nothing_starts() {
    let folder = folder(
        "[server]\nlisten = \"127.0.0.1:0\"\nlissten = 1\n[agents.demo]\nupstream = { protocol = \"dmo\" }\n\
         [agents.friday]\nupstream = { protocol = \"agent-api\", url = \"http://x/\", headers = { authorization = { env = \"INTERLINGUA_TEST_NOT_SET\" } } }\n\
         [[routes]]\nprotocol = \"agent-api\"\npath = \"agents\"\nagents = [\"unknown\"]\nheartbeat = \"soon\"\n",
    );

    for command in [&["check"][..], &["serve"], &[], &["routes"]] {
        let output = run(folder.path(), command);
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""), "{command:?}");
        for error in ["lissten", "listen", "dmo", "INTERLINGUA_TEST_NOT_SET", "unknown", "soon", "gateway.toml:3:1"] {
            assert!(stderr(&output).contains(error), "{command:?} does not report {error}:\n{}", stderr(&output));
        }
    }
}

#[test]
fn secrets_are_never_printed() {
    let config = format!(
        "{GOOD}[agents.friday]\nupstream = {{ protocol = \"agent-api\", url = \"http://127.0.0.1:1/\", \
         headers = {{ authorization = {{ env = \"INTERLINGUA_TEST_TOKEN\", prefix = \"Bearer \" }} }} }}\n"
    );
    let folder = folder(&config);
    for command in [&["check"][..], &["routes"], &["routes", "--json"], &["schema"]] {
        let output =
            binary(folder.path()).args(command).env("INTERLINGUA_TEST_TOKEN", "sk-secret").output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{command:?}: {}", stderr(&output));
        assert!(!stdout(&output).contains("sk-secret") && !stderr(&output).contains("sk-secret"), "{command:?}");
    }

    let output = run(folder.path(), &["check"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("INTERLINGUA_TEST_TOKEN"), "{}", stderr(&output));
}

#[test]
fn a_missing_file_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(folder.path(), &["check"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("gateway.toml") && stderr(&output).contains("--config"), "{}", stderr(&output));
}

#[test]
fn an_invalid_command_line_exits_with_code_2() {
    let folder = folder(GOOD);
    for wrong in
        [&["sevre"][..], &["--confg", "x"], &["call"], &["routes", "--yaml"], &["--log-format", "xml", "check"]]
    {
        let output = run(folder.path(), wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(!stderr(&output).is_empty());
    }

    for right in [&["--help"][..], &["--version"], &["help", "call"]] {
        let output = run(folder.path(), right);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""), "{right:?}");
        assert!(!stdout(&output).is_empty());
    }
}

#[test]
fn routes_are_listed_as_a_table_and_as_json() {
    let folder = folder(&format!("{GOOD}[agents.other]\nupstream = {{ protocol = \"demo\" }}\n"));
    let listed: Value = serde_json::from_str(stdout(&run(folder.path(), &["routes", "--json"]))).expect("JSON");
    let expected = serde_json::json!([
        { "protocol": "agent-api", "path": "/agents/demo", "agents": ["demo"], "auth": "none", "public": [] },
        { "protocol": "agent-api", "path": "/agents/other", "agents": ["other"], "auth": "none", "public": [] },
    ]);
    assert_eq!(listed, expected);

    let table = run(folder.path(), &["routes"]);
    assert!(stdout(&table).contains("PROTOCOL") && stdout(&table).contains("/agents/other"), "{}", stdout(&table));
}

#[test]
fn the_schema_is_valid_and_matches_the_shipped_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(folder.path(), &["schema"]);
    let schema: Value = serde_json::from_str(stdout(&output)).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let shipped: toml::Value = toml::from_str(include_str!("../gateway.toml")).expect("TOML");
    let shipped = serde_json::to_value(shipped).expect("JSON");

    assert!(validator.is_valid(&shipped), "the shipped file is valid");
    assert!(!validator.is_valid(&serde_json::json!({ "servr": {} })));
}

#[tokio::test]
async fn a_gateway_prints_its_routes_and_can_be_called() {
    let folder = folder(GOOD);
    let process = Process::start(folder.path());
    let url = format!("http://{}/agents/demo", process.address);
    assert!(process.startup_output.contains(&url.replace("demo", "{agent}")), "{}", process.startup_output);
    assert!(
        process.startup_output.contains(&format!("curl -N {url}/process")),
        "a line to paste: {}",
        process.startup_output
    );
    assert!(process.startup_output.contains("No authentication"), "{}", process.startup_output);

    let called = run(folder.path(), &["call", &url, "echo hello there"]);
    assert_eq!((called.status.code(), stdout(&called).trim()), (Some(0), "hello there"), "{}", stderr(&called));
    let words = run(folder.path(), &["call", &url, "echo", "several", "words"]);
    assert_eq!(stdout(&words).trim(), "several words");
    let raw = run(folder.path(), &["call", "--raw", &url, "echo hi"]);
    for line in stdout(&raw).lines() {
        let frame: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(frame["object"].is_string());
    }

    let failed = run(folder.path(), &["call", &url, "fail"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(stdout(&failed).contains("So far everything went well"), "{}", stdout(&failed));
    assert!(stderr(&failed).contains("MODEL_EXECUTION_FAILED"), "{}", stderr(&failed));
    let unknown = run(folder.path(), &["call", &format!("http://{}/agents/unknown", process.address), "hi"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(stderr(&unknown).contains("404"), "{}", stderr(&unknown));
    let refused = run(folder.path(), &["call", &url, "refusal"]);
    assert_eq!(refused.status.code(), Some(0));
    assert!(stdout(&refused).contains("[refusal] "), "{}", stdout(&refused));
    let warned = run(folder.path(), &["call", &url, "warning"]);
    let warning = stdout(&warned).lines().find_map(|line| line.strip_prefix("[error] ")).unwrap_or_default();
    assert!(warning.len() > 10, "the text of the warning is shown: {}", stdout(&warned));
    for text in ["echo one", "history"] {
        let turn = run(folder.path(), &["call", "--session", "s", &url, text]);
        assert_eq!(turn.status.code(), Some(0));
        assert!(text != "history" || stdout(&turn).contains("message 2"), "{}", stdout(&turn));
    }

    let base = format!("http://{}", process.address);
    let healthy = run(folder.path(), &["health", &base]);
    assert_eq!((healthy.status.code(), stdout(&healthy)), (Some(0), "ready\n"));
    let alive = run(folder.path(), &["health", &format!("{base}/healthz")]);
    assert_eq!(alive.status.code(), Some(0), "{}", stderr(&alive));
    let unknown = run(folder.path(), &["health", &format!("{base}/unknown")]);
    assert!(unknown.status.code() == Some(1) && stderr(&unknown).contains("404 of /unknown"), "{}", stderr(&unknown));
    process.kill();
    let gone = run(folder.path(), &["health", &base]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(stderr(&gone).contains("error:"), "{}", stderr(&gone));
}

#[tokio::test]
async fn a_call_prints_its_session_and_run_and_answers_pending_items() {
    let folder = folder(GOOD);
    let process = Process::start(folder.path());
    let url = format!("http://{}/agents/demo", process.address);

    for (answer, expected) in [("yes", "sent"), ("no", "not")] {
        let asked = run(folder.path(), &["call", &url, "approval"]);
        assert_eq!(asked.status.code(), Some(0), "{}", stderr(&asked));
        let message = stderr(&asked);
        let words: Vec<&str> =
            message.lines().find(|line| line.contains("--answer")).expect(message).split(' ').collect();
        let after = |word: &str| words[words.iter().position(|known| *known == word).expect(word) + 1];
        let (session, item) = (after("--session"), after("--answer"));
        assert!(message.contains(&format!("session {session}, run response_")), "{message}");
        assert!(message.contains("waiting for approval of ") && message.contains("  answer: yes, no"), "{message}");
        assert!(!message.contains("{\"") && !stdout(&asked).contains("{\""), "{message}{}", stdout(&asked));
        assert!(item.starts_with("appr_"), "{item}");

        let answered = run(folder.path(), &["call", &url, "--session", session, "--answer", item, answer]);
        assert_eq!(answered.status.code(), Some(0), "{}", stderr(&answered));
        assert!(stdout(&answered).to_lowercase().contains(expected), "{answer}: {}", stdout(&answered));
        assert!(!stderr(&answered).contains("--answer"), "{}", stderr(&answered));
    }
}

/// The same gateway, with a route of each protocol that [`GOOD`] has not.
fn all_routes() -> String {
    let routes =
        [("a2a", "/a2a/{agent}"), ("responses", "/v1"), ("ag-kit", "/ag-kit/{agent}"), ("hitl", "/hitl/{agent}")];
    let routes = routes.map(|(protocol, path)| format!("[[routes]]\nprotocol = \"{protocol}\"\npath = \"{path}\"\n"));
    format!("{GOOD}{}", routes.concat())
}

#[tokio::test]
async fn a_call_speaks_every_protocol_of_a_gateway() {
    let folder = folder(&all_routes());
    let process = Process::start(folder.path());
    let url = |path: &str| format!("http://{}{path}", process.address);
    for (protocol, path, chosen) in [
        ("a2a", "/a2a/demo", "a2a"),
        ("responses", "/v1/responses", "responses"),
        ("ag-kit", "/ag-kit/demo/send-message", "ag-kit"),
        ("hitl", "/hitl/demo", "hitl"),
        ("auto", "/v1/responses", "responses"),
        ("auto", "/a2a/demo", "a2a"),
        ("auto", "/agents/demo/process", "agent-api"),
    ] {
        let called =
            run(folder.path(), &["call", &url(path), "echo hello there", "--protocol", protocol, "--model", "demo"]);
        let said = (called.status.code(), stdout(&called).trim());
        assert_eq!(said, (Some(0), "hello there"), "{protocol} {path}: {}", stderr(&called));
        let guessed = format!("protocol {chosen}\n");
        assert_eq!(stderr(&called).contains(&guessed), protocol == "auto", "{}", stderr(&called));
    }

    let failed = run(folder.path(), &["call", &url("/a2a/demo"), "fail", "--protocol", "a2a"]);
    assert_eq!(failed.status.code(), Some(1), "{}", stdout(&failed));
    assert!(stderr(&failed).contains("the run ended as failed"), "{}", stderr(&failed));
    let raw = run(
        folder.path(),
        &["call", "--raw", &url("/v1/responses"), "echo hi", "--protocol", "responses", "--model", "demo"],
    );
    assert!(stdout(&raw).contains("response.completed"), "{}", stdout(&raw));
}

#[tokio::test]
async fn a_call_of_any_protocol_can_be_answered_by_another_call() {
    let folder = folder(&all_routes());
    let process = Process::start(folder.path());
    let url = format!("http://{}/a2a/demo", process.address);
    for (answer, expected) in [("yes", "sent"), ("no", "not")] {
        let asked = run(folder.path(), &["call", &url, "approval", "--protocol", "a2a"]);
        let message = stderr(&asked);
        assert_eq!(asked.status.code(), Some(0), "{message}");
        let words: Vec<&str> =
            message.lines().find(|line| line.contains("--answer")).expect(message).split(' ').collect();
        let after = |word: &str| words[words.iter().position(|known| *known == word).expect(word) + 1];
        let (token, item) = (after("--resume"), after("--answer"));
        assert!(message.contains("waiting for approval of ") && !stdout(&asked).contains("{\""), "{message}");
        assert!(token.len() < 1500, "a token of {} characters", token.len());
        let answered = run(folder.path(), &["call", &url, "--resume", token, "--answer", item, answer]);
        assert_eq!(answered.status.code(), Some(0), "{}", stderr(&answered));
        assert!(stdout(&answered).to_lowercase().contains(expected), "{answer}: {}", stdout(&answered));
    }
}

#[tokio::test]
async fn a_call_of_a_url_of_another_protocol_names_it() {
    let folder = folder(&all_routes());
    let process = Process::start(folder.path());
    for (path, hint) in [
        ("/a2a/demo", "this is a URL of a2a: add --protocol a2a"),
        ("/hitl/demo", "this is a URL of hitl: add --protocol hitl"),
        ("/v1", "this is the base URL of a model server: add --protocol responses"),
        ("/v1/responses", "this is a URL of responses: add --protocol responses"),
        ("/ag-kit/demo", "if another protocol is spoken there, name it: --protocol "),
    ] {
        let called = run(folder.path(), &["call", &format!("http://{}{path}", process.address), "hi"]);
        assert_eq!(called.status.code(), Some(1), "{path}");
        assert!(stderr(&called).contains(hint), "{path}: {}", stderr(&called));
    }
}

#[test]
fn a_call_that_cannot_be_made_says_why() {
    let folder = folder(GOOD);
    for (words, why) in [
        (&["--protocol", "smtp"][..], "unknown protocol \"smtp\": there are auto"),
        (&["--protocol", "responses", "--option", "modle=x"], "modle"),
        (&["--protocol", "responses", "--option", "model"], "write KEY=VALUE"),
        (&["--protocol", "responses", "--tools", "none.json"], "cannot read none.json"),
        (&["--resume", "nothing"], "no token that an earlier call printed"),
    ] {
        let called = run(folder.path(), &[&["call", "http://127.0.0.1:1/v1", "hi"][..], words].concat());
        assert_eq!(called.status.code(), Some(1), "{words:?}");
        assert!(stderr(&called).contains(why), "{words:?}: {}", stderr(&called));
    }
}

#[test]
fn a_probe_reports_the_agent_and_its_features() {
    let upstream = Upstream::with_handler(|request| match request.path.as_str() {
        "/health" => Reply::complete(200, &[], "{}"),
        _ => Reply::complete(405, &[], ""),
    });
    let friday =
        format!("[agents.friday]\nupstream = {{ protocol = \"agent-api\", url = \"{}\" }}\n", upstream.url("/process"));
    let gone = format!(
        "[agents.gone]\nupstream = {{ protocol = \"agent-api\", url = \"http://{}/process\" }}\n",
        unused_address()
    );
    let folder = folder(&format!("{GOOD}{friday}{gone}"));

    let probed = run(folder.path(), &["probe", "friday"]);
    let lines: Vec<&str> = stdout(&probed).lines().collect();
    assert_eq!(probed.status.code(), Some(0), "{}{}", stdout(&probed), stderr(&probed));
    assert_eq!(lines[0], format!("friday: protocol agent-api, {}", upstream.url("/process")));
    assert!(lines[1].starts_with("ok       reachable: 200 in "), "{lines:?}");
    for line in ["ok       the server says that it is healthy", "ok       there is an endpoint at the URL"] {
        assert!(lines.contains(&line), "{line} is not in {lines:?}");
    }
    assert!(upstream.requests().iter().all(|request| request.method == "GET"), "nothing runs the agent");

    // A route is judged by its own options.
    let quiet = "[[routes]]\nprotocol = \"responses\"\npath = \"/quiet\"\noptions = { reasoning = \"hide\" }\n";
    std::fs::write(folder.path().join("gateway.toml"), format!("{GOOD}{friday}{gone}{quiet}")).expect("written");
    let probed = run(folder.path(), &["probe", "friday"]);
    assert!(stdout(&probed).contains("/quiet: reasoning is not shown"), "{}{}", stdout(&probed), stderr(&probed));

    let probed = run(folder.path(), &["probe", "gone", "--json"]);
    let found: Value = serde_json::from_str(stdout(&probed)).expect("JSON");
    assert_eq!(probed.status.code(), Some(1));
    assert_eq!(found["endpoints"][0]["findings"][0]["level"], "problem", "{found}");
    let unknown = run(folder.path(), &["probe", "other"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("there are demo, friday, gone"), "{}", stderr(&unknown));
    assert_eq!(run(folder.path(), &["probe", "friday", "--endpoint", "2"]).status.code(), Some(2));
}

#[test]
fn a_probe_that_asks_takes_a_turn_and_sees_whether_the_agent_remembers() {
    let mut turns = 0;
    let upstream = Upstream::with_handler(move |request| {
        if request.method == "GET" {
            return Reply::complete(404, &[], "");
        }
        turns += 1;
        text_reply(if turns == 1 { &["nice ", "to meet you"] } else { &["you said: Good Morning"] })
    });
    let friday =
        format!("[agents.friday]\nupstream = {{ protocol = \"agent-api\", url = \"{}\" }}\n", upstream.url("/process"));
    let folder = folder(&format!("{GOOD}{friday}"));
    let probed = run(folder.path(), &["probe", "friday", "--ask", "good morning"]);
    let text = stdout(&probed);
    assert!(text.contains("ok       the turn ended as completed after "), "{text}");
    assert!(text.contains("ok       it remembers what was said\n"), "{text}");
    assert!(text.ends_with("\n\nnice to meet you\n"), "{text}");
    let sessions: Vec<Value> = upstream
        .requests()
        .iter()
        .filter(|one| one.method == "POST")
        .map(|one| one.json()["session_id"].clone())
        .collect();
    assert_eq!((sessions.len(), &sessions[0]), (2, &sessions[1]));

    let probed = run(folder.path(), &["probe", "demo", "--ask", "fail"]);
    assert_eq!(probed.status.code(), Some(1));
    assert!(stdout(&probed).contains("problem  the turn ended as failed"), "{}", stdout(&probed));
}

#[tokio::test]
async fn sighup_reloads_the_running_gateway() {
    let folder = folder(GOOD);
    let process = Process::start_logging(folder.path());
    process.hang_up();
    let logged = async || {
        let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        log.contains("configuration reloaded").then_some(())
    };
    support::poll_until("the reload", logged).await;
    assert_eq!(process.open("GET", "/healthz", &[], b"").await.response().await.status, 200);
    process.terminate();
    assert_eq!(process.wait().await.code(), Some(0));
}

#[test]
fn an_address_in_use_is_reported() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("a bound socket").to_string();
    let folder = folder(&GOOD.replace("127.0.0.1:0", &address));
    let output = run(folder.path(), &["serve"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&format!("cannot listen on {address}")), "{}", stderr(&output));
}

#[test]
fn a_store_that_cannot_be_opened_is_named_with_the_reason_once() {
    let folder = folder(&format!("{GOOD}[store]\nkind = \"sqlite\"\npath = \"bad.db\"\n"));
    std::fs::write(folder.path().join("bad.db"), "this is a text\n".repeat(100)).expect("a file");
    let output = run(folder.path(), &["serve"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "error: cannot open the database 'bad.db': file is not a database\n");
}

/// A configuration with keys.
fn with_keys() -> String {
    format!("{GOOD}[auth]\nkeys = \"keys.toml\"\n")
}

#[tokio::test]
async fn a_key_is_made_used_listed_and_revoked() {
    let folder = folder(&with_keys());
    let made = run(folder.path(), &["key", "new", "me", "--expires", "90d"]);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    let key = stdout(&made).trim();
    assert!(key.starts_with("il_") && key.len() == 80, "{key}");
    assert!(stderr(&made).contains("keys.toml") && !stderr(&made).contains(&key[16..]), "{}", stderr(&made));

    let process = Process::start(folder.path());
    assert!(process.startup_output.contains("Everything else requires"), "{}", process.startup_output);
    let url = format!("http://{}/agents/demo", process.address);
    let call = |key: Option<&str>| {
        let mut command = binary(folder.path());
        command.args(["call", &url, "echo hello"]).env_remove("INTERLINGUA_KEY");
        command.envs(key.map(|key| ("INTERLINGUA_KEY", key))).output().expect("the binary runs")
    };
    let called = call(Some(key));
    assert_eq!((called.status.code(), stdout(&called).trim()), (Some(0), "hello"), "{}", stderr(&called));
    let anonymous = call(None);
    assert!(anonymous.status.code() == Some(1) && stderr(&anonymous).contains("401"), "{}", stderr(&anonymous));

    let listed = run(folder.path(), &["key", "list"]);
    assert!(stdout(&listed).contains("me") && stdout(&listed).contains("valid"), "{}", stdout(&listed));
    let id = &key[3..15];
    let revoked = run(folder.path(), &["key", "revoke", id]);
    assert_eq!(revoked.status.code(), Some(0), "{}", stderr(&revoked));
    let listed: Value = serde_json::from_str(stdout(&run(folder.path(), &["key", "list", "--json"]))).expect("JSON");
    assert_eq!((&listed[0]["id"], &listed[0]["state"]), (&id.into(), &"revoked".into()), "{listed}");

    support::poll_until("the key to be refused", async || (call(Some(key)).status.code() == Some(1)).then_some(()))
        .await;
}

#[test]
fn commands_about_keys_explain_missing_settings() {
    let without = folder(GOOD);
    let refused = run(without.path(), &["key", "new", "me"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("set keys = \"keys.toml\" in [auth]"), "{}", stderr(&refused));

    let folder = folder(&format!("{}[callers.default]\nagents = []\n", with_keys()));
    for name in ["default", "a b", ""] {
        let refused = run(folder.path(), &["key", "new", name]);
        assert!(refused.status.code() == Some(1) && stderr(&refused).contains("name"), "{}", stderr(&refused));
    }
    let unknown = run(folder.path(), &["key", "revoke", "abcdefgh0123"]);
    assert!(unknown.status.code() == Some(1) && stderr(&unknown).contains("no key"), "{}", stderr(&unknown));
    let warned = run(folder.path(), &["key", "new", "me"]);
    assert!(stderr(&warned).contains("[callers.default] allows no agents"), "{}", stderr(&warned));
    assert_eq!(run(folder.path(), &["key", "new", "me", "--expires", "soon"]).status.code(), Some(2));

    let check = || stderr(&run(folder.path(), &["check"])).to_owned();
    assert_eq!(check(), "", "a file that a command made is fine");
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(folder.path().join("keys.toml"), everyone).expect("changed");
    assert!(check().contains("can be read by every user"), "{}", check());
}

#[test]
fn routes_mark_access_without_credentials() {
    let folder = folder(&format!(
        "{}auth = [\"keys\"]\n[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{{agent}}\"\nauth = [\"keys\"]\n\
         [[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\nauth = \"none\"\n[auth]\nkeys = \"keys.toml\"\n",
        GOOD
    ));
    let output = run(folder.path(), &["routes"]);
    let listed = stdout(&output);
    let (_, open) = listed.split_once("Without credentials:").unwrap_or_else(|| panic!("{listed}"));
    assert!(open.contains("/healthz") && open.contains("everything below /v1"), "{listed}");
    assert!(open.contains("\n  GET /.well-known/agent-card.json\n"), "{listed}");
    assert!(open.contains("GET /a2a/demo/.well-known/agent-card.json") && !open.contains("/agents/demo"), "{listed}");

    let listed: Value = serde_json::from_str(stdout(&run(folder.path(), &["routes", "--json"]))).expect("JSON");
    assert_eq!((&listed[0]["auth"], &listed[2]["auth"]), (&serde_json::json!(["keys"]), &"none".into()), "{listed}");
    assert!(listed[1]["public"].as_array().is_some_and(|public| !public.is_empty()), "{listed}");
}
