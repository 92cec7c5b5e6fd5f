//! Cards based on the agent's own (`card_from`): the lookup, the cache headers, and other uses of the card.

mod support;

use interlingua_core::Call;
use interlingua_core::call::Reply;
use interlingua_core::well_known::{FetchedDocument, WellKnownDocument};
use interlingua_core_testkit::NOW;
use serde_json::{Value, json};
use support::{ClientRequest, DecodedExchange, Host, host, user, with};

const PATH: &str = "/.well-known/agent-card.json";

fn begins_with_the_upstream(options: &Value) -> Host {
    let mut all = json!({ "card_from": "upstream" });
    all.as_object_mut().expect("an object").extend(options.as_object().expect("an object").clone());
    with(all)
}

fn looked_up(decoded: &DecodedExchange) -> WellKnownDocument {
    match &decoded.call {
        Ok(Call::FetchedDocument(publication)) => publication.clone(),
        other => panic!("no lookup: {other:?}"),
    }
}

fn published(card: &Value, since: u64) -> FetchedDocument {
    let looked_up = looked_up(&begins_with_the_upstream(&json!({})).send(&ClientRequest::new("GET", PATH)));
    let document = (looked_up.extract)(&["http://agent:9000/"], card.to_string().as_bytes()).expect("a card");
    FetchedDocument { document, since }
}

#[test]
fn the_upstream_card_is_fetched_if_the_route_uses_it() {
    let plain = host().send(&ClientRequest::new("GET", PATH));
    assert!(matches!(plain.call, Ok(Call::Nothing)), "{:?}", plain.call);
    let looked_up = looked_up(&begins_with_the_upstream(&json!({})).send(&ClientRequest::new("GET", PATH)));
    assert_eq!((looked_up.agent.as_str(), looked_up.paths[1]), ("demo", "/.well-known/agent.json"));
    assert!(looked_up.headers.contains(&("a2a-version", "1.0")));
}

#[test]
fn etag_and_last_modified_follow_the_upstream_card() {
    let host = begins_with_the_upstream(&json!({}));
    let request = |card: Option<&FetchedDocument>, headers: &[(&'static str, &str)]| {
        let request = ClientRequest { headers: headers.to_vec(), ..ClientRequest::new("GET", PATH) };
        host.send(&request).final_answer(Reply::FetchedDocument(card))
    };
    let (old, new) = (json!({ "name": "Old" }), json!({ "name": "New" }));
    let none = request(None, &[]);
    assert_eq!((&none.json()["name"], none.head.get("cache-control")), (&json!("demo"), Some("public, max-age=30")));

    let yesterday = published(&old, NOW - 86_400_000);

    let first = request(Some(&yesterday), &[]);
    assert_eq!((&first.json()["name"], first.head.get("cache-control")), (&json!("Old"), Some("public, max-age=300")));
    let tag = first.head.get("etag").expect("a tag").to_owned();
    assert_eq!(request(Some(&yesterday), &[("if-none-match", &tag)]).status, 304);
    let seen = first.head.get("last-modified").expect("a date").to_owned();
    assert_eq!(request(Some(&yesterday), &[("if-modified-since", &seen)]).status, 304);

    // The card changes within the second in which a client fetched the old one.
    let now = published(&new, NOW);
    let changed = request(Some(&now), &[("if-none-match", &tag)]);
    assert_eq!((changed.status, &changed.json()["name"]), (200, &json!("New")));
    assert_eq!(changed.head.get("last-modified"), None);
    assert_eq!(request(Some(&now), &[("if-modified-since", &seen)]).status, 200);
}

#[test]
fn extended_and_signed_cards_use_the_upstream_card() {
    let upstream = published(&json!({ "name": "Theirs", "description": "Their words", "extra": 1 }), NOW);
    let options = json!({ "card_from": "upstream", "extended_card": { "description": "and more" } });
    let host = support::authenticating(options);
    let request = ClientRequest { authenticated: true, ..ClientRequest::rest("GET", "/extendedAgentCard") };
    let card = host.send(&request).final_answer(Reply::FetchedDocument(Some(&upstream))).json();
    assert_eq!((&card["name"], &card["description"]), (&json!("Theirs"), &json!("and more")));
    // RFC 8032, section 7.1, test 1, as PKCS #8.
    let key = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n";

    let signing = json!({ "card_signing": { "algorithm": "EdDSA", "key_id": "k", "key": key } });
    let host = begins_with_the_upstream(&signing);
    let signed = |card: Option<&FetchedDocument>| {
        let request = ClientRequest::new("GET", PATH).header("a2a-version", "1.0");
        host.send(&request).final_answer(Reply::FetchedDocument(card)).json()
    };
    let (one, other) = (signed(Some(&upstream)), signed(None));
    assert_eq!((&one["name"], one.get("extra")), (&json!("Theirs"), None));
    assert_eq!(one["signatures"].as_array().map(Vec::len), Some(1));
    assert_ne!(one["signatures"], other["signatures"]);
}

#[test]
fn input_modes_are_enforced_by_the_published_card() {
    let options = json!({ "enforce_input_modes": true });
    let card = published(&json!({ "name": "n", "defaultInputModes": ["application/json"] }), NOW);
    let mut typed = user("hi");
    typed["message"]["parts"][0]["mediaType"] = "text/plain".into();
    for (method, params) in [("SendMessage", &typed), ("SendStreamingMessage", &typed)] {
        let request = ClientRequest::rpc(method, params);
        let send = || begins_with_the_upstream(&options).send(&request);
        looked_up(&send());
        let rejected = send().final_answer(Reply::FetchedDocument(Some(&card)));
        assert!(rejected.body.contains("-32005"), "{}", rejected.body);
        // Without a card, text is accepted by default.
        let taken = send().next_call(Reply::FetchedDocument(None));
        assert!(matches!(taken.call, Ok(Call::Run(_))), "{:?}", taken.call);
    }

    let on_a_task = json!({ "message": {
        "messageId": "m", "role": "ROLE_USER", "parts": [{ "data": {}, "mediaType": "application/json" }], "taskId": support::NEW_ID.to_string()
    } });
    let looked = begins_with_the_upstream(&options).send(&ClientRequest::rpc("SendMessage", &on_a_task));
    let looked = looked.next_call(Reply::FetchedDocument(Some(&card)));
    assert!(matches!(looked.call, Ok(Call::Fetch(_))), "{:?}", looked.call);
    // Modes set on the route need no lookup.
    let configured =
        begins_with_the_upstream(&json!({ "enforce_input_modes": true, "card": { "input_modes": ["text/*"] } }));
    assert!(matches!(configured.send(&ClientRequest::rpc("SendMessage", &typed)).call, Ok(Call::Run(_))));
}
