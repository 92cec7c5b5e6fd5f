//! Gateways whose connections go through a pooler that gives each transaction another session: they get no
//! notifications, and do everything all the same.

use std::time::Duration;

use interlingua_testing_postgres::{PoolMode, Pooler};

use super::support::agent::{approval_request, text_reply, text_reply_until};
use super::support::cluster::GatewayProcess;
use super::support::gateway::{JSON, approval_in, user_turn_in};
use super::support::upstream::Upstream;
use super::{LEASE, check, cluster, id_of};

#[tokio::test]
async fn gateways_behind_a_pooler_share_runs_sessions_and_decisions_and_take_over_from_a_killed_one() {
    let upstream = Upstream::in_order([
        text_reply_until(&["one ", "two"], "on"),
        approval_request("ask-1"),
        text_reply(&["done"]),
        text_reply_until(&["last"], "never"),
    ]);
    let stand = cluster(&upstream, "", "");
    let pooler = Pooler::start(stand.database().server(), PoolMode::Transaction).unwrap();
    let url = stand.database().url_at(pooler.address);
    let (mut here, there) = (stand.process_through(&url), stand.process_through(&url));
    let (code, text) = check::check(&stand, &url);
    assert!(code == Some(0) && text.contains("through a pooler without notifications"), "{text}");
    let turn = async |gateway: &GatewayProcess, text: &str| {
        let body = user_turn_in("s", text).to_string();
        gateway.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await
    };

    // A run is resumed on the other gateway, and ends there as here.
    let mut stream = turn(&here, "hi").await;
    let mut frames = stream.read_until("two").await;
    let path = format!("/agents/friday/runs/{}/events", id_of(&frames));
    let mut resumed = there.open("GET", &format!("{path}?after=1"), &[], b"").await;
    let mut seen = resumed.read_until("two").await;
    upstream.open("on");
    frames.extend(stream.frames().await);
    seen.extend(resumed.frames().await);
    assert_eq!(seen, frames[2..]);

    // What one asks is answered on the other, once.
    assert_eq!(turn(&here, "remove x").await.frames().await.last().unwrap()["status"], "completed");
    let answer = approval_in("s", "ask-1").to_string();
    let answered = there.open("POST", "/agents/friday/process", JSON, answer.as_bytes()).await.frames().await;
    assert!(answered.last().unwrap().to_string().contains("done"), "{answered:?}");
    let again = here.open("POST", "/agents/friday/process", JSON, answer.as_bytes()).await.response().await;
    assert_eq!(again.status, 409, "{}", again.text());

    // A killed gateway's run ends on the other one.
    let mut stream = turn(&here, "more").await;
    let frames = stream.read_until("last").await;
    let path = format!("/agents/friday/runs/{}/events", id_of(&frames));
    let mut followed = there.open("GET", &path, &[], b"").await;
    here.kill();
    let took = LEASE + Duration::from_secs(10);
    let seen = tokio::time::timeout(took, followed.frames()).await.unwrap();
    assert_eq!(seen[..frames.len()], frames);
    assert_eq!(seen.last().unwrap()["error"]["code"], "GATEWAY_RESTARTED");
    assert_eq!(upstream.requests().len(), 4);
}
