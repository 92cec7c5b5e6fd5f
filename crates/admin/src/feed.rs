//! The stream of changes for a page of the console: summaries of runs, the number of open items, agents, and every
//! event of one run with its frames in several protocols.
//!
//! A slow page misses intermediate summaries and later receives the latest ones. It never slows down a run, because the
//! stream follows the run detached. The stream ends with the sign-in that opened it. Not here: the detection of changes
//! ([`super::summaries`]), the encoding of frames ([`super::prism`]), and their transport ([`super::streams`]).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use actix_web::HttpResponse;
use interlingua_core::{Fault, FaultKind, RunId};
use tokio::sync::{Mutex, oneshot};
use tokio::time::MissedTickBehavior;

use super::AdminState;
use super::guard::OperatorIdentity;
use super::prism::{EncodedEvent, EventHead, Prism};
use super::streams::{Access, Encoders, MAX_CHUNK, Pieces, StreamClosed, StreamCounts};
use super::summaries::Watch;
use interlingua_engine::{Follower, RunHandle, Take};

/// Interval of the search for changes, and of the check of credentials.
const INTERVAL: Duration = Duration::from_millis(250);
/// After this time without data a comment is sent, so that the page can detect a lost connection.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The parameters of a stream.
#[derive(Debug, Default)]
pub(super) struct FeedParams {
    runs: bool,
    run: Option<RunId>,
    protocols: Vec<String>,
    /// The number of the last event that the page has received.
    after: Option<u64>,
}

impl FeedParams {
    /// The followed run, if any.
    pub(super) const fn run(&self) -> Option<RunId> {
        self.run
    }

    /// Parses the query. `last_event_id`: the header of a browser that resumes; it takes precedence over `after`.
    ///
    /// # Errors
    /// Unknown parameters and invalid values.
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
                other => return Err(Fault::invalid(other.to_owned(), "is not a parameter of this path")),
            }
        }
        if let Some(last) = last_event_id.filter(|last| !last.is_empty()) {
            wanted.after = Some(number("Last-Event-ID", last)?);
        }
        Ok(wanted)
    }
}

/// Opens a stream.
///
/// # Errors
/// If there is no such run, or there are too many streams.
pub(super) async fn open(
    state: &Arc<AdminState>,
    who: OperatorIdentity,
    wanted: FeedParams,
) -> Result<HttpResponse, Fault> {
    let permit = StreamCounts::begin(state, &who)?;
    let access = Access::new(state, who);
    let (end, ended) = oneshot::channel();
    let (pieces, body) = Pieces::new(ended);
    let closed = pieces.closed();
    // The lock keeps events apart: an event is sent in pieces.
    let out = Arc::new(Mutex::new(pieces));
    if let Some(run) = wanted.run {
        follow(state, run, access.texts, &wanted, &out).await?;
    }

    let state = Arc::clone(state);
    actix_web::rt::spawn(async move {
        let _permit = permit;
        tokio::select! {
            () = changes(&state, &access, &wanted, &out) => {}
            () = access_ends(&access) => {}
            () = closed => {}
        }
        // End the response at once, without the chunks that still wait.
        drop(end);
    });
    Ok(HttpResponse::Ok()
        .insert_header(("content-type", "text/event-stream; charset=utf-8"))
        .insert_header(("x-accel-buffering", "no"))
        .streaming(body))
}

/// Starts to send the events of a run, on the encoder thread.
///
/// # Errors
/// If there is no such run.
async fn follow(
    state: &Arc<AdminState>,
    run: RunId,
    texts: bool,
    wanted: &FeedParams,
    out: &Arc<Mutex<Pieces>>,
) -> Result<(), Fault> {
    let (found, is_found) = oneshot::channel();
    let (state, out, protocols) = (Arc::clone(state), Arc::clone(out), wanted.protocols.clone());
    let first = wanted.after.map_or(0, |after| after.saturating_add(1));
    let encoding = Arc::clone(&state);
    state.encoders.spawn(move || async move {
        let state = encoding;
        let follower = match state.admin.engine.operator().follow(run).await {
            Ok(follower) => follower,
            Err(fault) => return drop(found.send(Err(fault))),
        };
        if found.send(Ok(())).is_err() {
            return;
        }
        let closed = out.lock().await.closed();
        let prism = Prism::open(&state, &follower.run(), &protocols, texts);
        let mut shown = ShownRun { state, follower, prism, first, out };
        tokio::select! {
            // The result is ignored: an error means only that the page has disconnected.
            _ = shown.send_all() => {}
            () = closed => {}
        }
    });
    let stopped = |_| Err(Fault::new(FaultKind::Overloaded, "the gateway is stopping"));
    is_found.await.unwrap_or_else(stopped)
}

/// Waits until the page loses a right that it has now.
async fn access_ends(access: &Access) {
    let mut ticks = tokio::time::interval(INTERVAL);
    while access.holds() {
        ticks.tick().await;
    }
}

/// Sends changes until the page disconnects.
async fn changes(state: &Arc<AdminState>, access: &Access, wanted: &FeedParams, out: &Mutex<Pieces>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watch = Watch::new(state, wanted.runs, wanted.run, access.texts);
    let mut last_sent = tokio::time::Instant::now() - KEEP_ALIVE;
    loop {
        ticks.tick().await;
        // A page that does not read, or receives a long event, gets the changes later.
        if !out.try_lock().is_ok_and(|pieces| pieces.has_room()) {
            continue;
        }
        let mut text = watch.changes(state).await;
        if text.is_empty() && last_sent.elapsed() >= KEEP_ALIVE {
            text.push_str(": keep-alive\n\n");
        }
        if text.is_empty() {
            continue;
        }
        let mut pieces = out.lock().await;
        if pieces.push(&text).await.is_err() || pieces.flush().await.is_err() {
            return;
        }
        last_sent = tokio::time::Instant::now();
    }
}

/// A run with its stream to a page.
struct ShownRun {
    state: Arc<AdminState>,
    follower: Follower,
    prism: Prism,
    /// The number of the first event that the page lacks.
    first: u64,
    out: Arc<Mutex<Pieces>>,
}

/// The next action of a stream.
enum NextStep {
    /// Waits for more events.
    Events,
    /// Encodes this event alone: it starts a turn after a pause, or belongs to a long run.
    Event(u64),
    /// The run waits between two turns.
    Pause,
    /// The run has no further events.
    End,
}

impl ShownRun {
    /// Sends the events, and waits for more until the run is over.
    async fn send_all(&mut self) -> Result<(), StreamClosed> {
        loop {
            let (text, next) = self.next_events().await;
            if !text.is_empty() {
                let mut out = self.out.lock().await;
                out.push(&text).await?;
                out.flush().await?;
            }
            match next {
                NextStep::Events => {}
                NextStep::Event(number) => self.send_event(number).await?,
                NextStep::Pause => self.send_pause(true).await?,
                NextStep::End => {
                    if self.prism.needs_pause_frames() {
                        self.send_pause(true).await?;
                    }
                    return Ok(());
                }
            }
        }
    }

    /// Waits for the next events and encodes them.
    async fn next_events(&mut self) -> (String, NextStep) {
        let Self { follower, prism, first, .. } = self;
        let (mut text, mut next) = (String::new(), NextStep::Events);
        let has_more = poll_fn(|context| {
            let polled = follower.poll_steps(context, &mut |view, step| {
                // `send_event` encodes the events of a long run, and an event that starts a turn after a pause.
                let shown = if Encoders::is_long_run(view.record.size()) { None } else { prism.step(view, step) };
                let Some(shown) = shown else {
                    next = NextStep::Event(step.sequence);
                    return Take::Enough;
                };
                push(&mut text, &shown, *first);
                if text.len() >= MAX_CHUNK { Take::Enough } else { Take::More }
            });
            if polled.is_pending() && prism.needs_pause_frames() && follower.if_paused(|_| ()).is_some() {
                next = NextStep::Pause;
                return Poll::Ready(true);
            }
            polled
        })
        .await;
        if !has_more && matches!(next, NextStep::Events) {
            next = NextStep::End;
        }
        (text, next)
    }

    /// Sends an event, encoded one protocol after the other. If the event starts a turn, the frames of the pause before
    /// it are sent first.
    async fn send_event(&mut self, number: u64) -> Result<(), StreamClosed> {
        let run = self.follower.run();
        let Some(head) = run.view_safe(|view| view.record.step(number).map(EventHead::from_step)) else {
            return Ok(());
        };
        if head.begins_turn && self.prism.needs_pause_frames() {
            self.send_pause(number >= self.first).await?;
        }
        let _memory = self.state.encoders.reserve(size_of(&run)).await;
        let mut out = self.out.lock().await;
        let is_new = number >= self.first;
        if is_new {
            out.push(&format!("event: event\nid: {number}\ndata: {}", head.open_json())).await?;
        }
        for pane in 0..self.prism.len() {
            let frames = run
                .view_safe(|view| view.record.step(number).map(|step| self.prism.frames_of(pane, view, step)))
                .unwrap_or_default();
            if is_new {
                let comma = if pane == 0 { "" } else { "," };
                out.push(&format!("{comma}\"{}\":\"", self.prism.protocol(pane))).await?;
                out.push_escaped(&frames).await?;
                out.push("\"").await?;
            }
            // Let other streams encode on this thread.
            tokio::task::yield_now().await;
        }
        self.prism.advance(number);
        if is_new {
            out.push("}}\n\n").await?;
        }
        out.flush().await
    }

    /// Sends the frames that protocols write when the run waits or has ended. They belong to the latest event.
    /// `is_new`: the page lacks them.
    async fn send_pause(&mut self, is_new: bool) -> Result<(), StreamClosed> {
        let run = self.follower.run();
        let _memory = self.state.encoders.reserve(size_of(&run)).await;
        let paused = self.prism.pause(&run);
        let mut out = self.out.lock().await;
        let mut has_frames = false;
        for pane in 0..self.prism.len() {
            let frames = self.prism.paused(pane, &self.state, &run, &paused).await;
            if is_new && !frames.is_empty() {
                let before = if has_frames { "," } else { "event: more\ndata: {\"frames\":{" };
                has_frames = true;
                out.push(&format!("{before}\"{}\":\"", self.prism.protocol(pane))).await?;
                out.push_escaped(&frames).await?;
                out.push("\"").await?;
            }
            tokio::task::yield_now().await;
        }
        if has_frames {
            out.push("}}\n\n").await?;
        }
        out.flush().await
    }
}

/// The size of a run, in bytes.
pub(super) fn size_of(run: &RunHandle) -> usize {
    run.view_safe(|view| view.record.size())
}

/// Appends an event, unless it is before `first`, which means that the page has it.
fn push(text: &mut String, shown: &EncodedEvent, first: u64) {
    if shown.number >= first {
        text.push_str(&format!("event: event\nid: {}\ndata: {}\n\n", shown.number, shown.to_json()));
    }
}
