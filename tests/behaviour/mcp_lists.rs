//! Resources, prompts and completion of MCP clients, and what callers may use.

use serde_json::json;

use crate::mcp_support::{Client, MCP, run_of};
use crate::support::callers::{AUTH, write_keys};
use crate::support::gateway::{DEMO, Gateway};

#[tokio::test]
async fn runs_and_agents_are_resources_and_agents_are_prompts() {
    let gateway = Gateway::start(&format!("{DEMO}{MCP}")).await;
    let legacy = Client::legacy(&gateway, "2025-11-25", json!({})).await;
    for client in [&legacy, &Client::modern(&gateway, json!({}))] {
        let resources = client.result("resources/list", json!({})).await;
        assert_eq!(resources["resources"][0]["uri"], "interlingua://agents/demo");
        let agent = client.result("resources/read", json!({ "uri": "interlingua://agents/demo" })).await;
        assert!(agent["contents"][0]["text"].as_str().expect("a text").contains("\"tool\":\"demo\""), "{agent}");

        let result = client.call("demo", json!({ "message": "echo hello" })).await;
        let uri = format!("interlingua://runs/{}", run_of(&result));
        let run = client.result("resources/read", json!({ "uri": uri })).await;
        assert!(run["contents"][0]["text"].as_str().expect("a text").contains("\"text\":\"hello\""), "{run}");
        let part = client.result("resources/read", json!({ "uri": format!("{uri}/parts/1") })).await;
        assert_eq!(part["contents"][0]["text"], "hello");
        let unknown = "interlingua://runs/0198f2a0-7b1c-7aaa-bbbb-0123456789ab";
        let missing = client.request("resources/read", json!({ "uri": unknown })).await;
        let code = if client.session.is_empty() { -32602 } else { -32002 };
        assert_eq!((&missing["error"]["code"], &missing["error"]["data"]["uri"]), (&json!(code), &json!(unknown)));

        let prompts = client.result("prompts/list", json!({})).await;
        assert_eq!(prompts["prompts"][0]["name"], "demo");
        let prompt = client.result("prompts/get", json!({ "name": "demo", "arguments": { "message": "hi" } })).await;
        assert!(prompt["messages"][0]["content"]["text"].as_str().expect("a text").contains("hi"), "{prompt}");
        let reference = json!({ "type": "ref/prompt", "name": "demo" });
        let typed = json!({ "ref": reference, "argument": { "name": "session", "value": "" } });
        let completed = client.result("completion/complete", typed).await;
        assert!(!completed["completion"]["values"].as_array().expect("values").is_empty(), "{completed}");
        assert_eq!(
            client.result("resources/templates/list", json!({})).await["resourceTemplates"].as_array().map(Vec::len),
            Some(2)
        );
    }
}

#[tokio::test]
async fn what_is_switched_off_is_not_served() {
    let options = "[routes.options]\nresources = false\nprompts = false\nanswer_tool = \"\"\ntasks = \"never\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{MCP}{options}")).await;
    let client = Client::modern(&gateway, json!({}));
    let discovered = client.result("server/discover", json!({})).await;
    assert_eq!(discovered["capabilities"], json!({ "tools": { "listChanged": true }, "completions": {} }));
    for method in ["resources/list", "prompts/list", "tasks/get"] {
        let (messages, status) = client.exchange(method, json!({})).await;
        assert_eq!((status, messages[0]["error"]["code"].as_i64()), (404, Some(-32601)), "{method}");
    }
    let tools = client.result("tools/list", json!({})).await;
    assert_eq!(tools["tools"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn what_belongs_to_another_caller_does_not_exist() {
    let folder = tempfile::tempdir().expect("a folder");
    write_keys(folder.path(), &["ada", "bob"]);
    let config = format!("{AUTH}[store]\nkind = \"memory\"\n{DEMO}{MCP}");
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    let (ada, bob) = (gateway.as_caller("ada"), gateway.as_caller("bob"));
    let forms = json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let (hers, his) = (Client::modern(&ada, forms.clone()), Client::modern(&bob, forms));
    let asked = hers.call("demo", json!({ "message": "approval" })).await;
    let key = asked["inputRequests"].as_object().expect("questions").keys().next().expect("a key").clone();
    let again = json!({
        "name": "demo", "arguments": { "message": "approval" }, "requestState": asked["requestState"],
        "inputResponses": { key: { "action": "accept", "content": { "decision": "accept" } } },
    });
    let stolen = his.request("tools/call", again.clone()).await;
    assert_eq!(stolen["error"]["data"]["code"], "STATE_INVALID", "{stolen}");
    let result = hers.result("tools/call", again).await;

    let run = run_of(&result);
    let session = result["_meta"]["interlingua/session"].clone();
    for (tool, arguments) in [
        ("wait", json!({ "run": run })),
        ("answer", json!({ "run": run, "decision": "reject" })),
        ("demo", json!({ "message": "hi", "session": session })),
    ] {
        let refused = his.call(tool, arguments).await;
        let text = refused["content"][0]["text"].as_str().expect("a text");
        assert!(text.starts_with("RESOURCE_NOT_FOUND: "), "{refused}");
    }
    assert_eq!(his.request("tasks/get", json!({ "taskId": run })).await["error"]["code"], json!(-32602));
    let uri = format!("interlingua://runs/{run}");
    assert_eq!(his.request("resources/read", json!({ "uri": uri })).await["error"]["code"], json!(-32602));

    let session = Client::legacy(&ada, "2025-11-25", json!({})).await;
    let taken = Client { gateway: &bob, ..session };
    assert_eq!(taken.listen(None).await.response().await.status, 404);
}
