//! Routing through the whole gateway: protocols that share a mount point, and routes that are replaced while the gateway
//! is running. The rules of the table itself are tested next to it.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use crate::support::gateway::{DEMO, Gateway, ROUTE, user_turn};
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
