//! A server of the Responses API that keeps its responses, as SMG and OpenAI do: a request continues the response it
//! names, and is refused if that response is unknown or contains a call without an output.
//!
//! Not here: servers that deviate from the description (the connector's own tests).

use std::collections::HashMap;
use std::sync::Mutex;

use interlingua_core::loss::ContentKind;
use interlingua_core_testkit::scenario::{AgentAct, Ask, Call, Ending, Item, Media, normal};
use serde_json::{Value, json};

use crate::{Play, ReceivedRequest, Reply, ScriptedAgent, Stage};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Responses {
    /// Answers in the background, as streams and as a whole, and conversations, by their ids.
    kept: Mutex<HashMap<String, (Reply, String)>>,
}

impl ScriptedAgent for Responses {
    fn protocol(&self) -> &'static str {
        "responses"
    }

    fn path(&self) -> &'static str {
        "/v1"
    }

    fn settings(&self) -> &'static str {
        "options = { model = \"scripted\", parts = [\"image\", \"file\", \"audio\", \"video\"] }"
    }

    fn speaks(&self, act: &AgentAct) -> bool {
        match act {
            // Others are files of the server's own, by their ids.
            AgentAct::Show(media) => matches!(media, Media::Image(_) | Media::Audio(_)),
            // Only approvals are asked for.
            AgentAct::State(_) | AgentAct::Ask(Ask::Question(..) | Ask::Login(..)) => false,
            _ => true,
        }
    }

    fn answer(&self, request: &ReceivedRequest, stage: &Stage) -> Reply {
        let path = request.path.split('?').next().unwrap_or_default();
        if path.ends_with("/conversations") {
            let mut kept = self.kept.lock().expect("no player panics");
            let id = format!("conv_{}", kept.len());
            kept.insert(id.clone(), (Reply::default(), String::new()));
            return Reply::complete(200, JSON, json!({ "id": id, "object": "conversation" }).to_string());
        }
        if let Some((_, id)) = path.rsplit_once("/responses/") {
            return self.known(id.trim_end_matches("/cancel"), request.path.contains("stream=true"));
        }
        let Some(play) = stage.play(request).filter(|_| request.path.ends_with("/responses")) else {
            return refusal(404, "not_found", "Not found.");
        };
        let body = request.json();
        if let Err(refused) = goes_on(&play, &body) {
            return refused;
        }
        note_received(&play, request, &body);
        if let Ending::Refused(status) = play.turn.ending {
            return refusal(status, "refused", "not now");
        }

        let mut answer = Answer::begin(&play, &body);
        let mut acts = play.turn.agent.iter().peekable();
        while let Some(act) = acts.next() {
            let sources = match acts.peek() {
                Some(AgentAct::Cite(url, title)) => vec![(*url, *title)],
                _ => Vec::new(),
            };
            answer.act(&play, act, &sources);
        }
        let queued = answer.queued();
        let AnswerForms { stream, whole } = answer.end(&play);
        let is_stream = body["stream"] == json!(true);
        if body["background"] != json!(true) {
            return if is_stream { stream } else { Reply::complete(200, JSON, whole) };
        }
        let mut kept = self.kept.lock().expect("no player panics");
        kept.insert(response_id(&play), (stream.clone(), whole));
        if is_stream { stream } else { Reply::complete(200, JSON, queued) }
    }
}

impl Responses {
    /// An answer in the background.
    fn known(&self, id: &str, is_stream: bool) -> Reply {
        let kept = self.kept.lock().expect("no player panics");
        match kept.get(id) {
            Some((stream, _)) if is_stream => stream.clone(),
            Some((_, whole)) => Reply::complete(200, JSON, whole),
            None => refusal(404, "not_found", "Not found."),
        }
    }
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

fn refusal(status: u16, code: &str, message: &str) -> Reply {
    let error = json!({ "message": message, "type": "invalid_request_error", "param": null, "code": code });
    Reply::complete(status, JSON, json!({ "error": error }).to_string())
}

/// The id of the response of a turn. It must not look like a mark.
fn response_id(play: &Play<'_>) -> String {
    format!("resp_{}_{}", play.mark.play, play.mark.turn)
}

/// Refuses a request that a server with stored responses cannot continue.
fn goes_on(play: &Play<'_>, body: &Value) -> Result<(), Reply> {
    let Some(previous) = body["previous_response_id"].as_str() else { return Ok(()) };
    if play.noted("session").as_deref() != Some(previous) {
        let message = format!("Previous response with id '{previous}' not found.");
        return Err(refusal(400, "previous_response_not_found", &message));
    }

    let open = play.noted("open").unwrap_or_default();
    let items = body["input"].as_array().cloned().unwrap_or_default();
    let answered = |id: &str| items.iter().any(|item| item["call_id"] == id || item["approval_request_id"] == id);
    match open.split_whitespace().find(|id| !answered(id)) {
        Some(call) => {
            let message = format!("No tool output found for function call {call}.");
            Err(refusal(400, "invalid_request", &message))
        }
        None => Ok(()),
    }
}

/// Reports what is new in a request.
fn note_received(play: &Play<'_>, request: &ReceivedRequest, body: &Value) {
    use ContentKind as K;
    let conversation = body["conversation"].as_str().or(body["conversation"]["id"].as_str());
    let previous = body["previous_response_id"].as_str().or(conversation).unwrap_or_default();
    if play.remembers(request, previous) {
        play.received([Item::new(K::History, "remembered")]);
    }

    let mut received = Vec::new();
    received.extend(body["instructions"].as_str().map(|text| Item::new(K::Instructions, text)));
    for item in body["input"].as_array().into_iter().flatten() {
        let parts = item["content"].as_array().cloned().unwrap_or_default();
        match (item["type"].as_str(), item["role"].as_str()) {
            (Some("message"), Some("developer" | "system")) => {
                let texts = parts.iter().filter_map(|part| part["text"].as_str());
                received.extend(texts.map(|text| Item::new(K::Instructions, text)));
            }
            (Some("message"), Some("user")) => {
                let is_new =
                    parts.iter().filter_map(|part| part["text"].as_str()).any(|text| play.words(text).is_some());
                if is_new {
                    received.extend(parts.iter().filter_map(|part| user_part(play, part)));
                }
            }
            (Some("function_call_output" | "mcp_approval_response"), _) => received.extend(answered(play, item)),
            _ => {}
        }
    }

    let tools = body["tools"].as_array().into_iter().flatten();
    received.extend(tools.filter_map(|tool| tool["name"].as_str()).map(|name| Item::new(K::ToolDeclaration, name)));
    received.extend(body["temperature"].as_f64().map(|value| Item::new(K::Sampling, format!("temperature {value}"))));
    play.received(received);
}

/// A part of what the user says.
fn user_part(play: &Play<'_>, part: &Value) -> Option<Item> {
    use ContentKind as K;
    let text = |name: &str| part[name].as_str();
    Some(match part["type"].as_str()? {
        "input_text" => match (play.words(text("text")?), text("text")?) {
            (Some(words), _) => Item::new(K::Text, words),
            // Data have no form of their own here.
            (None, data) if data.starts_with('{') => Item::new(K::DataIn, normal(data)),
            // A line that names what cannot be sent.
            _ => return None,
        },
        "input_image" => Item::new(K::ImageIn, text("image_url")?),
        "input_file" => Item::new(K::FileIn, text("file_url").or(text("file_data"))?),
        "input_audio" => Item::new(K::AudioIn, part["input_audio"]["data"].as_str()?),
        "input_video" => Item::new(K::VideoIn, text("video_url")?),
        _ => return None,
    })
}

/// An output or a decision that answers a question of the previous turn.
fn answered(play: &Play<'_>, item: &Value) -> Vec<Item> {
    let id = item["call_id"].as_str().or(item["approval_request_id"].as_str()).unwrap_or_default();
    if !id.starts_with(&play.mark.to_string()) {
        return Vec::new();
    }
    if item["type"] == "function_call_output" {
        return crate::tool_output::items(&item["output"]);
    }
    let decision = item["approve"].as_bool().map(|approve| if approve { "accept" } else { "reject" });
    decision.map(|decision| Item::new(ContentKind::Approval, decision)).into_iter().collect()
}

/// An answer that grows.
struct Answer {
    reply: Reply,
    sequence: u64,
    /// The items so far, whole or open.
    output: Vec<Value>,
    /// Calls of the server's tools without a result: their places, by the names of the calls.
    open: Vec<(String, usize)>,
    /// Calls that wait for the client.
    waiting: Vec<String>,
    usage: Value,
    response: Value,
    /// The response or the conversation that the next request names.
    session: String,
}

/// A complete answer in both forms.
struct AnswerForms {
    stream: Reply,
    whole: String,
}

impl Answer {
    fn begin(play: &Play<'_>, body: &Value) -> Self {
        let conversation = body["conversation"].as_str().or(body["conversation"]["id"].as_str());
        let response = json!({
            "id": response_id(play), "object": "response", "created_at": 1_795_168_800, "status": "in_progress",
            "background": body["background"] == json!(true), "error": null, "incomplete_details": null, "instructions": null,
            "metadata": {}, "model": body["model"], "output": [], "parallel_tool_calls": true,
            "previous_response_id": body["previous_response_id"], "store": true, "temperature": 1.0,
            "tool_choice": "auto", "tools": body["tools"].as_array().cloned().unwrap_or_default(), "usage": null,
        });
        let mut answer = Self {
            reply: Reply::events(),
            sequence: 0,
            output: Vec::new(),
            open: Vec::new(),
            waiting: Vec::new(),
            usage: Value::Null,
            response,
            session: conversation.map_or_else(|| response_id(play), str::to_owned),
        };
        for kind in ["created", "in_progress"] {
            let response = answer.response.clone();
            answer.event(kind, json!({ "response": response }));
        }
        answer
    }

    fn event(&mut self, kind: &str, fields: Value) {
        let mut event = json!({ "type": format!("response.{kind}"), "sequence_number": self.sequence });
        self.sequence += 1;
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        let frame = format!("event: response.{kind}\ndata: {event}\n\n");
        self.reply = std::mem::take(&mut self.reply).chunk(frame);
    }

    fn act(&mut self, play: &Play<'_>, act: &AgentAct, sources: &[(&str, &str)]) {
        match act {
            AgentAct::Text(pieces) => self.message("output_text", "text", pieces, sources),
            AgentAct::Refusal(pieces) => self.message("refusal", "refusal", pieces, &[]),
            AgentAct::Reasoning(pieces) => self.reasoning(pieces),
            AgentAct::Call(call) => self.own_call(play, call),
            AgentAct::Result(name, output, is_failed) => self.result(play, name, output, *is_failed),
            AgentAct::ClientCall(call) => self.client_call(play, call),
            AgentAct::Ask(Ask::Approval(call)) => self.approval(play, call),
            AgentAct::Usage(input, output) => {
                self.usage = json!({
                    "input_tokens": input, "input_tokens_details": { "cached_tokens": 0 }, "output_tokens": output,
                    "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": input + output,
                });
            }
            // Written with the text before it.
            AgentAct::Cite(..) => {}
            AgentAct::Unknown => self.event("weather.sunny", json!({ "sky": "blue" })),
            AgentAct::Wait => self.reply = std::mem::take(&mut self.reply).wait(&play.gate()),
            AgentAct::Hang => self.reply = std::mem::take(&mut self.reply).hang(),
            AgentAct::Show(Media::Image(url)) => {
                self.shown(&json!({ "type": "output_image", "image_url": url }));
            }
            AgentAct::Show(Media::Audio(data)) => {
                self.shown(&json!({ "type": "output_audio", "data": data, "format": "wav" }));
            }
            AgentAct::Show(_) | AgentAct::State(_) | AgentAct::Ask(_) => unreachable!("no word for it"),
        }
    }

    /// A message with a part that is no text. It has no pieces.
    fn shown(&mut self, part: &Value) {
        let id = format!("msg_{}", self.output.len());
        let item = |status: &str, content: Value| json!({ "id": id, "type": "message", "status": status, "role": "assistant", "content": content });
        let place = self.added(item("in_progress", json!([])));
        let at = json!({ "item_id": id, "output_index": place, "content_index": 0, "part": part });
        self.event("content_part.added", at.clone());
        self.event("content_part.done", at);
        self.done(place, item("completed", json!([part])));
    }

    /// Announces an item. Returns its place.
    fn added(&mut self, item: Value) -> usize {
        let place = self.output.len();
        self.event("output_item.added", json!({ "output_index": place, "item": item }));
        self.output.push(item);
        place
    }

    fn done(&mut self, place: usize, item: Value) {
        self.event("output_item.done", json!({ "output_index": place, "item": item }));
        self.output[place] = item;
    }

    fn message(&mut self, part_type: &str, field: &str, pieces: &[&str], sources: &[(&str, &str)]) {
        let id = format!("msg_{}", self.output.len());
        let item = |status: &str, content: Value| json!({ "id": id, "type": "message", "status": status, "role": "assistant", "content": content });
        let place = self.added(item("in_progress", json!([])));
        let at = json!({ "item_id": id, "output_index": place, "content_index": 0 });
        let with = |fields: Value| {
            let mut all = at.clone();
            if let (Some(all), Value::Object(fields)) = (all.as_object_mut(), fields) {
                all.extend(fields);
            }
            all
        };

        let mut part = json!({ "type": part_type, field: "" });
        if field == "text" {
            part["annotations"] = json!([]);
            part["logprobs"] = json!([]);
        }
        self.event("content_part.added", with(json!({ "part": part })));
        for piece in pieces {
            let fields =
                if field == "text" { json!({ "delta": piece, "logprobs": [] }) } else { json!({ "delta": piece }) };
            self.event(&format!("{part_type}.delta"), with(fields));
        }

        let annotations: Vec<Value> = sources
            .iter()
            .map(|(url, title)| {
                json!({ "type": "url_citation", "url": url, "title": title, "start_index": 0, "end_index": 2 })
            })
            .collect();
        for (number, annotation) in annotations.iter().enumerate() {
            let fields = json!({ "annotation_index": number, "annotation": annotation });
            self.event("output_text.annotation.added", with(fields));
        }

        let whole = pieces.concat();
        self.event(&format!("{part_type}.done"), with(json!({ field: whole })));
        part[field] = json!(whole);
        if field == "text" {
            part["annotations"] = json!(annotations);
        }
        self.event("content_part.done", with(json!({ "part": part })));
        self.done(place, item("completed", json!([part])));
    }

    fn reasoning(&mut self, pieces: &[&str]) {
        let id = format!("rs_{}", self.output.len());
        let place = self.added(json!({ "id": id, "type": "reasoning", "summary": [] }));
        let at = |fields: Value| {
            let mut all = json!({ "item_id": id, "output_index": place, "summary_index": 0 });
            if let (Some(all), Value::Object(fields)) = (all.as_object_mut(), fields) {
                all.extend(fields);
            }
            all
        };
        self.event("reasoning_summary_part.added", at(json!({ "part": { "type": "summary_text", "text": "" } })));
        for piece in pieces {
            self.event("reasoning_summary_text.delta", at(json!({ "delta": piece })));
        }
        let part = json!({ "type": "summary_text", "text": pieces.concat() });
        self.event("reasoning_summary_text.done", at(json!({ "text": pieces.concat() })));
        self.event("reasoning_summary_part.done", at(json!({ "part": part })));
        self.done(place, json!({ "id": id, "type": "reasoning", "summary": [part] }));
    }

    fn arguments(&mut self, kind: &str, id: &str, place: usize, call: &Call) {
        let at = json!({ "item_id": id, "output_index": place });
        for piece in call.arguments {
            let mut fields = at.clone();
            fields["delta"] = json!(piece);
            self.event(&format!("{kind}_arguments.delta"), fields);
        }
        let mut fields = at;
        fields["arguments"] = json!(call.whole());
        self.event(&format!("{kind}_arguments.done"), fields);
    }

    fn client_call(&mut self, play: &Play<'_>, call: &Call) {
        let id = format!("fc_{}", self.output.len());
        let call_id = play.id(call.name);
        let item = |status: &str, arguments: &str| {
            json!({ "id": id, "type": "function_call", "status": status, "call_id": call_id, "name": call.tool,
                    "arguments": arguments })
        };
        let place = self.added(item("in_progress", ""));
        self.arguments("function_call", &id, place, call);
        self.done(place, item("completed", &call.whole()));
        self.waiting.push(call_id);
    }

    /// A call of a tool of an MCP server, which the server runs.
    fn own_call(&mut self, play: &Play<'_>, call: &Call) {
        let id = play.id(call.name);
        let mut item = json!({
            "id": id, "type": "mcp_call", "status": "in_progress", "server_label": "tools", "name": call.tool,
            "arguments": "", "output": null, "error": null, "approval_request_id": null,
        });
        let place = self.added(item.clone());
        self.event("mcp_call.in_progress", json!({ "item_id": id, "output_index": place }));
        self.arguments("mcp_call", &id, place, call);
        item["arguments"] = json!(call.whole());
        self.output[place] = item;
        self.open.push((call.name.to_owned(), place));
    }

    fn result(&mut self, play: &Play<'_>, name: &str, output: &str, is_failed: bool) {
        let Some(at) = self.open.iter().position(|(open, _)| open == name) else { return };
        let (_, place) = self.open.remove(at);
        let mut item = self.output[place].clone();
        let status = if is_failed { "failed" } else { "completed" };
        item["status"] = json!(status);
        if is_failed {
            let content = json!([{ "type": "text", "text": output }]);
            item["error"] = json!({ "type": "mcp_tool_execution_error", "content": content });
        } else {
            item["output"] = json!(output);
        }
        self.event(&format!("mcp_call.{status}"), json!({ "item_id": play.id(name), "output_index": place }));
        self.done(place, item);
    }

    fn approval(&mut self, play: &Play<'_>, call: &Call) {
        let id = play.id(call.name);
        let item = json!({ "id": id, "type": "mcp_approval_request", "server_label": "tools", "name": call.tool,
                           "arguments": call.whole() });
        let place = self.added(item.clone());
        self.done(place, item);
        self.waiting.push(id);
    }

    /// The response before it is worked on.
    fn queued(&self) -> String {
        let mut response = self.response.clone();
        response["status"] = json!("queued");
        response.to_string()
    }

    fn end(mut self, play: &Play<'_>) -> AnswerForms {
        // Every item that was announced ends.
        for (_, place) in std::mem::take(&mut self.open) {
            let mut item = self.output[place].clone();
            item["status"] = json!("incomplete");
            self.done(place, item);
        }

        let status = match play.turn.ending {
            Ending::Completed => "completed",
            Ending::Incomplete(reason) => {
                self.response["incomplete_details"] = json!({ "reason": reason });
                "incomplete"
            }
            Ending::Failed(words) => {
                self.response["error"] = json!({ "code": "server_error", "message": words });
                "failed"
            }
            Ending::BrokenOff => {
                // Later requests for it find that it failed.
                self.response["error"] = json!({ "code": "server_error", "message": "it broke off" });
                self.response["status"] = json!("failed");
                self.response["output"] = json!(self.output);
                return AnswerForms { stream: self.reply.close(), whole: self.response.to_string() };
            }
            Ending::Refused(_) => unreachable!("answered at once"),
        };

        // A response that failed cannot be gone on from.
        if status != "failed" {
            play.note("session", &self.session);
            play.note("open", &self.waiting.join(" "));
        }
        self.response["status"] = json!(status);
        self.response["output"] = json!(self.output);
        self.response["usage"] = self.usage.clone();
        let response = self.response.clone();
        self.event(status, json!({ "response": response }));
        AnswerForms { stream: self.reply.done(), whole: response.to_string() }
    }
}
