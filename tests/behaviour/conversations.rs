//! Conversations, as they are kept: what is added is written, and no more; what is shown is read, and little more.

use interlingua::store::{Expect, Sqlite, SqliteOptions, Store};
use serde_json::{Value, json};

use crate::support::agent::saying;
use crate::support::gateway::{Gateway, agent};
use crate::support::upstream::Upstream;

fn config(upstream: &Upstream) -> String {
    format!(
        "[store]\nkind = \"sqlite\"\npath = \"runs.db\"\n{}\
         [[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\nagents = [\"friday\"]\n",
        agent("friday", &upstream.url("/process"), "", "")
    )
}

fn open(folder: &std::path::Path) -> Sqlite {
    Sqlite::open(&folder.join("runs.db"), &SqliteOptions::default()).expect("the store opens")
}

fn said(text: &str) -> Value {
    json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": text }] })
}

async fn append(gateway: &Gateway, id: &str, items: &[Value]) -> u16 {
    gateway.post(&format!("/v1/conversations/{id}/items"), &json!({ "items": items })).await.status
}

async fn created(gateway: &Gateway, items: &[Value]) -> String {
    let made = gateway.post("/v1/conversations", &json!({ "items": items })).await;
    assert_eq!(made.status, 200, "{}", made.text());
    made.json()["id"].as_str().expect("an id").to_owned()
}

/// What a page of items says, and whether there are more.
async fn page(gateway: &Gateway, id: &str, query: &str) -> (Vec<String>, Value) {
    let page = gateway.get(&format!("/v1/conversations/{id}/items?{query}")).await;
    assert_eq!(page.status, 200, "{}", page.text());
    let page = page.json();
    let text = |item: &Value| item["content"][0]["text"].as_str().expect("a text").to_owned();
    (page["data"].as_array().expect("items").iter().map(text).collect(), page)
}

#[tokio::test]
async fn what_is_added_to_a_conversation_is_written_and_no_more() {
    let upstream = Upstream::always(saying(&["hi"]));
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::within(&config(&upstream), folder.path().to_owned()).await;
    let id = created(&gateway, &[]).await;
    let large = "x".repeat(1 << 20);
    for _ in 0..4 {
        assert_eq!(append(&gateway, &id, &[said(&large)]).await, 200);
    }
    for _ in 0..20 {
        let asked =
            gateway.post("/v1/responses", &json!({ "model": "friday", "conversation": id, "input": "hello" })).await;
        assert_eq!(asked.status, 200, "{}", asked.text());
    }
    gateway.stop().await;

    let store = open(folder.path());
    let sessions = store.list("sessions", "", None, 10).await.expect("the store reads");
    let entries = store.list("entries", "", None, 100).await.expect("the store reads");
    let sizes: Vec<usize> = entries.iter().map(|entry| entry.document.value.len()).collect();
    assert_eq!(sessions.len(), 1);
    assert!(sessions[0].document.value.len() < 2048, "{}", String::from_utf8_lossy(&sessions[0].document.value));
    assert_eq!(sizes.len(), 24);
    assert!(sizes[..4].iter().all(|size| *size > 1 << 20) && sizes[4..].iter().all(|size| *size < 200), "{sizes:?}");
    store.close().await.expect("the store closes");

    // And all of it goes with it.
    let gateway = Gateway::within(&config(&upstream), folder.path().to_owned()).await;
    let gone = gateway.open("DELETE", &format!("/v1/conversations/{id}"), &[], b"").await.answer().await;
    assert_eq!(gone.status, 200, "{}", gone.text());
    gateway.stop().await;
    assert_eq!(open(folder.path()).list("entries", "", None, 100).await.expect("the store reads"), []);
}

#[tokio::test]
async fn pages_of_a_conversation_hold_what_they_did_when_all_of_it_was_read() {
    let upstream = Upstream::deciding(|asked| {
        saying(&["answer ", &asked.json()["input"].as_array().map_or(0, Vec::len).to_string()])
    });
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::within(&config(&upstream), folder.path().to_owned()).await;
    let id = created(&gateway, &[said("first")]).await;
    for number in 0..30 {
        if number % 3 == 0 {
            let asked = gateway
                .post(
                    "/v1/responses",
                    &json!({ "model": "friday", "conversation": id, "input": format!("turn {number}") }),
                )
                .await;
            assert_eq!(asked.status, 200, "{}", asked.text());
        } else {
            assert_eq!(append(&gateway, &id, &[said(&format!("put {number}"))]).await, 200);
        }
    }
    let (all, whole) = page(&gateway, &id, "order=asc&limit=100").await;
    assert_eq!((all.len(), &whole["has_more"]), (41, &json!(false)));
    assert_eq!(all[..3], ["first", "turn 0", "answer 2"]);
    let (newest, one) = page(&gateway, &id, "limit=1").await;
    assert_eq!((newest.last(), &one["has_more"]), (all.last(), &json!(true)));

    for order in ["asc", "desc"] {
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let (texts, page) = page(&gateway, &id, &format!("order={order}&limit=7&after={after}")).await;
            seen.extend(texts);
            if page["has_more"] == json!(false) {
                break;
            }
            page["last_id"].as_str().expect("an id").clone_into(&mut after);
        }
        if order == "desc" {
            seen.reverse();
        }
        assert_eq!(seen, all, "{order}");
    }
    // One is taken out, of a turn and of what was put there.
    for at in [1, 3] {
        let item = whole["data"][at]["id"].as_str().expect("an id");
        let gone =
            gateway.open("DELETE", &format!("/v1/conversations/{id}/items/{item}"), &[], b"").await.answer().await;
        assert_eq!(gone.status, 200, "{}", gone.text());
    }
    let (left, _) = page(&gateway, &id, "order=asc&limit=100").await;
    let expected: Vec<String> =
        all.iter().enumerate().filter(|(at, _)| ![1, 3].contains(at)).map(|(_, text)| text.clone()).collect();
    assert_eq!(left, expected);
}

#[tokio::test]
async fn a_conversation_has_a_bound_in_bytes() {
    let upstream = Upstream::always(saying(&["hi"]));
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::within(&config(&upstream), folder.path().to_owned()).await;
    let id = created(&gateway, &[]).await;
    let large = said(&"x".repeat(7 << 20));
    for _ in 0..4 {
        assert_eq!(append(&gateway, &id, std::slice::from_ref(&large)).await, 200);
    }
    assert_eq!(append(&gateway, &id, std::slice::from_ref(&large)).await, 413);
    assert_eq!(append(&gateway, &id, &[said("a little")]).await, 200, "there is room for this");
}

#[tokio::test]
async fn what_an_earlier_version_kept_in_one_document_is_moved_with_the_next_write() {
    let upstream = Upstream::always(saying(&["hi"]));
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::within(&config(&upstream), folder.path().to_owned()).await;
    let id = created(&gateway, &[said("one"), said("two")]).await;
    let asked =
        gateway.post("/v1/responses", &json!({ "model": "friday", "conversation": id, "input": "three" })).await;
    assert_eq!(asked.status, 200, "{}", asked.text());
    gateway.stop().await;

    // As it was.
    let store = open(folder.path());
    let rows = store.list("entries", "", None, 100).await.expect("the store reads");
    let session = store.list("sessions", "", None, 2).await.expect("the store reads").remove(0);
    let mut doc: Value = serde_json::from_slice(&session.document.value).expect("JSON");
    let fields = doc.as_object_mut().expect("an object");
    for new in ["next", "last", "bytes"] {
        fields.remove(new);
    }
    let entries: Vec<Value> =
        rows.iter().map(|row| serde_json::from_slice(&row.document.value).expect("JSON")).collect();
    doc["entries"] = json!(entries);
    doc["seen"] = json!(3);
    let written = serde_json::to_vec(&doc).expect("JSON").into();
    // Young enough for retention, whenever the test runs.
    let put = 4_102_444_800_000;
    store.put("sessions", &session.key, written, Expect::Anything, put).await.expect("written").expect("no conflict");
    for row in &rows {
        store.delete("entries", &row.key, Expect::Anything).await.expect("written").expect("no conflict");
    }
    store.close().await.expect("the store closes");

    let gateway = Gateway::within(&config(&upstream), folder.path().to_owned()).await;
    let texts = ["one", "two", "three", "hi"];
    assert_eq!(page(&gateway, &id, "order=asc").await.0, texts);
    assert_eq!(append(&gateway, &id, &[said("five")]).await, 200);
    gateway.stop().await;
    let store = open(folder.path());
    assert_eq!(store.list("entries", "", None, 100).await.expect("the store reads").len(), 4);
    let session = store.list("sessions", "", None, 2).await.expect("the store reads").remove(0);
    let doc: Value = serde_json::from_slice(&session.document.value).expect("JSON");
    assert_eq!((&doc["next"], doc.get("entries")), (&json!(4), None));
    store.close().await.expect("the store closes");

    let gateway = Gateway::within(&config(&upstream), folder.path().to_owned()).await;
    assert_eq!(page(&gateway, &id, "order=asc").await.0, ["one", "two", "three", "hi", "five"]);
}
