//! An A2A agent as a2a-sdk writes one, in version 1.0 or 0.3, over JSON-RPC or HTTP+JSON: found by its card, answers
//! with a task and its artifacts, keeps its tasks, and shows one from its begin to those who subscribe to it.
//!
//! Not here: how the versions differ on the wire (`forms`).

mod forms;

use std::collections::HashMap;
use std::sync::Mutex;

use interlingua_core::loss::ContentKind;
use interlingua_core::pending::Decision;
use interlingua_core_testkit::scenario::{self, AgentAct, Ask, ClientAct, Ending, Item, Mark, Media, Turn, normal};
use serde_json::{Value, json};

use crate::{Play, ReceivedRequest, Reply, ScriptedAgent, Stage};
use forms::Call;
pub(crate) use forms::Form;

/// See the module.
#[derive(Debug)]
pub(crate) struct A2a {
    form: Form,
    approval: Approval,
    /// Tasks as they were left, by their ids.
    tasks: Mutex<HashMap<String, Value>>,
}

/// The part that asks about the call with this id.
pub(crate) type Approval = fn(&str, &scenario::Call) -> Value;

impl Default for A2a {
    fn default() -> Self {
        Self::new(Form::default())
    }
}

impl A2a {
    /// An agent that speaks this form alone.
    pub(crate) fn new(form: Form) -> Self {
        Self { form, approval: listed, tasks: Mutex::default() }
    }

    /// An agent that asks about calls with such a part.
    pub(crate) fn asking(approval: Approval) -> Self {
        Self { approval, ..Self::default() }
    }
}

/// A question that lists decisions.
fn listed(id: &str, call: &scenario::Call) -> Value {
    json!({ "data": { "interrupt": {
        "id": id, "kind": "approval", "name": call.tool, "arguments": arguments(call),
        "decisions": ["accept", "edit", "respond", "reject"],
    } } })
}

impl ScriptedAgent for A2a {
    fn protocol(&self) -> &'static str {
        "a2a"
    }

    fn path(&self) -> &'static str {
        ""
    }

    fn settings(&self) -> &'static str {
        "options = { poll_interval = \"10ms\", max_poll_interval = \"20ms\" }"
    }

    fn speaks(&self, act: &AgentAct) -> bool {
        // No words for any of these. Calls of the client exist only between gateways.
        !matches!(
            act,
            AgentAct::Refusal(_)
                | AgentAct::Cite(..)
                | AgentAct::Usage(..)
                | AgentAct::State(_)
                | AgentAct::ClientCall(_)
        )
    }

    fn plays(&self, turn: &Turn) -> bool {
        // A question that no one decides cancels its task, which then has nothing more to say.
        let is_canceled = turn.client.iter().any(|act| matches!(act, ClientAct::Decide(_, Decision::Cancel)));
        !is_canceled && !matches!(turn.ending, Ending::Incomplete(_)) && turn.agent.iter().all(|act| self.speaks(act))
    }

    fn answer(&self, request: &ReceivedRequest, stage: &Stage) -> Reply {
        if request.path == "/.well-known/agent-card.json" {
            let host = request.headers.get("host").map(String::as_str).unwrap_or_default();
            return Reply::complete(200, JSON, self.form.card(host).to_string());
        }
        if !self.form.is_rest && request.path != "/" {
            return Reply::complete(404, JSON, r#"{"detail":"Not Found"}"#);
        }
        let Some(call) = self.form.call(request) else {
            return self.form.error(&json!(1), -32601, "Method not found", "METHOD_NOT_FOUND");
        };
        match call.method {
            "SendStreamingMessage" => self.send(request, &call, stage),
            "SubscribeToTask" => self.subscribe(&call),
            "GetTask" => self.task(&call),
            _ => {
                if let Some(mark) = call.params["id"].as_str().and_then(after_task) {
                    stage.keep_unmarked(request, mark);
                }
                self.cancel(&call)
            }
        }
    }
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

impl A2a {
    fn known(&self, call: &Call) -> Option<Value> {
        self.tasks.lock().expect("no player panics").get(call.params["id"].as_str()?).cloned()
    }

    fn not_found(&self, call: &Call) -> Reply {
        self.form.error(&call.id, -32001, "Task not found", "TASK_NOT_FOUND")
    }

    fn send(&self, request: &ReceivedRequest, call: &Call, stage: &Stage) -> Reply {
        let message = &call.params["message"];
        let Some(play) = play_of(request, message, stage) else {
            return self.form.error(&call.id, -32602, "Invalid params", "INVALID_PARAMS");
        };
        note_received(&play, request, message);
        if let Ending::Refused(status) = play.turn.ending {
            return Reply::complete(status, JSON, r#"{"detail":"not now"}"#);
        }
        // An answer continues the task with the question.
        let asked = message["taskId"].as_str().filter(|id| !id.is_empty());
        let is_new = asked.is_none();
        let task = asked.map_or_else(|| format!("task_{}_{}", play.mark.play, play.mark.turn), str::to_owned);
        let mut answer = Answer::begin(&play, (self.form, self.approval), call, &task, is_new);
        for act in &play.turn.agent {
            answer.act(&play, act);
        }
        let (reply, whole) = answer.end(&play);
        let mut tasks = self.tasks.lock().expect("no player panics");
        // What broke off is nowhere.
        if play.turn.ending == Ending::BrokenOff {
            tasks.remove(&task);
        } else {
            tasks.insert(task, whole);
        }
        reply
    }

    /// The task as it is, and its last status.
    fn subscribe(&self, call: &Call) -> Reply {
        let Some(task) = self.known(call) else { return self.not_found(call) };
        let status = json!({ "taskId": task["id"], "contextId": task["contextId"], "status": task["status"] });
        let mut working = task;
        working["status"] = json!({ "state": "TASK_STATE_WORKING" });
        let reply = self.form.frame(Reply::events(), &call.id, &json!({ "task": working }));
        self.form.frame(reply, &call.id, &json!({ "statusUpdate": status })).done()
    }

    fn task(&self, call: &Call) -> Reply {
        let Some(task) = self.known(call) else { return self.not_found(call) };
        self.form.task(&call.id, &task)
    }

    fn cancel(&self, call: &Call) -> Reply {
        let mut task = self.known(call).unwrap_or_else(|| json!({ "id": call.params["id"] }));
        task["status"] = json!({ "state": "TASK_STATE_CANCELED" });
        self.form.task(&call.id, &task)
    }
}

/// The turn of a message: its parts have the mark, in words or in the id of what they answer.
fn play_of<'s>(request: &ReceivedRequest, message: &Value, stage: &'s Stage) -> Option<Play<'s>> {
    let parts = message["parts"].to_string();
    if let Some(mark) = Mark::last_in(parts.as_bytes()) {
        return stage.at(mark);
    }
    // An answer to a question without an id.
    match message["taskId"].as_str().and_then(after_task) {
        Some(mark) => {
            stage.keep_unmarked(request, mark);
            stage.at(mark)
        }
        None => stage.play(request),
    }
}

/// The turn after the one that began this task.
fn after_task(id: &str) -> Option<Mark> {
    let (play, turn) = id.strip_prefix("task_")?.split_once('_')?;
    Some(Mark { play: play.parse().ok()?, turn: turn.parse::<u32>().ok()? + 1 })
}

/// Reports what is new in a message.
fn note_received(play: &Play<'_>, request: &ReceivedRequest, message: &Value) {
    use ContentKind as K;
    let context = message["contextId"].as_str().unwrap_or_default();
    if play.remembers(request, context) {
        play.received([Item::new(K::History, "remembered")]);
    }
    play.note("session", &context_id(play));

    let mut received = Vec::new();
    for part in message["parts"].as_array().into_iter().flatten() {
        let text = part["text"].as_str();
        if part["metadata"]["role"] == "system" {
            received.extend(text.map(|text| Item::new(K::Instructions, text)));
        } else if let Some(words) = text.and_then(|text| play.words(text)) {
            received.push(Item::new(K::Text, words));
        } else if part["data"].get("interrupt_id").is_some() {
            received.extend(answered(play, &part["data"]));
        } else {
            received.extend(media(part));
        }
    }
    play.received(received);
}

fn context_id(play: &Play<'_>) -> String {
    format!("context_{}", play.mark.play)
}

/// A part that is no text.
fn media(part: &Value) -> Option<Item> {
    use ContentKind as K;
    if let Some(data) = part.get("data") {
        return Some(Item::new(K::DataIn, normal(&data.to_string())));
    }
    let value = part["url"].as_str().or(part["raw"].as_str())?;
    let kind = match part["mediaType"].as_str().unwrap_or_default().split('/').next() {
        Some("image") => K::ImageIn,
        Some("audio") => K::AudioIn,
        Some("video") => K::VideoIn,
        _ => K::FileIn,
    };
    Some(Item::new(kind, value))
}

/// A decision, or an answer to a question.
fn answered(play: &Play<'_>, data: &Value) -> Option<Item> {
    use ContentKind as K;
    let id = data["interrupt_id"].as_str().filter(|id| id.starts_with(&play.mark.to_string()))?;
    let asked = play.noted(id).unwrap_or_default();
    Some(match (asked.as_str(), data["decision"].as_str()?) {
        ("login", "accept") => Item::new(K::Login, "done"),
        ("question", _) => {
            let payload = data.get("payload").map(|payload| normal(&payload.to_string()));
            Item::new(K::Question, payload.or_else(|| Some(data["text"].as_str()?.to_owned()))?)
        }
        (_, "edit") => Item::new(K::ApprovalEdit, normal(&data["arguments"].to_string())),
        (_, "respond") => Item::new(K::ApprovalReason, data["text"].as_str()?),
        (_, decision) => Item::new(K::Approval, decision),
    })
}

/// A task that grows.
struct Answer<'c> {
    reply: Reply,
    form: Form,
    approval: Approval,
    /// The id of the call.
    id: &'c Value,
    /// The task as it is.
    task: Value,
    /// The parts of the question at its end.
    asks: Vec<Value>,
    /// The state at the end.
    state: &'static str,
    messages: usize,
}

impl<'c> Answer<'c> {
    fn begin(play: &Play<'_>, (form, approval): (Form, Approval), call: &'c Call, task: &str, is_new: bool) -> Self {
        let task = json!({
            "id": task, "contextId": context_id(play), "status": { "state": "TASK_STATE_SUBMITTED" },
            "history": [call.params["message"]], "artifacts": [],
        });
        let state = "TASK_STATE_COMPLETED";
        let mut answer =
            Self { reply: Reply::events(), form, approval, id: &call.id, task, asks: Vec::new(), state, messages: 0 };
        if is_new {
            let mut first = answer.task.clone();
            first.as_object_mut().expect("an object").remove("artifacts");
            answer.frame(&json!({ "task": first }));
        }
        answer.status("TASK_STATE_WORKING", &[]);
        answer
    }

    fn frame(&mut self, result: &Value) {
        self.reply = self.form.frame(std::mem::take(&mut self.reply), self.id, result);
    }

    fn message(&mut self, parts: &[Value]) -> Value {
        self.messages += 1;
        let id = format!("{}-{}", self.task["id"].as_str().unwrap_or_default(), self.messages);
        json!({
            "messageId": id, "contextId": self.task["contextId"], "taskId": self.task["id"], "role": "ROLE_AGENT",
            "parts": parts,
        })
    }

    fn status(&mut self, state: &str, parts: &[Value]) {
        let mut status = json!({ "state": state });
        if !parts.is_empty() {
            status["message"] = self.message(parts);
            if state == "TASK_STATE_WORKING" {
                self.task["history"].as_array_mut().expect("a list").push(status["message"].clone());
            }
        }
        self.task["status"] = status.clone();
        let update = json!({ "taskId": self.task["id"], "contextId": self.task["contextId"], "status": status });
        self.frame(&json!({ "statusUpdate": update }));
    }

    fn artifact(&mut self, pieces: &[Value]) {
        let id = format!("artifact-{}", self.task["artifacts"].as_array().map_or(0, Vec::len));
        for (number, piece) in pieces.iter().enumerate() {
            let mut update = json!({
                "taskId": self.task["id"], "contextId": self.task["contextId"],
                "artifact": { "artifactId": id, "parts": [piece] },
            });
            // Fields that are false are left out.
            if number > 0 {
                update["append"] = json!(true);
            }
            if number + 1 == pieces.len() {
                update["lastChunk"] = json!(true);
            }
            self.frame(&json!({ "artifactUpdate": update }));
        }
        let whole = json!({ "artifactId": id, "parts": pieces });
        self.task["artifacts"].as_array_mut().expect("a list").push(whole);
    }

    fn act(&mut self, play: &Play<'_>, act: &AgentAct) {
        match act {
            AgentAct::Text(pieces) => {
                let pieces: Vec<Value> = pieces.iter().map(|piece| json!({ "text": piece })).collect();
                self.artifact(&pieces);
            }
            AgentAct::Reasoning(pieces) => {
                let thought = json!({ "text": pieces.concat(), "metadata": { "adk_thought": true } });
                self.status("TASK_STATE_WORKING", &[thought]);
            }
            AgentAct::Call(call) => {
                let call = json!({ "id": play.id(call.name), "name": call.tool, "args": arguments(call) });
                let metadata = json!({ "adk_type": "function_call" });
                self.status("TASK_STATE_WORKING", &[json!({ "data": call, "metadata": metadata })]);
            }
            AgentAct::Result(name, output, _) => {
                let output = json!({ "id": play.id(name), "response": { "output": output } });
                let metadata = json!({ "adk_type": "function_response" });
                self.status("TASK_STATE_WORKING", &[json!({ "data": output, "metadata": metadata })]);
            }
            AgentAct::Show(media) => self.artifact(&[shown(*media)]),
            AgentAct::Ask(ask) => self.ask(play, ask),
            AgentAct::Unknown => self.frame(&json!({ "weatherUpdate": { "sky": "blue" } })),
            AgentAct::Wait => self.reply = std::mem::take(&mut self.reply).wait(&play.gate()),
            AgentAct::Hang => self.reply = std::mem::take(&mut self.reply).hang(),
            AgentAct::Refusal(_)
            | AgentAct::Cite(..)
            | AgentAct::Usage(..)
            | AgentAct::State(_)
            | AgentAct::ClientCall(_) => unreachable!("no word for it"),
        }
    }

    fn ask(&mut self, play: &Play<'_>, ask: &Ask) {
        self.state = "TASK_STATE_INPUT_REQUIRED";
        let item = match ask {
            Ask::Approval(call) => {
                self.asks.push((self.approval)(&play.id(call.name), call));
                return;
            }
            Ask::Question(name, words, schema) => {
                play.note(&play.id(name), "question");
                let mut item = json!({ "id": play.id(name), "kind": "input", "message": words });
                if let Some(schema) = schema {
                    item["response_schema"] = serde_json::from_str(schema).expect("a schema");
                }
                item
            }
            Ask::Login(name, url) => {
                self.state = "TASK_STATE_AUTH_REQUIRED";
                play.note(&play.id(name), "login");
                json!({ "id": play.id(name), "kind": "auth", "message": "Log in first.", "payload": { "url": url } })
            }
        };
        self.asks.push(json!({ "data": { "interrupt": item } }));
    }

    /// The rest of the answer, and the task as it is then.
    fn end(mut self, play: &Play<'_>) -> (Reply, Value) {
        let asks = std::mem::take(&mut self.asks);
        match play.turn.ending {
            Ending::Failed(words) => self.status("TASK_STATE_FAILED", &[json!({ "text": words })]),
            Ending::BrokenOff => return (self.reply.close(), self.task),
            _ => self.status(self.state, &asks),
        }
        (self.reply.done(), self.task)
    }
}

fn arguments(call: &scenario::Call) -> Value {
    serde_json::from_str(&call.whole()).expect("arguments are JSON")
}

/// A part that is no text.
fn shown(media: Media) -> Value {
    match media {
        Media::Image(url) => json!({ "url": url, "mediaType": "image/png" }),
        Media::Audio(base64) => json!({ "raw": base64, "mediaType": "audio/wav" }),
        Media::Video(url) => json!({ "url": url, "mediaType": "video/mp4" }),
        Media::File(url, name) => json!({ "url": url, "mediaType": "application/pdf", "filename": name }),
        Media::Data(data) => {
            let data: Value = serde_json::from_str(data).expect("data is JSON");
            json!({ "data": data, "mediaType": "application/json" })
        }
    }
}
