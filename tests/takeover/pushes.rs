//! Push receivers that are registered, replaced and removed on other gateways than the one that sends to them, and that
//! continue to receive after that gateway is lost: one sender, each event once and in order, the last ones possibly
//! again after a loss.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use interlingua::store::{Coordination as _, DocumentStore as _};
use serde_json::{Value, json};

use crate::stand::Stand;
use crate::support::agent::{approval_request, busy_and_asking, text_reply, text_reply_until};
use crate::support::cluster::Member;
use crate::support::gateway::ROUTE;
use crate::support::poll_until;
use crate::support::upstream::{Reply, Upstream};

/// Longer than a gateway takes to look whether it still sends, and to try again.
const A_WHILE: Duration = Duration::from_millis(2500);
/// The notifications of a run that says hello.
const ALL: [&str; 4] = ["task SUBMITTED", "WORKING", "hello", "COMPLETED"];

async fn stand(agent: Upstream) -> Stand {
    let options = "push_allow = [\"127.0.0.1\"], push_allow_http = true";
    let route = format!("[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{{agent}}\"\noptions = {{ {options} }}\n");
    Stand::with(agent, "", &format!("{ROUTE}{route}"), 3).await
}

fn receiver() -> Upstream {
    Upstream::always(Reply::complete(200, &[], "{}"))
}

/// A receiver that refuses everything, for a while.
fn out_of_order() -> Upstream {
    Upstream::always(Reply::complete(503, &[], ""))
}

async fn rpc(member: &Member, method: &str, params: Value) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let answer = member.post("/a2a/demo", &body).await.json();
    assert!(answer["error"].is_null(), "{method}: {answer}");
    answer["result"].clone()
}

/// Starts a task that a receiver is named for. Returns its id.
async fn start(member: &Member, receiver: &Upstream) -> Value {
    let config = json!({ "id": "c", "url": receiver.url("/hook") });
    start_with(member, json!({ "returnImmediately": true, "taskPushNotificationConfig": config })).await
}

async fn start_with(member: &Member, configuration: Value) -> Value {
    let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] });
    let answer = rpc(member, "SendMessage", json!({ "message": message, "configuration": configuration })).await;
    answer["task"]["id"].clone()
}

async fn name(member: &Member, task: &Value, receiver: &Upstream) {
    let params = json!({ "taskId": task, "id": "c", "url": receiver.url("/hook") });
    rpc(member, "CreateTaskPushNotificationConfig", params).await;
}

async fn until_state(member: &Member, task: &Value, state: &str) {
    poll_until(state, async || {
        let task = rpc(member, "GetTask", json!({ "id": task })).await;
        (task["status"]["state"] == format!("TASK_STATE_{state}")).then_some(())
    })
    .await;
}

/// The notifications of a receiver, abbreviated.
fn notifications(receiver: &Upstream) -> Vec<String> {
    let short = |body: Value| {
        let state = |status: &Value| status["state"].as_str().unwrap_or("?").replace("TASK_STATE_", "");
        if let Some(task) = body.get("task") {
            format!("task {}", state(&task["status"]))
        } else if let Some(update) = body.get("statusUpdate") {
            state(&update["status"])
        } else {
            body["artifactUpdate"]["artifact"]["parts"][0]["text"].as_str().unwrap_or("?").to_owned()
        }
    };
    receiver.requests().iter().map(|request| short(request.json())).collect()
}

async fn until_last(receiver: &Upstream, last: &str) -> Vec<String> {
    poll_until(&format!("the notification {last}"), async || {
        Some(notifications(receiver)).filter(|received| received.last().is_some_and(|received| received == last))
    })
    .await
}

#[tokio::test]
async fn a_receiver_on_another_gateway_gets_each_notification_once() {
    let stand = stand(Upstream::always(text_reply_until(&["hello"], "go"))).await;
    let first = receiver();
    let task = start(&stand.members[0], &first).await;
    until_last(&first, "hello").await;

    let second = receiver();
    let params = json!({ "taskId": task, "id": "d", "url": second.url("/hook") });
    rpc(&stand.members[1], "CreateTaskPushNotificationConfig", params).await;
    tokio::time::sleep(A_WHILE / 4).await;
    stand.agent.open("go");
    let all = ["task SUBMITTED", "WORKING", "hello", "", "COMPLETED"];
    assert_eq!(until_last(&first, "COMPLETED").await, all);
    let received = until_last(&second, "COMPLETED").await;
    assert!(!received.contains(&"hello".to_owned()), "it was sent before: {received:?}");
    tokio::time::sleep(A_WHILE).await;
    assert_eq!((notifications(&first).len(), notifications(&second).len()), (all.len(), received.len()), "each once");
}

#[tokio::test]
async fn a_replaced_receiver_gets_undelivered_notifications() {
    let asks = ["task SUBMITTED", "WORKING", "INPUT_REQUIRED"];
    let works = ["task SUBMITTED", "WORKING", "hello"];
    for (reply, state, expected) in [
        (text_reply(&["hello"]), "COMPLETED", &ALL[..]),
        (approval_request("ask"), "INPUT_REQUIRED", &asks[..]),
        (text_reply_until(&["hello"], "never"), "WORKING", &works[..]),
    ] {
        let stand = stand(Upstream::always(reply)).await;
        let old = out_of_order();
        let task = start(&stand.members[0], &old).await;
        until_state(&stand.members[1], &task, state).await;
        old.wait_for_requests(1).await;

        let new = receiver();
        name(&stand.members[1], &task, &new).await;
        assert_eq!(until_last(&new, expected.last().unwrap()).await, expected, "{state}");
        let sent_before = old.requests().len();
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(notifications(&new), expected, "{state}: each once");
        assert_eq!(old.requests().len(), sent_before, "{state}: the old one gets nothing more");
    }
}

#[tokio::test]
async fn a_receiver_that_is_removed_on_another_gateway_gets_nothing_more() {
    for reply in [text_reply(&["hello"]), text_reply_until(&["hello"], "never")] {
        let stand = stand(Upstream::always(reply)).await;
        let receiver = out_of_order();
        let task = start(&stand.members[0], &receiver).await;
        receiver.wait_for_requests(1).await;
        rpc(&stand.members[2], "DeleteTaskPushNotificationConfig", json!({ "taskId": task, "id": "c" })).await;
        let sent = receiver.requests().len();
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(receiver.requests().len(), sent);
    }
}

#[tokio::test]
async fn receivers_of_a_killed_gateway_get_the_end_from_another_one() {
    let mut stand = stand(Upstream::always(text_reply_until(&["hello"], "never"))).await;
    let receiver = receiver();
    start(&stand.members[0], &receiver).await;
    until_last(&receiver, "hello").await;
    stand.members[0].replica.kill();
    stand.take_over().await;
    let mut received = until_last(&receiver, "FAILED").await;
    // The last notification may be sent once more, and an artifact's end has no text.
    received.dedup();
    received.retain(|notification| !notification.is_empty());
    assert_eq!(received, ["task SUBMITTED", "WORKING", "hello", "FAILED"]);
    stand.members.remove(0);
}

#[tokio::test]
async fn a_gateway_that_was_paused_sends_nothing_after_another_one_has_begun() {
    let stand = stand(Upstream::always(text_reply_until(&["hello"], "never"))).await;
    let mut refusals = 1;
    let receiver = Upstream::with_handler(move |_| {
        let status = if refusals > 0 { 503 } else { 200 };
        refusals -= i32::from(refusals > 0);
        Reply::complete(status, &[], "{}")
    });
    let task = start(&stand.members[0], &receiver).await;
    receiver.wait_for_requests(1).await;
    until_state(&stand.members[1], &task, "WORKING").await;
    // It would send the same again in a second.
    stand.members[0].replica.pause();
    stand.take_over().await;
    let received = until_last(&receiver, "FAILED").await;
    assert_eq!(received[..3], ["task SUBMITTED", "task SUBMITTED", "WORKING"]);
    stand.members[0].replica.resume();
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(notifications(&receiver), received);
}

/// A receiver that does not accept notifications of this state, until it is allowed.
fn refusing(state: &'static str) -> (Upstream, Arc<AtomicBool>) {
    let allowed = Arc::new(AtomicBool::new(false));
    let is_allowed = Arc::clone(&allowed);
    let receiver = Upstream::with_handler(move |request| {
        let refused = request.json()["statusUpdate"]["status"]["state"] == format!("TASK_STATE_{state}");
        let status = if refused && !is_allowed.load(Ordering::Relaxed) { 503 } else { 200 };
        Reply::complete(status, &[], "{}")
    });
    (receiver, allowed)
}

/// Waits until no gateway has a delivery under way that another one would continue.
async fn until_nothing_is_left(member: &Member) {
    poll_until("an empty list of deliveries", async || {
        let listed = member.replica.list("pushing", "", None, 10).await.expect("the store answers");
        listed.is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn another_gateway_sends_the_notifications_of_a_killed_one() {
    let asks = ["task SUBMITTED", "WORKING", "INPUT_REQUIRED"];
    for (reply, state, expected) in
        [(text_reply(&["hello"]), "COMPLETED", &ALL[..]), (approval_request("ask"), "INPUT_REQUIRED", &asks[..])]
    {
        let mut stand = stand(Upstream::always(reply)).await;
        let (receiver, allowed) = refusing(state);
        let task = start(&stand.members[0], &receiver).await;
        until_last(&receiver, state).await;
        until_state(&stand.members[1], &task, state).await;
        stand.members[0].replica.kill();

        allowed.store(true, Ordering::Relaxed);
        let refused = receiver.requests().len();
        stand.take_over().await;
        poll_until("the notification", async || (receiver.requests().len() > refused).then_some(())).await;
        until_nothing_is_left(&stand.members[1]).await;
        tokio::time::sleep(A_WHILE).await;

        let again = notifications(&receiver).split_off(refused);
        assert_eq!(again.last().map(String::as_str), Some(state), "{again:?}");
        assert_eq!(again.iter().filter(|sent| *sent == state).count(), 1, "accepted once: {again:?}");
        let mut received = notifications(&receiver);
        received.retain(|notification| !notification.is_empty());
        received.dedup();
        assert_eq!(received, expected);
        stand.members.remove(0);
    }
}

#[tokio::test]
async fn nothing_is_left_of_deliveries_that_are_done_given_up_or_removed() {
    let stand = stand(Upstream::always(text_reply_until(&["hello"], "go"))).await;
    let (done, removed) = (receiver(), receiver());
    let task = start(&stand.members[0], &done).await;
    let params = json!({ "taskId": task, "id": "d", "url": removed.url("/hook") });
    rpc(&stand.members[0], "CreateTaskPushNotificationConfig", params).await;
    until_last(&done, "hello").await;
    let listed = stand.members[1].replica.list("pushing", "", None, 10).await.expect("the store answers");
    assert_eq!(listed.len(), 2, "one for each receiver");

    rpc(&stand.members[0], "DeleteTaskPushNotificationConfig", json!({ "taskId": task, "id": "d" })).await;
    stand.agent.open("go");
    until_last(&done, "COMPLETED").await;
    until_nothing_is_left(&stand.members[1]).await;

    let refusing = Upstream::always(Reply::complete(400, &[], ""));
    start(&stand.members[0], &refusing).await;
    refusing.wait_for_requests(4).await;
    until_nothing_is_left(&stand.members[1]).await;
}

#[tokio::test]
async fn a_receiver_that_another_gateway_disabled_gets_the_undelivered_notifications_once_it_is_replaced() {
    let stand = stand(Upstream::always(busy_and_asking("ask"))).await;
    let refusing = Upstream::always(Reply::complete(400, &[], ""));
    let task = start(&stand.members[0], &refusing).await;
    until_state(&stand.members[1], &task, "INPUT_REQUIRED").await;
    refusing.wait_for_requests(10).await;
    until_nothing_is_left(&stand.members[1]).await;
    assert_eq!(refusing.requests().len(), 10, "it is disabled");

    let mended = receiver();
    name(&stand.members[1], &task, &mended).await;
    let received = until_last(&mended, "INPUT_REQUIRED").await;
    assert!(received.len() > 10 && !received.contains(&"task SUBMITTED".to_owned()), "{received:?}");
}

#[tokio::test]
async fn a_receiver_that_is_replaced_before_its_first_notification_gets_nothing_from_before_it_was_named() {
    let stand = stand(Upstream::always(text_reply_until(&["hello"], "go"))).await;
    let [member, other, _] = &stand.members[..] else { panic!("three") };
    let task = start_with(member, json!({ "returnImmediately": true })).await;
    poll_until("the words", async || {
        let task = rpc(member, "GetTask", json!({ "id": task })).await;
        task.to_string().contains("hello").then_some(())
    })
    .await;

    // Another gateway has the right to send, so that the delivery to the old receiver does not begin.
    let unused = receiver();
    let params = json!({ "taskId": task, "id": "d", "url": unused.url("/hook") });
    rpc(member, "CreateTaskPushNotificationConfig", params).await;
    let listed = member.replica.list("a2a/push", "", None, 10).await.expect("the store answers");
    let key = listed[0].key.strip_suffix('d').expect("its id is last").to_owned();
    let lease = format!("push/{key}c");
    assert!(other.replica.lease(&lease, "another", Duration::MAX).await.expect("the store answers"));
    let (old, new) = (receiver(), receiver());
    name(member, &task, &old).await;
    stand.agent.open("go");
    until_state(other, &task, "COMPLETED").await;
    until_last(&unused, "COMPLETED").await;

    name(member, &task, &new).await;
    other.replica.release(&lease, "another").await.expect("the store answers");
    let received = until_last(&new, "COMPLETED").await;
    assert!(!received.iter().any(|sent| sent == "task SUBMITTED" || sent == "hello"), "{received:?}");
    assert_eq!(notifications(&old), Vec::<String>::new());
}
