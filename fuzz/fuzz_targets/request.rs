//! A hostile client: bytes as the body of an Agent API request. The body is refused with an error message, or it is a
//! valid request that serializes and parses to the same value.
#![no_main]

use interlingua_core::model::AgentRequest;
use interlingua_core::tree::Node;
use interlingua_fuzz::edited;
use libfuzzer_sys::fuzz_target;

const SEEDS: &[&[u8]] = &[
    br#"{"input":[{"role":"user","content":"hi"}]}"#,
    br#"{"input":[{"role":"user","type":"message","content":[{"type":"text","text":"hi"},{"type":"image","image_url":"u"},{"type":"audio","data":"d","format":"wav"},{"type":"file","file_id":"f","file_name":"n"},{"type":"video","video_url":"v"},{"type":"refusal","refusal":"no"},{"type":"data","data":{"a":1.50}}]}],"stream":false,"id":"r","session_id":"s","user_id":"u","model":"m"}"#,
    br#"{"input":[{"id":"m","type":"function_call","role":"assistant","status":"completed","content":[{"type":"data","data":{"call_id":"c","name":"f","arguments":"{}"}}],"metadata":{"a":null},"usage":{"n":1}},{"type":"function_call_output","role":"tool","content":[{"type":"data","data":{"call_id":"c","output":"x"},"odd":[1]}],"code":"c","message":"m","odd":{}}]}"#,
    br#"{"input":[],"temperature":0.5,"top_p":1,"frequency_penalty":-2,"presence_penalty":2.0,"max_tokens":3.0,"seed":-7,"stop":["a","b"],"n":5,"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{}}}],"biz_params":{"a":[true]},"response_id":"r"}"#,
    br#"{"input":[{"role":"developer","content":[{"text":"\ud83e\udd80 \u00e9"}]}],"stop":"x","n":1}"#,
];

fuzz_target!(|input: &[u8]| {
    let Some(body) = edited(SEEDS, input) else { return };
    let read = Node::parse_object(&body).and_then(|object| AgentRequest::parse(&object));
    match read {
        Ok(request) => {
            let text = serde_json::to_vec(&request).expect("requests serialise");
            let object = Node::parse_object(&text).expect("a serialized request is an object");
            let again = AgentRequest::parse(&object).expect("a serialized request parses again");
            assert_eq!(again, request);
        }
        Err(fault) => {
            assert_eq!(fault.kind.status(), 400, "{fault}");
            assert!(!fault.message.is_empty() && !fault.message.ends_with('.'), "{fault}");
        }
    }
});
