//! Storage of conversations: a write stores only the new items, and a page reads little more than it shows.

use interlingua::store::{DocumentStore, Expect, Sqlite, SqliteOptions, Store};
use serde_json::{Value, json};

use crate::connectors::texts;
use crate::sessions::approval_request_after;
use crate::support::agent::{response, text_reply, text_reply_until};
use crate::support::gateway::{Gateway, agent, last_input_text};
use crate::support::poll_until;
use crate::support::upstream::{Reply, Upstream};

fn config(upstream: &Upstream) -> String {
    format!(
        "[store]\nkind = \"sqlite\"\npath = \"runs.db\"\n{}\
         [[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\nagents = [\"friday\"]\n",
        agent("friday", &upstream.url("/process"), "", "")
    )
}

fn in_memory(upstream: &Upstream) -> String {
    config(upstream).replace("kind = \"sqlite\"\npath = \"runs.db\"\n", "kind = \"memory\"\n")
}

fn open(folder: &std::path::Path) -> Sqlite {
    Sqlite::open(&folder.join("runs.db"), &SqliteOptions::default()).expect("the store opens")
}

fn user_item(text: &str) -> Value {
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

/// The texts of a page of items, and the page.
async fn page(gateway: &Gateway, id: &str, query: &str) -> (Vec<String>, Value) {
    let page = gateway.get(&format!("/v1/conversations/{id}/items?{query}")).await;
    assert_eq!(page.status, 200, "{}", page.text());
    let page = page.json();
    let text = |item: &Value| item["content"][0]["text"].as_str().expect("a text").to_owned();
    (page["data"].as_array().expect("items").iter().map(text).collect(), page)
}

#[tokio::test]
async fn adding_to_a_conversation_writes_only_the_new_items() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::in_folder(&config(&upstream), folder.path().to_owned()).await;
    let id = created(&gateway, &[]).await;
    let large = "x".repeat(1 << 20);
    for _ in 0..4 {
        assert_eq!(append(&gateway, &id, &[user_item(&large)]).await, 200);
    }

    for _ in 0..20 {
        let response =
            gateway.post("/v1/responses", &json!({ "model": "friday", "conversation": id, "input": "hello" })).await;
        assert_eq!(response.status, 200, "{}", response.text());
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

    // Deleting the conversation deletes its items.
    let gateway = Gateway::in_folder(&config(&upstream), folder.path().to_owned()).await;
    let gone = gateway.open("DELETE", &format!("/v1/conversations/{id}"), &[], b"").await.response().await;
    assert_eq!(gone.status, 200, "{}", gone.text());
    gateway.stop().await;
    assert_eq!(open(folder.path()).list("entries", "", None, 100).await.expect("the store reads"), []);
}

#[tokio::test]
async fn paging_through_a_conversation_yields_every_item_in_order() {
    let upstream = Upstream::with_handler(|response| {
        text_reply(&["answer ", &response.json()["input"].as_array().map_or(0, Vec::len).to_string()])
    });
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::in_folder(&config(&upstream), folder.path().to_owned()).await;

    let id = created(&gateway, &[user_item("first")]).await;
    for number in 0..30 {
        if number % 3 == 0 {
            let response = gateway
                .post(
                    "/v1/responses",
                    &json!({ "model": "friday", "conversation": id, "input": format!("turn {number}") }),
                )
                .await;
            assert_eq!(response.status, 200, "{}", response.text());
        } else {
            assert_eq!(append(&gateway, &id, &[user_item(&format!("put {number}"))]).await, 200);
        }
    }

    let (all, full) = page(&gateway, &id, "order=asc&limit=100").await;
    assert_eq!((all.len(), &full["has_more"]), (41, &json!(false)));
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

    // Delete one item of a turn and one added item.
    for at in [1, 3] {
        let item = full["data"][at]["id"].as_str().expect("an id");
        let gone =
            gateway.open("DELETE", &format!("/v1/conversations/{id}/items/{item}"), &[], b"").await.response().await;
        assert_eq!(gone.status, 200, "{}", gone.text());
    }

    let (left, _) = page(&gateway, &id, "order=asc&limit=100").await;
    let expected: Vec<String> =
        all.iter().enumerate().filter(|(at, _)| ![1, 3].contains(at)).map(|(_, text)| text.clone()).collect();
    assert_eq!(left, expected);
}

/// A turn in a conversation, sent while `meanwhile` runs as soon as the agent has it.
async fn turn_during(
    gateway: &Gateway,
    upstream: &Upstream,
    conversation: &str,
    meanwhile: impl Future<Output = ()>,
) -> Value {
    let body = json!({ "model": "friday", "conversation": conversation, "input": "first" });
    let sent = upstream.requests().len() + 1;
    let meanwhile = async {
        upstream.wait_for_requests(sent).await;
        meanwhile.await;
        upstream.open("on");
    };
    let (response, ()) = tokio::join!(gateway.post("/v1/responses", &body), meanwhile);
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

async fn turn(gateway: &Gateway, conversation: &str, input: Value) -> Value {
    let body = json!({ "model": "friday", "conversation": conversation, "input": input });
    let response = gateway.post("/v1/responses", &body).await;
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

/// A response to a request that continues another one.
async fn response_after(gateway: &Gateway, previous: &Value, mut body: Value) -> Value {
    body["model"] = json!("friday");
    body["previous_response_id"] = previous["id"].clone();
    let response = gateway.post("/v1/responses", &body).await;
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()
}

/// The session and the texts of the latest request to an agent.
fn latest(upstream: &Upstream) -> (Value, Vec<String>) {
    let body = upstream.requests().pop().expect("a request").json();
    let text = |message: &Value| message["content"][0]["text"].as_str().map(str::to_owned);
    let texts = body["input"].as_array().expect("an input").iter().filter_map(text).collect();
    (body["session_id"].clone(), texts)
}

#[tokio::test]
async fn an_answer_reaches_the_session_that_asked_although_items_were_added_meanwhile() {
    let upstream = Upstream::with_handler(|request| match last_input_text(&request.json()).as_str() {
        "first" => approval_request_after("on"),
        _ => text_reply(&["done"]),
    });
    let gateway = Gateway::with_config(&in_memory(&upstream)).await;
    let id = created(&gateway, &[]).await;
    let added = async { assert_eq!(append(&gateway, &id, &[user_item("added")]).await, 200) };
    let asked = turn_during(&gateway, &upstream, &id, added).await;
    let (session, _) = latest(&upstream);

    let output = asked["output"].as_array().expect("items");
    let item = output.iter().find(|item| item["type"] == "mcp_approval_request").expect("a question");
    turn(
        &gateway,
        &id,
        json!([{ "type": "mcp_approval_response", "approval_request_id": item["id"], "approve": true }]),
    )
    .await;
    let answer = upstream.requests().pop().expect("the answer").json();
    let kinds: Vec<&str> =
        answer["input"].as_array().expect("an input").iter().filter_map(|one| one["type"].as_str()).collect();
    assert_eq!(answer["session_id"], session, "only this session has the item");
    assert_eq!(kinds, ["mcp_approval_request", "mcp_approval_response"]);

    turn(&gateway, &id, json!("next")).await;
    let (other, texts) = latest(&upstream);
    assert_ne!(other, session, "the agent has not received the item that was added");
    assert_eq!(texts, ["added", "first", "done", "next"]);
}

/// An agent that cannot be sent the history.
pub(crate) fn keeping_history(upstream: &Upstream) -> String {
    format!(
        "[store]\nkind = \"memory\"\n[agents.friday.upstream]\nprotocol = \"puppet\"\nurl = \"{}\"\n\
         options = {{ history = \"only\" }}\n\
         [[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\nagents = [\"friday\"]\n",
        upstream.url("/p")
    )
}

async fn remove(gateway: &Gateway, id: &str, item: &Value) -> u16 {
    let path = format!("/v1/conversations/{id}/items/{}", item.as_str().expect("an id"));
    gateway.open("DELETE", &path, &[], b"").await.response().await.status
}

#[tokio::test]
async fn a_removed_item_of_a_turn_is_not_sent_to_agents() {
    let upstream = Upstream::always(text_reply(&["done"]));
    for history in ["upstream", "gateway"] {
        let agent = format!("[agents.friday]\nhistory = \"{history}\"\n");
        let gateway = Gateway::with_config(&in_memory(&upstream).replace("[agents.friday]\n", &agent)).await;
        let id = created(&gateway, &[]).await;
        turn(&gateway, &id, json!("secret")).await;
        let item = page(&gateway, &id, "order=asc").await.1["data"][0]["id"].clone();
        assert_eq!(remove(&gateway, &id, &item).await, 200);
        turn(&gateway, &id, json!("next")).await;
        assert_eq!(latest(&upstream).1, ["done", "next"], "{history}");
    }
}

#[tokio::test]
async fn a_branch_of_a_conversation_has_no_removed_items() {
    let upstream = Upstream::always(text_reply(&["done"]));
    for (history, last) in [("upstream", &["next"][..]), ("gateway", &["done", "other", "done", "next"])] {
        let agent = format!("[agents.friday]\nhistory = \"{history}\"\n");
        let gateway = Gateway::with_config(&in_memory(&upstream).replace("[agents.friday]\n", &agent)).await;
        let id = created(&gateway, &[]).await;
        let first = turn(&gateway, &id, json!("secret")).await;
        turn(&gateway, &id, json!("more")).await;
        let item = page(&gateway, &id, "order=asc").await.1["data"][0]["id"].clone();
        assert_eq!(remove(&gateway, &id, &item).await, 200);

        let branch = response_after(&gateway, &first, json!({ "input": "other" })).await;
        assert_eq!(latest(&upstream).1, ["done", "other"], "{history}");
        response_after(&gateway, &branch, json!({ "input": "next" })).await;
        assert_eq!(latest(&upstream).1, last, "{history}");
    }
}

#[tokio::test]
async fn a_turn_after_a_failed_one_leaves_the_items_of_its_conversation() {
    let upstream = Upstream::with_handler(|request| match last_input_text(&request.json()).as_str() {
        "first" => {
            let started = Reply::events().frame(&response("created")).frame(&response("in_progress"));
            started.wait("on").frame(&response("failed")).done()
        }
        _ => text_reply(&["hi"]),
    });
    let gateway = Gateway::with_config(&in_memory(&upstream)).await;
    let id = created(&gateway, &[user_item("early")]).await;
    let body = json!({ "model": "friday", "conversation": id, "input": "first", "background": true });
    let first = gateway.post("/v1/responses", &body).await.json();
    upstream.wait_for_requests(1).await;
    let second = response_after(&gateway, &first, json!({ "input": "second", "background": true })).await;
    upstream.open("on");

    for (response, status) in [(&first, "failed"), (&second, "completed")] {
        let path = format!("/v1/responses/{}", response["id"].as_str().expect("an id"));
        let ended = poll_until("the end", async || {
            let response = gateway.get(&path).await.json();
            (!matches!(response["status"].as_str(), Some("queued" | "in_progress"))).then_some(response)
        })
        .await;
        assert_eq!(ended["status"], status, "{ended}");
    }
    assert_eq!(page(&gateway, &id, "order=asc").await.0, ["early", "second", "hi"]);
}

#[tokio::test]
async fn an_agent_is_sent_the_history_again_after_an_item_was_removed_during_a_turn() {
    for of_turn in [false, true] {
        let upstream = Upstream::with_handler(|request| match last_input_text(&request.json()).as_str() {
            "first" => text_reply_until(&["one"], "on"),
            _ => text_reply(&["done"]),
        });
        let gateway = Gateway::with_config(&in_memory(&upstream)).await;
        let id = created(&gateway, &[]).await;
        match of_turn {
            true => drop(turn(&gateway, &id, json!("secret")).await),
            false => assert_eq!(append(&gateway, &id, &[user_item("secret")]).await, 200),
        }
        let item = page(&gateway, &id, "order=asc").await.1["data"][0]["id"].clone();
        let removed = async { assert_eq!(remove(&gateway, &id, &item).await, 200) };
        turn_during(&gateway, &upstream, &id, removed).await;
        let (session, texts) = latest(&upstream);
        assert_eq!(texts.len(), if of_turn { 1 } else { 2 }, "{texts:?}");

        turn(&gateway, &id, json!("next")).await;
        let (other, texts) = latest(&upstream);
        assert_ne!(other, session, "that session has the item that was removed");
        let expected = if of_turn { &["done", "first", "one", "next"][..] } else { &["first", "one", "next"] };
        assert_eq!(texts, expected);
    }
}

#[tokio::test]
async fn an_agent_that_cannot_be_sent_the_history_is_sent_messages_that_were_added_during_a_turn() {
    let upstream = Upstream::with_handler(|request| {
        let last = texts(&request.json()).pop();
        let answer = Reply::events().frame(&json!({ "text": "hi" }).to_string());
        let answer = if last.as_deref() == Some("first") { answer.wait("on") } else { answer };
        answer.frame(&json!({ "end": "completed" }).to_string()).done()
    });
    let gateway = Gateway::with_config(&keeping_history(&upstream)).await;
    let id = created(&gateway, &[]).await;
    let added = async { assert_eq!(append(&gateway, &id, &[user_item("added")]).await, 200) };
    turn_during(&gateway, &upstream, &id, added).await;

    for expected in [&["added", "next"][..], &["next"]] {
        turn(&gateway, &id, json!("next")).await;
        assert_eq!(texts(&upstream.requests().pop().expect("a request").json()), expected);
    }
}

#[tokio::test]
async fn a_conversation_has_a_maximum_size() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::in_folder(&config(&upstream), folder.path().to_owned()).await;
    let id = created(&gateway, &[]).await;
    let large = user_item(&"x".repeat(7 << 20));
    for _ in 0..4 {
        assert_eq!(append(&gateway, &id, std::slice::from_ref(&large)).await, 200);
    }
    assert_eq!(append(&gateway, &id, std::slice::from_ref(&large)).await, 413);
    assert_eq!(append(&gateway, &id, &[user_item("a little")]).await, 200, "there is room for this");
}

#[tokio::test]
async fn the_single_document_of_an_earlier_version_is_migrated_on_the_next_write() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::in_folder(&config(&upstream), folder.path().to_owned()).await;
    let id = created(&gateway, &[user_item("one"), user_item("two")]).await;
    let response =
        gateway.post("/v1/responses", &json!({ "model": "friday", "conversation": id, "input": "three" })).await;
    assert_eq!(response.status, 200, "{}", response.text());
    gateway.stop().await;

    // Rewrite the document to the format of the earlier version.
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

    // A date far in the future, so that retention keeps it.
    let put = 4_102_444_800_000;
    store.put("sessions", &session.key, written, Expect::Any, put).await.expect("written").expect("no conflict");
    for row in &rows {
        store.delete("entries", &row.key, Expect::Any).await.expect("written").expect("no conflict");
    }
    store.close().await.expect("the store closes");

    let gateway = Gateway::in_folder(&config(&upstream), folder.path().to_owned()).await;
    let texts = ["one", "two", "three", "hi"];
    assert_eq!(page(&gateway, &id, "order=asc").await.0, texts);
    assert_eq!(append(&gateway, &id, &[user_item("five")]).await, 200);

    gateway.stop().await;
    let store = open(folder.path());
    assert_eq!(store.list("entries", "", None, 100).await.expect("the store reads").len(), 4);
    let session = store.list("sessions", "", None, 2).await.expect("the store reads").remove(0);
    let doc: Value = serde_json::from_slice(&session.document.value).expect("JSON");
    assert_eq!((&doc["next"], doc.get("entries")), (&json!(4), None));
    store.close().await.expect("the store closes");
    let gateway = Gateway::in_folder(&config(&upstream), folder.path().to_owned()).await;
    assert_eq!(page(&gateway, &id, "order=asc").await.0, ["one", "two", "three", "hi", "five"]);
}
