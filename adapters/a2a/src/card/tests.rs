//! Cards in their three forms.

use serde_json::Value;

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
    let material = Material { agent: &agent, options: &options, extended: None };
    Json::of(&material.card(variant, "https://gw.example/weather"))
}

#[test]
fn the_hybrid_card_is_that_of_the_page() {
    let wanted = concat!(
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
    assert_eq!(card(json!({}), Variant::Hybrid).text(), wanted);
    let pure = card(json!({}), Variant::V1);
    assert_eq!(pure.text(), format!("{}}}", &wanted[..wanted.find(r#","protocolVersion":"0.3.0""#).expect("there")]));
}

#[test]
fn ways_to_sign_in_are_spelled_for_each_generation() {
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
        let card: Value = card(options.clone(), variant).read().expect("an object");
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
fn a_card_says_only_what_is_served() {
    let only = card(json!({ "versions": ["1.0"], "bindings": ["HTTP+JSON"], "push": false }), Variant::Hybrid);
    let only: Value = only.read().expect("an object");
    assert_eq!(only["supportedInterfaces"].as_array().expect("a list").len(), 1);
    assert!(only.get("url").is_none() && only["capabilities"] == json!({ "streaming": true }), "{only}");
    let extended = card(json!({ "extended_card": { "name": "more" } }), Variant::Hybrid);
    let extended: Value = extended.read().expect("an object");
    assert_eq!(extended["capabilities"]["extendedAgentCard"], json!(true));
    assert_eq!(extended["supportsAuthenticatedExtendedCard"], json!(true));
    assert_eq!(extended["name"], "weather");
}
