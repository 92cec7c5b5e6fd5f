//! A hostile client of Chat Completions: bytes as the body of a request. The body is refused with an error object, or
//! it is a request whose answer, whole and streamed, is that of any other.
#![no_main]

use interlingua_chat_completions::{ChatCompletions, Options};
use interlingua_core::call::{Reply, Thread};
use interlingua_core::exchange::{Flow, ProtocolAdapter};
use interlingua_core_testkit::{self as testkit, ClientRequest, TestRun};
use interlingua_core::{Call, End, Out};
use interlingua_fuzz::edited;
use libfuzzer_sys::fuzz_target;

const SEEDS: &[&[u8]] = &[
    br#"{"model":"demo","messages":[{"role":"user","content":"hi"}]}"#,
    br#"{"model":"demo","messages":[{"role":"system","content":"s"},{"role":"user","name":"a","content":[{"type":"text","text":"hi"},{"type":"image_url","image_url":{"url":"u","detail":"low"}},{"type":"input_audio","input_audio":{"data":"d","format":"wav"}},{"type":"file","file":{"file_data":"d","filename":"n"}},{"type":"video_url","video_url":{"url":"v"}}]}],"stream":true,"stream_options":{"include_usage":true},"stop":["a"],"n":1,"metadata":{"a":"b"},"logit_bias":{},"modalities":["audio"],"session_id":"s"}"#,
    br#"{"model":"demo","messages":[{"role":"assistant","content":"x\n[approval appr_1]","reasoning_details":[{"text":"t"}],"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{}},{"id":"d","type":"custom","custom":{"name":"g","input":"i"}}],"function_call":{"name":"h","arguments":"{}"}},{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"o"}]},{"role":"function","name":"h","content":"p"},{"role":"tool","tool_call_id":"z","content":"q"}]}"#,
    br#"{"model":"demo","messages":[{"role":"assistant","content":"[question q%20]"},{"role":"user","content":"blue"}],"tools":[{"type":"function","function":{"name":"f","parameters":{}}},{"type":"custom","name":"g"},{"type":"web_search"}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","name":"f"}]}},"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{}}},"functions":[{"name":"h"}],"function_call":"auto"}"#,
];

fuzz_target!(|input: &[u8]| {
    let Some(body) = edited(SEEDS, input) else { return };
    let mount = testkit::mount("/v1", &["demo"]);
    let options = Options { any_model: true, ..Options::default() };
    let mounted = ChatCompletions::mount(&mount, options).expect("the options are valid");
    let (endpoint, _) = testkit::endpoint(&mounted, "POST", "/chat/completions").expect("an endpoint");
    let mut exchange = (endpoint.open)();
    let mut out = Out::new();
    let call = match ClientRequest::post("/chat/completions", &body).decode(&mut *exchange) {
        Ok(Call::Run(call)) => call,
        Ok(other) => panic!("another call: {other:?}"),
        Err(fault) => {
            exchange.fail(&fault, &mut out);
            let error: serde_json::Value = serde_json::from_slice(&out.body).expect("an error is JSON");
            assert!(error["error"]["message"].is_string() && (400..500).contains(&out.head.status), "{error}");
            return;
        }
    };

    let mut record = testkit::started();
    record.close(End::Completed, None);
    let run = TestRun::new(&record).labels(call.labels.clone());
    if let Thread::Resent(resent) = &call.thread {
        // Whatever the client says was said, it is compared without a panic.
        let _ = resent.judge.ends_with(run.view());
    }
    exchange.begin(run.view(), &mut out);
    let ends = record.steps(0).filter(|step| exchange.encode(*step, &mut out) == Flow::Close).count();
    assert!(ends == 1 && out.body.ends_with(b"data: [DONE]\n\n"));
    exchange.reply(Reply::Run(run.view()), &mut Out::new()).expect("a whole answer");
});
