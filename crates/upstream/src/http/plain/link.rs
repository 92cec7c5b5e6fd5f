//! A connection of hyper without a task of its own: polled by the request or the body that uses it.
//!
//! Only the user of a connection polls it, so hyper's channels between connection, request and body never need to wake
//! a task. They get a waker without effect: otherwise each chunk would schedule the running task again.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::socket::{Progress, Socket};

/// A request for hyper.
pub(super) type ClientRequest = Request<Full<Bytes>>;

/// A connection. Dropping it closes the socket.
#[derive(Debug)]
pub(super) struct Link {
    sender: SendRequest<Full<Bytes>>,
    /// `None`: it has ended.
    connection: Option<Connection<TokioIo<Socket<TcpStream>>, Full<Bytes>>>,
    progress: Arc<Progress>,
}

impl Link {
    /// Prepares a connection for requests. Sends nothing.
    ///
    /// The settings are those of reqwest, hyper's defaults: a head has at most 100 fields and 408 KiB. An exact size of
    /// the read buffer would be smaller than the 8 KiB of the default, but also the largest head.
    pub(super) async fn handshake(stream: TcpStream) -> hyper::Result<Box<Self>> {
        let progress = Arc::new(Progress::default());
        let socket = TokioIo::new(Socket::new(stream, Arc::clone(&progress)));
        let (sender, connection) = Builder::new().handshake(socket).await?;
        Ok(Box::new(Self { sender, connection: Some(connection), progress }))
    }

    /// Sends a request, and waits for the head of its answer. The error has a request of which no byte was written.
    pub(super) async fn send(
        &mut self,
        request: ClientRequest,
    ) -> Result<Response<Incoming>, TrySendError<ClientRequest>> {
        self.progress.begin();
        let mut sending = pin!(self.sender.try_send_request(request));
        poll_fn(|context| {
            self.poll(context);
            sending.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        })
        .await
    }

    /// Writes and reads as much as possible without waiting. hyper's request or body gets the result.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && let Poll::Ready(ended) = Pin::new(connection).poll(context)
        {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection to an agent ended");
            }
            self.connection = None;
        }
    }

    /// True if the connection can serve the next request: the last one and its answer are complete, and the server has
    /// neither closed the connection nor sent anything without a request.
    pub(super) fn is_idle(&mut self) -> bool {
        // Also replaces the waker of the last user.
        self.poll(&mut Context::from_waker(Waker::noop()));
        self.connection.is_some() && self.sender.is_ready() && !self.progress.is_write_closed()
    }

    /// True if a byte was received since the last request began.
    pub(super) fn has_answer(&self) -> bool {
        self.progress.has_answer()
    }
}
