//! Documents that the stores in this folder lack, because no request left one: the branches of session names, and the
//! claims of messages by requests that were lost. Written here as the gateway of the oldest commit wrote them, with
//! items of a later version, and damaged.
//!
//! Not here: documents that the stores have (`fields`, `damaged`).

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::contents::protocol;
use crate::demo::message;
use crate::support::gateway::Gateway;
use crate::support::pairs::runs;
use crate::{OpenedCopy, all_stores};

/// Values of a claim. Each stands for a request that was lost.
const CLAIMS: [&str; 4] = [r#""01a216e2-44fe-73a0-89a2-1050dadcd100""#, r#"{"run":"later"}"#, "null", "x"];

/// The key of a claim: FNV-1a of the agent, the context and the message.
fn claim_key(context: &str, message: &str) -> String {
    let texts = ["demo", context, message];
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0xff]));
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("key::ann\u{1f}a2a/{hash:016x}")
}

/// Sends a message over the route that starts each message once, and returns its task.
async fn send(ann: &Gateway, context: &str, what: &str) -> Value {
    let message =
        json!({ "messageId": "m1", "contextId": context, "role": "ROLE_USER", "parts": [{ "text": "echo claimed" }] });
    let headers = [("a2a-version", "1.0"), ("content-type", "application/json")];
    let body = json!({ "message": message }).to_string();
    let sent = ann.open("POST", "/once/a2a/demo/message:send", &headers, body.as_bytes()).await.response().await;
    assert_eq!(sent.status, 200, "{what}: {context}: {}", sent.text());
    let task = sent.json()["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{what}: {task}");
    task
}

#[tokio::test]
async fn claims_of_lost_requests_are_taken_over() {
    // A claim is taken over after ten seconds: all of them at once.
    join_all(all_stores().map(async |files| {
        for (number, claim) in CLAIMS.iter().enumerate() {
            files.add_document("claims", &claim_key(&format!("context-{number}"), "m1"), claim);
        }
        let opened = OpenedCopy::start(files, 0).await;
        let (ann, what) = (opened.stand.ann(), &opened.what);
        join_all((0..CLAIMS.len()).map(async |number| {
            let context = format!("context-{number}");
            let task = send(&ann, &context, what).await;
            // A repetition gets the same task.
            assert_eq!(send(&ann, &context, what).await["id"], task["id"], "{what}: {context}");
            assert_eq!(runs(&ann, &context).await.len(), 1, "{what}: {context}");
        }))
        .await;
    }))
    .await;
}

#[tokio::test]
async fn the_branches_of_a_session_name_are_found() {
    // The latest branch of a name goes before the session of that name.
    for (form, is_found) in [(r#"["BRANCH"]"#, true), (r#"[{"later":1},"BRANCH"]"#, true), ("{}", false), ("x", false)]
    {
        for files in all_stores() {
            let [chat, messages] = ["chat-completions", "anthropic-messages"].map(|protocol| {
                let resent = files.contents().resent;
                resent.into_iter().find(|resent| resent.protocol == protocol).expect("a conversation of the protocol")
            });
            let key = format!("demo\u{1f}key::ann\u{1f}{}", chat.session);
            files.add_document("branches", &key, &form.replace("BRANCH", &messages.session));

            let opened = OpenedCopy::start(files, 0).await;
            let (ann, what) = (opened.stand.ann(), format!("{}: {form}", opened.what));
            let protocol = protocol(&chat.protocol);
            let mut history = chat.messages.clone();
            history.push(message(protocol, "user", history.len(), "echo three"));
            let answer = protocol.resend(&chat.name, "three", &json!(history), &Value::Null, false).send(&ann).await;
            assert!(answer.status == 200 && answer.text().contains("three"), "{what}: {}", answer.text());
            assert_eq!(runs(&ann, &messages.session).await.len(), messages.runs + usize::from(is_found), "{what}");
            assert_eq!(runs(&ann, &chat.session).await.len(), chat.runs + usize::from(!is_found), "{what}");
        }
    }
}
