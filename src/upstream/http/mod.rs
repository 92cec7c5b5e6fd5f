//! Agents on the network: sending the question, telling a success from a refusal, trying again where that is safe.
//!
//! When a question is sent again, at most `retries` times and with a short pause before each:
//! - no connection was made: nobody has heard it;
//! - the agent answered 503 and did not ask for a long pause: it says itself that it did not work on it;
//! - a connection that had waited in the pool died at once, without a byte of an answer: the agent closed it while
//!   the question was on its way.
//!
//! Anything later might be working on the question already, so it is told and not tried again. Redirects are not
//! followed, proxies of the environment not used: a question goes where the operator sent it or nowhere.
//!
//! Not here: what is asked and what an answer means (connectors and readers).

mod card;
mod client_pool;
mod failure;
mod unpack;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{BoxStream, StreamExt};
use interlingua_core::connector::{Ask, Connector, Question, Reader, Refusal};
use interlingua_core::well_known::{FetchedDocument, WellKnownDocument};
use interlingua_core::{Fault, FaultKind};
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Request, Response, Url};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::card::Shelf;
use super::{Conversation, Form, ResponseTimeouts, Trace, Upstream};
use crate::secrets;
use client_pool::{Attempt, ClientPool};

pub use client_pool::install_crypto;

/// How much of a refusal's body is read, in bytes.
const REFUSAL: usize = 64 * 1024;
/// How much of it the log gets.
const LOGGED: usize = 512;
/// How long a refusal's body, or the answer to a stop call, is waited for.
const REFUSAL_TIME: Duration = Duration::from_secs(5);
/// The pause before a question is sent again; it doubles each time.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest pause an agent may ask for and still be asked again; beyond, the client is told to come back.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// How soon a connection from the pool has to die to be taken for one that was dead already.
const STALE: Duration = Duration::from_millis(500);

/// How one agent is reached, apart from its protocol.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// The operator's headers, names in small letters. They win over those of the protocol.
    pub headers: Vec<(String, SecretString)>,
    /// For a connection, name lookup and TLS included.
    pub connect: Duration,
    /// For the head of the answer, once there is a connection.
    pub first_byte: Duration,
    /// For the next sign of life in the answer.
    pub idle: Duration,
    /// For all of it.
    pub total: Duration,
    /// How often a question is sent again that surely was not worked on.
    pub retries: u32,
    /// The largest event, or answer that comes whole, in bytes.
    pub max_event: usize,
    /// The agent's URL, around which lies what its server publishes about it. None: nothing is looked for.
    pub home: Option<Url>,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            headers: Vec::new(),
            connect: Duration::from_secs(5),
            first_byte: Duration::from_secs(60),
            idle: Duration::from_secs(120),
            total: Duration::from_secs(60 * 60),
            retries: 2,
            max_event: 8 * 1024 * 1024,
            home: None,
        }
    }
}

/// An agent on the network.
pub struct HttpUpstream(Arc<Agent>);

struct Agent {
    connector: Box<dyn Connector>,
    settings: HttpSettings,
    headers: HeaderMap,
    dialler: ClientPool,
    shelf: Shelf,
}

impl HttpUpstream {
    /// The way to an agent. Nothing is connected yet.
    ///
    /// # Errors
    /// A sentence for the operator about a header that HTTP does not allow.
    pub fn new(connector: Box<dyn Connector>, settings: HttpSettings) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in &settings.headers {
            let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is no header name"))?;
            let mut value = HeaderValue::from_str(value.expose_secret())
                .map_err(|_| format!("the value of header {name:?} has characters that are not allowed"))?;
            value.set_sensitive(true);
            headers.append(known, value);
        }
        let dialler = ClientPool::new(settings.connect);
        Ok(Self(Arc::new(Agent { connector, settings, headers, dialler, shelf: Shelf::default() })))
    }
}

impl Upstream for HttpUpstream {
    fn open(&self, question: &Question<'_>, trace: Option<&Trace>) -> BoxFuture<'static, Result<Conversation, Fault>> {
        let agent = Arc::clone(&self.0);
        let asked = agent.connector.ask(question).and_then(|(ask, reader)| Ok((agent.request(ask, trace)?, reader)));
        async move {
            let (request, reader) = asked?;
            agent.open(request, reader).await
        }
        .boxed()
    }

    fn stop(&self, question: &Question<'_>, trace: Option<&Trace>) -> BoxFuture<'static, ()> {
        let agent = Arc::clone(&self.0);
        let request = agent.connector.cancel(question).map(|ask| agent.request(ask, trace));
        async move {
            if let Some(request) = request {
                agent.stop(request).await;
            }
        }
        .boxed()
    }

    fn published(&self, wanted: &WellKnownDocument) -> BoxFuture<'static, Option<Arc<FetchedDocument>>> {
        let (agent, wanted) = (Arc::clone(&self.0), wanted.clone());
        async move {
            let (fetcher, sought) = (Arc::clone(&agent), wanted.clone());
            agent.shelf.get(&wanted, || async move { fetcher.fetch(&sought).await }).await
        }
        .boxed()
    }
}

impl Agent {
    async fn open(&self, request: Request, reader: Box<dyn Reader>) -> Result<Conversation, Fault> {
        let since = Instant::now();
        let mut tried = 0;
        loop {
            let (fault, pause) = match self.attempt(&request, since).await {
                Ok(response) => return self.answer(response, reader, since).await,
                Err(Failed::Told(fault)) => return Err(fault),
                Err(Failed::Unheard(fault)) => {
                    let pause = fault.retry_after.unwrap_or(PAUSE * 2_u32.saturating_pow(tried));
                    (fault, pause)
                }
            };
            if tried >= self.settings.retries || pause > MAX_PAUSE || since.elapsed() + pause >= self.settings.total {
                return Err(fault);
            }
            tried += 1;
            tracing::debug!(%fault, detail = fault.detail, tried, "the agent did not take the question, asking again");
            sleep(pause).await;
        }
    }

    async fn stop(&self, request: Result<Request, Fault>) {
        let patience = self.settings.connect + REFUSAL_TIME;
        let sent = async {
            let request = request?;
            let client = self.dialler.client(request.url().scheme() == "https")?;
            let url = request.url().clone();
            client.execute(request).await.map_err(|error| failure::before_answer(error, &url))
        };
        match timeout(patience, sent).await {
            Ok(Ok(response)) if response.status().is_success() => {}
            Ok(Ok(response)) => tracing::warn!(status = response.status().as_u16(), "the agent refused to stop"),
            Ok(Err(fault)) => tracing::warn!(%fault, detail = fault.detail, "the agent could not be told to stop"),
            Err(_) => tracing::warn!("the agent did not say whether it stopped"),
        }
    }

    /// The request as it goes out. The operator's headers win over the protocol's, these over the client's trace.
    fn request(&self, ask: Ask, trace: Option<&Trace>) -> Result<Request, Fault> {
        let wrong = |what: String| Fault::new(FaultKind::Internal, "the agent could not be asked").with_detail(what);
        let url = Url::parse(&ask.url).map_err(|error| wrong(format!("{}: {error}", ask.url)))?;
        let method = ask.method.parse().map_err(|_| wrong(format!("{} is no method", ask.method)))?;
        let its_own = self.settings.home.as_ref().is_none_or(|home| home.origin() == url.origin());
        let mut request = Request::new(method, url);
        let headers = request.headers_mut();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream, application/json;q=0.9"));
        // Compressed frames would wait for one another.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(
            header::USER_AGENT,
            HeaderValue::from_static(concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION"))),
        );
        if let Some(trace) = trace {
            let state = trace.state.as_deref().map(|state| ("tracestate", state));
            for (name, value) in [("traceparent", trace.parent.as_str())].into_iter().chain(state) {
                let value = HeaderValue::from_str(value).map_err(|_| wrong(format!("the value of header {name}")))?;
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        for (name, value) in ask.headers {
            let value = HeaderValue::from_str(&value).map_err(|_| wrong(format!("the value of header {name}")))?;
            headers.insert(HeaderName::from_static(name), value);
        }
        // They hold the agent's credentials, which are nobody else's: a stop URL may lie anywhere.
        if its_own {
            for name in self.headers.keys() {
                headers.remove(name);
            }
            headers.extend(self.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        *request.body_mut() = Some(Bytes::from(ask.body).into());
        Ok(request)
    }

    /// Sends the question once and waits for the head of the answer.
    async fn attempt(&self, request: &Request, since: Instant) -> Result<Response, Failed> {
        let told = |fault: Fault| Failed::Told(fault);
        let client = self.dialler.client(request.url().scheme() == "https").map_err(told)?;
        let url = request.url().clone();
        let request = request.try_clone().expect("a body in memory can be sent twice");
        let attempt = Arc::new(Attempt::default());
        let sending = attempt.watch(client.execute(request));
        tokio::pin!(sending);

        let began = Instant::now();
        let settings = &self.settings;
        let ends = since + settings.total;
        let mut silent = began + settings.first_byte;
        let response = loop {
            match timeout_at(silent.min(ends), &mut sending).await {
                Ok(response) => break response,
                Err(_) if Instant::now() >= ends => {
                    return Err(Failed::Told(failure::timed_out(
                        "the agent took too long to answer",
                        format_args!("no answer after {:?} (timeouts.total)", settings.total),
                    )));
                }
                Err(_) => {
                    // The time is counted from the connection; how long that may take has a bound of its own.
                    let counted = attempt.connected(began, settings.connect) + settings.first_byte;
                    if counted <= silent {
                        return Err(Failed::Told(failure::timed_out(
                            "the agent did not begin to answer in time",
                            format_args!("no head of an answer after {:?} (timeouts.first_byte)", settings.first_byte),
                        )));
                    }
                    silent = counted;
                }
            }
        };
        match response {
            Ok(response) if response.status().is_success() => Ok(response),
            Ok(response) => {
                let unavailable = response.status() == reqwest::StatusCode::SERVICE_UNAVAILABLE;
                let fault = self.refusal(response, &url).await;
                Err(if unavailable { Failed::Unheard(fault) } else { Failed::Told(fault) })
            }
            Err(error) => {
                let stale = !attempt.dialled() && began.elapsed() < STALE && failure::is_disconnect(&error);
                // A connection that could not be made in time is no use trying again: it would take as long.
                let unheard = stale || (error.is_connect() && !error.is_timeout());
                let fault = failure::before_answer(error, &url);
                Err(if unheard { Failed::Unheard(fault) } else { Failed::Told(fault) })
            }
        }
    }

    async fn answer(&self, response: Response, reader: Box<dyn Reader>, since: Instant) -> Result<Conversation, Fault> {
        let form = form(response.headers())?;
        let media = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        let media = String::from_utf8_lossy(media).into_owned();
        let body = unpacked(response)?;
        let patience = ResponseTimeouts::new(since, self.settings.idle, self.settings.total);
        Ok(Conversation::new(body, reader, form, self.settings.max_event, Some(patience)).of_type(media))
    }

    async fn refusal(&self, response: Response, url: &Url) -> Fault {
        let status = response.status().as_u16();
        let retry_after = retry_after(response.headers());
        let target = response.headers().get(header::LOCATION).and_then(|target| url.join(target.to_str().ok()?).ok());
        let mut body = Vec::new();
        if let Ok(mut chunks) = unpacked(response) {
            // What was read until then has to do.
            let _ = timeout(REFUSAL_TIME.min(self.settings.idle), async {
                while body.len() < REFUSAL
                    && let Some(Ok(chunk)) = chunks.next().await
                {
                    body.extend_from_slice(&chunk[..chunk.len().min(REFUSAL - body.len())]);
                }
            })
            .await;
        }
        // Masked before anything of it is cut or quoted: half a secret is one too.
        let body = String::from_utf8_lossy(&body);
        let masked = secrets::mask(&body);
        let refusal = Refusal { status, body: masked.as_bytes(), retry_after };
        let mut fault = secrets::mask_fault(self.connector.map_refusal(&refusal));
        // An operator has to know who was asked, and where a redirect leads: both without what URLs may hide.
        let said = fault.detail.take().unwrap_or_default();
        let asked = failure::shown(url);
        fault.detail = Some(match target.filter(|_| (300..400).contains(&status)) {
            Some(target) => format!("{asked} answered {status}, to {}", failure::shown(&target)),
            None => format!("{asked} answered {status}: {}", beginning(&said)),
        });
        fault
    }
}

/// As much of a refusal as the log needs.
fn beginning(text: &str) -> &str {
    let mut end = text.len().min(LOGGED);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Why there is no answer.
enum Failed {
    /// Surely nobody works on the question.
    Unheard(Fault),
    /// Somebody might.
    Told(Fault),
}

/// How a success is going to come, by its content type.
fn form(headers: &HeaderMap) -> Result<Form, Fault> {
    let told = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let told = String::from_utf8_lossy(told);
    let media = told.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    Ok(match media.as_str() {
        "text/event-stream" => Form::Frames,
        "application/json" => Form::Whole,
        // Left out, or what servers say who do not think about it.
        "" | "text/plain" | "application/octet-stream" => Form::Unsaid,
        json if json.ends_with("+json") => Form::Whole,
        _ => {
            return Err(Fault::new(
                FaultKind::UpstreamGarbage,
                "the agent's answer is neither an event stream nor JSON",
            )
            .with_detail(format_args!("content-type: {told}")));
        }
    })
}

/// The body, unpacked if it came packed although nobody asked for that.
fn unpacked(response: Response) -> Result<BoxStream<'static, Result<Bytes, Fault>>, Fault> {
    let told = response.headers().get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes).unwrap_or_default();
    let coding = told.trim_ascii().to_ascii_lowercase();
    let plain = match coding.as_slice() {
        b"" | b"identity" => true,
        b"gzip" | b"x-gzip" => false,
        other => {
            return Err(Fault::new(
                FaultKind::UpstreamGarbage,
                "the agent's answer is compressed in a way nobody asked for",
            )
            .with_detail(format_args!("content-encoding: {}", String::from_utf8_lossy(other))));
        }
    };
    let body = response.bytes_stream().map(|chunk| chunk.map_err(failure::in_answer));
    Ok(if plain { body.boxed() } else { unpack::gzip(body.boxed()).boxed() })
}

/// What `retry-after` says: seconds, or a date. Clients are told it, so it stays within what anybody waits for.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
    let told = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if !told.is_empty() && told.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number may have are more than a day.
        return Some(told.parse().map_or(LONGEST, Duration::from_secs).min(LONGEST));
    }
    let date = jiff::fmt::rfc2822::parse(told).ok()?.timestamp();
    let pause = Duration::try_from(date.duration_since(jiff::Timestamp::now())).unwrap_or(Duration::ZERO);
    Some(pause.min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_that_nobody_waits_for_is_a_day() {
        let pause = |value: &str| {
            let headers = HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from_str(value).expect("a value"))]);
            retry_after(&headers).map(|pause| pause.as_secs())
        };
        const DAY: u64 = 24 * 60 * 60;
        for (value, seconds) in [
            ("0", Some(0)),
            ("30", Some(30)),
            ("86401", Some(DAY)),
            ("18446744073709551615", Some(DAY)),
            ("99999999999999999999999999", Some(DAY)),
            ("Thu, 31 Dec 9998 23:59:59 GMT", Some(DAY)),
            ("Fri, 31 Dec 1999 23:59:59 GMT", Some(0)),
            ("-1", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(pause(value), seconds, "{value}");
        }
    }
}
