//! The size of list responses: bounded by what a list shows, however large its runs are.

use serde_json::{Value, json};

use crate::support::agent::text_reply;
use crate::support::gateway::{Gateway, agent, user_turn_in};
use crate::support::upstream::Upstream;

/// A gateway whose agent replies with 3 MiB of text to every request.
async fn before() -> (Gateway, Upstream) {
    let text = "many words ".repeat(3 << 17);
    let upstream = Upstream::with_handler(move |_| text_reply(&[&text]));
    let config = format!(
        "[store]\nkind = \"sqlite\"\npath = \"runs.db\"\n{}\
         [[routes]]\nprotocol = \"agent-api\"\npath = \"/agents/{{agent}}\"\n\
         [[routes]]\nprotocol = \"a2a\"\npath = \"/a2a\"\nagents = [\"friday\"]\n",
        agent("friday", &upstream.url("/process"), "", "max_event = \"8MiB\"")
    );
    (Gateway::with_config(&config).await, upstream)
}

#[tokio::test]
async fn a_list_of_runs_shows_every_run_without_its_content() {
    let (gateway, _upstream) = before().await;
    let mut ended = Vec::new();
    for session in ["a", "b", "c", "d"] {
        ended.push(gateway.run_turn("friday", &user_turn_in(session, "speak")).await.expect_completed().last);
    }

    let listed = gateway.get("/agents/friday/runs?limit=100").await;
    assert!(listed.body.len() < 8 << 10, "{} bytes", listed.body.len());
    let listed = listed.json();
    assert_eq!((&listed["total"], &listed["next"]), (&json!(4), &Value::Null));

    for (shown, received) in listed["data"].as_array().expect("runs").iter().zip(ended.iter().rev()) {
        for field in ["id", "status", "created_at", "completed_at", "usage", "session_id", "error"] {
            assert_eq!(shown[field], received[field], "{field}: {shown}");
        }
    }
}

#[tokio::test]
async fn a_page_of_large_tasks_is_cut_short_and_the_next_page_continues() {
    let (gateway, _upstream) = before().await;
    for number in 0..7 {
        let message = json!({ "messageId": format!("m{number}"), "role": "ROLE_USER", "parts": [{ "text": "speak" }] });
        let headers = &[("content-type", "application/json"), ("a2a-version", "1.0")];
        let body = json!({ "message": message }).to_string();
        let sent = gateway.open("POST", "/a2a/message:send", headers, body.as_bytes()).await.response().await;
        assert_eq!(sent.status, 200, "{}", sent.text());
    }

    let (mut seen, mut token, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let path = format!("/a2a/tasks?includeArtifacts=true&pageSize=100&pageToken={token}");
        let path = path.trim_end_matches("&pageToken=");
        let page = gateway.open("GET", path, &[("a2a-version", "1.0")], b"").await.response().await;
        assert_eq!(page.status, 200, "{}", page.text());
        assert!(page.body.len() < 24 << 20, "{} bytes", page.body.len());

        let page = page.json();
        let tasks = page["tasks"].as_array().expect("tasks");
        assert_eq!(page["totalSize"], 7);
        assert!((1..7).contains(&tasks.len()), "{} tasks", tasks.len());
        seen.extend(tasks.iter().map(|task| task["id"].as_str().expect("an id").to_owned()));
        pages += 1;
        match page["nextPageToken"].as_str() {
            Some(next) if !next.is_empty() => next.clone_into(&mut token),
            _ => break,
        }
    }

    let different: std::collections::HashSet<&String> = seen.iter().collect();
    assert_eq!((seen.len(), different.len()), (7, 7), "each of them once");
    assert!(pages > 1);
}
