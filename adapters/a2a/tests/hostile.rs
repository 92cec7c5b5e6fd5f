//! Arbitrary input: no request and no agent output makes the adapter panic, and cost grows with size only.

mod support;

use std::time::Instant;

use interlingua_core::call::Reply;
use interlingua_core::exchange::Next;
use interlingua_core::model::{ContentType, MessageType, Role};
use interlingua_core::run::{CallHead, MessageEnd, MessageStart};
use interlingua_core::{Call, End, Extra, Out, Record};
use interlingua_core_testkit::{self as testkit, TestRun, wild};
use proptest::prelude::*;
use serde_json::json;
use support::{ClientRequest, about, host, user, user_v03, with};

const SEEDS: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","contextId":"c","taskId":"01930000-0000-7000-8000-000000000001","parts":[{"text":"a"},{"raw":"AQ=="},{"url":"u"},{"data":[1]}]},"configuration":{"historyLength":"1","taskPushNotificationConfig":{"url":"https://a.b"}}}}"#,
    r#"{"jsonrpc":"2.0","id":"x","method":"message/stream","params":{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"a"},{"kind":"file","file":{"bytes":"AQ=="}},{"kind":"data","data":{"interrupt_id":"i"}}]}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"pageSize":"7","pageToken":"MTIz","status":4,"statusTimestampAfter":"2026-11-20T10:00:00Z"}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tasks/pushNotificationConfig/set","params":{"taskId":"01930000-0000-7000-8000-000000000001","pushNotificationConfig":{"url":"https://a.b","authentication":{"schemes":["Bearer"]}}}}"#,
    r#"{"message":{"messageId":"m","role":1,"content":[{"data":{"data":{"a":1}}}]},"configuration":{}}"#,
    r#"{"parent":"tasks/01930000-0000-7000-8000-000000000001","config":{"name":"tasks/a/pushNotificationConfigs/b","pushNotificationConfig":{"url":"x"}}}"#,
];

/// A seed with random edits.
fn edited() -> impl Strategy<Value = String> {
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 0..6);
    (prop::sample::select(SEEDS), edits).prop_map(|(seed, edits)| {
        let mut bytes = seed.as_bytes().to_vec();
        for (at, byte, how) in edits {
            let at = at.index(bytes.len().max(1));
            match how {
                0 if at < bytes.len() => bytes[at] = byte & 0x7f,
                1 if at < bytes.len() => drop(bytes.remove(at)),
                _ => bytes.insert(at.min(bytes.len()), byte & 0x7f),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Every endpoint that takes a body.
const PATHS: &[(&str, &str)] = &[
    ("", "1.0"),
    ("", "0.3"),
    ("/message:send", "1.0"),
    ("/t/message:stream", "1.0"),
    ("/v1/message:send", "0.3"),
    ("/tasks/01930000-0000-7000-8000-000000000001:cancel", "1.0"),
    ("/tasks/01930000-0000-7000-8000-000000000001/pushNotificationConfigs", "1.0"),
    ("/v1/tasks/01930000-0000-7000-8000-000000000001/pushNotificationConfigs", "0.3"),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_request_panics_and_every_rejection_is_a_response(body in edited(), index in 0..PATHS.len()) {
        let (path, version) = PATHS[index];
        let mut decoded = host().send(&ClientRequest::new("POST", path).header("a2a-version", version).text(&body));
        if let Err(fault) = &decoded.call {
            let mut out = Out::new();
            decoded.exchange.fail(fault, &mut out);
            let answer = support::Answer::from_out(out);
            prop_assert!(answer.json().is_object(), "{}", answer.body);
            return Ok(());
        }

        // A valid request gets a response for any run.
        let record = testkit::script("approval").record();
        let shown = TestRun::with_info(&record, about(&record));
        for _ in 0..6 {
            let reply = match decoded.call {
                Ok(Call::Document(_)) => Reply::Documents(&[]),
                _ => Reply::Run(shown.view()),
            };
            let mut out = Out::new();
            match decoded.exchange.reply(reply, &mut out) {
                Ok(Next::Call(call)) => decoded.call = Ok(call),
                Ok(Next::Done) => break,
                Err(fault) => {
                    decoded.exchange.fail(&fault, &mut out);
                    break;
                }
            }
        }
    }

    #[test]
    fn any_agent_output_can_be_encoded_in_every_dialect(record in wild::records()) {
        for options in [json!({}), json!({ "artifacts": "turn", "reasoning": "artifact", "status_text": "always", "tools": "all" })] {
            let host = with(options);
            for request in [
                ClientRequest::rpc("SendStreamingMessage", &user("hi")),
                ClientRequest::rpc_v03("message/stream", &user_v03("hi")),
                ClientRequest::new("POST", "/v1/message:stream").body(&user("hi")),
            ] {
                let answer = host.send(&request).streamed(&record, about(&record));
                prop_assert!(!answer.frames().is_empty());
            }

            let shown = TestRun::with_info(&record, about(&record));
            let get = ClientRequest::rest("GET", "/tasks/01930000-0000-7000-8000-000000000001");
            prop_assert_eq!(host.send(&get).final_answer(Reply::Run(shown.view())).status, 200);
        }
    }
}

/// A run with this many messages of all types, with no output matching a call.
fn large(messages: u32) -> Record {
    let mut record = testkit::started();
    for number in 0..messages {
        let kind = match number % 4 {
            0 => MessageType::Message,
            1 => MessageType::FunctionCall,
            2 => MessageType::FunctionCallOutput,
            _ => MessageType::Reasoning,
        };

        let is_call = kind == MessageType::FunctionCall;
        let is_output = kind == MessageType::FunctionCallOutput;

        let message = record.start_message(MessageStart::new("", kind, Role::Assistant));
        let head = CallHead { call_id: format!("call_{number}"), name: "f".into(), server_label: None };
        let content_kind = if is_call || is_output { ContentType::Data } else { ContentType::Text };
        let content = record.start_content(message, content_kind, is_call.then_some(head));

        let output = json!({ "call_id": format!("unknown_{number}"), "output": "x" });
        if !is_output {
            record.push(message, content, "{}");
        }
        let value = is_output.then(|| interlingua_core::model::Content::data(&output));
        record.finish_content(message, content, value, Extra::new());
        record.finish_message(message, MessageEnd::new(End::Completed));
    }
    record.close(End::Failed, None);
    record
}

#[test]
fn encoding_time_grows_about_linearly() {
    for options in [json!({}), json!({ "artifacts": "turn", "reasoning": "artifact" })] {
        let host = with(options);
        let took = |messages: u32| {
            let record = large(messages);
            let started = Instant::now();
            let answer =
                host.send(&ClientRequest::rpc("SendStreamingMessage", &user("hi"))).streamed(&record, about(&record));
            assert!(answer.body.len() > messages as usize);
            started.elapsed()
        };
        // Warm up.
        took(2_000);
        let (one, four) = (took(4_000), took(16_000));
        assert!(
            four < one * 14 + std::time::Duration::from_millis(200),
            "4,000 messages took {one:?}, 16,000 took {four:?}"
        );
    }
}
