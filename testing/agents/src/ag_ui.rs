//! An agent that speaks AG-UI 1.0 as LangGraph behind its integration does: it remembers a thread, asks with the
//! outcome of a run, and takes answers in `resume`.
//!
//! Not here: how other servers deviate (the tests of the connector, with recorded exchanges).

use interlingua_core::loss::ContentKind;
use interlingua_core_testkit::scenario::{AgentAct, Ask, Call, ClientAct, Ending, Item, Mark, Turn, normal};
use serde_json::{Value, json};

use crate::{Play, ReceivedRequest, Reply, ScriptedAgent, Stage};

/// See the module.
#[derive(Debug)]
pub(crate) struct AgUi {
    /// Makes the question about the calls of a turn that need an approval, each with its id.
    pub(crate) interrupts: fn(&[(String, Call)]) -> RunQuestions,
    /// Each run ends with a snapshot that lists its messages under other ids, as with nodes that return new messages.
    pub(crate) lists_messages: bool,
}

impl Default for AgUi {
    fn default() -> Self {
        Self { interrupts: reviews, lists_messages: false }
    }
}

/// Questions at the end of a run.
pub(crate) enum RunQuestions {
    /// Interrupts of its outcome.
    Outcome(Vec<Value>),
    /// A custom event, of servers before the protocol had interrupts.
    Event(Value),
}

/// LangGraph's review of each call.
fn reviews(calls: &[(String, Call)]) -> RunQuestions {
    let review = |(id, call): &(String, Call)| {
        let review = json!({
            "action_requests": [{ "name": call.tool, "args": arguments(call), "description": "May I?" }],
            "review_configs": [{ "action_name": call.tool, "allowed_decisions": ["approve", "edit", "reject"] }],
        });
        interrupt_of(id, &review)
    };
    RunQuestions::Outcome(calls.iter().map(review).collect())
}

/// An interrupt whose node passed this value to `interrupt()`.
pub(crate) fn interrupt_of(id: &str, value: &Value) -> Value {
    let metadata = json!({ "langgraph": { "raw": value, "ns": null, "resumable": null, "when": null } });
    json!({ "id": id, "reason": "langgraph:interrupt", "metadata": metadata })
}

pub(crate) fn arguments(call: &Call) -> Value {
    serde_json::from_str(&call.whole()).expect("arguments are JSON")
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

impl ScriptedAgent for AgUi {
    fn protocol(&self) -> &'static str {
        "ag-ui"
    }

    fn path(&self) -> &'static str {
        "/"
    }

    fn speaks(&self, act: &AgentAct) -> bool {
        // Its own messages are text, and it knows no login.
        !matches!(act, AgentAct::Refusal(_) | AgentAct::Cite(..) | AgentAct::Show(_) | AgentAct::Ask(Ask::Login(..)))
    }

    fn plays(&self, turn: &Turn) -> bool {
        // The review of an action allows no answer in the tool's place, and a run has no end but a good or a bad one.
        let responds = turn.client.iter().any(|act| matches!(act, ClientAct::Respond(..)));
        !responds && !matches!(turn.ending, Ending::Incomplete(_)) && turn.agent.iter().all(|act| self.speaks(act))
    }

    fn answer(&self, request: &ReceivedRequest, stage: &Stage) -> Reply {
        let body = request.json();
        let Some(play) = play_of(request, &body, stage) else { return refused(404) };
        for name in ["threadId", "runId"] {
            assert!(body[name].as_str().is_some_and(|id| !id.is_empty()), "{name} is missing: {body}");
        }
        note_request(&play, request, &body);
        if let Ending::Refused(status) = play.turn.ending {
            return refused(status);
        }

        let mut answer = Answer {
            reply: Reply::events(),
            ids: body,
            messages: 0,
            asked: Vec::new(),
            approvals: Vec::new(),
            usage: None,
            listed: vec![json!({ "id": "user", "role": "user", "content": "listed" })],
            lists_messages: self.lists_messages,
        };
        answer.run_event("RUN_STARTED", json!({}));
        for act in &play.turn.agent {
            answer.act(&play, act);
        }
        answer.end(&play, self.interrupts)
    }
}

/// The turn of a request. An answer in `forwardedProps` has no mark, but its thread is known.
fn play_of<'s>(request: &ReceivedRequest, body: &Value, stage: &'s Stage) -> Option<Play<'s>> {
    if body["forwardedProps"]["command"].get("resume").is_none() {
        return stage.play(request);
    }
    let mark = stage.of_session(body["threadId"].as_str()?)?;
    let next = Mark { turn: mark.turn + 1, ..mark };
    stage.keep_unmarked(request, next);
    stage.at(next)
}

/// An error as FastAPI writes it.
fn refused(status: u16) -> Reply {
    Reply::complete(status, JSON, r#"{"detail":"not now"}"#)
}

/// Reports what is new in a request.
fn note_request(play: &Play<'_>, request: &ReceivedRequest, body: &Value) {
    use ContentKind as K;
    let thread = body["threadId"].as_str().unwrap_or_default();
    if play.remembers(request, thread) {
        play.received([Item::new(K::History, "remembered")]);
    }
    play.note("session", thread);

    let mut items = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        assert!(message["id"].is_string(), "every message has an id: {message}");
        match (message["role"].as_str(), &message["content"]) {
            (Some("system"), Value::String(words)) => items.push(Item::new(K::Instructions, words)),
            (Some("user"), Value::String(words)) => {
                items.extend(play.words(words).map(|words| Item::new(K::Text, words)));
            }
            (Some("user"), Value::Array(parts)) => {
                let is_new =
                    parts.iter().filter_map(|part| part["text"].as_str()).any(|text| play.words(text).is_some());
                items.extend(parts.iter().filter(|_| is_new).filter_map(|part| user_part(play, part)));
            }
            (Some("tool"), output @ Value::String(_)) => {
                let is_new = message["toolCallId"].as_str().is_some_and(|id| id.starts_with(&play.mark.to_string()));
                if is_new {
                    items.extend(crate::tool_output::items(output));
                }
                let has_failed = is_new && message["error"].is_string();
                items.extend(has_failed.then(|| Item::new(K::ToolFailure, "failed")));
            }
            _ => {}
        }
    }
    items.extend(body["resume"].as_array().into_iter().flatten().map(answered));
    let tools = body["tools"].as_array().into_iter().flatten();
    items.extend(tools.filter_map(|tool| tool["name"].as_str()).map(|name| Item::new(K::ToolDeclaration, name)));
    play.received(items);
}

/// A part of a user's message.
fn user_part(play: &Play<'_>, part: &Value) -> Option<Item> {
    use ContentKind as K;
    let source = || part["source"]["value"].as_str();
    Some(match part["type"].as_str()? {
        "text" => Item::new(K::Text, play.words(part["text"].as_str()?)?),
        "image" => Item::new(K::ImageIn, source()?),
        "audio" => Item::new(K::AudioIn, source()?),
        "video" => Item::new(K::VideoIn, source()?),
        "document" => Item::new(K::FileIn, source()?),
        _ => return None,
    })
}

/// An answer to an interrupt.
fn answered(entry: &Value) -> Item {
    use ContentKind as K;
    if entry["status"] == "cancelled" {
        return Item::new(K::Approval, "cancel");
    }
    let payload = &entry["payload"];
    let decision = &payload["decisions"][0];
    match decision["type"].as_str() {
        Some("approve") => Item::new(K::Approval, "accept"),
        Some("edit") => Item::new(K::ApprovalEdit, normal(&decision["edited_action"]["args"].to_string())),
        Some(decision) => Item::new(K::Approval, decision),
        None => Item::new(K::Question, payload.as_str().map_or_else(|| payload.to_string(), str::to_owned)),
    }
}

/// An answer that grows.
struct Answer {
    reply: Reply,
    /// The request, which has the ids of thread and run.
    ids: Value,
    messages: u32,
    /// Interrupts, which come with the end.
    asked: Vec<Value>,
    /// Calls that need an approval, with their ids.
    approvals: Vec<(String, Call)>,
    usage: Option<Value>,
    /// The messages so far, under other ids.
    listed: Vec<Value>,
    lists_messages: bool,
}

impl Answer {
    fn list(&mut self, mut message: Value) {
        message["id"] = json!(format!("listed-{}", self.listed.len()));
        self.listed.push(message);
    }

    fn event(&mut self, kind: &str, mut fields: Value) {
        fields["type"] = json!(kind);
        self.reply = std::mem::take(&mut self.reply).frame(&fields.to_string());
    }

    /// An event that names thread and run.
    fn run_event(&mut self, kind: &str, mut fields: Value) {
        fields["threadId"] = self.ids["threadId"].clone();
        fields["runId"] = self.ids["runId"].clone();
        self.event(kind, fields);
    }

    fn message_id(&mut self, play: &Play<'_>) -> String {
        self.messages += 1;
        format!("lc_run--{}-{}", play.mark, self.messages)
    }

    fn act(&mut self, play: &Play<'_>, act: &AgentAct) {
        match act {
            AgentAct::Text(pieces) => {
                let id = self.message_id(play);
                self.event("TEXT_MESSAGE_START", json!({ "messageId": id, "role": "assistant" }));
                for piece in *pieces {
                    self.event("TEXT_MESSAGE_CONTENT", json!({ "messageId": id, "delta": piece }));
                }
                self.event("TEXT_MESSAGE_END", json!({ "messageId": id }));
                self.list(json!({ "role": "assistant", "content": pieces.concat() }));
            }
            AgentAct::Reasoning(pieces) => {
                let id = self.message_id(play);
                self.event("REASONING_START", json!({ "messageId": id }));
                self.event("REASONING_MESSAGE_START", json!({ "messageId": id, "role": "reasoning" }));
                for piece in *pieces {
                    self.event("REASONING_MESSAGE_CONTENT", json!({ "messageId": id, "delta": piece }));
                }
                self.event("REASONING_MESSAGE_END", json!({ "messageId": id }));
                self.event("REASONING_END", json!({ "messageId": id }));
                self.list(json!({ "role": "reasoning", "content": pieces.concat() }));
            }
            AgentAct::Call(call) | AgentAct::ClientCall(call) => self.call(play, call),
            AgentAct::Result(name, output, _) => {
                let id = play.id(name);
                self.event(
                    "TOOL_CALL_RESULT",
                    json!({ "messageId": id, "toolCallId": id, "content": output, "role": "tool" }),
                );
                self.list(json!({ "role": "tool", "toolCallId": id, "content": output }));
            }
            AgentAct::Ask(ask) => self.ask(play, ask),
            AgentAct::Usage(input, output) => {
                self.usage = Some(json!([{
                    "provider": "scripted", "inputTokens": input, "outputTokens": output, "totalTokens": input + output,
                }]));
            }
            AgentAct::State(json) => {
                let state: Value = serde_json::from_str(json).expect("state is JSON");
                self.event("STATE_SNAPSHOT", json!({ "snapshot": state }));
            }
            AgentAct::Unknown => self.event("WEATHER", json!({ "status": "sunny" })),
            AgentAct::Wait => self.reply = std::mem::take(&mut self.reply).wait(&play.gate()),
            AgentAct::Hang => self.reply = std::mem::take(&mut self.reply).hang(),
            AgentAct::Refusal(_) | AgentAct::Cite(..) | AgentAct::Show(_) => unreachable!("no word for it"),
        }
    }

    fn call(&mut self, play: &Play<'_>, call: &Call) {
        let id = play.id(call.name);
        self.event("TOOL_CALL_START", json!({ "toolCallId": id, "toolCallName": call.tool }));
        for piece in call.arguments {
            self.event("TOOL_CALL_ARGS", json!({ "toolCallId": id, "delta": piece }));
        }
        self.event("TOOL_CALL_END", json!({ "toolCallId": id }));
        let function = json!({ "name": call.tool, "arguments": call.whole() });
        let listed = json!({ "id": id, "type": "function", "function": function });
        self.list(json!({ "role": "assistant", "content": "", "toolCalls": [listed] }));
    }

    /// The question of a node's `interrupt()`.
    fn ask(&mut self, play: &Play<'_>, ask: &Ask) {
        self.asked.push(match ask {
            Ask::Approval(call) => {
                self.approvals.push((play.id(call.name), *call));
                return;
            }
            Ask::Question(name, words, schema) => {
                let mut asked = json!({ "id": play.id(name), "reason": "input_required", "message": words });
                if let Some(schema) = schema {
                    asked["responseSchema"] = serde_json::from_str(schema).expect("a schema");
                }
                asked
            }
            Ask::Login(..) => unreachable!("no word for it"),
        });
    }

    fn end(mut self, play: &Play<'_>, interrupts: fn(&[(String, Call)]) -> RunQuestions) -> Reply {
        if !self.approvals.is_empty() {
            match interrupts(&self.approvals) {
                RunQuestions::Outcome(asked) => self.asked.extend(asked),
                RunQuestions::Event(value) => self.event("CUSTOM", json!({ "name": "on_interrupt", "value": value })),
            }
        }
        match play.turn.ending {
            Ending::Completed => {
                if self.lists_messages {
                    let messages = std::mem::take(&mut self.listed);
                    self.event("MESSAGES_SNAPSHOT", json!({ "messages": messages }));
                }
                let mut end = json!({});
                if !self.asked.is_empty() {
                    end["outcome"] = json!({ "type": "interrupt", "interrupts": self.asked });
                }
                if let Some(usage) = self.usage.take() {
                    end["usage"] = usage;
                }
                self.run_event("RUN_FINISHED", end);
            }
            Ending::Failed(words) => self.event("RUN_ERROR", json!({ "message": words, "code": "SCRIPTED" })),
            Ending::BrokenOff => return self.reply.close(),
            Ending::Incomplete(_) | Ending::Refused(_) => unreachable!("not played, or answered at once"),
        }
        self.reply.done()
    }
}
