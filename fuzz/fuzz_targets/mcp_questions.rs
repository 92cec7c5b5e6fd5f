//! Questions of agents with any schema and any decisions, and any answer of an MCP client to them: each question is a
//! legal form, and an answer decides what it says and nothing else.
#![no_main]

use std::sync::LazyLock;

use interlingua_core::call::{RunInfo, RunState};
use interlingua_core::event::End;
use interlingua_core::model::MessageType;
use interlingua_core::pending::{Decision, PendingKind};
use interlingua_core::{AnswerBody, Call, Next, Out, Record, Reply};
use interlingua_core_testkit::{RunBuilder, TestRoute, TestRun};
use interlingua_fuzz::edited;
use interlingua_fuzz::mcp::{refusal, route, send};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};

/// The data of the question, and the answer.
const SEEDS: &[&[u8]] = &[
    br#"[{"id":"a","name":"send_mail","arguments":"{\"to\":\"ada\"}","interrupt":{"kind":"approval","message":"Send?","decisions":["accept","edit","respond","reject"]}},{"action":"accept","content":{"decision":"edit","arguments":"{\"to\":\"bob\"}","text":"t"}}]"#,
    br#"[{"id":"b c","name":"ask","arguments":"{}","interrupt":{"kind":"input","message":"Which?","response_schema":{"type":"object","properties":{"size":{"type":"string","enum":["s","m"],"enumNames":["S","M"],"default":"s"},"n":{"type":"integer","minimum":1},"day":{"type":"string","format":"date"},"on":{"type":"boolean"},"many":{"type":"array","items":{"enum":["a"]},"minItems":1},"one":{"oneOf":[{"const":"x","title":"X"}]}},"required":["size"]}}},{"action":"accept","content":{"size":"s","n":2}}]"#,
    br#"[{"id":"c","name":"ask","arguments":"{}","interrupt":{"kind":"input","message":"How many?","response_schema":{"anyOf":[{"type":"number"},{"type":"null"}],"$defs":{"a":{}}}}},{"action":"accept","content":{"answer":"3"}}]"#,
    br#"[{"id":"d","name":"ask","arguments":"{}","interrupt":{"kind":"input","message":"Why?"}},{"action":"decline"}]"#,
    br#"[{"id":"e","name":"login","arguments":"{}","interrupt":{"kind":"auth","message":"Log in.","payload":{"url":"https://id.example.com/go"}}},{"action":"accept","content":{"done":"yes"}}]"#,
    br#"[{"call_id":"f","name":"weather","arguments":"{\"city\":\"Paris\"}"},{"action":"accept","content":{"output":"18 C"}}]"#,
    br#"[{"id":"g","name":"rm","arguments":"{}"},{"action":"cancel"}]"#,
];

static ROUTE: LazyLock<TestRoute> = LazyLock::new(|| route("{}"));

/// A run that waits for the answer to a question.
fn asking(question: &Value) -> Record {
    let is_call = question.get("call_id").is_some();
    let kind = if is_call { MessageType::FunctionCall } else { MessageType::McpApprovalRequest };
    let mut run = RunBuilder::begin();
    run.data(kind, &question.to_string());
    run.record.finish_turn(End::Completed, None);
    run.record
}

/// Calls the tool, and returns the result that asks.
fn ask(record: &Record) -> (RunInfo, Value) {
    let params = json!({ "name": "demo", "arguments": { "message": "hi" } });
    let mut sent = send(&ROUTE, "tools/call", "demo", params);
    let info = RunInfo { state: RunState::Waiting, ..sent.info(record) };
    let run = TestRun::with_info(record, info.clone());
    let mut out = Out::new();
    sent.exchange.head(&mut out.head);
    sent.exchange.begin(run.view(), &mut out);
    for step in record.steps(0) {
        sent.exchange.encode(step, &mut out);
    }
    sent.exchange.pause(run.view(), &mut out);
    let answer: Value = serde_json::from_slice(&out.body).expect("one object");
    (info, answer["result"].clone())
}

/// Fails unless this is what a client may be asked.
fn check_form(params: &Value) {
    assert!(params["message"].is_string(), "{params}");
    if params["mode"] == "url" {
        assert!(params["url"].is_string(), "{params}");
        return;
    }
    let form = &params["requestedSchema"];
    let fields = form["properties"].as_object().unwrap_or_else(|| panic!("no fields: {form}"));
    assert_eq!(form["type"], "object", "{form}");
    for field in fields.values() {
        let kind = field["type"].as_str().unwrap_or_else(|| panic!("no type: {form}"));
        assert!(["string", "number", "integer", "boolean", "array"].contains(&kind), "{form}");
        for structure in ["properties", "$ref", "allOf", "anyOf", "not", "if", "const"] {
            assert!(field.get(structure).is_none(), "{form}");
        }
        if let Some(format) = field.get("format") {
            assert!(["email", "uri", "date", "date-time"].iter().any(|known| format == known), "{form}");
        }
    }
    for name in form["required"].as_array().into_iter().flatten() {
        assert!(name.as_str().is_some_and(|name| fields.contains_key(name)), "{form}");
    }
    // Clients fill in defaults by themselves.
    for word in ["decision", "done"] {
        let is_own = fields.get(word).is_some_and(|field| field["title"] == "Decision" || field["title"] == "Done");
        assert!(!is_own || fields[word].get("default").is_none(), "{form}");
    }
}

fuzz_target!(|input: &[u8]| {
    let Some(bytes) = edited(SEEDS, input) else { return };
    let Ok((question, answer)) = serde_json::from_slice::<(Map<String, Value>, Value)>(&bytes) else { return };
    let record = asking(&Value::Object(question));
    let pending = record.run().pending();
    let [item] = pending.as_slice() else { return };
    let (info, result) = ask(&record);
    let Some(requests) = result["inputRequests"].as_object() else {
        // The item cannot be asked: its call ended with a text.
        assert!(result["content"].is_array(), "{result}");
        return;
    };
    let mut responses = Map::new();
    for (key, request) in requests {
        assert!(
            key.len() <= 120 && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte)),
            "{key:?}"
        );
        assert_eq!(request["method"], "elicitation/create");
        check_form(&request["params"]);
        responses.insert(key.clone(), answer.clone());
    }

    let params = json!({
        "name": "demo", "arguments": { "message": "hi" },
        "inputResponses": responses, "requestState": result["requestState"],
    });
    let mut sent = send(&ROUTE, "tools/call", "demo", params);
    if refusal(&mut sent).is_some() {
        assert!(!answer.is_object(), "{answer}");
        return;
    }
    let run = TestRun::with_info(&record, info);
    let mut out = Out::new();
    let Ok(Next::Call(Call::Run(call))) = sent.exchange.reply(Reply::Run(run.view()), &mut out) else { return };
    assert_eq!(call.answers.len(), 1);
    let AnswerBody::Decided { decision, .. } = &call.answers[0].given else { panic!("{:?}", call.answers) };
    let (action, content) = (answer["action"].as_str().unwrap_or_default(), &answer["content"]);
    match decision {
        Decision::Reject => {
            let says = content["decision"] == "reject" || content["done"] == "no";
            assert!(action == "decline" || (action == "accept" && says), "{answer}");
        }
        Decision::Accept | Decision::Edit if item.kind == PendingKind::Approval => {
            assert!(action == "accept" && content["decision"] == decision.as_str(), "{answer}");
        }
        _ => assert!(action == "accept" && content.is_object(), "{decision:?} {answer}"),
    }
});
