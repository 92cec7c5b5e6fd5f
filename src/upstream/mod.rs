//! The way to an agent, as the engine sees it: ask, then hear the answer piece by piece.
//!
//! [`Upstream`] is one agent's way: [`http::HttpUpstream`] for those on the network, [`demo::DemoUpstream`] for the
//! one in this process. A [`Conversation`] is one answer under way; it knows how to cut bytes into frames
//! and hand them to the connector's reader, and how long silence may last.
//!
//! Not here: what an answer means (the readers and [`interlingua_core::normalize`]), what becomes of a run whose
//! upstream fails, and when to stop reading because nobody follows (the engine).

mod card;
pub mod client;
pub mod demo;
pub mod http;
pub mod push;
mod timeouts;
mod trace;

use std::future::{poll_fn, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{BoxStream, StreamExt};
use interlingua_core::connector::{Ear, Question, Reader};
use interlingua_core::sse::{DecodeError, Decoder};
use interlingua_core::well_known::{FetchedDocument, WellKnownDocument};
use interlingua_core::{Fault, FaultKind, Json, filter, tree};

use crate::secrets;
pub use timeouts::ResponseTimeouts;
pub use trace::Trace;

/// The way to one agent.
///
/// Futures have to be polled where they were made: connections belong to the runtime of the thread that asked, so
/// that no wake-up ever crosses threads. A run lives on one thread.
pub trait Upstream: Send + Sync + 'static {
    /// Asks, and waits until the agent has begun to answer with a success.
    ///
    /// Nothing of the question is borrowed while waiting. Dropping the future takes the question back: the
    /// connection is closed, which cancels the agent. `trace`: what the client said the question is part of.
    ///
    /// # Errors
    /// The future's: the question cannot be put in the agent's protocol, the agent cannot be reached
    /// ([`FaultKind::UpstreamUnreachable`]), is silent for too long ([`FaultKind::UpstreamTimeout`]), or refuses
    /// (whatever the connector makes of the refusal).
    fn open(&self, question: &Question<'_>, trace: Option<&Trace>) -> BoxFuture<'static, Result<Conversation, Fault>>;

    /// Tells the agent to stop, where closing the connection is not enough. Best effort, bounded in time; failures
    /// are logged, not told.
    fn stop(&self, question: &Question<'_>, trace: Option<&Trace>) -> BoxFuture<'static, ()>;

    /// What the agent's own server publishes about it, as far as that is known after a bounded time. None: nothing is.
    fn published(&self, wanted: &WellKnownDocument) -> BoxFuture<'static, Option<Arc<FetchedDocument>>> {
        let _ = wanted;
        ready(None).boxed()
    }
}

/// How an answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As an event stream.
    Frames,
    /// Whole, as plain JSON.
    Whole,
    /// The head does not say; the first byte of the body will.
    Unsaid,
}

/// An answer under way.
///
/// Call [`chunk`](Self::chunk) until it says `None`, handing each chunk to [`feed`](Self::feed), then
/// [`finish`](Self::finish). Waiting and hearing are apart so that whoever listens is locked only while bytes are
/// read. Dropping it closes the connection at once, which cancels the agent.
pub struct Conversation {
    body: BoxStream<'static, Result<Bytes, Fault>>,
    patience: Option<ResponseTimeouts>,
    reader: Box<dyn Reader>,
    decoder: Decoder,
    form: Form,
    /// An answer that comes whole, as far as it is there.
    whole: Vec<u8>,
    max_event: usize,
    /// Something went wrong: the connection is good for nothing more.
    broken: bool,
    /// The body has said its end: a stream that has must not be asked again.
    ended: bool,
    /// What the agent calls its answer.
    media: String,
    /// How many frames were read, up to [`LOOKED_AT`].
    frames: u64,
    /// How it begins, for the log of one that cannot be understood.
    beginning: Vec<u8>,
    /// The first frame that said nothing the protocol knows.
    passed_over: Option<String>,
}

/// So much of an answer is remembered for the log, in bytes.
const BEGINNING: usize = 512;
/// A frame that is passed over is looked for among so many. Later, an agent has shown which protocol it speaks.
const LOOKED_AT: u64 = 64;

impl Conversation {
    /// An answer whose body is to come. `max_event` bounds one event of a stream, or an answer that comes whole, in
    /// bytes. Without `patience` silence may last for ever.
    #[must_use]
    pub fn new(
        body: BoxStream<'static, Result<Bytes, Fault>>,
        reader: Box<dyn Reader>,
        form: Form,
        max_event: usize,
        patience: Option<ResponseTimeouts>,
    ) -> Self {
        Self {
            body,
            patience,
            reader,
            decoder: Decoder::new(max_event),
            form,
            whole: Vec::new(),
            max_event,
            broken: false,
            ended: false,
            media: String::new(),
            frames: 0,
            beginning: Vec::new(),
            passed_over: None,
        }
    }

    /// Names the media type that the agent gave its answer.
    #[must_use]
    pub fn of_type(mut self, media: String) -> Self {
        self.media = media;
        self
    }

    /// Why an answer of which nothing was understood is none: it is in another protocol. None if nothing came that
    /// could have been understood: the agent broke off then.
    #[must_use]
    pub fn foreign(&self) -> Option<Fault> {
        let mut lines = self.beginning.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        // Comments keep a connection open, and say nothing.
        lines.find(|line| !line.is_empty() && !line.starts_with(b":"))?;
        let message = "the agent's answer is not in the protocol that it is asked in";
        let beginning = String::from_utf8_lossy(&self.beginning);
        let beginning = secrets::mask_truncated(&beginning);
        let detail = format!("content-type: {}; the answer begins {beginning:?}", self.media);
        Some(secrets::mask_fault(Fault::new(FaultKind::UpstreamGarbage, message).with_detail(detail)))
    }

    /// The first frame that said nothing the protocol knows, as far as the log needs it.
    #[must_use]
    pub fn passed_over(&self) -> Option<&str> {
        self.passed_over.as_deref()
    }

    /// Waits for the next piece of the body. `None`: the body has ended, properly. Safe to cancel and call again.
    ///
    /// # Errors
    /// [`FaultKind::UpstreamTruncated`] if the connection broke, [`FaultKind::UpstreamTimeout`] if it was silent for
    /// too long or took too long altogether, [`FaultKind::UpstreamGarbage`] if it is compressed and cannot be
    /// unpacked. What was fed before stays valid; [`finish`](Self::finish) may still find a last whole frame.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        poll_fn(|context| self.poll_chunk(context)).await
    }

    /// [`chunk`](Self::chunk), for those who poll several things at once.
    ///
    /// # Errors
    /// As there.
    pub fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Fault>> {
        if self.ended {
            return Poll::Ready(Ok(None));
        }
        let chunk = match (self.body.poll_next_unpin(context), &mut self.patience) {
            (Poll::Ready(Some(Ok(chunk))), Some(patience)) => Poll::Ready(patience.check_total().map(|()| Some(chunk))),
            (Poll::Ready(next), _) => Poll::Ready(next.transpose()),
            (Poll::Pending, Some(patience)) => patience.poll_expired(context).map(Err),
            (Poll::Pending, None) => Poll::Pending,
        };
        self.broken |= matches!(chunk, Poll::Ready(Err(_)));
        self.ended |= matches!(chunk, Poll::Ready(Ok(None) | Err(_)));
        chunk
    }

    /// Hears what a piece of the body says.
    ///
    /// # Errors
    /// [`FaultKind::UpstreamTooLarge`] for an event past the bound, [`FaultKind::UpstreamGarbage`] for one with more
    /// values or levels than [`tree::Bounds::DEFAULT`], else what the reader or the listener says. The conversation is
    /// over then.
    pub fn feed(&mut self, chunk: &[u8], ear: &mut dyn Ear) -> Result<(), Fault> {
        let fed = self.read(chunk, ear).map_err(secrets::mask_fault);
        self.broken |= fed.is_err();
        fed
    }

    fn read(&mut self, chunk: &[u8], ear: &mut dyn Ear) -> Result<(), Fault> {
        if self.beginning.len() < BEGINNING {
            self.beginning.extend_from_slice(&chunk[..chunk.len().min(BEGINNING - self.beginning.len())]);
        }
        if self.form == Form::Unsaid {
            match chunk.trim_ascii_start().first() {
                // A JSON answer: a line of an event stream never begins so.
                Some(b'{' | b'[') => self.form = Form::Whole,
                Some(_) => self.form = Form::Frames,
                None => {}
            }
        }
        if self.form == Form::Whole {
            return self.gather(chunk);
        }
        let lines = self.decoder.lines();
        let mut input = chunk;
        while let Some(frame) = self.decoder.decode(&mut input).map_err(too_large)? {
            if frame.is_done() {
                continue;
            }
            bounded("the agent's event", frame.data)?;
            let looked_at = self.frames < LOOKED_AT && self.passed_over.is_none();
            let ignored = if looked_at { ear.ignored() } else { 0 };
            self.reader.read(frame, ear)?;
            if looked_at {
                self.frames += 1;
                if ear.ignored() > ignored {
                    // Masked before it is cut: half a secret is one too.
                    let data = String::from_utf8_lossy(&frame.data[..frame.data.len().min(32 * BEGINNING)]);
                    self.passed_over = Some(filter::log_text(&secrets::mask(&data)));
                }
            }
        }
        if let Some(patience) = &mut self.patience {
            patience.on_bytes(chunk.len(), self.decoder.lines() > lines);
        }
        Ok(())
    }

    /// Hears what is left when the body has ended: an answer that came whole, a last event without its blank line,
    /// and what the reader held back. Whether the answer was complete, the normalizer knows.
    ///
    /// # Errors
    /// As [`feed`](Self::feed).
    pub fn finish(&mut self, ear: &mut dyn Ear) -> Result<(), Fault> {
        self.read_rest(ear).map_err(secrets::mask_fault)
    }

    fn read_rest(&mut self, ear: &mut dyn Ear) -> Result<(), Fault> {
        if self.form == Form::Whole {
            bounded("the agent's answer", &self.whole)?;
            self.reader.read_body(&self.whole, ear)?;
        } else if let Some(frame) = self.decoder.finish().frame()
            && !frame.is_done()
        {
            bounded("the agent's event", frame.data)?;
            self.reader.read(frame, ear)?;
        }
        self.reader.end(ear)
    }

    /// What the connector wants to know at the session's next question.
    #[must_use]
    pub fn remember(&self) -> Option<Json> {
        self.reader.remember()
    }

    /// Lets go of an answer that has said its last word: the rest of the body, nearly always empty, is read in the
    /// background for a moment, so that the connection can serve the next question. After a fault it is closed at
    /// once.
    pub fn release(mut self) {
        const MOMENT: std::time::Duration = std::time::Duration::from_secs(1);
        const REST: usize = 64 * 1024;
        if self.broken || self.ended {
            return;
        }
        tokio::spawn(tokio::time::timeout(MOMENT, async move {
            let mut rest = 0;
            while let Some(Ok(chunk)) = self.body.next().await {
                rest += chunk.len();
                if rest > REST {
                    break;
                }
            }
        }));
    }

    fn gather(&mut self, chunk: &[u8]) -> Result<(), Fault> {
        if self.whole.len() + chunk.len() > self.max_event {
            let limit = self.max_event;
            return Err(Fault::new(
                FaultKind::UpstreamTooLarge,
                format!("the agent's answer is larger than {limit} bytes"),
            ));
        }
        self.whole.extend_from_slice(chunk);
        if let Some(patience) = &mut self.patience {
            patience.on_bytes(chunk.len(), true);
        }
        Ok(())
    }
}

/// Refuses what no client could read: it would be passed on as deep as it came.
fn bounded(what: &str, data: &[u8]) -> Result<(), Fault> {
    tree::check_upstream(what, data, tree::Bounds::DEFAULT)
}

fn too_large(error: DecodeError) -> Fault {
    match error {
        DecodeError::TooLarge { limit } => {
            Fault::new(FaultKind::UpstreamTooLarge, format!("the agent sent an event larger than {limit} bytes"))
        }
        other => Fault::new(FaultKind::UpstreamGarbage, "the agent's answer could not be read").with_detail(other),
    }
}
