//! Cards of routes: the offers to each caller, the interfaces of tenants, and options that are rejected at startup. Not
//! here: cards based on the agent's own (`upstream_card`).

mod support;

use interlingua_core::AuthScheme;
use interlingua_core::call::Reply;
use serde_json::{Value, json};
use support::{ClientRequest, Host, authenticating, mounted, mounted_with, with};

const PATH: &str = "/.well-known/agent-card.json";

/// Card formats for requests without a version.
const FORMS: [&str; 3] = ["hybrid", "1.0", "0.3"];

fn card(host: &Host, version: Option<&'static str>) -> Value {
    let request = ClientRequest::new("GET", PATH);
    let request = version.map_or(request.clone(), |version| request.header("a2a-version", version));
    host.send(&request).final_answer(Reply::Done).json()
}

fn form(options: &Value, form: &str, authenticates: bool) -> Value {
    let mut options = options.clone();
    options["card_without_version"] = json!(form);
    card(&if authenticates { authenticating(options) } else { with(options) }, None)
}

/// The error from mounting a route with these options.
fn rejected(options: Value) -> String {
    mounted(options.clone(), false).err().unwrap_or_else(|| panic!("mounted: {options}"))
}

#[test]
fn an_extended_card_is_offered_only_if_callers_can_authenticate() {
    let options = json!({ "extended_card": { "description": "and more" } });
    let (closed, open) = (authenticating(options.clone()), with(options.clone()));
    for name in FORMS {
        let offering = form(&options, name, true);
        let new = (name != "0.3").then_some(&Value::Bool(true));
        let old = (name != "1.0").then_some(&Value::Bool(true));
        assert_eq!(offering["capabilities"].get("extendedAgentCard"), new, "{name}");
        assert_eq!(offering.get("supportsAuthenticatedExtendedCard"), old, "{name}");
        let silent = form(&options, name, false).to_string();
        assert!(!silent.contains("extendedAgentCard") && !silent.contains("ExtendedCard"), "{silent}");
    }
    for authenticated in [false, true] {
        let request = ClientRequest { authenticated, ..ClientRequest::rpc("GetExtendedAgentCard", &json!({})) };
        assert_eq!(open.send(&request).rejected().json()["error"]["code"], -32004);
    }
    assert_eq!((open.0.warnings.len(), closed.0.warnings.len()), (1, 0));
    assert!(open.0.warnings[0].contains("\"extended_card\""), "{:?}", open.0.warnings);
    assert!(with(json!({})).0.warnings.is_empty());
}

#[test]
fn security_follows_from_how_callers_authenticate() {
    let all = vec![
        AuthScheme::ApiKey,
        AuthScheme::Bearer { jwt_only: false },
        AuthScheme::OpenId { url: "https://id.example/.well-known/openid-configuration".to_owned() },
        AuthScheme::OpenId { url: "https://other.example/.well-known/openid-configuration".to_owned() },
        AuthScheme::Certificate,
    ];
    let configured = json!({
        "card": {
            "security_schemes": { "basic": { "type": "http", "scheme": "basic" } },
            "security": [{ "basic": [] }],
            "skills": [{ "id": "s", "name": "s", "description": "s", "tags": ["s"], "security": [{ "basic": [] }] }],
        },
        "extended_card": { "description": "and more" },
    });
    let mount = |schemes: &[AuthScheme], form: &str| {
        let mut options = configured.clone();
        options["card_without_version"] = json!(form);
        Host(mounted_with(Some("https://gw.example"), options, schemes.to_vec()).expect("mounts"))
    };

    let names = ["apiKey", "bearer", "mtls", "oidc", "oidc2"];
    for form in FORMS {
        let card = card(&mount(&all, form), None);
        let schemes = card["securitySchemes"].as_object().expect("schemes");
        assert_eq!(schemes.keys().collect::<Vec<_>>(), names, "{form}");
        assert!(!card.to_string().contains("basic"), "{card}");
        if form != "1.0" {
            // Any one is enough.
            assert_eq!(card["security"], json!(names.map(|name| json!({ name: [] }))));
            assert_eq!(schemes["apiKey"]["in"], "header");
            assert_eq!(schemes["oidc2"]["openIdConnectUrl"], "https://other.example/.well-known/openid-configuration");
        }
        if form != "0.3" {
            let required = names.map(|name| json!({ "schemes": { name: {} } }));
            assert_eq!(card["securityRequirements"], json!(required));
            assert_eq!(schemes["apiKey"]["apiKeySecurityScheme"], json!({ "location": "header", "name": "x-api-key" }));
            assert_eq!(schemes["bearer"]["httpAuthSecurityScheme"], json!({ "scheme": "bearer" }));
            assert_eq!(schemes["mtls"]["mtlsSecurityScheme"], json!({}));
        }
    }

    let tokens = card(&mount(&[AuthScheme::Bearer { jwt_only: true }], "0.3"), None);
    let bearer = json!({ "type": "http", "scheme": "bearer", "bearerFormat": "JWT" });
    assert_eq!(tokens["securitySchemes"], json!({ "bearer": bearer }));

    // Without authentication the gateway may be behind a proxy that asks for it.
    let open = card(&mount(&[], "0.3"), None);
    assert_eq!(open["security"], json!([{ "basic": [] }]));

    let warnings = |schemes: &[AuthScheme]| mount(schemes, "0.3").0.warnings;
    assert!(warnings(&all)[0].contains("\"security_schemes\" of the card are ignored"), "{:?}", warnings(&all));
    assert!(warnings(&[])[0].contains("\"extended_card\""), "{:?}", warnings(&[]));
}

#[test]
fn tenant_interfaces_follow_those_of_the_agent() {
    let interfaces = |options: Value, version: &'static str| -> Vec<String> {
        let card = card(&with(options), Some(version));
        let all = card["supportedInterfaces"].as_array().expect("a list");
        let short = |name: &str, entry: &Value| entry[name].as_str().unwrap_or("-").to_owned();
        all.iter()
            .map(|entry| ["protocolBinding", "protocolVersion", "tenant"].map(|name| short(name, entry)).join(" "))
            .collect()
    };

    let tenants = json!({ "tenants": { "b": "demo", "a": "demo" } });
    let own = ["JSONRPC 1.0 -", "HTTP+JSON 1.0 -", "JSONRPC 0.3 -", "HTTP+JSON 0.3 -"];
    let of_tenants = ["JSONRPC 1.0 a", "HTTP+JSON 1.0 a", "JSONRPC 1.0 b", "HTTP+JSON 1.0 b"];
    assert_eq!(interfaces(json!({}), "1.0"), own);
    assert_eq!(interfaces(tenants, "1.0"), [own, of_tenants].concat());

    let narrow = json!({ "tenants": { "a": "demo" }, "bindings": ["HTTP+JSON"], "versions": ["1.0"] });
    assert_eq!(interfaces(narrow, "1.0"), ["HTTP+JSON 1.0 -", "HTTP+JSON 1.0 a"]);
    let old = form(&json!({ "tenants": { "a": "demo" } }), "0.3", false);
    assert!(!old.to_string().contains("tenant") && old.get("supportedInterfaces").is_none(), "{old}");
}

#[test]
fn v03_cards_omit_security_that_v03_does_not_support() {
    let device = json!({ "device_code": { "device_authorization_url": "https://a/d", "token_url": "https://a/t" } });
    let skill = |id: &str, security: Value| json!({ "id": id, "name": "n", "description": "d", "tags": ["t"], "security": security });
    let options = |security: Value| {
        json!({ "card": {
            "security_schemes": { "tv": { "type": "oauth2", "flows": device }, "key": { "type": "http", "scheme": "bearer" } },
            "security": security,
            "skills": [skill("a", json!([{ "tv": ["x"] }, { "key": [] }])), skill("b", json!([{ "tv": [] }])), skill("c", json!([]))],
        } })
    };

    let all = options(json!([{ "tv": [] }, { "key": ["s"] }, { "key": [], "tv": [] }]));
    let host = with(all.clone());
    for name in ["hybrid", "0.3"] {
        let card = form(&all, name, false);
        assert_eq!(card["security"], json!([{ "key": ["s"] }]));
        assert_eq!(card["securitySchemes"]["tv"].get("type"), None);
        assert_eq!(card["skills"][0]["security"], json!([{ "key": [] }]));
        assert_eq!((card["skills"][1].get("security"), card["skills"][2].get("security")), (None, None));
    }

    let new = card(&host, Some("1.0"));
    assert_eq!(new.get("security"), None);
    assert_eq!(
        new["securityRequirements"],
        json!([
            { "schemes": { "tv": {} } },
            { "schemes": { "key": { "list": ["s"] } } },
            { "schemes": { "key": {}, "tv": {} } }
        ])
    );
    let needed = json!([{ "schemes": { "tv": { "list": ["x"] } } }, { "schemes": { "key": {} } }]);
    assert_eq!((&new["skills"][0]["securityRequirements"], new["skills"][0].get("security")), (&needed, None));
    assert_eq!(card(&host, None)["skills"][0]["securityRequirements"], needed);
    assert!(new["skills"][2].get("securityRequirements").is_none());

    // If nothing is left, the field is omitted.
    let old = form(&options(json!([{ "tv": [] }])), "0.3", false);
    assert_eq!(old.get("security"), None);
    let only = json!({ "card": { "security_schemes": { "tv": { "type": "oauth2", "flows": device } }, "security": [{ "tv": [] }] } });
    let old = form(&only, "0.3", false);
    assert_eq!((old.get("security"), old.get("securitySchemes")), (None, None));
}

#[test]
fn a_second_signature_is_added_only_for_required_empty_values() {
    // RFC 8032, section 7.1, test 1, as PKCS #8.
    let key = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n";
    let signatures = |more: Value| {
        let mut options = json!({ "card_signing": { "algorithm": "EdDSA", "key_id": "k", "key": key } });
        options.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let host = with(options);
        assert!(card(&host, None).get("signatures").is_none() && card(&host, Some("0.3")).get("signatures").is_none());
        card(&host, Some("1.0"))["signatures"].as_array().map(Vec::len)
    };
    let key = json!({ "k": { "type": "api_key", "location": "header", "name": "x-key" } });
    assert_eq!(signatures(json!({})), Some(1));
    assert_eq!(
        signatures(json!({ "extensions": [{ "uri": "urn:x", "required": false, "params": { "a": 1.0 } }] })),
        Some(1)
    );
    assert_eq!(signatures(json!({ "card": { "security_schemes": key, "security": [{ "k": ["s"] }] } })), Some(1));
    // A requirement without scopes and extension parameters may be empty.
    assert_eq!(signatures(json!({ "card": { "security_schemes": key, "security": [{ "k": [] }] } })), Some(2));
    assert_eq!(signatures(json!({ "extensions": [{ "uri": "urn:x", "params": { "a": "", "b": [] } }] })), Some(2));
}

#[test]
fn a_url_from_a_request_is_never_signed() {
    let key = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n";
    let signing = json!({ "card_signing": { "algorithm": "EdDSA", "key_id": "k", "key": key } });
    let rejected = support::mounted_at(None, signing.clone(), false).err().expect("rejected");
    assert!(
        rejected.contains("\"card_signing\"")
            && rejected.ends_with("set public_url in [server], or in the options of this route"),
        "{rejected}"
    );

    let mut own = signing;
    own["public_url"] = json!("https://agents.example.com/{agent}");
    assert!(support::mounted_at(None, own, false).is_ok());
}

#[test]
fn invalid_card_options_are_rejected_by_name() {
    let skill = |field: &str, value: Value| {
        let mut skill = json!({ "id": "s", "name": "S", "description": "D", "tags": ["t"] });
        skill[field] = value;
        json!({ "card": { "skills": [skill] } })
    };
    let card = |field: &str, value: Value| json!({ "card": { field: value } });
    let scheme = |scheme: Value| json!({ "card": { "security_schemes": { "k": scheme } } });
    let flow = |name: &str, flow: Value| scheme(json!({ "type": "oauth2", "flows": { name: flow } }));
    let extension = |field: &str, value: Value| {
        let mut extension = json!({ "uri": "urn:x" });
        extension[field] = value;
        json!({ "extensions": [extension] })
    };
    let mut deep = json!(1);
    for _ in 0..64 {
        deep = json!([deep]);
    }
    for (options, named, why) in [
        (json!({ "public_url": "agents.example.com" }), "public_url", "http"),
        (json!({ "public_url": "" }), "public_url", "http"),
        (json!({ "public_url": "ftp://agents.example.com" }), "public_url", "http"),
        (json!({ "public_url": "https://a b.example" }), "public_url", "http"),
        (json!({ "public_url": "https://u:p@a.example" }), "public_url", "user"),
        (json!({ "public_url": "https://a.example/x?y" }), "public_url", "query"),
        (json!({ "versions": ["1.0", "1.0"] }), "versions", "twice"),
        (json!({ "bindings": ["HTTP+JSON", "JSONRPC", "HTTP+JSON"] }), "bindings", "twice"),
        (json!({ "max_push_configs": 0 }), "max_push_configs", "at least 1"),
        (json!({ "push_ports": [0] }), "push_ports", "65535"),
        (json!({ "tenants": { "a\nb": "demo" } }), "tenant", "control"),
        (card("name", json!(" ")), "card.name", "empty"),
        (card("description", json!("")), "card.description", "empty"),
        (card("version", json!("")), "card.version", "empty"),
        (card("documentation_url", json!("")), "card.documentation_url", "http"),
        (card("icon_url", json!("icon.png")), "card.icon_url", "http"),
        (card("provider", json!({ "organization": "", "url": "https://o" })), "card.provider.organization", "empty"),
        (card("provider", json!({ "organization": "o", "url": "" })), "card.provider.url", "http"),
        (card("input_modes", json!(["text/plain", ""])), "card.input_modes[1]", "media type"),
        (card("output_modes", json!(["text/"])), "card.output_modes[0]", "media type"),
        (card("output_modes", json!(["a/b/c"])), "card.output_modes[0]", "media type"),
        (skill("id", json!("")), "card.skills[0].id", "empty"),
        (skill("name", json!("")), "card.skills[0].name", "empty"),
        (skill("description", json!("")), "card.skills[0].description", "empty"),
        (skill("tags", json!([])), "card.skills[0].tags", "at least one"),
        (skill("tags", json!(["t", ""])), "card.skills[0].tags[1]", "empty"),
        (skill("examples", json!([""])), "card.skills[0].examples[0]", "empty"),
        (skill("input_modes", json!(["text plain"])), "card.skills[0].input_modes[0]", "media type"),
        (skill("security", json!([{ "k": [] }])), "card.skills[0].security[0]", "does not declare"),
        (card("security", json!([{ "k": [] }])), "card.security[0]", "card.security_schemes"),
        (card("security", json!([{}])), "card.security[0]", "no scheme"),
        (
            scheme(json!({ "type": "api_key", "location": "body", "name": "x" })),
            "card.security_schemes.k.location",
            "cookie",
        ),
        (
            scheme(json!({ "type": "api_key", "location": "query", "name": "" })),
            "card.security_schemes.k.name",
            "empty",
        ),
        (scheme(json!({ "type": "http", "scheme": "" })), "card.security_schemes.k.scheme", "empty"),
        (
            scheme(json!({ "type": "http", "scheme": "bearer", "description": "" })),
            "card.security_schemes.k.description",
            "empty",
        ),
        (scheme(json!({ "type": "open_id_connect", "url": "x" })), "card.security_schemes.k.url", "http"),
        (flow("client_credentials", json!({})), "flows.client_credentials.token_url", "missing"),
        (
            flow("device_code", json!({ "token_url": "https://a/t" })),
            "flows.device_code.device_authorization_url",
            "missing",
        ),
        (
            flow("client_credentials", json!({ "token_url": "https://a/t", "authorization_url": "https://a/a" })),
            "flows.client_credentials.authorization_url",
            "leave it out",
        ),
        (
            flow("password", json!({ "token_url": "https://a/t", "pkce_required": true })),
            "flows.password.pkce_required",
            "flow",
        ),
        (extension("uri", json!("")), "extensions[0].uri", "URI"),
        (extension("uri", json!("urn:a,urn:b")), "extensions[0].uri", "commas"),
        (extension("description", json!("")), "extensions[0].description", "empty"),
        (extension("params", json!([1])), "extensions[0].params", "table"),
        (extension("params", json!({ "n": 9_007_199_254_740_993_i64 })), "extensions[0].params.n", "9007199254740991"),
        (
            extension("params", json!({ "n": [-9_007_199_254_740_993_i64] })),
            "extensions[0].params.n[0]",
            "9007199254740991",
        ),
        (extension("params", json!({ "n": { "x": null } })), "extensions[0].params.n.x", "finite"),
        (extension("params", json!({ "n": deep })), "extensions[0].params.n", "nested"),
        (json!({ "extensions": [{ "uri": "urn:x" }, { "uri": "urn:x" }] }), "extensions[1].uri", "another"),
        (json!({ "extended_card": { "name": "" } }), "extended_card.name", "empty"),
        (
            json!({ "extended_card": { "security": [{ "k": [] }] } }),
            "extended_card.security[0]",
            "card.security_schemes",
        ),
    ] {
        let error = rejected(options);
        assert!(error.contains(named) && error.contains(why), "{named}, {why}: {error}");
    }

    let twice = json!({ "id": "s", "name": "S", "description": "D", "tags": ["t"] });
    assert!(rejected(card("skills", json!([twice, twice]))).contains("card.skills[1].id"));
    // Requirements inherited from the card must match the extended card's own schemes.
    let schemes = |name: &str| json!({ name: { "type": "mutual_tls" } });
    let options = json!({
        "card": { "security_schemes": schemes("k"), "security": [{ "k": [] }] },
        "extended_card": { "security_schemes": schemes("other") }
    });
    let error = rejected(options);
    assert!(error.contains("card.security[0]") && error.contains("extended_card.security_schemes"), "{error}");
}

#[test]
fn valid_options_are_accepted() {
    let skill = json!({ "id": "s", "name": "S", "description": "D", "tags": ["t"], "security": [{ "k": ["x"] }], "output_modes": ["*/*"] });
    for options in [
        json!({ "public_url": "http://127.0.0.1:8080/{agent}/" }),
        json!({ "public_url": "https://[2001:db8::1]/x", "card": { "input_modes": ["text", "text/plain; charset=utf-8", "image/*"] } }),
        json!({ "card": { "icon_url": "data:image/png;base64,AA", "documentation_url": "http://intranet/docs" } }),
        json!({
            "card": { "security_schemes": { "k": { "type": "api_key", "location": "cookie", "name": "n" } }, "skills": [skill] },
            "extended_card": { "security": [{ "k": [] }] }
        }),
        json!({ "extensions": [{ "uri": "https://e.example/1", "params": { "n": [9_007_199_254_740_991_i64, 1e21, "", {}] } }] }),
        json!({ "tenants": { "team a": "demo" }, "max_push_configs": 1 }),
    ] {
        if let Err(why) = mounted(options.clone(), false) {
            panic!("{why}: {options}");
        }
    }
}
