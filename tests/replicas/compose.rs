//! The files of `examples/replicas`, with processes instead of containers: HAProxy with its real configuration, two
//! gateways with theirs, a real PostgreSQL. Gateways are replaced one after the other, and no client notices.
//!
//! Not here: the images that `compose.yaml` names, and the same under load (`cargo xtask faults replicas-upgrade`).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use interlingua_testing_postgres::Balancer;
use serde_json::{Value, json};

use crate::support::cluster::{GatewayProcess, answers};
use crate::support::gateway::JSON;
use crate::support::http::{Exchange, Response, request};
use crate::support::poll_until;
use crate::support::process::path_of_binary;
use crate::support::transcript::Transcript;

/// The addresses of the containers, in the order of the services.
const BALANCER: &str = "172.30.77.10";
const GATEWAYS: [&str; 2] = ["172.30.77.11:8080", "172.30.77.12:8080"];

fn file(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/replicas")
}

/// Starts a gateway with the file of the example, and what is different outside of a container.
fn start(database: &str) -> GatewayProcess {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("url"), database).unwrap();
    let mut config = file("gateway.toml");
    for (from, to) in
        [("0.0.0.0:8080", "{{listen}}"), (BALANCER, "127.0.0.1"), ("env = \"DATABASE_URL\"", "file = \"url\"")]
    {
        assert!(config.contains(from), "the file has no {from}");
        config = config.replace(from, to);
    }
    GatewayProcess::start_in(path_of_binary(), folder, &config, answers).unwrap_or_else(|error| panic!("{error:#}"))
}

/// Sends requests to the balancer, each on a connection of its own.
#[derive(Clone, Copy)]
struct Client(SocketAddr);

impl Client {
    async fn open(self, method: &str, path: &str, body: &Value) -> Exchange {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        Exchange::send(self.0, &request(method, path, JSON, &body)).await
    }

    async fn get(self, path: &str) -> Response {
        self.open("GET", path, &Value::Null).await.response().await
    }

    async fn start(self, session: &str, text: &str) -> Exchange {
        let input = json!([{ "role": "user", "content": text }]);
        self.open("POST", "/agents/demo/process", &json!({ "session_id": session, "input": input })).await
    }
}

/// Takes turns of one session, one after the other, for a time. Each has to complete.
async fn take_turns(client: Client, session: &str, time: Duration) -> usize {
    let (began, mut turns) = (Instant::now(), 0);
    while began.elapsed() < time {
        let mut stream = client.start(session, &format!("turn {turns}")).await;
        assert_eq!(stream.status().await, 200, "turn {turns} of {session}");
        Transcript::parse(&stream.frames().await).expect_completed();
        turns += 1;
    }
    turns
}

/// Stops a gateway while streams are under way on both and turns come, and starts it again.
async fn replace(client: Client, gateway: &mut GatewayProcess, round: usize) {
    let mut streams = Vec::new();
    for number in 0..4 {
        let mut stream = client.start(&format!("stream-{round}-{number}"), "long 60 100").await;
        let frames = stream.read_until("\"delta\":true").await;
        streams.push((stream, frames));
    }

    gateway.terminate();
    let session = format!("session-{round}");
    let others = format!("others-{round}");
    let time = Duration::from_secs(8);
    let (one, two) = tokio::join!(take_turns(client, &session, time), take_turns(client, &others, time));
    assert!(one > 3 && two > 3, "turns were taken: {one} and {two}");
    for (mut stream, mut frames) in streams {
        frames.extend(stream.frames().await);
        Transcript::parse(&frames).expect_completed();
        let id = frames[0]["id"].as_str().unwrap();
        let path = format!("/agents/demo/runs/{id}/events?after=2");
        let again = client.open("GET", &path, &Value::Null).await.frames().await;
        assert_eq!(again, frames[3..], "the other gateway has the same");
    }

    assert_eq!(gateway.wait_for_exit().code(), Some(0), "it ends by itself");
    gateway.restart().unwrap();
    // The balancer uses it from the first check on that it answers.
    tokio::time::sleep(Duration::from_secs(2)).await;
}

#[tokio::test]
async fn gateways_are_replaced_one_after_the_other_and_no_request_fails() {
    let database = interlingua_testing_postgres::database();
    let [mut one, mut two] = [start(&database.url()), start(&database.url())];
    let servers = [(GATEWAYS[0], one.address), (GATEWAYS[1], two.address)];
    let balancer = Balancer::start(&file("haproxy.cfg"), &servers).unwrap_or_else(|error| panic!("{error:#}"));
    let client = Client(balancer.address);
    poll_until("the balancer to find the gateways", async || (client.get("/readyz").await.status == 200).then_some(()))
        .await;

    replace(client, &mut one, 0).await;
    replace(client, &mut two, 1).await;
    let list = client.get("/agents/demo/runs?limit=100").await;
    let list = list.json();
    let runs = list["data"].as_array().or_else(|| list["runs"].as_array()).unwrap_or_else(|| panic!("{list}"));
    assert!(!runs.is_empty() && runs.iter().all(|run| run["status"] == "completed"), "{list}");
}

/// The value of the line `key: value` after a line that has the text `section`.
fn value<'a>(yaml: &'a str, section: &str, key: &str) -> &'a str {
    let section = yaml.split_once(&format!("{section}:")).unwrap_or_else(|| panic!("no {section}")).1;
    let mut lines = section.lines().map(|line| line.trim().trim_start_matches("- "));
    let line = lines.find_map(|line| line.strip_prefix(&format!("{key}:")));
    line.unwrap_or_else(|| panic!("no {key}")).trim()
}

#[test]
fn the_files_fit_each_other() {
    let [compose, gateway, balancer] = ["compose.yaml", "gateway.toml", "haproxy.cfg"].map(file);
    let toml: Value = toml::from_str::<Value>(&gateway).unwrap();

    // Every secret of the gateways is given to them.
    let names = gateway.split("env = \"").skip(1).filter_map(|rest| rest.split('"').next());
    for name in names.collect::<std::collections::BTreeSet<_>>() {
        assert!(!value(&compose, "environment", name).is_empty(), "{name}");
    }
    let url = value(&compose, "environment", "DATABASE_URL");
    let url = url.replace("${POSTGRES_PASSWORD:?write it to .env}", "password");
    let (user, name) = (value(&compose, "database", "POSTGRES_USER"), value(&compose, "database", "POSTGRES_DB"));
    assert_eq!(url, format!("postgres://{user}:password@database:5432/{name}?sslmode=disable"));

    // Addresses are those of the containers.
    let address = |service: &str| value(&compose, &format!("\n  {service}"), "ipv4_address").to_owned();
    assert_eq!(toml["server"]["trusted_proxies"], json!([address("balancer")]));
    assert_eq!(address("balancer"), BALANCER);
    let servers = balancer.lines().filter_map(|line| line.trim().strip_prefix("server "));
    let servers: Vec<_> = servers.map(|line| line.split_once(' ').unwrap()).collect();
    assert_eq!(servers, [("gateway-1", GATEWAYS[0]), ("gateway-2", GATEWAYS[1])]);
    for (service, server) in servers {
        assert_eq!(server, format!("{}:8080", address(service)));
    }

    // Docker waits for longer than a gateway takes, and the balancer notices before it stops.
    let seconds = |text: &str| text.trim_matches('"').trim_end_matches('s').parse::<u64>().unwrap();
    let server = &toml["server"];
    let [delay, drain] = ["shutdown_delay", "drain"].map(|key| seconds(server[key].as_str().unwrap()));
    assert!(seconds(value(&compose, "x-gateway", "stop_grace_period")) >= delay + drain + 5);
    assert!(balancer.contains("check inter 1s") && balancer.contains("fall 2") && delay > 2);

    // Mounted files exist.
    let mounts = compose.lines().filter_map(|line| line.trim().strip_prefix("- ./")?.split(':').next());
    let mounts: Vec<_> = mounts.collect();
    assert_eq!(mounts.len(), 2);
    assert!(mounts.iter().all(|name| folder().join(name).exists()), "{mounts:?}");
}
