//! Texts of the command line: answers in words, warnings, probes, and the start banner.

use serde_json::{Value, json};

use super::support::agent::{approval_request, text_reply};
use super::support::poll_until;
use super::support::process::{Process, run};
use super::support::upstream::{Reply, Upstream};
use super::{GOOD, all_routes, folder, stderr, stdout};

/// The form of an answer follows from the item's kind: ids of agents look like anything.
#[tokio::test]
async fn answers_in_words_reach_agents_whose_items_have_ids_of_their_own() {
    for (words, decision, field) in [
        ("yes", "accept", ("approve", json!(true))),
        ("no", "reject", ("approve", json!(false))),
        ("reject too risky", "reject", ("reason", json!("too risky"))),
        ("edit {\"path\":\"y\"}", "edit", ("approve", json!(false))),
        ("it is gone already", "respond", ("reason", json!("it is gone already"))),
    ] {
        let upstream = Upstream::in_order([approval_request("lc-7"), text_reply(&["done"])]);
        let config = GOOD.replace(
            "protocol = \"demo\", options = { pace_ms = 0 }",
            &format!("protocol = \"agent-api\", url = \"{}\", approval_extension = true", upstream.url("/process")),
        );
        let folder = folder(&config);
        let process = Process::start(folder.path());
        let url = format!("http://{}/agents/demo", process.address);
        let asked = run(folder.path(), &["call", &url, "--session", "s", "clean up"]);
        assert!(stderr(&asked).contains("--answer lc-7"), "{}", stderr(&asked));

        let answered = run(folder.path(), &["call", &url, "--session", "s", "--answer", "lc-7", words]);
        assert_eq!(
            (answered.status.code(), stdout(&answered).trim()),
            (Some(0), "done"),
            "{words}: {}",
            stderr(&answered)
        );
        let sent = upstream.requests()[1].json();
        let messages = sent["input"].as_array().expect("messages").iter();
        let answers: Vec<&Value> = messages.filter(|message| message["type"] == "mcp_approval_response").collect();
        let [answer] = answers.as_slice() else { panic!("{words}: one answer in {sent}") };
        let data = &answer["content"][0]["data"];
        assert_eq!((&data["interrupt"]["decision"], &data[field.0]), (&decision.into(), &field.1), "{words}: {data}");
        if decision == "edit" {
            assert_eq!(data["interrupt"]["arguments"], "{\"path\":\"y\"}", "{data}");
        }
    }
}

/// The card at the root of a host is that of one agent, and not of every URL of the host.
#[tokio::test]
async fn auto_does_not_take_the_card_of_another_agent() {
    let card = r#"{"name":"other","url":"http://internal/other","protocolVersion":"0.3.0"}"#;
    let upstream = Upstream::with_handler(move |request| match request.path.as_str() {
        "/.well-known/agent-card.json" => Reply::head(200, &[("content-type", "application/json")]).chunk(card).done(),
        "/mine/process" => text_reply(&["hello from mine"]),
        _ => Reply::head(404, &[]).done(),
    });
    let folder = folder(GOOD);
    let called = run(folder.path(), &["call", &upstream.url("/mine"), "hi", "--protocol", "auto"]);
    assert!(stderr(&called).starts_with("protocol agent-api\n"), "{}", stderr(&called));
    let called = run(folder.path(), &["call", &upstream.url("/other"), "hi", "--protocol", "auto"]);
    assert!(stderr(&called).starts_with("protocol a2a\n"), "{}", stderr(&called));
}

#[tokio::test]
async fn a_probe_reports_documents_that_contradict_the_protocol() {
    let upstream = Upstream::with_handler(|request| {
        let json = |body: &str| Reply::head(200, &[("content-type", "application/json")]).chunk(body).done();
        match request.path.as_str() {
            "/.well-known/agent-card.json" => json(r#"{"name":"a","url":"http://internal/a2a"}"#),
            "/openapi.json" => json(
                r#"{"paths":{"/ag-ui":{"post":{"requestBody":{"content":{"application/json":{"schema":
                    {"properties":{"threadId":{},"runId":{}}}}}}}},"/v1/chat/completions":{"post":{}}}}"#,
            ),
            "/v1/models" | "/health" => json(r#"{"data":[],"status":"ok"}"#),
            "/ag-ui" | "/a2a" => Reply::head(405, &[]).done(),
            _ => Reply::head(404, &[]).done(),
        }
    });
    for (protocol, path, options, expected) in [
        ("agent-api", "/ag-ui", "", Some("protocol = \"ag-ui\"")),
        ("ag-ui", "/ag-ui", "", None),
        ("ag-ui", "/a2a", "", Some("protocol = \"a2a\"")),
        ("anthropic-messages", "", "options = { model = \"m\" }\n", Some("endpoints of chat-completions")),
    ] {
        let agent =
            format!("[agents.demo.upstream]\nprotocol = \"{protocol}\"\nurl = \"{}\"\n{options}", upstream.url(path));
        let folder = folder(
            &GOOD.replace("[agents.demo]\nupstream = { protocol = \"demo\", options = { pace_ms = 0 } }\n", &agent),
        );
        let output = run(folder.path(), &["probe", "demo"]);
        let problems: Vec<&str> = stdout(&output).lines().filter(|line| line.starts_with("problem")).collect();
        let is_said = |words: &str| problems.iter().any(|line| line.contains(words));
        assert_eq!(problems.is_empty(), expected.is_none(), "{protocol} {path}: {}", stdout(&output));
        assert!(expected.is_none_or(is_said), "{protocol} {path}: {problems:?}");
        assert_eq!(output.status.code(), Some(i32::from(expected.is_some())), "{}", stdout(&output));
    }
}

#[tokio::test]
async fn wrong_and_missing_schemes_are_reported() {
    let folder = folder(GOOD);
    let process = Process::start(folder.path());
    let secure = format!("https://{}/agents/demo/process", process.address);
    let bare = secure.trim_start_matches("https://").to_owned();
    for arguments in
        [&["call", &secure, "hi"][..], &["health", &secure], &["call", &secure, "hi", "--protocol", "ag-ui"]]
    {
        let output = run(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(stderr(&output).contains("the server speaks http"), "{arguments:?}: {}", stderr(&output));
    }
    for arguments in [&["call", &bare, "hi"][..], &["health", &bare], &["call", &bare, "hi", "--protocol", "ag-ui"]] {
        let output = run(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(stderr(&output).contains(&format!("write http://{bare}")), "{arguments:?}: {}", stderr(&output));
    }

    let agent = format!("protocol = \"agent-api\", url = \"{secure}\"");
    std::fs::write(
        folder.path().join("gateway.toml"),
        GOOD.replace("protocol = \"demo\", options = { pace_ms = 0 }", &agent),
    )
    .expect("a file");
    let probed = run(folder.path(), &["probe", "demo"]);
    assert!(stdout(&probed).contains("the server speaks http"), "{}", stdout(&probed));
}

/// A configuration whose A2A agent cannot take the tools of clients of several routes.
fn warned() -> String {
    let routes = ["responses", "chat-completions"]
        .map(|protocol| format!("[[routes]]\nprotocol = \"{protocol}\"\npath = \"/v1\"\n"))
        .concat();
    GOOD.replace("protocol = \"demo\", options = { pace_ms = 0 }", "protocol = \"a2a\", url = \"http://127.0.0.1:9\"")
        + &routes
}

#[tokio::test]
async fn a_warning_lists_its_routes_and_is_shown_where_it_matters() {
    const WARNING: &str = "agent \"demo\" will not receive tools that clients declare";
    let folder = folder(&format!(
        "{}[agents.other]\nupstream = {{ protocol = \"demo\" }}\n[auth]\nkeys = \"keys.toml\"\n",
        warned()
    ));
    let count = |text: &str| text.matches(WARNING).count();
    let checked = run(folder.path(), &["check"]);
    assert_eq!(count(stderr(&checked)), 1, "{}", stderr(&checked));
    assert!(stderr(&checked).contains("/v1 (responses), /v1 (chat-completions)"), "{}", stderr(&checked));
    assert!(stderr(&checked).contains("quiet = [\"client_tools:demo\"]"), "{}", stderr(&checked));

    for (arguments, expected) in [
        (&["probe", "demo"][..], 1),
        (&["probe", "other"], 0),
        (&["routes"], 0),
        (&["key", "list"], 0),
        (&["key", "public"], 0),
    ] {
        let output = run(folder.path(), arguments);
        assert_eq!(count(stderr(&output)), expected, "{arguments:?}: {}", stderr(&output));
    }

    for (entry, expected) in [("client_tools", 0), ("client_tools:demo", 0), ("client_tools:other", 1), ("model", 1)] {
        let quiet = format!("[server]\nquiet = [\"{entry}\"]\n");
        std::fs::write(folder.path().join("gateway.toml"), warned().replace("[server]\n", &quiet)).expect("a file");
        let checked = run(folder.path(), &["check"]);
        assert_eq!(count(stderr(&checked)), expected, "{entry}: {}", stderr(&checked));
    }
    std::fs::write(
        folder.path().join("gateway.toml"),
        warned().replace("[server]\n", "[server]\nquiet = [\"tools\"]\n"),
    )
    .expect("a file");
    let checked = run(folder.path(), &["check"]);
    assert_eq!(checked.status.code(), Some(2));
    assert!(stderr(&checked).contains("\"tools\" names no warning"), "{}", stderr(&checked));
}

#[tokio::test]
async fn warnings_in_a_json_log_are_json_and_a_reload_repeats_none() {
    let folder = folder(&warned());
    let process = Process::start_logging(folder.path());
    let lines = || -> Vec<Value> {
        let log = std::fs::read_to_string(folder.path().join("log")).expect("a log");
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    };
    let warnings = || {
        let is_warning =
            |line: &&Value| line["message"].as_str().is_some_and(|text| text.contains("tools that clients declare"));
        lines().iter().filter(is_warning).cloned().collect::<Vec<_>>()
    };
    let [warning] = warnings().try_into().unwrap_or_else(|found| panic!("one warning: {found:?}"));
    assert!(warning["line"].is_u64() && warning["timestamp"].is_string(), "{warning}");
    assert!(warning["advice"].as_str().is_some_and(|advice| advice.contains("/v1 (responses)")), "{warning}");

    let reloads = || {
        lines()
            .iter()
            .filter(|line| line["message"].as_str().is_some_and(|text| text.contains("configuration reloaded")))
            .count()
    };
    for expected in 1..=2 {
        process.hang_up();
        poll_until("a reload", async || (reloads() == expected).then_some(())).await;
    }
    assert_eq!(warnings().len(), 1, "no warning is repeated");
}

#[tokio::test]
async fn the_start_banner_is_short_and_begins_with_the_links() {
    let agents: String =
        (0..6).map(|number| format!("[agents.agent{number}]\nupstream = {{ protocol = \"demo\" }}\n")).collect();
    let folder = folder(&format!("{agents}{}[admin]\nlisten = \"127.0.0.1:0\"\n", all_routes()));
    let process = Process::start(folder.path());
    let lines: Vec<&str> = process.startup_output.lines().collect();
    assert!(lines.len() <= 25, "{} lines: {}", lines.len(), process.startup_output);
    assert!(lines[0].contains("is listening on http://") && lines[1].starts_with("Console: http://"), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.contains("/agents/{agent}")).count(), 1, "{lines:?}");
    assert!(process.startup_output.contains("agent5"), "{lines:?}");
}
