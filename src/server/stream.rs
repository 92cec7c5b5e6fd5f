//! A streamed answer on its way out: steps are encoded when the connection has room for them, and not before.
//!
//! Not here: noticing that the client has left. actix-web does, and drops the answer (see [`super::listen`]).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::body::{BodySize, MessageBody};
use actix_web::web::Bytes;
use interlingua_core::{Exchange, Flow, Out};
use tokio::time::{Instant, Sleep};

use crate::engine::{Follower, Take};

/// One chunk is no longer than this, give or take one event.
const CHUNK: usize = 32 * 1024;

/// The body of a streamed answer.
pub(super) struct Steps {
    follower: Follower,
    exchange: Box<dyn Exchange>,
    out: Out,
    heartbeat: Heartbeat,
    /// So many of the first pieces are still to come.
    opening: u8,
    over: bool,
}

impl Steps {
    pub(super) fn new(follower: Follower, exchange: Box<dyn Exchange>, out: Out, heartbeat: Duration) -> Self {
        Self { follower, exchange, out, heartbeat: Heartbeat::new(heartbeat), opening: 4, over: false }
    }

    /// The next piece of the stream, to be written at once. None: it is over.
    pub(super) fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if !self.over {
            let (exchange, out) = (&mut self.exchange, &mut self.out);
            let more = self.follower.poll_steps(context, &mut |_, step| match exchange.encode(step, out) {
                Flow::Close => Take::Close,
                Flow::More if out.body.len() >= CHUNK => Take::Enough,
                Flow::More => Take::More,
            });
            match more {
                Poll::Ready(true) if self.out.body.is_empty() => {
                    // Steps this protocol says nothing about.
                    context.waker().wake_by_ref();
                }
                Poll::Ready(true) | Poll::Pending => {}
                Poll::Ready(false) => self.over = true,
            }
        }
        if !self.out.body.is_empty() {
            self.heartbeat.wrote();
            return Poll::Ready(Some(self.written()));
        }
        if self.over {
            return Poll::Ready(None);
        }
        if self.heartbeat.poll_due(context).is_ready() {
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
        if self.opening > 0 {
            self.opening -= 1;
            return std::mem::take(&mut self.out.body).freeze();
        }
        let written = Bytes::copy_from_slice(&self.out.body);
        self.out.body.clear();
        written
    }
}

impl MessageBody for Steps {
    type Error = std::convert::Infallible;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        self.get_mut().poll_chunk(context).map(|chunk| chunk.map(Ok))
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

    fn wrote(&mut self) {
        self.written = Instant::now();
    }

    fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.every.is_zero() {
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
