//! A hostile A2A client: bytes as the body of a request, in either version and binding. The body is refused with an
//! error in the format of the protocol, or it is a valid call.
#![no_main]

use std::sync::{Arc, LazyLock};

use interlingua_a2a::{A2a, Options};
use interlingua_core::call::AgentCard;
use interlingua_core::exchange::{Caller, Mount, Mounted, ProtocolAdapter};
use interlingua_core::seal::Sealer;
use interlingua_core::{Out, Request};
use interlingua_core_testkit as testkit;
use interlingua_fuzz::edited;
use libfuzzer_sys::fuzz_target;

const SEEDS: &[&[u8]] = &[
    br#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","contextId":"c","parts":[{"text":"a"},{"raw":"AQ=="},{"url":"u"},{"data":[1]}]},"configuration":{"historyLength":"1","taskPushNotificationConfig":{"url":"https://a.b"}}}}"#,
    br#"{"jsonrpc":"2.0","id":"x","method":"message/stream","params":{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"a"},{"kind":"file","file":{"bytes":"AQ==","mimeType":"image/png"}},{"kind":"data","data":{"interrupt_id":"i"},"metadata":{"data_part_compat":true}}]}}}"#,
    br#"{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"pageSize":"7","pageToken":"MTIz","status":4,"statusTimestampAfter":"2026-11-20T10:00:00Z"}}"#,
    br#"{"jsonrpc":"2.0","id":1,"method":"tasks/pushNotificationConfig/set","params":{"taskId":"t","pushNotificationConfig":{"url":"https://a.b","authentication":{"schemes":["Bearer"]}}}}"#,
    br#"{"message":{"messageId":"m","role":1,"content":[{"data":{"data":{"a":1}}}]},"configuration":{"blocking":true}}"#,
    br#"{"parent":"tasks/t","config":{"name":"tasks/t/pushNotificationConfigs/c","pushNotificationConfig":{"url":"x"}}}"#,
];

static MOUNTED: LazyLock<Mounted> = LazyLock::new(|| {
    let agents = vec![Arc::new(AgentCard { name: "demo".into(), ..AgentCard::default() })];
    let mount = Mount { path: "/a2a".into(), agents, public_url: None, schemes: Vec::new() };
    A2a::mount(&mount, Options::default()).expect("it mounts")
});

fuzz_target!(|input: &[u8]| {
    let Some(body) = edited(SEEDS, input) else { return };
    let caller = Caller { owner: "anonymous".into(), authenticated: false };
    let params = [("id".to_owned(), testkit::RUN.to_string()), ("config".to_owned(), "c".to_owned())];
    for endpoint in MOUNTED.endpoints.iter().filter(|endpoint| endpoint.method.as_str() == "POST") {
        let version = if endpoint.path.starts_with("/v1") || input.len() % 2 == 0 { "0.3" } else { "1.0" };
        let mut exchange = (endpoint.open)();
        let read = exchange.decode(&Request {
            method: "POST",
            path: endpoint.path,
            params: &params,
            query: "",
            headers: &[("a2a-version", version)],
            body: &body,
            base_url: "https://gw.example",
            caller: &caller,
            now: testkit::NOW,
            new_id: testkit::RUN,
            sealer: &Sealer::new([7; 32]),
        });
        if let Err(fault) = read {
            let mut out = Out::new();
            exchange.fail(&fault, &mut out);
            let answer: serde_json::Value = serde_json::from_slice(&out.body).expect("a refusal is JSON");
            assert!(answer.is_object(), "{answer}");
        }
    }
});
