//! Messages as lines of text, over the standard streams of a program or over a socket.
//!
//! Not here: the start of programs.

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{self, StreamExt as _};
use interlingua_core::{Fault, FaultKind};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio_util::codec::{AnyDelimiterCodec, AnyDelimiterCodecError, FramedRead};

use super::wire::{Wire, WireWriter, closed};

/// A wire whose messages are lines. Empty lines are ignored; a last line without a line end is a message. `max_line`
/// limits a line of the agent, in bytes: a longer one ends the connection with [`FaultKind::UpstreamTooLarge`].
pub fn lines(
    read: impl AsyncRead + Send + Unpin + 'static,
    write: impl AsyncWrite + Send + Unpin + 'static,
    max_line: usize,
) -> Wire {
    let codec = AnyDelimiterCodec::new_with_max_length(b"\n".to_vec(), b"\n".to_vec(), max_line);
    let incoming = FramedRead::new(read, codec).filter_map(move |line| async move {
        match line {
            Ok(line) => {
                let line = line.slice_ref(line.trim_ascii());
                (!line.is_empty()).then_some(Ok(line))
            }
            Err(AnyDelimiterCodecError::MaxChunkLengthExceeded) => {
                let message = format!("the agent sent a message larger than {max_line} bytes");
                Some(Err(Fault::new(FaultKind::UpstreamTooLarge, message)))
            }
            Err(AnyDelimiterCodecError::Io(error)) => Some(Err(closed().with_source(error))),
        }
    });
    Wire { incoming: ends_after_error(incoming.boxed()), outgoing: Box::new(LineWriter(write)) }
}

/// A stream that ends after its first error.
fn ends_after_error(
    stream: stream::BoxStream<'static, Result<Bytes, Fault>>,
) -> stream::BoxStream<'static, Result<Bytes, Fault>> {
    stream
        .scan(false, |has_failed, item| {
            let shown = !std::mem::replace(has_failed, item.is_err());
            std::future::ready(shown.then_some(item))
        })
        .fuse()
        .boxed()
}

struct LineWriter<W>(W);

impl<W: AsyncWrite + Send + Unpin + 'static> WireWriter for LineWriter<W> {
    fn write<'a>(&'a mut self, message: &'a [u8]) -> BoxFuture<'a, Result<(), Fault>> {
        async move {
            let mut line = Vec::with_capacity(message.len() + 1);
            line.extend_from_slice(message);
            line.push(b'\n');
            let written = async {
                self.0.write_all(&line).await?;
                self.0.flush().await
            };
            written.await.map_err(|error: std::io::Error| closed().with_source(error))
        }
        .boxed()
    }
}
