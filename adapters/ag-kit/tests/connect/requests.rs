//! The requests of a turn, and the parts of the client's request that they omit.

use interlingua_core::Json;
use interlingua_core::connector::{TurnRequest, UpstreamAdapter};
use serde_json::json;

use crate::support::{connector, request, sent, turn_of};
use interlingua_ag_kit::{AgKitUpstream, UpstreamOptions};

#[test]
fn the_endpoint_is_completed() {
    for (url, endpoint) in [
        ("http://a", "http://a/send-message"),
        ("http://a/kit/", "http://a/kit/send-message"),
        ("http://a/kit/send-message", "http://a/kit/send-message"),
        ("http://a/v1/aibot/bots/b/send-message?x=1", "http://a/v1/aibot/bots/b/send-message?x=1"),
    ] {
        let connector = AgKitUpstream::connect(url, UpstreamOptions::default()).expect("a URL");
        let request = request(r#"{"input":[]}"#);
        let mut turn = connector.turn(&TurnRequest::new(&request, &Json::null(), &[])).expect("a turn");
        let Ok(interlingua_core::connector::Next::Send(sent)) = turn.next(0) else { panic!("a request") };
        assert_eq!(sent.url, endpoint);
    }
    assert!(AgKitUpstream::connect("ftp://a", UpstreamOptions::default()).is_err());
    for wrong in [r#"{"resume_style":"x"}"#, r#"{"agui":"auto"}"#] {
        assert!(serde_json::from_str::<UpstreamOptions>(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn messages_of_every_kind_are_sent_or_reported() {
    let body = r#"{"state":{"a":1},"temperature":0.5,"tool_choice":"none","input":[
        {"role":"system","content":"Be short."},
        {"id":"m1","role":"user","content":[{"type":"text","text":"Look"},{"type":"image","image_url":"https://x/y.png"},
            {"type":"image","image_url":"data:image/png;base64,AA=="},{"type":"data","data":{"n":1}}]},
        {"role":"assistant","content":"I see."},
        {"type":"reasoning","role":"assistant","content":[{"type":"text","text":"hm"}]},
        {"type":"function_call","role":"assistant","content":[{"type":"data","data":{"call_id":"c1","name":"f","arguments":"{}"}}]},
        {"type":"function_call_output","role":"tool","content":[{"type":"data","data":{"call_id":"c1","output":"done"}}]}],
        "tools":[{"type":"function","function":{"name":"f"}},{"type":"web_search"}]}"#;
    let mut turn = turn_of(r#"{"parameters":"object"}"#, &request(body), "null");
    let sent = sent(&mut *turn);
    assert_eq!(
        sent,
        json!({
            "conversationId": "s-1",
            "messages": [
                {"role": "system", "id": "message-0", "content": "Be short."},
                {"role": "user", "id": "m1", "content": "Look\n[image](https://x/y.png)\n{\"n\":1}"},
                {"role": "assistant", "id": "message-2", "content": "I see."},
                {"role": "tool", "id": "message-5-c1", "content": "done", "toolCallId": "c1"}
            ],
            "tools": [{"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}}],
            "state": {"a": 1}
        })
    );
    let losses: Vec<String> = turn.losses().iter().map(|loss| format!("{:?} {loss}", loss.change)).collect();
    assert_eq!(
        losses,
        [
            "Lost tool_declaration (only functions can be declared)",
            "Lost sampling (the protocol has no parameters of a model)",
            "Lost tool_choice (the protocol has no field for it)",
            "Changed image_in (sent as a link in the text)",
            "Lost image_in (messages of this protocol hold nothing but text)",
            "Changed data_in (sent as JSON in the text)",
            "Lost reasoning (earlier reasoning cannot be sent)",
        ]
    );
}

#[test]
fn a_history_holds_texts_alone() {
    let body = r#"{"input":[
        {"role":"user","content":"Where?"},
        {"type":"function_call","role":"assistant","content":[{"type":"data","data":{"call_id":"c1","name":"f","arguments":"{}"}}]},
        {"type":"function_call_output","role":"tool","content":[{"type":"data","data":{"call_id":"c1","output":"here"}}]},
        {"role":"assistant","content":"Here."},
        {"role":"user","content":"And now?"}]}"#;
    let request = request(body);
    let state = Json::null();
    let turn = TurnRequest::new(&request, &state, &[]).with_history(0..4);
    let mut turn = connector("{}").turn(&turn).expect("a turn");
    let sent = sent(&mut *turn);
    let said: Vec<&str> =
        sent["messages"].as_array().expect("a list").iter().filter_map(|m| m["content"].as_str()).collect();
    assert_eq!(said, ["Where?", "Here.", "And now?"]);
    assert_eq!(turn.losses()[0].to_string(), "history (calls of earlier turns and their results are left out) ×2");
}
