//! Behaviour of the running gateway from socket to socket: real clients in front, a scripted agent behind, and
//! everything that can go wrong between them.
//!
//! Not here: configuration (`tests/config.rs`), the upstream client (`tests/upstream.rs`), store guarantees
//! (`tests/store`), and the process as a whole (`tests/crash.rs`, `tests/cli.rs`).

#[path = "../support/mod.rs"]
mod support;

mod a2a;
mod a2a_card;
mod a2a_push;
mod a2a_requests;
mod a2a_retention;
mod abandoned;
mod access;
mod access_log;
mod admin;
mod admin_access;
mod admin_checks;
mod admin_console;
mod admin_ends;
mod admin_feed;
mod admin_floods;
mod admin_matrix;
mod admin_metrics;
mod admin_playground;
mod admin_prism;
mod ag_kit;
mod ag_ui;
mod answers;
mod approvals;
mod bodies;
mod browsers;
mod canary;
mod certificates;
mod chat_agents;
mod chat_stored;
mod checks;
mod connectors;
mod conversations;
mod credentials;
mod cuts;
mod draining;
mod ends;
mod forwarding;
mod framing;
mod heads;
mod heartbeats;
mod hitl;
mod http2;
mod input;
mod keys;
mod leaving;
mod limits;
mod lists;
mod logs;
mod lookups;
mod losses;
mod matrix;
mod metrics;
mod owners;
mod ownership;
mod pairs;
mod pools;
mod protocols;
mod quotas;
mod rates;
mod reload;
mod resent;
mod responses_socket;
mod revocation;
mod routing;
mod runs;
mod secrets;
mod sessions;
mod slow_clients;
mod stopped_agents;
mod stopping;
mod store_fails;
mod telemetry;
mod tls;
mod tokens;
mod tracing;
mod upstream_tls;
mod websocket;
mod worst;
