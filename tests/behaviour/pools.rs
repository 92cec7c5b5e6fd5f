//! Agents with several endpoints: which one takes a turn, what happens when one fails, and what is never sent twice.
//!
//! Not here: the rules of ejection and choice, with a clock that is moved by hand (`crates/upstream/src/pool`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::agent::{approval_request, frames, response, text_reply, text_reply_then_hang, text_reply_until};
use crate::support::gateway::{Gateway, ROUTE, agent, last_input_text, user_turn, user_turn_in};
use crate::support::http::Response;
use crate::support::pairs::{self, ALL_PROTOCOLS, Decision, Protocol, ROUTES};
use crate::support::poll_until;
use crate::support::upstream::{ReceivedRequest, Reply, Upstream, unused_address};

/// Configuration of an agent with these endpoints. `upstream` are further lines of its table.
fn pool(urls: &[String], upstream: &str) -> String {
    let urls: Vec<String> = urls.iter().map(|url| format!("{{ url = \"{url}\" }}")).collect();
    let urls = urls.join(", ");
    format!("[agents.friday.upstream]\nprotocol = \"agent-api\"\nurls = [{urls}]\n{upstream}\n")
}

fn refused() -> String {
    format!("http://{}/process", unused_address())
}

/// A decision as Agent API clients send it.
fn decision(session: &str, id: &str) -> Value {
    let data = json!({ "approval_request_id": id, "id": id, "approve": true });
    json!({
        "session_id": session,
        "input": [{ "type": "mcp_approval_response", "role": "user", "content": [{ "type": "data", "data": data }] }],
    })
}

fn is_decision(request: &ReceivedRequest) -> bool {
    request.json()["input"].as_array().into_iter().flatten().any(|message| message["type"] == "mcp_approval_response")
}

/// An agent that remembers what was said in each session, and says how much that is. It answers 503 while it is down.
/// The input "ask" gets an approval request.
struct Remembering {
    upstream: Upstream,
    is_down: Arc<AtomicBool>,
    decided: Arc<AtomicUsize>,
}

impl Remembering {
    fn new() -> Self {
        let is_down = Arc::new(AtomicBool::new(false));
        let decided = Arc::new(AtomicUsize::new(0));
        let (down, taken) = (Arc::clone(&is_down), Arc::clone(&decided));
        let sessions: Mutex<HashMap<String, usize>> = Mutex::default();
        let upstream = Upstream::with_handler(move |request| {
            if down.load(Ordering::Relaxed) {
                return Reply::complete(503, &[], "starting");
            }
            taken.fetch_add(usize::from(is_decision(request)), Ordering::Relaxed);
            let body = request.json();
            let id = body["session_id"].as_str().expect("a session").to_owned();
            let mut sessions = sessions.lock().expect("no handler panics");
            let said = sessions.entry(id).or_default();
            *said += body["input"].as_array().map_or(0, Vec::len);
            if last_input_text(&body) == "ask" { approval_request("appr-1") } else { text_reply(&[&said.to_string()]) }
        });
        Self { upstream, is_down, decided }
    }

    fn url(&self) -> String {
        self.upstream.url("/process")
    }

    fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
    }

    fn count(&self) -> usize {
        self.upstream.requests().len()
    }

    /// The number of decisions it received.
    fn decided(&self) -> usize {
        self.decided.load(Ordering::Relaxed)
    }
}

/// Two agents, of which the first took the turns so far.
fn by_home(one: Remembering, other: Remembering) -> (Remembering, Remembering) {
    if one.count() > 0 { (one, other) } else { (other, one) }
}

#[tokio::test]
async fn a_decision_is_never_sent_twice() {
    let asked = AtomicBool::new(false);
    let upstream = Upstream::with_handler(move |request| match is_decision(request) {
        false => approval_request("appr-1"),
        // The first time it is not available.
        true if !asked.swap(true, Ordering::Relaxed) => Reply::complete(503, &[], "starting"),
        true => text_reply(&["done"]),
    });
    for config in [agent("friday", &upstream.url("/process"), "", ""), pool(&[upstream.url("/process"), refused()], "")]
    {
        let gateway = Gateway::start(&config).await;
        let before = upstream.requests().len();
        gateway.run_turn("friday", &user_turn_in("s", "remove it")).await.expect_completed();
        if before == 0 {
            let refused = gateway.post("/agents/friday/process", &decision("s", "appr-1")).await;
            assert_eq!((refused.status, refused.json()["code"].as_str()), (503, Some("UPSTREAM_OVERLOADED")));
            let decisions = upstream.requests().iter().filter(|request| is_decision(request)).count();
            assert_eq!(decisions, 1, "it is for people to decide again");
        }
        let done = gateway.run_turn("friday", &decision("s", "appr-1")).await;
        assert_eq!(done.expect_completed().text(), "done");
    }
}

#[tokio::test]
async fn a_turn_that_an_endpoint_does_not_take_goes_to_another_one() {
    let busy = Upstream::always(Reply::complete(503, &[], "starting"));
    let good = Upstream::always(text_reply(&["here I am"]));
    for other in [busy.url("/process"), refused()] {
        let gateway = Gateway::start(&pool(&[other, good.url("/process")], "")).await;
        for _ in 0..20 {
            let answer = gateway.run_turn("friday", &user_turn("hi")).await;
            assert_eq!(answer.expect_completed().text(), "here I am");
        }
    }
    assert_eq!(good.requests().len(), 40);
    let asked = busy.requests().len();
    assert!((1..=5).contains(&asked), "after five failures in a row it gets no more: {asked}");
}

#[tokio::test]
async fn a_turn_that_may_have_begun_stays_where_it_is() {
    for reply in
        [Reply::nothing(), Reply::default().reset(), Reply::complete(500, &[], ""), Reply::complete(502, &[], "")]
    {
        let broken = [Upstream::always(reply.clone()), Upstream::always(reply)];
        let urls = [broken[0].url("/process"), broken[1].url("/process")];
        let gateway = Gateway::start(&pool(&urls, "")).await;
        let response = gateway.post("/agents/friday/process", &user_turn("hi")).await;
        assert_eq!(response.status, 502, "{}", response.text());
        assert_eq!(broken.iter().map(|agent| agent.requests().len()).sum::<usize>(), 1);
    }
}

#[tokio::test]
async fn retries_stay_within_the_budget() {
    let busy = [(); 2].map(|()| Upstream::always(Reply::complete(503, &[], "starting")));
    let urls = [busy[0].url("/process"), busy[1].url("/process")];
    let gateway = Gateway::start(&pool(&urls, "retry_budget = { share = 0.0, least = 0 }")).await;
    for _ in 0..3 {
        let response = gateway.post("/agents/friday/process", &user_turn("hi")).await;
        assert_eq!((response.status, response.json()["code"].as_str()), (503, Some("UPSTREAM_OVERLOADED")));
    }
    assert_eq!(busy.iter().map(|agent| agent.requests().len()).sum::<usize>(), 3);
}

#[tokio::test]
async fn runs_beyond_the_limit_wait_or_are_refused_at_once() {
    let upstream = Upstream::with_handler(|_| text_reply_until(&["hi"], "on"));
    let limits = "limits = { runs = 1, queue = 1, wait = \"10s\" }";
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", limits)).await;
    let mut first = gateway.start_turn("friday", &user_turn("one")).await;
    upstream.wait_for_requests(1).await;

    // Of the next two, one waits, and the other one is refused.
    let second = gateway.start_turn("friday", &user_turn("two")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let began = Instant::now();
    let third = gateway.post("/agents/friday/process", &user_turn("three")).await;
    assert_eq!((third.status, third.header("retry-after")), (503, Some("1")), "{}", third.text());
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(upstream.requests().len(), 1);

    // A client that leaves the queue leaves its place to others.
    drop(second);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut fourth = gateway.start_turn("friday", &user_turn("four")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    upstream.open("on");
    assert_eq!(first.status().await, 200);
    assert_eq!(fourth.status().await, 200);
    assert!(!fourth.frames().await.is_empty());
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn a_run_does_not_wait_longer_than_it_may() {
    let upstream = Upstream::with_handler(|_| text_reply_then_hang(&["hi"]));
    let limits = "limits = { runs = 1, wait = \"100ms\" }";
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", limits)).await;
    let _first = gateway.start_turn("friday", &user_turn("one")).await;
    upstream.wait_for_requests(1).await;
    let second = gateway.post("/agents/friday/process", &user_turn("two")).await;
    assert_eq!((second.status, second.header("retry-after")), (503, Some("1")), "{}", second.text());
}

#[tokio::test]
async fn an_endpoint_whose_answers_break_is_ejected() {
    let half = || frames(&["half"])[..4].iter().fold(Reply::events(), |reply, frame| reply.frame(frame));
    for reply in [half().close(), half().done(), half().and_raw("zz\r\nnonsense\r\n").close(), Reply::default().reset()]
    {
        let (broken, good) = (Upstream::always(reply), Upstream::always(text_reply(&["fine"])));
        let urls = [broken.url("/process"), good.url("/process")];
        let gateway = Gateway::start(&pool(&urls, "affinity = \"none\"\neject = { failures = 3 }")).await;
        for _ in 0..40 {
            gateway.post("/agents/friday/process", &user_turn("hi")).await;
        }
        assert_eq!(broken.requests().len(), 3);
        assert_eq!(good.requests().len(), 37);
    }
}

#[tokio::test]
async fn failures_that_the_agent_reports_itself_do_not_eject() {
    let failed = Reply::frames([response("created"), response("failed")]);
    for reply in [Reply::complete(400, &[], ""), Reply::complete(429, &[], ""), Reply::complete(500, &[], ""), failed] {
        let agents = [(); 2].map(|()| Upstream::always(reply.clone()));
        let urls = [agents[0].url("/process"), agents[1].url("/process")];
        let gateway = Gateway::start(&pool(&urls, "affinity = \"none\"\neject = { failures = 3 }")).await;
        for _ in 0..40 {
            gateway.post("/agents/friday/process", &user_turn("hi")).await;
        }
        let counts = agents.map(|agent| agent.requests().len());
        assert!(counts.iter().all(|count| *count >= 8), "{counts:?}");
    }
}

#[tokio::test]
async fn the_turns_of_a_session_go_to_the_endpoint_that_remembers_it() {
    let agents = [(); 3].map(|()| Remembering::new());
    let urls = [agents[0].url(), agents[1].url(), agents[2].url()];
    let gateway = Gateway::start(&pool(&urls, "")).await;
    for session in 0..40 {
        for turn in 1..=2 {
            let answer = gateway.run_turn("friday", &user_turn_in(&format!("s{session}"), "hi")).await;
            assert_eq!(answer.expect_completed().text(), turn.to_string(), "session {session}");
        }
    }
    assert!(agents.iter().all(|agent| agent.count() > 0), "each has some of the sessions");
}

#[tokio::test]
async fn a_new_session_begins_at_an_endpoint_with_a_free_place_and_stays_there() {
    let agents = [(); 2].map(|()| {
        Upstream::with_handler(|request| match last_input_text(&request.json()).as_str() {
            "wait" => text_reply_until(&["hi"], "on"),
            _ => text_reply(&["hi"]),
        })
    });
    let urls = [agents[0].url("/process"), agents[1].url("/process")];
    let gateway = Gateway::start(&pool(&urls, "limits = { runs = 1, wait = \"100ms\" }")).await;
    let mut first = gateway.start_turn("friday", &user_turn_in("first", "wait")).await;
    first.read_until("hi").await;
    let (full, free) = if agents[0].requests().is_empty() { (1, 0) } else { (0, 1) };

    // Many, of which the ids of some point to the endpoint that has no place.
    let sessions: Vec<String> = (0..12).map(|number| format!("s{number}")).collect();
    for session in &sessions {
        gateway.run_turn("friday", &user_turn_in(session, "hi")).await.expect_completed();
    }
    assert_eq!((agents[full].requests().len(), agents[free].requests().len()), (1, 12));

    agents[full].open("on");
    first.frames().await;
    for session in &sessions {
        gateway.run_turn("friday", &user_turn_in(session, "hi")).await.expect_completed();
    }
    assert_eq!((agents[full].requests().len(), agents[free].requests().len()), (1, 24));
}

#[tokio::test]
async fn a_session_moves_with_its_history_if_its_server_is_out() {
    let (one, other) = (Remembering::new(), Remembering::new());
    let gateway = Gateway::start(&pool(&[one.url(), other.url()], "")).await;
    for text in ["one", "two"] {
        gateway.run_turn("friday", &user_turn_in("s", text)).await.expect_completed();
    }
    let (home, other) = by_home(one, other);
    assert_eq!((home.count(), other.count()), (2, 0));

    home.set_down(true);
    let moved = gateway.run_turn("friday", &user_turn_in("s", "three")).await;
    assert_eq!(moved.expect_completed().text(), "5", "two turns of two messages, and the new one");
    let first = other.upstream.requests()[0].json();
    assert_ne!(first["session_id"], "s", "an id that no endpoint knows");
    assert_eq!(last_input_text(&first), "three");

    // It stays there, and is sent only what is new.
    home.set_down(false);
    let next = gateway.run_turn("friday", &user_turn_in("s", "four")).await;
    assert_eq!(next.expect_completed().text(), "6");
    assert_eq!(other.upstream.requests()[1].json()["session_id"], first["session_id"]);
    assert_eq!(home.count(), 3, "the two turns, and the one that it did not take");
}

#[tokio::test]
async fn a_home_survives_a_restart_and_a_home_that_left_is_replaced() {
    let (one, other) = (Remembering::new(), Remembering::new());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_owned();
    let config = |agents: &str| format!("[store]\nkind = \"sqlite\"\npath = \"runs.db\"\n{agents}\n{ROUTE}");
    // With one URL as with several: a second one may come later.
    let first = config(&agent("friday", &one.url(), "", ""));
    let gateway = Gateway::in_folder(&first, path.clone()).await;
    gateway.run_turn("friday", &user_turn_in("s", "one")).await.expect_completed();
    gateway.stop().await;

    let both = config(&pool(&[other.url(), one.url()], "affinity = \"strict\""));
    let gateway = Gateway::in_folder(&both, path.clone()).await;
    let stayed = gateway.run_turn("friday", &user_turn_in("s", "two")).await;
    assert_eq!((stayed.expect_completed().text(), one.count(), other.count()), ("2".to_owned(), 2, 0));
    gateway.stop().await;

    let gateway = Gateway::in_folder(&config(&pool(&[other.url(), refused()], "")), path.clone()).await;
    let moved = gateway.run_turn("friday", &user_turn_in("s", "three")).await;
    assert_eq!(moved.expect_completed().text(), "5");
    gateway.stop().await;

    let gateway = Gateway::in_folder(&config(&pool(&[one.url(), refused()], "affinity = \"strict\"")), path).await;
    let gone = gateway.post("/agents/friday/process", &user_turn_in("s", "four")).await;
    assert_eq!((gone.status, gone.json()["code"].as_str()), (502, Some("UPSTREAM_UNREACHABLE")));
    assert_eq!(gone.header("retry-after"), None);
    gateway.stop().await;
}

#[tokio::test]
async fn a_strict_session_is_refused_while_its_home_is_away() {
    let (one, other) = (Remembering::new(), Remembering::new());
    let strict = "affinity = \"strict\"\neject = { failures = 1, pause = \"300ms\" }";
    let gateway = Gateway::start(&pool(&[one.url(), other.url()], strict)).await;
    gateway.run_turn("friday", &user_turn_in("s", "one")).await.expect_completed();
    let (home, other) = by_home(one, other);

    home.set_down(true);
    for _ in 0..3 {
        let refused = gateway.post("/agents/friday/process", &user_turn_in("s", "two")).await;
        expect_away(&refused);
    }
    assert_eq!(other.count(), 0, "the other one knows nothing of it");

    home.set_down(false);
    tokio::time::sleep(Duration::from_millis(400)).await;
    let back = gateway.run_turn("friday", &user_turn_in("s", "three")).await;
    assert_eq!(back.expect_completed().text(), "2");
}

#[tokio::test]
async fn a_decision_waits_for_the_endpoint_that_asked() {
    for affinity in ["session", "strict"] {
        let (one, other) = (Remembering::new(), Remembering::new());
        let settings = format!("affinity = \"{affinity}\"\neject = {{ failures = 1, pause = \"300ms\" }}");
        let gateway = Gateway::start(&pool(&[one.url(), other.url()], &settings)).await;
        gateway.run_turn("friday", &user_turn_in("s", "ask")).await.expect_completed();
        let (home, other) = by_home(one, other);

        home.set_down(true);
        for _ in 0..2 {
            let refused = gateway.post("/agents/friday/process", &decision("s", "appr-1")).await;
            expect_away(&refused);
        }
        assert_eq!(other.count(), 0);

        home.set_down(false);
        tokio::time::sleep(Duration::from_millis(400)).await;
        gateway.run_turn("friday", &decision("s", "appr-1")).await.expect_completed();
        let taken = home.upstream.requests().iter().filter(|request| is_decision(request)).count();
        assert_eq!((taken, other.count()), (2, 0), "refused once, then taken");
    }
}

/// A gateway with a route of every protocol for an agent with these two endpoints, which refuses turns whose home is
/// away.
async fn strict(one: &Remembering, other: &Remembering) -> Gateway {
    let settings = "affinity = \"strict\"\neject = { failures = 1, pause = \"300ms\", longest = \"300ms\" }";
    let agent = pool(&[one.url(), other.url()], settings).replace("agents.friday", "agents.demo");
    Gateway::with_config(&format!("[store]\nkind = \"memory\"\n{agent}{ROUTES}")).await
}

/// Fails unless an answer says in its protocol that the agent cannot be reached.
fn expect_refused(client: Protocol, answer: &Response) {
    let errors = client.facts().errors;
    let body = pairs::last_body(answer);
    let found = (answer.status, body.pointer(errors.away).cloned().unwrap_or_default());
    // The home's own 503 comes first, the gateway's refusal once the home is ejected.
    let expected = [errors.overloaded, errors.unreachable].map(|(status, word)| (status, json!(word)));
    assert!(expected.contains(&found), "{client:?}: {found:?} {}", answer.text());
}

/// Fails unless the home says that it has no capacity, or the gateway that the home cannot be reached.
fn expect_away(answer: &Response) {
    let body = answer.json();
    let found = (answer.status, body["code"].as_str());
    let expected = [(503, Some("UPSTREAM_OVERLOADED")), (502, Some("UPSTREAM_UNREACHABLE"))];
    assert!(expected.contains(&found), "{found:?}");
}

#[tokio::test]
async fn every_protocol_says_in_its_own_words_that_a_home_is_away() {
    for client in ALL_PROTOCOLS {
        let (one, other) = (Remembering::new(), Remembering::new());
        let gateway = strict(&one, &other).await;
        let asked = client.ask(&gateway, "s", "ask").await;
        let (home, other) = by_home(one, other);

        home.set_down(true);
        for _ in 0..2 {
            let refused = client.answer(&gateway, &asked, Decision::Accept).await.expect("it can be answered");
            expect_refused(client, &refused);
        }
        assert_eq!(other.count(), 0, "{client:?}: the other one knows nothing of it");

        // The item stays open until it is answered at the endpoint that asked.
        home.set_down(false);
        let done = poll_until("the home to be back", async || {
            let answer = client.answer(&gateway, &asked, Decision::Accept).await.expect("it can be answered");
            let words = ["cannot be reached", "is not available", "\"input_required\""];
            let is_away = words.iter().any(|words| answer.text().contains(words));
            (answer.status == 200 && !is_away).then_some(answer)
        })
        .await;
        assert!(!done.text().contains("UPSTREAM"), "{client:?}: {}", done.text());
        assert_eq!((home.decided(), other.count()), (1, 0), "{client:?}: the tool is called once");
    }
}

#[tokio::test]
async fn a_run_is_stopped_at_the_endpoint_that_has_it_with_its_credentials() {
    let agents = [(); 2].map(|()| {
        Upstream::with_handler(|request| match request.path.as_str() {
            "/stop" => Reply::complete(200, &[("content-type", "application/json")], "{}"),
            _ => text_reply_then_hang(&["so far"]),
        })
    });
    let settings = "options = { stop_url = \"/stop\" }\nheaders = { x-team = \"blue\" }";
    let gateway = Gateway::start(&pool(&[agents[0].url("/process"), agents[1].url("/process")], settings)).await;
    let mut stream = gateway.start_turn("friday", &user_turn("hi")).await;
    stream.read_until("so far").await;
    drop(stream);

    let (has_run, other) = if agents[0].requests().is_empty() { (1, 0) } else { (0, 1) };
    agents[has_run].wait_for_requests(2).await;
    let requests = agents[has_run].requests();
    assert_eq!(requests[1].path, "/stop");
    assert!(requests.iter().all(|request| request.headers.get("x-team").is_some_and(|team| team == "blue")));
    assert!(agents[other].requests().is_empty());
}

#[tokio::test]
async fn an_endpoint_that_fails_its_checks_gets_no_runs() {
    let is_well = Arc::new(AtomicBool::new(false));
    let well = Arc::clone(&is_well);
    let checked = Upstream::with_handler(move |request| match request.path.as_str() {
        "/health?deep=no" if well.load(Ordering::Relaxed) => Reply::complete(204, &[], ""),
        "/health?deep=no" => Reply::complete(503, &[], ""),
        _ => text_reply(&["checked"]),
    });
    let other = Upstream::with_handler(|request| match request.method.as_str() {
        "GET" => Reply::complete(200, &[], "{}"),
        _ => text_reply(&["other"]),
    });
    let settings = "affinity = \"none\"\nheaders = { x-team = \"blue\" }\nhealth = { path = \"/health?deep=no\", \
                    every = \"100ms\", timeout = \"90ms\", healthy = 1, unhealthy = 3 }";
    let gateway = Gateway::start(&pool(&[checked.url("/process"), other.url("/process")], settings)).await;
    checked.wait_for_requests(4).await;

    let mut answers = Vec::new();
    for _ in 0..20 {
        answers.push(gateway.run_turn("friday", &user_turn("hi")).await.expect_completed().text());
    }
    assert!(answers.iter().all(|answer| answer == "other"), "{answers:?}");
    let check = checked.requests().remove(0);
    assert_eq!((check.method.as_str(), check.headers.get("x-team").map(String::as_str)), ("GET", Some("blue")));
    assert!(check.body.is_empty());

    is_well.store(true, Ordering::Relaxed);
    poll_until("the endpoint to be healthy", async || {
        (gateway.run_turn("friday", &user_turn("hi")).await.expect_completed().text() == "checked").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_turn_that_moves_gives_back_its_place_first() {
    let busy = [(); 2].map(|()| Upstream::always(Reply::complete(503, &[], "starting")));
    let urls = [busy[0].url("/process"), busy[1].url("/process")];
    let settings = "limits = { runs = 1, wait = \"5s\" }\nretry_budget = { share = 1.0, least = 100 }";
    let gateway = Gateway::start(&pool(&urls, settings)).await;
    let mut runs = Vec::new();
    for _ in 0..8 {
        runs.push(gateway.start_turn("friday", &user_turn("hi")).await);
    }

    // Two that each hold the place that the other one waits for would wait for as long as they may.
    let began = Instant::now();
    for run in runs {
        let response = run.response().await;
        assert_eq!((response.status, response.json()["code"].as_str()), (503, Some("UPSTREAM_OVERLOADED")));
    }
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}
