//! One request over HTTP/2, from its head to the end of its response.
//!
//! The future is dropped with its connection, and ends when the client resets the stream. So work that must not outlive
//! the request ends with it, as over HTTP/1.1.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use actix_http::{Request, Response};
use actix_service::Service;
use actix_web::body::{BoxBody, MessageBody};
use actix_web::http::{Method, header};
use actix_web::{HttpMessage as _, HttpResponse};
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use tokio::time::Instant;

use super::super::admission::StreamPermit;
use super::super::connection::{ConnectionInfo, TimedBody};
use super::super::trailers::Trailers;
use super::super::{Gateway, endpoint};
use super::convert;
use super::floods::FloodGuard;

/// The size in bytes of the pieces that have a write timeout each: the largest frame that every client accepts.
const PIECE_BYTES: usize = 16 << 10;

/// State that the streams of a connection share.
pub(super) struct StreamContext<S> {
    pub(super) gateway: Arc<Gateway>,
    pub(super) app: Rc<S>,
    pub(super) connection: Rc<ConnectionInfo>,
    pub(super) guard: Rc<FloodGuard>,
}

/// The client has disconnected or reset the stream, or the response cannot be completed.
struct StreamAborted;

/// Counts a stream in the clock of its connection until it is dropped.
struct OpenStream(Rc<ConnectionInfo>);

impl OpenStream {
    fn new(connection: &Rc<ConnectionInfo>) -> Self {
        connection.clock.on_stream_begin();
        Self(Rc::clone(connection))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.clock.on_stream_end(Instant::now());
    }
}

/// Answers a request. Holds the permit to the end of the response.
pub(super) async fn serve<S>(
    shared: Rc<StreamContext<S>>,
    request: http::Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    _permit: StreamPermit,
) where
    S: Service<Request, Response = Response<TimedBody>, Error = HttpResponse<BoxBody>>,
{
    let _open = OpenStream::new(&shared.connection);
    let Some(request) = convert::request(request, &shared.connection) else {
        respond.send_reset(Reason::PROTOCOL_ERROR);
        return;
    };
    let is_head = request.method() == Method::HEAD;

    let Ok(response) = respond_to(&shared, request, &mut respond).await else { return };
    let (mut head, body) = response.into_parts();
    let trailers = head.extensions_mut().remove::<Trailers>().filter(|_| !is_head);
    let (mut head, is_last) = convert::response(head.head(), body.size(), is_head);
    if is_last && let Some(trailers) = trailers.as_ref().and_then(Trailers::take) {
        // Without a body, the trailers are part of the head: one frame is the whole response.
        head.headers_mut().extend(trailers);
    }
    // Errors mean that the client has disconnected.
    if let Ok(mut stream) = respond.send_response(head, is_last)
        && !is_last
    {
        let timeout = shared.gateway.settings().timeouts.write;
        let _ = send(&mut stream, body, trailers, timeout, &shared.guard).await;
    }
}

/// Calls the application. If the client waits for `100 Continue`, the head is checked first.
async fn respond_to<S>(
    shared: &StreamContext<S>,
    mut request: Request,
    respond: &mut SendResponse<Bytes>,
) -> Result<Response<BoxBody>, StreamAborted>
where
    S: Service<Request, Response = Response<TimedBody>, Error = HttpResponse<BoxBody>>,
{
    let expects = request
        .headers()
        .get(header::EXPECT)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    if expects && !matches!(request.payload(), actix_http::Payload::None) {
        let checked = unless_reset(respond, endpoint::expect(Arc::clone(&shared.gateway), request)).await?;
        request = match checked {
            Ok(request) => request,
            Err(refused) => return Ok(refused),
        };
        let mut interim = http::Response::new(());
        *interim.status_mut() = http::StatusCode::CONTINUE;
        respond.send_informational(interim).map_err(|_| StreamAborted)?;
    }

    Ok(match unless_reset(respond, shared.app.call(request)).await? {
        Ok(response) => response.map_into_boxed_body(),
        Err(rejection) => rejection.into(),
    })
}

/// Waits for a future, but at most until the client resets the stream.
async fn unless_reset<F: Future>(respond: &mut SendResponse<Bytes>, future: F) -> Result<F::Output, StreamAborted> {
    let mut future = pin!(future);
    poll_fn(|context| {
        if respond.poll_reset(context).is_ready() {
            return Poll::Ready(Err(StreamAborted));
        }
        future.as_mut().poll(context).map(Ok)
    })
    .await
}

/// Sends a body and its trailers. Each piece has its own timeout.
async fn send(
    stream: &mut SendStream<Bytes>,
    body: BoxBody,
    trailers: Option<Trailers>,
    timeout: Duration,
    guard: &FloodGuard,
) -> Result<(), StreamAborted> {
    let mut body = pin!(body);
    loop {
        // Watch for resets also while there is nothing to send.
        let chunk = poll_fn(|context| {
            if stream.poll_reset(context).is_ready() {
                return Poll::Ready(Err(StreamAborted));
            }
            body.as_mut().poll_next(context).map(Ok)
        });
        let mut chunk = match chunk.await? {
            Some(Ok(chunk)) => chunk,
            Some(Err(_)) => {
                stream.send_reset(Reason::INTERNAL_ERROR);
                return Err(StreamAborted);
            }
            None => {
                let sent = match trailers.as_ref().and_then(Trailers::take) {
                    Some(trailers) => stream.send_trailers(trailers),
                    None => stream.send_data(Bytes::new(), true),
                };
                return sent.map_err(|_| StreamAborted);
            }
        };

        while !chunk.is_empty() {
            let piece = chunk.split_to(chunk.len().min(PIECE_BYTES));
            match tokio::time::timeout(timeout, send_piece(stream, piece, guard)).await {
                Ok(sent) => sent?,
                Err(_) => {
                    tracing::debug!("stream reset: the client did not read its response");
                    stream.send_reset(Reason::CANCEL);
                    return Err(StreamAborted);
                }
            }
        }
    }
}

/// Sends a piece as the window of the client allows.
async fn send_piece(stream: &mut SendStream<Bytes>, mut piece: Bytes, guard: &FloodGuard) -> Result<(), StreamAborted> {
    while !piece.is_empty() {
        stream.reserve_capacity(piece.len());
        while stream.capacity() == 0 {
            match poll_fn(|context| stream.poll_capacity(context)).await {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(StreamAborted),
            }
        }
        let room = stream.capacity().min(piece.len());
        guard.on_sent();
        stream.send_data(piece.split_to(room), false).map_err(|_| StreamAborted)?;
    }
    Ok(())
}
