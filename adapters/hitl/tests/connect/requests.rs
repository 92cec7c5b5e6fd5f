//! The requests of a turn, and the parts of the client's request that they omit.

use interlingua_core::Json;
use interlingua_core::connector::{TurnRequest, UpstreamAdapter};
use interlingua_hitl::{HitlUpstream, UpstreamOptions};
use serde_json::json;

use crate::support::{connector, request, sent, turn_of};

#[test]
fn the_service_is_found_from_any_of_its_urls() {
    for (url, endpoint) in [
        ("http://a", "http://a/agent/invoke"),
        ("http://a/x/", "http://a/x/agent/invoke"),
        ("http://a/x/agent/invoke", "http://a/x/agent/invoke"),
        ("http://a/agent/resume", "http://a/agent/invoke"),
    ] {
        let connector = HitlUpstream::connect(url, UpstreamOptions::default()).expect("a URL");
        let request = request(r#"{"input":[{"role":"user","content":"hi"}]}"#);
        let mut turn = connector.turn(&TurnRequest::new(&request, &Json::null(), &[])).expect("a turn");
        assert_eq!(sent(&mut *turn).0.url, endpoint);
    }
    assert!(HitlUpstream::connect("agent", UpstreamOptions::default()).is_err());
    for wrong in [r#"{"poll_interval":"0s"}"#, r#"{"poll_interval":"10s"}"#] {
        let options: UpstreamOptions = serde_json::from_str(wrong).expect("options");
        assert!(HitlUpstream::connect("http://a", options).is_err(), "{wrong}");
    }
    assert_eq!(connector(r#"{"user":"user"}"#).warnings().len(), 1);
    assert!(connector("{}").warnings().is_empty());
}

#[test]
fn the_new_words_are_the_query() {
    let body = r#"{"temperature":1,"tools":[{"type":"function","function":{"name":"f"}}],"input":[
        {"role":"system","content":"Be short."},{"role":"developer","content":"Be kind."},
        {"role":"user","content":"Look"},{"role":"assistant","content":"Yes?"},
        {"role":"user","content":[{"type":"text","text":"here"},{"type":"image","image_url":"https://x/y.png"},
            {"type":"image","image_url":"data:image/png;base64,AA=="},{"type":"data","data":{"n":1}}]}]}"#;
    let mut turn = turn_of("{}", body, "null");
    let (request, sent) = sent(&mut *turn);
    assert_eq!((request.method, request.url.as_str()), ("POST", "http://agent.example/service/agent/invoke"));
    assert_eq!(
        sent,
        json!({
            "user_id": "s 1",
            "query": "Look\n\nhere\n[image](https://x/y.png)\n{\"n\":1}",
            "system_message": "Be short.\n\nBe kind."
        })
    );
    let losses: Vec<String> = turn.losses().iter().map(|loss| format!("{:?} {loss}", loss.change)).collect();
    assert_eq!(
        losses,
        [
            "Lost tool_declaration (the protocol has no tools of clients)",
            "Lost sampling (the protocol has no parameters of a model)",
            "Lost history (the service keeps its own, and takes the user's words alone)",
            "Changed image_in (sent as a link in the text)",
            "Lost image_in (a query of this protocol holds nothing but text)",
            "Changed data_in (sent as JSON in the text)",
        ]
    );
}

#[test]
fn the_user_of_the_service_is_the_session_or_the_user() {
    let body = r#"{"input":[{"role":"user","content":"hi"}]}"#;
    for (options, user) in [("{}", "s 1"), (r#"{"user":"user"}"#, "ada")] {
        assert_eq!(sent(&mut *turn_of(options, body, "null")).1["user_id"], user);
    }
}

#[test]
fn a_turn_without_words_is_refused() {
    for body in [r#"{"input":[]}"#, r#"{"input":[{"role":"user","content":""}]}"#] {
        let fault =
            connector("{}").turn(&TurnRequest::new(&request(body), &Json::null(), &[])).err().expect("no query");
        assert_eq!(fault.code(), "INVALID_PARAMETER");
    }
}
