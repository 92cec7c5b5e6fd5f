//! Cards in their three formats.

use serde_json::{Value, json};

use super::*;

fn agent() -> AgentCard {
    AgentCard {
        name: "weather".into(),
        description: "Weather for cities".into(),
        version: "1.2.0".into(),
        ..AgentCard::default()
    }
}

fn card(options: Value, variant: Variant) -> Json {
    let options: Options = serde_json::from_value(options).expect("options");
    let agent = agent();
    let schemes = BTreeMap::new();
    let material = CardBuilder { agent: &agent, options: &options, schemes: &schemes, extended: None, upstream: None };
    Json::from_serialize(&material.card(variant, "https://gw.example/weather", options.extended_card.is_some()))
}

#[test]
fn the_hybrid_card_matches_the_documentation() {
    let expected = concat!(
        r#"{"name":"weather","description":"Weather for cities","version":"1.2.0","supportedInterfaces":["#,
        r#"{"url":"https://gw.example/weather","protocolBinding":"JSONRPC","protocolVersion":"1.0"},"#,
        r#"{"url":"https://gw.example/weather","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"},"#,
        r#"{"url":"https://gw.example/weather","protocolBinding":"JSONRPC","protocolVersion":"0.3"},"#,
        r#"{"url":"https://gw.example/weather","protocolBinding":"HTTP+JSON","protocolVersion":"0.3"}],"#,
        r#""capabilities":{"streaming":true,"pushNotifications":true},"#,
        r#""defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"#,
        r#""skills":[{"id":"weather","name":"weather","description":"Weather for cities","tags":["weather"]}],"#,
        r#""protocolVersion":"0.3.0","url":"https://gw.example/weather","preferredTransport":"JSONRPC","#,
        r#""additionalInterfaces":[{"url":"https://gw.example/weather","transport":"JSONRPC"},"#,
        r#"{"url":"https://gw.example/weather","transport":"HTTP+JSON"}]}"#,
    );
    assert_eq!(card(json!({}), Variant::Hybrid).text(), expected);

    let pure = card(json!({}), Variant::V1);
    assert_eq!(
        pure.text(),
        format!("{}}}", &expected[..expected.find(r#","protocolVersion":"0.3.0""#).expect("there")])
    );
}

#[test]
fn security_schemes_are_encoded_for_each_version() {
    let options = json!({
        "card": {
            "security_schemes": {
                "key": { "type": "api_key", "location": "header", "name": "x-key", "description": "A key" },
                "token": { "type": "http", "scheme": "bearer" },
                "web": { "type": "oauth2", "flows": { "authorization_code": {
                    "authorization_url": "https://a/auth", "token_url": "https://a/token", "scopes": { "read": "reads" },
                    "pkce_required": true
                } } },
                "tv": { "type": "oauth2", "flows": { "device_code": {
                    "device_authorization_url": "https://a/device", "token_url": "https://a/token"
                } } },
                "id": { "type": "open_id_connect", "url": "https://a/.well-known" },
                "cert": { "type": "mutual_tls" }
            },
            "security": [{ "token": [] }, { "web": ["read"], "key": [] }]
        },
        "versions": ["1.0", "0.3"]
    });
    let mut all = String::new();
    for variant in [Variant::V1, Variant::V03, Variant::Hybrid] {
        let card: Value = card(options.clone(), variant).decode().expect("an object");
        for name in ["securitySchemes", "securityRequirements", "security"] {
            all.push_str(&format!(
                "{variant:?} {name}: {}\n",
                serde_json::to_string_pretty(&card[name]).expect("JSON")
            ));
        }
    }
    insta::assert_snapshot!(all);
}

#[test]
fn a_card_lists_only_what_is_served() {
    let only = card(json!({ "versions": ["1.0"], "bindings": ["HTTP+JSON"], "push": false }), Variant::Hybrid);
    let only: Value = only.decode().expect("an object");
    assert_eq!(only["supportedInterfaces"].as_array().expect("a list").len(), 1);
    assert!(only.get("url").is_none() && only["capabilities"] == json!({ "streaming": true }), "{only}");

    let extended = card(json!({ "extended_card": { "name": "more" } }), Variant::Hybrid);
    let extended: Value = extended.decode().expect("an object");
    assert_eq!(extended["capabilities"]["extendedAgentCard"], json!(true));
    assert_eq!(extended["supportsAuthenticatedExtendedCard"], json!(true));
    assert_eq!(extended["name"], "weather");
}

/// A 0.3 agent's card, with an internal address in every possible field.
fn internal() -> Value {
    let inside = "http://recipes.svc.cluster.local:9000/a2a";
    json!({
        "name": "Recipes", "description": "Cooks", "version": "3.1", "protocolVersion": "0.3.0", "url": inside,
        "preferredTransport": "GRPC",
        "additionalInterfaces": [{ "url": "grpc://recipes.corp.example:9001", "transport": "GRPC" }],
        "supportedInterfaces": [{ "url": inside, "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "t" }],
        "supported_interfaces": [{ "url": inside }],
        "provider": { "organization": "Kitchen", "url": "https://kitchen.example" },
        "documentationUrl": "https://recipes.corp.example/docs", "iconUrl": "http://10.0.0.5/icon.png",
        "capabilities": {
            "streaming": false, "stateTransitionHistory": true, "extendedAgentCard": true,
            "extensions": [{ "uri": "https://ext.example/x", "params": { "at": inside } }]
        },
        "securitySchemes": { "sso": { "type": "openIdConnect", "openIdConnectUrl": inside } },
        "security": [{ "sso": [] }], "securityRequirements": [{ "schemes": { "sso": { "list": [] } } }],
        "supportsAuthenticatedExtendedCard": true,
        "signatures": [{ "protected": "e30", "signature": "x", "header": { "jku": inside } }],
        "defaultInputModes": ["text/plain", "image/png"], "defaultOutputModes": ["text/markdown"],
        "skills": [
            { "id": "cook", "name": "Cook", "description": "Cooks a meal", "tags": ["food"], "examples": ["soup"],
              "inputModes": ["image/png"], "security": [{ "sso": [] }], "endpoint": inside },
            { "name": "bake" }, { "id": "cook", "name": "twice" }, { "tags": ["nameless"] }, 7
        ],
        "rating": { "stars": 5, "by": ["guests"] },
        "metrics": { "by": [{ "host": "recipes.corp.example" }] }, "status_page": "HTTP://status.example", "x": { inside: 1 }
    })
}

/// The stored form of a card found at this URL.
fn stored(url: &str, card: &Value) -> Option<Json> {
    (upstream::well_known_document("weather").extract)(&[url], card.to_string().as_bytes())
}

fn card_from(found: &Value, options: Value, variant: Variant) -> Value {
    let options: Options = serde_json::from_value(options).expect("options");
    let agent = agent();
    let upstream = UpstreamCard::from_stored(&stored("http://recipes.svc.cluster.local:9000/", found).expect("a card"));
    let (schemes, upstream) = (BTreeMap::new(), Some(&upstream));
    let material = CardBuilder { agent: &agent, options: &options, schemes: &schemes, extended: None, upstream };
    Json::from_serialize(&material.card(variant, "https://gw.example/weather", false)).decode().expect("an object")
}

#[test]
fn a_card_based_on_the_upstream_does_not_reveal_its_location() {
    for variant in [Variant::V1, Variant::V03, Variant::Hybrid] {
        let card = card_from(&internal(), json!({}), variant);
        let text = card.to_string();
        for inside in ["svc.cluster.local", "corp.example", "10.0.0.5", "sso", "GRPC", "jku", "ext.example", "status."]
        {
            assert!(!text.contains(inside), "{inside} in {text}");
        }
        for name in ["securitySchemes", "security", "securityRequirements", "signatures", "documentationUrl", "iconUrl"]
        {
            assert!(card.get(name).is_none(), "{name} in {text}");
        }
        assert!(card.get("supportsAuthenticatedExtendedCard").is_none());
        assert_eq!(card["capabilities"], json!({ "streaming": true, "pushNotifications": true }));
        assert_eq!(
            (&card["name"], &card["description"], &card["version"]),
            (&json!("Recipes"), &json!("Cooks"), &json!("3.1"))
        );

        assert_eq!(card["provider"], json!({ "organization": "Kitchen", "url": "https://kitchen.example" }));
        assert_eq!(card["defaultInputModes"], json!(["text/plain", "image/png"]));
        assert_eq!(
            card["skills"],
            json!([
                { "id": "cook", "name": "Cook", "description": "Cooks a meal", "tags": ["food"], "examples": ["soup"],
                  "inputModes": ["image/png"] },
                { "id": "bake", "name": "bake", "description": "bake", "tags": ["bake"] }
            ])
        );
        // Strict readers of 1.0 get only 1.0 fields.
        let rating = (variant != Variant::V1).then(|| json!({ "stars": 5, "by": ["guests"] }));
        assert_eq!(card.get("rating"), rating.as_ref());
        assert!(card.get("metrics").is_none() && card.get("x").is_none());
    }

    let hybrid = card_from(&internal(), json!({}), Variant::Hybrid);
    assert_eq!(hybrid["url"], "https://gw.example/weather");
    assert_eq!(hybrid["additionalInterfaces"].as_array().map(Vec::len), Some(2));
    assert_eq!(hybrid["supportedInterfaces"].as_array().map(Vec::len), Some(4));
}

#[test]
fn route_options_win_over_the_upstream_card() {
    let options = json!({ "card": {
        "name": "Ours", "input_modes": ["text/plain"], "icon_url": "https://gw.example/i.png",
        "skills": [{ "id": "s", "name": "S", "description": "D", "tags": ["t"] }],
        "security_schemes": { "key": { "type": "api_key", "location": "header", "name": "x-key" } },
    } });
    let card = card_from(&internal(), options, Variant::V1);
    assert_eq!((&card["name"], &card["description"]), (&json!("Ours"), &json!("Cooks")));
    assert_eq!(
        (&card["defaultInputModes"], &card["defaultOutputModes"]),
        (&json!(["text/plain"]), &json!(["text/markdown"]))
    );
    assert_eq!((&card["iconUrl"], &card["skills"][0]["id"]), (&json!("https://gw.example/i.png"), &json!("s")));
    assert_eq!(card["skills"].as_array().map(Vec::len), Some(1));
    assert_eq!(card["securitySchemes"]["key"]["apiKeySecurityScheme"]["name"], "x-key");
}

#[test]
fn missing_upstream_fields_come_from_the_agent_settings() {
    let card = card_from(&json!({ "name": " Terse " }), json!({}), Variant::V1);
    assert_eq!((&card["name"], &card["description"]), (&json!("Terse"), &json!("Weather for cities")));
    assert_eq!((&card["version"], &card["defaultInputModes"]), (&json!("1.2.0"), &json!(["text/plain"])));
    assert_eq!(card["skills"][0]["id"], "weather");
}

#[test]
fn cards_of_any_version_are_parsed_and_wrong_types_count_as_absent() {
    let new = json!({
        "name": "New", "supportedInterfaces": [], "default_input_modes": "text/html", "description": 7,
        "provider": "Kitchen", "skills": { "id": "x" }, "documentation_url": "https://docs.example/a", "iconUrl": "data:image/png;base64,AA"
    });
    let card = card_from(&new, json!({}), Variant::Hybrid);
    assert_eq!((&card["name"], &card["description"]), (&json!("New"), &json!("Weather for cities")));
    assert_eq!(
        (&card["defaultInputModes"], &card["documentationUrl"]),
        (&json!(["text/html"]), &json!("https://docs.example/a"))
    );
    assert_eq!((card.get("provider"), &card["iconUrl"]), (None, &json!("data:image/png;base64,AA")));
    assert!(card.get("default_input_modes").is_none() && card.get("documentation_url").is_none());
    for nothing in [json!([]), json!({}), json!({ "detail": "Not Found" }), json!({ "name": "" }), json!("name")] {
        assert_eq!(stored("http://h", &nothing), None, "{nothing}");
    }

    let deep = format!("{{\"name\":\"n\",\"deep\":{}1{}}}", "[".repeat(5000), "]".repeat(5000));
    let read = (upstream::well_known_document("weather").extract)(&["http://h"], deep.as_bytes()).expect("a card");
    assert!(!read.text().contains("deep"));
    for broken in ["", "<html></html>", "{\"name\":\"half"] {
        assert_eq!(
            (upstream::well_known_document("weather").extract)(&["http://h"], broken.as_bytes()),
            None,
            "{broken}"
        );
    }
}

#[test]
fn links_to_internal_hosts_or_the_agent_itself_are_dropped() {
    for (link, stays) in [
        ("https://docs.example/a", true),
        ("https://8.8.8.8/a", true),
        ("https://agent.example/docs", false),
        ("https://AGENT.example./docs", false),
        ("https://other.example:8443/docs", false),
        ("https://docs/a", false),
        ("https://localhost/a", false),
        ("https://agent.prod.internal/a", false),
        ("http://192.168.1.7/a", false),
        ("http://0x7f.1/a", false),
        ("http://[::1]/a", false),
        ("https://user:secret@docs.example/a", false),
        ("ftp://docs.example/a", false),
        ("/docs", false),
        ("data:text/html,x", false),
    ] {
        let found = json!({
            "name": "n", "documentationUrl": link, "url": "http://0.0.0.0:80",
            "additionalInterfaces": [{ "url": "https://user@Other.example:8443/x" }],
            "provider": { "organization": "o", "url": link }
        });
        let stored = stored("https://agent.example/.well-known/agent.json", &found).expect("a card");
        assert_eq!(stored.text().contains("documentationUrl"), stays, "{link}");
        assert_eq!(stored.text().contains("provider"), stays, "{link}");
    }
}

#[test]
fn a_stored_card_round_trips() {
    for found in [internal(), json!({ "name": "n" }), json!({ "name": "n", "a": 1, "b": { "c": [true] } })] {
        let once = stored("http://h/x", &found).expect("a card");
        assert_eq!((upstream::well_known_document("weather").extract)(&[], once.text().as_bytes()), Some(once));
    }
}
