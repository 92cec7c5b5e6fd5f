//! Noticing at once that a client has left.
//!
//! actix-web learns of a departed client only when it next writes to it. So each connection keeps a second handle of
//! its socket, and a request that waits, or a stream that is quiet, listens on that for the other side's end.

use std::any::Any;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll};

use actix_web::HttpRequest;
use actix_web::dev::Extensions;
use actix_web::rt::net::TcpStream;
use tokio::io::ReadBuf;

/// The other handle of a connection.
struct Handle(OwnedFd);

/// Keeps the other handle of a new connection.
pub(super) fn remember(connection: &dyn Any, data: &mut Extensions) {
    if let Some(stream) = connection.downcast_ref::<TcpStream>()
        && let Ok(handle) = stream.as_fd().try_clone_to_owned()
    {
        data.insert(Handle(handle));
    }
}

/// Watches whether the client of a request is still there.
pub(super) struct Watch(Option<TcpStream>);

impl Watch {
    /// Watches this request's client. Where that is not possible it is taken to be there.
    pub(super) fn new(request: &HttpRequest) -> Self {
        let handle = request.conn_data::<Handle>().and_then(|handle| handle.0.try_clone().ok());
        Self(handle.and_then(|handle| TcpStream::from_std(handle.into()).ok()))
    }

    /// Watches nobody.
    pub(super) const fn nobody() -> Self {
        Self(None)
    }

    /// Ready once the client has closed its side.
    pub(super) fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(stream) = &self.0 else { return Poll::Pending };
        let mut byte = [0];
        match stream.poll_peek(context, &mut ReadBuf::new(&mut byte)) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(()),
            Poll::Ready(Ok(_)) => {
                // It has sent its next request already, so it is there; that it leaves is noticed by writing.
                self.0 = None;
                Poll::Pending
            }
        }
    }

    /// Waits until the client has left.
    pub(super) async fn gone(&mut self) {
        std::future::poll_fn(|context| self.poll_gone(context)).await;
    }
}
