//! The operator's view: allowed hosts of requests, losses, findings of a probe, and the outcome of a cancel.

use interlingua_core::connector::{AgentTurn, Next, Purpose, TurnRequest};
use interlingua_core::model::Message;
use interlingua_core::probe::ProbeAnswer;
use interlingua_core::{Fault, FaultKind, Json};
use interlingua_core_testkit as testkit;
use serde_json::{Value, json};

use super::agent::{Session, V1, V1_REST, body, connector, fixed, request, status, submitted, text};

fn card(url: &str) -> Value {
    json!({ "name": "weather", "supportedInterfaces": [{ "url": url }], "capabilities": { "streaming": true } })
}

/// Where a turn goes after its card: the URL, whether it is trusted, and what the turn reports.
fn way(options: &Value, url: &str) -> (String, bool, Vec<String>) {
    let session = Session::new(options);
    let mut turn = session.turn(&request(vec![Message::user("hi")]), &[]);
    let driven = testkit::drive(turn.as_mut(), [body(&card(url)), V1.stream(1, &[status("COMPLETED")])]);
    let sent = &driven.requests[1];
    let losses = turn.losses().iter().map(ToString::to_string).collect();
    (sent.url.clone(), sent.is_trusted, losses)
}

#[test]
fn requests_go_to_hosts_that_the_operator_names() {
    let allowed = json!({ "allow_hosts": ["other.example"] });
    for (options, url, asked, is_trusted, is_reported) in [
        (json!({}), "https://agent.example/a", "https://agent.example/a", false, false),
        (json!({}), "https://agent.example:9/a", "https://agent.example/a", false, true),
        (
            json!({ "allow_hosts": ["agent.example:9"] }),
            "https://agent.example:9/a",
            "https://agent.example:9/a",
            true,
            false,
        ),
        (json!({}), "https://other.example/a", "https://agent.example/a", false, true),
        (allowed, "https://other.example/a", "https://other.example/a", true, false),
    ] {
        let found = way(&options, url);
        assert_eq!((found.0.as_str(), found.1, found.2.len()), (asked, is_trusted, usize::from(is_reported)), "{url}");
    }
}

#[test]
fn a_card_is_a_published_document() {
    for (options, is_trusted) in [
        (json!({ "card_url": "https://cards.example/c.json" }), false),
        (json!({ "card_url": "https://cards.example/c.json", "allow_hosts": ["cards.example"] }), true),
        (json!({}), false),
    ] {
        let session = Session::new(&options);
        let Ok(Next::Send(sent)) = session.turn(&request(vec![Message::user("hi")]), &[]).next(0) else {
            panic!("a card")
        };
        assert_eq!((sent.purpose, sent.is_trusted), (Purpose::Published, is_trusted), "{options}");
    }
}

#[test]
fn settings_that_few_agents_support_are_reported() {
    let losses = |options: &Value, request: &interlingua_core::model::AgentRequest, history| {
        let state = Json::null();
        let turn = TurnRequest::new(request, &state, &[]).with_history(history);
        let mut turn = connector(options).turn(&turn).expect("a turn");
        let _ = testkit::drive(turn.as_mut(), [V1.stream(1, &[status("COMPLETED")])]);
        turn.losses().iter().map(|loss| format!("{:?} {loss}", loss.change)).collect::<Vec<_>>()
    };
    let mut asked = request(vec![Message::user("hi")]);
    asked.tools = Json::parse(r#"{"type":"function"}"#).map(|tool| vec![tool]);
    asked.sampling.seed = Some(1);
    let mut options = fixed(V1);
    assert_eq!(
        losses(&options, &asked, 0..0),
        [
            "Lost tool_declaration (sent in metadata.agent_api, which few agents read)",
            "Lost sampling (sent in metadata.agent_api, which few agents read)"
        ]
    );
    options["client_tools"] = json!(true);
    assert_eq!(losses(&options, &asked, 0..0).len(), 0);
    assert!(connector(&options).capabilities().client_tools);

    let asked = request(vec![Message::user("one"), Message::user("two")]);
    assert_eq!(
        losses(&fixed(V1), &asked, 0..1),
        ["Changed history (earlier messages go ahead as texts, with their role in metadata)"]
    );
}

/// A turn that has sent its message, and read this much of the answer.
fn begun(options: &Value, frames: &str) -> Box<dyn AgentTurn> {
    let session = Session::new(options);
    let mut turn = session.turn(&request(vec![Message::user("hi")]), &[]);
    assert!(!turn.cancels_once_known(), "nothing was sent");
    let Ok(Next::Send(_)) = turn.next(0) else { panic!("a message") };
    let mut recorder = testkit::Recorder::new(Vec::new());
    let mut decoder = interlingua_core::sse::Decoder::new(1 << 20);
    let mut rest = frames.as_bytes();
    while let Some(frame) = decoder.decode(&mut rest).expect("a frame") {
        turn.on_frame(frame, &mut recorder).expect("readable");
    }
    turn
}

#[test]
fn a_cancel_waits_for_the_id_of_the_task() {
    let turn = begun(&fixed(V1), "");
    assert!(turn.cancels_once_known() && turn.cancel().is_none());
    let turn = begun(&fixed(V1), &V1.frames(1, &[submitted(), text("a-1", "It", false)]));
    assert!(!turn.cancels_once_known() && turn.cancel().is_some());
    let turn = begun(&fixed(V1), &V1.frames(1, &[submitted(), status("COMPLETED")]));
    assert!(!turn.cancels_once_known() && turn.cancel().is_none());
}

#[test]
fn an_agent_that_cannot_be_stopped_reports_the_reason() {
    let turn = begun(&fixed(V1), "");
    let refused = |status: u16, body: &str| turn.cancel_refused(status, body.as_bytes());
    let ended = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32002,"message":"it has ended"}}"#;
    assert_eq!(
        refused(200, ended).as_deref(),
        Some("TASK_NOT_CANCELABLE: the agent refused the request: it has ended")
    );
    assert_eq!(refused(500, "<html>").as_deref(), Some("it answers with status 500"));
    assert_eq!(
        refused(200, r#"{"jsonrpc":"2.0","id":2,"result":{"id":"T","status":{"state":"TASK_STATE_CANCELED"}}}"#),
        None
    );
    assert_eq!(refused(200, "nonsense"), None);

    let turn = begun(&fixed(V1_REST), "");
    let ended = r#"{"error":{"code":400,"message":"it has ended","details":[{"reason":"TASK_NOT_CANCELABLE"}]}}"#;
    let said = turn.cancel_refused(400, ended.as_bytes()).expect("a refusal");
    assert!(said.starts_with("TASK_NOT_CANCELABLE: "), "{said}");
}

/// a2a-sdk 1.3.0 answers under another context if it is not sent one. The task stays in its own.
#[test]
fn a_task_stays_in_its_context() {
    let mut session = Session::new(&fixed(V1));
    let waiting = session.send_text("hi", [V1.stream(1, &[submitted(), status("INPUT_REQUIRED")])]);
    assert_eq!(waiting.record.run().turns.len(), 1);
    assert!(session.state.text().contains(r#""context_id":"C""#), "{}", session.state.text());
    let other = |state: &str| {
        let mut item = status(state);
        item["statusUpdate"]["contextId"] = json!("another");
        item
    };
    let _ = session.send_text("blue", [V1.stream(1, &[other("WORKING"), other("COMPLETED")])]);
    assert!(session.state.text().contains(r#""context_id":"C""#), "{}", session.state.text());
}

fn probed(options: &Value, answers: &[Result<(u16, String), FaultKind>]) -> Vec<String> {
    let mut probe = connector(options).probe();
    let mut answers = answers.iter();
    while let Some(request) = probe.next() {
        assert_eq!(request.method, "GET");
        match answers.next().expect("an answer") {
            Ok((status, body)) => {
                probe.on_answer(Ok(ProbeAnswer { status: *status, headers: &[], body: body.as_bytes() }));
            }
            Err(kind) => probe.on_answer(Err(&Fault::new(*kind, "the agent could not be reached"))),
        }
    }
    probe.findings().iter().map(|finding| format!("{}: {}", finding.level.as_str(), finding.text)).collect()
}

#[test]
fn a_probe_reads_the_card() {
    let full = json!({
        "name": "Weather", "version": "3", "skills": [{}, {}],
        "supportedInterfaces": [{ "url": "https://inside.example/a" }],
        "capabilities": { "streaming": false, "extensions": [{ "uri": "urn:x", "required": true }] },
        "securityRequirements": [{}], "securitySchemes": { "key": {} }
    });
    let found = probed(&json!({}), &[Ok((404, String::new())), Ok((200, full.to_string()))]);
    insta::assert_snapshot!(found.join("\n"));
    let none: Vec<_> = (0..4).map(|_| Ok((404, "<html>".to_owned()))).collect();
    assert_eq!(probed(&json!({}), &none).len(), 1);
    assert!(probed(&json!({}), &[Ok((401, String::new()))])[0].starts_with("problem: the agent refuses"));
    assert!(probed(&json!({}), &[Err(FaultKind::UpstreamUnreachable)])[0].starts_with("problem: the agent could not"));
    let other = json!({ "supportedInterfaces": [{ "url": "grpc://a", "protocolBinding": "GRPC" }] });
    assert!(probed(&json!({}), &[Ok((200, other.to_string()))])[1].starts_with("problem: "));
}
