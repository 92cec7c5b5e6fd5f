//! A client of MCP 2026-07-28: it calls an agent as a tool, reads progress and the result, shows forms and pages, and
//! repeats the call with their answers. Turns in the background are tasks.

use interlingua_core::loss::ContentKind as K;
use interlingua_core::pending::Decision;
use interlingua_core_testkit::scenario::{ClientAct, Item, Media, normal};
use serde_json::{Map, Value, json};

use crate::frames::{Frames, list, text};
use crate::{Background, End, Open, Request, ScriptedClient, ShownTurn, Talk};

const REVISION: &str = "2026-07-28";

/// See the module.
#[derive(Debug)]
pub(crate) struct Mcp;

impl ScriptedClient for Mcp {
    fn protocol(&self) -> &'static str {
        "mcp"
    }

    fn route(&self) -> &'static str {
        "/mcp"
    }

    fn route_settings(&self) -> &'static str {
        // Of clients that declare the extension, which only turns in the background do.
        "options = { tasks = \"always\" }"
    }

    fn can(&self, act: &ClientAct) -> bool {
        // A call has a message and attachments.
        !matches!(
            act,
            ClientAct::Attach(Media::Data(_))
                | ClientAct::Declare(_)
                | ClientAct::Instruct(_)
                | ClientAct::Temperature
                | ClientAct::Fail(..)
                | ClientAct::Picture(..)
        )
    }

    fn attaches_what_is_taken(&self) -> bool {
        // The definition of the tool says whether it takes attachments.
        true
    }

    fn cancel(&self, run: &str, _: &Talk) -> Option<Request> {
        Some(message("tasks/cancel", run, json!({ "taskId": run })))
    }

    fn background(&self) -> Option<&dyn Background> {
        Some(self)
    }

    fn request(&self, acts: &[ClientAct], talk: &mut Talk) -> Request {
        if acts.iter().any(|act| matches!(act, ClientAct::Decide(_, Decision::Cancel))) {
            // A form that is cancelled stays open. The tool withdraws.
            let arguments = json!({ "run": talk.state["run"], "decision": "cancel" });
            return called("answer", arguments, talk);
        }
        if acts.iter().any(|act| act.answers().is_some()) {
            let mut responses = Map::new();
            for act in acts {
                let open = talk.open(act.answers().expect("an answer"));
                if open.what == "page" {
                    responses.insert(format!("{}.open", open.id), json!({ "action": "accept" }));
                }
                responses.insert(open.id.clone(), elicited(act));
            }
            return repeated_call(talk, &Value::Object(responses));
        }

        let mut arguments = json!({ "message": talk.words(acts) });
        let attached: Vec<Value> = acts
            .iter()
            .filter_map(|act| match act {
                ClientAct::Attach(media) => Some(attachment(*media)),
                _ => None,
            })
            .collect();
        if !attached.is_empty() {
            arguments["attachments"] = json!(attached);
        }
        if !talk.last.is_empty() {
            arguments["session"] = json!(talk.last);
        }
        called(&talk.agent.clone(), arguments, talk)
    }

    fn read(&self, status: u16, body: &str, talk: &mut Talk) -> ShownTurn {
        let messages = match serde_json::from_str::<Value>(body) {
            Ok(one) => vec![one],
            Err(_) => Frames::split(body).json(),
        };
        let (last, before) = messages.split_last().unwrap_or_else(|| panic!("no response: {body}"));
        assert!(messages.iter().all(|message| message["jsonrpc"] == "2.0"), "JSON-RPC: {body}");
        if status != 200 {
            let code = last["error"]["data"]["code"].as_str().unwrap_or_default().to_owned();
            assert!(last["error"]["code"].is_i64(), "an error: {body}");
            return ShownTurn { end: Some(End::Refused(status)), code, ..ShownTurn::default() };
        }
        assert_eq!(last["id"], 1, "the last message is the response: {body}");

        talk.open.clear();
        let mut shown = ShownTurn::default();
        let mut progress = Progress::default();
        for message in before {
            assert_eq!(message["method"], "notifications/progress", "before the response: {body}");
            progress.read(&message["params"], talk);
        }
        shown.items.extend(progress.reasoning());
        if let Some(error) = last.get("error") {
            text(&error["data"], "code").clone_into(&mut shown.code);
            shown.items.extend(progress.text());
            shown.end = Some(End::Failed);
            return shown;
        }
        read_result(&last["result"], &progress, &mut shown, talk);
        shown
    }
}

impl Background for Mcp {
    fn begin(&self, acts: &[ClientAct], talk: &Talk) -> Request {
        let mut talk = talk.clone();
        self.request(acts, &mut talk);
        let mut params = talk.state["call"].clone();
        params["_meta"] = meta(true);
        posted("tools/call", &talk.agent, &params)
    }

    fn began(&self, body: &str, talk: &mut Talk) {
        let answer: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(answer["result"]["resultType"], "task", "{body}");
        talk.state = json!({ "task": text(&answer["result"], "taskId") });
    }

    fn poll(&self, talk: &Talk) -> Option<Request> {
        let task = text(&talk.state, "task");
        Some(message("tasks/get", task, json!({ "taskId": task })))
    }

    fn polled(&self, body: &str, talk: &mut Talk) -> Option<ShownTurn> {
        let answer: Value = serde_json::from_str(body).expect("JSON");
        let task = &answer["result"];
        let mut shown = ShownTurn::default();
        match text(task, "status") {
            "working" => return None,
            "input_required" => {
                ask(&task["inputRequests"], &mut shown.items, talk);
                shown.end = Some(End::Completed);
            }
            "completed" => read_result(&task["result"], &Progress::default(), &mut shown, talk),
            "failed" => {
                text(&task["error"]["data"], "code").clone_into(&mut shown.code);
                shown.end = Some(End::Failed);
            }
            "cancelled" => shown.end = Some(End::Canceled),
            other => panic!("a task with status {other:?}: {body}"),
        }
        Some(shown)
    }

    fn streamed_only(&self) -> &'static [K] {
        &[K::Reasoning]
    }
}

/// The metadata of a request. `has_tasks`: the client declares the extension for tasks.
fn meta(has_tasks: bool) -> Value {
    let extensions = if has_tasks { json!({ "io.modelcontextprotocol/tasks": {} }) } else { json!({}) };
    json!({
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientInfo": { "name": "scripted", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": { "form": {}, "url": {} }, "extensions": extensions,
        },
        "progressToken": "p",
    })
}

/// A request whose parameters are complete.
fn posted(method: &'static str, name: &str, params: &Value) -> Request {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    Request::post("/mcp".to_owned(), &body)
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", REVISION)
        .header("mcp-method", method)
        .header("mcp-name", name)
}

/// A request about a task.
fn message(method: &'static str, task: &str, mut params: Value) -> Request {
    params["_meta"] = meta(true);
    posted(method, task, &params)
}

/// A call of a tool, which the client may have to repeat.
fn called(tool: &str, arguments: Value, talk: &mut Talk) -> Request {
    let call = json!({ "name": tool, "arguments": arguments });
    talk.state = json!({ "call": call });
    let mut params = call;
    params["_meta"] = meta(false);
    posted("tools/call", tool, &params)
}

/// The last call of a conversation again, with answers to its questions by their keys.
#[must_use]
pub fn repeated_call(talk: &Talk, responses: &Value) -> Request {
    let mut params = talk.state["call"].clone();
    params["inputResponses"] = responses.clone();
    params["requestState"] = talk.state["requestState"].clone();
    params["_meta"] = meta(false);
    let tool = text(&params, "name").to_owned();
    posted("tools/call", &tool, &params)
}

fn attachment(media: Media) -> Value {
    match media {
        Media::Image(url) => json!({ "url": url, "mime_type": "image/png" }),
        Media::Audio(data) => json!({ "data": data, "mime_type": "audio/wav" }),
        Media::Video(url) => json!({ "url": url, "mime_type": "video/mp4" }),
        Media::File(url, name) => json!({ "url": url, "name": name, "mime_type": "application/pdf" }),
        Media::Data(_) => panic!("no attachment for data"),
    }
}

/// The answer to a form.
fn elicited(act: &ClientAct) -> Value {
    let content = match act {
        ClientAct::Decide(_, Decision::Reject) => return json!({ "action": "decline" }),
        ClientAct::Decide(_, decision) => json!({ "decision": decision.as_str() }),
        ClientAct::Edit(_, arguments) => json!({ "decision": "edit", "arguments": arguments }),
        ClientAct::Respond(_, words) => json!({ "decision": "respond", "text": words }),
        ClientAct::Answer(_, value) => match serde_json::from_str::<Value>(value) {
            Ok(fields) if fields.is_object() => fields,
            _ => json!({ "answer": value }),
        },
        ClientAct::LoggedIn(_) => json!({ "done": "yes" }),
        ClientAct::Output(_, output) => json!({ "output": output }),
        _ => panic!("no answer: {act:?}"),
    };
    json!({ "action": "accept", "content": content })
}

/// Notifications about a call.
#[derive(Default)]
struct Progress {
    value: f64,
    reasoning: String,
    said: String,
}

impl Progress {
    fn read(&mut self, params: &Value, talk: &mut Talk) {
        assert_eq!(params["progressToken"], "p", "{params}");
        let value = params["progress"].as_f64().unwrap_or_else(|| panic!("no progress: {params}"));
        assert!(value > self.value, "progress increases: {params}");
        self.value = value;
        let meta = &params["_meta"];
        if let Some(run) = meta["interlingua/run"].as_str() {
            talk.state["run"] = json!(run);
            text(meta, "interlingua/session").clone_into(&mut talk.last);
        }
        if let Some(replaced) = meta["interlingua/replaced"].as_str() {
            replaced.clone_into(&mut self.said);
        }
        self.said.push_str(meta["interlingua/delta"].as_str().unwrap_or_default());
        self.reasoning.push_str(meta["interlingua/reasoning"].as_str().unwrap_or_default());
        // For people: the end of the text, or the name of a call.
        assert!(!text(params, "message").is_empty(), "{params}");
    }

    fn reasoning(&self) -> Option<Item> {
        (!self.reasoning.is_empty()).then(|| Item::new(K::Reasoning, self.reasoning.clone()))
    }

    /// The text of a call that failed without a result.
    fn text(&self) -> Option<Item> {
        (!self.said.is_empty()).then(|| Item::new(K::Text, self.said.clone()))
    }
}

/// Reads a result of `tools/call`.
fn read_result(result: &Value, progress: &Progress, shown: &mut ShownTurn, talk: &mut Talk) {
    if result["resultType"] == "input_required" {
        // Its text comes with the last result, and was shown while it was said.
        shown.items.extend(progress.text());
        talk.state["requestState"] = result["requestState"].clone();
        ask(&result["inputRequests"], &mut shown.items, talk);
        shown.end = Some(End::Completed);
        return;
    }
    let meta = &result["_meta"];
    let status = text(meta, "interlingua/status");
    let is_error = result["isError"] == true;
    // An agent that refuses the first turn leaves no session.
    if !is_error || meta.get("interlingua/session").is_some() {
        text(meta, "interlingua/session").clone_into(&mut talk.last);
    }
    let is_refusal = meta["interlingua/refusal"] == true;
    // The first block of an error says what is wrong.
    for block in list(result, "content").skip(usize::from(is_error)) {
        let note = ["[session ", "[the answer was cut off]"];
        if block["text"].as_str().is_some_and(|text| note.iter().any(|note| text.starts_with(note))) {
            continue;
        }
        shown.items.push(read_block(block, is_refusal));
    }
    let usage = &meta["interlingua/usage"];
    if let (Some(input), Some(output)) = (usage["input_tokens"].as_u64(), usage["output_tokens"].as_u64()) {
        shown.items.push(Item::usage(input, output));
    }
    meta["interlingua/error"]["code"].as_str().unwrap_or_default().clone_into(&mut shown.code);
    shown.end = Some(match status {
        "completed" | "input_required" => End::Completed,
        "incomplete" => End::Incomplete,
        "failed" | "rejected" => End::Failed,
        "canceled" => End::Canceled,
        other => panic!("a result with status {other:?}: {result}"),
    });
    assert_eq!(is_error, matches!(shown.end, Some(End::Failed | End::Canceled)), "{result}");
}

fn read_block(block: &Value, is_refusal: bool) -> Item {
    let media_type = |value: &Value| value["mimeType"].as_str().unwrap_or_default().to_owned();
    let of_type = |media_type: &str| match media_type.split('/').next() {
        Some("image") => K::ImageOut,
        Some("audio") => K::AudioOut,
        Some("video") => K::VideoOut,
        _ => K::FileOut,
    };
    match text(block, "type") {
        "text" => Item::new(if is_refusal { K::Refusal } else { K::Text }, text(block, "text")),
        "image" => Item::new(K::ImageOut, text(block, "data")),
        "audio" => Item::new(K::AudioOut, text(block, "data")),
        "resource_link" => Item::new(of_type(&media_type(block)), text(block, "uri")),
        "resource" => {
            let resource = &block["resource"];
            let value = resource["blob"].as_str().or(resource["text"].as_str()).expect("contents");
            Item::new(of_type(&media_type(resource)), value)
        }
        other => panic!("a block of type {other:?}"),
    }
}

/// Reads questions: forms, and pages to open.
fn ask(requests: &Value, items: &mut Vec<Item>, talk: &mut Talk) {
    let requests = requests.as_object().unwrap_or_else(|| panic!("no questions: {requests}"));
    let page = |key: &str| requests.get(&format!("{key}.open")).map(|request| text(&request["params"], "url"));
    for (key, request) in requests {
        assert_eq!(request["method"], "elicitation/create", "{request}");
        let params = &request["params"];
        if params["mode"] == "url" {
            continue;
        }
        let form = &params["requestedSchema"];
        let (message, fields) = (text(params, "message"), form["properties"].as_object().expect("a form"));
        let call = |kind| {
            let (tool, arguments) = message.lines().last().and_then(|line| line.split_once(": ")).expect("a call");
            Item::call(kind, tool, arguments)
        };
        let mut what = "form";
        if fields.contains_key("decision") {
            items.push(call(K::Approval));
        } else if fields.contains_key("output") {
            items.push(call(K::ClientCall));
        } else if fields.contains_key("done") {
            items.push(Item::new(K::Login, page(key).unwrap_or(message)));
            what = "page";
        } else {
            items.push(Item::new(K::Question, message));
            if !fields.contains_key("answer") {
                items.push(Item::new(K::Schema, normal(&form.to_string())));
            }
        }
        talk.open.push(Open { id: key.clone(), what: what.to_owned() });
    }
}
