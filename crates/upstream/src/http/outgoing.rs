//! A request as it goes out, for either client.

use std::sync::Arc;

use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request};

use super::target::Target;

/// A request as it goes out, except for the header with the caller's identity.
pub(super) struct OutgoingRequest {
    pub(super) method: Method,
    pub(super) target: Arc<Target>,
    pub(super) headers: HeaderMap,
    /// `None`: the request announces no body.
    pub(super) body: Option<Bytes>,
}

impl OutgoingRequest {
    /// The request for the client library. `extra` replaces the header of its name.
    pub(super) fn to_client_request(&self, extra: Option<&(HeaderName, HeaderValue)>) -> Request {
        let mut request = Request::new(self.method.clone(), self.target.url.clone());
        request.headers_mut().clone_from(&self.headers);
        if let Some((name, value)) = extra {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        *request.body_mut() = self.body.clone().map(Into::into);
        request
    }
}
