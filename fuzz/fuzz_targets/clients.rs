//! Hostile clients of every protocol of the registry: bytes as the body of a request to each endpoint that reads one.
//! The body is refused with an error that has a body, and a status or the form of JSON-RPC, or it makes a call. The first
//! byte chooses the protocol.
//!
//! Not here: what only one protocol writes (`a2a`, `ag_ui`, `chat_request`, `mcp`, `messages`).
#![no_main]

use std::sync::LazyLock;

use interlingua_core::call::AgentCard;
use interlingua_core::exchange::{Caller, Mounted};
use interlingua_core::seal::Sealer;
use interlingua_core::{Method, Out, Request};
use interlingua_core_testkit as testkit;
use interlingua_fuzz::{client_seeds, edited};
use interlingua_testing_protocols::served;
use libfuzzer_sys::fuzz_target;

struct Client {
    mounted: Mounted,
    headers: Vec<(&'static str, String)>,
    seeds: Vec<Vec<u8>>,
}

static CLIENTS: LazyLock<Vec<Client>> = LazyLock::new(|| {
    let clients = served().map(|(protocol, serves)| {
        let sample = serves.sample("demo", "hi").expect("a sample request");
        let mut headers = vec![("content-type", "application/json".to_owned())];
        headers.extend(sample.headers.iter().map(|(name, value)| (&*name.clone().into_owned().leak(), value.clone())));
        let mut seeds = client_seeds(protocol.name);
        seeds.push(sample.body.to_string().into_bytes());
        seeds.extend(serves.streams.iter().map(|stream| stream.body.as_bytes().to_vec()));
        let card = AgentCard { name: "demo".to_owned(), ..AgentCard::default() };
        Client { mounted: serves.mounted(card), headers, seeds }
    });
    clients.collect()
});

fuzz_target!(|input: &[u8]| {
    let [protocol, input @ ..] = input else { return };
    let client = &CLIENTS[usize::from(*protocol) % CLIENTS.len()];
    let seeds: Vec<&[u8]> = client.seeds.iter().map(Vec::as_slice).collect();
    let Some(body) = edited(&seeds, input) else { return };
    let headers: Vec<(&str, &str)> = client.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let caller = Caller { owner: "anonymous".into(), authenticated: false };

    for endpoint in client.mounted.endpoints.iter().filter(|endpoint| endpoint.method == Method::Post) {
        let names = endpoint.path.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
        let params: Vec<_> = names.map(|(name, _)| (name.to_owned(), testkit::RUN.to_string())).collect();
        let mut exchange = (endpoint.open)();
        let read = exchange.decode(&Request {
            method: "POST",
            path: endpoint.path,
            params: &params,
            query: "",
            headers: &headers,
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
            // JSON-RPC reports most errors with status 200.
            let is_rpc_error = out.body.starts_with(b"{") && out.body.windows(7).any(|part| part == b"\"error\"");
            assert!((out.head.status >= 400 || is_rpc_error) && !out.body.is_empty(), "{}: {fault}", endpoint.path);
        }
    }
});
