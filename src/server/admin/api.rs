//! What each path of the admin listener answers. Reading changes nothing, and every change is in the audit log.

use std::net::SocketAddr;
use std::time::Duration;

use actix_web::dev::RequestHead;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::http::{Method, StatusCode};
use actix_web::web::{BytesMut, Payload};
use actix_web::{HttpRequest, HttpResponse};
use futures_util::StreamExt as _;
use interlingua_core::duration::seconds_rounded_up;
use interlingua_core::{Fault, FaultKind, RunId};
use serde_json::{Value, json};

use super::super::connection::{ConnectionInfo, info_of};
use super::super::guard::{self, check_named_host, check_origin, is_json};
use super::super::readiness;
use super::State;
use super::guard::{Asked, check_credentials};
use crate::engine::LiveFilter;
use crate::metrics::{Format, Levels};
use crate::observe::{Action, AuditEntry};
use crate::secrets;
use crate::store::Health;
use crate::upstream::pool::EndpointStatus;

/// The largest body, in bytes.
const MAX_BODY: usize = 64 * 1024;
/// How long a body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// The most runs in one answer.
const MAX_RUNS: usize = 200;

/// Where a request goes.
pub(super) enum Target {
    Healthz,
    Readyz,
    Metrics,
    Gateway,
    Config,
    Routes,
    Agents,
    Runs,
    Callers,
    Cancel(RunId),
    Reload,
    Log,
}

impl Target {
    fn find(path: &str) -> Option<Self> {
        Some(match path {
            "/healthz" => Self::Healthz,
            "/readyz" => Self::Readyz,
            "/metrics" => Self::Metrics,
            "/api/gateway" => Self::Gateway,
            "/api/config" => Self::Config,
            "/api/routes" => Self::Routes,
            "/api/agents" => Self::Agents,
            "/api/runs" => Self::Runs,
            "/api/callers" => Self::Callers,
            "/api/reload" => Self::Reload,
            "/api/log" => Self::Log,
            _ => {
                let id = path.strip_prefix("/api/runs/")?.strip_suffix("/cancel")?;
                Self::Cancel(RunId::parse(id)?)
            }
        })
    }

    const fn methods(&self) -> &'static [&'static str] {
        match self {
            Self::Cancel(_) | Self::Reload => &["POST"],
            Self::Log => &["GET", "HEAD", "PUT"],
            _ => &["GET", "HEAD"],
        }
    }

    /// Probes need no key.
    const fn is_probe(&self) -> bool {
        matches!(self, Self::Healthz | Self::Readyz)
    }
}

/// Answers one request.
pub(super) async fn serve(state: &State, request: &HttpRequest, payload: Payload) -> HttpResponse {
    let connection = info_of(request);
    match answer(state, request, &connection, payload).await {
        Ok(response) => with_headers(response),
        Err(fault) => refuse(state, request.head(), &connection, &fault),
    }
}

fn with_headers(mut response: HttpResponse) -> HttpResponse {
    let headers = response.headers_mut();
    headers.insert(HeaderName::from_static("cache-control"), HeaderValue::from_static("no-store"));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    response
}

/// Where a request goes, judged by its head alone, before a byte of its body is read or asked for. A page in the
/// operator's browser can reach the listener like any other server of the machine, so a foreign origin is refused even
/// without a key.
///
/// # Errors
/// The first failure of host, origin, method, credentials, and path.
pub(super) fn judge(state: &State, head: &RequestHead, connection: &ConnectionInfo) -> Result<Target, Fault> {
    let target = Target::find(head.uri.path());
    let is_probe = target.as_ref().is_some_and(Target::is_probe);
    let host = check_named_host(&state.hosts, head, is_probe)?;
    check_origin(&state.hosts, guard::Target::Operators, head, host.as_ref())?;
    if let Some(target) = &target
        && !target.methods().contains(&head.method.as_str())
    {
        let mut fault = Fault::new(FaultKind::MethodNotAllowed, format!("'{}' is not a method of this", head.method));
        fault.allow = target.methods().to_vec();
        return Err(fault);
    }
    if !is_probe {
        let key = state.admin.key.load();
        let certificate = state.admin.tls.as_ref().is_some_and(|tls| tls.load().verifier.is_some());
        let asked = Asked { key: key.as_deref(), certificate };
        check_credentials(&asked, &state.failures, head, connection)?;
    }
    target.ok_or_else(|| Fault::new(FaultKind::NoSuchPath, format!("nothing is at '{}'", head.uri.path())))
}

async fn answer(
    state: &State,
    request: &HttpRequest,
    connection: &ConnectionInfo,
    payload: Payload,
) -> Result<HttpResponse, Fault> {
    let head = request.head();
    let target = judge(state, head, connection)?;
    let body = read_body(request, payload).await?;
    connection.clock.on_body_end();
    if head.method == Method::GET || head.method == Method::HEAD {
        return show(state, request, &target);
    }
    change(state, request, target, &body).await
}

/// Answers without changing anything.
fn show(state: &State, request: &HttpRequest, target: &Target) -> Result<HttpResponse, Fault> {
    let admin = &state.admin;
    Ok(match target {
        Target::Healthz => ok(&json!({ "status": "ok" })),
        Target::Readyz => readiness(state),
        Target::Metrics => metrics(state, request),
        Target::Gateway => ok(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "started_at": admin.started,
            "accepting": admin.engine.is_open(),
            "active": admin.engine.working(),
            "reload": admin.reload.last(),
        })),
        Target::Config => ok(&admin.reload.config()),
        Target::Routes => ok(&admin.reload.routes()),
        Target::Agents => ok(&agents(state)),
        Target::Runs => ok(&runs(state, request.query_string())?),
        Target::Callers => ok(&admin.reload.callers()),
        Target::Log => ok(&json!({ "filter": admin.log.current() })),
        Target::Cancel(_) | Target::Reload => unreachable!("their methods are not GET"),
    })
}

async fn change(state: &State, request: &HttpRequest, target: Target, body: &[u8]) -> Result<HttpResponse, Fault> {
    let admin = &state.admin;
    match target {
        Target::Reload => {
            let reloaded = admin.reload.reload().await;
            Ok(match reloaded {
                Ok(done) => ok(&done),
                Err(errors) => answer_with(422, &errors),
            })
        }
        Target::Cancel(id) => {
            admin.engine.operator_cancel(id).await?;
            audit(state, request.peer_addr(), AuditEntry::new(Action::RunCanceled).target(id.to_string()));
            Ok(answer_with(202, &json!({ "id": id.to_string() })))
        }
        Target::Log => {
            let body: Value = serde_json::from_slice(body)
                .map_err(|error| Fault::new(FaultKind::Malformed, format!("the body is not JSON: {error}")))?;
            let Some(filter) = body.get("filter").and_then(Value::as_str) else {
                return Err(Fault::invalid("filter", "write {\"filter\": \"info\"}"));
            };
            admin.log.set(filter).map_err(|error| Fault::invalid("filter", error))?;
            audit(state, request.peer_addr(), AuditEntry::new(Action::LogLevel).detail(filter));
            tracing::info!(filter, "the log level was changed");
            Ok(ok(&json!({ "filter": filter })))
        }
        _ => unreachable!("the other paths only allow GET"),
    }
}

fn audit(state: &State, peer: Option<SocketAddr>, entry: AuditEntry) {
    let entry = entry.who("operator");
    state.admin.observer.load().audit(match peer {
        Some(peer) => entry.from(peer.ip()),
        None => entry,
    });
}

/// As clients' `/readyz`, with the reasons. An agent without any server is one, too.
fn readiness(state: &State) -> HttpResponse {
    let admin = &state.admin;
    let mut reasons = Vec::new();
    let (code, mut answer) = readiness::readiness(&admin.engine);
    if admin.engine.is_stopping() {
        reasons.push(json!({ "what": "draining" }));
    }
    if let Health::Failing { since, error } = admin.engine.health() {
        let detail = secrets::mask(&error.to_string()).into_owned();
        reasons.push(json!({ "what": "store", "since_s": since.elapsed().as_secs(), "detail": detail }));
    }
    let mut is_out = false;
    for agent in admin.engine.agents() {
        let endpoints = agent.upstream.pool().map(|pool| pool.status()).unwrap_or_default();
        if !endpoints.is_empty() && endpoints.iter().all(|endpoint| endpoint.state == "out") {
            let detail = "every endpoint is out";
            is_out = true;
            reasons.push(json!({ "what": "pool", "agent": agent.name, "detail": detail }));
        }
    }

    let is_ready = code == 200 && !is_out;
    answer["status"] = if is_ready { "ready" } else { "not ready" }.into();
    answer["reasons"] = reasons.into();
    answer_with(if is_ready { 200 } else { 503 }, &answer)
}

fn metrics(state: &State, request: &HttpRequest) -> HttpResponse {
    let accept = request.headers().get("accept").and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accept);
    let (connections, sockets) = state.admin.control.open();
    let levels = Levels { connections, sockets, ..state.admin.engine.levels() };
    let text = state.admin.observer.load().metrics().encode(format, &levels);
    HttpResponse::Ok().content_type(format.media_type()).body(text)
}

/// The agents with what is under way at each.
fn agents(state: &State) -> Value {
    let levels = state.admin.engine.levels();
    let number = |of: &[(std::sync::Arc<str>, usize)], name: &str| {
        of.iter().find(|(agent, _)| **agent == *name).map_or(0, |(_, number)| *number)
    };

    let (mut agents, live) = (state.admin.reload.agents(), state.admin.engine.agents());
    for agent in agents.as_array_mut().into_iter().flatten() {
        let name = agent["name"].as_str().unwrap_or_default().to_owned();
        let known = live.iter().find(|known| known.name == name);
        if let Some(pool) = known.and_then(|known| known.upstream.pool()) {
            agent["endpoints"] = pool.status().iter().map(endpoint).collect();
        }
        agent["active"] = number(&levels.runs_active, &name).into();
        agent["queued"] = number(&levels.queue_depth, &name).into();
    }
    agents
}

fn endpoint(status: &EndpointStatus) -> Value {
    json!({
        "key": status.key.as_str(),
        "url": status.url,
        "state": status.state,
        "reason": status.reason.as_ref().map(|reason| secrets::mask(&format!("{reason:?}")).into_owned()),
        "active": status.active,
        "queued": status.queued,
        "requests": status.requests,
        "retries": status.retries,
        "ejections": status.ejections,
    })
}

/// Live runs, by the parameters of the query.
fn runs(state: &State, query: &str) -> Result<Value, Fault> {
    let mut filter = LiveFilter { limit: MAX_RUNS, ..LiveFilter::default() };
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "agent" => filter.agent = Some(value.into_owned()),
            "state" => filter.state = Some(value.into_owned()),
            "cursor" => {
                let before = RunId::parse(&value).ok_or_else(|| Fault::invalid("cursor", "is not a run"))?;
                filter.before = Some(before);
            }
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=MAX_RUNS).contains(limit));
                let message = format!("must be between 1 and {MAX_RUNS}");
                filter.limit = limit.ok_or_else(|| Fault::invalid("limit", message))?;
            }
            other => return Err(Fault::invalid(other.to_owned(), "is not a parameter of this")),
        }
    }

    let found = state.admin.engine.live_runs(&filter);
    let next = (found.len() == filter.limit).then(|| found.last().map(|run| run.id.clone())).flatten();
    Ok(json!({ "runs": found, "next": next }))
}

async fn read_body(request: &HttpRequest, mut payload: Payload) -> Result<BytesMut, Fault> {
    let read = async {
        let mut body = BytesMut::new();
        while let Some(chunk) = payload.next().await {
            let chunk = chunk.map_err(|_| Fault::new(FaultKind::Malformed, "the body ended early"))?;
            if body.is_empty() && !chunk.is_empty() && !is_json(request.headers()) {
                return Err(Fault::new(FaultKind::UnsupportedMedia, "content-type must be 'application/json'"));
            }
            if body.len() + chunk.len() > MAX_BODY {
                return Err(Fault::new(FaultKind::TooLarge, format!("the body is larger than {MAX_BODY} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    };
    let late = |_| Err(Fault::new(FaultKind::Malformed, "the body did not come in time"));
    tokio::time::timeout(BODY_TIMEOUT, read).await.unwrap_or_else(late)
}

/// Answers a request that is refused. Refused keys, and what pages of other origins tried, are in the audit log.
pub(super) fn refuse(state: &State, head: &RequestHead, connection: &ConnectionInfo, fault: &Fault) -> HttpResponse {
    let (code, path, peer) = (fault.code(), head.uri.path(), Some(connection.peer));
    tracing::debug!(path, code, "admin request refused: {}", fault.message);
    match fault.kind {
        FaultKind::Unauthenticated => {
            audit(state, peer, AuditEntry::new(Action::CredentialRefused).target(path).detail("admin"));
        }
        FaultKind::Forbidden | FaultKind::Misdirected | FaultKind::RateLimited => {
            audit(state, peer, AuditEntry::new(Action::AdminCall).target(path).detail(code));
        }
        _ => {}
    }

    let mut response = answer_with(fault.kind.status(), &json!({ "detail": fault.message, "code": code }));
    let mut header = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    };
    if fault.kind == FaultKind::Unauthenticated {
        header("www-authenticate", "Bearer");
    }
    if !fault.allow.is_empty() {
        header("allow", &fault.allow.join(", "));
    }
    if let Some(pause) = fault.retry_after {
        header("retry-after", &seconds_rounded_up(pause).max(1).to_string());
    }
    with_headers(response)
}

fn ok(body: &Value) -> HttpResponse {
    answer_with(200, body)
}

fn answer_with(status: u16, body: &Value) -> HttpResponse {
    HttpResponse::build(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)).json(body)
}
