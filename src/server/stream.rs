//! A streamed answer on its way out: steps are encoded when the connection has room for them, and not before. Where
//! none come, signs of life are written: those of the agent, and our own after a time of silence.
//!
//! Not here: noticing that the client has left. actix-web does, and drops the answer (see [`super::listener`]). Nor
//! what becomes of a chunk that the client does not take ([`super::unsent`]).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::web::Bytes;
use interlingua_core::{Exchange, Flow, Out};
use tokio::time::{Instant, Sleep};

use crate::engine::{Follower, Take};

/// One chunk is no longer than this, give or take one event.
const CHUNK: usize = 32 * 1024;

/// Some client libraries give up on an event that is larger, for instance a file that is told inline (A2A page,
/// section 9). It is sent whole all the same.
const LARGE: usize = 4 << 20;

/// The chunks of a streamed answer.
pub(super) struct Steps {
    follower: Follower,
    exchange: Box<dyn Exchange>,
    out: Out,
    heartbeat: Heartbeat,
    /// The agent's signs of life that were passed on, or overtaken by what it said.
    beats: u64,
    /// So many of the first pieces are still to come.
    opening: u8,
    over: bool,
}

impl Steps {
    pub(super) fn new(follower: Follower, exchange: Box<dyn Exchange>, out: Out, heartbeat: Duration) -> Self {
        let beats = follower.keep_alives();
        Self { follower, exchange, out, heartbeat: Heartbeat::new(heartbeat), beats, opening: 4, over: false }
    }

    /// The next piece of the stream, to be written at once. None: it is over.
    pub(super) fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if !self.over {
            let (exchange, out) = (&mut self.exchange, &mut self.out);
            let mut forget = false;
            let more = self.follower.poll_steps(context, &mut |_, step| match exchange.encode(step, out) {
                Flow::Close => Take::Close,
                Flow::Forget => {
                    forget = true;
                    Take::Close
                }
                Flow::More if out.body.len() >= CHUNK => Take::Enough,
                Flow::More => Take::More,
            });
            if forget {
                self.follower.forget();
            }
            match more {
                Poll::Ready(true) if self.out.body.is_empty() => {
                    // Steps this protocol says nothing about.
                    context.waker().wake_by_ref();
                }
                Poll::Ready(true) => {}
                Poll::Pending => {
                    if let Some(fault) = self.follower.broken_off() {
                        self.exchange.interrupt(&fault, &mut self.out);
                        self.over = true;
                    } else {
                        let (exchange, out) = (&mut self.exchange, &mut self.out);
                        self.over = self.follower.if_paused(|run| exchange.pause(run, out)) == Some(Flow::Close);
                    }
                }
                Poll::Ready(false) => {
                    if let Some(fault) = self.follower.lost() {
                        self.exchange.interrupt(&fault, &mut self.out);
                    }
                    self.over = true;
                }
            }
        }
        let beats = std::mem::replace(&mut self.beats, self.follower.keep_alives());
        if !self.out.body.is_empty() {
            self.heartbeat.wrote();
            return Poll::Ready(Some(self.written()));
        }
        if self.over {
            return Poll::Ready(None);
        }
        let is_beaten = self.beats != beats && self.heartbeat.is_on();
        if is_beaten || self.heartbeat.poll_due(context).is_ready() {
            self.exchange.heartbeat(&mut self.out);
            self.heartbeat.wrote();
            // Armed again before the chunk goes out: nobody may poll for a while.
            let _ = self.heartbeat.poll_due(context);
            if !self.out.body.is_empty() {
                return Poll::Ready(Some(self.written()));
            }
        }
        Poll::Pending
    }
}

impl Steps {
    /// What is written, to go out. A copy: it is small, and the buffer stays where it is. But for the first pieces: the
    /// frames that open an answer are many and come once, and silence may follow.
    fn written(&mut self) -> Bytes {
        // A chunk ends behind the event that fills it: one this long is an event this long, or nearly.
        if self.out.body.len() > LARGE + CHUNK {
            let run = self.follower.run().id();
            tracing::warn!(%run, bytes = self.out.body.len(), "an event is larger than some client libraries take");
        }
        // Nor does the buffer stay as large as one large event was.
        if self.opening > 0 || self.out.body.len() > 2 * CHUNK {
            self.opening = self.opening.saturating_sub(1);
            return std::mem::take(&mut self.out.body).freeze();
        }
        let written = Bytes::copy_from_slice(&self.out.body);
        self.out.body.clear();
        written
    }
}

/// When a quiet stream has to give a sign of life. One timer a stream, looked at again only when it fires.
struct Heartbeat {
    every: Duration,
    written: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Heartbeat {
    fn new(every: Duration) -> Self {
        Self { every, written: Instant::now(), timer: None }
    }

    const fn is_on(&self) -> bool {
        !self.every.is_zero()
    }

    fn wrote(&mut self) {
        self.written = Instant::now();
    }

    fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.is_on() {
            return Poll::Pending;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(self.written + self.every)));
        loop {
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            let due = self.written + self.every;
            if Instant::now() >= due {
                timer.as_mut().reset(Instant::now() + self.every);
                return Poll::Ready(());
            }
            timer.as_mut().reset(due);
        }
    }
}
