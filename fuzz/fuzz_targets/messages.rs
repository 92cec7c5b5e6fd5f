//! A hostile client of Anthropic Messages, and an agent that writes broken arguments: bytes as the body of a request,
//! and as the arguments of a call. The body is refused with an error that the SDKs read, or it makes a call of the
//! engine; and the pieces of the call's input, joined, are a JSON object.
#![no_main]

use interlingua_anthropic_messages::{AnthropicMessages, Options};
use interlingua_core::exchange::{Exchange, ProtocolAdapter};
use interlingua_core::json::Extra;
use interlingua_core::model::{ContentType, MessageType, Role};
use interlingua_core::run::{CallHead, MessageEnd, MessageStart};
use interlingua_core_testkit::{self as testkit, ClientRequest, HttpResponse, TestRun};
use interlingua_core::{Call, End, Flow, Out, Record};
use interlingua_fuzz::edited;
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

const SEEDS: &[&[u8]] = &[
    br#"{"model":"demo","max_tokens":10,"stream":true,"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f","input_schema":{}}]}"#,
    br#"{"model":"demo","system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","source":{"type":"url","url":"u"}},{"type":"document","title":"t","source":{"type":"text","data":"d"}}]},{"role":"assistant","content":[{"type":"thinking","thinking":"h","signature":"s"},{"type":"tool_use","id":"c","name":"f","input":{"_arguments":"x"}},{"type":"mcp_tool_use","id":"m","name":"n","server_name":"s","input":{}},{"type":"mcp_tool_result","tool_use_id":"m","content":[]}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","is_error":true,"content":[{"type":"tool_reference","tool_name":"later"}]}]},{"role":"system","content":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"name":"g","input_schema":{}}}},{"type":"tool_removal","tool":{"name":"f"}}]}]}"#,
    br#"{"model":"demo","messages":[{"role":"assistant","content":"x\n[approval appr_1]"},{"role":"user","content":"yes"}],"thread":{"type":"continue","previous_message_id":"msg_01930000000070008000000000000001"},"output_config":{"effort":"low","format":{"type":"json_schema","schema":{}}},"metadata":{"user_id":"{\"session_id\":\"s\"}"}}"#,
    br#"{"a":[1,-0.5e+3,{"b":"\u00e4\\"}],"c":null}"#,
];

fuzz_target!(|input: &[u8]| {
    let Some(bytes) = edited(SEEDS, input) else { return };
    request(&bytes);
    if let Ok(arguments) = std::str::from_utf8(&bytes) {
        call(arguments, usize::from(input.first().copied().unwrap_or_default()));
    }
});

fn open(body: &[u8]) -> (Box<dyn Exchange>, Result<Call, interlingua_core::Fault>) {
    let mount = testkit::mount("/anthropic", &["demo"]);
    let mounted = AnthropicMessages::mount(&mount, Options::default()).expect("the options are valid");
    let (endpoint, _) = testkit::endpoint(&mounted, "POST", "/v1/messages").expect("an endpoint");
    let mut exchange = (endpoint.open)();
    let decoded = ClientRequest::post("/v1/messages", body).decode(&mut *exchange);
    (exchange, decoded)
}

/// A body is refused, or makes a call.
fn request(body: &[u8]) {
    let (mut exchange, decoded) = open(body);
    let Err(fault) = decoded else { return };
    let mut out = Out::new();
    exchange.fail(&fault, &mut out);
    let reply = HttpResponse::from_out(out);
    assert!((400..500).contains(&reply.status), "{}", reply.line());
    assert!(reply.json()["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
}

/// Arguments in two pieces.
fn call(arguments: &str, cut: usize) {
    let mut cut = cut.min(arguments.len());
    while !arguments.is_char_boundary(cut) {
        cut -= 1;
    }
    let mut record: Record = testkit::started();
    let message = record.start_message(MessageStart::new("", MessageType::FunctionCall, Role::Assistant));
    let head = CallHead { call_id: "c".to_owned(), name: "f".to_owned(), server_label: None };
    let content = record.start_content(message, ContentType::Data, Some(head));
    for piece in [&arguments[..cut], &arguments[cut..]] {
        if !piece.is_empty() {
            record.push(message, content, piece);
        }
    }
    record.finish_content(message, content, None, Extra::new());
    record.finish_message(message, MessageEnd::new(End::Completed));
    record.close(End::Completed, None);

    let (mut exchange, _) = open(SEEDS[0]);
    let mut out = Out::new();
    exchange.begin(TestRun::new(&record).view(), &mut out);
    let ended = record.steps(0).map(|step| exchange.encode(step, &mut out)).last();
    assert_eq!(ended, Some(Flow::Close));
    let frames = HttpResponse::from_out(out).frames();
    let pieces = frames.iter().filter_map(|frame| frame["delta"]["partial_json"].as_str());
    let input = pieces.collect::<String>();
    assert!(is_object(&input), "{input}");
    assert!(is_object(arguments) || arguments.trim().is_empty() || input.contains("\"_arguments\":"), "{input}");
}

/// True for JSON of an object, also if it holds numbers or texts that no program can represent.
fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<&RawValue>(text).is_ok()
}
