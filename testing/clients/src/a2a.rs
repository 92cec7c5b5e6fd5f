//! A client of A2A 1.0 over JSON-RPC that streams: it puts artifacts together and reads the messages of statuses.

use std::collections::BTreeSet;

use interlingua_core::loss::ContentKind as K;
use interlingua_core_testkit::scenario::{ClientAct, Item, Media};
use serde_json::{Value, json};

use crate::frames::{Frames, list, text};
use crate::{Background, End, Open, Request, ScriptedClient, ShownTurn, Talk};

/// See the module.
#[derive(Debug)]
pub(crate) struct A2a;

impl ScriptedClient for A2a {
    fn protocol(&self) -> &'static str {
        "a2a"
    }

    fn route(&self) -> &'static str {
        "/a2a/{agent}"
    }

    fn can(&self, act: &ClientAct) -> bool {
        // A message has parts, and nothing for the model or about tools.
        !matches!(act, ClientAct::Declare(_) | ClientAct::Instruct(_) | ClientAct::Temperature | ClientAct::Picture(..))
    }

    fn leaves_at(&self) -> Option<&'static str> {
        // Such a stream stays open: the agent may continue by itself after the login.
        Some("TASK_STATE_AUTH_REQUIRED")
    }

    fn leaves_runs_behind(&self) -> bool {
        true
    }

    fn cancel(&self, run: &str, talk: &Talk) -> Option<Request> {
        Some(call(talk, "CancelTask", &json!({ "id": run })))
    }

    fn background(&self) -> Option<&dyn Background> {
        Some(self)
    }

    fn request(&self, acts: &[ClientAct], talk: &mut Talk) -> Request {
        let mut parts = Vec::new();
        for act in acts {
            match act {
                ClientAct::Say(_) => parts.push(json!({ "text": talk.words(acts) })),
                ClientAct::Attach(media) => parts.push(part(*media)),
                ClientAct::Remember => {}
                answer => parts.push(answered(answer, talk)),
            }
        }
        let mut message = json!({
            "messageId": format!("message-{}", talk.mark), "role": "ROLE_USER", "contextId": talk.session, "parts": parts,
        });
        if !talk.open.is_empty() {
            message["taskId"] = json!(talk.last);
        }
        call(talk, "SendStreamingMessage", &json!({ "message": message }))
    }

    fn read(&self, status: u16, body: &str, talk: &mut Talk) -> ShownTurn {
        if let Ok(answer) = serde_json::from_str::<Value>(body) {
            assert!(answer["error"]["code"].is_i64(), "an answer that is no stream is an error: {body}");
            let code = list(&answer["error"], "data").find_map(|detail| detail["reason"].as_str()).unwrap_or_default();
            let status = if status == 200 { 500 } else { status };
            return ShownTurn { end: Some(End::Refused(status)), code: code.to_owned(), ..ShownTurn::default() };
        }
        assert_eq!(status, 200, "a stream has status 200: {body}");
        let frames = Frames::split(body).json();
        assert!(frames.iter().all(|frame| frame["jsonrpc"] == "2.0" && frame["id"] == 1), "responses to the request");
        let first = &frames.first().expect("a stream has items")["result"];
        assert!(first["task"].is_object(), "the first item is the task: {first}");

        let mut reader = Reader::default();
        for frame in &frames {
            reader.item(&frame["result"]);
        }
        reader.end(talk)
    }
}

impl Background for A2a {
    fn begin(&self, acts: &[ClientAct], talk: &Talk) -> Request {
        let request: Value = serde_json::from_str(&self.request(acts, &mut talk.clone()).body).expect("JSON");
        let mut params = request["params"].clone();
        params["configuration"] = json!({ "returnImmediately": true });
        call(talk, "SendMessage", &params)
    }

    fn began(&self, body: &str, talk: &mut Talk) {
        let answer: Value = serde_json::from_str(body).expect("JSON");
        text(&answer["result"]["task"], "id").clone_into(&mut talk.last);
    }

    fn poll(&self, talk: &Talk) -> Option<Request> {
        Some(call(talk, "GetTask", &json!({ "id": talk.last })))
    }

    fn polled(&self, body: &str, talk: &mut Talk) -> Option<ShownTurn> {
        let answer: Value = serde_json::from_str(body).expect("JSON");
        let mut reader = Reader::default();
        reader.item(&json!({ "task": answer["result"] }));
        reader.end.is_some().then(|| reader.end(talk))
    }

    fn streamed_only(&self) -> &'static [K] {
        // Messages of a working status, which a task does not keep.
        &[K::Reasoning, K::AgentCall, K::AgentOutput]
    }

    fn follow(&self, _: &str, talk: &Talk) -> Option<Request> {
        Some(call(talk, "SubscribeToTask", &json!({ "id": talk.last })))
    }

    fn follows_ended(&self) -> bool {
        false
    }

    fn join(&self, _: &str, after: &str) -> String {
        // It begins with the task as it stands.
        after.to_owned()
    }
}

/// A call of JSON-RPC.
fn call(talk: &Talk, method: &str, params: &Value) -> Request {
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    Request::post(format!("/a2a/{}", talk.agent), &call).header("a2a-version", "1.0")
}

fn part(media: Media) -> Value {
    match media {
        Media::Image(url) => json!({ "url": url, "mediaType": "image/png" }),
        Media::Audio(data) => json!({ "raw": data, "mediaType": "audio/wav" }),
        Media::Video(url) => json!({ "url": url, "mediaType": "video/mp4" }),
        Media::File(url, name) => json!({ "url": url, "mediaType": "application/pdf", "filename": name }),
        Media::Data(data) => json!({ "data": serde_json::from_str::<Value>(data).expect("JSON") }),
    }
}

/// The answer to an open item as a part.
fn answered(act: &ClientAct, talk: &Talk) -> Value {
    let id = &talk.open(act.answers().expect("an answer")).id;
    let mut data = match act {
        ClientAct::Fail(_, output) => {
            let output = json!({ "call_id": id, "output": output, "is_error": true });
            return json!({ "data": { "function_call_output": output } });
        }
        ClientAct::Output(_, output) => {
            return json!({ "data": { "function_call_output": { "call_id": id, "output": output } } });
        }
        ClientAct::Decide(_, decision) => json!({ "decision": decision.as_str() }),
        ClientAct::Edit(_, arguments) => {
            json!({ "decision": "edit", "args": serde_json::from_str::<Value>(arguments).expect("JSON") })
        }
        ClientAct::Respond(_, words) => json!({ "decision": "respond", "text": words }),
        ClientAct::Answer(_, value) => serde_json::from_str::<Value>(value)
            .ok()
            .filter(Value::is_object)
            .unwrap_or_else(|| json!({ "decision": "respond", "text": value })),
        ClientAct::LoggedIn(_) => json!({ "decision": "accept" }),
        _ => panic!("no answer: {act:?}"),
    };
    data["interrupt_id"] = json!(id);
    json!({ "data": data })
}

#[derive(Default)]
struct Reader {
    task: String,
    /// Artifacts in the order in which they began: their id and parts.
    artifacts: Vec<(String, Vec<Value>)>,
    statuses: Vec<Item>,
    open: Vec<Open>,
    usage: Option<Item>,
    end: Option<End>,
    reason: Option<Item>,
    code: String,
    /// Calls by their id, so that one that is shown again is not counted twice.
    calls: BTreeSet<String>,
}

impl Reader {
    fn item(&mut self, item: &Value) {
        assert!(self.end.is_none(), "nothing follows the end: {item}");
        if let Some(task) = item.get("task") {
            text(task, "id").clone_into(&mut self.task);
            for artifact in list(task, "artifacts") {
                self.artifacts
                    .push((text(artifact, "artifactId").to_owned(), list(artifact, "parts").cloned().collect()));
            }
            self.status(&task["status"], &task["metadata"]);
        } else if let Some(update) = item.get("artifactUpdate") {
            self.artifact(update);
        } else if let Some(update) = item.get("statusUpdate") {
            assert_eq!(text(update, "taskId"), self.task, "a status of this task");
            self.status(&update["status"], &update["metadata"]);
        } else {
            panic!("an item of another kind: {item}");
        }
    }

    fn artifact(&mut self, update: &Value) {
        let (id, parts) = (text(&update["artifact"], "artifactId"), list(&update["artifact"], "parts").cloned());
        let parts: Vec<Value> = parts.collect();
        assert!(!parts.is_empty(), "an artifact has parts: {update}");
        let known = self.artifacts.iter_mut().find(|(known, _)| known == id);
        match known {
            Some((_, known)) if update["append"] == true => known.extend(parts),
            Some((_, known)) => *known = parts,
            None => {
                assert_ne!(update["append"], true, "nothing to append to: {update}");
                self.artifacts.push((id.to_owned(), parts));
            }
        }
    }

    fn status(&mut self, status: &Value, metadata: &Value) {
        let own = &metadata["agent_api"];
        let tokens = |name: &str| own["usage"][name].as_u64();
        if let (Some(input), Some(output)) = (tokens("input_tokens"), tokens("output_tokens")) {
            self.usage = Some(Item::usage(input, output));
        }
        let parts: Vec<&Value> = list(&status["message"], "parts").collect();
        self.end = match text(status, "state").trim_start_matches("TASK_STATE_") {
            "SUBMITTED" | "WORKING" => {
                parts.iter().for_each(|part| self.working(part));
                None
            }
            "COMPLETED" => Some(End::Completed),
            "CANCELED" => Some(End::Canceled),
            "FAILED" | "REJECTED" => {
                let error = &status["message"]["metadata"]["agent_api"]["error"];
                error["code"].as_str().unwrap_or_default().clone_into(&mut self.code);
                Some(End::Failed)
            }
            "INPUT_REQUIRED" | "AUTH_REQUIRED" => {
                parts.iter().for_each(|part| self.asked(part));
                let incomplete = &own["incomplete"];
                let reason = incomplete.as_str().or(incomplete["code"].as_str()).or(incomplete["reason"].as_str());
                self.reason = reason.map(|reason| Item::new(K::EndReason, reason));
                Some(if incomplete.is_null() { End::Completed } else { End::Incomplete })
            }
            other => panic!("a task in state {other:?}"),
        };
    }

    /// A part of a message while the agent works.
    fn working(&mut self, part: &Value) {
        let (metadata, data) = (&part["metadata"], &part["data"]);
        match metadata["type"].as_str() {
            Some("function_call") => {
                let is_new = self.calls.insert(text(data, "id").to_owned());
                let call = is_new.then(|| Item::call(K::AgentCall, text(data, "name"), &data["args"].to_string()));
                self.statuses.extend(call);
            }
            Some("function_response") => {
                let output = &data["response"]["output"];
                self.statuses
                    .push(Item::new(K::AgentOutput, output.as_str().map_or_else(|| output.to_string(), str::to_owned)));
            }
            _ if metadata["thought"] == true => self.statuses.push(Item::new(K::Reasoning, text(part, "text"))),
            _ => {}
        }
    }

    /// A part of a message of a task that waits.
    fn asked(&mut self, part: &Value) {
        let (call, asked) = (&part["data"]["function_call"], &part["data"]["interrupt"]);
        if call.is_object() {
            self.statuses.push(Item::call(K::ClientCall, text(call, "name"), &arguments(&call["arguments"])));
            self.open.push(Open { id: text(call, "call_id").to_owned(), what: "call".to_owned() });
        } else if asked.is_object() {
            match text(asked, "kind") {
                "approval" => {
                    self.statuses.push(Item::call(K::Approval, text(asked, "name"), &arguments(&asked["arguments"])));
                }
                "input" => {
                    self.statuses.push(Item::new(K::Question, text(asked, "message")));
                    let schema = Some(&asked["response_schema"]).filter(|schema| schema.is_object());
                    self.statuses.extend(schema.map(|schema| Item::new(K::Schema, schema.to_string())));
                }
                "auth" => self.statuses.push(Item::new(K::Login, asked["payload"]["url"].as_str().unwrap_or_default())),
                other => panic!("a question of kind {other:?}"),
            }
            self.open.push(Open { id: text(asked, "id").to_owned(), what: "interrupt".to_owned() });
        }
    }

    fn end(self, talk: &mut Talk) -> ShownTurn {
        let mut items = self.statuses;
        for (_, parts) in &self.artifacts {
            read_artifact(parts, &mut items);
        }
        items.extend(self.usage);
        items.extend(self.reason);
        talk.open = self.open;
        talk.last = self.task;
        ShownTurn { items, end: Some(self.end.expect("a stream closes after the end")), code: self.code }
    }
}

/// Arguments as JSON text, whether they are text or JSON.
fn arguments(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn read_artifact(parts: &[Value], items: &mut Vec<Item>) {
    let (mut words, mut refused) = (String::new(), String::new());
    let mut others = Vec::new();
    for part in parts {
        if let Some(text) = part["text"].as_str() {
            let to = if part["metadata"]["refusal"] == true { &mut refused } else { &mut words };
            to.push_str(text);
        } else if let Some(data) = part.get("data") {
            others.push(Item::new(K::DataOut, data.to_string()));
        } else {
            let value =
                part["url"].as_str().or(part["raw"].as_str()).unwrap_or_else(|| panic!("an empty part: {part}"));
            let kind = match part["mediaType"].as_str().unwrap_or_default().split('/').next() {
                Some("image") => K::ImageOut,
                Some("audio") => K::AudioOut,
                Some("video") => K::VideoOut,
                _ => K::FileOut,
            };
            others.push(Item::new(kind, value));
        }
    }
    let texts = [(K::Text, words), (K::Refusal, refused)];
    items.extend(texts.into_iter().filter(|(_, text)| !text.is_empty()).map(|(kind, text)| Item::new(kind, text)));
    items.extend(others);
}
