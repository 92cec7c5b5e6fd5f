//! Unpacks answers that were compressed without a request for it, as some proxies do.
//!
//! One step reads the input for about 32 KiB of output, so memory is limited for any input. The output has the same
//! limits as an uncompressed answer; an answer with an extreme ratio is refused.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::buf::Writer;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::write::MultiGzDecoder;
use futures_util::Stream;
use futures_util::stream::{BoxStream, StreamExt};
use interlingua_core::{Fault, FaultKind};
use tokio::task::coop;

/// Text never packs as well as this: deflate reaches 1032, and only with one byte repeated.
const BOMB: u64 = 256;
/// Below this many unpacked bytes nothing is a bomb.
const HARMLESS: u64 = 1024 * 1024;

/// The body a compressed one was made of.
pub(super) fn gzip(packed: BoxStream<'static, Result<Bytes, Fault>>) -> Gunzip {
    let decoder = MultiGzDecoder::new(BytesMut::new().writer());
    Gunzip { packed, input: Bytes::new(), decoder, state: UnpackState::Unpacking, taken: 0, made: 0 }
}

pub(super) struct Gunzip {
    packed: BoxStream<'static, Result<Bytes, Fault>>,
    /// The input that is not unpacked yet.
    input: Bytes,
    decoder: MultiGzDecoder<Writer<BytesMut>>,
    state: UnpackState,
    taken: u64,
    made: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum UnpackState {
    Unpacking,
    /// All input is read; the decoder still holds output.
    Flushing,
    Over,
}

impl Gunzip {
    /// Reads some input, or writes held output. Returns the new output.
    fn step(&mut self) -> io::Result<Bytes> {
        if self.state == UnpackState::Unpacking {
            let taken = self.decoder.write(&self.input)?;
            if taken == 0 {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "bytes after the end of what was packed"));
            }
            self.input.advance(taken);
            self.taken += taken as u64;
            if self.input.is_empty() {
                self.state = UnpackState::Flushing;
            }
        } else {
            self.decoder.flush()?;
            self.state = UnpackState::Unpacking;
        }
        let made = self.decoder.get_mut().get_mut().split().freeze();
        self.made += made.len() as u64;
        Ok(made)
    }

    fn end(&mut self) -> Option<Result<Bytes, Fault>> {
        self.state = UnpackState::Over;
        if self.taken == 0 {
            return None;
        }
        self.decoder.try_finish().err().map(|error| {
            let message = "the agent's compressed answer ended before it was complete";
            Err(Fault::new(FaultKind::UpstreamTruncated, message).with_source(error))
        })
    }
}

impl Stream for Gunzip {
    type Item = Result<Bytes, Fault>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if this.state == UnpackState::Over {
                return Poll::Ready(None);
            }
            if this.state == UnpackState::Unpacking && this.input.is_empty() {
                match ready!(this.packed.poll_next_unpin(context)) {
                    Some(Ok(chunk)) if chunk.is_empty() => continue,
                    Some(Ok(chunk)) => this.input = chunk,
                    Some(Err(fault)) => {
                        this.state = UnpackState::Over;
                        return Poll::Ready(Some(Err(fault)));
                    }
                    None => return Poll::Ready(this.end()),
                }
            }
            // Much may come out of little, without anything to wait for: others want their turn too.
            let turn = ready!(coop::poll_proceed(context));
            turn.made_progress();
            match this.step() {
                Ok(_) if this.made > HARMLESS && this.made / this.taken.max(1) > BOMB => {
                    this.state = UnpackState::Over;
                    let message = "the agent's answer is made of next to nothing: it unpacks without end";
                    let detail = format!("{} bytes unpacked to {}", this.taken, this.made);
                    return Poll::Ready(Some(Err(Fault::new(FaultKind::UpstreamGarbage, message).with_detail(detail))));
                }
                Ok(made) if made.is_empty() => {}
                Ok(made) => return Poll::Ready(Some(Ok(made))),
                Err(error) => {
                    this.state = UnpackState::Over;
                    let message = "the agent's answer could not be unpacked";
                    return Poll::Ready(Some(Err(Fault::new(FaultKind::UpstreamGarbage, message).with_source(error))));
                }
            }
        }
    }
}
