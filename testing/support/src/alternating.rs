//! Two gateways on one store that look like one: each connection goes to the next of them. With
//! `INTERLINGUA_TEST_REPLICAS` in the environment, tests that ask for a store in memory get this instead, except for
//! those that are about one process ([`OF_ONE_PROCESS`]):
//!
//! ```text
//! INTERLINGUA_TEST_REPLICAS=hub cargo test --test behaviour       # a store for several engines in one process
//! INTERLINGUA_TEST_REPLICAS=postgres cargo test --test behaviour  # a database for each gateway that a test starts
//! ```
//!
//! Not here: tests that are about several gateways (`tests/replicas`).

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use super::cluster::SharedStore;
use super::replicas::Hub;

/// Connections of each gateway to the database.
const CONNECTIONS: u32 = 3;

/// Time without a connection after which a gateway is fenced. Longer than any slow test.
const LEASE: Duration = Duration::from_secs(60);

/// Tests that always run with one gateway, each with the reason.
pub const OF_ONE_PROCESS: &[(&str, &str)] = &[
    // Each gateway fetches documents by itself, and keeps them.
    ("a2a_card::a_card_is_searched_below_the_agent_url_then_at_the_root_then_under_the_old_path", "fetches of cards"),
    ("a2a_card::a_card_outlives_its_server_and_may_be_compressed", "fetched cards"),
    ("a2a_card::a_slow_card_does_not_block_clients_and_is_shown_once_it_arrives", "fetches of cards"),
    ("a2a_card::cards_of_every_version_are_republished_without_the_agents_own_addresses", "fetches of cards"),
    (
        "a2a_card::without_an_upstream_card_the_configuration_is_used_and_the_fetch_is_not_repeated_soon",
        "fetches of cards",
    ),
    ("lookups::a_document_is_fetched_once_for_all_turns", "fetched documents"),
    ("lookups::an_absence_is_cached_and_a_failure_is_not", "fetched documents"),
    ("tokens::a_token_lets_its_caller_in_over_every_protocol", "fetched keys of issuers"),
    ("tokens::keys_survive_an_outage_and_unknown_ones_cause_one_request", "fetched keys of issuers"),
    // Each reads the file of keys by itself, within a second.
    ("keys::a_key_is_known_and_refused_within_a_second_of_the_change_of_its_file", "when it reads its files again"),
    ("quotas::a_turn_that_waited_is_judged_by_the_rights_its_caller_has_by_then", "when it reads its files again"),
    ("revocation::a_revoked_key", "when it reads its files again"),
    ("revocation::an_expired_key", "when it reads its files again"),
    // Limits, except for those of what is stored, are of each gateway.
    ("access::the_rate_of_a_route_counts_each_request_once_and_is_reported", "counters of requests"),
    ("limits::requests_that_are_answered_at_the_same_time_are_limited", "counters of requests"),
    ("limits::websockets_are_limited_in_total_and_per_address", "counters of sockets"),
    ("limits::websockets_of_one_client_behind_a_proxy_are_counted_by_its_address", "counters of sockets"),
    ("protocols::one_run_more_than_a_caller_may_have_is_refused_in_the_words_of_its_protocol", "counters of runs"),
    ("quotas::bounds_of_the_engine_are_settings", "counters of runs"),
    ("quotas::queued_turns_are_bounded_for_each_caller_and_do_not_count_as_runs", "counters of turns"),
    ("quotas::runs_at_once_are_bounded_for_each_caller", "counters of runs"),
    ("quotas::runs_of_an_agent_are_bounded_for_all_callers_together", "counters of runs"),
    ("rates::answers_and_sockets_at_once_are_bounded_for_each_caller", "counters of answers and sockets"),
    ("rates::the_rate_of_a_caller_is_shared_by_all_protocols", "counters of requests"),
    ("rates::the_stricter_of_the_caller_the_route_and_the_agent_counts", "counters of requests"),
    ("http2::floods::streams_of_an_address_are_limited_over_all_its_connections", "counters of streams"),
    ("slow_clients::connections_are_limited_per_address_and_in_total", "counters of connections"),
    ("slow_clients::unread_responses_share_one_memory_limit", "its buffers"),
    // Each finds out by itself which endpoints of an agent are well, and how many runs they have of it.
    ("pools::a_decision_waits_for_the_endpoint_that_asked", "what it knows of endpoints"),
    ("pools::a_run_does_not_wait_longer_than_it_may", "places at endpoints"),
    ("pools::a_turn_that_an_endpoint_does_not_take_goes_to_another_one", "what it knows of endpoints"),
    ("pools::an_endpoint_that_fails_its_checks_gets_no_runs", "what it knows of endpoints"),
    ("pools::an_endpoint_whose_answers_break_is_ejected", "what it knows of endpoints"),
    ("pools::runs_beyond_the_limit_wait_or_are_refused_at_once", "places at endpoints"),
    ("upstream_tls::a_tunnel_that_the_proxy_refuses_has_sent_nothing", "what it knows of endpoints"),
    // Connections and addresses: here another process stands before it.
    ("a2a_push::the_gateway_itself_is_never_accepted_as_a_receiver", "its address"),
    ("mcp_streams::the_stream_of_a_session_reports_reloads_and_there_is_one", "its streams of sessions"),
    // Streams of runs that other gateways continue end without an error.
    ("a2a::a_subscription_to_a_waiting_task_is_closed_with_an_error_on_shutdown", "its end"),
    ("ends::upstream_connections_are_reused", "its connections to agents"),
    ("protocols::a_client_that_reads_nothing_is_disconnected_and_its_run_stopped", "its connections to clients"),
    ("slow_clients::a_client_that_reads_nothing_is_disconnected_after_the_write_timeout", "its connections to clients"),
    ("telemetry::turns_are_measured_and_requests_logged", "its reports"),
    // The demo agent is part of the gateway, and what it remembers is gone with the process. Agents that are a process
    // of their own are remembering ones for all gateways.
    ("ag_ui::a_thread_restarts_with_another_history", "the memory of the demo agent"),
    ("mcp::every_revision_lists_and_calls_tools", "the memory of the demo agent"),
];

/// A new store for two gateways, if there shall be two. `None`: there shall be one, with the store that it is
/// configured to have.
pub fn shared_store(source: &str) -> Option<SharedStore> {
    let kind = std::env::var("INTERLINGUA_TEST_REPLICAS").ok()?;
    // The harness names threads after their tests.
    let thread = std::thread::current();
    let is_of_one = OF_ONE_PROCESS.iter().any(|(test, _)| thread.name() == Some(*test));
    if is_of_one || source.contains("kind = \"sqlite\"") || source.contains("kind = \"postgres\"") {
        return None;
    }

    Some(match kind.as_str() {
        "postgres" => SharedStore::Database(interlingua_testing_postgres::database()),
        "hub" => SharedStore::Hub(Hub::on_file(LEASE)),
        other => panic!("INTERLINGUA_TEST_REPLICAS is \"hub\" or \"postgres\", not {other:?}"),
    })
}

/// The configuration of both gateways, in this folder.
pub fn config(shared: &SharedStore, source: &str, folder: &Path) -> String {
    if matches!(shared, SharedStore::Hub(_)) {
        return source.to_owned();
    }
    let keys = shared.keys(folder, LEASE, CONNECTIONS);
    if source.contains("kind = \"memory\"") {
        source.replacen("kind = \"memory\"", &keys, 1)
    } else {
        format!("{source}\n[store]\n{keys}")
    }
}

/// Listens, and passes each connection on to the next gateway. Ends with the process of the tests.
pub fn front(gateways: [SocketAddr; 2]) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a listener can be non-blocking");
    let address = listener.local_addr().expect("a bound listener has an address");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let listener = TcpListener::from_std(listener).expect("a listener of this runtime");
            for gateway in gateways.into_iter().cycle() {
                let Ok((mut client, _)) = listener.accept().await else { return };
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(gateway).await else { return };
                    let _ = (client.set_nodelay(true), server.set_nodelay(true));
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
    });
    address
}
