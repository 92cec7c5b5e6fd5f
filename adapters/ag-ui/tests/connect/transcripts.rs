//! Exchanges with real servers, recorded byte for byte, and what a run holds of them.

use std::collections::BTreeMap;
use std::path::Path;

use interlingua_core::connector::Refusal;
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core_testkit::{Answer, RecordedExchange, recorded_exchanges};
use serde_json::{Value, json};

use crate::support::{Case, decision, driven, summary};

type Exchanges = BTreeMap<String, RecordedExchange>;

fn exchanges(folder: &str) -> Exchanges {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts/ag-ui").join(folder);
    recorded_exchanges(&folder).into_iter().filter(|(_, exchange)| exchange.method == "POST").collect()
}

/// The open items of the exchange before an answer.
fn asked_before(name: &str, all: &Exchanges, options: &str) -> Vec<Pending> {
    let base = ["-half-answer", "-answer"].iter().find_map(|end| name.strip_suffix(end));
    let Some(before) = base.and_then(|base| all.get(base)) else { return Vec::new() };
    let mut turn = Case { options, ..Case::default() }.turn();
    driven(&mut *turn, [before.answer()]).record.run().pending()
}

/// A request that answers every item: yes, or with a color.
fn answers(asked: &[Pending]) -> String {
    let answer = |item: &Pending| match item.kind {
        PendingKind::Tool => json!({ "type": "function_call_output", "role": "tool",
            "content": [{ "type": "data", "data": { "call_id": item.id, "output": "48.85,2.35" } }] }),
        PendingKind::Approval => decision(&item.id, json!({ "decision": "accept" })),
        PendingKind::Input | PendingKind::Auth => {
            decision(&item.id, json!({ "decision": "respond", "payload": { "color": "blue" } }))
        }
    };
    let input: Vec<Value> = asked.iter().map(answer).collect();
    json!({ "input": input, "tools": [{ "type": "function", "function": { "name": "locate" } }] }).to_string()
}

/// The calls without an output in the recorded request: a server that remembers nothing is sent them.
fn open_calls(exchange: &RecordedExchange) -> Vec<Value> {
    let request: Value = serde_json::from_str(&exchange.request).unwrap_or_default();
    let messages = request["messages"].as_array().cloned().unwrap_or_default();
    let has_output = |id: &Value| messages.iter().any(|message| message["toolCallId"] == *id);
    let calls = messages.iter().filter_map(|message| message["toolCalls"].as_array()).flatten();
    calls.filter(|call| !has_output(&call["id"])).cloned().collect()
}

/// A request whose history ends with these calls.
fn after_calls(calls: &[Value]) -> String {
    let mut input: Vec<Value> = calls
        .iter()
        .map(|call| {
            let function = &call["function"];
            let data = json!({ "call_id": call["id"], "name": function["name"], "arguments": function["arguments"] });
            json!({ "type": "plugin_call", "role": "assistant", "content": [{ "type": "data", "data": data }] })
        })
        .collect();
    input.push(json!({ "role": "user", "content": "go on" }));
    json!({ "input": input, "tools": [{ "type": "function", "function": { "name": "locate" } }] }).to_string()
}

/// The runs of all exchanges in a folder.
fn table(folder: &str, options: &str) -> String {
    let all = exchanges(folder);
    let mut table = String::new();
    for (name, exchange) in &all {
        let answered = asked_before(name, &all, options);
        let calls = open_calls(exchange);
        let request = match (answered.is_empty(), calls.is_empty()) {
            (true, true) => Case::default().request.to_owned(),
            (true, false) => after_calls(&calls),
            (false, _) => answers(&answered),
        };
        let history = if answered.is_empty() { calls.len() } else { 0 };
        let case = Case { options, request: &request, history, answered: &answered, ..Case::default() };
        let mut turn = case.turn();
        if exchange.status != 200 {
            let refusal = Refusal { status: exchange.status, body: &exchange.body, retry_after: None };
            let fault = turn.map_refusal(&refusal);
            table.push_str(&format!("# {name}\n{} {}\n\n", fault.code(), fault.message));
            continue;
        }

        let whole = driven(&mut *turn, [exchange.answer()]);
        let whole = summary(&whole.record, &*turn);
        if let Answer::Stream(pieces) | Answer::Cut(pieces) = exchange.answer() {
            // The outcome does not depend on the division into packets.
            let bytes: Vec<Vec<u8>> = pieces.concat().chunks(7).map(<[u8]>::to_vec).collect();
            let cut = if exchange.is_cut { Answer::Cut(bytes) } else { Answer::Stream(bytes) };
            let mut turn = case.turn();
            let record = driven(&mut *turn, [cut]).record;
            assert_eq!(summary(&record, &*turn), whole, "{name}");
        }
        table.push_str(&format!("# {name}\n{whole}\n"));
    }
    table
}

#[test]
fn ag_ui_protocol_is_read_as_it_was_recorded() {
    insta::assert_snapshot!(table("ag-ui-protocol-1.0.0", "{}"));
}

#[test]
fn ag_ui_langgraph_is_read_as_it_was_recorded() {
    insta::assert_snapshot!(table("ag-ui-langgraph-0.0.47", r#"{"events":"drop"}"#));
}

#[test]
fn pydantic_ai_is_read_as_it_was_recorded() {
    insta::assert_snapshot!(table("pydantic-ai-2.68.0", "{}"));
}

#[test]
fn agno_is_read_as_it_was_recorded() {
    let options = r#"{"events":"drop","confirm_calls":["delete_file"],"input_calls":["paint"]}"#;
    insta::assert_snapshot!(table("agno-3.1.10", options));
}

/// Compares the recorded answers to a server with the connector's answers for the same decisions.
#[test]
fn answers_are_written_as_real_servers_took_them() {
    let options = r#"{"confirm_calls":["delete_file"],"input_calls":["paint"]}"#;
    for (folder, name) in [
        ("ag-ui-protocol-1.0.0", "approval-answer"),
        ("ag-ui-langgraph-0.0.47", "outcome-approval-answer"),
        ("ag-ui-langgraph-0.0.47", "outcome-question-answer"),
        ("pydantic-ai-2.68.0", "approval-answer"),
        ("agno-3.1.10", "approval-json-answer"),
        ("agno-3.1.10", "question-answer"),
    ] {
        let all = exchanges(folder);
        let answered = asked_before(name, &all, options);
        let request = answers(&answered);
        let sent = Case { options, request: &request, answered: &answered, ..Case::default() }.sent();
        let recorded: Value = serde_json::from_str(&all[name].request).expect("JSON");
        // Ids of interrupts differ between recordings.
        let entry = |body: &Value| {
            let mut payload = body["resume"][0]["payload"].clone();
            // A field without a value, which the form of LangGraph's answers has.
            payload.as_object_mut().map(|fields| fields.remove("args").filter(|args| !args.is_null()));
            payload
        };
        assert_eq!(
            (entry(&sent), &sent["resume"][0]["status"]),
            (entry(&recorded), &recorded["resume"][0]["status"]),
            "{name}"
        );
        if folder.starts_with("agno") {
            let output =
                |body: &Value| body["messages"].as_array().and_then(|all| all.last().cloned()).expect("a message");
            let (sent, recorded) = (output(&sent), output(&recorded));
            assert_eq!(
                (&sent["content"], &sent["toolCallId"]),
                (&recorded["content"], &recorded["toolCallId"]),
                "{name}"
            );
        }
    }
}
