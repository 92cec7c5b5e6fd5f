//! Encodes a streamed response. Steps are encoded only when the connection can accept them. Between steps the stream
//! writes keep-alives: one for each keep-alive of the agent, and one after each idle interval.
//!
//! Not here: the detection of disconnected clients ([`super::listener`]): actix-web then drops the response; and chunks
//! that the client does not read ([`super::unsent`]).

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::web::Bytes;
use futures_util::future::LocalBoxFuture;
use interlingua_base::clock;
use interlingua_core::call::Notice;
use interlingua_core::event::Millis;
use interlingua_core::{Call, Exchange, Fault, FaultKind, Flow, Next, Out};
use tokio::time::{Instant, Sleep};

use super::replies::{ReplyOutcome, StreamSource, reply};
use super::trailers::Trailers;
use interlingua_engine::{Answer, Engine, Follower, Listener, Scope, Take};
use interlingua_observe::RequestLog;
use interlingua_observe::metrics::OpenStream;

/// The target size of a chunk in bytes. A chunk ends after the event that reaches it.
const CHUNK_BYTES: usize = 32 * 1024;

/// The size in bytes above which an event is sent with a warning in the log: some client libraries reject larger
/// events, such as events with an inline file (docs/protocols/a2a.md#streams).
const LARGE_EVENT: usize = 4 << 20;

/// Maximum time to find out that there is nothing to stream. After it, the stream starts.
const EXHAUSTED_TIMEOUT: Duration = Duration::from_secs(1);

/// The chunks of a streamed response.
pub(super) struct Steps {
    source: Source,
    engine: Engine,
    scope: Scope,
    exchange: Box<dyn Exchange>,
    out: Out,
    heartbeat: Heartbeat,
    alarm: Alarm,
    /// The agent's keep-alives so far that were passed on, or superseded by output.
    keep_alives: u64,
    /// The number of chunks still to be passed on without copying.
    opening_chunks: u8,
    ended: bool,
    _open: OpenStream,
    /// Resolves when the caller's credentials or rights end. `None`: the stream outlives them.
    revoked: Option<LocalBoxFuture<'static, Fault>>,
    /// The log that receives the losses at the end of the stream. `None`: they are not recorded.
    log: Option<Arc<RequestLog>>,
    /// Receives the trailers at the end of the stream. `None`: they are dropped.
    trailers: Option<Trailers>,
}

/// The current source of a stream.
enum Source {
    Run(Follower),
    /// The next notice, and the listener for those after it.
    Notices(LocalBoxFuture<'static, (Listener, Result<Notice, Fault>)>),
    /// The answer to a call with which the stream continues.
    Answer(LocalBoxFuture<'static, Result<Answer, Fault>>),
    /// Nothing: the stream has ended.
    Nothing,
}

impl Source {
    fn notices(mut listener: Listener) -> Self {
        Self::Notices(Box::pin(async move {
            let notice = listener.next().await;
            (listener, notice)
        }))
    }

    fn call(call: Call, engine: &Engine, scope: &Scope) -> Self {
        let (engine, scope) = (engine.clone(), scope.clone());
        Self::Answer(Box::pin(async move { engine.answer(call, &scope).await }))
    }

    fn keep_alives(&self) -> u64 {
        match self {
            Self::Run(follower) => follower.keep_alives(),
            Self::Notices(_) | Self::Answer(_) | Self::Nothing => 0,
        }
    }
}

impl Steps {
    pub(super) fn new(
        (source, engine, scope): (StreamSource, Engine, Scope),
        exchange: Box<dyn Exchange>,
        heartbeat: Duration,
        open: OpenStream,
    ) -> Self {
        let mut steps = Self {
            source: Source::Nothing,
            engine,
            scope,
            exchange,
            out: Out::new(),
            heartbeat: Heartbeat::new(heartbeat),
            alarm: Alarm::default(),
            keep_alives: 0,
            opening_chunks: 4,
            ended: false,
            revoked: None,
            log: None,
            trailers: None,
            _open: open,
        };
        steps.begin(source);
        steps.keep_alives = steps.source.keep_alives();
        steps
    }

    /// Sets where the trailers of the stream go.
    pub(super) fn with_trailers(mut self, trailers: Trailers) -> Self {
        self.trailers = Some(trailers);
        self
    }

    /// Records the losses of the stream in this log when the stream is dropped.
    pub(super) fn with_request_log(mut self, log: Option<Arc<RequestLog>>) -> Self {
        self.log = log;
        self
    }

    /// Ends the stream with a fault in its protocol when `revoked` resolves.
    pub(super) fn until_revoked(mut self, revoked: Option<LocalBoxFuture<'static, Fault>>) -> Self {
        self.revoked = revoked;
        self
    }

    /// True if the run has ended or waits for its next turn, and the client has all its events. Waits for at most
    /// [`EXHAUSTED_TIMEOUT`] while events are being read or written.
    pub(super) async fn wait_exhausted(&mut self) -> bool {
        match &self.source {
            Source::Run(follower) if follower.is_at_rest() => {}
            _ => return false,
        }
        let encoded = poll_fn(|context| {
            if !self.ended && self.out.body.is_empty() {
                self.take_steps(context);
            }
            match (self.out.body.is_empty(), self.ended) {
                (false, _) => Poll::Ready(false),
                (true, true) => Poll::Ready(true),
                (true, false) => Poll::Pending,
            }
        });
        tokio::time::timeout(EXHAUSTED_TIMEOUT, encoded).await.unwrap_or(false)
    }

    /// The next chunk. `None` at the end of the stream.
    pub(super) fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if !self.ended {
            self.take_steps(context);
        }
        if !self.ended {
            self.check_time(context);
        }

        let keep_alives = std::mem::replace(&mut self.keep_alives, self.source.keep_alives());
        if !self.out.body.is_empty() {
            self.heartbeat.on_write();
            return Poll::Ready(Some(self.take_chunk()));
        }

        if self.ended {
            if let Some(trailers) = self.trailers.take() {
                trailers.set(std::mem::take(&mut self.out.trailers));
            }
            return Poll::Ready(None);
        }
        let has_keep_alive = self.keep_alives != keep_alives && self.heartbeat.is_enabled();
        if has_keep_alive || self.heartbeat.poll_due(context).is_ready() {
            self.exchange.heartbeat(&mut self.out);
            self.heartbeat.on_write();
            // Register the timer before the chunk is returned: the next poll may be much later.
            let _ = self.heartbeat.poll_due(context);
            if !self.out.body.is_empty() {
                return Poll::Ready(Some(self.take_chunk()));
            }
        }

        Poll::Pending
    }
}

impl Steps {
    /// Encodes the available steps of the run up to the size of a chunk, or the end of the stream.
    fn take_steps(&mut self, context: &mut Context<'_>) {
        if let Some(Poll::Ready(fault)) = self.revoked.as_mut().map(|revoked| revoked.as_mut().poll(context)) {
            self.exchange.interrupt(&fault, &mut self.out);
            (self.ended, self.revoked) = (true, None);
            return;
        }

        match &mut self.source {
            Source::Run(_) => self.take_steps_of_run(context),
            Source::Notices(notice) => {
                let Poll::Ready((listener, notice)) = notice.as_mut().poll(context) else { return };
                match notice {
                    Ok(notice) => {
                        self.source = Source::notices(listener);
                        let flow = self.exchange.on_notice(notice, &mut self.out);
                        self.follow(flow);
                    }
                    Err(fault) => self.fail(&fault),
                }
                // The new source has not been polled yet.
                context.waker().wake_by_ref();
            }
            Source::Answer(answer) => {
                let Poll::Ready(answer) = answer.as_mut().poll(context) else { return };
                self.take_answer(answer);
                context.waker().wake_by_ref();
            }
            Source::Nothing => self.ended = true,
        }
    }

    /// Begins to stream from a source.
    fn begin(&mut self, source: StreamSource) {
        self.source = match source {
            StreamSource::Run { mut follower, attach } => {
                follower.begin(attach, |view| self.exchange.begin(view, &mut self.out));
                Source::Run(follower)
            }
            StreamSource::Notices(listener) => Source::notices(listener),
        };
    }

    /// Reads the answer to a call with which the stream continues.
    fn take_answer(&mut self, answer: Result<Answer, Fault>) {
        let replied = match answer {
            Ok(answer) => reply(&mut *self.exchange, answer, &self.scope, &mut self.out),
            Err(fault) => {
                match (fault.kind == FaultKind::NotFound).then(|| self.exchange.on_not_found(&fault)).flatten() {
                    Some(call) => Ok(ReplyOutcome::Next(Next::Call(call))),
                    None => Err(fault),
                }
            }
        };
        match replied {
            Ok(ReplyOutcome::Stream(source)) => self.begin(source),
            Ok(ReplyOutcome::Next(Next::Call(call))) => self.source = Source::call(call, &self.engine, &self.scope),
            Ok(ReplyOutcome::Next(Next::Done)) => self.ended = true,
            Err(fault) => self.fail(&fault),
        }
    }

    /// Does what the exchange has decided.
    fn follow(&mut self, flow: Flow) {
        match flow {
            Flow::More => {}
            Flow::Close | Flow::Forget => self.ended = true,
            Flow::Next => {
                if let Source::Run(follower) = &self.source {
                    // The response continues without the run: its client has not disconnected.
                    follower.detach();
                }
                match self.exchange.next_call() {
                    Some(call) => self.source = Source::call(call, &self.engine, &self.scope),
                    None => self.ended = true,
                }
            }
        }
    }

    /// Ends the stream with a fault in its protocol.
    fn fail(&mut self, fault: &Fault) {
        self.exchange.interrupt(fault, &mut self.out);
        self.ended = true;
    }

    /// Encodes the available steps of the run up to the size of a chunk, or the end of the run.
    fn take_steps_of_run(&mut self, context: &mut Context<'_>) {
        let Source::Run(follower) = &mut self.source else { return };
        let (exchange, out) = (&mut self.exchange, &mut self.out);
        let mut end = None;
        let more = follower.poll_steps(context, &mut |_, step| match exchange.encode(step, out) {
            Flow::More if out.body.len() >= CHUNK_BYTES => Take::Enough,
            Flow::More => Take::More,
            flow @ (Flow::Close | Flow::Forget | Flow::Next) => {
                end = Some(flow);
                Take::Close
            }
        });
        if end == Some(Flow::Forget) {
            follower.forget();
        }
        match more {
            Poll::Ready(true) if self.out.body.is_empty() => {
                // The protocol emits nothing for these steps: poll again.
                context.waker().wake_by_ref();
            }
            Poll::Ready(true) => {}
            Poll::Pending => {
                if let Some(fault) = follower.broken_off() {
                    if !follower.is_elsewhere() || !self.exchange.is_resumed_elsewhere() {
                        self.exchange.interrupt(&fault, &mut self.out);
                    }
                    self.ended = true;
                } else {
                    let (exchange, out) = (&mut self.exchange, &mut self.out);
                    let paused = follower.if_paused(|run| exchange.pause(run, out));
                    self.follow_from(paused.unwrap_or(Flow::More), context);
                }
            }
            Poll::Ready(false) => {
                if let Some(fault) = follower.broken() {
                    self.fail(&fault);
                } else {
                    self.follow_from(end.unwrap_or(Flow::Close), context);
                }
            }
        }
    }

    /// As [`Self::follow`], and polls again if the stream has another source now.
    fn follow_from(&mut self, flow: Flow, context: &Context<'_>) {
        self.follow(flow);
        if flow == Flow::Next {
            context.waker().wake_by_ref();
        }
    }

    /// Calls the exchange if the time for which it asked has come.
    fn check_time(&mut self, context: &mut Context<'_>) {
        while let Some(at) = self.exchange.wake_at()
            && self.alarm.poll_due(at, context).is_ready()
        {
            let flow = self.exchange.on_time(clock::now().max(at), &mut self.out);
            self.follow_from(flow, context);
            self.alarm.on_call();
            if self.ended {
                return;
            }
        }
    }

    /// Takes the encoded bytes. Usually they are small: they are copied, and the buffer is reused. The first chunks are
    /// moved instead, because there are many opening events and a long pause may follow.
    fn take_chunk(&mut self) -> Bytes {
        // A chunk ends after the event that fills it, so a chunk this large contains an event about this large.
        if self.out.body.len() > LARGE_EVENT + CHUNK_BYTES {
            let run = match &self.source {
                Source::Run(follower) => Some(follower.run().id()),
                _ => None,
            };
            let run = run.map(tracing::field::display);
            tracing::warn!(
                run,
                bytes = self.out.body.len(),
                "the gateway sends an event that some client libraries refuse: they read at most 4 MiB"
            );
        }

        // Move the buffer after a large event too: otherwise it would stay that large.
        if self.opening_chunks > 0 || self.out.body.len() > 2 * CHUNK_BYTES {
            self.opening_chunks = self.opening_chunks.saturating_sub(1);
            return std::mem::take(&mut self.out.body).freeze();
        }
        let chunk = Bytes::copy_from_slice(&self.out.body);
        self.out.body.clear();
        chunk
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if let Some(log) = &self.log {
            log.set_losses(self.exchange.losses());
        }
    }
}

/// The timer for [`Exchange::wake_at`]. It fires at most once in a millisecond, so that an exchange whose time has
/// always come cannot keep the thread busy.
#[derive(Default)]
struct Alarm {
    timer: Option<(Millis, Pin<Box<Sleep>>)>,
    /// When it may fire again.
    not_before: Option<Instant>,
}

impl Alarm {
    fn poll_due(&mut self, at: Millis, context: &mut Context<'_>) -> Poll<()> {
        if self.timer.as_ref().is_none_or(|(known, _)| *known != at) {
            let due = Instant::now() + Duration::from_millis(at.saturating_sub(clock::now()));
            let due = self.not_before.map_or(due, |earliest| earliest.max(due));
            self.timer = Some((at, Box::pin(tokio::time::sleep_until(due))));
        }
        self.timer.as_mut().map_or(Poll::Pending, |(_, timer)| timer.as_mut().poll(context))
    }

    fn on_call(&mut self) {
        self.timer = None;
        self.not_before = Some(Instant::now() + Duration::from_millis(1));
    }
}

/// The keep-alive timer of an idle stream. The timer is reset only when it fires, not at each write.
struct Heartbeat {
    /// Zero disables it.
    interval: Duration,
    last_write: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Heartbeat {
    fn new(interval: Duration) -> Self {
        Self { interval, last_write: Instant::now(), timer: None }
    }

    const fn is_enabled(&self) -> bool {
        !self.interval.is_zero()
    }

    fn on_write(&mut self) {
        self.last_write = Instant::now();
    }

    fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.is_enabled() {
            return Poll::Pending;
        }
        let timer =
            self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(self.last_write + self.interval)));
        loop {
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            let due = self.last_write + self.interval;
            if Instant::now() >= due {
                timer.as_mut().reset(Instant::now() + self.interval);
                return Poll::Ready(());
            }

            timer.as_mut().reset(due);
        }
    }
}
