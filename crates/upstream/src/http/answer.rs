//! The answer to one request, whichever client sent it.
//!
//! Not here: its meaning ([`super::Agent`]), and the sentences of faults ([`super::failure`]).

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt as _};
use interlingua_core::Fault;
use reqwest::header::HeaderMap;
use reqwest::{Response, StatusCode};

use super::failure;
use super::plain;

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
