//! An agent behind the human-in-the-loop agent service, as its published description has it: one session for each user,
//! the whole conversation with every answer, one question at a time.
//!
//! Not here: the later variants of the service.

use std::collections::HashMap;
use std::sync::Mutex;

use interlingua_core::loss::ContentKind;
use interlingua_core_testkit::scenario::{AgentAct, Ask, Call, Ending, Item, Turn, normal};
use serde_json::{Value, json};

use crate::{Play, ReceivedRequest, Reply, ScriptedAgent, Stage};

/// See the module.
#[derive(Debug)]
pub(crate) struct Hitl {
    /// The data of a question about a call.
    interrupt: fn(&Call) -> Value,
    users: Mutex<HashMap<String, User>>,
}

impl Default for Hitl {
    fn default() -> Self {
        Self::new(interrupt)
    }
}

impl Hitl {
    /// A service whose questions about calls have this data.
    pub(crate) fn new(interrupt: fn(&Call) -> Value) -> Self {
        Self { interrupt, users: Mutex::default() }
    }
}

/// A user's session.
#[derive(Clone, Debug, Default)]
struct User {
    messages: Vec<Value>,
    query: Option<String>,
    answer: Option<Value>,
    /// The time of the last answer: a clock that only counts.
    clock: u32,
}

impl ScriptedAgent for Hitl {
    fn protocol(&self) -> &'static str {
        "hitl"
    }

    fn path(&self) -> &'static str {
        ""
    }

    fn settings(&self) -> &'static str {
        "options = { poll_interval = \"10ms\", max_poll_interval = \"20ms\" }"
    }

    fn speaks(&self, act: &AgentAct) -> bool {
        // Texts, thoughts and calls, and questions about calls alone.
        matches!(
            act,
            AgentAct::Text(_)
                | AgentAct::Reasoning(_)
                | AgentAct::Call(_)
                | AgentAct::Result(..)
                | AgentAct::Ask(Ask::Approval(_))
                | AgentAct::Unknown
                | AgentAct::Wait
                | AgentAct::Hang
        )
    }

    fn streams(&self) -> bool {
        false
    }

    fn plays(&self, turn: &Turn) -> bool {
        // An answer that failed or asks has nothing else in it, and one question at a time.
        let is_alone = match turn.ending {
            Ending::Failed(_) | Ending::BrokenOff => turn.agent.is_empty(),
            Ending::Incomplete(_) => false,
            _ => true,
        };
        let asks = turn.agent.iter().any(|act| matches!(act, AgentAct::Ask(_)));
        is_alone && (!asks || turn.agent.len() == 1) && turn.agent.iter().all(|act| self.speaks(act))
    }

    fn answer(&self, request: &ReceivedRequest, stage: &Stage) -> Reply {
        match request.path.as_str() {
            "/agent/invoke" | "/agent/resume" => self.act(request, stage),
            path => match path.strip_prefix("/agent/status/") {
                Some(user) => self.status(user),
                None => Reply::complete(404, JSON, r#"{"detail":"Not Found"}"#),
            },
        }
    }
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

impl Hitl {
    fn act(&self, request: &ReceivedRequest, stage: &Stage) -> Reply {
        let body = request.json();
        let Some(play) = stage.play(request) else {
            return Reply::complete(422, JSON, r#"{"detail":[{"loc":["body","query"],"msg":"field required"}]}"#);
        };
        note_received(&play, request, &body);
        if let Ending::Refused(status) = play.turn.ending {
            return Reply::complete(status, JSON, r#"{"detail":"not now"}"#);
        }

        let user_id = body["user_id"].as_str().unwrap_or_default().to_owned();
        let mut users = self.users.lock().expect("no player panics");
        let user = users.entry(user_id).or_default();
        if let Some(query) = body["query"].as_str() {
            user.messages.push(message("human", query));
            user.query = Some(query.to_owned());
        }
        user.clock += 1;
        let answer = answer(&play, user, self.interrupt);
        match play.turn.ending {
            // Half an answer, and the service forgets the rest.
            Ending::BrokenOff => {
                user.answer = None;
                Reply::head(200, JSON).chunk("{\"session_id\":").close()
            }
            _ if play.turn.agent.contains(&AgentAct::Hang) => Reply::silence(),
            _ => {
                user.answer = Some(answer.clone());
                let reply = Reply::complete(200, JSON, answer.to_string());
                if play.turn.agent.contains(&AgentAct::Wait) { reply.behind(&play.gate()) } else { reply }
            }
        }
    }

    fn status(&self, user_id: &str) -> Reply {
        let users = self.users.lock().expect("no player panics");
        let user = users.get(user_id).cloned().unwrap_or_default();
        let status = user.answer.as_ref().map_or(json!("not_found"), |answer| answer["status"].clone());
        let body = json!({
            "user_id": user_id, "session_id": "session", "status": status, "message": null,
            "last_query": user.query, "last_updated": user.clock, "last_response": user.answer,
        });
        Reply::complete(200, JSON, body.to_string())
    }
}

/// Reports what is new in a request.
fn note_received(play: &Play<'_>, request: &ReceivedRequest, body: &Value) {
    use ContentKind as K;
    let user = body["user_id"].as_str().unwrap_or_default();
    if play.remembers(request, user) {
        play.received([Item::new(K::History, "remembered")]);
    }
    play.note("session", user);

    let words = body["query"].as_str().and_then(|query| play.words(query));
    play.received(words.map(|words| Item::new(K::Text, words)));
    play.received(body["system_message"].as_str().map(|text| Item::new(K::Instructions, text)));
    let args = &body["args"]["args"];
    play.received(body["response_type"].as_str().map(|decision| match decision {
        "edit" => Item::new(K::ApprovalEdit, normal(&args.to_string())),
        "response" => Item::new(K::ApprovalReason, args.as_str().unwrap_or_default()),
        decision => Item::new(K::Approval, decision),
    }));
}

/// A message in the form of LangChain.
fn message(kind: &str, content: &str) -> Value {
    json!({
        "content": content, "additional_kwargs": {}, "response_metadata": {}, "type": kind, "name": null, "id": null,
    })
}

/// The answer to a call of the service.
fn answer(play: &Play<'_>, user: &mut User, interrupt: fn(&Call) -> Value) -> Value {
    // The next answer to a question contains the id of the session, which identifies its turn.
    let mut answer = json!({
        "session_id": play.id("session"), "status": "completed", "timestamp": f64::from(user.clock), "message": null,
        "result": null, "interrupt_data": null,
    });
    if let Ending::Failed(words) = play.turn.ending {
        answer["status"] = json!("error");
        answer["message"] = json!(words);
        return answer;
    }
    if let Some(AgentAct::Ask(Ask::Approval(call))) = play.turn.agent.first() {
        answer["status"] = json!("interrupted");
        answer["interrupt_data"] = interrupt(call);
        return answer;
    }

    let mut thoughts = None;
    for act in &play.turn.agent {
        match act {
            AgentAct::Reasoning(pieces) => thoughts = Some(pieces.concat()),
            AgentAct::Text(pieces) => {
                let mut said = message("ai", &pieces.concat());
                if let Some(thoughts) = thoughts.take() {
                    said["additional_kwargs"] = json!({ "reasoning_content": thoughts });
                }
                user.messages.push(said);
            }
            AgentAct::Call(call) => {
                let args: Value = serde_json::from_str(&call.whole()).expect("arguments are JSON");
                let mut said = message("ai", "");
                said["tool_calls"] =
                    json!([{ "name": call.tool, "args": args, "id": play.id(call.name), "type": "tool_call" }]);
                user.messages.push(said);
            }
            AgentAct::Result(name, output, is_failed) => {
                let mut said = message("tool", output);
                said["tool_call_id"] = json!(play.id(name));
                said["status"] = json!(if *is_failed { "error" } else { "success" });
                user.messages.push(said);
            }
            AgentAct::Unknown => user.messages.push(message("weather", "blue")),
            _ => {}
        }
    }
    answer["result"] = json!({ "messages": user.messages });
    answer
}

fn interrupt(call: &Call) -> Value {
    let args: Value = serde_json::from_str(&call.whole()).expect("arguments are JSON");
    json!({
        "action_request": { "action": call.tool, "args": args }, "config": null, "description": "May I?",
        "interrupt_type": "unknown",
    })
}
