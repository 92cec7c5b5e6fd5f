//! The answer to one request, and the error of an unanswered one, whichever client sent it.
//!
//! Not here: their meaning ([`super::Agent`]), and the sentences of faults ([`super::failure`]).

use std::error::Error;
use std::fmt;

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt as _};
use interlingua_core::Fault;
use reqwest::header::HeaderMap;
use reqwest::{Response, StatusCode};

use super::failure;
use super::plain::{self, PlainError};

/// An answer whose head has arrived.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// Dropping it closes the connection, or cancels the stream of HTTP/2.
    pub(super) body: BoxStream<'static, Result<Bytes, Fault>>,
    /// A chunk of the body has all bytes that have arrived.
    pub(super) is_gathered: bool,
}

impl Answer {
    pub(super) fn of_plain((head, body): (plain::Head, plain::Body)) -> Self {
        let body = body.map(|chunk| chunk.map_err(failure::in_plain_answer)).boxed();
        Self { status: head.status, headers: head.headers, body, is_gathered: true }
    }

    pub(super) fn of_client(mut response: Response) -> Self {
        let headers = std::mem::take(response.headers_mut());
        let status = response.status();
        let body = response.bytes_stream().map(|chunk| chunk.map_err(failure::in_answer)).boxed();
        Self { status, headers, body, is_gathered: false }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum ClientError {
    Plain(PlainError),
    Client(reqwest::Error),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(error) => error.fmt(f),
            Self::Client(error) => error.fmt(f),
        }
    }
}

impl Error for ClientError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Plain(error) => error.source(),
            Self::Client(error) => error.source(),
        }
    }
}

impl ClientError {
    /// The same error without the URL, which may hold secrets.
    #[must_use]
    pub(super) fn without_url(self) -> Self {
        match self {
            Self::Plain(error) => Self::Plain(error),
            Self::Client(error) => Self::Client(error.without_url()),
        }
    }

    /// True if there was no connection.
    pub(super) fn is_connect(&self) -> bool {
        match self {
            Self::Plain(error) => error.is_connect(),
            Self::Client(error) => error.is_connect(),
        }
    }

    /// True if a time limit of the client or of the system was exceeded.
    pub(super) fn is_timeout(&self) -> bool {
        match self {
            Self::Plain(error) => error.is_timeout(),
            Self::Client(error) => error.is_timeout(),
        }
    }

    /// True if the head of the answer was no HTTP, or too large.
    pub(super) fn is_parse(&self) -> bool {
        match self {
            Self::Plain(error) => error.is_parse(),
            Self::Client(error) => failure::cause::<hyper::Error>(error).is_some_and(hyper::Error::is_parse),
        }
    }

    /// True if the agent closed the connection, false if it sent something that is not HTTP. For a connection without
    /// TLS and without a proxy, also false if a byte of an answer had arrived.
    pub(super) fn is_disconnect(&self) -> bool {
        match self {
            Self::Plain(error) => error.is_disconnect(),
            Self::Client(error) => {
                failure::cause::<hyper::Error>(error).is_some_and(|http| !http.is_parse() && !http.is_user())
            }
        }
    }
}
