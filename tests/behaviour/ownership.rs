//! Foreign resources do not exist: every operation of every protocol, on the resources of another caller, answers word
//! for word as for resources that never existed, in each store, over each route, and after a restart. Another caller is
//! one with another key, one of the same name by a token, an anonymous one, and the caller herself on a route or in a
//! tenant with separate sessions.
//!
//! Not here: the memory of an agent (`memory.rs` beside this), refused credentials.

mod memory;
mod operations;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use self::operations::{MCP_MODERN, Operation, operations};
use crate::support::callers::{AUTH, write_keys};
use crate::support::gateway::{DEMO, Gateway, JSON};
use crate::support::http::{Exchange, Response};
use crate::support::issuer::Issuer;
use crate::support::pairs::{ALL_PROTOCOLS, Decision, Interrupt, Protocol, ROUTES};
use crate::support::socket::Socket;

/// A version header of A2A that its older generation ignores on its own paths.
const V1: (&str, &str) = ("a2a-version", "1.0");

/// The routes of all protocols: for callers with keys or tokens, below `/open` for anyone, and below `/apart` with
/// sessions of their own.
fn config(store: &str, auth: &str) -> String {
    let a2a = "protocol = \"a2a\"\n";
    let options = "options = { push_allow = [\"127.0.0.1\"], push_allow_http = true }\n";
    let routes = ROUTES.replace(a2a, &format!("{a2a}{options}"));
    let below = |path: &str, own: &str| -> String {
        routes
            .split("[[routes]]\n")
            .filter(|route| !route.is_empty())
            .map(|route| format!("[[routes]]\n{own}\n{}", route.replacen("path = \"", &format!("path = \"{path}"), 1)))
            .collect()
    };
    let (open, apart) = (below("/open", "auth = \"none\""), below("/apart", "shared_sessions = false"));
    format!("{auth}[store]\n{store}\n{DEMO}{routes}{open}{apart}")
}

/// Keys, and tokens of these issuers.
fn auth(issuers: &[&Issuer]) -> String {
    let issuers: Vec<String> = issuers.iter().map(|issuer| issuer.settings("")).collect();
    format!("{AUTH}jwt = [{}]\n", issuers.join(", "))
}

/// Ann's resources.
struct Anns {
    ended: Vec<Interrupt>,
    running: Vec<(Protocol, Interrupt)>,
    waiting: Vec<(Protocol, Interrupt)>,
    /// A conversation of the Responses API, and an item of it.
    conversation: (String, String),
    /// A push receiver, of the first ended task.
    receiver: String,
    /// Connections that keep runs going.
    _open: Vec<Exchange>,
}

impl Anns {
    async fn make(ann: &Gateway) -> Self {
        let (mut ended, mut running, mut waiting, mut open) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for protocol in ALL_PROTOCOLS {
            let name = |kind: &str| format!("ann-{}-{kind}", protocol.name());
            let said = protocol.say(ann, &name("ended"), "hello", None).await;
            assert_eq!(said.status, 200, "{protocol:?}: {}", said.text());
            let (run, connection) = protocol.start_long(ann, &name("running")).await;
            running.push((protocol, run));
            open.extend(connection);
            waiting.push((protocol, protocol.ask(ann, &name("waiting"), "approval").await));
        }

        let runs = ann.get("/agents/demo/runs?limit=100").await.json();
        for run in runs["data"].as_array().expect("a list").iter().filter(|run| run["status"] == "completed") {
            let text = |field: &str| run[field].as_str().expect("a text").to_owned();
            ended.push(Interrupt {
                session: text("session_id"),
                run: text("id"),
                item: "call_01234567890123456789".to_owned(),
            });
        }
        assert!(ended.len() >= ALL_PROTOCOLS.len(), "{runs}");

        let conversation = Self::converse(ann).await;
        let receiver = Self::receive(ann, &ended[0]).await;
        Self { ended, running, waiting, conversation, receiver, _open: open }
    }

    async fn converse(ann: &Gateway) -> (String, String) {
        let item = json!({ "type": "message", "role": "user", "content": "my secret" });
        let made = ann.post("/v1/conversations", &json!({ "items": [item] })).await;
        assert_eq!(made.status, 200, "{}", made.text());
        let id = made.json()["id"].as_str().expect("an id").to_owned();
        let items = ann.get(&format!("/v1/conversations/{id}/items")).await.json();
        let item = items["data"][0]["id"].as_str().unwrap_or_else(|| panic!("an item: {items}")).to_owned();
        (id, item)
    }

    async fn receive(ann: &Gateway, run: &Interrupt) -> String {
        let path = format!("/a2a/demo/tasks/{}/pushNotificationConfigs", run.id());
        let body = json!({ "url": "http://127.0.0.1:9/hook", "id": "annshook1" });
        let made = ann.open("POST", &path, &[V1, JSON[0]], body.to_string().as_bytes()).await.response().await;
        assert_eq!(made.status, 200, "{}", made.text());
        made.json()["id"].as_str().expect("an id").to_owned()
    }

    /// Some of her runs in each state, others for each number.
    fn some(&self, number: usize, in_each: usize) -> Vec<&Interrupt> {
        let ended: Vec<&Interrupt> = self.ended.iter().collect();
        let [running, waiting] = [&self.running, &self.waiting].map(|runs| runs.iter().map(|(_, run)| run).collect());
        let states: [Vec<&Interrupt>; 3] = [ended, running, waiting];
        let pick = |runs: &Vec<&'_ Interrupt>, at: usize| at % runs.len();
        let numbers = (0..in_each).map(|offset| number + 2 * offset);
        numbers.flat_map(|at| states.iter().map(move |runs| runs[pick(runs, at)])).collect()
    }

    fn runs(&self) -> impl Iterator<Item = &Interrupt> {
        self.ended.iter().chain(self.running.iter().chain(&self.waiting).map(|(_, run)| run))
    }

    /// All values that stand for something of hers.
    fn values(&self, run: &Interrupt) -> Values {
        Values(BTreeMap::from([
            ("run", run.id().to_owned()),
            ("session", run.session.clone()),
            ("item", run.item.clone()),
            ("conversation", self.conversation.0.clone()),
            ("entry", self.conversation.1.clone()),
            ("receiver", self.receiver.clone()),
        ]))
    }

    /// Everything of hers that does not change by itself, as she reads it.
    async fn snapshot(&self, ann: &Gateway) -> Vec<String> {
        let mut read = Vec::new();
        for run in self.ended.iter().chain(self.waiting.iter().map(|(_, run)| run)) {
            read.push(ann.get(&format!("/agents/demo/runs/{}", run.id())).await.text().to_owned());
            read.push(ann.get(&format!("/agents/demo/runs?session_id={}", run.session)).await.text().to_owned());
        }
        read.push(ann.get(&format!("/v1/conversations/{}", self.conversation.0)).await.text().to_owned());
        read.push(ann.get(&format!("/v1/conversations/{}/items", self.conversation.0)).await.text().to_owned());
        read
    }
}

/// Values for the placeholders of operations.
#[derive(Clone)]
struct Values(BTreeMap<&'static str, String>);

impl Values {
    /// The same forms, for what never was.
    fn never(&self) -> Self {
        Self(self.0.iter().map(|(name, value)| (*name, never(value))).collect())
    }

    /// With another spelling of the run.
    fn spelled(&self, spell: fn(&str) -> String) -> Self {
        let mut values = self.clone();
        let run = spell(&values.0["run"]);
        values.0.insert("run", run);
        values
    }

    fn fill(&self, template: &str) -> String {
        self.0.iter().fold(template.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
    }
}

/// A text of the same form: the last characters are others.
fn never(text: &str) -> String {
    let turned = |c: char| match c {
        '0'..='8' => char::from(c as u8 + 1),
        '9' => '0',
        'a'..='e' => char::from(c as u8 + 1),
        'f' => 'a',
        'g'..='y' => char::from(c as u8 + 1),
        'z' => 'g',
        c => c,
    };
    let from = text.len().saturating_sub(10);
    text.char_indices().map(|(at, c)| if at < from { c } else { turned(c) }).collect()
}

/// The spellings of a run's id, of all protocols.
const SPELLINGS: [fn(&str) -> String; 6] = [
    str::to_owned,
    |id| id.replace('-', ""),
    |id| format!("response_{id}"),
    |id| format!("resp_{}", id.replace('-', "")),
    |id| id.to_uppercase(),
    |id| id.replacen('-', "%2D", 1),
];

/// An answer without values that each request generates: ids and times. The values of the request are the same in both.
fn masked(answer: &Response, asked: &Values) -> String {
    let mut text = format!("{}\n", answer.status);
    let mut headers: Vec<String> = Vec::new();
    for (name, value) in answer.headers.iter().filter(|(name, _)| !["date", "x-request-id"].contains(&name.as_str())) {
        // Ids are as long as others, but numbers in an answer need not be.
        let value = if name == "content-length" && answer.status < 300 { "-" } else { value.as_str() };
        headers.push(format!("{name}: {value}\n"));
    }
    // Their order is that of a hash map.
    headers.sort_unstable();
    text.extend(headers);
    text.push_str(&String::from_utf8_lossy(&answer.body));

    let run = asked.0["run"].to_lowercase().replace("%2d", "-");
    let run = run.trim_start_matches("response_").trim_start_matches("resp_");
    for known in [run.to_owned(), run.to_uppercase(), run.replace('-', ""), run.replace('-', "").to_uppercase()] {
        text = text.replace(&known, "ASKED");
    }
    for value in asked.0.values().filter(|value| !value.is_empty()) {
        text = text.replace(value.as_str(), "ASKED");
    }
    without_made_up(&text)
}

/// Replaces whatever may be an id or a time: words with many digits.
fn without_made_up(text: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    let mut masked = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_word) {
        masked.push_str(&rest[..start]);
        rest = &rest[start..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let word = &rest[..end];
        let digits = word.chars().filter(char::is_ascii_digit).count();
        let is_number = word.parse::<f64>().is_ok() && word.len() > 3;
        masked.push_str(if digits >= 6 || is_number { "MADE" } else { word });
        rest = &rest[end..];
    }
    masked.push_str(rest);
    masked
}

/// Sends a request and returns the answer.
async fn send(gateway: &Gateway, base: &str, operation: &Operation, values: &Values) -> Response {
    let path = format!("{base}{}", values.fill(operation.path));
    let body = operation.body.as_ref().map(|body| values.fill(&body.to_string())).unwrap_or_default();
    let (mut headers, mut of_message) = (Vec::new(), Vec::new());
    if operation.version == Some("1.0") {
        headers.push(V1);
    }
    if operation.body.is_some() {
        headers.push(JSON[0]);
    }
    let message: Value = serde_json::from_str(&body).unwrap_or_default();
    if operation.version == Some(MCP_MODERN) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let named = [("mcp-method", text(&message["method"])), ("mcp-name", text(&message["params"]["taskId"]))];
        headers.push(("mcp-protocol-version", MCP_MODERN));
        of_message.extend(named);
    }
    headers.extend(of_message.iter().map(|(name, value)| (*name, value.as_str())));
    let session = values.fill("{session}");
    if operation.session_header {
        headers.push(("x-session-id", &session));
    }
    gateway.open(operation.method, &path, &headers, body.as_bytes()).await.response().await
}

/// Someone else than Ann on a route of hers.
struct Other<'a> {
    who: &'a str,
    gateway: Gateway,
    /// In front of the paths of all operations.
    base: &'a str,
    /// Number of Ann's runs in each state for every operation.
    runs: usize,
    /// True if it tries all operations, and has lists of its own.
    all: bool,
    /// The operations that are tried.
    tries: fn(&Operation) -> bool,
}

impl<'a> Other<'a> {
    fn new(who: &'a str, gateway: Gateway, base: &'a str, runs: usize) -> Self {
        Self { who, gateway, base, runs, all: true, tries: |_| true }
    }
}

/// Asserts that another caller gets the same answer for what is Ann's as for what never was. `first`: from which of her
/// runs on; each operation begins with the next one, so that together they try all of them.
async fn assert_nothing_there(anns: &Anns, other: &Other<'_>, first: usize) {
    let Other { who, gateway, base, runs, tries, .. } = other;
    let mut differences = BTreeMap::new();
    for (number, operation) in operations().into_iter().enumerate().filter(|(_, operation)| tries(operation)) {
        let names_run = operation.names("{run}");
        let is_of_run = names_run || operation.names("{session}") || operation.names("{item}");
        let chosen = anns.some(first + number, *runs);
        for (at, run) in chosen.into_iter().enumerate().take(if is_of_run { usize::MAX } else { 1 }) {
            let spell = if names_run { &SPELLINGS[(number + at) % SPELLINGS.len()] } else { &SPELLINGS[0] };
            let hers = anns.values(run).spelled(*spell);
            let none = hers.never();
            let found = send(gateway, base, &operation, &hers).await;
            let nothing = send(gateway, base, &operation, &none).await;
            let (found_text, nothing_text) = (masked(&found, &hers), masked(&nothing, &none));
            // What names nothing of hers shows what the other caller has made meanwhile.
            if found_text != nothing_text && operation.names("{") {
                let what = format!("{who}: {} {base}{} {:?}", operation.method, operation.path, operation.body);
                differences.entry(what).or_insert((found_text, nothing_text, hers.0));
            }
            assert!(!found.text().contains("my secret"), "{who}: {}", operation.path);
        }
    }

    assert!(
        differences.is_empty(),
        "{} operations answer otherwise than for what never was: {differences:#?}",
        differences.len()
    );
}

/// Asserts that the lists of another caller hold nothing of Ann's.
async fn assert_lists_are_empty(anns: &Anns, other: &Gateway, base: &str) {
    for path in [
        "/agents/demo/runs?limit=100",
        "/a2a/demo/tasks",
        "/hitl/demo/agent/status/pat",
        "/hitl/demo/agent/sessionids/pat",
        "/hitl/demo/agent/active/sessionid/pat",
        "/hitl/demo/system/info",
    ] {
        let answer = other.open("GET", &format!("{base}{path}"), &[V1], b"").await.response().await;
        assert!(answer.status == 200 || answer.status == 404, "{path}: {} {}", answer.status, answer.text());
        for run in anns.runs() {
            let text = answer.text();
            assert!(!text.contains(run.id()) && !text.contains(&run.id().replace('-', "")), "{path}: {text}");
            assert!(!text.contains(&run.session), "{path}: {text}");
        }
    }
}

/// Asserts the same over a WebSocket.
async fn assert_no_socket_finds(anns: &Anns, other: &Gateway, base: &str) {
    let path = format!("{base}/v1/responses");
    let (status, mut socket) = Socket::try_open(other.address, &path, &other.credentials()).await;
    assert_eq!(status, 101);
    for run in anns.runs() {
        let never = anns.values(run).never();
        for (what, body) in [
            ("a response", json!({ "previous_response_id": "{run}", "input": "hi" })),
            ("a conversation", json!({ "conversation": "{conversation}", "input": "hi" })),
            (
                "an item",
                json!({ "previous_response_id": "{run}", "input": [{
                    "type": "mcp_approval_response", "approval_request_id": "{item}", "approve": true }] }),
            ),
        ] {
            let mut answers = Vec::new();
            for values in [&anns.values(run), &never] {
                let values = values.spelled(SPELLINGS[3]);
                let mut body: Value = serde_json::from_str(&values.fill(&body.to_string())).expect("JSON");
                body["model"] = "demo".into();
                let answer = socket.ask(&body).await;
                assert_eq!(answer["type"], "error", "{what}: {answer}");
                let answer = Response { status: 0, headers: Vec::new(), body: answer.to_string().into_bytes() };
                answers.push(masked(&answer, &values));
            }
            assert_eq!(answers[0], answers[1], "{what}");
        }
    }
}

/// Asserts that Ann still has all that is hers, and ends it.
async fn assert_ann_has_all(anns: &Anns, ann: &Gateway, is_running: bool) {
    // After a restart, the demo agent has forgotten what it asked.
    for (protocol, run) in anns.waiting.iter().filter(|_| is_running) {
        let answered = protocol.answer(ann, run, Decision::Accept).await.expect("every protocol can accept");
        assert_eq!(answered.status, 200, "{protocol:?}: {}", answered.text());
        // Streams may split the agent's sentence, but not what its tool returned.
        let text = answered.text();
        assert!(text.contains("sent to ada@example.com"), "{protocol:?}: {text}");
    }
    for (protocol, run) in &anns.running {
        let state = ann.run("demo", run.id()).await["status"].as_str().expect("a state").to_owned();
        // It may have come to its own end meanwhile, but no one else can have ended it.
        let expected: &[&str] = if is_running { &["in_progress", "completed"] } else { &["failed", "completed"] };
        assert!(expected.contains(&state.as_str()), "{protocol:?}: {state}");
        if state == "in_progress" {
            let canceled = ann.post(&format!("/agents/demo/runs/{}/cancel", run.id()), &json!({})).await;
            assert_eq!(canceled.status, 200, "{protocol:?}: {}", canceled.text());
        }
    }
}

/// Everyone who is not Ann as she is on the first routes.
fn others<'a>(gateway: &Gateway, token: String) -> Vec<Other<'a>> {
    let ann = || gateway.as_caller("ann");
    let in_a_tenant = Other {
        all: false,
        tries: |operation| operation.path.contains("/acme/"),
        ..Other::new("Ann in another tenant", ann(), "", 1)
    };
    vec![
        Other::new("Bob", gateway.as_caller("bob"), "", 2),
        Other::new("Ann by a token", gateway.with_key(Some(token)), "", 1),
        Other::new("anyone", gateway.with_key(None), "/open", 1),
        // Her own key proves nothing where no one asks for it: she is anyone there.
        Other::new("Ann, unasked", ann(), "/open", 1),
        Other::new("Ann on a route of its own", ann(), "/apart", 1),
        in_a_tenant,
    ]
}

/// `first`: from which of her runs on they are tried.
async fn test_ownership(store: &str, restarts: bool, first: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    write_keys(folder.path(), &["ann", "bob"]);
    let issuer = Issuer::start().await;
    let config = config(store, &auth(&[&issuer]));
    let mut gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    let anns = Anns::make(&gateway.as_caller("ann")).await;
    if restarts {
        gateway.stop().await;
        gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    }

    let ann = gateway.as_caller("ann");
    let before = anns.snapshot(&ann).await;
    let others = others(&gateway, issuer.token("ann"));
    // Before any of them has a session of the same name as Ann's.
    for other in others.iter().filter(|other| other.all) {
        assert_lists_are_empty(&anns, &other.gateway, other.base).await;
    }
    for other in &others {
        if other.all {
            assert_no_socket_finds(&anns, &other.gateway, other.base).await;
        }
        assert_nothing_there(&anns, other, first).await;
        if other.all {
            assert_lists_are_empty_of_runs(&anns, &other.gateway, other.base).await;
        }
    }

    assert_eq!(anns.snapshot(&ann).await, before, "nothing of hers has changed");
    assert_ann_has_all(&anns, &ann, !restarts).await;
    gateway.stop().await;
}

/// After all operations the other caller has runs of its own, in sessions of the same names.
async fn assert_lists_are_empty_of_runs(anns: &Anns, other: &Gateway, base: &str) {
    let listed = other.get(&format!("{base}/agents/demo/runs?limit=1000")).await;
    for run in anns.runs() {
        assert!(!listed.text().contains(run.id()), "{}", run.id());
    }
}

#[tokio::test]
async fn runs_of_others_are_invisible_in_memory() {
    test_ownership("kind = \"memory\"", false, 0).await;
}

#[tokio::test]
async fn runs_of_others_are_invisible_in_a_file() {
    test_ownership("kind = \"sqlite\"\npath = \"runs.db\"", false, 1).await;
}

#[tokio::test]
async fn runs_of_others_are_invisible_after_a_restart() {
    test_ownership("kind = \"sqlite\"\npath = \"runs.db\"", true, 4).await;
}

#[tokio::test]
async fn an_unstored_response_is_found_on_its_own_socket_only() {
    let folder = tempfile::tempdir().expect("a folder");
    write_keys(folder.path(), &["ann", "bob"]);
    let gateway = Gateway::in_folder(&config("kind = \"memory\"", AUTH), folder.path().to_owned()).await;
    let mut sockets = Vec::new();
    for caller in ["ann", "ann", "bob"] {
        let credentials = gateway.as_caller(caller).credentials();
        sockets.push(Socket::try_open(gateway.address, "/v1/responses", &credentials).await.1);
    }

    let first = sockets[0].ask(&json!({ "model": "demo", "input": "hello", "store": false })).await;
    assert_eq!(first["type"], "response.completed", "{first}");
    let next =
        json!({ "model": "demo", "input": "hi", "store": false, "previous_response_id": first["response"]["id"] });
    for (socket, expected) in sockets.iter_mut().zip(["response.completed", "error", "error"]) {
        assert_eq!(socket.ask(&next).await["type"], expected);
    }
}

/// Every endpoint of every protocol has a row, and every row an endpoint.
#[test]
fn every_endpoint_is_tried() {
    let mounted = operations::mounted();
    let tried: std::collections::BTreeSet<(&str, &str)> =
        operations().iter().map(|operation| (operation.method, operation.endpoint)).collect();
    let missing: Vec<_> = mounted.iter().filter(|(method, path)| !tried.contains(&(method, path.as_str()))).collect();
    assert!(missing.is_empty(), "endpoints without a row in operations(): {missing:?}");
    let stale: Vec<_> =
        tried.iter().filter(|(method, path)| !mounted.contains(&(*method, (*path).to_owned()))).collect();
    assert!(stale.is_empty(), "rows of operations() without an endpoint: {stale:?}");
}

/// A page of another origin tries every endpoint in a real browser (`tests/conformance/foreign-page`).
#[test]
fn the_browser_tries_every_endpoint() {
    let mounted: Vec<String> = operations::mounted().iter().map(|(method, path)| format!("{method} {path}")).collect();
    let listed = include_str!("../conformance/foreign-page/endpoints.txt");
    assert_eq!(listed.lines().collect::<Vec<_>>(), mounted, "endpoints.txt lists other endpoints than are mounted");
}
