//! Cards that begin with the agent's own (`card_from`), as they are asked for: what is asked, what caches are told, and
//! who else looks at them.

mod support;

use interlingua_core::Call;
use interlingua_core::call::Reply;
use interlingua_core::testkit::NOW;
use interlingua_core::well_known::{FetchedDocument, WellKnownDocument};
use serde_json::{Value, json};
use support::{Ask, Asked, Host, host, user, with};

const PATH: &str = "/.well-known/agent-card.json";

fn begins_with_the_upstream(options: &Value) -> Host {
    let mut all = json!({ "card_from": "upstream" });
    all.as_object_mut().expect("an object").extend(options.as_object().expect("an object").clone());
    with(all)
}

fn sought(asked: &Asked) -> WellKnownDocument {
    match &asked.call {
        Ok(Call::FetchedDocument(publication)) => publication.clone(),
        other => panic!("nothing is looked up: {other:?}"),
    }
}

fn published(card: &Value, since: u64) -> FetchedDocument {
    let sought = sought(&begins_with_the_upstream(&json!({})).ask(&Ask::new("GET", PATH)));
    let document = (sought.extract)("http://agent:9000/", card.to_string().as_bytes()).expect("a card");
    FetchedDocument { document, since }
}

#[test]
fn the_agent_s_own_card_is_looked_up_where_the_route_wants_it() {
    let plain = host().ask(&Ask::new("GET", PATH));
    assert!(matches!(plain.call, Ok(Call::Nothing)), "{:?}", plain.call);
    let sought = sought(&begins_with_the_upstream(&json!({})).ask(&Ask::new("GET", PATH)));
    assert_eq!((sought.agent.as_str(), sought.paths[1]), ("demo", "/.well-known/agent.json"));
    assert!(sought.headers.contains(&("a2a-version", "1.0")));
}

#[test]
fn tags_and_dates_follow_what_the_agent_s_server_says() {
    let host = begins_with_the_upstream(&json!({}));
    let ask = |card: Option<&FetchedDocument>, headers: &[(&'static str, &str)]| {
        let ask = Ask { headers: headers.to_vec(), ..Ask::new("GET", PATH) };
        host.ask(&ask).answered(Reply::FetchedDocument(card))
    };
    let (old, new) = (json!({ "name": "Old" }), json!({ "name": "New" }));
    let none = ask(None, &[]);
    assert_eq!((&none.json()["name"], none.head.get("cache-control")), (&json!("demo"), Some("public, max-age=30")));
    let yesterday = published(&old, NOW - 86_400_000);
    let first = ask(Some(&yesterday), &[]);
    assert_eq!((&first.json()["name"], first.head.get("cache-control")), (&json!("Old"), Some("public, max-age=300")));
    let tag = first.head.get("etag").expect("a tag").to_owned();
    assert_eq!(ask(Some(&yesterday), &[("if-none-match", &tag)]).status, 304);
    let seen = first.head.get("last-modified").expect("a date").to_owned();
    assert_eq!(ask(Some(&yesterday), &[("if-modified-since", &seen)]).status, 304);
    // It changes in the very second in which a client took the old one.
    let now = published(&new, NOW);
    let changed = ask(Some(&now), &[("if-none-match", &tag)]);
    assert_eq!((changed.status, &changed.json()["name"]), (200, &json!("New")));
    assert_eq!(changed.head.get("last-modified"), None);
    assert_eq!(ask(Some(&now), &[("if-modified-since", &seen)]).status, 200);
}

#[test]
fn the_extended_card_and_the_signed_one_begin_with_it_too() {
    let upstream = published(&json!({ "name": "Theirs", "description": "Their words", "extra": 1 }), NOW);
    let options = json!({ "card_from": "upstream", "extended_card": { "description": "and more" } });
    let host = support::authenticating(options);
    let ask = Ask { authenticated: true, ..Ask::rest("GET", "/extendedAgentCard") };
    let card = host.ask(&ask).answered(Reply::FetchedDocument(Some(&upstream))).json();
    assert_eq!((&card["name"], &card["description"]), (&json!("Theirs"), &json!("and more")));
    // RFC 8032, section 7.1, test 1, as PKCS #8.
    let key = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n";
    let signing = json!({ "card_signing": { "algorithm": "EdDSA", "key_id": "k", "key": key } });
    let host = begins_with_the_upstream(&signing);
    let signed = |card: Option<&FetchedDocument>| {
        let ask = Ask::new("GET", PATH).header("a2a-version", "1.0");
        host.ask(&ask).answered(Reply::FetchedDocument(card)).json()
    };
    let (one, other) = (signed(Some(&upstream)), signed(None));
    assert_eq!((&one["name"], one.get("extra")), (&json!("Theirs"), None));
    assert_eq!(one["signatures"].as_array().map(Vec::len), Some(1));
    assert_ne!(one["signatures"], other["signatures"]);
}

#[test]
fn input_modes_are_enforced_as_the_shown_card_says() {
    let options = json!({ "enforce_input_modes": true });
    let card = published(&json!({ "name": "n", "defaultInputModes": ["application/json"] }), NOW);
    let mut typed = user("hi");
    typed["message"]["parts"][0]["mediaType"] = "text/plain".into();
    for (method, params) in [("SendMessage", &typed), ("SendStreamingMessage", &typed)] {
        let ask = Ask::rpc(method, params);
        let ask_it = || begins_with_the_upstream(&options).ask(&ask);
        sought(&ask_it());
        let refused = ask_it().answered(Reply::FetchedDocument(Some(&card)));
        assert!(refused.body.contains("-32005"), "{}", refused.body);
        // Nobody says that text is not wanted.
        let taken = ask_it().goes_on(Reply::FetchedDocument(None));
        assert!(matches!(taken.call, Ok(Call::Run(_))), "{:?}", taken.call);
    }
    let on_a_task = json!({ "message": {
        "messageId": "m", "role": "ROLE_USER", "parts": [{ "data": {}, "mediaType": "application/json" }], "taskId": support::FRESH.to_string()
    } });
    let looked = begins_with_the_upstream(&options).ask(&Ask::rpc("SendMessage", &on_a_task));
    let looked = looked.goes_on(Reply::FetchedDocument(Some(&card)));
    assert!(matches!(looked.call, Ok(Call::Fetch(_))), "{:?}", looked.call);
    // What the route says needs no looking up.
    let told = begins_with_the_upstream(&json!({ "enforce_input_modes": true, "card": { "input_modes": ["text/*"] } }));
    assert!(matches!(told.ask(&Ask::rpc("SendMessage", &typed)).call, Ok(Call::Run(_))));
}
