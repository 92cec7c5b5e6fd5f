//! The paths of the admin listener. Reads change nothing, and every change is in the audit log.
//!
//! Probes, the files of the page and the sign-in need no credentials, and neither does `/metrics` if the configuration
//! says so. Reads need the role `view`; changes and the playground need the role `act`, except signing out.

use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::RequestHead;
use actix_web::http::Method;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::web::{BytesMut, Payload};
use actix_web::{HttpRequest, HttpResponse};
use futures_util::StreamExt as _;
use interlingua_core::duration::seconds_rounded_up;
use interlingua_core::{Fault, FaultKind, RunId};
use serde::Serialize;
use serde_json::{Value, json};

use super::answers::{answer_with, audit};
use super::guard::{OperatorIdentity, authenticate, identify, shows_credentials};
use super::views::{Page, Reason, Session};
use super::{AdminState, assets, export, feed, overview, pending, run_view, runs, samples, series, sign_in};
use interlingua_callers::bearer;
use interlingua_config::{ConsoleRole, MetricsAccess};
use interlingua_observe::metrics::{Format, Levels};
use interlingua_observe::{Action, AuditEntry};
use interlingua_server::connection::{ConnectionInfo, info_of};
use interlingua_server::guard::{self, check_named_host, check_origin, is_json};
use interlingua_server::readiness;

/// The largest body, in bytes.
const MAX_BODY: usize = 64 * 1024;
/// The largest body with a configuration, a message or answers to open items, in bytes.
const MAX_LARGE_BODY: usize = 1024 * 1024;
/// Timeout of a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of a configuration check, including the wait for other checks.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// The path prefix of requests to routes in the playground.
pub(super) const PLAYGROUND: &str = "/api/playground";

/// Maximum number of audit entries in one response.
const MAX_AUDIT: usize = 200;

/// A configuration to be checked.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Check {
    text: String,
}

/// The result of draining or resuming an agent.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(ts_rs::TS, schemars::JsonSchema))]
pub(super) struct DrainState<'a> {
    agent: &'a str,
    state: &'static str,
    /// Always `gateway`: other gateways that share the store are not affected, and a restart ends the drain.
    scope: &'static str,
}

/// The resource of a request.
pub(super) enum AdminResource {
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
    Asset,
    Session,
    Feed,
    Run(RunId),
    Export(RunId),
    Decide(RunId),
    /// Starts or ends the drain of an agent.
    Drain {
        agent: String,
        drains: bool,
    },
    Pending,
    /// A request to a route. The route checks its path and method.
    Playground,
    /// A sample request to a route, and its snippets.
    Sample,
    ConfigCheck,
    Audit,
    Series,
}

impl AdminResource {
    pub(super) fn find(path: &str) -> Option<Self> {
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
            "/api/session" => Self::Session,
            "/api/feed" => Self::Feed,
            "/api/pending" => Self::Pending,
            "/api/config/check" => Self::ConfigCheck,
            "/api/sample" => Self::Sample,
            "/api/audit" => Self::Audit,
            "/api/metrics" => Self::Series,
            _ if is_in_playground(path) => Self::Playground,
            _ => match path.strip_prefix("/api/runs/") {
                Some(rest) => Self::of_run(rest)?,
                None => match path.strip_prefix("/api/agents/") {
                    Some(rest) => Self::of_agent(rest)?,
                    None => assets::has(path).then_some(Self::Asset)?,
                },
            },
        })
    }

    fn of_run(rest: &str) -> Option<Self> {
        let (id, what) = rest.split_once('/').map_or((rest, None), |(id, what)| (id, Some(what)));
        let id = RunId::parse(id)?;
        match what {
            None => Some(Self::Run(id)),
            Some("cancel") => Some(Self::Cancel(id)),
            Some("export") => Some(Self::Export(id)),
            Some("decide") => Some(Self::Decide(id)),
            Some(_) => None,
        }
    }

    fn of_agent(rest: &str) -> Option<Self> {
        let (name, what) = rest.split_once('/')?;
        let agent = percent_encoding::percent_decode_str(name).decode_utf8().ok()?.into_owned();
        match what {
            "drain" => Some(Self::Drain { agent, drains: true }),
            "resume" => Some(Self::Drain { agent, drains: false }),
            _ => None,
        }
    }

    pub(super) const fn methods(&self) -> &'static [&'static str] {
        match self {
            Self::Cancel(_)
            | Self::Reload
            | Self::Decide(_)
            | Self::Drain { .. }
            | Self::ConfigCheck
            | Self::Sample => &["POST"],
            Self::Playground => &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
            Self::Session => &["POST", "GET", "DELETE"],
            Self::Run(_) => &["GET", "HEAD", "DELETE"],
            Self::Log => &["GET", "HEAD", "PUT"],
            _ => &["GET", "HEAD"],
        }
    }

    const fn is_probe(&self) -> bool {
        matches!(self, Self::Healthz | Self::Readyz)
    }

    /// Refuses parameters on paths without parameters. The other paths check their parameters themselves, or ignore
    /// them.
    fn check_query(&self, query: &str) -> Result<(), Fault> {
        let reads_it = matches!(
            self,
            Self::Healthz
                | Self::Readyz
                | Self::Metrics
                | Self::Asset
                | Self::Runs
                | Self::Feed
                | Self::Export(_)
                | Self::Pending
                | Self::Audit
                | Self::Series
        );
        match url::form_urlencoded::parse(query.as_bytes()).next() {
            Some((name, _)) if !reads_it => Err(Fault::invalid(name.into_owned(), "is not a parameter of this path")),
            _ => Ok(()),
        }
    }

    const fn max_body(&self) -> usize {
        if matches!(self, Self::Decide(_) | Self::ConfigCheck | Self::Sample) { MAX_LARGE_BODY } else { MAX_BODY }
    }

    /// True for resources that exist with the console only.
    pub(super) const fn is_of_console(&self) -> bool {
        matches!(
            self,
            Self::Asset
                | Self::Session
                | Self::Feed
                | Self::Run(_)
                | Self::Export(_)
                | Self::Decide(_)
                | Self::Pending
                | Self::Playground
                | Self::Sample
                | Self::ConfigCheck
                | Self::Audit
                | Self::Series
        )
    }

    /// True if credentials are ignored: probes show only the state of agents, the files of the page contain no data,
    /// and a sign-in has its key in the body.
    pub(super) fn is_open(&self, method: &Method) -> bool {
        self.is_probe() || matches!(self, Self::Asset) || matches!(self, Self::Session) && method == Method::POST
    }

    /// The role that a request needs.
    pub(super) fn role(&self, method: &Method) -> ConsoleRole {
        let is_change = method != Method::GET && method != Method::HEAD;
        match self {
            // Signing out ends only the person's own bearer.
            Self::Session => ConsoleRole::View,
            Self::Playground => ConsoleRole::Act,
            _ if is_change => ConsoleRole::Act,
            _ => ConsoleRole::View,
        }
    }
}

/// True for paths below [`PLAYGROUND`].
pub(super) fn is_in_playground(path: &str) -> bool {
    path.strip_prefix(PLAYGROUND).is_some_and(|rest| rest.starts_with('/'))
}

/// Answers a request.
pub(super) async fn serve(state: &Arc<AdminState>, request: &HttpRequest, payload: Payload) -> HttpResponse {
    let connection = info_of(request);
    match answer(state, request, &connection, payload).await {
        Ok(response) => with_headers(response),
        Err(fault) => refuse(state, request.head(), &connection, &fault),
    }
}

pub(super) fn with_headers(mut response: HttpResponse) -> HttpResponse {
    let headers = response.headers_mut();
    if !headers.contains_key("cache-control") {
        headers.insert(HeaderName::from_static("cache-control"), HeaderValue::from_static("no-store"));
    }
    assets::protect(headers);
    response
}

/// Checks a request by its head, before the first byte of the body is read or requested. A page in the operator's
/// browser can reach the listener like any other server of the machine, so foreign origins are refused even with valid
/// credentials.
///
/// # Errors
/// The first failure of: host, origin, method, credentials, path, role.
pub(super) fn check_head(
    state: &AdminState,
    head: &RequestHead,
    connection: &ConnectionInfo,
) -> Result<(AdminResource, OperatorIdentity), Fault> {
    let access = state.admin.access.load();
    let target = AdminResource::find(head.uri.path()).filter(|target| access.console || !target.is_of_console());
    let is_probe = target.as_ref().is_some_and(AdminResource::is_probe);
    let host = check_named_host(&state.hosts, head, is_probe)?;
    check_origin(&state.hosts, guard::RequestTarget::Operators, head, host.as_ref())?;
    if let Some(target) = &target
        && !target.methods().contains(&head.method.as_str())
    {
        let mut fault =
            Fault::new(FaultKind::MethodNotAllowed, format!("'{}' is not a method of this path", head.method));
        fault.allow = target.methods().to_vec();
        return Err(fault);
    }
    let is_open = target.as_ref().is_some_and(|target| target.is_open(&head.method));
    // Refuse wrong credentials even where none are needed, so that a scraper with an old key is noticed.
    let is_open = is_open
        || matches!(target, Some(AdminResource::Metrics))
            && access.metrics == MetricsAccess::Open
            && !shows_credentials(head);
    let who = if is_open { OperatorIdentity::anyone() } else { identify(state, head, connection)? };
    let target =
        target.ok_or_else(|| Fault::new(FaultKind::NoSuchPath, format!("no such path: '{}'", head.uri.path())))?;
    if !is_open {
        who.check(target.role(&head.method))?;
    }
    Ok((target, who))
}

async fn answer(
    state: &Arc<AdminState>,
    request: &HttpRequest,
    connection: &ConnectionInfo,
    payload: Payload,
) -> Result<HttpResponse, Fault> {
    let head = request.head();
    let (target, who) = check_head(state, head, connection)?;
    target.check_query(head.uri.query().unwrap_or_default())?;
    let body = read_body(request, payload, target.max_body()).await?;
    connection.on_body_end();
    if head.method == Method::GET || head.method == Method::HEAD {
        if matches!(
            target,
            AdminResource::Feed
                | AdminResource::Run(_)
                | AdminResource::Export(_)
                | AdminResource::Runs
                | AdminResource::Pending
        ) {
            return read_runs(state, request, &target, who).await;
        }
        return show(state, request, &target, &who);
    }
    change(state, request, connection, target, &who, &body).await
}

/// Answers a read that needs no store.
fn show(
    state: &AdminState,
    request: &HttpRequest,
    target: &AdminResource,
    who: &OperatorIdentity,
) -> Result<HttpResponse, Fault> {
    let admin = &state.admin;
    Ok(match target {
        AdminResource::Healthz => ok(&json!({ "status": "ok" })),
        AdminResource::Readyz => readiness(state),
        AdminResource::Metrics => metrics(state, request),
        AdminResource::Gateway => ok(&overview::gateway(state)),
        AdminResource::Config => ok(&admin.reload.config()),
        AdminResource::Routes => ok(&whole(overview::routes(state))),
        AdminResource::Agents => {
            let (agents, texts) = (overview::agents(state), who.reads(admin.access.load().texts));
            let shown = agents.into_iter().map(|agent| if texts { agent } else { agent.without_texts() });
            ok(&whole(shown.collect()))
        }
        AdminResource::Callers => ok(&admin.reload.callers()),
        AdminResource::Log => ok(&json!({ "filter": admin.log.current() })),
        AdminResource::Audit => ok(&audit_page(state, request.query_string())?),
        AdminResource::Series => HttpResponse::Ok().json(series::view(state, request.query_string())?),
        AdminResource::Asset => {
            let served = assets::serve(request.path(), request.headers());
            return served.ok_or_else(|| Fault::new(FaultKind::NoSuchPath, "no such file"));
        }
        AdminResource::Session => match &who.session {
            Some(session) => ok(&sign_in::view(state, session)),
            None => ok(&Session {
                bearer: None,
                name: who.name.clone(),
                role: who.role.unwrap_or(ConsoleRole::View),
                until: None,
            }),
        },
        _ => unreachable!("`read_runs` answers the other reads"),
    })
}

/// A page of the audit log, the latest entry first. The cursor is the number of the last entry of the previous page.
fn audit_page(state: &AdminState, query: &str) -> Result<Page<AuditEntry>, Fault> {
    let (mut limit, mut before) = (MAX_AUDIT, u64::MAX);
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "limit" => {
                let read = value.parse().ok().filter(|limit| (1..=MAX_AUDIT).contains(limit));
                limit = read.ok_or_else(|| Fault::invalid("limit", format!("must be between 1 and {MAX_AUDIT}")))?;
            }
            "cursor" => {
                before = value.parse().map_err(|_| Fault::invalid("cursor", "is not the start of a page"))?;
            }
            other => return Err(Fault::invalid(other.to_owned(), "is not a parameter of this path")),
        }
    }
    let (entries, next) = state.admin.observer.load().recent_audit(before, limit);
    Ok(Page { data: entries, total: None, next: next.map(|next| next.to_string()) })
}

/// A list that fits into one page.
fn whole<T>(data: Vec<T>) -> Page<T> {
    Page { total: Some(data.len()), data, next: None }
}

/// Answers a read that needs the store.
async fn read_runs(
    state: &Arc<AdminState>,
    request: &HttpRequest,
    target: &AdminResource,
    who: OperatorIdentity,
) -> Result<HttpResponse, Fault> {
    let (query, texts) = (request.query_string(), who.reads(state.admin.access.load().texts));
    match target {
        AdminResource::Feed => {
            let last = request.headers().get("last-event-id").and_then(|value| value.to_str().ok());
            let wanted = feed::FeedParams::parse(query, last)?;
            if let Some(run) = wanted.run() {
                let run = state.admin.engine.operator().find(run).await?;
                state.opened.record(state, request.peer_addr(), &who, &run);
            }
            feed::open(state, who, wanted).await
        }
        AdminResource::Run(id) => {
            let run = state.admin.engine.operator().find(*id).await?;
            state.opened.record(state, request.peer_addr(), &who, &run);
            Ok(ok(&run_view::detail(state, texts, *id).await?))
        }
        AdminResource::Export(id) => {
            let masked = export::is_masked(query)?;
            let run = state.admin.engine.operator().find(*id).await?;
            state.opened.record(state, request.peer_addr(), &who, &run);
            export::file(state, who, masked, *id, run).await
        }
        AdminResource::Pending => Ok(ok(&pending::list(state, query, texts).await?)),
        _ => Ok(ok(&runs::list(state, query, texts).await?)),
    }
}

async fn change(
    state: &Arc<AdminState>,
    request: &HttpRequest,
    connection: &ConnectionInfo,
    target: AdminResource,
    who: &OperatorIdentity,
    body: &[u8],
) -> Result<HttpResponse, Fault> {
    let admin = &state.admin;
    let note = |entry: AuditEntry| audit(state, request.peer_addr(), &who.name, entry);
    match target {
        AdminResource::Session if request.method() == Method::POST => sign_in::begin(state, connection, body).await,
        AdminResource::Session => {
            let header = request.headers().get("authorization").and_then(|value| value.to_str().ok());
            Ok(sign_in::end(state, who, connection, header.and_then(bearer)))
        }
        AdminResource::Run(id) => {
            let operator = admin.engine.operator();
            let run = operator.find(id).await?;
            operator.delete(id, pending::scope_of(state, &run)?).await?;
            state.deleted.add(id);
            note(AuditEntry::new(Action::RunDeleted).target(id.to_string()));
            Ok(HttpResponse::NoContent().finish())
        }
        AdminResource::ConfigCheck => {
            let read: Check = serde_json::from_slice(body)
                .map_err(|error| Fault::invalid("text", format!("write {{\"text\": \"…\"}}: {error}")))?;
            let busy = || Fault::new(FaultKind::Overloaded, "the check of the configuration timed out");
            let checking = tokio::time::timeout(CHECK_TIMEOUT, async {
                // The permit moves into the thread: after a timeout, a check that never returns still blocks other
                // checks, so that threads do not pile up.
                let turn = Arc::clone(&state.checks).acquire_owned().await.map_err(|_| busy())?;
                let reload = Arc::clone(&admin.reload);
                let check = move || {
                    let _turn = turn;
                    reload.check(&read.text)
                };
                let failed =
                    |error| Fault::new(FaultKind::Internal, "the check of the configuration failed").with_source(error);
                tokio::task::spawn_blocking(check).await.map_err(failed)
            });
            Ok(ok(&checking.await.map_err(|_| busy())??))
        }
        AdminResource::Decide(id) => {
            let (continued, decided) = pending::decide(state, id, &who.name, body).await.map_err(with_items_field)?;
            note(AuditEntry::new(Action::Decision).target(id.to_string()).detail(&decided));
            Ok(answer_with(202, &json!({ "run": continued.to_string() })))
        }
        AdminResource::Sample => Ok(ok(&samples::make(state, who, body).await?)),
        AdminResource::Reload => {
            let reloaded = admin.reload.reload().await;
            Ok(match reloaded {
                Ok(done) => ok(&done),
                Err(errors) => answer_with(422, &errors),
            })
        }
        AdminResource::Cancel(id) => {
            admin.engine.operator().cancel(id).await?;
            note(AuditEntry::new(Action::RunCanceled).target(id.to_string()));
            Ok(answer_with(202, &json!({ "id": id.to_string() })))
        }
        AdminResource::Drain { agent, drains } => {
            if !admin.engine.set_draining(&agent, drains) {
                return Err(Fault::new(FaultKind::NoSuchAgent, format!("no agent is called '{agent}'")));
            }
            note(AuditEntry::new(Action::Drain).target(&agent).detail(if drains { "drain" } else { "resume" }));
            let state = if drains { "draining" } else { "ready" };
            Ok(HttpResponse::Ok().json(DrainState { agent: &agent, state, scope: "gateway" }))
        }
        AdminResource::Log => {
            let body: Value = serde_json::from_slice(body)
                .map_err(|error| Fault::new(FaultKind::Malformed, format!("the body is not JSON: {error}")))?;
            let Some(filter) = body.get("filter").and_then(Value::as_str) else {
                return Err(Fault::invalid("filter", "write {\"filter\": \"info\"}"));
            };
            admin.log.set(filter).map_err(|error| Fault::invalid("filter", error))?;
            note(AuditEntry::new(Action::LogLevel).detail(filter));
            tracing::info!(filter, "the log level was changed");
            Ok(ok(&json!({ "filter": filter })))
        }
        _ => unreachable!("the other paths allow only GET"),
    }
}

/// Adds the field `items` to the fault of an invalid decision without a field.
fn with_items_field(fault: Fault) -> Fault {
    if fault.kind == FaultKind::Invalid && fault.field.is_none() { fault.with_field("items") } else { fault }
}

/// Like `/readyz` for clients, with the reasons. An agent with only ejected endpoints is a reason, too.
fn readiness(state: &AdminState) -> HttpResponse {
    let admin = &state.admin;
    let mut reasons = overview::reasons(state);
    let (code, mut answer) = readiness::readiness(&admin.engine);
    let mut is_out = false;
    for agent in admin.engine.agents() {
        let endpoints = agent.upstream.pool().map(|pool| pool.status()).unwrap_or_default();
        if !endpoints.is_empty() && endpoints.iter().all(|endpoint| endpoint.state == "out") {
            let detail = "every endpoint is out";
            is_out = true;
            let (agent, detail) = (Some(agent.name.clone()), Some(detail.to_owned()));
            reasons.push(Reason { what: "pool", agent, since_s: None, detail });
        }
    }

    let is_ready = code == 200 && !is_out;
    answer["status"] = if is_ready { "ready" } else { "not ready" }.into();
    answer["reasons"] = json!(reasons);
    answer_with(if is_ready { 200 } else { 503 }, &answer)
}

fn metrics(state: &AdminState, request: &HttpRequest) -> HttpResponse {
    let accept = request.headers().get("accept").and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accept);
    let (connections, sockets) = state.admin.control.open();
    let levels = Levels { connections, sockets, ..state.admin.engine.levels() };
    let text = state.admin.observer.load().metrics().encode(format, &levels);
    HttpResponse::Ok().content_type(format.media_type()).body(text)
}

async fn read_body(request: &HttpRequest, mut payload: Payload, limit: usize) -> Result<BytesMut, Fault> {
    let read = async {
        let mut body = BytesMut::new();
        while let Some(chunk) = payload.next().await {
            let chunk = chunk.map_err(|_| Fault::new(FaultKind::Malformed, "the body ended early"))?;
            if body.is_empty() && !chunk.is_empty() && !is_json(request.headers()) {
                return Err(Fault::new(FaultKind::UnsupportedMedia, "content-type must be 'application/json'"));
            }
            if body.len() + chunk.len() > limit {
                return Err(Fault::new(FaultKind::TooLarge, format!("the body is larger than {limit} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    };
    let late = |_| Err(Fault::new(FaultKind::Malformed, "the body did not arrive in time"));
    tokio::time::timeout(BODY_TIMEOUT, read).await.unwrap_or_else(late)
}

/// Answers a refused request. Refused keys, and attempts of pages of other origins, are in the audit log.
pub(super) fn refuse(
    state: &AdminState,
    head: &RequestHead,
    connection: &ConnectionInfo,
    fault: &Fault,
) -> HttpResponse {
    let (code, path, peer) = (fault.code(), head.uri.path(), Some(connection.peer));
    tracing::debug!(path, code, "admin request refused: {}", fault.message);
    match fault.kind {
        FaultKind::Unauthenticated => {
            audit(state, peer, "", AuditEntry::new(Action::CredentialRefused).target(path).detail("admin"));
        }
        FaultKind::Forbidden | FaultKind::Misdirected | FaultKind::RateLimited => {
            let who = authenticate(state, head, connection).map(|who| who.name).unwrap_or_default();
            audit(state, peer, &who, AuditEntry::new(Action::AdminCall).refused().target(path).detail(code));
        }
        _ => {}
    }

    let mut body = json!({ "detail": fault.message, "code": code });
    if let Some(field) = &fault.field {
        body["field"] = field.to_string().into();
    }
    // 422 is for errors in the body of a decision. A parameter in the address is refused like on every other path.
    let is_decision = path.ends_with("/decide") && head.uri.query().is_none() && fault.kind == FaultKind::Invalid;
    let mut response = answer_with(if is_decision { 422 } else { fault.kind.status() }, &body);
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

fn ok<T: Serialize + ?Sized>(body: &T) -> HttpResponse {
    answer_with(200, body)
}
