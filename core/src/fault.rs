//! What may be in the way between a client and its answer, sorted by who would have to change something.
//!
//! One kind has one stable code and one default HTTP status. How a protocol spells it is the adapter's matter: each
//! has exactly one function from a kind to its own code.

use std::fmt;
use std::time::Duration;

/// Who must change something for a fault to go away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The request is at fault.
    Client,
    /// The agent, or the way to it.
    Upstream,
    /// The gateway itself.
    Gateway,
}

impl Blame {
    /// Its name in the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Upstream => "upstream",
            Self::Gateway => "gateway",
        }
    }
}

/// What is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// The head of the request is not as HTTP wants it, such as a broken or a second `Host`.
    BadHead,
    /// The request names a host that this gateway does not answer for.
    Misdirected,
    /// The body is not JSON, not UTF-8, or not an object.
    Malformed,
    /// A required field is not there.
    Missing,
    /// A field has another type than it should.
    WrongType,
    /// A field has a value it must not have.
    Invalid,
    /// Fields that exclude one another are both there.
    Exclusive,
    /// Understood, but not served.
    Unsupported,
    /// Another content type than is read here.
    UnsupportedMedia,
    /// No answer in a media type the client takes.
    NotAcceptable,
    /// The body is larger than is accepted.
    TooLarge,
    /// No or wrong credentials.
    Unauthenticated,
    /// Credentials that do not suffice.
    Forbidden,
    /// Nothing answers on this path.
    NoSuchPath,
    /// The path exists, the method does not.
    MethodNotAllowed,
    /// The run, session or item does not exist for this caller.
    NotFound,
    /// The agent does not exist on this route.
    NoSuchAgent,
    /// The session has a run under way.
    Busy,
    /// Something waits for an answer first.
    Waiting,
    /// It has ended, or is otherwise past the point where this could be done.
    Conflict,
    /// The caller asks too often.
    RateLimited,
    /// The agent could not be reached.
    UpstreamUnreachable,
    /// The agent turned the request away.
    UpstreamRefused,
    /// The agent wants fewer requests.
    UpstreamRateLimited,
    /// The agent kept silent longer than the configured time.
    UpstreamTimeout,
    /// The answer ended before it was complete.
    UpstreamTruncated,
    /// The answer could not be understood.
    UpstreamGarbage,
    /// The answer is larger than a run may be.
    UpstreamTooLarge,
    /// The agent itself reported a failure.
    AgentFailed,
    /// The run was cancelled.
    Canceled,
    /// The gateway was stopped while the run was under way.
    Restarted,
    /// The gateway is shutting down.
    ShuttingDown,
    /// The gateway has no room at the moment.
    Overloaded,
    /// A mistake of the gateway.
    Internal,
}

impl FaultKind {
    /// Who must change something.
    #[must_use]
    pub const fn blame(self) -> Blame {
        use FaultKind as K;
        match self {
            K::UpstreamUnreachable
            | K::UpstreamRefused
            | K::UpstreamRateLimited
            | K::UpstreamTimeout
            | K::UpstreamTruncated
            | K::UpstreamGarbage
            | K::UpstreamTooLarge
            | K::AgentFailed => Blame::Upstream,
            K::Restarted | K::ShuttingDown | K::Overloaded | K::Internal => Blame::Gateway,
            _ => Blame::Client,
        }
    }

    /// The stable code, as native clients and the log see it.
    #[must_use]
    pub const fn code(self) -> &'static str {
        use FaultKind as K;
        match self {
            K::BadHead => "BAD_REQUEST",
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
            K::UpstreamRateLimited => "UPSTREAM_RATE_LIMITED",
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

    /// The HTTP status, where the protocol has no opinion of its own.
    #[must_use]
    pub const fn status(self) -> u16 {
        use FaultKind as K;
        match self {
            K::BadHead | K::Malformed | K::Missing | K::WrongType | K::Invalid | K::Exclusive | K::Unsupported => 400,
            K::Unauthenticated => 401,
            K::Forbidden => 403,
            K::NoSuchPath | K::NotFound | K::NoSuchAgent => 404,
            K::MethodNotAllowed => 405,
            K::NotAcceptable => 406,
            K::Busy | K::Waiting | K::Conflict | K::Canceled => 409,
            K::TooLarge => 413,
            K::UnsupportedMedia => 415,
            K::Misdirected => 421,
            K::RateLimited | K::UpstreamRateLimited => 429,
            K::UpstreamUnreachable
            | K::UpstreamRefused
            | K::UpstreamTruncated
            | K::UpstreamGarbage
            | K::UpstreamTooLarge
            | K::AgentFailed => 502,
            K::ShuttingDown | K::Overloaded => 503,
            K::UpstreamTimeout => 504,
            K::Restarted | K::Internal => 500,
        }
    }

    /// Whether asking again, unchanged, could help.
    #[must_use]
    pub const fn retryable(self) -> bool {
        use FaultKind as K;
        matches!(
            self,
            K::Busy
                | K::RateLimited
                | K::UpstreamUnreachable
                | K::UpstreamRateLimited
                | K::UpstreamTimeout
                | K::UpstreamTruncated
                | K::Restarted
                | K::ShuttingDown
                | K::Overloaded
        )
    }

    /// Every kind, for the tables that adapters print in their tests.
    pub const ALL: &'static [Self] = &[
        Self::BadHead,
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
        Self::UpstreamRateLimited,
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

/// The longest word of a client's that a message repeats: an id, the name of a model, a path.
const MAX_WORD_CHARS: usize = 200;

/// The longest message about a request. What is longer repeats what the client sent.
const MAX_MESSAGE_CHARS: usize = 1000;

/// Cuts what a client would be sent back of its own request: long words in the middle of a message, and the message.
fn shorten(text: &mut String) {
    // Nearly every message: nothing in it can be too long.
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
                // What stands after the word in the sentence: a quotation mark, a bracket, a space.
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

/// Something in the way: a kind, a sentence for the client, and what only the log may know.
#[derive(Clone, Debug)]
pub struct Fault {
    /// What it is.
    pub kind: FaultKind,
    /// A sentence for the client: lower case, no full stop, naming the thing.
    pub message: String,
    /// The path of the field at fault, such as `input[2].role`.
    pub field: Option<String>,
    /// The code the agent gave, where it gave one.
    pub code: Option<String>,
    /// The HTTP status the agent answered with.
    pub upstream_status: Option<u16>,
    /// When asking again makes sense.
    pub retry_after: Option<Duration>,
    /// For the log only: never shown to a client.
    pub detail: Option<String>,
    /// The log has it already.
    pub logged: bool,
    /// Further fields at fault: path and sentence. Protocols that can tell of one only tell the first.
    pub violations: Vec<(String, String)>,
    /// How many fields are at fault beyond those: so many that nobody reads them all.
    pub unnamed: usize,
    /// Methods that would be allowed, for [`FaultKind::MethodNotAllowed`].
    pub allow: Vec<&'static str>,
}

impl Fault {
    /// A fault of a kind, with a sentence for the client.
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
            logged: false,
            violations: Vec::new(),
            unnamed: 0,
            allow: Vec::new(),
        }
    }

    /// A field with a value it must not have.
    #[must_use]
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FaultKind::Invalid, message).with_field(field)
    }

    /// Nothing of this name for this caller.
    #[must_use]
    pub fn not_found(what: impl fmt::Display) -> Self {
        Self::new(FaultKind::NotFound, format!("{what} not found"))
    }

    /// Names the field.
    #[must_use]
    pub fn with_field(mut self, field: impl Into<String>) -> Self {
        let mut field = field.into();
        shorten(&mut field);
        self.field = Some(field);
        self
    }

    /// Adds what only the log may know.
    #[must_use]
    pub fn with_detail(mut self, detail: impl fmt::Display) -> Self {
        self.detail = Some(detail.to_string());
        self
    }

    /// Adds the code the agent gave.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// The code for native clients: the agent's own, else the kind's.
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

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_repeats_at_most_200_characters_of_an_id() {
        let id = "ä".repeat(60_000);
        let message = Fault::new(FaultKind::NoSuchAgent, format!("no agent is called '{id}'")).message;
        assert_eq!(message, format!("no agent is called '{}…'", "ä".repeat(199)));
        let message = Fault::not_found(format_args!("run {id}")).message;
        assert_eq!(message, format!("run {}… not found", "ä".repeat(200)));
        let field = Fault::invalid(format!("input[0].{id}"), "is unknown").field;
        assert!(field.is_some_and(|field| field.chars().count() == 201 && field.starts_with("input[0].ä")));
    }

    #[test]
    fn an_id_of_many_words_makes_no_long_message() {
        let message = Fault::not_found("a b ".repeat(20_000)).message;
        assert!(message.chars().count() <= 1001 && message.ends_with('…'), "{message}");
        let sentence = "which is wrong for a reason of some length ".repeat(8);
        assert_eq!(Fault::invalid("x", sentence.clone()).message, sentence);
    }

    #[test]
    fn what_an_agent_said_is_not_cut_here() {
        let said = "x".repeat(5000);
        assert_eq!(Fault::new(FaultKind::AgentFailed, said.clone()).message, said);
    }
}
