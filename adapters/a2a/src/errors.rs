//! A2A errors for each binding and version (docs/protocols/a2a.md#errors): one function maps a fault to a row of the
//! table, one writer encodes it in each of the four formats.

use std::borrow::Cow;

use interlingua_core::{Fault, FaultKind, Out};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::generation::{Dialect, Generation};

/// One row of the error table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Problem {
    TaskNotFound,
    TaskNotCancelable,
    PushNotSupported,
    UnsupportedOperation,
    /// Media type of a message part.
    ContentType,
    /// Media type of the request body.
    BodyType,
    InvalidAgentResponse,
    ExtendedCardNotConfigured,
    ExtensionRequired,
    VersionNotSupported,
    Parse,
    InvalidRequest,
    TooLarge,
    BadHead,
    HeadTooLarge,
    Misdirected,
    MethodNotFound,
    MethodNotAllowed,
    NotAcceptable,
    InvalidParams,
    Internal,
    Unauthenticated,
    Forbidden,
    Exhausted,
    UpstreamUnavailable,
    ShuttingDown,
}

/// Codes, statuses and texts of one row.
pub(crate) struct Row {
    /// JSON-RPC error code.
    pub(crate) code: i32,
    /// HTTP status over JSON-RPC.
    pub(crate) rpc_status: u16,
    /// HTTP status over REST, 1.0.
    pub(crate) http: u16,
    /// HTTP status over REST, 0.3.
    pub(crate) http_v03: u16,
    /// gRPC status name.
    pub(crate) status: &'static str,
    /// `reason` of ErrorInfo. Empty: no ErrorInfo.
    pub(crate) reason: &'static str,
    /// Error name over REST, 0.3.
    pub(crate) name: &'static str,
    /// Fixed message text; clients display and match it.
    pub(crate) message: &'static str,
    /// True if the fault's own message is included: after the fixed message in 1.0, in `data.detail` in 0.3.
    pub(crate) explains: bool,
}

impl Row {
    /// Message text of 0.3, whose table has exactly one per code.
    const fn v03_message(&self) -> &'static str {
        match self.code {
            -32600 => Problem::InvalidRequest.row().message,
            -32601 => Problem::MethodNotFound.row().message,
            -32603 => Problem::Internal.row().message,
            _ => self.message,
        }
    }
}

impl Problem {
    pub(crate) const ALL: [Self; 26] = [
        Self::TaskNotFound,
        Self::TaskNotCancelable,
        Self::PushNotSupported,
        Self::UnsupportedOperation,
        Self::ContentType,
        Self::BodyType,
        Self::InvalidAgentResponse,
        Self::ExtendedCardNotConfigured,
        Self::ExtensionRequired,
        Self::VersionNotSupported,
        Self::Parse,
        Self::InvalidRequest,
        Self::TooLarge,
        Self::BadHead,
        Self::HeadTooLarge,
        Self::Misdirected,
        Self::MethodNotFound,
        Self::MethodNotAllowed,
        Self::NotAcceptable,
        Self::InvalidParams,
        Self::Internal,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::Exhausted,
        Self::UpstreamUnavailable,
        Self::ShuttingDown,
    ];

    /// The row of a fault: by the code this adapter set, else by its kind.
    pub(crate) fn from_fault(fault: &Fault) -> Self {
        use FaultKind as K;
        if let Some(code) = &fault.code
            && let Some(problem) = Self::ALL.into_iter().find(|problem| problem.fault_code() == Some(code.as_str()))
        {
            return problem;
        }

        match fault.kind {
            K::Malformed => Self::Parse,
            K::Missing | K::WrongType | K::Invalid | K::Exclusive => Self::InvalidParams,
            K::Unsupported | K::Busy | K::Waiting | K::Conflict => Self::UnsupportedOperation,
            K::UnsupportedMedia => Self::BodyType,
            K::NotAcceptable => Self::NotAcceptable,
            // A2A has no error for a request that the agent behind refuses as invalid.
            K::UpstreamRefused | K::UpstreamContextTooLong | K::UpstreamFiltered | K::UpstreamNoSuchModel => {
                Self::InvalidRequest
            }
            K::UpstreamUnsupportedMedia => Self::ContentType,
            K::TooLarge | K::UpstreamInputTooLarge => Self::TooLarge,
            K::BadHead => Self::BadHead,
            K::HeadTooLarge => Self::HeadTooLarge,
            K::Misdirected => Self::Misdirected,
            K::Unauthenticated => Self::Unauthenticated,
            K::Forbidden => Self::Forbidden,
            K::NoSuchPath | K::NoSuchAgent => Self::MethodNotFound,
            K::MethodNotAllowed => Self::MethodNotAllowed,
            K::NotFound => Self::TaskNotFound,
            K::RateLimited | K::UpstreamRateLimited | K::UpstreamQuota => Self::Exhausted,
            K::UpstreamUnreachable | K::UpstreamOverloaded | K::UpstreamTimeout => Self::UpstreamUnavailable,
            K::UpstreamCredentials
            | K::UpstreamMisconfigured
            | K::UpstreamTruncated
            | K::UpstreamGarbage
            | K::UpstreamTooLarge
            | K::AgentFailed => Self::InvalidAgentResponse,
            K::ShuttingDown | K::Overloaded => Self::ShuttingDown,
            _ => Self::Internal,
        }
    }

    /// The code that [`fault`] sets on faults of this row. `None`: the row is found by fault kind only.
    const fn fault_code(self) -> Option<&'static str> {
        match self {
            Self::Parse => Some("A2A_PARSE"),
            Self::InvalidRequest => Some("A2A_INVALID_REQUEST"),
            Self::MethodNotFound => Some("A2A_METHOD_NOT_FOUND"),
            // Same reason as `ContentType`, so the code would be ambiguous.
            Self::BodyType => None,
            _ => {
                let reason = self.row().reason;
                if reason.is_empty() { None } else { Some(reason) }
            }
        }
    }

    pub(crate) const fn row(self) -> Row {
        const fn row(code: i32, http: [u16; 3], status: &'static str, names: [&'static str; 3], explains: bool) -> Row {
            let [rpc_status, http, http_v03] = http;
            let [reason, name, message] = names;
            Row { code, rpc_status, http, http_v03, status, reason, name, message, explains }
        }
        const BAD: &str = "INVALID_ARGUMENT";
        const UNMET: &str = "FAILED_PRECONDITION";
        match self {
            Self::TaskNotFound => row(
                -32001,
                [200, 404, 404],
                "NOT_FOUND",
                ["TASK_NOT_FOUND", "TaskNotFoundError", "Task not found"],
                false,
            ),
            Self::TaskNotCancelable => {
                let names = ["TASK_NOT_CANCELABLE", "TaskNotCancelableError", "Task cannot be canceled"];
                row(-32002, [200, 400, 409], UNMET, names, false)
            }
            Self::PushNotSupported => {
                let message = "Push Notification is not supported";
                let names = ["PUSH_NOTIFICATION_NOT_SUPPORTED", "PushNotificationNotSupportedError", message];
                row(-32003, [200, 400, 501], UNMET, names, false)
            }
            Self::UnsupportedOperation => {
                let names = ["UNSUPPORTED_OPERATION", "UnsupportedOperationError", "This operation is not supported"];
                row(-32004, [200, 400, 501], UNMET, names, true)
            }
            Self::ContentType => {
                let names =
                    ["CONTENT_TYPE_NOT_SUPPORTED", "ContentTypeNotSupportedError", "Incompatible content types"];
                row(-32005, [200, 400, 415], BAD, names, true)
            }
            Self::BodyType => {
                let names =
                    ["CONTENT_TYPE_NOT_SUPPORTED", "ContentTypeNotSupportedError", "Incompatible content types"];
                row(-32005, [200, 415, 415], BAD, names, true)
            }
            Self::InvalidAgentResponse => {
                let names = ["INVALID_AGENT_RESPONSE", "InvalidAgentResponseError", "Invalid agent response"];
                row(-32006, [200, 500, 502], "INTERNAL", names, true)
            }
            Self::ExtendedCardNotConfigured => {
                let message = "Authenticated Extended Card is not configured";
                let name = "AuthenticatedExtendedCardNotConfiguredError";
                row(-32007, [200, 400, 404], UNMET, ["EXTENDED_AGENT_CARD_NOT_CONFIGURED", name, message], false)
            }
            Self::ExtensionRequired => {
                let names =
                    ["EXTENSION_SUPPORT_REQUIRED", "ExtensionSupportRequiredError", "Extension support required"];
                row(-32008, [200, 400, 400], UNMET, names, true)
            }
            Self::VersionNotSupported => {
                let names = ["VERSION_NOT_SUPPORTED", "VersionNotSupportedError", "Version not supported"];
                row(-32009, [200, 400, 400], UNMET, names, true)
            }
            Self::Parse => row(-32700, [200, 400, 400], BAD, ["", "JSONParseError", "Invalid JSON payload"], true),
            Self::InvalidRequest => {
                row(-32600, [200, 400, 400], BAD, ["", "InvalidRequestError", "Request payload validation error"], true)
            }
            Self::TooLarge => {
                row(-32600, [413, 413, 413], BAD, ["", "InvalidRequestError", "Request payload too large"], true)
            }
            Self::BadHead => row(-32600, [400, 400, 400], BAD, ["", "InvalidRequestError", "Bad request"], true),
            Self::HeadTooLarge => {
                row(-32600, [431, 431, 431], BAD, ["", "InvalidRequestError", "Request head too large"], true)
            }
            Self::Misdirected => {
                row(-32600, [421, 421, 421], BAD, ["", "InvalidRequestError", "Misdirected request"], true)
            }
            Self::MethodNotFound => {
                row(-32601, [200, 404, 404], "NOT_FOUND", ["", "MethodNotFoundError", "Method not found"], true)
            }
            Self::MethodNotAllowed => {
                row(-32601, [405, 405, 405], "UNIMPLEMENTED", ["", "MethodNotFoundError", "Method not allowed"], false)
            }
            Self::NotAcceptable => {
                row(-32600, [406, 406, 406], BAD, ["", "InvalidRequestError", "Not acceptable"], true)
            }
            Self::InvalidParams => {
                row(-32602, [200, 400, 400], BAD, ["INVALID_PARAMS", "InvalidParamsError", "Invalid parameters"], false)
            }
            Self::Internal => row(-32603, [200, 500, 500], "INTERNAL", ["", "InternalError", "Internal error"], false),
            Self::Unauthenticated => {
                row(-32010, [401, 401, 401], "UNAUTHENTICATED", ["", "UnauthenticatedError", "Unauthenticated"], false)
            }
            Self::Forbidden => row(
                -32011,
                [403, 403, 403],
                "PERMISSION_DENIED",
                ["", "PermissionDeniedError", "Permission denied"],
                false,
            ),
            Self::Exhausted => {
                row(-32012, [429, 429, 429], "RESOURCE_EXHAUSTED", ["", "RateLimitError", "Too many requests"], true)
            }
            Self::UpstreamUnavailable => {
                let names = ["UPSTREAM_UNAVAILABLE", "InternalError", "The agent is not available"];
                row(-32603, [200, 503, 503], "UNAVAILABLE", names, true)
            }
            Self::ShuttingDown => {
                row(-32603, [503, 503, 503], "UNAVAILABLE", ["", "InternalError", "Service unavailable"], true)
            }
        }
    }
}

/// Creates a fault that maps to this row.
pub(crate) fn fault(problem: Problem, message: impl Into<String>) -> Fault {
    let kind = match problem {
        Problem::TaskNotFound => FaultKind::NotFound,
        Problem::TaskNotCancelable => FaultKind::Conflict,
        Problem::ContentType => FaultKind::UnsupportedMedia,
        Problem::Parse | Problem::InvalidRequest => FaultKind::Malformed,
        Problem::MethodNotFound => FaultKind::NoSuchPath,
        Problem::InvalidParams => FaultKind::Invalid,
        _ => FaultKind::Unsupported,
    };

    let fault = Fault::new(kind, message);
    match problem.fault_code() {
        Some(code) => fault.with_code(code),
        None => fault,
    }
}

/// An error with the request context that responses include.
pub(crate) struct ErrorReport<'a> {
    pub(crate) fault: &'a Fault,
    pub(crate) problem: Problem,
    /// Task id as written in the request.
    pub(crate) task: Option<&'a str>,
    /// Versions this route serves, for VersionNotSupported.
    pub(crate) versions: &'a [Generation],
}

impl<'a> ErrorReport<'a> {
    pub(crate) fn new(fault: &'a Fault, task: Option<&'a str>, versions: &'a [Generation]) -> Self {
        Self { fault, problem: Problem::from_fault(fault), task, versions }
    }

    fn message(&self, generation: Generation) -> Cow<'static, str> {
        let row = self.problem.row();
        match generation {
            // Clients of 0.3 match these texts exactly, so nothing is appended.
            Generation::V03 => row.v03_message().into(),
            Generation::V1 if row.explains && !self.fault.message.is_empty() => {
                format!("{}: {}", row.message, self.fault.message).into()
            }
            Generation::V1 => match self.omitted() {
                Some(more) => format!("{} ({more})", row.message).into(),
                None => row.message.into(),
            },
        }
    }

    /// Explanation for `data.detail` of 0.3, whose message text is fixed.
    fn detail(&self) -> Option<String> {
        let row = self.problem.row();
        if row.message != row.v03_message() {
            return Some(self.message(Generation::V1).into_owned());
        }

        let own = (row.explains && !self.fault.message.is_empty()).then(|| self.fault.message.clone());
        own.or_else(|| self.omitted())
    }

    fn omitted(&self) -> Option<String> {
        let more = self.fault.omitted_violations;
        (self.problem == Problem::InvalidParams && more > 0)
            .then(|| format!("{more} more invalid fields are not listed"))
    }

    fn violations(&self) -> impl Iterator<Item = Violation<'_>> {
        let first = (self.problem == Problem::InvalidParams).then_some(self.fault);
        let first =
            first.map(|fault| Violation { field: fault.field.as_deref().unwrap_or(""), description: &fault.message });

        let rest = self.fault.violations.iter();
        first.into_iter().chain(rest.map(|(field, description)| Violation { field, description }))
    }

    /// HTTP status of a non-streamed response.
    pub(crate) fn http(&self, dialect: Dialect) -> u16 {
        let row = self.problem.row();
        match (dialect.is_rpc(), dialect.generation) {
            (true, _) => row.rpc_status,
            (false, Generation::V03) => row.http_v03,
            (false, Generation::V1) => row.http,
        }
    }

    /// Sets the headers that some rows require.
    pub(crate) fn headers(&self, out: &mut Out) {
        if let Some(after) = self.fault.retry_after {
            out.header("retry-after", after.as_secs().max(1).to_string());
        } else if self.problem == Problem::Exhausted && self.fault.kind.retry_helps() {
            out.header("retry-after", "1");
        }

        if self.problem == Problem::MethodNotAllowed && !self.fault.allow.is_empty() {
            out.header("allow", self.fault.allow.join(", "));
        }
    }
}

#[derive(Serialize)]
struct Violation<'a> {
    field: &'a str,
    description: &'a str,
}

/// `metadata` of ErrorInfo: a map of strings.
struct ErrorMetadata<'a>(&'a ErrorReport<'a>);

impl ErrorMetadata<'_> {
    fn is_empty(&self) -> bool {
        self.pairs().next().is_none()
    }

    fn pairs(&self) -> impl Iterator<Item = (&'static str, String)> {
        let report = self.0;
        let task = report.task.map(|task| ("taskId", task.to_owned()));
        let versions = (report.problem == Problem::VersionNotSupported).then(|| {
            let versions: Vec<&str> = report.versions.iter().map(|version| version.as_str()).collect();
            ("supportedVersions", versions.join(","))
        });

        // The code of the fault is more specific than the row.
        let code = Some(report.fault.code()).filter(|code| {
            report.problem == Problem::InvalidAgentResponse && report.problem.fault_code() != Some(code)
        });

        task.into_iter().chain(versions).chain(code.map(|code| ("code", code.to_owned())))
    }
}

impl Serialize for ErrorMetadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.pairs())
    }
}

/// `details` over REST, `data` over JSON-RPC: ErrorInfo, plus BadRequest if fields are invalid.
struct Details<'a>(&'a ErrorReport<'a>);

impl Details<'_> {
    fn is_empty(&self) -> bool {
        self.0.problem.row().reason.is_empty()
    }
}

impl Serialize for Details<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct ErrorInfo<'a> {
            #[serde(rename = "@type")]
            kind: &'static str,
            reason: &'static str,
            domain: &'static str,
            metadata: ErrorMetadata<'a>,
        }
        #[derive(Serialize)]
        struct BadRequest<'a> {
            #[serde(rename = "@type")]
            kind: &'static str,
            #[serde(rename = "fieldViolations")]
            violations: Vec<Violation<'a>>,
        }
        #[derive(Serialize)]
        #[serde(untagged)]
        enum Detail<'a> {
            Info(ErrorInfo<'a>),
            Request(BadRequest<'a>),
        }

        let info = Detail::Info(ErrorInfo {
            kind: "type.googleapis.com/google.rpc.ErrorInfo",
            reason: self.0.problem.row().reason,
            domain: "a2a-protocol.org",
            metadata: ErrorMetadata(self.0),
        });
        let violations: Vec<Violation<'_>> = self.0.violations().collect();
        let request = (!violations.is_empty())
            .then_some(BadRequest { kind: "type.googleapis.com/google.rpc.BadRequest", violations })
            .map(Detail::Request);

        serializer.collect_seq([Some(info), request].into_iter().flatten())
    }
}

/// `data` of 0.3: the same information as one object.
struct V03Data<'a>(&'a ErrorReport<'a>);

impl V03Data<'_> {
    fn is_empty(&self) -> bool {
        ErrorMetadata(self.0).is_empty() && self.0.violations().next().is_none() && self.0.detail().is_none()
    }
}

impl Serialize for V03Data<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in ErrorMetadata(self.0).pairs() {
            map.serialize_entry(name, &value)?;
        }

        let violations: Vec<Violation<'_>> = self.0.violations().collect();
        if !violations.is_empty() {
            map.serialize_entry("fieldViolations", &violations)?;
        }

        if let Some(detail) = self.0.detail() {
            map.serialize_entry("detail", &detail)?;
        }
        map.end()
    }
}

/// The error object of a JSON-RPC response.
pub(crate) struct RpcError<'a>(pub(crate) &'a ErrorReport<'a>, pub(crate) Generation);

impl Serialize for RpcError<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("code", &self.0.problem.row().code)?;
        map.serialize_entry("message", &self.0.message(self.1))?;

        match self.1 {
            Generation::V1 if !Details(self.0).is_empty() => map.serialize_entry("data", &Details(self.0))?,
            Generation::V03 if !V03Data(self.0).is_empty() => map.serialize_entry("data", &V03Data(self.0))?,
            _ => {}
        }
        map.end()
    }
}

/// The body of a REST error response.
pub(crate) struct RestError<'a>(pub(crate) &'a ErrorReport<'a>, pub(crate) Dialect);

impl Serialize for RestError<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Inner<'a> {
            code: u16,
            status: &'static str,
            message: Cow<'static, str>,
            #[serde(skip_serializing_if = "Details::is_empty")]
            details: Details<'a>,
        }

        let row = self.0.problem.row();
        let mut map = serializer.serialize_map(None)?;

        match self.1.generation {
            Generation::V1 => map.serialize_entry(
                "error",
                &Inner {
                    code: self.0.http(self.1),
                    status: row.status,
                    message: self.0.message(Generation::V1),
                    details: Details(self.0),
                },
            )?,
            Generation::V03 => {
                // Client packages of 0.3 disagree on the field, so all of them are written.
                map.serialize_entry("type", row.name)?;
                map.serialize_entry("error", row.name)?;
                map.serialize_entry("code", &row.code)?;
                map.serialize_entry("message", &self.0.message(Generation::V03))?;
                if !V03Data(self.0).is_empty() {
                    map.serialize_entry("data", &V03Data(self.0))?;
                }
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests;
