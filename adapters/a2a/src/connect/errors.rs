//! Errors of an agent, in each of the forms there are, as faults; and which of them a turn can do something about.

use interlingua_core::connector::Refusal;
use interlingua_core::error_class::{self, retry_after};
use interlingua_core::filter::client_text;
use interlingua_core::model_error::{self, Complaint, map_refusal};
use interlingua_core::{Fault, FaultKind, Json};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::errors::Problem;

/// An error that an agent answered with.
#[derive(Clone, Debug)]
pub(super) struct AgentFault {
    /// None: not one of the protocol's.
    pub(super) problem: Option<Problem>,
    pub(super) fault: Fault,
}

/// The members of an error in all four forms: JSON-RPC, REST of 1.0 (below `error`), and the three ways in which
/// servers of 0.3 write it over REST.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Fields<'a> {
    #[serde(borrow)]
    code: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    details: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// `google.rpc.ErrorInfo`
#[derive(Default, Deserialize)]
#[serde(default)]
struct Info {
    reason: Option<String>,
}

fn word(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str::<String>(raw?.get()).ok().filter(|word| !word.is_empty())
}

impl AgentFault {
    /// Reads the `error` of a JSON-RPC answer or of a REST body.
    pub(super) fn read(error: &RawValue) -> Self {
        let fields: Fields<'_> = serde_json::from_str(error.get()).unwrap_or_default();
        let text = word(fields.message).or_else(|| serde_json::from_str(error.get()).ok()).unwrap_or_default();
        let mut found = Self::new(problem(&fields), &text, error.get());
        // A number of JSON-RPC that only the agent knows is its code.
        let code = fields.code.and_then(|code| Json::from_raw(code).decode::<i32>()).filter(|code| *code < 0);
        if let (None, FaultKind::AgentFailed, Some(code)) = (found.problem, found.fault.kind, code) {
            found.fault.code = Some(code.to_string());
        }
        found
    }

    /// The error in a REST body, if it contains one.
    pub(super) fn from_body(body: &[u8]) -> Option<Self> {
        let fields: Fields<'_> = serde_json::from_slice(body).ok()?;
        match fields.error {
            Some(error) if error.get().starts_with('{') => Some(Self::read(error)),
            Some(_) => {
                let text = word(fields.message).or_else(|| word(fields.error)).unwrap_or_default();
                Some(Self::new(problem(&fields), &text, &String::from_utf8_lossy(body)))
            }
            None if fields.code.is_some() && word(fields.message).is_some() => {
                let text = word(fields.message).unwrap_or_default();
                Some(Self::new(problem(&fields), &text, &String::from_utf8_lossy(body)))
            }
            None => None,
        }
    }

    /// Reads an answer whose status is no success.
    pub(super) fn from_refusal(refusal: &Refusal<'_>) -> Self {
        let by_status = map_refusal(refusal);
        let found = Self::from_body(refusal.body);
        let Some(Self { problem: Some(problem), mut fault }) = found else {
            return Self { problem: None, fault: by_status };
        };
        // A proxy in between has the last word about credentials, load and time.
        if matches!(refusal.status, 401 | 403 | 408 | 429 | 503 | 504 | 529) {
            return Self { problem: Some(problem), fault: by_status };
        }
        fault.upstream_status = by_status.upstream_status;
        fault.retry_after = by_status.retry_after;
        Self { problem: Some(problem), fault }
    }

    /// The error whose reason a fault has for its code.
    pub(super) fn problem_of(code: &str) -> Option<Problem> {
        find(|row| row.reason == code)
    }

    fn new(problem: Option<Problem>, text: &str, whole: &str) -> Self {
        let kind = kind_in(problem, text, whole);
        let shown = client_text("", text);
        let message = match kind {
            FaultKind::AgentFailed => shown,
            kind if problem.map(kind_of) == Some(kind) => format!("the agent refused the request: {shown}"),
            kind if error_class::is_about_the_request(kind) => {
                format!("{}: {shown}", error_class::sentence(kind, None))
            }
            kind => error_class::sentence(kind, None).into_owned(),
        };
        let mut fault = Fault::new(kind, message).with_detail(interlingua_core::filter::log_text(whole));
        fault.retry_after = retry_after(text).filter(|_| kind.retry_helps());
        // The reason is a word of the protocol: adapters that speak it repeat it.
        if let Some(problem) = problem.filter(|problem| kind_of(*problem) == kind && kind != FaultKind::AgentFailed) {
            let reason = problem.row().reason;
            if !reason.is_empty() {
                fault = fault.with_code(reason);
            }
        }
        Self { problem, fault }
    }
}

/// The error: by reason, then by name, then by code. The text is never used.
fn problem(fields: &Fields<'_>) -> Option<Problem> {
    for list in [fields.data, fields.details].into_iter().flatten() {
        let infos: Vec<Info> = serde_json::from_str(list.get()).unwrap_or_default();
        let reasons = infos.into_iter().filter_map(|info| info.reason);
        let known = reasons.into_iter().find_map(|reason| find(|row| row.reason == reason));
        if known.is_some() {
            return known;
        }
    }
    for name in [word(fields.kind), word(fields.error)].into_iter().flatten() {
        if let Some(problem) = find(|row| row.name == name) {
            return Some(problem);
        }
    }
    let code = fields.code.and_then(|code| Json::from_raw(code).decode::<i32>());
    if let Some(problem) = code.and_then(|code| find(|row| row.code == code)) {
        return Some(problem);
    }
    // Not always with details: then the status says it, where only one error has it.
    let status = word(fields.status)?;
    (status == "NOT_FOUND").then_some(Problem::TaskNotFound)
}

/// The first row of the table that fits: the general ones stand before those that share their code.
fn find(is_it: impl Fn(&crate::errors::Row) -> bool) -> Option<Problem> {
    Problem::ALL.into_iter().find(|problem| is_it(&problem.row()))
}

/// The kind of an error. Agents report the errors of their models under a general code.
fn kind_in(problem: Option<Problem>, text: &str, whole: &str) -> FaultKind {
    let kind = problem.map_or(FaultKind::AgentFailed, kind_of);
    if !matches!(kind, FaultKind::AgentFailed | FaultKind::UpstreamRefused | FaultKind::Invalid) {
        return kind;
    }
    let found = Complaint::parse(whole.as_bytes()).and_then(|complaint| complaint.class(None));
    let found = found.or_else(|| error_class::of_text(text));
    match found {
        // The protocol's own codes tell invalid requests apart.
        Some(FaultKind::UpstreamRefused) if problem.is_some() => kind,
        Some(found) if found != FaultKind::AgentFailed => found,
        _ => kind,
    }
}

/// The party that must act: the client for errors in its request's content, the gateway or the agent for errors in the
/// form of the gateway's request.
const fn kind_of(problem: Problem) -> FaultKind {
    match problem {
        Problem::TaskNotFound => FaultKind::NotFound,
        Problem::TaskNotCancelable => FaultKind::Conflict,
        Problem::UnsupportedOperation | Problem::ContentType | Problem::BodyType => FaultKind::Unsupported,
        Problem::InvalidParams => FaultKind::Invalid,
        Problem::Exhausted => FaultKind::UpstreamRateLimited,
        Problem::UpstreamUnavailable | Problem::ShuttingDown => FaultKind::UpstreamOverloaded,
        Problem::Unauthenticated | Problem::Forbidden => FaultKind::UpstreamCredentials,
        Problem::TooLarge => FaultKind::UpstreamInputTooLarge,
        Problem::MethodNotFound
        | Problem::MethodNotAllowed
        | Problem::VersionNotSupported
        | Problem::ExtensionRequired
        | Problem::Misdirected => FaultKind::UpstreamMisconfigured,
        Problem::InvalidAgentResponse | Problem::Internal => FaultKind::AgentFailed,
        _ => FaultKind::UpstreamRefused,
    }
}

/// The fault for an unreadable answer.
pub(super) fn garbage(data: &[u8]) -> Fault {
    let mut fault = model_error::garbage(data);
    fault.detail = fault.detail.map(|detail| interlingua_core::filter::log_text(&detail));
    fault
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(found: Option<AgentFault>) -> String {
        found.map_or_else(
            || "none".to_owned(),
            |AgentFault { problem, fault }| {
                format!("{problem:?} {} {}: {}", fault.kind.code(), fault.code(), fault.message)
            },
        )
    }

    #[test]
    fn every_form_of_an_error_is_read() {
        for (body, expected) in [
            (
                r#"{"error":{"code":404,"status":"NOT_FOUND","message":"Task not found","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND","domain":"a2a-protocol.org"}]}}"#,
                "Some(TaskNotFound) RESOURCE_NOT_FOUND TASK_NOT_FOUND: the agent refused the request: Task not found",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32004,"message":"no"}}"#,
                "Some(UnsupportedOperation) UNSUPPORTED UNSUPPORTED_OPERATION: the agent refused the request: no",
            ),
            (r#"{"type":"TaskNotCancelableError","message":"ended"}"#, "none"),
            (
                r#"{"type":"TaskNotCancelableError","error":"TaskNotCancelableError","code":-32002,"message":"ended"}"#,
                "Some(TaskNotCancelable) CONFLICT TASK_NOT_CANCELABLE: the agent refused the request: ended",
            ),
            (
                r#"{"error":{"code":-32603,"message":"RuntimeError: the model exploded"}}"#,
                "Some(Internal) AGENT_ERROR AGENT_ERROR: the model exploded",
            ),
            (
                r#"{"error":{"code":-32009,"message":"0.3 only","data":null}}"#,
                "Some(VersionNotSupported) UPSTREAM_MISCONFIGURED VERSION_NOT_SUPPORTED: the agent refused the request: 0.3 only",
            ),
            (r#"{"error":{"code":-1,"message":"x y"}}"#, "None AGENT_ERROR -1: x y"),
            (r#"{"error":"bad luck"}"#, "None AGENT_ERROR AGENT_ERROR: bad luck"),
            (r#"{"error":{}}"#, "None AGENT_ERROR AGENT_ERROR: the agent failed"),
            (r#"{"task":{}}"#, "none"),
            ("<html>", "none"),
        ] {
            assert_eq!(line(AgentFault::from_body(body.as_bytes())), expected, "{body}");
        }
    }

    #[test]
    fn a_status_decides_where_a_proxy_speaks() {
        let read = |status, body: &str| {
            let found = AgentFault::from_refusal(&Refusal { status, body: body.as_bytes(), retry_after: None });
            (found.problem, found.fault.kind)
        };
        let gone = r#"{"error":{"code":-32001,"message":"Task not found"}}"#;
        assert_eq!(read(404, gone), (Some(Problem::TaskNotFound), FaultKind::NotFound));
        assert_eq!(read(404, "<html>"), (None, FaultKind::UpstreamMisconfigured));
        assert_eq!(read(503, gone), (Some(Problem::TaskNotFound), FaultKind::UpstreamOverloaded));
        assert_eq!(read(429, "{}"), (None, FaultKind::UpstreamRateLimited));
    }
}
