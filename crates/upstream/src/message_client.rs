//! A small HTTP client for messages: each request is one message, its answer a document or an event stream that is read
//! in chunks.
//!
//! Requests use HTTP/1.1, so that each open answer has its own connection: none waits for the end of another, and
//! dropping an answer closes its connection. Redirects are not followed, since requests have credentials. Not here: the
//! meaning of messages (the command line).

use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use interlingua_core::fault::error_chain;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, Response};
use url::Url;

use super::scheme_error::{SPEAKS_HTTP, is_answer_in_clear};
use super::tls;

/// The limit for a connection, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that an unused connection is kept: less than the five seconds after which common servers close it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// Idle time of a connection before the system probes it, and the time between probes. An answer may be silent for
/// hours, and a server that is gone must be noticed.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// The number of unanswered probes that end a connection.
const KEEPALIVE_PROBES: u32 = 3;

/// Sends messages to one URL.
#[derive(Debug)]
pub struct MessageClient {
    client: Client,
    url: Url,
    headers: HeaderMap,
}

/// The answer to a message: its head, and a body to read. Dropping it closes the connection unless the body was read
/// to its end.
#[derive(Debug)]
pub struct MessageAnswer(Response);

impl MessageClient {
    /// A client for this URL. `headers` are sent with each request; their values are sensitive.
    ///
    /// # Errors
    /// If the URL is invalid or contains credentials, or a header has an invalid name or value.
    pub fn new(url: &str, headers: &[(String, String)]) -> anyhow::Result<Self> {
        tls::install_crypto();
        let parsed = Url::parse(url).with_context(|| format!("invalid URL {url:?}"))?;
        if !parsed.username().is_empty() || parsed.password().is_some() {
            bail!("the URL contains credentials");
        }
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::try_from(name).with_context(|| format!("invalid header name {name:?}"))?;
            let mut value = HeaderValue::try_from(value).with_context(|| format!("invalid value of header {name}"))?;
            value.set_sensitive(true);
            map.append(name, value);
        }

        let mut tls_config = tls::client_config(parsed.scheme() == "https");
        tls::offer(&mut tls_config, &[tls::HTTP_1]);
        let client = Client::builder()
            .http1_only()
            .redirect(Policy::none())
            .tls_backend_preconfigured(tls_config)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            .tcp_keepalive_interval(KEEPALIVE)
            .tcp_keepalive_retries(KEEPALIVE_PROBES)
            .build()
            .context("no HTTP client")?;
        Ok(Self { client, url: parsed, headers: map })
    }

    /// The URL, without its query, which may contain secrets.
    #[must_use]
    pub fn shown_url(&self) -> String {
        let mut url = self.url.clone();
        url.set_query(None);
        url.set_fragment(None);
        url.to_string()
    }

    /// Sends a JSON message by POST. Returns when the head of the answer arrives, which may take any time.
    ///
    /// # Errors
    /// The reason in words, if there is no answer.
    pub async fn post(&self, body: Bytes, headers: &[(&'static str, String)]) -> Result<MessageAnswer, String> {
        let request = self.client.post(self.url.clone()).header("content-type", "application/json").body(body);
        self.send(request.header("accept", "application/json, text/event-stream"), headers).await
    }

    /// Requests an event stream by GET.
    ///
    /// # Errors
    /// As for [`Self::post`].
    pub async fn get(&self, headers: &[(&'static str, String)]) -> Result<MessageAnswer, String> {
        self.send(self.client.get(self.url.clone()).header("accept", "text/event-stream"), headers).await
    }

    /// Sends a DELETE.
    ///
    /// # Errors
    /// As for [`Self::post`].
    pub async fn delete(&self, headers: &[(&'static str, String)]) -> Result<MessageAnswer, String> {
        self.send(self.client.request(Method::DELETE, self.url.clone()), headers).await
    }

    async fn send(&self, request: RequestBuilder, headers: &[(&'static str, String)]) -> Result<MessageAnswer, String> {
        let mut request = request.headers(self.headers.clone());
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        request.send().await.map(MessageAnswer).map_err(reason)
    }
}

impl MessageAnswer {
    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.0.status().as_u16()
    }

    /// The HTTP status with its name, such as `404 Not Found`.
    #[must_use]
    pub fn status_line(&self) -> String {
        self.0.status().to_string()
    }

    /// True for the statuses 200 to 299.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.0.status().is_success()
    }

    /// A header. `None`: it is missing or not text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.0.headers().get(name)?.to_str().ok()
    }

    /// True if the body is an event stream.
    #[must_use]
    pub fn is_event_stream(&self) -> bool {
        let kind = self.header("content-type").unwrap_or_default().split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("text/event-stream")
    }

    /// The next bytes of the body. `None` at its end. Cancel safe.
    ///
    /// # Errors
    /// The reason in words, if the connection breaks.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, String> {
        self.0.chunk().await.map_err(reason)
    }
}

/// The reason of an error, without the URL, which may contain secrets.
fn reason(error: reqwest::Error) -> String {
    if is_answer_in_clear(&error) {
        return SPEAKS_HTTP.to_owned();
    }
    error_chain(&error.without_url())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_urls_and_headers_are_refused_and_secrets_of_the_url_are_not_shown() {
        let new = |url: &str, name: &str, value: &str| MessageClient::new(url, &[(name.to_owned(), value.to_owned())]);
        let client = new("http://h:1/mcp?token=abc#x", "x-tenant", "a").expect("a client");
        assert_eq!(client.shown_url(), "http://h:1/mcp");
        for (url, name, value, complaint) in [
            ("nothing", "a", "b", "invalid URL"),
            ("http://user:pass@h/", "a", "b", "contains credentials"),
            ("http://h/", "a b", "c", "invalid header name"),
            ("http://h/", "a", "b\nc", "invalid value of header a"),
        ] {
            let error = new(url, name, value).expect_err(complaint).to_string();
            assert!(error.contains(complaint) && !error.contains("pass"), "{error}");
        }
    }
}
