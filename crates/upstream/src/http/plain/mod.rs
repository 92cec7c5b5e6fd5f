//! HTTP/1.1 without TLS and proxies, by a connection of hyper that the run polls itself.
//!
//! reqwest drives each connection in a task of its own, which hands over one chunk per turn: a short answer of eleven
//! events costs a dozen turns of the scheduler. Here the run polls its connection, and gets all chunks of a packet at
//! once.
//!
//! Not here: TLS, HTTP/2 and proxies ([`super::client_pool`]), and retries ([`super::Agent`]).

mod body;
mod idle;
mod link;
mod socket;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service as _;

use super::attempt::Attempt;
use super::cause::cause;
use idle::{IdlePool, Reuse};
use link::{ClientRequest, Link};

pub(super) use body::Body;
pub(super) use idle::{IDLE_TIMEOUT, POOL_SIZE};

/// TCP probes a silent connection after this time, then this often.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 3;
/// Sent data that the server does not acknowledge for this time ends the connection.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// A request.
#[derive(Debug)]
pub(super) struct PlainRequest<'a> {
    pub(super) method: &'a Method,
    /// Host and port, for the connection.
    pub(super) authority: &'a Arc<str>,
    /// The value of the header `host`, unless the headers have one.
    pub(super) host: &'a HeaderValue,
    /// Path and query.
    pub(super) path: &'a Uri,
    pub(super) headers: &'a HeaderMap,
    /// Replaces the header of this name.
    pub(super) extra: Option<&'a (HeaderName, HeaderValue)>,
    /// `None`: the request announces no body.
    pub(super) body: Option<&'a Bytes>,
}

impl PlainRequest<'_> {
    fn to_client_request(&self) -> ClientRequest {
        let mut headers = self.headers.clone();
        if let Some((name, value)) = self.extra {
            headers.insert(name.clone(), value.clone());
        }
        headers.entry(header::HOST).or_insert_with(|| self.host.clone());
        // hyper would believe them. The length is that of the body, and an empty one has a length too.
        headers.remove(header::TRANSFER_ENCODING);
        headers.remove(header::CONTENT_LENGTH);
        if let Some(body) = self.body {
            headers.insert(header::CONTENT_LENGTH, body.len().into());
        }

        let mut request = Request::new(Full::new(self.body.cloned().unwrap_or_default()));
        request.method_mut().clone_from(self.method);
        request.uri_mut().clone_from(self.path);
        *request.headers_mut() = headers;
        request
    }
}

/// The head of an answer.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
}

/// Why a request was not answered.
#[derive(Debug)]
pub(super) enum PlainError {
    /// There is no connection.
    Connect(Box<dyn Error + Send + Sync>),
    /// There was no connection within the limit.
    ConnectTimeout,
    /// The connection ended, or the head of the answer cannot be read.
    Http {
        error: hyper::Error,
        /// A byte of an answer had arrived.
        has_answer: bool,
    },
}

impl fmt::Display for PlainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(_) => f.write_str("cannot connect"),
            Self::ConnectTimeout => f.write_str("no connection within the time limit"),
            Self::Http { error, .. } => error.fmt(f),
        }
    }
}

impl Error for PlainError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Connect(error) => Some(&**error),
            Self::ConnectTimeout => None,
            Self::Http { error, .. } => error.source(),
        }
    }
}

impl PlainError {
    /// True if there was no connection.
    pub(super) fn is_connect(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::ConnectTimeout)
    }

    /// True if a time limit was exceeded: the one for connections, or one of the system for a server that is silent.
    pub(super) fn is_timeout(&self) -> bool {
        matches!(self, Self::ConnectTimeout) || has_timed_out(self)
    }

    /// True if the head of the answer is not HTTP, or too large.
    pub(super) fn is_parse(&self) -> bool {
        matches!(self, Self::Http { error, .. } if error.is_parse())
    }

    /// True if the server closed the connection without a byte of an answer.
    pub(super) fn is_disconnect(&self) -> bool {
        matches!(self, Self::Http { error, has_answer: false } if !error.is_parse() && !error.is_user())
    }
}

/// Sends a request over an unused connection of this thread, or a new one, and waits for the head of its answer.
/// `connect` limits the time for a new connection. Dropping the future closes the connection.
pub(super) fn send(
    request: &PlainRequest<'_>,
    connect: Duration,
    attempt: Arc<Attempt>,
) -> impl Future<Output = Result<(Head, Body), PlainError>> + Send + use<> {
    let authority = Arc::clone(request.authority);
    let mut request = request.to_client_request();
    async move {
        let pool = IdlePool::of_thread();
        loop {
            let pooled = pool.take(&authority);
            let is_pooled = pooled.is_some();
            let mut link = match pooled {
                Some(link) => link,
                None => {
                    attempt.note_dial();
                    let stream = dial(&authority, connect).await?;
                    attempt.note_connection();
                    let link = Link::handshake(stream).await;
                    link.map_err(|error| PlainError::Http { error, has_answer: false })?
                }
            };
            match link.send(request).await {
                Ok(answer) => {
                    let (head, incoming) = answer.into_parts();
                    let head = Head { status: head.status, headers: head.headers };
                    return Ok((head, Body::new(link, incoming, Reuse { pool, authority })));
                }
                Err(mut failed) => match failed.take_message() {
                    // The server closed the connection before a byte of the request was written.
                    Some(unsent) if is_pooled => request = unsent,
                    _ => {
                        let has_answer = link.has_answer();
                        return Err(PlainError::Http { error: failed.into_error(), has_answer });
                    }
                },
            }
        }
    }
}

async fn dial(authority: &str, limit: Duration) -> Result<TcpStream, PlainError> {
    let uri = Uri::builder().scheme("http").authority(authority).path_and_query("/").build();
    let uri = uri.map_err(|error| PlainError::Connect(error.into()))?;
    let mut connector = connector(limit);
    match timeout(limit, connector.call(uri)).await {
        Ok(Ok(stream)) => Ok(stream.into_inner()),
        Ok(Err(error)) if has_timed_out(&error) => Err(PlainError::ConnectTimeout),
        Ok(Err(error)) => Err(PlainError::Connect(error.into())),
        Err(_) => Err(PlainError::ConnectTimeout),
    }
}

/// The settings that reqwest has for agents with TLS.
fn connector(limit: Duration) -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(limit));
    connector.set_nodelay(true);
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE));
    connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(USER_TIMEOUT));
    connector
}

fn has_timed_out(error: &(dyn Error + 'static)) -> bool {
    cause::<io::Error>(error).is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
}
