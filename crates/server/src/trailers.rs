//! Trailers of a response. The library has no place for them: a response carries them as an extension, which HTTP/2
//! reads when the body has ended.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

/// Names and values, in order.
type Fields = Vec<(Cow<'static, str>, String)>;

/// The trailers of one response. A stream sets them at its end.
#[derive(Clone, Default)]
pub(super) struct Trailers(Arc<Mutex<Fields>>);

impl Trailers {
    pub(super) fn new(trailers: Fields) -> Self {
        Self(Arc::new(Mutex::new(trailers)))
    }

    pub(super) fn set(&self, trailers: Fields) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = trailers;
    }

    /// Takes the trailers. `None`: the response has none. Names and values that HTTP does not allow are left out.
    pub(super) fn take(&self) -> Option<http::HeaderMap> {
        let trailers = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut headers = http::HeaderMap::with_capacity(trailers.len());
        for (name, value) in trailers {
            if let (Ok(name), Ok(value)) =
                (http::HeaderName::from_bytes(name.as_bytes()), http::HeaderValue::from_str(&value))
            {
                headers.append(name, value);
            }
        }
        (!headers.is_empty()).then_some(headers)
    }
}
