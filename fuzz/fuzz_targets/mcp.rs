//! A hostile MCP client: bytes as the body of a message, with headers that agree with it or not. The message is refused
//! with an error of JSON-RPC, or it is a valid call; in revision 2026-07-28 only if its headers say what its body says.
#![no_main]

use std::sync::LazyLock;

use interlingua_core_testkit::TestRoute;
use interlingua_fuzz::edited;
use interlingua_fuzz::mcp::{MODERN, refusal, route};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const SEEDS: &[&[u8]] = &[
    br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"demo","arguments":{"message":"hi","attachments":[{"url":"https://a.b/c.png","mime_type":"image/png"},{"data":"AQ==","mime_type":"audio/wav"},{"text":"x","name":"n"}],"session":"s"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{},"url":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}},"progressToken":"p1"}}}"#,
    br#"{"jsonrpc":"2.0","id":"x","method":"tasks/update","params":{"taskId":"0198f2a0-7b1c-7aaa-bbbb-0123456789ab","inputResponses":{"a":{"action":"accept","content":{"decision":"accept"}}},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}"#,
    br#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"taskIds":["0198f2a0-7b1c-7aaa-bbbb-0123456789ab"]},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}"#,
    br#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"interlingua://runs/0198f2a0-7b1c-7aaa-bbbb-0123456789ab/parts/1","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#,
    br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"a","version":"1"}}}"#,
    br#"[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"answer","arguments":{"run":"0198f2a0-7b1c-7aaa-bbbb-0123456789ab","decision":"edit","arguments":{"a":1}}}}]"#,
    br#"{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"demo"},"argument":{"name":"session","value":"a"}}}"#,
    br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
    br#"{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}"#,
];

/// Values of headers beside those that the body has.
const WORDS: [&str; 6] = ["", MODERN, "2025-11-25", "tools/call", "demo", "=?base64?ZGVtbw==?="];

static ROUTE: LazyLock<TestRoute> = LazyLock::new(|| route("{}"));

/// The value of a header: that of the body, another one, or none.
fn header(choice: u8, own: Option<&str>) -> Option<String> {
    match choice % 8 {
        0..=3 => own.map(str::to_owned),
        4 => Some(format!(" {} ", own.unwrap_or_default())),
        5 => None,
        _ => Some(WORDS[usize::from(choice / 8) % WORDS.len()].to_owned()),
    }
}

/// The value that `Mcp-Name` has to repeat.
fn named(body: &Value) -> Option<&str> {
    let parameter = match body["method"].as_str()? {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return None,
    };
    body["params"][parameter].as_str()
}

fuzz_target!(|input: &[u8]| {
    let [version, method, name, input @ ..] = input else { return };
    let Some(bytes) = edited(SEEDS, input) else { return };
    let Ok(text) = std::str::from_utf8(&bytes) else { return };
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    let body = match &body {
        Value::Array(messages) if messages.len() == 1 => messages[0].clone(),
        _ => body,
    };
    let stated = body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str();
    let values = [
        ("mcp-protocol-version", header(*version, stated)),
        ("mcp-method", header(*method, body["method"].as_str())),
        ("mcp-name", header(*name, named(&body))),
    ];
    let mut headers = vec![("accept", "application/json, text/event-stream")];
    headers.extend(values.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))));

    let mut sent = ROUTE.send("POST", "", text, &headers);
    if let Some((status, error)) = refusal(&mut sent) {
        assert!([200, 400, 404, 406].contains(&status), "{status} {error}");
        return;
    }
    let is_modern = stated.is_some() || values[0].1.as_deref().map(str::trim) == Some(MODERN);
    if is_modern && body["method"].is_string() && body.get("id").is_some() {
        let value = |place: usize| values[place].1.as_deref().map(str::trim);
        assert_eq!(stated, Some(MODERN), "{text}");
        assert_eq!((value(0), value(1)), (stated, body["method"].as_str()), "{text}");
        let repeated = value(2);
        if let Some(named) = named(&body) {
            assert!(repeated == Some(named.trim()) || repeated.is_some_and(|name| name.starts_with("=?")), "{text}");
        }
    }
});
