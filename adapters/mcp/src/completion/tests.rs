//! Tests of completion.

use std::sync::Arc;

use interlingua_core::call::{AgentCard, SessionView};
use interlingua_core::{Extra, Mount};

use super::*;
use crate::options::Options;

fn tools() -> Tools {
    let many: Vec<String> = (0..150).map(|number| format!("n{number}")).collect();
    let options: Options = serde_json::from_value(json!({ "tools": { "a": { "arguments": { "properties": {
        "language": { "enum": ["de", "fr", "DE", 7] }, "many": { "enum": many }, "free": { "type": "string" },
    } } } } }))
    .expect("options");
    let card = Arc::new(AgentCard { name: "a".to_owned(), ..AgentCard::default() });
    let mount = Mount { path: "/mcp".into(), agents: vec![card], public_url: None, schemes: Vec::new() };
    Tools::new(&mount, &options).expect("tools")
}

fn request(kind: &str, name: &str, argument: &str, typed: &str) -> Value {
    json!({ "ref": { "type": kind, "name": name, "uri": name }, "argument": { "name": argument, "value": typed } })
}

fn values(argument: &str, typed: &str) -> Value {
    let completion = read(&request("ref/prompt", "a", argument, typed), &tools(), &|_| true).expect("a completion");
    assert!(completion.call().is_none());
    completion.finish(None)["completion"].clone()
}

#[test]
fn values_of_a_list_are_completed() {
    assert_eq!(values("language", "d"), json!({ "values": ["de"], "total": 1, "hasMore": false }));
    assert_eq!(values("language", "")["values"], json!(["de", "fr", "DE", "7"]));
    assert_eq!(values("language", "x")["values"], json!([]));
    for argument in ["free", "unknown"] {
        assert_eq!(values(argument, ""), json!({ "values": [], "total": 0, "hasMore": false }));
    }
    let many = values("many", "n");
    assert_eq!(
        (many["values"].as_array().map(Vec::len), &many["total"], &many["hasMore"]),
        (Some(100), &json!(150), &json!(true))
    );
}

#[test]
fn sessions_are_completed() {
    let completion = read(&request("ref/prompt", "a", "session", "s-1"), &tools(), &|_| true).expect("a completion");
    let Some(Call::Session(SessionCall::List(filter))) = completion.call() else { panic!("{completion:?}") };
    assert_eq!((filter.agent.as_deref(), filter.limit, filter.order), (Some("a"), 20, Order::LatestChange));
    let session = |id: &str| SessionView {
        id: id.to_owned(),
        agent: "a".to_owned(),
        created_at: 0,
        updated_at: 0,
        items: Vec::new(),
        pending: Vec::new(),
        latest: None,
        state: None,
        user: None,
        labels: Extra::new(),
    };
    let page = SessionPage { sessions: ["s-12", "s-2", "s-1"].map(session).to_vec(), total: 3, next: None };
    assert_eq!(completion.finish(Some(&page))["completion"]["values"], json!(["s-12", "s-1"]));
    assert_eq!(completion.finish(None)["completion"]["values"], json!([]));
}

#[test]
fn resources_have_no_completion() {
    let request = request("ref/resource", "interlingua://runs/{run}", "run", "01");
    let completion = read(&request, &tools(), &|_| true).expect("a completion");
    assert_eq!(completion.finish(None), json!({ "completion": { "values": [], "total": 0, "hasMore": false } }));
}

#[test]
fn wrong_requests_are_refused() {
    for (params, message) in [
        (json!({}), "ref.type must be a string"),
        (json!({ "ref": 1 }), "ref.type must be a string"),
        (json!({ "ref": { "type": "ref/prompt" } }), "argument.name must be a string"),
        (json!({ "ref": { "type": "ref/prompt" }, "argument": { "name": "x" } }), "argument.value must be a string"),
        (
            json!({ "ref": { "type": "ref/prompt" }, "argument": { "name": "x", "value": "" } }),
            "ref.name must be a string",
        ),
        (request("ref/other", "a", "x", ""), "ref.type must be ref/prompt or ref/resource"),
        (request("ref/prompt", "b", "x", ""), "Unknown prompt: b"),
    ] {
        let error = read(&params, &tools(), &|_| true).expect_err(message);
        assert_eq!((error.code, error.message.as_str()), (-32602, message));
    }
    assert!(read(&request("ref/prompt", "a", "x", ""), &tools(), &|_| false).is_err());
}
