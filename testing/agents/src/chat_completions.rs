//! A model server that speaks Chat Completions as OpenAI does: chunks with one choice, usage in a chunk of its own,
//! `[DONE]` at the end. It remembers nothing.
//!
//! Not here: how other servers deviate (the tests of the connector).

use interlingua_core::loss::ContentKind;
use interlingua_core::testkit::scenario::{AgentAct, Ending, Item, Turn};
use serde_json::{Value, json};

use crate::{Play, ReceivedRequest, Reply, ScriptedAgent, Stage};

/// See the module.
#[derive(Debug)]
pub(crate) struct ChatCompletions;

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

impl ScriptedAgent for ChatCompletions {
    fn protocol(&self) -> &'static str {
        "chat-completions"
    }

    fn path(&self) -> &'static str {
        "/v1"
    }

    fn settings(&self) -> &'static str {
        "options = { model = \"played\" }"
    }

    fn agent_settings(&self) -> &'static str {
        "history = \"gateway\""
    }

    fn speaks(&self, act: &AgentAct) -> bool {
        // It runs no tools, asks no one, and answers in words.
        !matches!(
            act,
            AgentAct::Call(_) | AgentAct::Result(..) | AgentAct::Ask(_) | AgentAct::Show(_) | AgentAct::State(_)
        )
    }

    fn plays(&self, turn: &Turn) -> bool {
        // An answer is one message.
        let texts = turn.agent.iter().filter(|act| matches!(act, AgentAct::Text(_))).count();
        texts < 2 && turn.agent.iter().all(|act| self.speaks(act))
    }

    fn answer(&self, request: &ReceivedRequest, stage: &Stage) -> Reply {
        let played = if request.path == "/v1/chat/completions" { stage.play(request) } else { None };
        let Some(play) = played else { return refused(404, "no such thing") };
        hear(&play, request);
        if let Ending::Refused(status) = play.turn.ending {
            return refused(status, "not now");
        }

        let mut answer =
            Answer { reply: Reply::events(), id: format!("chatcmpl-{}", play.mark), calls: 0, usage: None };
        answer.delta(&json!({ "role": "assistant", "content": "" }), None);
        for act in &play.turn.agent {
            answer.act(&play, act);
        }
        answer.end(&play)
    }
}

/// An error as OpenAI writes it.
fn refused(status: u16, words: &str) -> Reply {
    let kind = if status < 500 { "invalid_request_error" } else { "server_error" };
    let body = json!({ "error": { "message": words, "type": kind, "param": null, "code": null } });
    Reply::complete(status, JSON, body.to_string())
}

/// Reports what is new in a request.
fn hear(play: &Play<'_>, request: &ReceivedRequest) {
    use ContentKind as K;
    let body = request.json();
    assert_eq!(
        (&body["stream"], &body["model"]),
        (&json!(true), &json!("played")),
        "the request is a stream of the model"
    );
    if play.remembers(request, "") {
        play.heard([Item::new(K::History, "remembered")]);
    }

    let mut heard = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        let parts = match &message["content"] {
            Value::String(words) => vec![json!({ "type": "text", "text": words })],
            Value::Array(parts) => parts.clone(),
            _ => Vec::new(),
        };
        let texts = || parts.iter().filter_map(|part| part["text"].as_str());
        match message["role"].as_str() {
            Some("system" | "developer") => heard.extend(texts().map(|words| Item::new(K::Instructions, words))),
            Some("user") if texts().any(|text| play.words(text).is_some()) => {
                heard.extend(parts.iter().filter_map(|part| user_part(play, part)));
            }
            Some("tool")
                if message["tool_call_id"].as_str().is_some_and(|id| id.starts_with(&play.mark.to_string())) =>
            {
                heard.extend(texts().map(|output| Item::new(K::ClientOutput, output)));
            }
            _ => {}
        }
    }
    let tools = body["tools"].as_array().into_iter().flatten();
    heard.extend(
        tools.filter_map(|tool| tool["function"]["name"].as_str()).map(|name| Item::new(K::ToolDeclaration, name)),
    );
    heard.extend(body["temperature"].as_f64().map(|value| Item::new(K::Sampling, format!("temperature {value}"))));
    play.heard(heard);
}

/// A part of a user's message.
fn user_part(play: &Play<'_>, part: &Value) -> Option<Item> {
    use ContentKind as K;
    Some(match part["type"].as_str()? {
        "text" => Item::new(K::Text, play.words(part["text"].as_str()?)?),
        "image_url" => Item::new(K::ImageIn, part["image_url"]["url"].as_str()?),
        "input_audio" => Item::new(K::AudioIn, part["input_audio"]["data"].as_str()?),
        "video_url" => Item::new(K::VideoIn, part["video_url"]["url"].as_str()?),
        "file" => Item::new(K::FileIn, part["file"]["file_data"].as_str()?),
        _ => return None,
    })
}

/// An answer that grows.
struct Answer {
    reply: Reply,
    id: String,
    /// Calls so far.
    calls: usize,
    usage: Option<Value>,
}

impl Answer {
    fn chunk(&mut self, choices: &Value, usage: &Value) {
        let chunk = json!({
            "id": self.id, "object": "chat.completion.chunk", "created": 1_795_168_800, "model": "played",
            "system_fingerprint": "fp_1", "choices": choices, "usage": usage,
        });
        self.reply = std::mem::take(&mut self.reply).frame(&chunk.to_string());
    }

    fn delta(&mut self, delta: &Value, finish_reason: Option<&str>) {
        let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason });
        self.chunk(&json!([choice]), &Value::Null);
    }

    fn pieces(&mut self, field: &str, pieces: &[&str]) {
        for piece in pieces {
            self.delta(&json!({ field: piece }), None);
        }
    }

    fn act(&mut self, play: &Play<'_>, act: &AgentAct) {
        match act {
            AgentAct::Text(pieces) => self.pieces("content", pieces),
            AgentAct::Reasoning(pieces) => self.pieces("reasoning_content", pieces),
            AgentAct::Refusal(pieces) => self.pieces("refusal", pieces),
            AgentAct::ClientCall(call) => {
                let index = self.calls;
                self.calls += 1;
                let function = json!({ "name": call.tool, "arguments": "" });
                let begun =
                    json!({ "index": index, "id": play.id(call.name), "type": "function", "function": function });
                self.delta(&json!({ "tool_calls": [begun] }), None);
                for piece in call.arguments {
                    let more = json!({ "index": index, "function": { "arguments": piece } });
                    self.delta(&json!({ "tool_calls": [more] }), None);
                }
            }
            AgentAct::Cite(url, title) => {
                let citation = json!({ "url": url, "title": title, "start_index": 0, "end_index": 2 });
                self.delta(&json!({ "annotations": [{ "type": "url_citation", "url_citation": citation }] }), None);
            }
            AgentAct::Usage(input, output) => {
                let usage =
                    json!({ "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output });
                self.usage = Some(usage);
            }
            AgentAct::Unknown => self.delta(&json!({ "weather": "sunny" }), None),
            AgentAct::Hang => self.reply = std::mem::take(&mut self.reply).hang(),
            AgentAct::Call(_) | AgentAct::Result(..) | AgentAct::Ask(_) | AgentAct::Show(_) | AgentAct::State(_) => {
                unreachable!("no word for it")
            }
        }
    }

    fn end(mut self, play: &Play<'_>) -> Reply {
        let reason = match play.turn.ending {
            Ending::Completed if self.calls > 0 => "tool_calls",
            Ending::Completed => "stop",
            Ending::Incomplete("content_filter") => "content_filter",
            Ending::Incomplete(_) => "length",
            Ending::Failed(words) => {
                let error =
                    json!({ "error": { "message": words, "type": "server_error", "param": null, "code": null } });
                return self.reply.frame(&error.to_string()).done();
            }
            Ending::BrokenOff => return self.reply.close(),
            Ending::Refused(_) => unreachable!("answered at once"),
        };
        self.delta(&json!({}), Some(reason));
        if let Some(usage) = self.usage.take() {
            self.chunk(&json!([]), &usage);
        }
        self.reply.frame("[DONE]").done()
    }
}
