//! The message template of an MCP tool and arguments for it: a template is refused when its route is mounted, or any
//! arguments are filled in or refused with a code. The first line of the input is the template.
#![no_main]

use interlingua_core::Call;
use interlingua_core::ProtocolAdapter;
use interlingua_core_testkit::{TestRoute, mount};
use interlingua_fuzz::edited;
use interlingua_fuzz::mcp::{refusal, route, send};
use interlingua_mcp::{Mcp, Options};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};

const SEEDS: &[&[u8]] = &[
    b"Translate into {language}: {text}\n{\"text\":\"a {text}\",\"language\":\"de\"}",
    b"{{\"a\": {n}} {list} {flag}\n{\"n\":3,\"list\":[1,\"b\",{\"c\":null}],\"flag\":true}",
    b"{a}{b}{a}\n{\"a\":\"{b}\",\"b\":\"\",\"session\":\"s\"}",
];

/// The names between braces, and the text with the values in their places. `None`: it is no template.
fn filled(template: &str, arguments: &Map<String, Value>) -> Option<String> {
    let mut text = String::new();
    let mut rest = template;
    while let Some(place) = rest.find('{') {
        text.push_str(&rest[..place]);
        rest = &rest[place + 1..];
        if let Some(after) = rest.strip_prefix('{') {
            text.push('{');
            rest = after;
            continue;
        }
        let end = rest.find('}')?;
        let name = &rest[..end];
        if name.is_empty() || name.contains('{') {
            return None;
        }
        match arguments.get(name) {
            Some(Value::String(value)) => text.push_str(value),
            Some(value) => text.push_str(&value.to_string()),
            None => {}
        }
        rest = &rest[end + 1..];
    }
    text.push_str(rest);
    Some(text)
}

/// A route whose tool has this template, with the arguments declared. `None`: it is refused.
fn templated(template: &str, arguments: &Map<String, Value>) -> Option<TestRoute> {
    let names = arguments.keys().filter(|name| *name != "session").map(|name| (name.clone(), json!({})));
    let properties: Map<String, Value> = names.collect();
    let declared = json!({ "type": "object", "properties": properties });
    let options = json!({ "tools": { "demo": { "message": template, "arguments": declared } } }).to_string();
    let read: Options = serde_json::from_str(&options).expect("options");
    Mcp::mount(&mount("/mcp", &["demo"]), read).ok()?;
    Some(route(&options))
}

fuzz_target!(|input: &[u8]| {
    let Some(bytes) = edited(SEEDS, input) else { return };
    let Ok(text) = std::str::from_utf8(&bytes) else { return };
    let Some((template, arguments)) = text.split_once('\n') else { return };
    let Ok(arguments) = serde_json::from_str::<Map<String, Value>>(arguments) else { return };
    let expected = filled(template, &arguments);
    let Some(route) = templated(template, &arguments) else { return };
    let expected = expected.unwrap_or_else(|| panic!("{template:?} is mounted"));

    let mut sent = send(&route, "tools/call", "demo", json!({ "name": "demo", "arguments": arguments }));
    assert_eq!(refusal(&mut sent), None, "{arguments:?}");
    // Another call asks for the session, or answers with an error for the model.
    if let Ok(Call::Run(call)) = &sent.outcome {
        let message = call.request.input.iter().next().expect("a message");
        assert_eq!(message.text(), expected, "{template:?} {arguments:?}");
    }
});
