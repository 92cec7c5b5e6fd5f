//! A client of the Agent API: it reads the messages of the stream, in the order in which they complete, and answers
//! with messages of its own.

use interlingua_core::loss::ContentKind as K;
use interlingua_core::pending::Decision;
use interlingua_core_testkit::scenario::{ClientAct, Item, Media, normal};
use serde_json::{Value, json};

use crate::frames::{Frames, list, text};
use crate::{Background, End, Open, Request, ScriptedClient, ShownTurn, Talk};

/// See the module.
#[derive(Debug)]
pub(crate) struct AgentApi;

impl ScriptedClient for AgentApi {
    fn protocol(&self) -> &'static str {
        "agent-api"
    }

    fn route(&self) -> &'static str {
        "/agents/{agent}"
    }

    fn can(&self, _: &ClientAct) -> bool {
        true
    }

    fn cancel(&self, run: &str, talk: &Talk) -> Option<Request> {
        Some(Request::post(format!("/agents/{}/runs/{run}/cancel", talk.agent), &json!({})))
    }

    fn request(&self, acts: &[ClientAct], talk: &mut Talk) -> Request {
        let mut body = json!({ "session_id": talk.session });
        let (mut input, mut content) = (Vec::new(), Vec::new());
        for act in acts {
            match act {
                ClientAct::Say(_) => content.push(json!({ "type": "text", "text": talk.words(acts) })),
                ClientAct::Attach(media) => content.push(attachment(*media)),
                ClientAct::Declare(tool) => {
                    let parameters: Value = serde_json::from_str(tool.parameters).expect("a schema");
                    let function =
                        json!({ "name": tool.name, "description": tool.description, "parameters": parameters });
                    body["tools"] = json!([{ "type": "function", "function": function }]);
                }
                ClientAct::Instruct(words) => input.push(
                    json!({ "type": "message", "role": "system", "content": [{ "type": "text", "text": words }] }),
                ),
                ClientAct::Temperature => body["temperature"] = json!(0.5),
                ClientAct::Remember => {}
                answer => input.push(answered(answer, talk)),
            }
        }
        if !content.is_empty() {
            input.push(json!({ "type": "message", "role": "user", "content": content }));
        }
        body["input"] = json!(input);
        Request::post(format!("/agents/{}/process", talk.agent), &body)
    }

    fn read(&self, status: u16, body: &str, talk: &mut Talk) -> ShownTurn {
        if status != 200 {
            let error: Value = serde_json::from_str(body).expect("an error is JSON");
            assert!(error.get("detail").is_some(), "an error has a detail: {body}");
            return ShownTurn {
                end: Some(End::Refused(status)),
                code: text(&error, "code").to_owned(),
                ..ShownTurn::default()
            };
        }
        let frames = Frames::split(body).json();
        let (last, before) = frames.split_last().expect("a stream has frames");
        for (number, frame) in frames.iter().enumerate() {
            assert_eq!(frame["sequence_number"], number, "frames are numbered: {body}");
        }
        assert_eq!(
            (text(last, "object"), &last["status"] == "in_progress"),
            ("response", false),
            "the last frame ends: {last}"
        );
        let whole = before.iter().filter(|frame| frame["object"] == "message" && frame["status"] != "in_progress");
        let whole: Vec<&Value> = whole.filter(|message| message["status"] != "created").collect();
        check_deltas(before, &whole);
        assert_eq!(list(last, "output").count(), whole.len(), "the end repeats every message: {last}");

        read_response(last, &whole, talk)
    }

    fn background(&self) -> Option<&dyn Background> {
        Some(self)
    }
}

impl Background for AgentApi {
    fn begin(&self, acts: &[ClientAct], talk: &Talk) -> Request {
        let request = self.request(acts, &mut talk.clone());
        Request { path: format!("{}/task", request.path), ..request }
    }

    fn began(&self, body: &str, talk: &mut Talk) {
        let answer: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(answer["status"], "submitted", "{body}");
        text(&answer, "task_id").clone_into(&mut talk.last);
    }

    fn poll(&self, talk: &Talk) -> Option<Request> {
        Some(Request::get(format!("/agents/{}/process/task/{}", talk.agent, talk.last)))
    }

    fn polled(&self, body: &str, talk: &mut Talk) -> Option<ShownTurn> {
        let answer: Value = serde_json::from_str(body).expect("JSON");
        if matches!(text(&answer, "status"), "pending" | "running") {
            return None;
        }
        assert_eq!(answer["status"], "finished", "{body}");
        let response = &answer["result"];
        let task = talk.last.clone();
        let shown = read_response(response, &list(response, "output").collect::<Vec<_>>(), talk);
        talk.last = task;
        Some(shown)
    }

    fn follow(&self, read: &str, talk: &Talk) -> Option<Request> {
        let events = Request::get(format!("/agents/{}/runs/{}/events", talk.agent, talk.last));
        let last = read.lines().rev().find_map(|line| line.strip_prefix("id: "));
        Some(match last {
            Some(id) => events.header("last-event-id", id),
            None => events,
        })
    }
}

/// A response that has ended, with its messages.
fn read_response(response: &Value, messages: &[&Value], talk: &mut Talk) -> ShownTurn {
    let mut shown = ShownTurn { end: Some(end(text(response, "status"))), ..ShownTurn::default() };
    talk.open.clear();
    for message in messages {
        read_message(message, &mut shown.items, &mut talk.open);
    }
    if let Some(tokens) = response["usage"]["input_tokens"].as_u64() {
        shown.items.push(Item::usage(tokens, response["usage"]["output_tokens"].as_u64().expect("both counts")));
    }
    if response["status"] == "incomplete" {
        shown.items.extend(response["error"]["code"].as_str().map(|code| Item::new(K::EndReason, code)));
    }
    response["error"]["code"].as_str().unwrap_or_default().clone_into(&mut shown.code);
    text(response, "id").clone_into(&mut talk.last);
    shown
}

fn end(status: &str) -> End {
    match status {
        "completed" => End::Completed,
        "incomplete" => End::Incomplete,
        "failed" | "rejected" => End::Failed,
        "canceled" => End::Canceled,
        other => panic!("a response ends as {other:?}"),
    }
}

/// The fragments of each text are the text.
fn check_deltas(frames: &[Value], messages: &[&Value]) {
    for message in messages {
        for content in list(message, "content").filter(|content| content["type"] == "text") {
            let of_content = frames.iter().filter(|frame| {
                frame["object"] == "content" && frame["msg_id"] == message["id"] && frame["index"] == content["index"]
            });
            let deltas: String =
                of_content.filter(|frame| frame["delta"] == true).filter_map(|frame| frame["text"].as_str()).collect();
            assert_eq!(deltas, text(content, "text"), "fragments make the text");
        }
    }
}

fn read_message(message: &Value, items: &mut Vec<Item>, open: &mut Vec<Open>) {
    let notes = list(message, "content").flat_map(|content| list(content, "annotations"));
    for note in notes.chain(list(&message["metadata"], "annotations")) {
        items.push(Item::new(K::Annotation, citation(note)));
    }
    for content in list(message, "content") {
        let data = &content["data"];
        match text(message, "type") {
            "message" => items.extend(read_content(content)),
            "reasoning" => items.push(Item::new(K::Reasoning, text(content, "text"))),
            "plugin_call" | "mcp_call" | "component_call" => {
                items.push(Item::call(K::AgentCall, text(data, "name"), text(data, "arguments")));
            }
            "plugin_call_output" | "mcp_call_output" | "component_call_output" => {
                items.push(Item::new(K::AgentOutput, text(data, "output")));
            }
            "function_call" => {
                items.push(Item::call(K::ClientCall, text(data, "name"), text(data, "arguments")));
                open.push(Open { id: text(data, "call_id").to_owned(), what: "call".to_owned() });
            }
            "function_call_output" => open.retain(|open| open.id != text(data, "call_id")),
            "mcp_approval_request" => ask(data, items, open),
            "protocol_event" => {
                // The event as its agent sent it. What an agent shows by one is its state.
                assert!(!text(data, "protocol").is_empty() && data["event"].is_object(), "an event: {message}");
                let state = data["event"].get("snapshot");
                items.extend(state.map(|state| Item::new(K::ProtocolEvent, state.to_string())));
            }
            "error" | "mcp_approval_response" => {}
            other => panic!("a message of type {other:?}: {message}"),
        }
    }
}

fn read_content(content: &Value) -> Option<Item> {
    Some(match text(content, "type") {
        "text" if text(content, "text").is_empty() => return None,
        "text" => Item::new(K::Text, text(content, "text")),
        "refusal" => Item::new(K::Refusal, text(content, "refusal")),
        "image" => Item::new(K::ImageOut, text(content, "image_url")),
        "audio" => Item::new(K::AudioOut, base64_of(text(content, "data"))),
        "video" => Item::new(K::VideoOut, text(content, "video_url")),
        "file" => Item::new(K::FileOut, content["file_url"].as_str().unwrap_or_else(|| text(content, "file_data"))),
        "data" => Item::new(K::DataOut, content["data"].to_string()),
        other => panic!("a content of type {other:?}"),
    })
}

/// The base64 text of a `data:` URL, or of itself: both forms are in use.
fn base64_of(data: &str) -> &str {
    data.strip_prefix("data:").and_then(|url| url.split_once(";base64,")).map_or(data, |(_, base64)| base64)
}

/// The URL of a citation, in either form of OpenAI's.
fn citation(note: &Value) -> &str {
    note["url_citation"]["url"].as_str().unwrap_or_else(|| text(note, "url"))
}

/// A request for an approval, an answer or a login.
fn ask(data: &Value, items: &mut Vec<Item>, open: &mut Vec<Open>) {
    let extension = &data["interrupt"];
    let kind = extension["kind"].as_str().unwrap_or("approval");
    match kind {
        "approval" => items.push(Item::call(K::Approval, text(data, "name"), text(data, "arguments"))),
        "input" => {
            items.extend(extension["message"].as_str().map(|words| Item::new(K::Question, words)));
            let schema = Some(&extension["response_schema"]).filter(|schema| schema.is_object());
            items.extend(schema.map(|schema| Item::new(K::Schema, schema.to_string())));
        }
        "auth" => items.push(Item::new(K::Login, extension["payload"]["url"].as_str().unwrap_or_default())),
        other => panic!("a question of kind {other:?}"),
    }
    open.push(Open { id: text(data, "id").to_owned(), what: kind.to_owned() });
}

fn attachment(media: Media) -> Value {
    match media {
        Media::Image(url) => json!({ "type": "image", "image_url": url }),
        Media::Audio(data) => json!({ "type": "audio", "data": data, "format": "wav" }),
        Media::Video(url) => json!({ "type": "video", "video_url": url }),
        Media::File(url, name) => json!({ "type": "file", "file_url": url, "filename": name }),
        Media::Data(data) => json!({ "type": "data", "data": serde_json::from_str::<Value>(data).expect("JSON") }),
    }
}

/// The answer to an open item as a message.
fn answered(act: &ClientAct, talk: &Talk) -> Value {
    let id = &talk.open(act.answers().expect("an answer")).id;
    let (approve, interrupt) = match act {
        ClientAct::Picture(_, output, url) => {
            let data = json!({ "type": "data", "data": { "call_id": id, "output": output } });
            let content = json!([data, { "type": "image", "image_url": url }]);
            return json!({ "type": "function_call_output", "role": "tool", "content": content });
        }
        ClientAct::Output(_, output) | ClientAct::Fail(_, output) => {
            let mut data = json!({ "call_id": id, "output": output });
            if matches!(act, ClientAct::Fail(..)) {
                data["is_error"] = json!(true);
            }
            return json!({ "type": "function_call_output", "role": "tool", "content": [{ "type": "data", "data": data }] });
        }
        ClientAct::Decide(_, decision) => (*decision == Decision::Accept, json!({ "decision": decision.as_str() })),
        ClientAct::Edit(_, arguments) => (true, json!({ "decision": "edit", "arguments": normal(arguments) })),
        ClientAct::Respond(_, words) => (false, json!({ "decision": "respond", "text": words })),
        ClientAct::Answer(_, value) => match serde_json::from_str::<Value>(value) {
            Ok(payload) => (true, json!({ "decision": "respond", "payload": payload })),
            Err(_) => (true, json!({ "decision": "respond", "text": value })),
        },
        ClientAct::LoggedIn(_) => (true, json!({ "decision": "accept" })),
        _ => panic!("no answer: {act:?}"),
    };
    let data = json!({ "approval_request_id": id, "id": id, "approve": approve, "interrupt": interrupt });
    json!({ "type": "mcp_approval_response", "role": "user", "content": [{ "type": "data", "data": data }] })
}
