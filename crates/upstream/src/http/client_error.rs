//! The error of an unanswered request, whichever client sent it.
//!
//! Not here: the sentences of faults ([`super::failure`]).

use std::error::Error;
use std::fmt;

use super::cause::cause;
use super::plain::PlainError;

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
            Self::Client(error) => cause::<hyper::Error>(error).is_some_and(hyper::Error::is_parse),
        }
    }

    /// True if the agent closed the connection, false if it sent something that is not HTTP. For a connection without
    /// TLS and without a proxy, also false if a byte of an answer had arrived.
    pub(super) fn is_disconnect(&self) -> bool {
        match self {
            Self::Plain(error) => error.is_disconnect(),
            Self::Client(error) => cause::<hyper::Error>(error).is_some_and(|http| !http.is_parse() && !http.is_user()),
        }
    }
}
