//! Valid and invalid configuration files, and the messages about them.
//!
//! Every file in `tests/config/bad` is rejected with the errors in the snapshot next to it, every file in `odd` is
//! accepted with warnings, every file in `good` without. Only the tests of the shipped file depend on the built-in
//! protocols and on files outside of this folder. Nothing depends on the environment.

#[path = "config/fixture.rs"]
mod fixture;
#[path = "config/upstreams.rs"]
mod upstreams;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use interlingua::Gateway;
use interlingua::config::{
    self, Affinity, CallerLimits, ClientProtocol, ConnectorCheck, Diagnostics, EndpointPattern, Env, ForwardedFamily,
    History, JwksSource, JwtAlgorithm, ParallelTurns, Protocols, ServerLimits, ServerTimeouts, Settings, StoreKind,
    UpstreamProtocol,
};
use interlingua_core::Method;
use interlingua_core::answer::{ALL_DECISIONS, NATIVE_DECISIONS, PLAIN_DECISIONS};
use interlingua_core::capability::{AskKinds, ClientCapabilities, HistoryNeed, UpstreamCapabilities};
use proptest::prelude::*;
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::json;

use self::fixture::{env, file, mode};

#[derive(Deserialize, Debug, PartialEq)]
#[serde(default, deny_unknown_fields)]
struct NativeOptions {
    tasks: bool,
    depth: u8,
    push_allow_http: bool,
}

impl Default for NativeOptions {
    fn default() -> Self {
        Self { tasks: false, depth: 3, push_allow_http: false }
    }
}

#[derive(Deserialize, Debug, Default, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Flavour {
    #[default]
    Vanilla,
    Strawberry,
}

#[derive(Deserialize, Debug, Default, PartialEq)]
#[serde(default, deny_unknown_fields)]
struct UpstreamOptions {
    flavour: Flavour,
    #[serde(deserialize_with = "even")]
    odd: u32,
}

fn even<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let number = u32::deserialize(deserializer)?;
    if number.is_multiple_of(2) {
        return Ok(number);
    }
    Err(serde::de::Error::custom("an odd number is invalid\ndid you mean an even one?"))
}

#[derive(Clone, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct CuriousOptions {
    model: Option<String>,
    events: bool,
    user: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoOptions {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only that it is required matters")]
struct RequiredOptions {
    region: String,
}

/// Protocols for the tests, similar to real ones.
fn protocols() -> Protocols {
    let native = ClientProtocol::new::<NativeOptions>("agent-api")
        .try_mount(|mount| {
            if mount.agents.len() > 1 {
                return Err("only one agent can be served per path".to_owned());
            }

            let options = mount.route.options.copy::<NativeOptions>().expect("the type declared above");
            let mut endpoints = vec![
                EndpointPattern::new(Method::Post, "/process"),
                EndpointPattern::new(Method::Get, "/runs/{id}/events"),
            ];
            if options.tasks {
                endpoints.push(EndpointPattern::new(Method::Post, "/process/task"));
            }
            Ok(endpoints)
        })
        .schema(json!({
            "type": "object",
            "properties": {
                "tasks": { "type": "boolean" },
                "depth": { "type": "integer" },
                "push_allow_http": { "type": "boolean" },
            },
            "additionalProperties": false,
        }));
    let responses = ClientProtocol::new::<NoOptions>("responses").try_mount(|_| {
        Ok(vec![EndpointPattern::new(Method::Post, "/responses"), EndpointPattern::new(Method::Get, "/responses/{id}")])
    });
    let plain = ClientProtocol::new::<NoOptions>("plain").try_mount(|mount| match mount.path.as_str() {
        "/nowhere" => Err("this path is not supported\nmount it at another path".to_owned()),
        "/v1" => Ok(vec![
            EndpointPattern::new(Method::Get, "/responses/{name}"),
            EndpointPattern::new(Method::Post, "/chat"),
        ]),
        _ => Ok(vec![
            EndpointPattern::new(Method::Get, "/healthz"),
            EndpointPattern::new(Method::Post, "/agents/{name}/{do}"),
        ]),
    });
    let upstream = UpstreamProtocol::new::<UpstreamOptions>("agent-api").try_connect(|url, _| match url {
        Some(url) if url.query() == Some("no") => Err("this query is not supported".to_owned()),
        Some(url) => {
            let mut capabilities = UpstreamCapabilities::default();
            capabilities.decisions = NATIVE_DECISIONS;
            capabilities.streaming = url.host_str() != Some("limited");
            if url.host_str() == Some("forgetful") {
                capabilities.history = HistoryNeed::SentEachTime;
            }
            Ok(ConnectorCheck { capabilities, warnings: Vec::new() })
        }
        None => panic!("a connector was tried without a URL"),
    });

    let asking = ClientProtocol::new::<NoOptions>("tools-only").capabilities(|_| {
        let mut capabilities = ClientCapabilities::default();
        capabilities.client_tools = true;
        capabilities.tool_declarations = true;
        capabilities
    });
    let approving = ClientProtocol::new::<NoOptions>("approving").capabilities(|_| {
        let mut capabilities = ClientCapabilities::default();
        capabilities.decisions = ALL_DECISIONS;
        capabilities.names_model = true;
        capabilities
    });
    let curious = UpstreamProtocol::new::<CuriousOptions>("curious").try_connect(|_, options| {
        let options = options.copy::<CuriousOptions>().expect("the type declared above");
        let mut capabilities = UpstreamCapabilities::default();
        capabilities.client_tools = true;
        capabilities.decisions = ALL_DECISIONS;
        capabilities.asks = AskKinds::ALL;
        capabilities.wants_model = options.model.is_none();
        capabilities.protocol_events = Some("curious");
        capabilities.keeps_unread_events = options.events;
        let mixes = options.user == "all";
        let warning = "user = \"all\": everyone is in one conversation\nleave it out".to_owned();
        Ok(ConnectorCheck { capabilities, warnings: mixes.then_some(warning).into_iter().collect() })
    });
    let stateless = UpstreamProtocol::new::<NoOptions>("stateless").built_in().try_connect(|_, _| {
        let mut capabilities = UpstreamCapabilities::default();
        capabilities.history = HistoryNeed::SentEachTime;
        capabilities.decisions = PLAIN_DECISIONS;
        Ok(ConnectorCheck { capabilities, warnings: Vec::new() })
    });

    Protocols::new()
        .client(native)
        .client(responses)
        .client(plain)
        .client(ClientProtocol::new::<NoOptions>("whole"))
        .upstream(UpstreamProtocol::new::<NoOptions>("demo").built_in())
        .client(asking)
        .client(approving)
        .upstream(curious)
        .upstream(upstream)
        .upstream(stateless)
        .upstream(UpstreamProtocol::new::<RequiredOptions>("picky").built_in())
}

fn read(source: &str, name: &str) -> Result<(Settings, Diagnostics), Diagnostics> {
    config::read(source, Path::new(name), &protocols(), &Env { env: &env, file: &file, mode: &mode })
}

/// The files of one folder: name without extension, and text.
fn files(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config").join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("a folder of files")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .collect();

    files.sort();
    files
        .into_iter()
        .map(|path| {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, fs::read_to_string(path).expect("a text file"))
        })
        .collect()
}

/// Compares a message with the snapshot next to the file.
fn compare(folder: &str, name: &str, message: &str) {
    insta::with_settings!({
        snapshot_path => format!("config/{folder}"),
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        insta::assert_snapshot!(name, message);
    });
}

fn good(name: &str) -> Settings {
    let (_, source) = files("good").into_iter().find(|(file, _)| file == name).expect("a file");
    read(&source, "conf/gateway.toml").expect("a good file").0
}

#[test]
fn every_bad_file_is_rejected_with_its_message() {
    let files = files("bad");
    assert!(files.len() >= 20);

    for (name, source) in files {
        let found = match read(&source, "gateway.toml") {
            Ok((settings, _)) => panic!("{name} was accepted: {settings:#?}"),
            Err(found) => found,
        };
        compare("bad", &name, &found.to_string());
    }
}

#[test]
fn every_odd_file_is_accepted_with_a_warning() {
    for (name, source) in files("odd") {
        let (_, warnings) = read(&source, "gateway.toml").expect("a file without errors");
        assert!(!warnings.is_empty(), "{name}");
        compare("odd", &name, &warnings.to_string());
    }
}

#[test]
fn events_are_read_over_routes_that_show_those_of_any_protocol() {
    let showing = ClientProtocol::new::<NoOptions>("showing").capabilities(|_| {
        let mut capabilities = ClientCapabilities::default();
        capabilities.any_protocol_events = true;
        capabilities
    });
    let source = "agents.a.upstream = { protocol = \"curious\", url = \"http://a/\", options = { events = true } }\n\
                  [[routes]]\nprotocol = \"showing\"\npath = \"/a\"\nagents = [\"a\"]\n";
    let env = Env { env: &env, file: &file, mode: &mode };
    let found = config::read(source, Path::new("gateway.toml"), &protocols().client(showing), &env);
    let (settings, warnings) = found.expect("a good file");
    assert!(settings.reads_protocol_events("a") && !warnings.to_string().contains("reach no client"), "{warnings}");
}

#[test]
fn every_good_file_is_accepted_without_warnings() {
    for (name, source) in files("good") {
        match read(&source, "gateway.toml") {
            Ok((_, warnings)) => assert!(warnings.is_empty(), "{name}: {warnings}"),
            Err(found) => panic!("{name}: {found}"),
        }
    }
}

#[test]
fn every_error_points_at_its_span() {
    for (name, source) in files("bad") {
        let found = read(&source, "gateway.toml").expect_err("a bad file");
        for one in found.iter() {
            let (line, column) = found.line_and_column(one).unwrap_or_else(|| {
                panic!("{name}: {:?} has no span", one.message());
            });
            let location = format!("gateway.toml:{line}:{column}\n");
            assert!(found.to_string().contains(&location), "{name}: no {location:?} in\n{found}");
        }
    }
}

#[test]
fn no_message_contains_a_secret() {
    for (name, source) in files("bad") {
        let found = read(&source, "gateway.toml").expect_err("a bad file");
        for shown in [found.to_string(), found.render(true), format!("{found:#?}")] {
            assert!(!shown.contains("hunter"), "{name}: {shown}");
        }
    }
}

#[test]
fn debug_output_contains_no_secret() {
    let shown = format!("{:#?}", good("everything"));
    assert!(shown.contains("authorization"));
    for secret in ["hunter", "mode=fast", "blue"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn coloured_output_has_the_same_text() {
    let found = read("[sever]\n", "gateway.toml").expect_err("a bad file");
    let coloured = found.render(true);
    assert!(coloured.contains("\u{1b}["));
    assert!(coloured.contains("did you mean"));
    assert!(!found.render(false).contains('\u{1b}'));
}

#[test]
fn the_gateway_keeps_the_history_of_agents_that_keep_none() {
    let source =
        |history: &str, protocol: &str| format!("[agents.a]\n{history}\nupstream = {{ protocol = \"{protocol}\" }}");
    let history = |settings: &str, protocol: &str| {
        let (settings, _) = read(&source(settings, protocol), "gateway.toml").expect("a valid file");
        settings.agents[0].history
    };
    assert_eq!(history("", "stateless"), History::Gateway);
    assert_eq!(history("", "demo"), History::Upstream);
    assert_eq!(history("history = \"gateway\"", "demo"), History::Gateway);
    assert_eq!(history("history = \"upstream\"", "demo"), History::Upstream);
}

#[test]
fn defaults_are_applied() {
    let settings = good("smallest");
    assert_eq!(settings.server.listen.to_string(), "127.0.0.1:8080");
    assert!(settings.server.workers >= 1);
    assert_eq!(settings.server.max_body, 8 << 20);

    let seconds = Duration::from_secs;
    let timeouts = ServerTimeouts {
        head: seconds(10),
        body: seconds(60),
        write: seconds(60),
        idle: seconds(75),
        message: seconds(30),
        ping: seconds(30),
    };
    assert_eq!(settings.server.timeouts, timeouts);

    let limits = ServerLimits {
        connections: 20_000,
        connections_per_address: 256,
        connections_per_loopback_address: 20_000,
        bodies: 256 << 20,
        unread: 256 << 20,
        json_depth: 128,
        json_values: 100_000,
        runs: 200_000,
        queued_turns: 64,
        receivers: 10_000,
        pushes: 20_000,
        page: 8 << 20,
        head: 32 << 10,
        sockets: 4096,
        sockets_per_caller: 256,
        sockets_per_loopback_address: 4096,
        followers: 20_000,
        http2_streams: 100,
        http2_streams_per_address: 1_000,
        http2_streams_per_loopback_address: 20_000,
        http2_resets: 200,
        http2_control_frames: 1000,
    };
    assert_eq!(settings.server.limits, limits);
    assert_eq!(settings.server.drain, Duration::from_secs(30));
    assert_eq!(settings.store.kind, StoreKind::Memory);
    assert_eq!(settings.store.retention.age, Duration::from_secs(30 * 86_400));
    assert_eq!(settings.store.retention.runs, 100_000);
    let demo = settings.agent("demo").expect("the agent of the file");
    assert_eq!(demo.history, History::Upstream);
    assert_eq!((demo.history_limit.turns, demo.history_limit.bytes), (50, 1 << 20));
    assert_eq!(demo.parallel_turns, ParallelTurns::Queue);
    assert_eq!(demo.max_run_bytes, 64 << 20);
    assert_eq!((demo.upstream.retries, demo.upstream.max_event), (2, 8 << 20));
    assert_eq!(demo.upstream.timeouts.total, Duration::from_secs(3600));
    let route = &settings.routes[0];
    assert_eq!(route.heartbeat, Duration::from_secs(15));
    assert_eq!(route.on_disconnect, None);
    assert!(route.shared_sessions && route.cors.is_none());
    assert_eq!(
        (settings.server.forwarded, settings.server.allowed_hosts.is_none()),
        (ForwardedFamily::XForwarded, true)
    );
    let options = route.options.copy::<NativeOptions>().expect("the type they were declared with");
    assert_eq!(options, NativeOptions::default());
}

#[test]
fn values_of_the_file_override_defaults() {
    let settings = good("everything");
    let observe = &settings.observe;
    let traces = observe.traces.as_ref().expect("traces");
    assert_eq!((traces.sample, traces.content, traces.collector.grpc), (0.1, false, false));
    assert_eq!(traces.collector.headers[0].1.expose_secret(), "hunter2");
    let metrics = observe.metrics.as_ref().expect("metrics");
    assert_eq!(
        (metrics.collector.endpoint.as_str(), metrics.every.as_secs()),
        ("https://collector.example.com/otlp", 10)
    );
    assert!(metrics.collector.headers.is_empty(), "headers go to their own collector only");
    assert_eq!(observe.logs.as_ref().map(|logs| &logs.endpoint), Some(&traces.collector.endpoint));
    assert!(observe.service_name == "front" && observe.caller_label);
    assert_eq!(settings.server.public_url.as_deref(), Some("https://agents.example.com/gateway"));
    assert_eq!(settings.server.max_body, 1 << 20);

    let timeouts = settings.server.timeouts;
    assert_eq!((timeouts.head, timeouts.write), (Duration::from_millis(1500), Duration::from_secs(60)));
    assert_eq!((timeouts.message, timeouts.ping), (Duration::from_secs(5), Duration::from_secs(10)));
    let limits = settings.server.limits;
    assert_eq!((limits.connections, limits.connections_per_address), (500, 32));
    assert_eq!(limits.connections_per_loopback_address, 32, "an explicit limit applies to loopback addresses too");
    assert_eq!((limits.bodies, limits.json_depth, limits.json_values), (2 << 20, 64, 5000));
    assert_eq!((limits.runs, limits.queued_turns, limits.page), (1000, 8, 1 << 20));
    assert_eq!((limits.receivers, limits.pushes), (50, 200));
    assert_eq!((limits.head, limits.sockets, limits.sockets_per_caller), (16 << 10, 100, 10));
    assert_eq!((limits.sockets_per_loopback_address, limits.followers), (10, 2000));
    assert_eq!((limits.http2_streams, limits.http2_resets, limits.http2_control_frames), (50, 20, 500));
    assert_eq!(settings.server.trusted_proxies.len(), 2);
    assert_eq!(settings.server.forwarded, ForwardedFamily::Forwarded);
    assert_eq!(settings.server.allowed_hosts.as_ref().map(Vec::len), Some(3));

    let admin = settings.admin.as_ref().expect("a listener for operators");
    assert_eq!((admin.listen.port(), admin.key.is_some()), (9191, true));
    assert!(admin.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()));

    let cors = settings.routes[0].cors.as_ref().expect("the route has some");
    assert!(cors.include("http://localhost:3000") && !cors.include("null") && !cors.include("https://evil.example"));
    // Relative paths start at the folder of the file, here `conf`.
    assert_eq!(settings.store.path, Path::new("conf/state/runs.db"));
    let friday = settings.agent("friday").expect("an agent of the file");
    assert_eq!(friday.upstream.timeouts.connect, Duration::from_millis(250));
    assert_eq!(friday.upstream.timeouts.idle, Duration::from_secs(150));
    let url = friday.upstream.endpoints.first().map(|endpoint| endpoint.url.as_str());
    assert_eq!(url, Some("http://127.0.0.1:8090/process?mode=fast"));
    assert_eq!(friday.upstream.affinity, Affinity::None, "one endpoint takes every turn");
    let headers: Vec<_> =
        friday.upstream.headers.iter().map(|header| (header.name.as_str(), header.value.expose_secret())).collect();
    assert_eq!(headers, [("authorization", "Bearer hunter2"), ("x-api-key", "hunter3"), ("x-team", "blue")]);
    let options = settings.routes[0].options.copy::<NativeOptions>();
    assert_eq!(options, Some(NativeOptions { tasks: true, depth: 3, push_allow_http: false }));
    // The route's own heartbeat, and the server's heartbeat if it has none.
    assert_eq!(settings.routes[0].heartbeat, Duration::from_secs(30));
    assert_eq!(settings.routes[1].heartbeat, Duration::from_millis(7500));
}

#[test]
fn callers_and_their_limits_are_read() {
    let settings = good("callers");
    let auth = &settings.auth;
    assert_eq!(auth.keys.as_deref(), Some(Path::new("conf/secrets/keys.toml")));
    assert_eq!((auth.jwt[0].caller.as_str(), auth.jwt[0].scopes.as_str()), ("email", "scp"));
    assert_eq!(auth.jwt[0].algorithms, [JwtAlgorithm::RS256, JwtAlgorithm::EdDsa]);
    assert_eq!((auth.jwt[1].caller.as_str(), auth.jwt[1].scopes.as_str()), ("sub", "scope"));
    assert_eq!(auth.jwt[1].audience, ["a", "b"]);
    assert!(auth.jwt[0].jwks == JwksSource::Discovery && matches!(auth.jwt[1].jwks, JwksSource::Url(_)));
    assert_eq!(auth.certificates.as_ref().and_then(|one| one.header.as_deref()), Some("x-client-san"));
    assert!(auth.revoke_streams);

    // A route that does not say how callers prove who they are accepts every way that is set up.
    assert_eq!(settings.routes[0].auth.names(), ["keys", "jwt", "certificates"]);
    assert_eq!(settings.routes[1].auth.names(), ["keys", "jwt"]);
    assert_eq!(settings.routes[1].limits.rate.map(|rate| rate.count.get()), Some(200));
    let agent = settings.agent("demo").expect("the agent of the file").limits;
    assert_eq!((agent.burst, agent.runs), (Some(20), Some(5)));

    let [default, team, admins, other] = settings.callers.as_slice() else { panic!("{:?}", settings.callers) };
    assert_eq!((default.agents.as_deref(), &default.limits), (Some(&[][..]), &CallerLimits::default()));
    assert_eq!(team.protocols.as_deref(), Some(&["agent-api".to_owned()][..]));
    assert_eq!((team.limits.stored, team.limits.tokens_per_day), (Some(5 << 30), Some(2_000_000)));
    assert_eq!((team.limits.burst, team.limits.runs, team.limits.receivers), (Some(100), 50, 10));
    assert_eq!(admins.scopes, ["admin", "write"]);
    assert_eq!(other.limits.rate.map(|rate| rate.per), Some(Duration::from_secs(60)));
}

#[test]
fn mounts_replace_the_agent_placeholder() {
    let mounts = serde_json::to_value(good("everything").mounts()).expect("JSON");
    assert_eq!(
        mounts,
        json!([
            { "protocol": "agent-api", "path": "/agents/friday", "agents": ["friday"] },
            { "protocol": "agent-api", "path": "/agents/demo", "agents": ["demo"] },
            { "protocol": "responses", "path": "/v1", "agents": ["demo", "friday"] },
        ])
    );
}

#[test]
fn an_unreadable_file_is_one_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gateway.toml");
    let missing = config::load(&path, &protocols(), &Env::process());
    let missing = missing.expect_err("no file").to_string();
    assert!(missing.contains("cannot read") && missing.contains("--config"), "{missing}");
    fs::write(&path, b"# fine\nname = \"\xff\"\n").expect("a written file");
    let broken = config::load(&path, &protocols(), &Env::process());
    let broken = broken.expect_err("no text").to_string();

    assert!(broken.contains("not UTF-8 in line 2"), "{broken}");
}

#[test]
fn files_and_secret_files_are_read_from_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gateway.toml");
    fs::write(folder.path().join("token"), "hunter4\n").expect("a written file");
    let source = "[agents.a.upstream]\nprotocol = \"agent-api\"\nurl = \"http://a\"\n\
        headers = { authorization = { file = \"token\", prefix = \"Bearer \" } }\n\
        [[routes]]\nprotocol = \"agent-api\"\npath = \"/\"\n";
    fs::write(&path, source).expect("a written file");
    #[cfg(unix)]
    for (mode, warned) in [(0o644, 1), (0o640, 0)] {
        use std::os::unix::fs::PermissionsExt as _;
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(folder.path().join("token"), permissions).expect("the owner of the file");
        let (_, warnings) = config::load(&path, &protocols(), &Env::process()).expect("a good file");
        assert_eq!(warnings.iter().count(), warned, "{mode:o}");
    }

    let (settings, _) = config::load(&path, &protocols(), &Env::process()).expect("a good file");
    let header = &settings.agents[0].upstream.headers[0];
    assert_eq!(header.value.expose_secret(), "Bearer hunter4");
}

#[test]
fn hostile_files_are_rejected_quickly() {
    let deep = format!("a = {}{}", "[".repeat(100_000), "]".repeat(100_000));
    let dotted = format!("{}a = 1", "a.".repeat(100_000));
    let wrong: String = (0..5_000).map(|number| format!("k{number} = 1\n")).collect();
    for source in [deep, dotted, wrong] {
        let found = read(&source, "gateway.toml").expect_err("a bad file");
        assert!(found.iter().count() <= 60);
    }
}

/// The file as JSON, for validation by the schema.
fn as_json(source: &str) -> serde_json::Value {
    let table: toml::Table = source.parse().expect("TOML");
    serde_json::to_value(table).expect("JSON")
}

#[test]
fn the_schema_accepts_every_good_file() {
    let schema = config::schema(&protocols());
    let schema = jsonschema::validator_for(&schema).expect("a valid schema");
    for (name, source) in files("good").into_iter().chain(files("odd")) {
        let file = as_json(&source);
        let errors: Vec<_> = schema.iter_errors(&file).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
    }
}

#[test]
fn the_schema_rejects_invalid_files() {
    let schema = config::schema(&protocols());
    let schema = jsonschema::validator_for(&schema).expect("a valid schema");

    for name in [
        "unknown_keys",
        "wrong_types",
        "unknown_protocols",
        "bad_durations",
        "bad_sizes",
        "bad_words",
        "agent_without_upstream",
        "incomplete_routes",
        "bad_route_options",
    ] {
        let (_, source) = files("bad").into_iter().find(|(file, _)| file == name).expect("a file");
        assert!(!schema.is_valid(&as_json(&source)), "{name}");
    }
}

#[test]
fn the_schema_contains_defaults_and_protocols() {
    let schema = config::schema(&protocols());
    let server = &schema["definitions"]["ServerTable"]["properties"];
    assert_eq!(server["listen"]["default"], "127.0.0.1:8080");
    assert_eq!(server["drain"]["default"], "30s");
    assert_eq!(server["max_body"]["default"], "8MiB");
    let protocol = &schema["definitions"]["RouteTable"]["properties"]["protocol"];
    assert_eq!(protocol["enum"], json!(["agent-api", "responses", "plain", "whole", "tools-only", "approving"]));
}

/// Reads with the built-in protocols.
fn read_with_builtin(source: &str) -> Result<(Settings, Diagnostics), Diagnostics> {
    config::read(
        source,
        Path::new("gateway.toml"),
        &Gateway::builtin().protocols(),
        &Env { env: &env, file: &file, mode: &mode },
    )
}

#[test]
fn an_unknown_variant_is_quoted_as_written() {
    let agent = "[agents.demo]\nupstream = { protocol = \"demo\" }\n[[routes]]\nagents = [\"demo\"]\n";
    for (route, expected) in [
        (
            "protocol = \"responses\"\npath = \"/v1\"\noptions = { tool_items = \"all\" }",
            "\"tool_items\" cannot be \"all\"",
        ),
        ("protocol = \"responses\"\npath = \"/v1\"\noptions = { data = \"all\" }", "\"data\" cannot be \"all\""),
        (
            "protocol = \"a2a\"\npath = \"/a2a\"\noptions = { bindings = [\"GRPC\"] }",
            "\"bindings\" cannot hold \"GRPC\"",
        ),
    ] {
        let errors = read_with_builtin(&format!("{agent}{route}\n")).expect_err("a bad file").render(false);
        assert!(errors.contains(&format!("error: {expected}\n")), "{errors}");
    }
}

#[test]
fn the_shipped_file_is_valid_and_matches_the_schema() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("gateway.toml");
    let source = fs::read_to_string(&path).expect("the shipped file");
    let (settings, warnings) = read_with_builtin(&source).expect("a good file");
    assert!(warnings.is_empty(), "{warnings}");
    assert_eq!(settings.store.kind, StoreKind::Sqlite);
    assert_eq!(settings.store.path, Path::new("data/interlingua.db"));

    let mounted = settings.mounts();
    assert!(mounted.iter().any(|mount| mount.path == "/agents/demo"));
    let schema = jsonschema::validator_for(&config::schema(&Gateway::builtin().protocols())).expect("a schema");
    assert!(schema.is_valid(&as_json(&source)));
}

#[test]
fn the_shipped_file_is_valid_with_its_examples_uncommented() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("gateway.toml");
    let source = fs::read_to_string(&path).expect("the shipped file");
    // Examples are commented out with "#", explanations start with "# ".
    let uncommented: String = source
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(example) if !example.is_empty() && !example.starts_with([' ', '#']) => example,
            _ => line,
        })
        .flat_map(|line| [line, "\n"])
        .collect();
    assert_ne!(uncommented, source);

    match read_with_builtin(&uncommented) {
        Ok((settings, warnings)) => {
            assert!(warnings.is_empty(), "{warnings}");
            assert!(settings.agent("friday").is_some());
        }
        Err(found) => panic!("{found}"),
    }
}

fn boundary(source: &str, at: usize) -> usize {
    (0..=at.min(source.len())).rev().find(|at| source.is_char_boundary(*at)).expect("0 is a boundary")
}

proptest! {
    #[test]
    fn no_input_makes_the_parser_panic(text in any::<String>()) {
        let _ = read(&text, "gateway.toml").map_err(|found| found.render(true));
    }

    #[test]
    fn no_change_to_a_good_file_makes_the_parser_panic(
        at in any::<prop::sample::Index>(),
        length in 0..20usize,
        inserted in "[\\[\\]{}=\"'.,#\n a-z0-9ü]{0,6}",
    ) {
        let (_, mut source) = files("good").swap_remove(0);
        let start = boundary(&source, at.index(source.len()));
        let end = boundary(&source, start + length).max(start);
        source.replace_range(start..end, &inserted);

        if let Err(found) = read(&source, "gateway.toml") {
            prop_assert!(!found.is_empty());
            prop_assert!(!found.to_string().contains("hunter"));
        }
    }
}
