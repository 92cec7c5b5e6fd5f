//! Errors between a client and its answer, classified by the party that must act.
//!
//! Each kind has one stable code and one default HTTP status. Each adapter has exactly one function that maps a kind to
//! the protocol's own code.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The party that must act to resolve a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The client: the request is wrong.
    Client,
    /// The agent, or the network on the way to it.
    Upstream,
    /// A bug, an overload, or a shutdown.
    Gateway,
}

impl Blame {
    /// The value in log lines.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Upstream => "upstream",
            Self::Gateway => "gateway",
        }
    }
}

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// The request head is invalid HTTP, such as a malformed or duplicate `Host`.
    BadHead,
    /// The request head is larger than the server allows.
    HeadTooLarge,
    /// The request names a host that this gateway does not serve.
    Misdirected,
    /// The body is not JSON, not UTF-8, or not an object.
    Malformed,
    /// A required field is missing.
    Missing,
    /// A field has the wrong type.
    WrongType,
    /// A field has an invalid value.
    Invalid,
    /// Mutually exclusive fields are both present.
    Exclusive,
    /// Valid, but not supported.
    Unsupported,
    /// The endpoint does not accept this content type.
    UnsupportedMedia,
    /// No available media type satisfies the client's `Accept`.
    NotAcceptable,
    /// The body exceeds the size limit.
    TooLarge,
    /// Missing or wrong credentials.
    Unauthenticated,
    /// Insufficient permissions.
    Forbidden,
    /// No endpoint has this path.
    NoSuchPath,
    /// The path exists, but not with this method.
    MethodNotAllowed,
    /// The run, session or item does not exist, or belongs to another caller.
    NotFound,
    /// The route has no such agent.
    NoSuchAgent,
    /// The session has an active run.
    Busy,
    /// The session waits for an answer to a pending item.
    Waiting,
    /// The current state does not allow the operation, for example because the run has ended.
    Conflict,
    /// The caller exceeded its rate limit.
    RateLimited,
    /// The agent could not be reached.
    UpstreamUnreachable,
    /// The agent rejected the request as invalid.
    UpstreamRefused,
    /// The conversation is too long for the agent's model.
    UpstreamContextTooLong,
    /// A content filter of the agent rejected the request.
    UpstreamFiltered,
    /// The agent does not accept a picture or a file of the request.
    UpstreamUnsupportedMedia,
    /// The request exceeds a size limit of the agent.
    UpstreamInputTooLarge,
    /// The agent does not have the model.
    UpstreamNoSuchModel,
    /// The agent rejected the credentials or the permissions of the gateway.
    UpstreamCredentials,
    /// The agent has nothing at the configured URL, or redirects elsewhere.
    UpstreamMisconfigured,
    /// The agent's rate limit was exceeded.
    UpstreamRateLimited,
    /// The agent's quota is used up.
    UpstreamQuota,
    /// The agent has no capacity at the moment.
    UpstreamOverloaded,
    /// The agent sent nothing within the configured timeout.
    UpstreamTimeout,
    /// The agent's response ended early.
    UpstreamTruncated,
    /// The agent's response could not be parsed.
    UpstreamGarbage,
    /// The agent's response exceeds the size limit of a run.
    UpstreamTooLarge,
    /// The agent reported an error.
    AgentFailed,
    /// The run was canceled.
    Canceled,
    /// The gateway restarted while the run was active.
    Restarted,
    /// The gateway is shutting down.
    ShuttingDown,
    /// The gateway has no capacity left.
    Overloaded,
    /// A bug in the gateway.
    Internal,
}

impl FaultKind {
    /// The party that must act.
    #[must_use]
    pub const fn blame(self) -> Blame {
        use FaultKind as K;
        match self {
            K::UpstreamUnreachable
            | K::UpstreamRefused
            | K::UpstreamContextTooLong
            | K::UpstreamFiltered
            | K::UpstreamUnsupportedMedia
            | K::UpstreamInputTooLarge
            | K::UpstreamNoSuchModel
            | K::UpstreamCredentials
            | K::UpstreamMisconfigured
            | K::UpstreamRateLimited
            | K::UpstreamQuota
            | K::UpstreamOverloaded
            | K::UpstreamTimeout
            | K::UpstreamTruncated
            | K::UpstreamGarbage
            | K::UpstreamTooLarge
            | K::AgentFailed => Blame::Upstream,
            K::Restarted | K::ShuttingDown | K::Overloaded | K::Internal => Blame::Gateway,
            _ => Blame::Client,
        }
    }

    /// The stable code in native answers and in the log.
    #[must_use]
    pub const fn code(self) -> &'static str {
        use FaultKind as K;
        match self {
            K::BadHead => "BAD_REQUEST",
            K::HeadTooLarge => "HEAD_TOO_LARGE",
            K::Misdirected => "MISDIRECTED_REQUEST",
            K::Malformed => "MALFORMED_REQUEST",
            K::Missing => "MISSING_PARAMETER",
            K::WrongType => "PARAMETER_VALIDATION",
            K::Invalid | K::Exclusive => "INVALID_PARAMETER",
            K::Unsupported => "UNSUPPORTED",
            K::UnsupportedMedia => "UNSUPPORTED_MEDIA_TYPE",
            K::NotAcceptable => "NOT_ACCEPTABLE",
            K::TooLarge => "REQUEST_TOO_LARGE",
            K::Unauthenticated => "AUTH_FAILED",
            K::Forbidden => "PERMISSION_DENIED",
            K::NoSuchPath => "PATH_NOT_FOUND",
            K::MethodNotAllowed => "METHOD_NOT_ALLOWED",
            K::NotFound => "RESOURCE_NOT_FOUND",
            K::NoSuchAgent => "AGENT_NOT_FOUND",
            K::Busy => "SESSION_BUSY",
            K::Waiting => "SESSION_WAITING",
            K::Conflict => "CONFLICT",
            K::RateLimited => "RATE_LIMIT_EXCEEDED",
            K::UpstreamUnreachable => "UPSTREAM_UNREACHABLE",
            K::UpstreamRefused => "UPSTREAM_REFUSED",
            K::UpstreamContextTooLong => "MODEL_CONTEXT_LENGTH_EXCEEDED",
            K::UpstreamFiltered => "MODEL_CONTENT_FILTERED",
            K::UpstreamUnsupportedMedia => "UPSTREAM_UNSUPPORTED_MEDIA",
            K::UpstreamInputTooLarge => "UPSTREAM_INPUT_TOO_LARGE",
            K::UpstreamNoSuchModel => "MODEL_NOT_FOUND",
            K::UpstreamCredentials => "UPSTREAM_AUTH_FAILED",
            K::UpstreamMisconfigured => "UPSTREAM_MISCONFIGURED",
            K::UpstreamRateLimited => "UPSTREAM_RATE_LIMITED",
            K::UpstreamQuota => "MODEL_QUOTA_EXCEEDED",
            K::UpstreamOverloaded => "UPSTREAM_OVERLOADED",
            K::UpstreamTimeout => "UPSTREAM_TIMEOUT",
            K::UpstreamTruncated => "UPSTREAM_TRUNCATED",
            K::UpstreamGarbage => "UPSTREAM_PROTOCOL_ERROR",
            K::UpstreamTooLarge => "UPSTREAM_TOO_LARGE",
            K::AgentFailed => "AGENT_ERROR",
            K::Canceled => "CANCELED",
            K::Restarted => "GATEWAY_RESTARTED",
            K::ShuttingDown => "GATEWAY_SHUTTING_DOWN",
            K::Overloaded => "GATEWAY_OVERLOADED",
            K::Internal => "GATEWAY_ERROR",
        }
    }

    /// The kind that a run's error code stands for. `None`: the code is an agent's own.
    #[must_use]
    pub fn of_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.code() == code)
    }

    /// The HTTP status, unless the protocol defines its own.
    #[must_use]
    pub const fn status(self) -> u16 {
        use FaultKind as K;
        match self {
            K::BadHead
            | K::Malformed
            | K::Missing
            | K::WrongType
            | K::Invalid
            | K::Exclusive
            | K::Unsupported
            | K::UpstreamRefused
            | K::UpstreamContextTooLong
            | K::UpstreamFiltered
            | K::UpstreamUnsupportedMedia => 400,
            K::Unauthenticated => 401,
            K::Forbidden => 403,
            K::NoSuchPath | K::NotFound | K::NoSuchAgent | K::UpstreamNoSuchModel => 404,
            K::MethodNotAllowed => 405,
            K::NotAcceptable => 406,
            K::Busy | K::Waiting | K::Conflict | K::Canceled => 409,
            K::TooLarge | K::UpstreamInputTooLarge => 413,
            K::UnsupportedMedia => 415,
            K::Misdirected => 421,
            K::HeadTooLarge => 431,
            K::RateLimited | K::UpstreamRateLimited | K::UpstreamQuota => 429,
            K::UpstreamUnreachable
            | K::UpstreamCredentials
            | K::UpstreamMisconfigured
            | K::UpstreamTruncated
            | K::UpstreamGarbage
            | K::UpstreamTooLarge
            | K::AgentFailed => 502,
            K::ShuttingDown | K::Overloaded | K::UpstreamOverloaded => 503,
            K::UpstreamTimeout => 504,
            K::Restarted | K::Internal => 500,
        }
    }

    /// True if the agent may have started to work on the request: an automatic retry would do the work twice.
    #[must_use]
    pub const fn may_have_side_effects(self) -> bool {
        use FaultKind as K;
        matches!(
            self,
            K::UpstreamTruncated
                | K::UpstreamGarbage
                | K::UpstreamTooLarge
                | K::UpstreamTimeout
                | K::AgentFailed
                | K::Canceled
        )
    }

    /// False if the same request cannot succeed, or could make the agent do its work twice: clients must not repeat it
    /// automatically. `Restarted` and `ShuttingDown` are exceptions: the agent may have worked on the run.
    #[must_use]
    pub const fn retry_helps(self) -> bool {
        use FaultKind as K;
        let is_temporary = matches!(self, K::UpstreamUnreachable | K::UpstreamRateLimited | K::UpstreamOverloaded);
        let is_final = matches!(self.blame(), Blame::Upstream) && !is_temporary;
        !is_final && !self.may_have_side_effects()
    }

    /// Every kind, for the mapping tables in the tests of adapters.
    pub const ALL: &'static [Self] = &[
        Self::BadHead,
        Self::HeadTooLarge,
        Self::Misdirected,
        Self::Malformed,
        Self::Missing,
        Self::WrongType,
        Self::Invalid,
        Self::Exclusive,
        Self::Unsupported,
        Self::UnsupportedMedia,
        Self::NotAcceptable,
        Self::TooLarge,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NoSuchPath,
        Self::MethodNotAllowed,
        Self::NotFound,
        Self::NoSuchAgent,
        Self::Busy,
        Self::Waiting,
        Self::Conflict,
        Self::RateLimited,
        Self::UpstreamUnreachable,
        Self::UpstreamRefused,
        Self::UpstreamContextTooLong,
        Self::UpstreamFiltered,
        Self::UpstreamUnsupportedMedia,
        Self::UpstreamInputTooLarge,
        Self::UpstreamNoSuchModel,
        Self::UpstreamCredentials,
        Self::UpstreamMisconfigured,
        Self::UpstreamRateLimited,
        Self::UpstreamQuota,
        Self::UpstreamOverloaded,
        Self::UpstreamTimeout,
        Self::UpstreamTruncated,
        Self::UpstreamGarbage,
        Self::UpstreamTooLarge,
        Self::AgentFailed,
        Self::Canceled,
        Self::Restarted,
        Self::ShuttingDown,
        Self::Overloaded,
        Self::Internal,
    ];
}

/// Longest word of the client's request that a message repeats, such as an id, a model name or a path.
const MAX_WORD_CHARS: usize = 200;

/// Longest message of a client fault. Anything longer repeats the client's own request.
const MAX_MESSAGE_CHARS: usize = 1000;

/// Limits how much of its own request a client gets back: truncates long words, then the message.
fn shorten(text: &mut String) {
    // Fast path: almost every message is short.
    if text.len() <= MAX_WORD_CHARS {
        return;
    }

    let mut shortened = String::new();
    let mut chars = 0;
    for word in text.split_inclusive(char::is_whitespace) {
        let cut = word.char_indices().nth(MAX_WORD_CHARS).map(|(end, _)| end);
        match cut {
            Some(end) => {
                shortened.push_str(&word[..end]);
                shortened.push('…');
                // Keep what follows the word in the sentence: a quotation mark, a bracket, a space.
                let tail =
                    word[end..].trim_end_matches(|last: char| last.is_whitespace() || last.is_ascii_punctuation());
                let tail = &word[end + tail.len()..];
                shortened.push_str(if tail.len() <= 4 { tail } else { "" });
            }
            None => shortened.push_str(word),
        }
        chars += word.chars().take(MAX_WORD_CHARS).count();
        if chars > MAX_MESSAGE_CHARS {
            break;
        }
    }

    if let Some((end, _)) = shortened.char_indices().nth(MAX_MESSAGE_CHARS) {
        shortened.truncate(end);
        shortened.push('…');
    }

    *text = shortened;
}

/// A fault: its kind, a message for the client, and details for the log.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Determines code, HTTP status and blame.
    pub kind: FaultKind,
    /// The message for the client: lower case, no full stop, with the subject.
    pub message: String,
    /// The path of the offending field, such as `input[2].role`.
    pub field: Option<String>,
    /// The error code the agent reported, if any.
    pub code: Option<String>,
    /// The HTTP status of the agent's response.
    pub upstream_status: Option<u16>,
    /// Time before a retry, as the agent or the gateway suggests.
    pub retry_after: Option<Duration>,
    /// For the log only, never sent to a client.
    pub detail: Option<String>,
    /// The error that caused the fault, if it was an error of this process.
    pub source: Option<Arc<dyn Error + Send + Sync>>,
    /// True once the fault has been logged.
    pub logged: bool,
    /// Further offending fields: path and message. Protocols that report one field report only [`Self::field`].
    pub violations: Vec<(String, String)>,
    /// Number of offending fields beyond those in `violations`, which is capped.
    pub omitted_violations: usize,
    /// Allowed methods, for [`FaultKind::MethodNotAllowed`].
    pub allow: Vec<&'static str>,
    /// The limit that was reached, for [`FaultKind::RateLimited`].
    pub limit: Option<Box<LimitState>>,
}

/// A limit of a caller or a route, and how much of it is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitState {
    /// The counted unit: `requests`, `runs`, `streams`, `tokens`.
    pub name: &'static str,
    /// The number that fits into one window.
    pub quota: u64,
    /// The length of a window. Zero: the limit applies to what exists at the same time.
    pub window: Duration,
    /// The number that is still available in the current window.
    pub remaining: u64,
    /// Time until the whole quota is available again.
    pub reset: Duration,
}

impl Fault {
    /// A fault with a message for the client.
    #[must_use]
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if kind.blame() == Blame::Client {
            shorten(&mut message);
        }
        Self {
            kind,
            message,
            field: None,
            code: None,
            upstream_status: None,
            retry_after: None,
            detail: None,
            source: None,
            logged: false,
            violations: Vec::new(),
            omitted_violations: 0,
            allow: Vec::new(),
            limit: None,
        }
    }

    /// A mistake of the gateway itself, such as a panic.
    #[must_use]
    pub fn internal() -> Self {
        Self::new(FaultKind::Internal, "the gateway made a mistake")
    }

    /// A field with an invalid value.
    #[must_use]
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FaultKind::Invalid, message).with_field(field)
    }

    /// [`FaultKind::Unsupported`]: a known field, or a value of one, that this gateway does not support.
    #[must_use]
    pub fn unsupported(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FaultKind::Unsupported, message).with_field(field)
    }

    /// [`FaultKind::NotFound`] with the message `{what} not found`.
    #[must_use]
    pub fn not_found(what: impl fmt::Display) -> Self {
        Self::new(FaultKind::NotFound, format!("{what} not found"))
    }

    /// [`FaultKind::Internal`]: the engine answered a call with a reply of another kind, which is a bug of the gateway.
    #[must_use]
    pub fn unexpected_reply() -> Self {
        Self::new(FaultKind::Internal, "the reply of the engine does not match the call")
    }

    /// Sets the path of the offending field.
    #[must_use]
    pub fn with_field(mut self, field: impl Into<String>) -> Self {
        let mut field = field.into();
        shorten(&mut field);
        self.field = Some(field);
        self
    }

    /// Sets the detail for the log.
    #[must_use]
    pub fn with_detail(mut self, detail: impl fmt::Display) -> Self {
        self.detail = Some(detail.to_string());
        self
    }

    /// Sets the error that caused the fault. Without another detail, the log shows it with all its causes.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        if self.detail.is_none() {
            self.detail = Some(error_chain(&source));
        }
        self.source = Some(Arc::new(source));
        self
    }

    /// Sets the agent's error code.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// The code in native answers: the agent's if it gave one, else the kind's.
    #[must_use]
    pub fn code(&self) -> &str {
        self.code.as_deref().unwrap_or(self.kind.code())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.code(), self.message)?;
        if let Some(field) = &self.field {
            write!(f, " (at {field})")?;
        }
        Ok(())
    }
}

impl Error for Fault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// An error with all its causes, as a single line: the outermost error alone is often unspecific.
#[must_use]
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        // Some errors include their cause in their own text.
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_faults_repeat_at_most_200_characters_of_an_id() {
        let id = "ä".repeat(60_000);
        let message = Fault::new(FaultKind::NoSuchAgent, format!("no agent is called '{id}'")).message;
        assert_eq!(message, format!("no agent is called '{}…'", "ä".repeat(199)));
        let message = Fault::not_found(format_args!("run {id}")).message;
        assert_eq!(message, format!("run {}… not found", "ä".repeat(200)));
        let field = Fault::invalid(format!("input[0].{id}"), "is unknown").field;
        assert!(field.is_some_and(|field| field.chars().count() == 201 && field.starts_with("input[0].ä")));
    }

    #[test]
    fn an_id_with_many_words_does_not_make_a_long_message() {
        let message = Fault::not_found("a b ".repeat(20_000)).message;
        assert!(message.chars().count() <= 1001 && message.ends_with('…'), "{message}");
        let sentence = "which is wrong for a reason of some length ".repeat(8);
        assert_eq!(Fault::invalid("x", sentence.clone()).message, sentence);
    }

    #[test]
    fn a_fault_keeps_the_error_that_caused_it() {
        let cause = serde_json::from_str::<u8>("x").expect_err("no JSON");
        let text = cause.to_string();
        let fault = Fault::new(FaultKind::Internal, "the session cannot be read").with_source(cause);
        assert_eq!(fault.detail.as_deref(), Some(text.as_str()));
        assert!(fault.source().is_some_and(|source| source.is::<serde_json::Error>()));
        assert_eq!(error_chain(&fault), format!("GATEWAY_ERROR: the session cannot be read: {text}"));
    }

    #[test]
    fn messages_of_agents_are_not_truncated() {
        let message = "x".repeat(5000);
        assert_eq!(Fault::new(FaultKind::AgentFailed, message.clone()).message, message);
    }
}
