//! Clients of MCP: calls of tools without a session, and tasks in the style of the newest revision.

use serde_json::{Value, json};

use super::driver::{Driver, ErrorWords, Facts, LongRun};
use super::{Decision, Interrupt, LONG, Turn, frames, last_body, latest, state};
use crate::endings::{Ending, Failure, only_end};
use crate::gateway::{Gateway, JSON};
use crate::http::{Exchange, Response};

const PATH: &str = "/mcp";
const MODERN: &str = "2026-07-28";
/// The place of the error of a result.
const ERROR: &str = "/result/_meta/interlingua~1error/code";

/// A call of a tool, with progress.
fn call(tool: &str, arguments: &Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": "p" } });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
}

/// Calls a tool. `accept`: the forms of the answer.
async fn open(gateway: &Gateway, tool: &str, arguments: &Value, accept: &str) -> Exchange {
    let headers = [JSON, &[("accept", accept)]].concat();
    gateway.open("POST", PATH, &headers, call(tool, arguments).to_string().as_bytes()).await
}

async fn send(gateway: &Gateway, tool: &str, arguments: &Value) -> Response {
    open(gateway, tool, arguments, "application/json").await.response().await
}

/// A request about the task of a run.
async fn on_task(gateway: &Gateway, method: &str, interrupt: &Interrupt, responses: Value) -> Response {
    let id = interrupt.id();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } },
    });
    let mut params = json!({ "taskId": id, "_meta": meta });
    if responses.is_object() {
        params["inputResponses"] = responses;
    }
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let own = [("mcp-protocol-version", MODERN), ("mcp-method", method), ("mcp-name", id)];
    gateway.open("POST", PATH, &[JSON, &own].concat(), body.as_bytes()).await.response().await
}

/// Answers items of a run, as those of a task, and waits for the answer. `responses`: by item.
pub async fn answer_items(gateway: &Gateway, interrupt: &Interrupt, responses: Value) -> Response {
    let taken = on_task(gateway, "tasks/update", interrupt, responses).await;
    if taken.status != 200 || taken.json().get("error").is_some() {
        return taken;
    }
    // A run that ended with its question is answered by another one, to which nothing leads from it.
    let run = latest(gateway, &interrupt.session).await["id"].as_str().expect("an id").to_owned();
    send(gateway, "wait", &json!({ "run": run.trim_start_matches("response_") })).await
}

/// The messages of an answer: those of its stream, or the only one.
fn messages(answer: &Response) -> Vec<Value> {
    let streamed = frames(answer.text());
    if streamed.is_empty() { vec![last_body(answer)] } else { streamed }
}

pub(super) struct Client;

impl Driver for Client {
    const FACTS: Facts = Facts {
        name: "mcp",
        streams: true,
        resends: false,
        outlasts_clients: true,
        fails_with_success: true,
        end: "\"interlingua/status\":\"completed\"",
        errors: ErrorWords {
            message: "/error/message",
            wrong_key: &[("/error/code", "-32600"), ("/error/data/code", r#""AUTH_FAILED""#)],
            rate: "\"code\":\"RATE_LIMIT_EXCEEDED\"",
            runs: ("/error/data/code", "RATE_LIMIT_EXCEEDED"),
            limited_agent: (200, ERROR, "UPSTREAM_RATE_LIMITED"),
            // Answers are taken in the background: the item is open again.
            away: "/result/_meta/interlingua~1status",
            overloaded: (200, "input_required"),
            unreachable: (200, "input_required"),
            draining: 503,
        },
    };

    async fn say(gateway: &Gateway, _: &str, words: &str, picture: Option<&str>) -> Response {
        let mut arguments = json!({ "message": words });
        if let Some(url) = picture {
            arguments["attachments"] = json!([{ "url": url, "mime_type": "image/png" }]);
        }
        // Reasoning is part of the stream only.
        let accept = if words == "reasoning" { "text/event-stream" } else { "application/json" };
        open(gateway, "demo", &arguments, accept).await.response().await
    }

    async fn answer(gateway: &Gateway, interrupt: &Interrupt, decision: Decision) -> Option<Response> {
        let form = |content: Value| json!({ "action": "accept", "content": content });
        let response = match decision {
            Decision::Accept => form(json!({ "decision": "accept" })),
            Decision::Edit => form(json!({ "decision": "edit", "arguments": r#"{"to":"grace@example.com"}"# })),
            Decision::Respond => form(json!({ "decision": "respond", "text": "later" })),
            Decision::Reject => json!({ "action": "decline" }),
            Decision::Output => form(json!({ "output": "Paris" })),
            Decision::Value => form(json!({ "colour": "blue" })),
            Decision::Done => form(json!({ "done": "yes" })),
            Decision::Words => {
                // A form has fields; the tool takes words.
                let arguments = json!({ "run": interrupt.id(), "item": interrupt.item, "text": "blue" });
                return Some(send(gateway, "answer", &arguments).await);
            }
        };
        Some(answer_items(gateway, interrupt, json!({ &*interrupt.item: response })).await)
    }

    async fn begin_long(gateway: &Gateway, _: &str) -> LongRun {
        let arguments = json!({ "message": LONG });
        let mut stream = open(gateway, "demo", &arguments, "text/event-stream").await;
        assert_eq!(stream.status().await, 200);
        // The first notification names run and session. The run continues without its client.
        let first = stream.frame().await.expect("a notification");
        LongRun::Background(Response { status: 200, headers: Vec::new(), body: first.to_string().into_bytes() })
    }

    async fn session_of(_: &Gateway, answer: &Response, _: &str) -> String {
        let metas = ["/result/_meta", "/params/_meta"].map(|place| place.to_owned() + "/interlingua~1session");
        let mut messages = messages(answer).into_iter();
        let session = messages
            .find_map(|message| metas.iter().find_map(|place| message.pointer(place)?.as_str().map(str::to_owned)));
        session.unwrap_or_else(|| panic!("no session: {}", answer.text()))
    }

    async fn status(gateway: &Gateway, interrupt: &Interrupt) -> Option<String> {
        state(on_task(gateway, "tasks/get", interrupt, Value::Null).await, "/result/status")
    }

    async fn follow(gateway: &Gateway, interrupt: &Interrupt) -> Option<Exchange> {
        Some(open(gateway, "wait", &json!({ "run": interrupt.id() }), "text/event-stream").await)
    }

    async fn cancel(gateway: &Gateway, interrupt: &Interrupt) -> Option<Response> {
        Some(on_task(gateway, "tasks/cancel", interrupt, Value::Null).await)
    }

    fn turn(_: &str, words: &str, streamed: bool) -> Turn {
        let accept = if streamed { "application/json, text/event-stream" } else { "application/json" };
        let turn = Turn::new(PATH, call("demo", &json!({ "message": words })));
        turn.with_headers(JSON).with_header("accept", accept)
    }

    fn ending(answer: &Response, failure: &Failure) -> Ending {
        let received = messages(answer);
        let last = only_end(&received, |message| message.get("result").is_some() || message.get("error").is_some());
        assert_eq!(last["id"], 1, "{last}");
        if let Some(error) = last.get("error") {
            assert_eq!(error["data"]["code"], failure.code, "{last}");
            return Ending::Failed;
        }
        let result = &last["result"];
        if result["isError"] == false {
            assert_eq!(result["_meta"]["interlingua/status"], "completed", "{last}");
            return Ending::Completed;
        }
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        let code = result["_meta"]["interlingua/error"]["code"].as_str().expect("a code");
        assert!(text.starts_with(&format!("{code}: ")) && text.contains("the agent"), "it says why: {last}");
        Ending::Failed
    }

    fn refusal(answer: &Response, failure: &Failure) -> (Value, (u16, String)) {
        (answer.json()["error"]["data"]["code"].clone(), (failure.status, failure.code.to_owned()))
    }

    fn text(answer: &Response) -> String {
        let received = messages(answer);
        let deltas = received.iter().filter_map(|message| message["params"]["_meta"]["interlingua/delta"].as_str());
        let streamed: String = deltas.collect();
        if !streamed.is_empty() {
            return streamed;
        }
        let result = received.last().map(|last| last["result"]["content"].clone()).unwrap_or_default();
        let blocks = result.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
        blocks.filter(|text| !text.starts_with("[session ")).collect()
    }
}
