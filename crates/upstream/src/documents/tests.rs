//! When documents are fetched, how long a caller waits for one, and what is returned meanwhile.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const MOMENT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(60);

/// A server that gives these answers one after the other, each after a delay.
struct Server {
    cache: Documents<&'static str, Document, String>,
    fetches: AtomicUsize,
    answers: Mutex<VecDeque<(Duration, Answer)>>,
}

/// A text, and the number of the answer it came with.
type Document = (String, usize);
type Answer = Result<FreshDocument<Document>, String>;

fn says(text: &str) -> Answer {
    Ok(FreshDocument { document: (text.to_owned(), 0), max_age: None })
}

fn fails() -> Answer {
    Err("connection refused".into())
}

fn same(one: &Document, other: &Document) -> bool {
    one.0 == other.0
}

impl Server {
    fn new(times: Times, answers: impl IntoIterator<Item = (Duration, Answer)>) -> Self {
        let cache = Documents::new(times, 2, same);
        Self { cache, fetches: AtomicUsize::new(0), answers: Mutex::new(answers.into_iter().collect()) }
    }

    async fn get(&self) -> Option<String> {
        self.find("/card").await.ok().map(|(text, _)| text)
    }

    async fn find(&self, key: &'static str) -> Result<Document, Missing<String>> {
        let fetch = || {
            let number = self.fetches.fetch_add(1, Ordering::Relaxed);
            let (pause, answer) = self.answers.lock().expect("unbroken").pop_front().expect("an answer is left");
            async move {
                tokio::time::sleep(pause).await;
                answer.map(|fetched| FreshDocument { document: (fetched.document.0, number), ..fetched })
            }
        };
        self.cache.get(key, fetch, |bound| format!("no answer after {bound:?}"), |_| {}).await
    }

    fn fetches(&self) -> usize {
        self.fetches.load(Ordering::Relaxed)
    }
}

/// Callers wait for long, and every document is stale at once.
fn hurried() -> Times {
    let none = Duration::ZERO;
    let pause = none;
    Times {
        first: LONG,
        again: LONG,
        fetch: LONG,
        pause,
        pause_without: pause,
        fresh: none,
        min_age: none,
        max_age: none,
    }
}

#[tokio::test]
async fn concurrent_callers_share_one_fetch() {
    let server = Server::new(Times { fresh: LONG, max_age: LONG, ..hurried() }, [(MOMENT, says("a"))]);
    let (one, other) = tokio::join!(server.get(), server.get());
    assert_eq!((one.as_deref(), other.as_deref(), server.fetches()), (Some("a"), Some("a"), 1));
    assert_eq!((server.get().await.as_deref(), server.fetches()), (Some("a"), 1), "it is fresh");
}

#[tokio::test]
async fn a_stale_document_is_fetched_again_and_replaced_by_one_that_differs() {
    let now = Duration::ZERO;
    let server = Server::new(hurried(), [(now, says("a")), (MOMENT, says("a")), (MOMENT, says("b"))]);
    let found = [server.find("/card").await, server.find("/card").await, server.find("/card").await];
    let document = |text: &str, number| Ok((text.to_owned(), number));
    // The second one says nothing new.
    assert_eq!(found, [document("a", 0), document("a", 0), document("b", 2)]);
}

#[tokio::test]
async fn a_refresh_that_fails_keeps_the_old_one() {
    let now = Duration::ZERO;
    let server = Server::new(hurried(), [(now, says("a")), (now, fails()), (now, says("b"))]);
    for wanted in ["a", "a", "b"] {
        assert_eq!(server.get().await.as_deref(), Some(wanted));
    }
}

#[tokio::test]
async fn a_server_that_fails_is_left_alone_for_a_pause() {
    let times = Times { pause_without: MOMENT * 5, ..hurried() };
    let server = Server::new(times, [(Duration::ZERO, fails()), (Duration::ZERO, says("a"))]);
    let refused = Err(Missing::Failed("connection refused".to_owned()));
    assert_eq!(
        (server.find("/card").await, server.find("/card").await, server.fetches()),
        (refused.clone(), refused, 1)
    );
    tokio::time::sleep(MOMENT * 6).await;
    assert_eq!((server.get().await.as_deref(), server.fetches()), (Some("a"), 2));
}

#[tokio::test]
async fn callers_have_a_limit_and_the_fetch_continues() {
    let times = Times { first: MOMENT, again: MOMENT, fresh: LONG, max_age: LONG, ..hurried() };
    let server = Server::new(times, [(MOMENT * 4, says("a"))]);
    assert_eq!(server.find("/card").await, Err(Missing::Late));
    tokio::time::sleep(MOMENT * 5).await;
    assert_eq!((server.get().await.as_deref(), server.fetches()), (Some("a"), 1));
}

#[tokio::test]
async fn a_fetch_that_has_no_end_is_given_up() {
    let times = Times { fetch: MOMENT, ..hurried() };
    let server = Server::new(times, [(LONG, says("a")), (Duration::ZERO, says("b"))]);
    assert_eq!(server.get().await, None);
    assert_eq!(server.get().await.as_deref(), Some("b"));
}

#[test]
fn a_fetch_whose_thread_ends_makes_way_for_another() {
    let times = Times { first: MOMENT, ..hurried() };
    let server = Server::new(times, [(LONG, says("a")), (Duration::ZERO, says("b"))]);
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(server.get())
    };
    assert_eq!((run(), run().as_deref()), (None, Some("b")));
}

#[tokio::test]
async fn the_server_says_within_limits_how_long_a_document_is_fresh() {
    for (announced, rests) in [(None, 300), (Some(1), 60), (Some(90), 90), (Some(99_999), 3600)] {
        let max_age = announced.map(Duration::from_secs);
        let fetched = FreshDocument { document: (String::new(), 0), max_age };
        let server = Server::new(Times::DEFAULT, [(Duration::ZERO, Ok(fetched))]);
        let before = Instant::now();
        server.get().await;
        let until = server.cache.entry("/card").borrow().next_fetch.expect("it rests");
        let rested = until - before;
        assert!(
            rested >= Duration::from_secs(rests) && rested < Duration::from_secs(rests + 5),
            "{announced:?}: {rested:?}"
        );
    }
}

#[test]
fn a_series_of_failures_is_logged_once_and_so_is_its_end() {
    let mut entry = Entry::default();
    let answers = [fails(), fails(), says("a"), says("a"), fails(), fails()];
    let noted = answers.map(|answer| entry.take(answer, hurried(), same));
    let gone = |is_kept| Some(FetchOutcome::Gone { why: "connection refused".into(), is_kept });
    assert_eq!(noted, [gone(false), None, Some(FetchOutcome::Again), None, gone(true), None]);
}

#[tokio::test]
async fn the_one_that_was_not_used_for_the_longest_time_makes_way() {
    let times = Times { fresh: LONG, max_age: LONG, ..hurried() };
    let server = Server::new(times, ["a", "b", "c", "b again"].map(|text| (Duration::ZERO, says(text))));
    for key in ["/a", "/b", "/a", "/c", "/a"] {
        server.find(key).await.expect("a document");
    }
    assert_eq!(server.fetches(), 3);
    assert_eq!(server.find("/b").await, Ok(("b again".to_owned(), 3)));
}
