//! An agent on CloudBase's agent server 0.1.1, the last one that speaks AG-Kit: a small stream of events, one interrupt
//! at its end at most, and a mark behind every orderly end.
//!
//! Not here: what its LangGraph adapter does wrong (the connector's own tests).

use interlingua_core::loss::ContentKind;
use interlingua_core::pending::Decision;
use interlingua_core_testkit::scenario::{AgentAct, Ask, Call, ClientAct, Ending, Item, Turn, normal};
use serde_json::{Value, json};

use crate::{Play, ReceivedRequest, Reply, ScriptedAgent, Stage};

/// See the module.
#[derive(Debug)]
pub(crate) struct AgKit {
    /// The payload of a question about a call.
    pub(crate) approval: fn(&Call) -> Value,
}

impl Default for AgKit {
    fn default() -> Self {
        Self { approval }
    }
}

impl ScriptedAgent for AgKit {
    fn protocol(&self) -> &'static str {
        "ag-kit"
    }

    fn path(&self) -> &'static str {
        "/send-message"
    }

    fn speaks(&self, act: &AgentAct) -> bool {
        // A text, calls, results and interrupts are all there is.
        !matches!(
            act,
            AgentAct::Reasoning(_)
                | AgentAct::Refusal(_)
                | AgentAct::Show(_)
                | AgentAct::Cite(..)
                | AgentAct::Usage(..)
                | AgentAct::State(_)
                | AgentAct::Ask(Ask::Login(..))
        )
    }

    fn plays(&self, turn: &Turn) -> bool {
        // Nothing stands between two texts, and a stream has one interrupt.
        let is_text = |act: &AgentAct| matches!(act, AgentAct::Text(_));
        let are_joined = turn.agent.windows(2).any(|pair| pair.iter().all(is_text));
        let asks = turn.agent.iter().filter(|act| matches!(act, AgentAct::Ask(_))).count();
        // Its question offers to ignore it, and no rejection.
        let is_rejected = turn.client.iter().any(|act| matches!(act, ClientAct::Decide(_, Decision::Reject)));
        !are_joined
            && !is_rejected
            && asks <= 1
            && !matches!(turn.ending, Ending::Incomplete(_))
            && turn.agent.iter().all(|act| self.speaks(act))
    }

    fn answer(&self, request: &ReceivedRequest, stage: &Stage) -> Reply {
        let Some(play) = stage.play(request).filter(|_| request.path == "/send-message") else {
            return Reply::complete(404, JSON, r#"{"detail":"Not Found"}"#);
        };
        note_received(&play, request);
        if let Ending::Refused(status) = play.turn.ending {
            return Reply::complete(status, JSON, r#"{"detail":"not now"}"#);
        }
        let mut reply = Reply::events();
        for act in &play.turn.agent {
            reply = self.written(reply, &play, act);
        }
        match play.turn.ending {
            Ending::BrokenOff => reply.close(),
            Ending::Failed(words) => {
                reply.frame(&json!({ "type": "error", "error": words }).to_string()).frame("[DONE]").done()
            }
            _ => reply.frame("[DONE]").done(),
        }
    }
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

/// Reports what is new in a request.
fn note_received(play: &Play<'_>, request: &ReceivedRequest) {
    use ContentKind as K;
    let body = request.json();
    let conversation = body["conversationId"].as_str().unwrap_or_default();
    if play.remembers(request, conversation) {
        play.received([Item::new(K::History, "remembered")]);
    }
    play.note("session", conversation);

    let mut received = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        let content = message["content"].as_str().unwrap_or_default();
        match message["role"].as_str() {
            Some("system") => received.push(Item::new(K::Instructions, content)),
            Some("user") => received.extend(play.words(content).map(|words| Item::new(K::Text, words))),
            Some("tool") => {
                let id = message["toolCallId"].as_str().unwrap_or_default();
                let is_new = id.starts_with(&play.mark.to_string());
                if is_new {
                    received.extend(crate::tool_output::items(&message["content"]));
                }
            }
            _ => {}
        }
    }
    let tools = body["tools"].as_array().into_iter().flatten();
    received.extend(tools.filter_map(|tool| tool["name"].as_str()).map(|name| Item::new(K::ToolDeclaration, name)));
    received.extend(answered(play, &body["resume"]));
    play.received(received);
}

/// The answer to an interrupt. Its payload is text.
fn answered(play: &Play<'_>, resume: &Value) -> Option<Item> {
    use ContentKind as K;
    let id = resume["interruptId"].as_str().filter(|id| id.starts_with(&play.mark.to_string()))?;
    let payload = resume["payload"].as_str()?;
    if play.noted(id).as_deref() == Some("question") {
        return Some(Item::new(K::Question, normal(payload)));
    }
    let payload: Value = serde_json::from_str(payload).ok()?;
    Some(match payload["type"].as_str()? {
        "accept" => Item::new(K::Approval, "accept"),
        "edit" => Item::new(K::ApprovalEdit, normal(&payload["args"]["args"].to_string())),
        "response" => Item::new(K::ApprovalReason, payload["args"].as_str()?),
        "ignore" => Item::new(K::Approval, "cancel"),
        _ => return None,
    })
}

impl AgKit {
    fn written(&self, reply: Reply, play: &Play<'_>, act: &AgentAct) -> Reply {
        let event = |reply: Reply, event: Value| reply.frame(&event.to_string());
        match act {
            AgentAct::Text(pieces) => {
                pieces.iter().fold(reply, |reply, piece| event(reply, json!({ "type": "text", "content": piece })))
            }
            AgentAct::Call(call) | AgentAct::ClientCall(call) => {
                let id = play.id(call.name);
                let reply =
                    event(reply, json!({ "type": "tool-call-start", "toolCallId": id, "toolCallName": call.tool }));
                let reply = call.arguments.iter().fold(reply, |reply, delta| {
                    event(reply, json!({ "type": "tool-call-args", "toolCallId": id, "delta": delta }))
                });
                event(reply, json!({ "type": "tool-call-end", "toolCallId": id }))
            }
            AgentAct::Result(name, output, _) => {
                event(reply, json!({ "type": "tool-result", "toolCallId": play.id(name), "result": output }))
            }
            AgentAct::Ask(ask) => {
                let (id, payload) = self.asked(play, ask);
                event(
                    reply,
                    json!({ "type": "interrupt", "id": id, "reason": "agent requested interrupt", "payload": payload }),
                )
            }
            AgentAct::Unknown => event(reply, json!({ "type": "weather", "sky": "blue" })),
            AgentAct::Wait => reply.wait(&play.gate()),
            AgentAct::Hang => reply.hang(),
            AgentAct::Reasoning(_)
            | AgentAct::Refusal(_)
            | AgentAct::Show(_)
            | AgentAct::Cite(..)
            | AgentAct::Usage(..)
            | AgentAct::State(_) => unreachable!("no word for it"),
        }
    }

    /// The id and the payload of an interrupt, as LangGraph's agents write it.
    fn asked(&self, play: &Play<'_>, ask: &Ask) -> (String, Value) {
        match ask {
            Ask::Approval(call) => (play.id(call.name), (self.approval)(call)),
            Ask::Question(name, words, schema) => {
                play.note(&play.id(name), "question");
                let payload = match schema {
                    Some(schema) => {
                        let schema: Value = serde_json::from_str(schema).expect("a schema");
                        json!({ "message": words, "response_schema": schema })
                    }
                    None => json!(words),
                };
                (play.id(name), payload)
            }
            Ask::Login(..) => unreachable!("no word for it"),
        }
    }
}

fn approval(call: &Call) -> Value {
    let args: Value = serde_json::from_str(&call.whole()).expect("arguments are JSON");
    json!({
        "action_request": { "action": call.tool, "args": args },
        "config": { "allow_accept": true, "allow_edit": true, "allow_respond": true, "allow_ignore": true },
        "description": "May I?",
    })
}
