//! Agents that have to be asked to stop: by an id that only their answer has, and what is counted of it.

use std::collections::HashMap;

use serde_json::json;

use crate::support::agent::text_reply_then_hang;
use crate::support::gateway::{Gateway, JSON, ROUTE, agent, user_turn, user_turn_in};
use crate::support::poll_until;
use crate::support::process::Process;
use crate::support::upstream::{Reply, Upstream};

const HEAD: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: text/event-stream\r\n\r\n";

/// An agent that is stopped by the id of its task. Its first answer is `first`, later ones are complete.
fn stoppable(first: Reply) -> Upstream {
    let mut first = Some(first);
    Upstream::with_handler(move |request| {
        if request.path.starts_with("/p/stop/") {
            return Reply::complete(200, &[], "");
        }
        let says = || Reply::frames([json!({ "text": "hello", "end": "completed" }).to_string()]);
        first.take().unwrap_or_else(says)
    })
}

async fn gateway(upstream: &Upstream) -> Gateway {
    let url = upstream.url("/p");
    let options = "{ stops = true }";
    Gateway::start(&format!("[agents.doll.upstream]\nprotocol = \"puppet\"\nurl = \"{url}\"\noptions = {options}\n"))
        .await
}

/// The paths that were asked, in order.
fn paths(upstream: &Upstream) -> Vec<String> {
    upstream.requests().into_iter().map(|request| request.path).collect()
}

#[tokio::test]
async fn a_turn_that_is_canceled_before_its_id_is_known_is_stopped_once_it_is() {
    let task = json!({ "task": "t1" }).to_string();
    // The client leaves before the head of the answer, and before the frame with the id.
    let late_head = Reply::default().wait("go").and_raw(HEAD).frame(&task).hang();
    let late_id = Reply::events().frame(&json!({ "text": "so far" }).to_string()).wait("go").frame(&task).hang();
    for (reply, seen) in [(late_head, None), (late_id, Some("so far"))] {
        let upstream = stoppable(reply);
        let gateway = gateway(&upstream).await;
        let mut stream = gateway.start_turn("doll", &user_turn("work")).await;
        upstream.wait_for_requests(1).await;
        if let Some(seen) = seen {
            stream.read_until(seen).await;
        }
        drop(stream);
        let runs = || async { gateway.get("/agents/doll/runs").await.text().to_owned() };
        poll_until("the run to be canceled", async || {
            let canceled = seen.is_none() || runs().await.contains("cancel");
            canceled.then_some(())
        })
        .await;
        assert_eq!(paths(&upstream), ["/p"]);

        upstream.open("go");
        upstream.wait_for_requests(2).await;
        assert_eq!(paths(&upstream), ["/p", "/p/stop/t1"]);
    }
}

#[tokio::test]
async fn a_silent_agent_holds_up_no_later_turn() {
    let upstream = stoppable(Reply::events().frame(&json!({ "text": "so far" }).to_string()).hang());
    let gateway = gateway(&upstream).await;
    let mut stream = gateway.start_turn("doll", &user_turn_in("s", "work")).await;
    stream.read_until("so far").await;
    drop(stream);
    let said = poll_until("the next turn", async || {
        let mut stream = gateway.start_turn("doll", &user_turn_in("s", "and now?")).await;
        (stream.status().await == 200).then_some(stream)
    });
    let frames = said.await.frames().await;
    assert!(frames.iter().any(|frame| frame.to_string().contains("hello")), "{frames:?}");
    assert!(!paths(&upstream).iter().any(|path| path.contains("stop")));
}

#[tokio::test]
async fn results_of_stop_requests_are_counted() {
    let mut stops = 0;
    let upstream = Upstream::with_handler(move |request| {
        if request.path != "/stop" {
            return text_reply_then_hang(&["so far"]);
        }
        stops += 1;
        Reply::complete(if stops == 1 { 200 } else { 409 }, &[], "too late")
    });
    let folder = tempfile::tempdir().expect("a folder");
    let options = format!("options = {{ stop_url = \"{}\" }}", upstream.url("/stop"));
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [store]\nkind = \"memory\"\n{}{ROUTE}",
        agent("friday", &upstream.url("/process"), "", &options)
    );
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    let process = Process::start_logging(folder.path());
    for _ in 0..2 {
        let mut stream =
            process.open("POST", "/agents/friday/process", JSON, user_turn("work").to_string().as_bytes()).await;
        stream.read_until("so far").await;
    }

    let counted = |result: &str| format!("interlingua_agent_cancels_total{{agent=\"friday\",result=\"{result}\"}}");
    poll_until("both to be counted", async || {
        let text = process.operate("GET", "/metrics", &[], b"").await.text().to_owned();
        let samples: HashMap<&str, &str> = text.lines().filter_map(|line| line.rsplit_once(' ')).collect();
        let is = |result| samples.get(counted(result).as_str()) == Some(&"1");
        (is("sent") && is("refused")).then_some(())
    })
    .await;
    let log = std::fs::read_to_string(folder.path().join("log")).expect("a log");
    assert!(log.contains("the agent refused to stop: it answered 409"), "{log}");
}
