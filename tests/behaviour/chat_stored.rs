//! Stored completions of Chat Completions: the runs they show, their owners, their lists and pages, their metadata, and
//! their deletion, in both stores and after a restart.
//!
//! Not here: other operations on the resources of other callers ([`crate::ownership`]).

use interlingua::store::{DocumentStore, Sqlite, SqliteOptions, Store as _};
use serde_json::{Value, json};

use crate::support::callers::{AUTH, write_keys};
use crate::support::gateway::{DEMO, Gateway};
use crate::support::http::Response;

const ROUTES: &str = "[[routes]]\nprotocol = \"chat-completions\"\npath = \"/v1\"\nagents = [\"demo\"]\n\
                      options = { models = { \"other\" = \"demo\" } }\n\
                      [[routes]]\nprotocol = \"agent-api\"\npath = \"/agents/{agent}\"\nagents = [\"demo\"]\n";

fn sqlite() -> String {
    format!("[store]\nkind = \"sqlite\"\npath = \"runs.db\"\n{DEMO}{ROUTES}")
}

fn memory() -> String {
    format!("[store]\nkind = \"memory\"\n{DEMO}{ROUTES}")
}

/// Asks, and returns the completion's id.
async fn ask(gateway: &Gateway, words: &str, fields: &Value) -> String {
    let mut body = json!({ "model": "demo", "messages": [{ "role": "user", "content": words }] });
    for (name, value) in fields.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    let answer = gateway.post("/v1/chat/completions", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["id"].as_str().expect("an id").to_owned()
}

async fn stored(gateway: &Gateway, words: &str, metadata: &Value) -> String {
    ask(gateway, words, &json!({ "store": true, "metadata": metadata })).await
}

async fn delete(gateway: &Gateway, path: &str) -> Response {
    gateway.open("DELETE", path, &[], b"").await.response().await
}

/// The ids on a page, and the page.
async fn list(gateway: &Gateway, query: &str) -> (Vec<String>, Value) {
    let page = gateway.get(&format!("/v1/chat/completions?{query}")).await;
    assert_eq!(page.status, 200, "{}", page.text());
    let page = page.json();
    let id = |entry: &Value| entry["id"].as_str().expect("an id").to_owned();
    (page["data"].as_array().expect("a list").iter().map(id).collect(), page)
}

#[tokio::test]
async fn only_completions_with_store_are_found_and_as_they_were_answered() {
    for config in [memory(), sqlite()] {
        let gateway = Gateway::with_config(&config).await;
        let hidden = ask(&gateway, "hello", &json!({})).await;
        let refused = ask(&gateway, "hello", &json!({ "store": false })).await;
        let words = json!([{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "usage hello" }]);
        let body = json!({ "model": "demo", "store": true, "messages": words, "metadata": { "a": "1" } });
        let answered = gateway.post("/v1/chat/completions", &body).await.json();
        let id = answered["id"].as_str().expect("an id");

        let read = gateway.get(&format!("/v1/chat/completions/{id}")).await;
        assert_eq!((read.status, read.json()), (200, answered.clone()), "word for word");
        assert!(read.header("x-request-id").is_some_and(|id| id.starts_with("req_")));
        assert_eq!(list(&gateway, "").await.0, [id]);

        // Another form of the id, a run without `store`, and one that never was: the same answer.
        let other_form = id.replace("chatcmpl-", "resp_");
        for id in [hidden.as_str(), &refused, &other_form, "chatcmpl-00000000000000000000000000000009", "x"] {
            let path = format!("/v1/chat/completions/{id}");
            let update = gateway.post(&path, &json!({ "metadata": {} })).await;
            let messages = gateway.get(&format!("{path}/messages")).await;
            for answer in [gateway.get(&path).await, delete(&gateway, &path).await, update, messages] {
                let error = &answer.json()["error"];
                assert_eq!((answer.status, &error["type"]), (404, &json!("invalid_request_error")), "{error}");
                assert_eq!(error["message"], format!("Chat completion with id '{id}' not found."));
            }
        }
        let run = hidden.trim_start_matches("chatcmpl-");
        assert_eq!(gateway.get(&format!("/agents/demo/runs/{run}")).await.status, 200, "it can be read elsewhere");
    }
}

#[tokio::test]
async fn streams_are_stored_and_failed_runs_are_not() {
    let gateway = Gateway::with_config(&sqlite()).await;
    let body = |words: &str| json!({ "model": "demo", "store": true, "stream": true, "messages": [{ "role": "user", "content": words }] });
    let stream = gateway.post("/v1/chat/completions", &body("hello")).await;
    assert!(stream.text().ends_with("data: [DONE]\n\n"), "{}", stream.text());
    let failed = gateway.post("/v1/chat/completions", &body("fail late")).await;
    assert!(failed.text().contains("\"error\""), "{}", failed.text());

    let (ids, page) = list(&gateway, "").await;
    assert_eq!(ids.len(), 1, "{page}");
    assert!(stream.text().contains(&ids[0]));
    assert!(page["data"][0]["choices"][0]["message"]["content"].as_str().is_some_and(|text| text.contains("hello")));
}

#[tokio::test]
async fn lists_are_sorted_by_creation_cut_into_pages_and_filtered() {
    for config in [memory(), sqlite()] {
        let gateway = Gateway::with_config(&config).await;
        let mut ids = Vec::new();
        for number in 0..5 {
            let metadata = json!({ "parity": (number % 2).to_string(), "all [of] them": "yes" });
            ids.push(stored(&gateway, "hello", &metadata).await);
        }
        let other = ask(&gateway, "hello", &json!({ "model": "other", "store": true })).await;
        ids.push(other.clone());

        let (first, page) = list(&gateway, "limit=4").await;
        assert_eq!((first.as_slice(), &page["has_more"], &page["object"]), (&ids[..4], &json!(true), &json!("list")));
        assert_eq!((&page["first_id"], &page["last_id"]), (&json!(ids[0]), &json!(ids[3])));
        let (rest, page) = list(&gateway, &format!("limit=4&after={}", ids[3])).await;
        assert_eq!((rest.as_slice(), &page["has_more"]), (&ids[4..], &json!(false)));
        let (none, page) = list(&gateway, &format!("after={other}")).await;
        assert_eq!((none.len(), &page["first_id"], &page["last_id"]), (0, &Value::Null, &Value::Null));
        let newest = ids.iter().rev().cloned().collect::<Vec<_>>();
        assert_eq!(list(&gateway, "order=desc").await.0, newest);
        assert_eq!(list(&gateway, &format!("order=desc&limit=1&after={other}")).await.0, [ids[4].clone()]);

        assert_eq!(list(&gateway, "model=other").await.0.as_slice(), std::slice::from_ref(&other));
        assert_eq!(list(&gateway, "metadata[parity]=1").await.0, [ids[1].clone(), ids[3].clone()]);
        let both = "metadata%5Ball+%5Bof%5D+them%5D=yes&metadata%5Bparity%5D=0&model=demo";
        assert_eq!(list(&gateway, both).await.0, [ids[0].clone(), ids[2].clone(), ids[4].clone()]);
        assert_eq!(list(&gateway, "metadata[parity]=2").await.0, Vec::<String>::new());

        for (query, param) in [
            ("limit=0", "limit"),
            ("limit=ten", "limit"),
            ("order=up", "order"),
            ("after=nothing", "after"),
            ("after=chatcmpl-00000000000000000000000000000009", "after"),
            ("metadata=x", "metadata"),
        ] {
            let wrong = gateway.get(&format!("/v1/chat/completions?{query}")).await;
            assert_eq!((wrong.status, &wrong.json()["error"]["param"]), (400, &json!(param)), "{query}");
        }
    }
}

#[tokio::test]
async fn metadata_is_replaced_as_a_whole_and_survives_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::in_folder(&sqlite(), folder.path().to_owned()).await;
    let id = stored(&gateway, "hello", &json!({ "a": "1", "b": "2" })).await;
    let path = format!("/v1/chat/completions/{id}");
    let before = gateway.get(&path).await.json();

    let updated = gateway.post(&path, &json!({ "metadata": { "a": "3" } })).await;
    assert_eq!((updated.status, &updated.json()["metadata"]), (200, &json!({ "a": "3" })));
    assert_eq!(gateway.get(&path).await.json(), updated.json());
    let mut expected = before.clone();
    expected["metadata"] = json!({ "a": "3" });
    assert_eq!(updated.json(), expected, "nothing else changes");

    let too_many: serde_json::Map<_, _> = (0..17).map(|number| (number.to_string(), json!(""))).collect();
    for (body, param) in [
        (json!({}), "metadata"),
        (json!({ "metadata": "x" }), "metadata"),
        (json!({ "metadata": { "a": 1 } }), "metadata.a"),
        (json!({ "metadata": too_many }), "metadata"),
    ] {
        let wrong = gateway.post(&path, &body).await;
        assert_eq!((wrong.status, &wrong.json()["error"]["param"]), (400, &json!(param)), "{body}");
    }
    gateway.stop().await;

    let gateway = Gateway::in_folder(&sqlite(), folder.path().to_owned()).await;
    assert_eq!(gateway.get(&path).await.json(), expected);
    assert_eq!(list(&gateway, "metadata[a]=3").await.0.as_slice(), std::slice::from_ref(&id));
    assert_eq!(list(&gateway, "metadata[a]=1").await.0, Vec::<String>::new());
    assert_eq!(gateway.post(&path, &json!({ "metadata": null })).await.json()["metadata"], json!({}));
    assert_eq!(list(&gateway, "").await.0, [id], "without metadata it is still there");
}

#[tokio::test]
async fn messages_are_those_of_the_request_with_ids() {
    for config in [memory(), sqlite()] {
        let gateway = Gateway::with_config(&config).await;
        let parts = json!([{ "type": "text", "text": "hello" }, { "type": "image_url", "image_url": { "url": "https://example.com/a.png" } }]);
        let call = json!({ "id": "call_1", "type": "function", "function": { "name": "f", "arguments": "{}" } });
        let messages = json!([
            { "role": "system", "content": "Be brief.", "name": "s" },
            { "role": "user", "content": parts },
            { "role": "assistant", "content": null, "tool_calls": [call] },
            { "role": "tool", "tool_call_id": "call_1", "content": "1" },
            { "role": "user", "content": "hello again" },
        ]);
        let id = ask(&gateway, "", &json!({ "store": true, "messages": messages })).await;
        let path = format!("/v1/chat/completions/{id}/messages");

        let page = gateway.get(&path).await.json();
        assert_eq!((&page["object"], &page["has_more"]), (&json!("list"), &json!(false)));
        let ids: Vec<String> = (0..5).map(|index| format!("{id}-{index}")).collect();
        assert_eq!((&page["first_id"], &page["last_id"]), (&json!(ids[0]), &json!(ids[4])));
        let mut expected = messages.as_array().expect("a list").clone();
        for (message, id) in expected.iter_mut().zip(&ids) {
            message["id"] = json!(id);
            message["content_parts"] = Value::Null;
        }
        (expected[1]["content"], expected[1]["content_parts"]) = (Value::Null, parts.clone());
        assert_eq!(page["data"], json!(expected));

        let ids_of = |page: &Value| -> Vec<String> {
            page["data"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|entry| Some(entry["id"].as_str()?.to_owned()))
                .collect()
        };
        let second = gateway.get(&format!("{path}?limit=2&after={}", ids[1])).await.json();
        assert_eq!((ids_of(&second), &second["has_more"]), (ids[2..4].to_vec(), &json!(true)));
        let last = gateway.get(&format!("{path}?order=desc&limit=1")).await.json();
        assert_eq!(ids_of(&last), [ids[4].clone()]);
        let wrong = gateway.get(&format!("{path}?after=x")).await;
        assert_eq!((wrong.status, &wrong.json()["error"]["param"]), (400, &json!("after")));
    }
}

#[tokio::test]
async fn a_deleted_completion_is_gone_with_its_messages() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::in_folder(&sqlite(), folder.path().to_owned()).await;
    let [first, second] = [stored(&gateway, "hello", &json!({})).await, stored(&gateway, "hello", &json!({})).await];
    let path = format!("/v1/chat/completions/{first}");
    let deleted = delete(&gateway, &path).await;
    let expected = json!({ "id": first, "object": "chat.completion.deleted", "deleted": true });
    assert_eq!((deleted.status, deleted.json()), (200, expected));
    for answer in
        [gateway.get(&path).await, delete(&gateway, &path).await, gateway.get(&format!("{path}/messages")).await]
    {
        assert_eq!(answer.status, 404, "{}", answer.text());
    }
    assert_eq!(list(&gateway, "").await.0.as_slice(), std::slice::from_ref(&second));

    // Over another route, too.
    let run = second.trim_start_matches("chatcmpl-");
    assert!(delete(&gateway, &format!("/agents/demo/runs/{run}")).await.status < 300);
    assert_eq!(list(&gateway, "").await.0, Vec::<String>::new());
    gateway.stop().await;

    let store = Sqlite::open(&folder.path().join("runs.db"), &SqliteOptions::default()).expect("the store opens");
    assert_eq!(store.list("attachments", "", None, 10).await.expect("the store reads"), []);
    store.close().await.expect("the store closes");
}

#[tokio::test]
async fn no_caller_finds_the_completions_of_another() {
    for config in [memory(), sqlite()] {
        let folder = tempfile::tempdir().expect("a folder");
        write_keys(folder.path(), &["ann", "bob"]);
        let gateway = Gateway::in_folder(&format!("{AUTH}{config}"), folder.path().to_owned()).await;
        let [ann, bob] = ["ann", "bob"].map(|caller| gateway.as_caller(caller));
        let id = stored(&ann, "my secret", &json!({ "a": "1" })).await;
        let own = stored(&bob, "hello", &json!({ "a": "1" })).await;
        let path = format!("/v1/chat/completions/{id}");

        let update = bob.post(&path, &json!({ "metadata": { "a": "2" } })).await;
        let messages = bob.get(&format!("{path}/messages")).await;
        for answer in [bob.get(&path).await, delete(&bob, &path).await, update, messages] {
            assert_eq!(answer.status, 404, "{}", answer.text());
            assert_eq!(answer.json()["error"]["message"], format!("Chat completion with id '{id}' not found."));
        }
        assert_eq!(list(&bob, "metadata[a]=1").await.0.as_slice(), std::slice::from_ref(&own));
        let after = bob.get(&format!("/v1/chat/completions?after={id}")).await;
        assert_eq!((after.status, &after.json()["error"]["param"]), (400, &json!("after")));

        assert_eq!(ann.get(&path).await.json()["metadata"], json!({ "a": "1" }), "nothing was changed");
        assert_eq!(list(&ann, "").await.0.as_slice(), std::slice::from_ref(&id));
    }
}

#[tokio::test]
async fn the_endpoints_can_be_switched_off() {
    let off = sqlite().replace("{ models", "{ stored_completions = \"off\", models");
    let gateway = Gateway::with_config(&off).await;
    let id = stored(&gateway, "hello", &json!({})).await;
    let read = gateway.get(&format!("/v1/chat/completions/{id}")).await;
    assert_eq!(read.status, 404, "{}", read.text());
    let listed = gateway.get("/v1/chat/completions").await;
    assert_eq!(listed.status, 405, "{}", listed.text());
}
