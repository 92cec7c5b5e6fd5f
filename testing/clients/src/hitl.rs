//! A client of the human-in-the-loop REST service: it sends queries and decisions, and reads the messages that it has
//! not seen.

use interlingua_core::loss::ContentKind as K;
use interlingua_core::pending::Decision;
use interlingua_core_testkit::scenario::{ClientAct, Item};
use serde_json::{Value, json};

use crate::frames::{list, text};
use crate::{Background, End, Open, Request, ScriptedClient, ShownTurn, Talk};

/// See the module.
#[derive(Debug)]
pub(crate) struct Hitl;

impl ScriptedClient for Hitl {
    fn protocol(&self) -> &'static str {
        "hitl"
    }

    fn route(&self) -> &'static str {
        "/hitl/{agent}"
    }

    fn can(&self, act: &ClientAct) -> bool {
        // A query is one text.
        !matches!(
            act,
            ClientAct::Attach(_)
                | ClientAct::Declare(_)
                | ClientAct::Temperature
                | ClientAct::Fail(..)
                | ClientAct::Picture(..)
        )
    }

    fn answers_alone(&self, _: &ClientAct) -> bool {
        true
    }

    fn leaves_runs_behind(&self) -> bool {
        true
    }

    fn cancel(&self, _: &str, talk: &Talk) -> Option<Request> {
        let path = format!("/hitl/{}/agent/session/{}/{}", talk.agent, talk.session, talk.session);
        Some(Request { method: "DELETE", path, headers: Vec::new(), body: String::new() })
    }

    fn background(&self) -> Option<&dyn Background> {
        Some(self)
    }

    fn request(&self, acts: &[ClientAct], talk: &mut Talk) -> Request {
        let mut body = json!({ "user_id": talk.session, "session_id": talk.session });
        let answer = acts.iter().find(|act| act.answers().is_some());
        if let Some(answer) = answer {
            let (response_type, args) = resume(answer);
            body["response_type"] = json!(response_type);
            body["args"] = args;
            return Request::post(format!("/hitl/{}/agent/resume", talk.agent), &body);
        }
        for act in acts {
            match act {
                ClientAct::Say(_) => body["query"] = json!(talk.words(acts)),
                ClientAct::Instruct(words) => body["system_message"] = json!(words),
                _ => {}
            }
        }
        Request::post(format!("/hitl/{}/agent/invoke", talk.agent), &body)
    }

    fn read(&self, status: u16, body: &str, talk: &mut Talk) -> ShownTurn {
        let answer: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"));
        if status != 200 {
            assert!(answer.get("detail").is_some(), "an error has a detail: {body}");
            return ShownTurn { end: Some(End::Refused(status)), ..ShownTurn::default() };
        }
        for name in ["session_id", "status", "timestamp", "message", "result", "interrupt_data"] {
            assert!(answer.get(name).is_some(), "every key is present: {body}");
        }

        let mut shown = ShownTurn::default();
        talk.open.clear();
        shown.end = Some(match text(&answer, "status") {
            "completed" => {
                let messages: Vec<&Value> = list(&answer["result"], "messages").collect();
                for message in &messages[talk.seen.min(messages.len())..] {
                    read_message(message, &mut shown.items);
                }
                talk.seen = messages.len();
                End::Completed
            }
            "interrupted" => {
                ask(&answer["interrupt_data"], &mut shown.items);
                talk.open.push(Open { id: text(&answer, "session_id").to_owned(), what: "interrupt".to_owned() });
                End::Completed
            }
            "error" => End::Failed,
            other => panic!("an answer with status {other:?}"),
        });
        shown
    }
}

impl Background for Hitl {
    fn begin(&self, acts: &[ClientAct], talk: &Talk) -> Request {
        self.request(acts, &mut talk.clone())
    }

    fn is_answered(&self) -> bool {
        // A query is answered at its end. Its client leaves, and asks for the session's status.
        false
    }

    fn began(&self, body: &str, _: &mut Talk) {
        panic!("an answer to a client that left: {body}");
    }

    fn poll(&self, talk: &Talk) -> Option<Request> {
        Some(Request::get(format!("/hitl/{}/agent/status/{}/{}", talk.agent, talk.session, talk.session)))
    }

    fn polled(&self, body: &str, talk: &mut Talk) -> Option<ShownTurn> {
        let status: Value = serde_json::from_str(body).expect("JSON");
        let is_over = !matches!(text(&status, "status"), "running" | "idle");
        is_over.then(|| self.read(200, &status["last_response"].to_string(), talk))
    }
}

fn resume(act: &ClientAct) -> (&'static str, Value) {
    let json_or_text = |value: &str| serde_json::from_str(value).unwrap_or_else(|_| json!(value));
    match act {
        ClientAct::Decide(_, Decision::Accept) | ClientAct::LoggedIn(_) => ("accept", Value::Null),
        ClientAct::Decide(_, Decision::Reject) => ("reject", Value::Null),
        ClientAct::Decide(_, Decision::Cancel) => ("ignore", Value::Null),
        ClientAct::Decide(_, decision) => (decision.as_str(), Value::Null),
        ClientAct::Edit(_, arguments) => ("edit", json!({ "args": json_or_text(arguments) })),
        ClientAct::Respond(_, words) | ClientAct::Output(_, words) => ("response", json!({ "args": words })),
        ClientAct::Answer(_, value) => ("response", json!({ "args": json_or_text(value) })),
        _ => panic!("no answer: {act:?}"),
    }
}

fn read_message(message: &Value, items: &mut Vec<Item>) {
    match text(message, "type") {
        "human" | "system" => {}
        "ai" => {
            let reasoning = message["additional_kwargs"]["reasoning_content"].as_str();
            items.extend(reasoning.map(|words| Item::new(K::Reasoning, words)));
            let words = text(message, "content");
            if !words.is_empty() {
                items.push(Item::new(K::Text, words));
            }
            for call in list(message, "tool_calls") {
                items.push(Item::call(K::AgentCall, text(call, "name"), &call["args"].to_string()));
            }
        }
        "tool" => items.push(Item::new(K::AgentOutput, text(message, "content"))),
        other => panic!("a message of type {other:?}"),
    }
}

fn ask(data: &Value, items: &mut Vec<Item>) {
    let request = &data["action_request"];
    match text(data, "interrupt_type") {
        "tool" => items.push(Item::call(K::ClientCall, text(request, "action"), &request["args"].to_string())),
        "input" => {
            items.push(Item::new(K::Question, text(data, "description")));
            let schema = Some(&data["response_schema"]).filter(|schema| schema.is_object());
            items.extend(schema.map(|schema| Item::new(K::Schema, schema.to_string())));
        }
        "auth" => items
            .push(Item::new(K::Login, request["args"]["url"].as_str().or(data["url"].as_str()).unwrap_or_default())),
        _ => items.push(Item::call(K::Approval, text(request, "action"), &request["args"].to_string())),
    }
}
