//! Agents on the network: sends requests, distinguishes success from refusal, retries where that is safe.
//!
//! When a request is sent again, at most `retries` times, with a short pause before each, and within the agent's budget
//! of retries:
//! - no connection was made: the agent has not received it;
//! - the agent answered 503 and did not ask for a long pause: it says itself that it did not work on it;
//! - a connection that had waited in the pool died at once, without a byte of an answer: the agent closed it while the
//!   request was on its way;
//! - it only looks up a document.
//!
//! A request with answers is sent again only if no connection was made: a decision must not arrive twice. If an agent
//! has several endpoints, the engine sends a turn that did not begin to another one, so it is not sent again here.
//!
//! After any other failure the agent might be working on the request already, so the fault is reported. Redirects are
//! not followed, proxies of the environment not used: a request goes where the operator sent it or nowhere.
//!
//! Not here: the content of requests and the meaning of answers (connectors), and the requests of one turn
//! ([`super::Conversation`]).

mod answer;
mod asking;
mod attempt;
mod card;
mod cause;
mod client_error;
mod client_pool;
mod failure;
mod kept;
mod lookup;
mod outgoing;
mod plain;
mod probe;
mod request;
mod target;
mod unpack;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{BoxStream, StreamExt as _};
use interlingua_core::capability::UpstreamCapabilities;
use interlingua_core::connector::{Connector, HttpRequest, Purpose, TurnRequest};
use interlingua_core::probe::Finding;
use interlingua_core::well_known::{FetchedDocument, WellKnownDocument};
use interlingua_core::{Fault, FaultKind};
use reqwest::Url;
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::headers::{CallerHeader, TurnHeaders};
use super::pool::{CheckThresholds, EndpointPermit, EndpointPool, PoolSettings};
use super::{
    Attempts, Body, Conversation, Form, Identity, OwnListeners, RefusalDetails, Reply, ResponseTimeouts, SendCause,
    SendError, SendOptions, SendProgress, StopAnswer, Transport, Upstream,
};
use answer::Answer;
use attempt::Attempt;
use client_pool::ClientPool;
use interlingua_base::secrets;
use kept::{Cards, Lookups, no_cards, no_lookups};
use outgoing::OutgoingRequest;
use target::{Target, Targets};

pub use client_pool::{ConnectionSettings, Proxy};

/// Bytes of a refusal's body that are read.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;
/// Timeout for a refusal's body, and for the answer to a stop call.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before a retry; it doubles each time.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The longest `retry-after` of an agent that leads to a retry. With a longer one, the client gets the fault and the
/// pause.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// A pooled connection that fails sooner than this counts as closed before the request was sent.
const STALE_CONNECTION: Duration = Duration::from_millis(500);

/// The connection settings of one agent, independent of its protocol.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// The listeners of the gateway, which a card of the agent must not name.
    pub own_listeners: OwnListeners,
    /// The operator's headers, names in lower case. They override those of the protocol.
    pub headers: Vec<(String, SecretString)>,
    /// The settings of connections.
    pub connection: ConnectionSettings,
    /// Limit for the head of the answer, from the moment the connection is open.
    pub first_byte: Duration,
    /// Limit for a silence within the answer.
    pub idle: Duration,
    /// Limit for the complete answer.
    pub total: Duration,
    /// Retries of a request that the agent did not process.
    pub retries: u32,
    /// The largest event, or answer in one body, in bytes.
    pub max_event: usize,
    /// Names, in lower case, of the headers of a client's request that the agent gets.
    pub forward: Vec<String>,
    /// The identity of the caller that the agent receives.
    pub identity: Identity,
    /// The agent's name, for the log and for tokens.
    pub agent: String,
    /// The use of its endpoints.
    pub pool: PoolSettings,
    /// Health checks. `None`: an endpoint's health is judged by its runs alone.
    pub health: Option<HealthCheck>,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            own_listeners: OwnListeners::default(),
            headers: Vec::new(),
            connection: ConnectionSettings { connect: Duration::from_secs(5), ..ConnectionSettings::default() },
            first_byte: Duration::from_secs(60),
            idle: Duration::from_secs(120),
            total: Duration::from_secs(60 * 60),
            retries: 2,
            max_event: 8 * 1024 * 1024,
            forward: Vec::new(),
            identity: Identity::None,
            agent: String::new(),
            pool: PoolSettings::default(),
            health: None,
        }
    }
}

/// Health checks of an agent's endpoints.
#[derive(Clone, Debug)]
pub struct HealthCheck {
    /// The path, from the root of the endpoint's origin on; it may have a query.
    pub path: String,
    /// The pause between two checks. It varies by a tenth, so that many gateways do not check at once.
    pub every: Duration,
    /// Limit for the answer's head, connection included.
    pub timeout: Duration,
    /// When an endpoint counts as healthy or not.
    pub thresholds: CheckThresholds,
}

/// A server of an agent.
pub struct Endpoint {
    /// Writes its requests and reads its answers.
    pub connector: Box<dyn Connector>,
    /// Its URL, from which the URLs of published documents are derived. `None`: none are fetched.
    pub url: Option<Url>,
    /// Its share of the runs, from 1 on.
    pub weight: u32,
}

/// An agent on the network.
pub struct HttpUpstream(Arc<Agent>);

struct Agent {
    endpoints: Vec<Endpoint>,
    pool: Arc<EndpointPool>,
    settings: HttpSettings,
    headers: HeaderMap,
    clients: ClientPool,
    cards: Cards,
    lookups: Lookups,
    targets: Targets,
}

impl HttpUpstream {
    /// Creates the client of an agent. Nothing is connected yet.
    ///
    /// # Errors
    /// A sentence for the operator: there is no endpoint, or a header that HTTP does not allow.
    pub fn new(endpoints: Vec<Endpoint>, settings: HttpSettings) -> Result<Self, String> {
        if endpoints.is_empty() {
            return Err("an agent needs an endpoint".to_owned());
        }

        let mut headers = HeaderMap::new();
        for (name, value) in &settings.headers {
            let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is no header name"))?;
            let mut value = HeaderValue::from_str(value.expose_secret())
                .map_err(|_| format!("the value of header {name:?} has characters that are not allowed"))?;
            value.set_sensitive(true);
            headers.append(known, value);
        }
        let clients = ClientPool::new(settings.connection.clone());
        let weights =
            endpoints.iter().map(|one| (one.url.as_ref().map(failure::shown).unwrap_or_default(), one.weight));
        let checks = settings.health.as_ref().map(|check| check.thresholds);
        let pool_settings = PoolSettings { checks, ..settings.pool.clone() };
        let pool = EndpointPool::new(settings.agent.clone(), weights.collect(), settings.retries, pool_settings);
        Ok(Self(Arc::new(Agent {
            pool: Arc::new(pool),
            endpoints,
            lookups: no_lookups(settings.total),
            settings,
            headers,
            clients,
            cards: no_cards(),
            targets: Targets::default(),
        })))
    }
}

impl Upstream for HttpUpstream {
    fn capabilities(&self) -> UpstreamCapabilities {
        self.0.endpoints[0].connector.capabilities()
    }

    fn start(&self, request: &TurnRequest<'_>, via: SendOptions<'_>) -> Result<Conversation, Fault> {
        let endpoint = via.seat.as_ref().map_or(0, EndpointPermit::endpoint);
        let is_decision = !request.answered.is_empty();
        let turn = self.0.endpoints[endpoint].connector.turn(request)?;
        let HttpSettings { identity, agent, .. } = &self.0.settings;
        let caller = via.caller.and_then(|caller| CallerHeader::new(identity, agent, caller));
        let transport = HttpTransport {
            agent: Arc::clone(&self.0),
            endpoint,
            headers: TurnHeaders { trace: via.trace.cloned(), forwarded: via.forwarded, caller },
            attempts: via.attempts,
            is_decision,
            is_answered: Arc::default(),
        };
        Ok(Conversation::new(turn, Box::new(transport), self.0.settings.total).at(via.seat, is_decision))
    }

    fn pool(&self) -> Option<&Arc<EndpointPool>> {
        Some(&self.0.pool)
    }

    fn watch(&self) -> Option<BoxFuture<'static, ()>> {
        let check = self.0.settings.health.clone()?;
        Some(Agent::watch(Arc::downgrade(&self.0), self.0.endpoints.len(), check).boxed())
    }

    fn probe(&self, endpoint: usize, limit: Duration) -> BoxFuture<'static, Vec<Finding>> {
        Arc::clone(&self.0).probe(endpoint, limit).boxed()
    }

    fn published(&self, wanted: &WellKnownDocument) -> BoxFuture<'static, Option<Arc<FetchedDocument>>> {
        Arc::clone(&self.0).card(wanted.clone()).boxed()
    }
}

/// Sends the requests of one turn.
struct HttpTransport {
    agent: Arc<Agent>,
    /// The index of the endpoint that the turn is taken at.
    endpoint: usize,
    headers: TurnHeaders,
    attempts: Arc<Attempts>,
    /// The turn answers what the agent asked.
    is_decision: bool,
    /// A request of the turn was answered: the others have to go to the same endpoint.
    is_answered: Arc<AtomicBool>,
}

/// The method and body of a request, and whether it may be sent again.
struct Resend {
    endpoint: usize,
    is_trusted: bool,
    caller: Option<CallerHeader>,
    /// False: the turn is begun again at another endpoint.
    is_here: bool,
    is_decision: bool,
    is_lookup: bool,
    attempts: Arc<Attempts>,
}

/// The servers that belong to the agent for a request.
#[derive(Clone, Copy)]
struct AgentServers {
    endpoint: usize,
    /// The request goes to a host that the operator allowed.
    is_trusted: bool,
}

impl Resend {
    const fn known(&self) -> AgentServers {
        AgentServers { endpoint: self.endpoint, is_trusted: self.is_trusted }
    }

    fn allows(&self, error: &SendError) -> bool {
        let is_safe = match error.reach {
            // One that was not made in time is no use trying again: it would take as long.
            SendProgress::NotSent => !error.is_timeout(),
            SendProgress::NotTaken => !self.is_decision,
            SendProgress::Maybe => false,
        };
        self.is_here && (is_safe || self.is_lookup)
    }
}

impl Transport for HttpTransport {
    fn send(&self, request: HttpRequest, since: Instant) -> BoxFuture<'static, Result<Reply, SendError>> {
        let agent = Arc::clone(&self.agent);
        let purpose = request.purpose;
        let is_answered = Arc::clone(&self.is_answered);
        let resend = Resend {
            endpoint: self.endpoint,
            is_trusted: request.is_trusted,
            // Documents that are the same for all callers are requested without a caller.
            caller: self.headers.caller.clone().filter(|_| purpose != Purpose::Published),
            is_here: agent.endpoints.len() == 1 || is_answered.load(Ordering::Relaxed),
            is_decision: self.is_decision,
            is_lookup: purpose != Purpose::Ask,
            attempts: Arc::clone(&self.attempts),
        };
        if purpose == Purpose::Published {
            return agent.published(request, resend).boxed();
        }
        let request = agent.request(request, self.endpoint, &self.headers);
        async move {
            let answer = agent.send(request?, &resend, since).await?;
            let reply = match purpose {
                Purpose::Ask => {
                    is_answered.store(true, Ordering::Relaxed);
                    agent.answer(answer, since).map(|body| Reply::Answer(Box::new(body)))?
                }
                Purpose::Lookup | Purpose::Published => Reply::Document(agent.document(answer).await?.into()),
            };
            Ok(reply)
        }
        .boxed()
    }

    fn cancel(&self, request: HttpRequest) -> BoxFuture<'static, Result<StopAnswer, Fault>> {
        let agent = Arc::clone(&self.agent);
        let (endpoint, caller, is_trusted) = (self.endpoint, self.headers.caller.clone(), request.is_trusted);
        let request = agent.request(request, endpoint, &self.headers);
        async move { agent.stop(request?, AgentServers { endpoint, is_trusted }, caller.as_ref()).await }.boxed()
    }
}

impl Agent {
    /// Sends a request, again if that is safe, and waits for the head of a success.
    async fn send(&self, request: OutgoingRequest, resend: &Resend, since: Instant) -> Result<Answer, SendError> {
        let mut retried = 0;
        loop {
            let error = match self.attempt(&request, resend, since).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let pause = retry_after_of(&error).unwrap_or(RETRY_PAUSE * 2_u32.saturating_pow(retried));
            let in_time = pause <= MAX_PAUSE && since.elapsed() + pause < self.settings.total;
            let may = resend.allows(&error) && in_time && retried < self.settings.retries;
            if !may || !self.pool.may_retry(resend.endpoint) {
                return Err(error);
            }

            retried += 1;
            resend.attempts.retried(error.to_reason());
            tracing::debug!(reason = shown(&error), retried, "the agent did not accept the request: retrying");
            sleep(pause).await;
        }
    }

    /// Tells the agent to stop.
    async fn stop(
        &self,
        request: OutgoingRequest,
        known: AgentServers,
        caller: Option<&CallerHeader>,
    ) -> Result<StopAnswer, Fault> {
        let limit = self.clients.connect() + REFUSAL_TIMEOUT;
        let sent = async {
            let target = &request.target;
            let identity = Self::identity(target, known, caller)?;
            let is_own = Self::is_own(known, target);
            let answer = self.clients.send(&request, identity.as_ref(), is_own, &Arc::default())?.await;
            let answer = answer.map_err(|error| failure::before_answer(error, &target.url))?;
            let status = answer.status.as_u16();
            Ok(StopAnswer { status, body: self.beginning_of(answer).await.into_bytes() })
        };
        timeout(limit, sent).await.unwrap_or_else(|_| {
            let detail = format_args!("no answer to the request to stop after {limit:?}");
            Err(failure::timed_out("the agent did not confirm that it stopped", detail))
        })
    }

    /// Sends a request once and waits for the head of the answer.
    async fn attempt(&self, request: &OutgoingRequest, resend: &Resend, since: Instant) -> Result<Answer, SendError> {
        let target = &request.target;
        let identity = Self::identity(target, resend.known(), resend.caller.as_ref())?;
        let attempt = Arc::new(Attempt::default());
        let is_own = Self::is_own(resend.known(), target);
        let sending = self.clients.send(request, identity.as_ref(), is_own, &attempt)?;
        tokio::pin!(sending);

        let began = Instant::now();
        let settings = &self.settings;
        let ends = since + settings.total;
        let mut silent = began + settings.first_byte;
        let answer = loop {
            match timeout_at(silent.min(ends), &mut sending).await {
                Ok(answer) => break answer,
                Err(_) if Instant::now() >= ends => {
                    return Err(SendError::from(failure::timed_out(
                        "the agent took too long to answer",
                        format_args!("no answer after {:?} (timeouts.total)", settings.total),
                    )));
                }
                Err(_) => {
                    // The time is counted from the connection; how long that may take has a bound of its own.
                    let counted = attempt.connected(began, self.clients.connect()) + settings.first_byte;
                    if counted <= silent {
                        return Err(SendError::from(failure::timed_out(
                            "the agent did not begin to answer in time",
                            format_args!("no head of an answer after {:?} (timeouts.first_byte)", settings.first_byte),
                        )));
                    }
                    silent = counted;
                }
            }
        };
        match answer {
            Ok(answer) if answer.status.is_success() => Ok(answer),
            Ok(answer) => {
                // An agent that is not available says itself that it did not work on the request.
                let is_unavailable = answer.status == reqwest::StatusCode::SERVICE_UNAVAILABLE;
                let reach = if is_unavailable { SendProgress::NotTaken } else { SendProgress::Maybe };
                Err(SendError { cause: SendCause::Refused(self.refusal(answer, target).await), reach })
            }
            Err(error) => {
                let stale = !attempt.dialled() && began.elapsed() < STALE_CONNECTION && error.is_disconnect();
                let reach = match (stale, error.is_connect()) {
                    (true, _) => SendProgress::NotTaken,
                    (false, true) => SendProgress::NotSent,
                    (false, false) => SendProgress::Maybe,
                };
                Err(SendError { cause: SendCause::Fault(failure::before_answer(error, &target.url)), reach })
            }
        }
    }

    fn answer(&self, answer: Answer, since: Instant) -> Result<Body, Fault> {
        let form = form(&answer.headers)?;
        let media = answer.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        let media = String::from_utf8_lossy(media).into_owned();
        let is_gathered = answer.is_gathered;
        let chunks = unpacked(answer)?;
        let timeouts = ResponseTimeouts::new(since, self.settings.idle, self.settings.total);
        Ok(Body::new(chunks, form, self.settings.max_event, Some(timeouts)).with_media(media).gathered(is_gathered))
    }

    async fn refusal(&self, answer: Answer, target: &Target) -> RefusalDetails {
        let status = answer.status.as_u16();
        let retry_after = retry_after(&answer.headers);
        let location = answer.headers.get(header::LOCATION);
        let location = location.and_then(|location| target.url.join(location.to_str().ok()?).ok());
        let body = self.beginning_of(answer).await;
        // The operator must see the requested URL and the target of a redirect: both without parts that may contain
        // secrets.
        let asked = match location.filter(|_| (300..400).contains(&status)) {
            Some(location) => format!("{} answered {status}, to {}", target.shown(), failure::shown(&location)),
            None => format!("{} answered {status}", target.shown()),
        };
        RefusalDetails { status, body, retry_after, asked }
    }

    /// The beginning of an answer's body, up to the limit of a refusal.
    async fn beginning_of(&self, answer: Answer) -> String {
        let mut body = Vec::new();
        if let Ok(mut chunks) = unpacked(answer) {
            // The part that was read until then is used.
            let _ = timeout(REFUSAL_TIMEOUT.min(self.settings.idle), async {
                while body.len() < MAX_REFUSAL_BYTES
                    && let Some(Ok(chunk)) = chunks.next().await
                {
                    body.extend_from_slice(&chunk[..chunk.len().min(MAX_REFUSAL_BYTES - body.len())]);
                }
            })
            .await;
        }

        // Masked before anything of it is cut or quoted: half a secret is one too.
        secrets::mask(&String::from_utf8_lossy(&body)).into_owned()
    }
}

/// The pause that the agent asks for.
const fn retry_after_of(error: &SendError) -> Option<Duration> {
    match &error.cause {
        SendCause::Fault(fault) => fault.retry_after,
        SendCause::Refused(refused) => refused.retry_after,
    }
}

/// An error as the log has it.
fn shown(error: &SendError) -> String {
    match &error.cause {
        SendCause::Fault(fault) => match &fault.detail {
            Some(detail) => format!("{fault}: {detail}"),
            None => fault.to_string(),
        },
        SendCause::Refused(refused) => refused.asked.clone(),
    }
}

/// The form of a successful answer, by its content type.
fn form(headers: &HeaderMap) -> Result<Form, Fault> {
    let content_type = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let content_type = String::from_utf8_lossy(content_type);
    let media = content_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    Ok(match media.as_str() {
        "text/event-stream" => Form::Frames,
        "application/json" => Form::Whole,
        // Missing, or the default of a server that does not set it.
        "" | "text/plain" | "application/octet-stream" => Form::Unsaid,
        json if json.ends_with("+json") => Form::Whole,
        _ => {
            return Err(Fault::new(
                FaultKind::UpstreamGarbage,
                "the agent's answer is neither an event stream nor JSON",
            )
            .with_detail(format_args!("content-type: {content_type}")));
        }
    })
}

/// The body, decompressed if the agent compressed it without being asked.
fn unpacked(answer: Answer) -> Result<BoxStream<'static, Result<Bytes, Fault>>, Fault> {
    let encoding = answer.headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes).unwrap_or_default();
    let coding = encoding.trim_ascii().to_ascii_lowercase();
    let plain = match coding.as_slice() {
        b"" | b"identity" => true,
        b"gzip" | b"x-gzip" => false,
        other => {
            return Err(Fault::new(
                FaultKind::UpstreamGarbage,
                "the agent's answer is compressed in a way that was not requested",
            )
            .with_detail(format_args!("content-encoding: {}", String::from_utf8_lossy(other))));
        }
    };
    Ok(if plain { answer.body } else { unpack::gzip(answer.body).boxed() })
}

/// Parses `retry-after`: seconds, or a date. At most a day, since clients receive it.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
    // More exact, where servers of models send it: a whole number or a fraction of milliseconds.
    let exact = headers.get("retry-after-ms").and_then(|value| value.to_str().ok()?.trim().parse::<f64>().ok());
    if let Some(milliseconds) = exact.filter(|exact| *exact >= 0.0) {
        let pause = Duration::try_from_secs_f64(milliseconds / 1000.0);
        return Some(pause.map_or(MAX_RETRY_AFTER, |pause| pause.min(MAX_RETRY_AFTER)));
    }

    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that overflows is more than a day.
        return Some(value.parse().map_or(MAX_RETRY_AFTER, Duration::from_secs).min(MAX_RETRY_AFTER));
    }
    let date = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
    let pause = Duration::try_from(date.duration_since(jiff::Timestamp::now())).unwrap_or(Duration::ZERO);
    Some(pause.min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_at_most_a_day() {
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
