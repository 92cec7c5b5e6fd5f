//! The rows of the registry agree with the adapters, and with the scripted clients and agents.

use std::collections::BTreeSet;

use interlingua_core::call::AgentCard;
use interlingua_testing_protocols::{PROTOCOLS, connected, served};

#[test]
fn every_row_has_a_scripted_client_and_agent_and_no_other_protocol_has() {
    let names = |names: &mut dyn Iterator<Item = &'static str>| names.collect::<BTreeSet<_>>();
    let clients = interlingua_testing_clients::all();
    let agents = interlingua_testing_agents::all();
    assert_eq!(
        names(&mut served().map(|(protocol, _)| protocol.name)),
        names(&mut clients.iter().map(|client| client.protocol())),
        "testing/clients"
    );
    assert_eq!(
        names(&mut connected().map(|(protocol, _)| protocol.name)),
        names(&mut agents.iter().map(|agent| agent.protocol())),
        "testing/agents"
    );
    assert_eq!(names(&mut PROTOCOLS.iter().map(|protocol| protocol.name)).len(), PROTOCOLS.len(), "names are unique");
}

#[test]
fn agents_answer_in_deltas_if_their_errors_are_events() {
    let with_events = connected().filter(|(_, connects)| connects.error.is_some()).map(|(protocol, _)| protocol.name);
    let with_deltas = interlingua_testing_agents::deltas::protocols();
    assert_eq!(with_events.collect::<BTreeSet<_>>(), with_deltas.collect::<BTreeSet<_>>());
}

#[test]
fn every_served_protocol_has_a_sample_request_and_the_endpoint_of_each_stream() {
    for (protocol, serves) in served() {
        let name = protocol.name;
        assert!(serves.sample("demo", "hi").is_some(), "{name}");
        let mounted = serves.mounted(AgentCard { name: "demo".to_owned(), ..AgentCard::default() });
        for stream in serves.streams {
            let is_there = mounted.endpoints.iter().any(|endpoint| {
                (endpoint.method, endpoint.path, endpoint.websocket.is_some())
                    == (stream.method(), stream.endpoint, stream.is_websocket)
            });
            assert!(is_there, "{name} {}", stream.name);
        }
    }
    for (protocol, connects) in connected() {
        let url = format!("http://agent{}", connects.path);
        for options in [connects.options].iter().chain(connects.variants) {
            let connector = (connects.connect)(&url, options);
            assert!(connector.is_ok(), "{}: {:?}", protocol.name, connector.err());
        }
    }
}
