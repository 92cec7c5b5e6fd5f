//! An agent of the Agent API, as AgentScope Runtime writes one: every object is announced, filled and completed, and
//! the last frame repeats the whole output.
//!
//! Not here: what other frameworks behind the runtime leave out (the scripts of `interlingua_core_testkit`).

use interlingua_core::loss::ContentKind;
use interlingua_core_testkit::scenario::{AgentAct, Ask, Call, Ending, Item, Mark, Media, normal};
use serde_json::{Value, json};

use crate::{Play, ReceivedRequest, Reply, ScriptedAgent, Stage};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgentApi {
    /// Settings of the agent in the gateway.
    pub(crate) settings: &'static str,
    /// The extension of its approvals. `None`: they have none.
    pub(crate) extension: Option<fn() -> Value>,
    /// Its ids of calls and questions are the same in every session.
    pub(crate) numbers_questions: bool,
}

impl Default for AgentApi {
    fn default() -> Self {
        Self { settings: "approval_extension = true", extension: Some(every_decision), numbers_questions: false }
    }
}

fn every_decision() -> Value {
    json!({ "kind": "approval", "decisions": ["accept", "edit", "respond", "reject", "cancel"] })
}

impl ScriptedAgent for AgentApi {
    fn protocol(&self) -> &'static str {
        "agent-api"
    }

    fn path(&self) -> &'static str {
        "/process"
    }

    fn settings(&self) -> &'static str {
        self.settings
    }

    fn speaks(&self, act: &AgentAct) -> bool {
        !matches!(act, AgentAct::Cite(..) | AgentAct::State(_))
    }

    fn answer(&self, request: &ReceivedRequest, stage: &Stage) -> Reply {
        let Some(play) = self.play(request, stage) else {
            return Reply::complete(404, JSON, r#"{"detail":"Not Found"}"#);
        };
        note_received(&play, request);

        if let Ending::Refused(status) = play.turn.ending {
            return Reply::complete(status, JSON, json!({ "detail": "not now" }).to_string());
        }
        let mut answer = Answer::begin(&play, *self);
        for act in &play.turn.agent {
            answer.act(&play, act);
        }
        answer.end(&play)
    }
}

impl AgentApi {
    /// The id of a call or a question.
    fn id(self, play: &Play<'_>, name: &str) -> String {
        if self.numbers_questions { format!("call_{name}") } else { play.id(name) }
    }

    /// The turn of a request. Where questions are numbered, answers have no mark, but their session is known.
    fn play<'s>(&self, request: &ReceivedRequest, stage: &'s Stage) -> Option<Play<'s>> {
        let body = request.json();
        let input = body["input"].to_string();
        let is_answer =
            ["\"mcp_approval_response\"", "\"function_call_output\""].iter().any(|kind| input.contains(kind));
        if !self.numbers_questions || !is_answer {
            return stage.play(request);
        }
        let mark = stage.of_session(body["session_id"].as_str()?)?;
        let next = Mark { turn: mark.turn + 1, ..mark };
        stage.keep_unmarked(request, next);
        stage.at(next)
    }
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

/// Reports what is new in a request.
fn note_received(play: &Play<'_>, request: &ReceivedRequest) {
    use ContentKind as K;
    let body = request.json();
    let session = body["session_id"].as_str().unwrap_or_default();
    if play.remembers(request, session) {
        play.received([Item::new(K::History, "remembered")]);
    }
    play.note("session", session);

    let mut received = Vec::new();
    for message in body["input"].as_array().into_iter().flatten() {
        let contents = message["content"].as_array().cloned().unwrap_or_default();
        let is_new =
            contents.iter().filter_map(|content| content["text"].as_str()).any(|text| play.words(text).is_some());
        match (message["type"].as_str(), message["role"].as_str()) {
            (Some("message"), Some("system")) => {
                received.extend(
                    contents
                        .iter()
                        .filter_map(|content| content["text"].as_str())
                        .map(|text| Item::new(K::Instructions, text)),
                );
            }
            (Some("message"), Some("user")) if is_new => {
                received.extend(contents.iter().filter_map(|content| user_content(play, content)));
            }
            (Some("function_call_output" | "mcp_approval_response"), _) => {
                for data in contents.iter().map(|content| &content["data"]) {
                    let answers = answered(play, data);
                    if !answers.is_empty() && data["is_error"] == true {
                        received.push(Item::new(K::ToolFailure, "failed"));
                    }
                    let beside = contents.iter().filter(|_| !answers.is_empty());
                    let pictures = beside.filter_map(|content| content["image_url"].as_str());
                    received.extend(pictures.map(|url| Item::new(K::ImageIn, url)));
                    received.extend(answers);
                }
            }
            _ => {}
        }
    }
    let tools = body["tools"].as_array().into_iter().flatten();
    received.extend(
        tools.filter_map(|tool| tool["function"]["name"].as_str()).map(|name| Item::new(K::ToolDeclaration, name)),
    );
    received.extend(body["temperature"].as_f64().map(|value| Item::new(K::Sampling, format!("temperature {value}"))));
    play.received(received);
}

fn user_content(play: &Play<'_>, content: &Value) -> Option<Item> {
    use ContentKind as K;
    let text = |name: &str| content[name].as_str();
    Some(match content["type"].as_str()? {
        "text" => Item::new(K::Text, play.words(text("text")?)?),
        "image" => Item::new(K::ImageIn, text("image_url")?),
        "audio" => Item::new(K::AudioIn, base64_of(text("data")?)),
        "video" => Item::new(K::VideoIn, text("video_url")?),
        "file" => Item::new(K::FileIn, text("file_url").or(text("file_data"))?),
        "data" => Item::new(K::DataIn, content["data"].to_string()),
        _ => return None,
    })
}

/// The base64 text of a `data:` URL, or of itself: both forms are in use.
fn base64_of(data: &str) -> &str {
    data.strip_prefix("data:").and_then(|url| url.split_once(";base64,")).map_or(data, |(_, base64)| base64)
}

/// An output or a decision that answers a question of the previous turn.
fn answered(play: &Play<'_>, data: &Value) -> Vec<Item> {
    let id = data["call_id"].as_str().or(data["approval_request_id"].as_str()).unwrap_or_default();
    if !id.starts_with(&play.mark.to_string()) {
        return Vec::new();
    }
    if data["output"].is_string() {
        return crate::tool_output::items(&data["output"]);
    }
    decided(play, id, data).into_iter().collect()
}

fn decided(play: &Play<'_>, id: &str, data: &Value) -> Option<Item> {
    use ContentKind as K;
    let extension = &data["interrupt"];
    let asked = play.noted(id).unwrap_or_default();
    Some(match (asked.as_str(), extension["decision"].as_str()?) {
        ("login", "accept") => Item::new(K::Login, "done"),
        ("question", "respond") => {
            let payload = &extension["payload"];
            let text = extension["text"].as_str().map(str::to_owned);
            Item::new(
                K::Question,
                text.unwrap_or_else(|| payload.as_str().map_or_else(|| payload.to_string(), str::to_owned)),
            )
        }
        (_, "edit") => Item::new(K::ApprovalEdit, normal(extension["arguments"].as_str()?)),
        (_, "respond") => Item::new(K::ApprovalReason, extension["text"].as_str()?),
        (_, decision) => Item::new(K::Approval, decision),
    })
}

/// An answer that grows.
struct Answer {
    agent: AgentApi,
    reply: Reply,
    /// The messages so far, whole.
    output: Vec<Value>,
    usage: Value,
}

impl Answer {
    fn begin(play: &Play<'_>, agent: AgentApi) -> Self {
        let mut answer = Self { agent, reply: Reply::events(), output: Vec::new(), usage: Value::Null };
        for status in ["created", "in_progress"] {
            let frame = answer.response(play, status, Value::Null);
            answer.frame(&frame);
        }
        answer
    }

    fn frame(&mut self, frame: &Value) {
        self.reply = std::mem::take(&mut self.reply).frame(&frame.to_string());
    }

    fn response(&self, play: &Play<'_>, status: &str, error: Value) -> Value {
        json!({
            "sequence_number": null, "object": "response", "status": status, "error": error,
            "id": format!("response_{}", play.mark), "created_at": 1_795_168_800, "completed_at": null,
            "output": if status == "created" || status == "in_progress" { Value::Null } else { json!(self.output) },
            "usage": self.usage,
        })
    }

    fn act(&mut self, play: &Play<'_>, act: &AgentAct) {
        let agent = self.agent;
        let call =
            |call: &Call| json!({ "call_id": agent.id(play, call.name), "name": call.tool, "arguments": call.whole() });
        match act {
            AgentAct::Text(pieces) => self.streamed("message", "text", pieces),
            AgentAct::Reasoning(pieces) => self.streamed("reasoning", "text", pieces),
            AgentAct::Refusal(pieces) => self.streamed("message", "refusal", pieces),
            AgentAct::Call(one) => self.data("plugin_call", "assistant", &call(one), "completed"),
            AgentAct::ClientCall(one) => self.data("function_call", "assistant", &call(one), "completed"),
            AgentAct::Result(name, output, is_failed) => {
                let status = if *is_failed { "failed" } else { "completed" };
                self.data("plugin_call_output", "tool", &json!({ "call_id": play.id(name), "output": output }), status);
            }
            AgentAct::Show(media) => self.show(*media),
            AgentAct::Ask(ask) => self.ask(play, ask),
            AgentAct::Usage(input, output) => {
                self.usage = json!({ "input_tokens": input, "output_tokens": output, "total_tokens": input + output });
            }
            AgentAct::Unknown => self.frame(&json!({ "object": "weather", "status": "sunny" })),
            AgentAct::Wait => self.reply = std::mem::take(&mut self.reply).wait(&play.gate()),
            AgentAct::Hang => self.reply = std::mem::take(&mut self.reply).hang(),
            AgentAct::Cite(..) | AgentAct::State(_) => unreachable!("no word for it"),
        }
    }

    fn begin_message(&mut self, kind: &str, role: &str) -> String {
        let id = format!("msg_{}", self.output.len());
        self.frame(&message(&id, kind, role, "in_progress", &Value::Null));
        id
    }

    fn end_message(&mut self, id: &str, kind: &str, role: &str, status: &str, content: &Value) {
        let whole = message(id, kind, role, status, &json!([content]));
        self.frame(&whole);
        self.output.push(whole);
    }

    /// A message whose one content comes in pieces.
    fn streamed(&mut self, kind: &str, content_type: &str, pieces: &[&str]) {
        let id = self.begin_message(kind, "assistant");
        for piece in pieces {
            self.frame(&content(&id, content_type, "in_progress", true, content_type, &json!(piece)));
        }
        let whole = content(&id, content_type, "completed", false, content_type, &json!(pieces.concat()));
        self.frame(&whole);
        self.end_message(&id, kind, "assistant", "completed", &whole);
    }

    fn data(&mut self, kind: &str, role: &str, data: &Value, status: &str) {
        let id = self.begin_message(kind, role);
        let whole = content(&id, "data", "completed", false, "data", data);
        self.frame(&whole);
        self.end_message(&id, kind, role, status, &whole);
    }

    fn show(&mut self, media: Media) {
        let (kind, field) = match media {
            Media::Image(_) => ("image", "image_url"),
            Media::Audio(_) => ("audio", "data"),
            Media::Video(_) => ("video", "video_url"),
            Media::File(..) => ("file", "file_url"),
            Media::Data(_) => ("data", "data"),
        };
        let value = match media {
            Media::Data(json) => serde_json::from_str(json).expect("data is JSON"),
            other => json!(other.value()),
        };
        let id = self.begin_message("message", "assistant");
        let mut whole = content(&id, kind, "completed", false, field, &value);
        match media {
            Media::Audio(_) => whole["format"] = json!("wav"),
            Media::File(_, name) => whole["filename"] = json!(name),
            _ => {}
        }
        self.frame(&whole);
        self.end_message(&id, "message", "assistant", "completed", &whole);
    }

    fn ask(&mut self, play: &Play<'_>, ask: &Ask) {
        let data = match ask {
            Ask::Approval(call) => {
                let id = self.agent.id(play, call.name);
                let mut data =
                    json!({ "id": id, "name": call.tool, "arguments": call.whole(), "server_label": "tools" });
                if let Some(extension) = self.agent.extension {
                    data["interrupt"] = extension();
                }
                data
            }
            Ask::Question(name, words, schema) => {
                play.note(&play.id(name), "question");
                let schema: Value =
                    schema.map_or(Value::Null, |schema| serde_json::from_str(schema).expect("a schema"));
                json!({
                    "id": play.id(name), "name": "input_required", "arguments": "{}", "server_label": "tools",
                    "interrupt": { "kind": "input", "message": words, "response_schema": schema },
                })
            }
            Ask::Login(name, url) => {
                play.note(&play.id(name), "login");
                json!({
                    "id": play.id(name), "name": "auth_required", "arguments": json!({ "url": url }).to_string(),
                    "server_label": "tools",
                    "interrupt": { "kind": "auth", "message": "Log in first.", "payload": { "url": url } },
                })
            }
        };
        self.data("mcp_approval_request", "assistant", &data, "completed");
    }

    fn end(mut self, play: &Play<'_>) -> Reply {
        let last = match play.turn.ending {
            Ending::Completed => self.response(play, "completed", Value::Null),
            Ending::Incomplete(reason) => {
                self.response(play, "incomplete", json!({ "code": reason, "message": "the answer is too long" }))
            }
            Ending::Failed(words) => self.response(play, "failed", json!({ "code": "AGENT_ERROR", "message": words })),
            Ending::BrokenOff => return self.reply.close(),
            Ending::Refused(_) => unreachable!("answered at once"),
        };
        self.frame(&last);
        self.reply.done()
    }
}

fn message(id: &str, kind: &str, role: &str, status: &str, content: &Value) -> Value {
    json!({
        "sequence_number": null, "object": "message", "status": status, "error": null, "id": id, "type": kind,
        "role": role, "content": content, "code": null, "message": null, "usage": null, "metadata": null,
    })
}

fn content(id: &str, kind: &str, status: &str, is_delta: bool, field: &str, value: &Value) -> Value {
    let mut content = json!({
        "sequence_number": null, "object": "content", "status": status, "error": null, "type": kind, "index": 0,
        "delta": is_delta, "msg_id": id,
    });
    content[field] = value.clone();
    content
}
