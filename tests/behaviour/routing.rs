//! Routing through the whole gateway: protocols that share a mount point, and routes that are replaced while the
//! gateway is running. The rules of the table itself are tested next to it.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use crate::support::gateway::{DEMO, Gateway, ROUTE, user_turn};
use crate::support::paths::ROUTES;
use crate::support::poll_until;
use crate::support::process::Process;
use crate::support::transcript::Transcript;

fn route(protocol: &str, path: &str, own: &str) -> String {
    format!("[[routes]]\nprotocol = \"{protocol}\"\npath = \"{path}\"\n{own}\n")
}

#[tokio::test]
async fn protocols_at_one_path_answer_their_own_requests() {
    let (responses, a2a) = (route("responses", "/v1", "cors = [\"*\"]"), route("a2a", "/v1", ""));
    for (first, second, is_a2a) in [(&responses, &a2a, false), (&a2a, &responses, true)] {
        let gateway = Gateway::with_config(&format!("[store]\nkind = \"memory\"\n{DEMO}{first}{second}")).await;
        let models = gateway.get("/v1/models").await;
        assert_eq!((models.status, &models.json()["object"]), (200, &json!("list")));
        assert_eq!(gateway.get("/v1/.well-known/agent-card.json").await.status, 200);

        let tasks = gateway.open("GET", "/v1/tasks", &[("a2a-version", "1.0")], b"").await.response().await;
        assert_eq!((tasks.status, &tasks.json()["totalSize"]), (200, &json!(0)), "{}", tasks.text());

        // A protocol reports a wrong method for its own paths; the first one reports unknown paths.
        let wrong = gateway.open("DELETE", "/v1/models", &[], b"").await.response().await;
        assert_eq!((wrong.status, wrong.header("allow")), (405, Some("GET, HEAD")));
        assert!(wrong.json()["error"]["type"].is_string(), "{}", wrong.text());
        let unknown = gateway.get("/v1/nothing").await;
        assert_eq!((unknown.status, unknown.json()["error"]["type"].is_string()), (404, !is_a2a), "{}", unknown.text());

        // Each route has its own origins.
        for (path, allowed) in [("/v1/models", true), ("/v1/tasks", false)] {
            let headers = [("origin", "https://a.example"), ("access-control-request-method", "GET")];
            let preflight = gateway.open("OPTIONS", path, &headers, b"").await.response().await;
            assert_eq!(preflight.header("access-control-allow-methods").is_some(), allowed, "{path}");
        }
    }
}

#[tokio::test]
async fn a_client_with_a_wrong_base_url_learns_the_right_path_in_its_protocol() {
    let gateway = Gateway::with_config(&format!("[store]\nkind = \"memory\"\n{DEMO}{ROUTES}")).await;
    for (path, meant) in [
        ("/responses", "/v1/responses"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/responses", "/v1/responses"),
        ("/anthropic/messages", "/anthropic/v1/messages"),
        ("/anthropic/v1/v1/messages", "/anthropic/v1/messages"),
        ("/v1/messages", "/anthropic/v1/messages"),
    ] {
        let refused = gateway.post(path, &json!({})).await;
        let (status, body) = (refused.status, refused.json());
        let message = body["error"]["message"].as_str().unwrap_or_else(|| panic!("{path}: {body}"));
        assert!(status == 404 && message.contains(&format!("did you mean '{meant}'?")), "{path}: {message}");
        assert_eq!(body["type"] == "error", meant.starts_with("/anthropic"), "the form of the protocol: {body}");
    }
    for path in ["/", "/nothing", "/v1/nothing", "/v1/v1/nothing", "/process"] {
        let refused = gateway.post(path, &json!({})).await;
        assert!(refused.status == 404 && !refused.text().contains("did you mean"), "{path}: {}", refused.text());
    }
}

#[tokio::test]
async fn a_refused_preflight_names_the_page_and_is_logged_with_the_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!("[server]\nlisten = \"127.0.0.1:0\"\n[store]\nkind = \"memory\"\n{DEMO}{ROUTES}");
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    let process = Process::start_logging(folder.path());
    let headers = [("origin", "https://app.example"), ("access-control-request-method", "POST")];
    for _ in 0..3 {
        let refused = process.open("OPTIONS", "/v1/responses", &headers, b"").await.response().await;
        assert_eq!(refused.status, 403, "{}", refused.text());
        assert!(refused.text().contains("https://app.example"), "{}", refused.text());
    }
    let lines = poll_until("the log line", async || {
        let log = std::fs::read_to_string(folder.path().join("log")).ok()?;
        let lines: Vec<serde_json::Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let lines: Vec<_> = lines.into_iter().filter(|line| line["origin"] == "https://app.example").collect();
        (!lines.is_empty()).then_some(lines)
    })
    .await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["route"], "/v1");
    assert!(lines[0]["message"].as_str().is_some_and(|message| message.contains("cors")), "{lines:?}");
}

#[tokio::test]
async fn routes_are_replaced_under_load() {
    let gateway = Gateway::start(DEMO).await;
    let one = format!("{DEMO}{ROUTE}");
    let both = format!("{one}{}", route("responses", "/v1", ""));
    let load = async {
        for _ in 0..25 {
            let body = user_turn("echo hi");
            let turns = join_all((0..4).map(|_| gateway.run_turn("demo", &body))).await;
            assert!(turns.iter().all(|turn| turn.status == "completed"));
        }
    };
    let replacing = async {
        for _ in 0..100_000 {
            gateway.replace_routes(&both);
            tokio::time::sleep(Duration::from_millis(1)).await;
            gateway.replace_routes(&one);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        () = load => {}
        () = replacing => {}
    }

    // A response that has begun ends on the route that it was begun on; the next request finds the new routes.
    let mut running = gateway.start_turn("demo", &user_turn("long 20 20")).await;
    assert_eq!(running.status().await, 200);
    gateway.replace_routes(&format!("{DEMO}{}", route("responses", "/v1", "")));
    assert_eq!(gateway.get("/agents/demo/runs").await.status, 404);
    assert_eq!(gateway.get("/v1/models").await.status, 200);
    assert_eq!(Transcript::parse(&running.frames().await).status, "completed");
}
