//! An agent in the service of AgentScope 2.0, as agentscope 2.0.10 runs one: sessions, requests that only start
//! replies, a stream that never ends, and the messages of a session for those who come late.
//!
//! Not here: agents and credentials, which an operator makes, and what the service does of its own accord.

use std::collections::HashMap;
use std::sync::Mutex;

use interlingua_core::loss::ContentKind;
use interlingua_core_testkit::scenario::{AgentAct, Ask, Call, Ending, Item, Mark, Media, Turn, normal};
use serde_json::{Value, json};

use crate::{Play, ReceivedRequest, Reply, ScriptedAgent, Stage};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Agentscope {
    sessions: Mutex<HashMap<String, Session>>,
}

#[derive(Debug, Default)]
struct Session {
    id: String,
    mark: Option<Mark>,
    /// The message or the answer that the reply follows, and the id of the latter.
    asked: String,
    answers: Vec<Value>,
    reply: String,
    replies: usize,
    events: usize,
    /// The reply's blocks, and how it ended.
    content: Vec<Value>,
    end: Option<Value>,
    waits: bool,
    is_lost: bool,
    /// Its stream was read: the service keeps the last event only.
    last: Option<String>,
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

impl ScriptedAgent for Agentscope {
    fn protocol(&self) -> &'static str {
        "agentscope"
    }

    fn path(&self) -> &'static str {
        ""
    }

    fn settings(&self) -> &'static str {
        "options = { agent_id = \"scripted\", user = \"gateway\", busy_timeout = \"2s\", session = { chat_model_config = {} } }"
    }

    fn speaks(&self, act: &AgentAct) -> bool {
        !matches!(
            act,
            AgentAct::Refusal(_)
                | AgentAct::Cite(..)
                | AgentAct::Show(Media::Data(_))
                | AgentAct::Ask(Ask::Question(..) | Ask::Login(..))
        )
    }

    fn plays(&self, turn: &Turn) -> bool {
        // It stops for want of rounds, never of tokens.
        !matches!(turn.ending, Ending::Incomplete(_)) && turn.agent.iter().all(|act| self.speaks(act))
    }

    fn answer(&self, request: &ReceivedRequest, stage: &Stage) -> Reply {
        let path = request.path.split('?').next().unwrap_or_default();
        let mut sessions = self.sessions.lock().expect("no player panics");
        match (request.method.as_str(), path) {
            ("POST", "/sessions/") => {
                let id = format!("session-{}", sessions.len());
                sessions.insert(id.clone(), Session { id: id.clone(), ..Session::default() });
                Reply::complete(201, JSON, json!({ "session_id": id }).to_string())
            }
            ("POST", "/chat/") => chat(&mut sessions, request, stage),
            (method, path) => {
                let named = path.strip_prefix("/sessions/").and_then(|rest| rest.split_once('/'));
                let Some((id, what)) = named else { return not_found() };
                let Some(session) = sessions.get_mut(id) else { return not_found() };
                match (method, what) {
                    ("GET", "status") => {
                        let status = if session.waits { "awaiting_permission" } else { "idle" };
                        Reply::complete(200, JSON, json!({ "session_id": id, "status": status }).to_string())
                    }
                    ("POST", "interrupt") => {
                        session.waits = false;
                        Reply::complete(202, JSON, json!({ "session_id": id }).to_string())
                    }
                    ("GET", "messages") => Reply::complete(200, JSON, session.messages().to_string()),
                    ("GET", "stream") => session.stream(stage),
                    _ => not_found(),
                }
            }
        }
    }
}

fn not_found() -> Reply {
    Reply::complete(404, JSON, r#"{"detail":"Not Found"}"#)
}

/// Starts a reply, or continues one. Only the stream contains its events.
fn chat(sessions: &mut HashMap<String, Session>, request: &ReceivedRequest, stage: &Stage) -> Reply {
    let body = request.json();
    let input = &body["input"];
    let id = body["session_id"].as_str().unwrap_or_default();
    let mark = Mark::last_in(input.to_string().as_bytes());
    let (Some(session), Some(mark)) = (sessions.get_mut(id), mark) else { return not_found() };
    let Some(play) = stage.peek(mark) else { return not_found() };
    note_received(&play, request, &body);
    if let Ending::Refused(status) = play.turn.ending {
        return Reply::complete(status, JSON, r#"{"detail":"not now"}"#);
    }

    if session.mark != Some(mark) {
        session.answers.clear();
    }
    (session.mark, session.last, session.waits, session.end) = (Some(mark), None, false, None);
    if input.get("type").is_some() {
        session.answers.push(json!({ "id": input["id"], "type": input["type"] }));
    } else {
        session.replies += 1;
        session.reply = format!("{id}-reply-{}", session.replies);
        session.content.clear();
        let last = input.as_array().and_then(|messages| messages.last());
        session.asked = last.and_then(|message| message["id"].as_str()).unwrap_or_default().to_owned();
    }
    Reply::complete(200, JSON, json!({ "status": "started", "session_id": id }).to_string())
}

/// Reports what is new in a request.
fn note_received(play: &Play<'_>, request: &ReceivedRequest, body: &Value) {
    use ContentKind as K;
    let session = body["session_id"].as_str().unwrap_or_default();
    if play.remembers(request, session) {
        play.received([Item::new(K::History, "remembered")]);
    }
    play.note("session", session);

    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut received = Vec::new();
    for block in list(&body["input"]).iter().flat_map(|message| list(&message["content"])) {
        let words = block["text"].as_str().and_then(|text| play.words(text));
        received.extend(words.map(|words| Item::new(K::Text, words)));
        received.extend(media(&block["source"]));
    }
    for result in list(&body["input"]["confirm_results"]) {
        let (call, confirmed) = (&result["tool_call"], result["confirmed"] == true);
        let input = call["input"].as_str().unwrap_or_default();
        let asked = play.noted(call["id"].as_str().unwrap_or_default()).unwrap_or_default();
        received.push(match (confirmed, asked == input) {
            (true, false) => Item::new(K::ApprovalEdit, normal(input)),
            (true, true) => Item::new(K::Approval, "accept"),
            (false, _) => Item::new(K::Approval, "reject"),
        });
    }
    for result in list(&body["input"]["execution_results"]) {
        let blocks = list(&result["output"]);
        let texts: String = blocks.iter().filter_map(|part| part["text"].as_str()).collect();
        received.extend(crate::tool_output::items(&json!(texts)));
        received.extend(blocks.iter().filter_map(|block| media(&block["source"])));
        if result["state"] == "error" {
            received.push(Item::new(K::ToolFailure, "failed"));
        }
    }
    play.received(received);
}

/// Where the bytes of a block are.
fn media(source: &Value) -> Option<Item> {
    use ContentKind as K;
    let kind = match source["media_type"].as_str()?.split('/').next() {
        Some("image") => K::ImageIn,
        Some("audio") => K::AudioIn,
        Some("video") => K::VideoIn,
        _ => K::FileIn,
    };
    Some(Item::new(kind, source["url"].as_str().or(source["data"].as_str())?))
}

impl Session {
    /// An event of the reply.
    fn event(&mut self, mut event: Value) -> String {
        self.events += 1;
        let fields = event.as_object_mut().expect("an object");
        fields.entry("id").or_insert(json!(format!("{}-{}", self.reply, self.events)));
        fields.entry("reply_id").or_insert(json!(self.reply));
        fields.insert("metadata".to_owned(), json!({}));
        fields.insert("created_at".to_owned(), json!("2026-11-23T00:23:54.297020"));
        event.to_string()
    }

    /// The events of the session: all of the reply, or its end alone if it was read before.
    fn stream(&mut self, stage: &Stage) -> Reply {
        let played = self.mark.and_then(|mark| stage.at(mark));
        let Some(play) = played.filter(|_| self.last.is_none()) else {
            return self.last.iter().fold(Reply::events(), |reply, last| reply.frame(last)).hang();
        };
        let mut frames: Vec<Value> = std::mem::take(&mut self.answers);
        frames.push(json!({
            "type": "REPLY_START", "session_id": self.id, "name": "scripted", "role": "assistant",
        }));
        let mut asks = Vec::new();
        for (number, act) in play.turn.agent.iter().enumerate() {
            self.act(&play, number, act, &mut frames, &mut asks);
        }
        self.waits = !asks.is_empty();
        self.is_lost = play.turn.ending == Ending::BrokenOff;
        frames.append(&mut asks);
        let hangs = play.turn.agent.contains(&AgentAct::Hang);
        if !self.waits && !self.is_lost && !hangs {
            let end = match play.turn.ending {
                Ending::Failed(words) => {
                    json!({ "finished_reason": "error", "error": { "type": "unknown", "message": words } })
                }
                _ => json!({ "finished_reason": "completed", "error": null }),
            };
            let mut event = end.clone();
            event["type"] = json!("REPLY_END");
            event["session_id"] = json!(self.id);
            frames.push(event);
            self.end = Some(end);
        }

        let mut reply = Reply::events();
        for frame in frames {
            reply = if frame.is_null() {
                reply.wait(&play.gate())
            } else {
                let frame = self.event(frame);
                let reply = reply.frame(&frame);
                self.last = Some(frame);
                reply
            };
        }
        if self.is_lost { reply.close() } else { reply.hang() }
    }

    fn act(&mut self, play: &Play<'_>, number: usize, act: &AgentAct, frames: &mut Vec<Value>, asks: &mut Vec<Value>) {
        let block = format!("{}-block-{number}", self.reply);
        match act {
            AgentAct::Text(pieces) => {
                frames.extend(pieces_of("TEXT_BLOCK", &block, pieces));
                self.content.push(json!({ "type": "text", "id": block, "text": pieces.concat() }));
            }
            AgentAct::Reasoning(pieces) => {
                frames.extend(pieces_of("THINKING_BLOCK", &block, pieces));
                self.content.push(json!({ "type": "thinking", "id": block, "thinking": pieces.concat() }));
            }
            AgentAct::Call(call) => self.call(play, call, "finished", frames),
            AgentAct::Result(name, output, is_failed) => {
                let (id, state) = (play.id(name), if *is_failed { "error" } else { "success" });
                frames.push(json!({ "type": "TOOL_RESULT_START", "tool_call_id": id, "tool_call_name": "" }));
                frames.push(json!({ "type": "TOOL_RESULT_TEXT_DELTA", "tool_call_id": id, "delta": output }));
                frames.push(json!({ "type": "TOOL_RESULT_END", "tool_call_id": id, "state": state }));
                let output = json!([{ "type": "text", "text": output }]);
                self.content.push(json!({ "type": "tool_result", "id": id, "output": output, "state": state }));
            }
            AgentAct::ClientCall(call) => {
                self.call(play, call, "submitted", frames);
                let id = play.id(call.name);
                frames.push(json!({ "type": "TOOL_RESULT_START", "tool_call_id": id, "tool_call_name": call.tool }));
                self.content.push(json!({ "type": "tool_result", "id": id, "output": [], "state": "running" }));
                asks.push(
                    json!({ "type": "REQUIRE_EXTERNAL_EXECUTION", "tool_calls": [asked(play, call, "submitted")] }),
                );
            }
            AgentAct::Ask(Ask::Approval(call)) => {
                self.call(play, call, "asking", frames);
                play.note(&play.id(call.name), &call.whole());
                asks.push(json!({ "type": "REQUIRE_USER_CONFIRM", "tool_calls": [asked(play, call, "asking")] }));
            }
            AgentAct::Show(media) => self.show(&block, *media, frames),
            AgentAct::Usage(input, output) => {
                frames.push(json!({ "type": "MODEL_CALL_END", "input_tokens": input, "output_tokens": output }))
            }
            AgentAct::State(state) => {
                let state: Value = serde_json::from_str(state).expect("a state is JSON");
                frames.push(json!({ "type": "CUSTOM", "name": "state_updated", "value": state }));
            }
            AgentAct::Unknown => frames.push(json!({ "type": "WEATHER_BLOCK", "sky": "blue" })),
            // A place among the frames.
            AgentAct::Wait => frames.push(Value::Null),
            // Its stream stays open anyway, and has no end of the reply.
            AgentAct::Hang => {}
            AgentAct::Refusal(_) | AgentAct::Cite(..) | AgentAct::Ask(_) => unreachable!("no word for it"),
        }
    }

    fn call(&mut self, play: &Play<'_>, call: &Call, state: &str, frames: &mut Vec<Value>) {
        let id = play.id(call.name);
        frames.push(json!({ "type": "TOOL_CALL_START", "tool_call_id": id, "tool_call_name": call.tool }));
        for piece in call.arguments {
            frames.push(json!({ "type": "TOOL_CALL_DELTA", "tool_call_id": id, "delta": piece }));
        }
        frames.push(json!({ "type": "TOOL_CALL_END", "tool_call_id": id }));
        self.content.push(asked(play, call, state));
    }

    fn show(&mut self, block: &str, media: Media, frames: &mut Vec<Value>) {
        let (media_type, name, place) = match media {
            Media::Image(url) => ("image/png", None, json!({ "url": url })),
            Media::Video(url) => ("video/mp4", None, json!({ "url": url })),
            Media::File(url, name) => ("application/pdf", Some(name), json!({ "url": url })),
            Media::Audio(base64) => ("audio/wav", None, json!({ "data": base64 })),
            Media::Data(_) => unreachable!("no word for it"),
        };
        let mut delta = place.clone();
        delta["type"] = json!("DATA_BLOCK_DELTA");
        delta["block_id"] = json!(block);
        delta["media_type"] = json!(media_type);
        frames.push(json!({ "type": "DATA_BLOCK_START", "block_id": block, "media_type": media_type, "name": name }));
        frames.push(delta);
        frames.push(json!({ "type": "DATA_BLOCK_END", "block_id": block }));
        let mut source = place;
        source["type"] = json!(if source.get("url").is_some() { "url" } else { "base64" });
        source["media_type"] = json!(media_type);
        self.content.push(json!({ "type": "data", "id": block, "source": source, "name": name }));
    }

    /// The last messages of the session.
    fn messages(&self) -> Value {
        let mut messages = vec![json!({ "id": self.asked, "role": "user", "content": [] })];
        if !self.is_lost {
            let mut reply = self.end.clone().unwrap_or_else(|| json!({ "finished_reason": null, "error": null }));
            reply["finished_at"] = self.end.as_ref().map_or(Value::Null, |_| json!("2026-11-23T00:23:55"));
            reply["id"] = json!(self.reply);
            reply["role"] = json!("assistant");
            reply["content"] = json!(self.content);
            messages.push(reply);
        }
        json!({ "messages": messages, "event_cursor": null, "is_running": false, "has_more": false })
    }
}

/// A block of text in pieces.
fn pieces_of(kind: &str, block: &str, pieces: &[&str]) -> Vec<Value> {
    let mut frames = vec![json!({ "type": format!("{kind}_START"), "block_id": block })];
    frames.extend(
        pieces.iter().map(|piece| json!({ "type": format!("{kind}_DELTA"), "block_id": block, "delta": piece })),
    );
    let mut end = json!({ "type": format!("{kind}_END"), "block_id": block });
    if kind == "TEXT_BLOCK" {
        end["text"] = Value::Null;
    }
    frames.push(end);
    frames
}

/// A call as a message contains it, and as a question refers to it.
fn asked(play: &Play<'_>, call: &Call, state: &str) -> Value {
    json!({
        "type": "tool_call", "id": play.id(call.name), "name": call.tool, "input": call.whole(), "state": state,
        "suggested_rules": [],
    })
}
