//! A model server that speaks Anthropic Messages as the original does: it remembers nothing, sends its answer block by
//! block, runs tools of MCP servers itself, and refuses a conversation that breaks its rules.
//!
//! Not here: answers that break the protocol (the connector's own tests).

use interlingua_core::loss::ContentKind;
use interlingua_core_testkit::scenario::{AgentAct, Call, Ending, Item, Mark, Turn, normal};
use serde_json::{Value, json};

use crate::{Play, ReceivedRequest, Reply, ScriptedAgent, Stage};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct AnthropicMessages {
    pub(crate) dialect: Dialect,
}

/// Differences between servers in their output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// The original.
    #[default]
    Anthropic,
    /// LiteLLM: the cost at the end alone, no pings, every block with the same index, a call's arguments in one piece.
    LiteLlm,
    /// Imitations such as Kimi's: thoughts without a signature, a space less behind the colons, no name of the event, a
    /// mark at the end.
    Imitation,
}

impl ScriptedAgent for AnthropicMessages {
    fn protocol(&self) -> &'static str {
        "anthropic-messages"
    }

    fn path(&self) -> &'static str {
        ""
    }

    fn settings(&self) -> &'static str {
        "options = { model = \"scripted\" }"
    }

    fn agent_settings(&self) -> &'static str {
        "history = \"gateway\""
    }

    fn speaks(&self, act: &AgentAct) -> bool {
        // It shows nothing, asks nothing, and has no state.
        !matches!(act, AgentAct::Show(_) | AgentAct::Ask(_) | AgentAct::State(_))
    }

    fn plays(&self, turn: &Turn) -> bool {
        // Filters make it refuse, which is another end.
        turn.ending != Ending::Incomplete("content_filter") && turn.agent.iter().all(|act| self.speaks(act))
    }

    fn answer(&self, request: &ReceivedRequest, stage: &Stage) -> Reply {
        let Some(play) = stage.play(request).filter(|_| request.path.ends_with("/v1/messages")) else {
            return refusal(404, "not_found_error", "Not found.");
        };
        let body = request.json();
        let thoughts = thoughts_before(&play, stage).filter(|_| self.dialect != Dialect::Imitation);
        if let Err(complaint) = check(&body).and_then(|()| check_thoughts(&body, thoughts.as_deref())) {
            return refusal(400, "invalid_request_error", &complaint);
        }
        note_received(&play, request, &body);
        if let Ending::Refused(status) = play.turn.ending {
            return refusal(status, "api_error", "not now");
        }

        let mut answer = Answer::begin(&play, self.dialect);
        let mut acts = play.turn.agent.iter().peekable();
        while let Some(act) = acts.next() {
            let source = match acts.peek() {
                Some(AgentAct::Cite(url, title)) => Some((*url, *title)),
                _ => None,
            };
            answer.act(&play, act, source);
        }
        answer.end(&play)
    }
}

fn refusal(status: u16, kind: &str, message: &str) -> Reply {
    let body = json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_1" });
    Reply::complete(status, &[("content-type", "application/json")], body.to_string())
}

fn blocks(message: &Value) -> Vec<Value> {
    match &message["content"] {
        Value::String(text) => vec![json!({ "type": "text", "text": text })],
        content => content.as_array().cloned().unwrap_or_default(),
    }
}

/// The errors of the original.
fn check(body: &Value) -> Result<(), String> {
    for (field, is_there) in [
        ("model", body["model"].is_string()),
        ("max_tokens", body["max_tokens"].as_u64().is_some_and(|limit| limit > 0)),
        ("messages", body["messages"].as_array().is_some_and(|messages| !messages.is_empty())),
        ("stream", body["stream"] == json!(true)),
    ] {
        if !is_there {
            return Err(format!("{field}: field required"));
        }
    }

    let mut open: Vec<String> = Vec::new();
    let mut last = "assistant";
    for (place, message) in body["messages"].as_array().into_iter().flatten().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role == last || !matches!(role, "user" | "assistant") {
            return Err(format!("messages.{place}: roles must alternate between \"user\" and \"assistant\""));
        }
        last = if role == "user" { "user" } else { "assistant" };

        let blocks = blocks(message);
        if blocks.is_empty() {
            return Err(format!("messages.{place}: must have non-empty content"));
        }
        let results: Vec<&str> = blocks
            .iter()
            .take_while(|block| block["type"] == "tool_result")
            .filter_map(|block| block["tool_use_id"].as_str())
            .collect();
        if let Some(call) = open.iter().find(|call| !results.contains(&call.as_str())) {
            return Err(format!("messages.{place}: `tool_use` ids without `tool_result` blocks: {call}"));
        }
        if let Some(result) = results.iter().find(|result| !open.iter().any(|call| call == *result)) {
            return Err(format!("messages.{place}: unexpected `tool_use_id`: {result}"));
        }
        open = blocks
            .iter()
            .filter(|block| block["type"] == "tool_use")
            .filter_map(|block| Some(block["id"].as_str()?.to_owned()))
            .collect();
        if let Some(wrong) = blocks.iter().find_map(|block| complaint(block)) {
            return Err(format!("messages.{place}: {wrong}"));
        }
    }
    open.first().map_or(Ok(()), |call| Err(format!("`tool_use` ids without `tool_result` blocks: {call}")))
}

/// The model's reasoning of the previous turn, if this request contains the result of one of its calls.
fn thoughts_before(play: &Play<'_>, stage: &Stage) -> Option<String> {
    let turn = play.mark.turn.checked_sub(1)?;
    let before = stage.peek(Mark { turn, ..play.mark })?.turn.agent;
    let has_call = before.iter().any(|act| matches!(act, AgentAct::ClientCall(_)));
    before.iter().filter(|_| has_call).find_map(|act| match act {
        AgentAct::Reasoning(pieces) => Some(pieces.concat()),
        _ => None,
    })
}

/// A model with reasoning continues only if its reasoning before a call is sent back with the call's result.
fn check_thoughts(body: &Value, thoughts: Option<&str>) -> Result<(), String> {
    let Some(thoughts) = thoughts else { return Ok(()) };
    let messages = body["messages"].as_array().into_iter().flatten();
    let is_there = messages.flat_map(blocks).any(|block| block["type"] == "thinking" && block["thinking"] == thoughts);
    if is_there { Ok(()) } else { Err("Expected `thinking` before `tool_use`".to_owned()) }
}

fn complaint(block: &Value) -> Option<&'static str> {
    let is_blank = |name: &str| block[name].as_str().is_none_or(|text| text.trim().is_empty());
    let is_name = |name: &str| {
        let text = block[name].as_str().unwrap_or_default();
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    match block["type"].as_str().unwrap_or_default() {
        "text" if is_blank("text") => Some("text content blocks must be non-empty"),
        "tool_use" if !is_name("id") || !is_name("name") => Some("String should match pattern '^[a-zA-Z0-9_-]+$'"),
        "tool_use" if !block["input"].is_object() => Some("tool_use.input: Input should be a valid dictionary"),
        "thinking" if block["signature"] != "c2lnbmVk" => Some("Invalid `signature` in `thinking` block"),
        _ => None,
    }
}

/// Reports what is new in a request.
fn note_received(play: &Play<'_>, request: &ReceivedRequest, body: &Value) {
    use ContentKind as K;
    if play.remembers(request, "") {
        play.received([Item::new(K::History, "remembered")]);
    }

    let mut received = Vec::new();
    let system = body["system"].as_array().into_iter().flatten();
    received.extend(system.filter_map(|block| block["text"].as_str()).map(|text| Item::new(K::Instructions, text)));
    for message in body["messages"].as_array().into_iter().flatten().filter(|message| message["role"] == "user") {
        let blocks = blocks(message);
        let is_new = blocks.iter().filter_map(|block| block["text"].as_str()).any(|text| play.words(text).is_some());
        received.extend(blocks.iter().flat_map(|block| user_block(play, block, is_new)));
    }

    let tools = body["tools"].as_array().into_iter().flatten();
    received.extend(tools.filter_map(|tool| tool["name"].as_str()).map(|name| Item::new(K::ToolDeclaration, name)));
    received.extend(body["temperature"].as_f64().map(|value| Item::new(K::Sampling, format!("temperature {value}"))));
    play.received(received);
}

/// A block of the user. `is_new`: its message is of this turn.
fn user_block(play: &Play<'_>, block: &Value, is_new: bool) -> Vec<Item> {
    let kind = block["type"].as_str().unwrap_or_default();
    if kind == "tool_result" {
        let is_answer = block["tool_use_id"].as_str().is_some_and(|id| id.starts_with(&play.mark.to_string()));
        return if is_answer { outputs(block) } else { Vec::new() };
    }
    if is_new { new_block(play, kind, block).into_iter().collect() } else { Vec::new() }
}

/// The result of a call: its text, pictures, and whether the tool failed.
fn outputs(result: &Value) -> Vec<Item> {
    use ContentKind as K;
    let mut items = crate::tool_output::items(&result["content"]);
    if result["is_error"] == true {
        items.push(Item::new(K::ToolFailure, "failed"));
    }
    items
}

fn new_block(play: &Play<'_>, kind: &str, block: &Value) -> Option<Item> {
    use ContentKind as K;
    let source = &block["source"];
    Some(match kind {
        "text" => {
            let text = block["text"].as_str()?;
            match play.words(text) {
                Some(words) => Item::new(K::Text, words),
                // Data have no form of their own here.
                None if text.starts_with('{') => Item::new(K::DataIn, normal(text)),
                None => return None,
            }
        }
        "image" => Item::new(K::ImageIn, source["url"].as_str().or(source["data"].as_str())?),
        "document" => Item::new(K::FileIn, source["url"].as_str().or(source["data"].as_str())?),
        _ => return None,
    })
}

/// An answer that grows.
struct Answer {
    dialect: Dialect,
    reply: Reply,
    input_tokens: u64,
    blocks: usize,
    has_calls: bool,
    refusal: Option<String>,
    output_tokens: u64,
}

impl Answer {
    fn begin(play: &Play<'_>, dialect: Dialect) -> Self {
        let usage = play.turn.agent.iter().find_map(|act| match act {
            AgentAct::Usage(input, output) => Some((*input, *output)),
            _ => None,
        });
        let (input, output) = usage.unwrap_or_default();
        let mut answer = Self {
            dialect,
            reply: Reply::events(),
            input_tokens: input,
            blocks: 0,
            has_calls: false,
            refusal: None,
            output_tokens: output,
        };
        let is_known = dialect != Dialect::LiteLlm;
        // The id must not look like a mark.
        let message = json!({
            "id": format!("msg_{}x{}", play.mark.play, play.mark.turn), "type": "message", "role": "assistant",
            "model": "scripted", "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": { "input_tokens": if is_known { input } else { 0 }, "output_tokens": u64::from(usage.is_some() && is_known),
                       "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0 },
        });
        answer.event("message_start", json!({ "message": message }));
        if is_known {
            answer.event("ping", json!({}));
        }
        answer
    }

    fn event(&mut self, kind: &str, fields: Value) {
        let mut event = json!({ "type": kind });
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        let frame = match self.dialect {
            Dialect::Imitation => format!("data:{event}\n\n"),
            _ => format!("event: {kind}\ndata: {event}\n\n"),
        };
        self.reply = std::mem::take(&mut self.reply).chunk(frame);
    }

    fn block(&mut self, start: &Value, deltas: impl IntoIterator<Item = Value>) {
        let index = if self.dialect == Dialect::LiteLlm { 0 } else { self.blocks };
        self.event("content_block_start", json!({ "index": index, "content_block": start }));
        for delta in deltas {
            self.event("content_block_delta", json!({ "index": index, "delta": delta }));
        }
        self.event("content_block_stop", json!({ "index": index }));
        self.blocks += 1;
    }

    fn act(&mut self, play: &Play<'_>, act: &AgentAct, source: Option<(&str, &str)>) {
        match act {
            AgentAct::Text(pieces) => {
                let text = pieces.iter().map(|piece| json!({ "type": "text_delta", "text": piece }));
                let citation = source.map(|(url, title)| {
                    let citation = json!({ "type": "web_search_result_location", "url": url, "title": title,
                        "cited_text": "It", "encrypted_index": "x" });
                    json!({ "type": "citations_delta", "citation": citation })
                });
                self.block(&json!({ "type": "text", "text": "" }), text.chain(citation));
            }
            AgentAct::Reasoning(pieces) => {
                let thoughts = pieces.iter().map(|piece| json!({ "type": "thinking_delta", "thinking": piece }));
                let signature = json!({ "type": "signature_delta", "signature": "c2lnbmVk" });
                let start = json!({ "type": "thinking", "thinking": "", "signature": "" });
                let signature = Some(signature).filter(|_| self.dialect != Dialect::Imitation);
                self.block(&start, thoughts.chain(signature));
            }
            AgentAct::Refusal(pieces) => self.refusal = Some(pieces.concat()),
            AgentAct::Call(call) => {
                let start = json!({ "type": "mcp_tool_use", "id": play.id(call.name), "name": call.tool,
                    "server_name": "tools", "input": {} });
                self.call(&start, call);
            }
            AgentAct::ClientCall(call) => {
                let start = json!({ "type": "tool_use", "id": play.id(call.name), "name": call.tool, "input": {} });
                self.call(&start, call);
                self.has_calls = true;
            }
            AgentAct::Result(name, output, is_failed) => {
                let start = json!({ "type": "mcp_tool_result", "tool_use_id": play.id(name), "is_error": is_failed,
                    "content": [{ "type": "text", "text": output }] });
                self.block(&start, []);
            }
            AgentAct::Unknown => self.event("weather", json!({ "sky": "blue" })),
            AgentAct::Wait => self.reply = std::mem::take(&mut self.reply).wait(&play.gate()),
            AgentAct::Hang => self.reply = std::mem::take(&mut self.reply).hang(),
            // Written with the text before it, and at the start and the end.
            AgentAct::Cite(..) | AgentAct::Usage(..) => {}
            AgentAct::Show(_) | AgentAct::Ask(_) | AgentAct::State(_) => unreachable!("no word for it"),
        }
    }

    fn call(&mut self, start: &Value, call: &Call) {
        let whole = call.whole();
        let pieces = match self.dialect {
            Dialect::LiteLlm => vec![whole.as_str()],
            _ => std::iter::once("").chain(call.arguments.iter().copied()).collect(),
        };
        let deltas: Vec<Value> =
            pieces.iter().map(|piece| json!({ "type": "input_json_delta", "partial_json": piece })).collect();
        self.block(start, deltas);
    }

    fn end(mut self, play: &Play<'_>) -> Reply {
        let reason = match play.turn.ending {
            Ending::Completed if self.refusal.is_some() => "refusal",
            Ending::Completed if self.has_calls => "tool_use",
            Ending::Completed => "end_turn",
            Ending::Incomplete(_) => "max_tokens",
            Ending::Failed(words) => {
                self.event("error", json!({ "error": { "type": "api_error", "message": words } }));
                return self.reply.done();
            }
            Ending::BrokenOff => return self.reply.close(),
            Ending::Refused(_) => unreachable!("answered at once"),
        };

        let mut delta = json!({ "stop_reason": reason, "stop_sequence": null });
        if let Some(words) = self.refusal.take() {
            delta["stop_details"] = json!({ "type": "refusal", "category": null, "explanation": words });
        }
        let mut usage = json!({ "output_tokens": self.output_tokens });
        if self.dialect == Dialect::LiteLlm {
            usage["input_tokens"] = json!(self.input_tokens);
        }
        self.event("message_delta", json!({ "delta": delta, "usage": usage }));
        self.event("message_stop", json!({}));
        if self.dialect == Dialect::Imitation {
            self.reply = std::mem::take(&mut self.reply).frame("[DONE]");
        }
        self.reply.done()
    }
}
