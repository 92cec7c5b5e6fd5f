//! Requests: messages, the fields beside them, and a session's stored state.

use interlingua_core::connector::Next;
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core::tree::Node;
use interlingua_core::{Fault, FaultKind};
use interlingua_core_testkit::Answer;
use serde_json::{Value, json};

use super::agent::{
    ALL, Session, URL, V1, V1_REST, V03, V03_REST, connector, end, fixed, request, status, status_with, submitted, task,
};

fn read(body: &Value) -> AgentRequest {
    let text = body.to_string();
    let read = AgentRequest::parse(&Node::parse_object(text.as_bytes()).expect("JSON")).expect("a request");
    AgentRequest { id: Some("run-1".into()), session_id: Some("session-1".into()), ..read }
}

/// The body of what is sent for a request.
fn sent(session: &Session, request: &AgentRequest) -> Value {
    let mut turn = session.turn(request, &[]);
    match turn.next(0).expect("a request") {
        Next::Send(request) => serde_json::from_slice(&request.body).expect("JSON"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_content_becomes_its_part() {
    let request = read(&json!({
        "input": [
            { "role": "system", "content": "be brief" },
            { "id": "m-7", "role": "user", "content": [
                { "type": "text", "text": "Look" },
                { "type": "image", "image_url": "data:image/png;base64,AQID" },
                { "type": "file", "file_url": "https://x.example/a.pdf", "filename": "a.pdf" },
                { "type": "data", "data": { "z": 1.0, "a": [2] } }
            ] }
        ],
        "model": "m", "temperature": 0.5, "max_tokens": 9, "tools": [{ "type": "function", "function": { "name": "f" } }],
        "a2a": { "metadata": { "k": "v" }, "accepted_output_modes": ["text/plain"] }
    }));
    let mut all = String::new();
    for dialect in ALL {
        let body = sent(&Session::new(&fixed(dialect)), &request);
        all.push_str(&format!("--- {} {}\n{body}\n", dialect.version, dialect.binding));
    }
    insta::assert_snapshot!("parts", all);
}

#[test]
fn a_message_of_a2a_is_passed_on_unchanged() {
    let request = read(&json!({ "input": [{
        "id": "m-7", "role": "user",
        "content": [{ "type": "text", "text": "<p>" }, { "type": "data", "data": { "n": 7 } }],
        "metadata": { "a2a": {
            "message_id": "m-7", "task_id": "their task", "context_id": "their context", "reference_task_ids": ["theirs"],
            "extensions": ["urn:x"], "metadata": { "a": 1 },
            "parts": [{ "mediaType": "text/html", "metadata": { "b": 2 } }]
        } }
    }] }));
    let body = sent(&Session::new(&fixed(V1_REST)), &request);
    let expected = json!({
        "messageId": "m-7", "role": "ROLE_USER",
        "parts": [{ "text": "<p>", "mediaType": "text/html", "metadata": { "b": 2 } }, { "data": { "n": 7 } }],
        "metadata": { "a": 1 }, "extensions": ["urn:x"]
    });
    assert_eq!(body["message"], expected, "ids of tasks and contexts are the gateway's own");
}

#[test]
fn earlier_messages_go_ahead_of_a_new_context_only() {
    let history = json!({ "input": [
        { "role": "user", "content": "hi" },
        { "role": "assistant", "content": "hello" },
        { "type": "reasoning", "role": "assistant", "content": "hm" },
        { "role": "user", "content": "Paris?" },
        { "role": "user", "content": "today" }
    ] });
    let texts = |body: &Value| -> Vec<String> {
        let parts = body["message"]["parts"].as_array().expect("a list").iter();
        parts.map(|part| format!("{}{}", part["text"].as_str().expect("text"), part["metadata"])).collect()
    };
    let mut session = Session::new(&fixed(V1_REST));
    let first = texts(&sent(&session, &read(&history)));
    assert_eq!(first, [r#"hi{"role":"user"}"#, r#"hello{"role":"assistant"}"#, "Paris?null", "todaynull"]);

    session.state = interlingua_core::Json::from_serialize(&json!({ "context_id": "C" }));
    assert_eq!(texts(&sent(&session, &read(&history))), ["Paris?null", "todaynull"]);

    let mut options = fixed(V1_REST);
    options["transcript"] = json!(false);
    assert_eq!(texts(&sent(&Session::new(&options), &read(&history))), ["Paris?null", "todaynull"]);
    assert_eq!(texts(&sent(&Session::new(&options), &read(&json!({ "input": [] })))), ["null"]);
}

#[test]
fn a_session_keeps_its_context_and_refers_to_its_last_task() {
    for dialect in ALL {
        let mut session = Session::new(&fixed(dialect));
        let first = session.send_text("Paris?", [dialect.stream(1, &[submitted(), status("COMPLETED")])]);
        let body: Value = serde_json::from_slice(&first.requests[0].body).expect("JSON");
        let message = |body: &Value| {
            if dialect.binding == "JSONRPC" { body["params"]["message"].clone() } else { body["message"].clone() }
        };
        assert_eq!(message(&body)["contextId"], Value::Null);

        let second = sent(&session, &request(vec![Message::user("And Rome?")]));
        assert_eq!(message(&second)["contextId"], "C");
        assert_eq!(message(&second)["taskId"], Value::Null);
        let references = if dialect == V03_REST { Value::Null } else { json!(["T"]) };
        assert_eq!(message(&second)["referenceTaskIds"], references);
    }

    let mut options = fixed(V1_REST);
    options["context"] = json!("send");
    let body = sent(&Session::new(&options), &request(vec![Message::user("Paris?")]));
    assert_eq!(body["message"]["contextId"], "session-1");
}

#[test]
fn tenant_and_extensions_go_into_each_request() {
    let mut options = fixed(V1);
    options["tenant"] = json!("t/1");
    options["extensions"] = json!(["urn:a", "urn:b"]);
    let mut session = Session::new(&options);
    let driven = session.send_text(
        "Paris?",
        [V1.cut(1, &[submitted()]), V1.stream(2, &[status("COMPLETED")]), V1.task(3, &task("COMPLETED", &json!([])))],
    );
    for request in &driven.requests {
        let body: Value = serde_json::from_slice(&request.body).expect("JSON");
        assert_eq!(body["params"]["tenant"], "t/1");
        assert!(request.headers.contains(&("a2a-extensions".into(), "urn:a,urn:b".to_owned())));
        assert!(request.headers.contains(&("a2a-version".into(), "1.0".to_owned())));
    }

    options["binding"] = json!("HTTP+JSON");
    let driven = Session::new(&options).send_text("Paris?", [V1_REST.stream(1, &[submitted(), status("COMPLETED")])]);
    assert_eq!(driven.requests[0].url, format!("{URL}/t%2F1/message:stream"));

    options["version"] = json!("0.3");
    let driven = Session::new(&options).send_text("Paris?", [V03_REST.stream(1, &[submitted(), status("COMPLETED")])]);
    assert_eq!(driven.requests[0].url, format!("{URL}/v1/message:stream"));
    assert!(driven.requests[0].headers.contains(&("x-a2a-extensions".into(), "urn:a,urn:b".to_owned())));
    assert!(driven.requests[0].headers.iter().all(|(name, _)| *name != "a2a-version"));
}

#[test]
fn a_card_is_looked_for_in_several_places() {
    let missing = || {
        let mut fault = Fault::new(FaultKind::UpstreamRefused, "no");
        fault.upstream_status = Some(404);
        Answer::Fault(fault)
    };
    let mut session = Session::new(&json!({}));
    let page = Answer::body("<html>");
    let end_of = [submitted(), status_with("COMPLETED", "m", &json!([{ "text": "18 C." }]))];
    let driven = session.send_text("Paris?", [missing(), page, V03.card(true), V03.stream(1, &end_of)]);
    let urls: Vec<&str> = driven.requests.iter().map(|request| request.url.as_str()).collect();
    let at = |path: &str| format!("{URL}/.well-known/{path}");
    let root = "https://agent.example/.well-known/agent-card.json".to_owned();
    assert_eq!(urls, [at("agent-card.json"), root, at("agent.json"), URL.to_owned()]);

    let driven = session.send_text("Paris?", [missing(), missing(), missing(), missing()]);
    assert_eq!(end(&driven), "failed UPSTREAM_MISCONFIGURED: the agent has no card where the gateway looks for one");
    let down = Answer::Fault(Fault::new(FaultKind::UpstreamUnreachable, "the agent could not be reached"));
    assert_eq!(
        end(&session.send_text("Paris?", [down])),
        "failed UPSTREAM_UNREACHABLE: the agent could not be reached"
    );
}

#[test]
fn a_probe_reports_the_features_of_an_agent() {
    let capabilities = connector(&json!({})).capabilities();
    assert!(capabilities.streaming && capabilities.resume && capabilities.usage && capabilities.reasoning);
    assert!(!connector(&json!({ "streaming": false })).capabilities().streaming);
    assert_eq!(connector(&json!({})).warnings(), Vec::<String>::new());
    let warnings = connector(&json!({ "version": "0.3", "tenant": "a" })).warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}
