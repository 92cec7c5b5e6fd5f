//! Agents that read an answer with care, and agents that look at one mark of it alone. Each reading of a request yields
//! the call that the agent runs.
//!
//! Written from the protocols' own texts. Not here: the requests.

use serde_json::{Value, json};

use super::cases::{ASKED, TOOL};

/// The part of an answer that an agent looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// Words of a text: one for yes runs the call.
    Text,
    /// A flag, wherever it stands.
    Flag,
    /// Arguments: if there are any, the call runs with them.
    Arguments,
    /// The presence of an answer: whatever has no mark of a refusal runs the call.
    Presence,
}

pub(super) const READINGS: [Reading; 4] = [Reading::Text, Reading::Flag, Reading::Arguments, Reading::Presence];

/// The decision as an agent of the protocol takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Accept,
    Edit(Value),
    Respond(String),
    Reject,
    Cancel,
    /// No decision.
    Unclear,
}

/// One answer in a request to an agent.
#[derive(Clone, Debug)]
pub(super) struct AgentAnswer {
    /// The id of the question, as the agent gave it.
    pub(super) id: Option<String>,
    /// Its place among the decisions about one question with several calls.
    pub(super) place: Option<usize>,
    /// Everything about the decision.
    pub(super) value: Value,
    /// Texts beside the decision.
    texts: Vec<String>,
    pub(super) decision: Decision,
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text_of(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// All answers in a request to an agent of this protocol.
pub(super) fn answers(protocol: &str, body: &Value) -> Vec<AgentAnswer> {
    match protocol {
        "agent-api" => native(body),
        "a2a" => a2a(body),
        "ag-ui" => ag_ui(body),
        "ag-kit" => ag_kit(body),
        "agentscope" => agentscope(body),
        "hitl" => hitl(body),
        "responses" => responses(body),
        other => panic!("agents that speak {other} ask nothing"),
    }
}

fn native(body: &Value) -> Vec<AgentAnswer> {
    let messages = list(&body["input"]);
    let contents = messages.filter(|message| message["type"] == "mcp_approval_response");
    let data = contents.flat_map(|message| list(&message["content"])).map(|content| &content["data"]);
    let read = |data: &Value| {
        let extension = &data["interrupt"];
        let reason = text_of(&data["reason"]);
        let decision = match extension["decision"].as_str() {
            Some("accept") => Decision::Accept,
            Some("edit") => Decision::Edit(parsed(&extension["arguments"])),
            Some("respond") => Decision::Respond(text_of(&extension["text"]).unwrap_or_default()),
            Some("reject") => Decision::Reject,
            Some("cancel") => Decision::Cancel,
            Some(_) => Decision::Unclear,
            None => match (data["approve"].as_bool(), reason.as_deref()) {
                (Some(true), _) => Decision::Accept,
                (Some(false), Some("cancelled")) => Decision::Cancel,
                (Some(false), _) => Decision::Reject,
                (None, _) => Decision::Unclear,
            },
        };
        AgentAnswer {
            id: text_of(&data["approval_request_id"]),
            place: None,
            value: data.clone(),
            texts: vec![],
            decision,
        }
    };
    data.map(read).collect()
}

fn a2a(body: &Value) -> Vec<AgentAnswer> {
    if body["method"] == "CancelTask" {
        let value = json!({ "decision": "cancel" });
        return vec![AgentAnswer { id: None, place: None, value, texts: vec![], decision: Decision::Cancel }];
    }
    let parts: Vec<&Value> = list(&body["params"]["message"]["parts"]).collect();
    let texts: Vec<String> = parts.iter().filter_map(|part| text_of(&part["text"])).collect();
    let data = parts.iter().map(|part| &part["data"]).filter(|data| data.is_object());
    let read = |data: &Value| {
        let confirmed = data["response"]["confirmed"].as_bool();
        let decision = match (data["decision"].as_str(), data["approved"].as_bool().or(confirmed)) {
            (Some("accept"), None | Some(true)) | (None, Some(true)) => Decision::Accept,
            (Some("edit"), _) => Decision::Edit(data["arguments"].clone()),
            (Some("respond"), _) => Decision::Respond(text_of(&data["text"]).unwrap_or_default()),
            (Some("reject"), None | Some(false)) | (None, Some(false)) => Decision::Reject,
            (Some("cancel"), None | Some(false)) => Decision::Cancel,
            _ => Decision::Unclear,
        };
        let id = text_of(&data["interrupt_id"]).or(text_of(&data["id"]));
        AgentAnswer { id, place: None, value: data.clone(), texts: texts.clone(), decision }
    };
    let answers: Vec<AgentAnswer> = data.map(read).collect();
    if answers.is_empty() && !texts.is_empty() {
        let decision = match texts.concat().as_str() {
            "approved" => Decision::Accept,
            "rejected" => Decision::Reject,
            "cancelled" => Decision::Cancel,
            _ => Decision::Unclear,
        };
        return vec![AgentAnswer { id: None, place: None, value: Value::Null, texts, decision }];
    }
    answers
}

fn ag_ui(body: &Value) -> Vec<AgentAnswer> {
    let command = &body["forwardedProps"]["command"];
    let command = command.get("resume").map(|value| json!({ "status": "resolved", "payload": as_json(value) }));
    let messages = list(&body["messages"]).filter(|message| message["role"] == "user");
    // The first words ask for the call.
    let said: Vec<String> = messages.skip(1).filter_map(|message| text_of(&message["content"])).collect();
    let mut answers = Vec::new();
    for entry in list(&body["resume"]).cloned().chain(command) {
        let payload = &entry["payload"];
        let mut texts = said.clone();
        texts.extend(text_of(payload));
        let received = |place, value: Value, decision| AgentAnswer {
            id: text_of(&entry["interruptId"]),
            place,
            value,
            texts: texts.clone(),
            decision,
        };
        if entry["status"] == "cancelled" {
            answers.push(received(None, json!({ "status": "cancelled" }), Decision::Cancel));
        } else if payload["decisions"].is_array() {
            let each = list(&payload["decisions"]).enumerate();
            answers.extend(each.map(|(place, value)| received(Some(place), value.clone(), of_payload(value))));
        } else {
            answers.push(received(None, payload.clone(), of_payload(payload)));
        }
    }
    if answers.is_empty() && !said.is_empty() {
        answers.push(AgentAnswer {
            id: None,
            place: None,
            value: Value::Null,
            texts: said,
            decision: Decision::Unclear,
        });
    }
    answers
}

/// A decision in the words of LangGraph, or by a flag.
fn of_payload(payload: &Value) -> Decision {
    let payload = payload.as_array().and_then(|list| list.first()).unwrap_or(payload);
    let args = &payload["args"];
    match payload["type"].as_str() {
        Some("accept" | "approve") => Decision::Accept,
        Some("edit") => {
            let edited = &payload["edited_action"]["args"];
            Decision::Edit(if edited.is_null() { args["args"].clone() } else { edited.clone() })
        }
        Some("response" | "respond") => {
            Decision::Respond(text_of(args).or(text_of(&payload["message"])).unwrap_or_default())
        }
        Some("reject") => Decision::Reject,
        Some("ignore") => Decision::Cancel,
        Some(_) => Decision::Unclear,
        None => match (payload["approved"].as_bool(), &payload["editedArgs"]) {
            (Some(true), Value::Null) => Decision::Accept,
            (Some(true), edited) => Decision::Edit(edited.clone()),
            (Some(false), _) => Decision::Reject,
            (None, _) if *payload == false => Decision::Reject,
            _ => Decision::Unclear,
        },
    }
}

fn ag_kit(body: &Value) -> Vec<AgentAnswer> {
    let resume = &body["resume"];
    let said = list(&body["messages"]).filter(|message| message["role"] == "user");
    let mut texts: Vec<String> = said.filter_map(|message| text_of(&message["content"])).collect();
    if resume.is_null() {
        let words = AgentAnswer { id: None, place: None, value: Value::Null, texts, decision: Decision::Unclear };
        return vec![words];
    }
    let value = as_json(&resume["payload"]);
    texts.extend(text_of(&value));
    let decision = of_payload(&value);
    vec![AgentAnswer { id: text_of(&resume["interruptId"]), place: None, value, texts, decision }]
}

fn agentscope(body: &Value) -> Vec<AgentAnswer> {
    let read = |result: &Value| {
        let (call, confirmed) = (&result["tool_call"], result["confirmed"].as_bool());
        let input = parsed(&call["input"]);
        let is_asked = input == serde_json::from_str::<Value>(ASKED).expect("JSON") || call["name"] != TOOL;
        let decision = match confirmed {
            Some(true) if is_asked => Decision::Accept,
            Some(true) => Decision::Edit(input),
            Some(false) => Decision::Reject,
            None => Decision::Unclear,
        };
        // The service identifies a refused call by its arguments too: they are part of the name.
        let mut value = result.clone();
        if confirmed == Some(false) {
            value["tool_call"] = json!({ "id": call["id"], "name": call["name"] });
        }
        AgentAnswer { id: text_of(&call["id"]), place: None, value, texts: vec![], decision }
    };
    list(&body["input"]["confirm_results"]).map(read).collect()
}

fn hitl(body: &Value) -> Vec<AgentAnswer> {
    let args = &body["args"];
    let decision = match body["response_type"].as_str() {
        Some("accept" | "approve") => Decision::Accept,
        Some("edit") => {
            Decision::Edit(if args["args"].is_null() { args["edited_args"].clone() } else { args["args"].clone() })
        }
        Some("response") => Decision::Respond(text_of(&args["args"]).or(text_of(&args["message"])).unwrap_or_default()),
        Some("reject") => Decision::Reject,
        Some("ignore") => Decision::Cancel,
        _ => Decision::Unclear,
    };
    let edited = if args["args"].is_null() { &args["edited_args"] } else { &args["args"] };
    let value = json!({ "response_type": body["response_type"], "args": edited });
    vec![AgentAnswer {
        id: None,
        place: None,
        value,
        texts: body["query"].as_str().map(str::to_owned).into_iter().collect(),
        decision,
    }]
}

fn responses(body: &Value) -> Vec<AgentAnswer> {
    let answers = list(&body["input"]).filter(|item| item["type"] == "mcp_approval_response");
    let read = |item: &Value| {
        let decision = match item["approve"].as_bool() {
            Some(true) => Decision::Accept,
            Some(false) => Decision::Reject,
            None => Decision::Unclear,
        };
        AgentAnswer {
            id: text_of(&item["approval_request_id"]),
            place: None,
            value: item.clone(),
            texts: vec![],
            decision,
        }
    };
    answers.map(read).collect()
}

/// JSON, or its text.
fn as_json(value: &Value) -> Value {
    value.as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_else(|| value.clone())
}

fn parsed(value: &Value) -> Value {
    as_json(value)
}

impl AgentAnswer {
    /// The arguments with which an agent runs the call that looks at this alone. `None`: it runs nothing.
    pub(super) fn runs(&self, reading: Reading, asked: &str) -> Option<Value> {
        let asked = || serde_json::from_str(asked).expect("JSON");
        match reading {
            Reading::Text => self.texts.iter().any(|text| says_yes(text)).then(asked),
            Reading::Flag => has_flag(&self.value, true).then(asked),
            Reading::Arguments => arguments(&self.value),
            Reading::Presence => (!refuses(&self.value)).then(|| arguments(&self.value).unwrap_or_else(asked)),
        }
    }
}

fn says_yes(text: &str) -> bool {
    const WORDS: [&str; 8] = ["yes", "ok", "accept", "accepted", "approve", "approved", "confirm", "confirmed"];
    let words = text.split(|letter: char| !letter.is_alphanumeric()).map(str::to_lowercase);
    words.into_iter().any(|word| WORDS.contains(&word.as_str()))
}

const FLAGS: [&str; 6] = ["approved", "approve", "accepted", "accept", "confirmed", "confirm"];

/// Whether a flag stands anywhere in an answer, but not within arguments or a text.
fn has_flag(value: &Value, wanted: bool) -> bool {
    match value {
        Value::Object(fields) => fields
            .iter()
            .any(|(name, value)| (FLAGS.contains(&name.as_str()) && *value == wanted) || has_flag(value, wanted)),
        Value::Array(values) => values.iter().any(|value| has_flag(value, wanted)),
        _ => false,
    }
}

/// Arguments in any of the places where frameworks look for them.
fn arguments(value: &Value) -> Option<Value> {
    let value = value.as_array().and_then(|list| list.first()).unwrap_or(value);
    let places = [
        &value["arguments"],
        &value["interrupt"]["arguments"],
        &value["editedArgs"],
        &value["edited_args"],
        &value["edited_action"]["args"],
        &value["args"]["args"],
        &value["args"]["edited_args"],
        &value["args"],
        &value["tool_call"]["input"],
    ];
    places.into_iter().map(as_json).find(Value::is_object)
}

/// Whether an answer has a mark of a refusal.
fn refuses(value: &Value) -> bool {
    const WORDS: [&str; 8] = ["reject", "rejected", "deny", "ignore", "cancel", "cancelled", "respond", "response"];
    let value = value.as_array().and_then(|list| list.first()).unwrap_or(value);
    let places = [
        &value["decision"],
        &value["type"],
        &value["status"],
        &value["response_type"],
        &value["interrupt"]["decision"],
    ];
    has_flag(value, false)
        || *value == false
        || places.into_iter().filter_map(Value::as_str).any(|word| WORDS.contains(&word))
}
