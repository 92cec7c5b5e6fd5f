//! A model server that speaks Chat Completions, as OpenAI and most servers that call themselves compatible do: it
//! remembers nothing, streams chunks, and refuses a conversation whose calls and outputs do not belong together.
//!
//! Not here: answers that break the protocol (the connector's own tests).

use std::collections::HashSet;

use interlingua_core::loss::ContentKind;
use interlingua_core_testkit::scenario::{AgentAct, Ending, Item, Media, Turn, normal};
use serde_json::{Value, json};

use crate::{Play, ReceivedRequest, Reply, ScriptedAgent, Stage};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ChatCompletions {
    pub(crate) dialect: Dialect,
}

/// Differences between servers in their output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// OpenAI's form, with the reasoning of DeepSeek.
    #[default]
    OpenAi,
    /// vLLM: other words for thoughts, empty lists of calls in each piece, the cost with every piece.
    Vllm,
    /// Ollama: a call in one piece, and no end of its own for calls.
    Ollama,
    /// OpenRouter: comments while a model works, a role in each piece, errors inside a choice, the cost beside one.
    OpenRouter,
    /// Reasoning in another field, and in this form.
    Reasoning(&'static str, ReasoningForm),
    /// The id of a call comes first, then the beginning of its arguments, then its name.
    LateNames,
}

/// The value of a delta's field for reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReasoningForm {
    Text,
    /// Parts with a text, as OpenRouter's `reasoning_details` are.
    Details,
    /// The content, with a mark beside it that Gemini sets.
    Marked,
}

impl ReasoningForm {
    fn delta(self, field: &str, piece: &str) -> Value {
        match self {
            Self::Text => json!({ field: piece }),
            Self::Details => json!({ field: [{ "type": "reasoning.text", "text": piece, "index": 0 }] }),
            Self::Marked => json!({ "content": piece, "extra_content": { "google": { "thought": true } } }),
        }
    }
}

impl ScriptedAgent for ChatCompletions {
    fn protocol(&self) -> &'static str {
        "chat-completions"
    }

    fn path(&self) -> &'static str {
        "/v1"
    }

    fn settings(&self) -> &'static str {
        "options = { model = \"scripted\", parts = [\"text\", \"image\", \"audio\", \"file\", \"video\"] }"
    }

    fn agent_settings(&self) -> &'static str {
        "history = \"gateway\""
    }

    fn speaks(&self, act: &AgentAct) -> bool {
        match act {
            AgentAct::Show(media) => matches!(media, Media::Image(_) | Media::Audio(_)),
            // A model server runs no tools, asks nothing, and has no state.
            AgentAct::Call(_) | AgentAct::Result(..) | AgentAct::Ask(_) | AgentAct::State(_) => false,
            _ => true,
        }
    }

    fn plays(&self, turn: &Turn) -> bool {
        // An answer is one message: there is nothing between two texts.
        let is_text = |act: &AgentAct| matches!(act, AgentAct::Text(_));
        let has_two = turn.agent.windows(2).any(|pair| pair.iter().all(is_text));
        !has_two && turn.agent.iter().all(|act| self.speaks(act))
    }

    fn answer(&self, request: &ReceivedRequest, stage: &Stage) -> Reply {
        let Some(play) = stage.play(request).filter(|_| request.path.ends_with("/chat/completions")) else {
            return refusal(404, "not_found", "Not found.");
        };
        let body = request.json();
        if let Err(complaint) = check(&body) {
            return refusal(400, "invalid_request_error", &complaint);
        }
        note_received(&play, request, &body);
        if let Ending::Refused(status) = play.turn.ending {
            return refusal(status, "refused", "not now");
        }

        let mut answer = Answer::begin(&play, self.dialect);
        for act in &play.turn.agent {
            answer.act(&play, act);
        }
        answer.end(&play, body["stream_options"]["include_usage"] == json!(true))
    }
}

fn refusal(status: u16, code: &str, message: &str) -> Reply {
    let error = json!({ "message": message, "type": "invalid_request_error", "param": null, "code": code });
    Reply::complete(status, &[("content-type", "application/json")], json!({ "error": error }).to_string())
}

/// The errors of a strict server.
fn check(body: &Value) -> Result<(), String> {
    if body["model"].as_str().is_none_or(str::is_empty) {
        return Err("you must provide a model parameter".to_owned());
    }
    if body["stream"] != json!(true) {
        return Err("this server streams".to_owned());
    }
    if body["tools"].as_array().is_some_and(Vec::is_empty) {
        return Err("[] is too short - 'tools'".to_owned());
    }

    let mut open: HashSet<&str> = HashSet::new();
    for (place, message) in body["messages"].as_array().into_iter().flatten().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            if !open.remove(id) {
                return Err(format!("messages[{place}]: a tool message must follow a message with its call"));
            }
            continue;
        }
        if let Some(id) = open.iter().next() {
            return Err(format!("messages[{place}]: no tool message answers the call {id}"));
        }
        if !matches!(role, "system" | "user" | "assistant") {
            return Err(format!("messages[{place}]: unknown role {role:?}"));
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            if !serde_json::from_str::<Value>(arguments).is_ok_and(|arguments| arguments.is_object()) {
                return Err(format!("messages[{place}]: the arguments of a call are no JSON object"));
            }
            open.insert(call["id"].as_str().unwrap_or_default());
        }
    }
    open.iter().next().map_or(Ok(()), |id| Err(format!("no tool message answers the call {id}")))
}

/// Reports what is new in a request.
fn note_received(play: &Play<'_>, request: &ReceivedRequest, body: &Value) {
    use ContentKind as K;
    if play.remembers(request, "") {
        play.received([Item::new(K::History, "remembered")]);
    }

    let mut received = Vec::new();
    let mut follows_output = false;
    for message in body["messages"].as_array().into_iter().flatten() {
        let text = message["content"].as_str();
        match message["role"].as_str().unwrap_or_default() {
            "system" => received.extend(text.map(|text| Item::new(K::Instructions, text))),
            "user" => {
                let parts = message["content"].as_array().cloned().unwrap_or_default();
                if follows_output {
                    // Pictures of the outputs before it.
                    let images = parts.iter().filter_map(|part| part["image_url"]["url"].as_str());
                    received.extend(images.map(|url| Item::new(K::ImageIn, url)));
                }
                let texts = parts.iter().filter_map(|part| part["text"].as_str()).chain(text);
                if texts.clone().any(|text| play.words(text).is_some()) {
                    received.extend(text.and_then(|text| said(play, text)));
                    received.extend(parts.iter().filter_map(|part| user_part(play, part)));
                }
            }
            "tool" => {
                let is_new = message["tool_call_id"].as_str().is_some_and(|id| id.starts_with(&play.mark.to_string()));
                follows_output = is_new;
                if is_new {
                    received.extend(crate::tool_output::items(&message["content"]));
                }
            }
            _ => {}
        }
    }

    let tools = body["tools"].as_array().into_iter().flatten();
    let names = tools.filter_map(|tool| tool["function"]["name"].as_str());
    received.extend(names.map(|name| Item::new(K::ToolDeclaration, name)));
    received.extend(body["temperature"].as_f64().map(|value| Item::new(K::Sampling, format!("temperature {value}"))));
    play.received(received);
}

/// A text of the user. Data have no form of their own here.
fn said(play: &Play<'_>, text: &str) -> Option<Item> {
    match play.words(text) {
        Some(words) => Some(Item::new(ContentKind::Text, words)),
        None if text.starts_with('{') => Some(Item::new(ContentKind::DataIn, normal(text))),
        None => None,
    }
}

/// A part of what the user says.
fn user_part(play: &Play<'_>, part: &Value) -> Option<Item> {
    use ContentKind as K;
    Some(match part["type"].as_str()? {
        "text" => return said(play, part["text"].as_str()?),
        "image_url" => Item::new(K::ImageIn, part["image_url"]["url"].as_str()?),
        "input_audio" => Item::new(K::AudioIn, part["input_audio"]["data"].as_str()?),
        "video_url" => Item::new(K::VideoIn, part["video_url"]["url"].as_str()?),
        "file" => Item::new(K::FileIn, part["file"]["file_data"].as_str()?),
        _ => return None,
    })
}

/// An answer that grows.
struct Answer {
    dialect: Dialect,
    reply: Reply,
    /// The id of the completion. It must not look like a mark.
    id: String,
    calls: usize,
    usage: Option<Value>,
}

impl Answer {
    fn begin(play: &Play<'_>, dialect: Dialect) -> Self {
        let id = format!("chatcmpl-{}x{}", play.mark.play, play.mark.turn);
        let mut answer = Self { dialect, reply: Reply::events(), id, calls: 0, usage: None };
        if dialect == Dialect::OpenRouter {
            answer.reply = answer.reply.chunk(": OPENROUTER PROCESSING\n\n");
        }
        answer.delta(&json!({ "role": "assistant", "content": "", "refusal": null }), None);
        answer
    }

    fn chunk(&mut self, choices: &Value, usage: &Value) {
        let chunk = json!({
            "id": self.id, "object": "chat.completion.chunk", "created": 1_795_168_800, "model": "scripted",
            "choices": choices, "usage": usage,
        });
        self.frame(&chunk.to_string());
    }

    fn frame(&mut self, data: &str) {
        self.reply = std::mem::take(&mut self.reply).frame(data);
    }

    fn delta(&mut self, delta: &Value, reason: Option<&str>) {
        let mut delta = delta.clone();
        match self.dialect {
            Dialect::Vllm if delta.get("tool_calls").is_none() => delta["tool_calls"] = json!([]),
            Dialect::OpenRouter => delta["role"] = json!("assistant"),
            _ => {}
        }
        let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason });
        let so_far = match self.dialect {
            Dialect::Vllm => json!({ "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 }),
            _ => Value::Null,
        };
        // A cost that no one asked for is not played.
        let so_far = if self.usage.is_some() { so_far } else { Value::Null };
        self.chunk(&json!([choice]), &so_far);
    }

    /// A piece of the call under way.
    fn call_piece(&mut self, piece: &Value) {
        let mut piece = piece.clone();
        piece["index"] = json!(self.calls);
        self.delta(&json!({ "tool_calls": [piece] }), None);
    }

    fn pieces(&mut self, field: &str, pieces: &[&str]) {
        for piece in pieces {
            self.delta(&json!({ field: piece }), None);
        }
    }

    fn act(&mut self, play: &Play<'_>, act: &AgentAct) {
        match act {
            AgentAct::Text(pieces) => self.pieces("content", pieces),
            AgentAct::Reasoning(pieces) => {
                let (field, form) = match self.dialect {
                    Dialect::Reasoning(field, form) => (field, form),
                    Dialect::Vllm | Dialect::Ollama | Dialect::OpenRouter => ("reasoning", ReasoningForm::Text),
                    _ => ("reasoning_content", ReasoningForm::Text),
                };
                for piece in *pieces {
                    self.delta(&form.delta(field, piece), None);
                }
            }
            AgentAct::Refusal(pieces) => self.pieces("refusal", pieces),
            AgentAct::ClientCall(call) if self.dialect == Dialect::Ollama => {
                let function = json!({ "name": call.tool, "arguments": call.whole() });
                let whole =
                    json!({ "index": self.calls, "id": play.id(call.name), "type": "function", "function": function });
                self.delta(&json!({ "role": "assistant", "content": "", "tool_calls": [whole] }), None);
                self.calls += 1;
            }
            AgentAct::ClientCall(call) if self.dialect == Dialect::LateNames => {
                let id = play.id(call.name);
                let whole = call.whole();
                let (first, rest) = whole.split_at(1);
                self.call_piece(&json!({ "id": id, "type": "function", "function": { "arguments": "" } }));
                self.call_piece(&json!({ "function": { "arguments": first } }));
                self.call_piece(&json!({ "function": { "name": call.tool, "arguments": rest } }));
                self.calls += 1;
            }
            AgentAct::ClientCall(call) => {
                let function = json!({ "name": call.tool, "arguments": "" });
                let head =
                    json!({ "index": self.calls, "id": play.id(call.name), "type": "function", "function": function });
                self.delta(&json!({ "tool_calls": [head] }), None);
                for piece in call.arguments {
                    let more = json!({ "index": self.calls, "function": { "arguments": piece } });
                    self.delta(&json!({ "tool_calls": [more] }), None);
                }
                self.calls += 1;
            }
            AgentAct::Show(Media::Image(url)) => {
                let image = json!({ "type": "image_url", "image_url": { "url": url }, "index": 0 });
                self.delta(&json!({ "images": [image] }), None);
            }
            AgentAct::Show(Media::Audio(data)) => {
                self.delta(&json!({ "audio": { "id": "audio_1", "data": data } }), None);
            }
            AgentAct::Cite(url, title) => {
                let citation = json!({ "url": url, "title": title, "start_index": 0, "end_index": 2 });
                self.delta(&json!({ "annotations": [{ "type": "url_citation", "url_citation": citation }] }), None);
            }
            AgentAct::Usage(input, output) => {
                self.usage = Some(json!({
                    "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
                }));
            }
            AgentAct::Unknown => self.frame(r#"{"object":"weather","sky":"blue"}"#),
            AgentAct::Wait => self.reply = std::mem::take(&mut self.reply).wait(&play.gate()),
            AgentAct::Hang => self.reply = std::mem::take(&mut self.reply).hang(),
            AgentAct::Call(_) | AgentAct::Result(..) | AgentAct::Ask(_) | AgentAct::State(_) | AgentAct::Show(_) => {
                unreachable!("no word for it")
            }
        }
    }

    fn end(mut self, play: &Play<'_>, with_usage: bool) -> Reply {
        let reason = match play.turn.ending {
            Ending::Completed if self.calls > 0 && self.dialect != Dialect::Ollama => "tool_calls",
            Ending::Completed => "stop",
            Ending::Incomplete("content_filter") => "content_filter",
            Ending::Incomplete(_) => "length",
            Ending::Failed(words) if self.dialect == Dialect::OpenRouter => {
                let error = json!({ "message": words, "code": 502 });
                let choice = json!({ "index": 0, "delta": { "content": "" }, "finish_reason": "error" });
                let chunk = json!({
                    "id": self.id, "object": "chat.completion.chunk", "created": 1_795_168_800, "model": "scripted",
                    "choices": [choice], "error": error,
                });
                self.frame(&chunk.to_string());
                return self.reply.done();
            }
            Ending::Failed(words) => {
                let error = json!({ "message": words, "type": "server_error", "param": null, "code": null });
                self.frame(&json!({ "error": error }).to_string());
                return self.reply.done();
            }
            Ending::BrokenOff => return self.reply.close(),
            Ending::Refused(_) => unreachable!("answered at once"),
        };

        self.delta(&json!({}), Some(reason));
        if let Some(usage) = self.usage.take().filter(|_| with_usage) {
            let beside = json!({ "index": 0, "delta": { "role": "assistant", "content": "" }, "finish_reason": null });
            let choices = if self.dialect == Dialect::OpenRouter { json!([beside]) } else { json!([]) };
            self.chunk(&choices, &usage);
        }
        self.frame("[DONE]");
        self.reply.done()
    }
}
