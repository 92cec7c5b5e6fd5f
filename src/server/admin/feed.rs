//! The stream of changes that a page of the console follows: summaries of runs, the number of open items, agents, and
//! every event of one run with its frames in several protocols.
//!
//! A page that does not read skips summaries, which are sent again whole, and never slows a run down: it follows
//! detached. Not here: what has changed ([`super::summaries`]), and how frames are made ([`super::prism`]).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::web::Bytes;
use futures_util::stream;
use interlingua_core::{Fault, FaultKind, RunId};
use serde_json::json;
use tokio::sync::mpsc::{self, Sender};
use tokio::time::MissedTickBehavior;

use super::State;
use super::guard::{Who, is_valid};
use super::prism::{Frames, Prism, Shown};
use super::summaries::Watch;
use crate::engine::{Follower, Take};

/// Changes are looked for this often.
const INTERVAL: Duration = Duration::from_millis(250);
/// A comment is sent this often, so that the page notices a connection that is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Chunks that wait for the page to read.
const MAX_WAITING: usize = 16;
/// Steps are sent together up to this size.
const MAX_BATCH: usize = 64 << 10;
/// Streams of all pages together.
pub(super) const MAX_STREAMS: usize = 64;

/// What a page wants to follow.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    runs: bool,
    run: Option<RunId>,
    protocols: Vec<String>,
    /// The last event that the page has.
    after: Option<u64>,
}

impl Wanted {
    /// The run that is followed.
    pub(super) const fn run(&self) -> Option<RunId> {
        self.run
    }

    /// Reads the query, and the number that a browser sends when it resumes.
    ///
    /// # Errors
    /// Unknown parameters, and values that cannot be read.
    pub(super) fn parse(query: &str, last_event_id: Option<&str>) -> Result<Self, Fault> {
        let mut wanted = Self::default();
        let number = |field: &'static str, value: &str| {
            value.parse::<u64>().map_err(|_| Fault::invalid(field, "is the number of an event"))
        };
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "runs" => match &*value {
                    "" | "1" | "true" => wanted.runs = true,
                    "0" | "false" => wanted.runs = false,
                    _ => return Err(Fault::invalid("runs", "must be 1 or 0")),
                },
                "run" => {
                    let id = RunId::parse(&value).ok_or_else(|| Fault::invalid("run", "is not the id of a run"))?;
                    wanted.run = Some(id);
                }
                "protocols" => wanted.protocols = value.split(',').map(str::to_owned).collect(),
                "after" => wanted.after = Some(number("after", &value)?),
                other => return Err(Fault::invalid(other.to_owned(), "is not a parameter of this")),
            }
        }
        if let Some(last) = last_event_id.filter(|last| !last.is_empty()) {
            wanted.after = Some(number("Last-Event-ID", last)?);
        }
        Ok(wanted)
    }
}

/// The page has left.
struct Left;

/// Opens a stream.
///
/// # Errors
/// If there is no such run, or there are too many streams.
pub(super) async fn open(state: &Arc<State>, who: Who, wanted: Wanted) -> Result<HttpResponse, Fault> {
    let stream = Arc::clone(&state.streams).try_acquire_owned();
    let stream = stream.map_err(|_| {
        Fault::new(FaultKind::Overloaded, format!("{MAX_STREAMS} pages of the console are open: close some"))
    })?;
    let follower = match wanted.run {
        Some(id) => Some(state.admin.engine.operator().follow(id).await?),
        None => None,
    };

    let (sender, mut receiver) = mpsc::channel::<Bytes>(MAX_WAITING);
    let state = Arc::clone(state);
    actix_web::rt::spawn(async move {
        let _stream = stream;
        // `Left` is how every stream ends.
        let _ = tokio::join!(changes(&state, &who, &wanted, &sender), run(&state, &who, &wanted, follower, &sender));
    });
    let body =
        stream::poll_fn(move |context| receiver.poll_recv(context).map(|chunk| chunk.map(Ok::<_, actix_web::Error>)));
    Ok(HttpResponse::Ok()
        .insert_header(("content-type", "text/event-stream; charset=utf-8"))
        .insert_header(("x-accel-buffering", "no"))
        .streaming(body))
}

/// Sends what has changed, until the page leaves or its session ends.
async fn changes(state: &Arc<State>, who: &Who, wanted: &Wanted, sender: &Sender<Bytes>) -> Result<(), Left> {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watch = Watch::new(state, wanted.runs, wanted.run, who.reads(state.admin.texts));
    let mut last_sent = tokio::time::Instant::now() - KEEP_ALIVE;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = sender.closed() => return Err(Left),
        }
        if !is_valid(state, who) {
            return Err(Left);
        }
        // A page that does not read gets what is new once it does.
        let Ok(room) = sender.try_reserve() else { continue };
        let text = watch.changes(state).await;
        if !text.is_empty() {
            room.send(text.into());
            last_sent = tokio::time::Instant::now();
        } else if last_sent.elapsed() >= KEEP_ALIVE {
            room.send(Bytes::from_static(b": keep-alive\n\n"));
            last_sent = tokio::time::Instant::now();
        }
    }
}

/// Sends the events of a run, and waits for more until the page leaves.
async fn run(
    state: &Arc<State>,
    who: &Who,
    wanted: &Wanted,
    follower: Option<Follower>,
    sender: &Sender<Bytes>,
) -> Result<(), Left> {
    let Some(mut follower) = follower else { return Ok(()) };
    let mut prism = Prism::open(state, &follower.run(), &wanted.protocols, who.reads(state.admin.texts));
    let first = wanted.after.map_or(0, |after| after.saturating_add(1));
    loop {
        let (text, goes_on) = next_events(state, &mut follower, &mut prism, first).await;
        if !text.is_empty() && sender.send(text.into()).await.is_err() {
            return Err(Left);
        }
        if !goes_on {
            return Ok(());
        }
    }
}

/// Waits for the next steps and encodes them. False: there will never be another one.
async fn next_events(state: &Arc<State>, follower: &mut Follower, prism: &mut Prism, first: u64) -> (String, bool) {
    let mut text = String::new();
    // A step that begins another turn: what protocols write before it is not there yet.
    let mut held = None;
    let mut is_paused = false;
    let goes_on = poll_fn(|context| {
        let polled = follower.poll_steps(context, &mut |view, step| match prism.step(view, step) {
            Some(shown) => {
                push(&mut text, &shown, first);
                if text.len() >= MAX_BATCH { Take::Enough } else { Take::More }
            }
            None => {
                held = Some(step.sequence);
                Take::Enough
            }
        });
        if polled.is_pending() && prism.is_to_pause() && follower.if_paused(|_| ()).is_some() {
            is_paused = true;
            return Poll::Ready(true);
        }
        polled
    })
    .await;

    let run = follower.run();
    if let Some(sequence) = held {
        let more = prism.pause(state, &run).await;
        if sequence >= first {
            push_more(&mut text, more);
        }
        let shown = run.view_safe(|view| view.record.step(sequence).and_then(|step| prism.step(view, step)));
        if let Some(shown) = shown {
            push(&mut text, &shown, first);
        }
    }
    if is_paused || (!goes_on && prism.is_to_pause()) {
        push_more(&mut text, prism.pause(state, &run).await);
    }
    (text, goes_on)
}

/// `first`: the page has the events before.
fn push(text: &mut String, shown: &Shown, first: u64) {
    if shown.number >= first {
        text.push_str(&format!("event: event\nid: {}\ndata: {}\n\n", shown.number, shown.to_json()));
    }
}

/// Frames that belong to the latest event, written after it.
fn push_more(text: &mut String, frames: Frames) {
    if !frames.is_empty() {
        text.push_str(&format!("event: more\ndata: {}\n\n", json!({ "frames": frames })));
    }
}
