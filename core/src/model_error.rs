//! What a server complains of: in an answer with a status, and inside a 200.

use std::time::Duration;

use crate::connector::Refusal;
use crate::filter::client_text;
use crate::{Fault, FaultKind};
use serde_json::Value;

/// Canonical codes, which the gateway's protocols know how to report.
const CONTEXT_LENGTH: &str = "MODEL_CONTEXT_LENGTH_EXCEEDED";
const QUOTA: &str = "MODEL_QUOTA_EXCEEDED";
const MODEL_NOT_FOUND: &str = "MODEL_NOT_FOUND";

/// How servers without a code say that the conversation is too long, in lower case.
const TOO_LONG: &[&str] =
    &["context length", "context_length", "context window", "context size", "prompt is too long", "too many tokens"];

/// A refusal's pause is believed up to this.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// How much of a body is quoted in the log, in bytes.
const QUOTED: usize = 500;

/// A complaint of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Complaint {
    /// Its word for it, or the type where it has none. Empty: neither.
    code: String,
    /// Its sentence. Empty: none.
    message: String,
    /// The HTTP status that it gives as its code.
    status: Option<u16>,
}

impl Complaint {
    /// Reads any of the forms in use. None: neither JSON nor plain text.
    ///
    /// See `docs/protocols/chat-completions.md#refusals`.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?.trim();
        match serde_json::from_str::<Value>(text) {
            Ok(value) => Self::of(&value),
            // A page of a proxy is not meant for a program.
            Err(_) if text.is_empty() || text.starts_with('<') => None,
            Err(_) => Some(Self { message: text.to_owned(), ..Self::default() }),
        }
    }

    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(Self { message: text.clone(), ..Self::default() }),
            // Gemini sends a list with one error in it, validators one with an entry for each field.
            Value::Array(entries) => {
                let found: Vec<Self> = entries.iter().filter_map(Self::of).collect();
                let message = found.iter().map(|found| found.message.as_str()).collect::<Vec<_>>().join("; ");
                let first = found.into_iter().next()?;
                Some(Self { message, ..first })
            }
            Value::Object(fields) => {
                if let Some(inner) = fields.get("error").filter(|inner| !inner.is_null()).and_then(Self::of) {
                    return Some(inner);
                }
                let word = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
                let nested = || fields.get("detail").and_then(Self::of).map(|detail| detail.message);
                let message = Some(word("message")).filter(|text| !text.is_empty());
                let message = message.or_else(nested).unwrap_or_else(|| word("msg"));
                // Some give the status as a number, others as its digits. Neither is a word for what went wrong.
                let status = fields.get("code").and_then(|code| match code {
                    Value::Number(number) => number.as_u64().and_then(|number| u16::try_from(number).ok()),
                    Value::String(digits) => digits.parse().ok(),
                    _ => None,
                });
                let code = Some(word("code")).filter(|code| !code.is_empty() && status.is_none());
                let code = code.unwrap_or_else(|| word("type"));
                (!message.is_empty() || !code.is_empty()).then_some(Self { code, message, status })
            }
            _ => None,
        }
    }

    /// The canonical code for it, if the gateway has one.
    fn canonical_code(&self) -> Option<&'static str> {
        match self.code.as_str() {
            "context_length_exceeded" => return Some(CONTEXT_LENGTH),
            "insufficient_quota" => return Some(QUOTA),
            "model_not_found" => return Some(MODEL_NOT_FOUND),
            // Of what, the text alone says.
            "not_found_error" if self.message.starts_with("model:") => return Some(MODEL_NOT_FOUND),
            _ => {}
        }

        let text = self.message.to_ascii_lowercase();
        TOO_LONG.iter().any(|words| text.contains(words)).then_some(CONTEXT_LENGTH)
    }

    /// Its word for it, or the type where it has none. Empty: neither.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Its sentence, unfiltered. Empty: none.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Code and sentence for the error that ends a run. Unfiltered.
    pub fn into_error(self) -> (String, String) {
        let code = self.canonical_code().map(str::to_owned).unwrap_or(self.code);
        let message = if self.message.is_empty() { "the agent failed".to_owned() } else { self.message };
        (code, message)
    }

    /// The fault of a server that takes no request for now, and says so inside of a 200.
    pub fn not_now(&self) -> Option<Fault> {
        let fault = match (self.code.as_str(), self.status) {
            ("rate_limit_error" | "rate_limit_exceeded", _) | (_, Some(429)) => {
                let mut fault = Fault::new(FaultKind::UpstreamRateLimited, "the agent is rate limited");
                fault.retry_after = self.retry_after();
                fault
            }
            ("overloaded_error", _) | (_, Some(503 | 529)) => {
                Fault::new(FaultKind::UpstreamUnreachable, "the agent is not available")
            }
            _ => return None,
        };
        Some(fault.with_detail(&self.message))
    }

    /// The pause in "try again in 1.5s" or "in 20 seconds".
    fn retry_after(&self) -> Option<Duration> {
        let text = self.message.to_ascii_lowercase();
        let rest = &text[text.find("try again in ")? + "try again in ".len()..];
        let end = rest.find(|next: char| !next.is_ascii_digit() && next != '.').unwrap_or(rest.len());
        let number: f64 = rest[..end].parse().ok()?;
        let unit = rest[end..].trim_start();
        let factor = if unit.starts_with("ms") || unit.starts_with("milli") {
            0.001
        } else if unit.starts_with('m') {
            60.0
        } else {
            1.0
        };

        Some(Duration::try_from_secs_f64(number * factor).unwrap_or(MAX_RETRY_AFTER).min(MAX_RETRY_AFTER))
    }
}

/// The fault in an answer whose status is no success.
pub fn map_refusal(refusal: &Refusal<'_>) -> Fault {
    let mut fault = refusal.to_fault();
    let complaint = Complaint::parse(refusal.body).unwrap_or_default();
    let code = complaint.canonical_code();

    match (refusal.status, code) {
        (402, _) | (400..=499, Some(QUOTA)) => {
            fault.kind = FaultKind::UpstreamRateLimited;
            "the agent's quota is used up".clone_into(&mut fault.message);
            fault.code = Some(QUOTA.to_owned());
            return fault;
        }
        (404, Some(MODEL_NOT_FOUND)) => {
            "the agent does not have the model".clone_into(&mut fault.message);
            fault.code = Some(MODEL_NOT_FOUND.to_owned());
            return fault;
        }
        // Groq refuses a whole answer if its model wrote a broken call: the request was fine.
        (400, _) if complaint.code == "tool_use_failed" => {
            fault.kind = FaultKind::AgentFailed;
            "the agent failed".clone_into(&mut fault.message);
        }
        (400 | 413 | 422, Some(CONTEXT_LENGTH)) => fault.code = Some(CONTEXT_LENGTH.to_owned()),
        (529, _) => {
            fault.kind = FaultKind::UpstreamUnreachable;
            "the agent is not available".clone_into(&mut fault.message);
        }
        (429, _) => fault.retry_after = fault.retry_after.or_else(|| complaint.retry_after()),
        _ => {}
    }

    if refusal.is_about_the_request() && !complaint.message.is_empty() {
        fault.message = format!("{}: {}", fault.message, client_text(&complaint.code, &complaint.message));
    }

    fault
}

/// An answer that is not in this protocol.
pub fn garbage(data: &[u8]) -> Fault {
    let beginning = String::from_utf8_lossy(&data[..data.len().min(QUOTED)]).into_owned();
    Fault::new(FaultKind::UpstreamGarbage, "the agent's answer could not be understood").with_detail(beginning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_found_in_every_form() {
        for (body, code, message) in [
            (r#"{"error":{"message":"no","type":"t","code":"c"}}"#, "c", "no"),
            (r#"{"error":{"message":"no","type":"t","code":null}}"#, "t", "no"),
            (r#"{"error":{"code":502,"message":"no"}}"#, "", "no"),
            (
                r#"{"error":{"code":"500","message":"no","type":"internal_server_error"}}"#,
                "internal_server_error",
                "no",
            ),
            (r#"{"error":{"code":"500","message":"no","type":null}}"#, "", "no"),
            (r#"{"error":"no"}"#, "", "no"),
            (r#"{"object":"error","message":"no","code":"c"}"#, "c", "no"),
            (r#"{"detail":"no"}"#, "", "no"),
            (r#"{"detail":[{"loc":["body"],"msg":"no"},{"msg":"nor this"}]}"#, "", "no; nor this"),
            (r#"[{"error":{"code":400,"message":"no","status":"INVALID_ARGUMENT"}}]"#, "", "no"),
            ("no\n", "", "no"),
        ] {
            let complaint = Complaint::parse(body.as_bytes()).expect(body);
            assert_eq!((complaint.code.as_str(), complaint.message.as_str()), (code, message), "{body}");
        }

        for body in ["", "<html>", "{}", "[]", "null", "7", "{\"error\":null}"] {
            assert_eq!(Complaint::parse(body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn a_server_that_takes_nothing_now_says_so_in_many_ways() {
        let kind = |body: &str| {
            let fault = Complaint::parse(body.as_bytes()).expect(body).not_now();
            fault.map(|fault| (fault.kind, fault.retry_after))
        };
        let busy = Some((FaultKind::UpstreamUnreachable, None));
        for (body, wanted) in [
            (r#"{"error":{"type":"overloaded_error","message":"busy"}}"#, busy),
            (r#"{"error":{"code":529,"message":"busy"}}"#, busy),
            (r#"{"error":{"code":"503","message":"busy"}}"#, busy),
            (
                r#"{"error":{"code":429,"message":"try again in 2s"}}"#,
                Some((FaultKind::UpstreamRateLimited, Some(Duration::from_secs(2)))),
            ),
            (r#"{"error":{"code":500,"message":"no"}}"#, None),
            (r#"{"error":"overloaded_error"}"#, None),
        ] {
            assert_eq!(kind(body), wanted, "{body}");
        }
    }

    #[test]
    fn each_refusal_becomes_the_fault_of_the_table() {
        use FaultKind as K;
        for (status, body, kind, code, message) in [
            (
                400,
                r#"{"error":{"message":"bad n"}}"#,
                K::UpstreamRefused,
                K::UpstreamRefused.code(),
                "the agent refused the request: bad n",
            ),
            (
                400,
                r#"{"error":{"code":"context_length_exceeded","message":"8192 tokens"}}"#,
                K::UpstreamRefused,
                CONTEXT_LENGTH,
                "the agent refused the request: 8192 tokens",
            ),
            (
                400,
                r#"{"error":"the request exceeds the available context size"}"#,
                K::UpstreamRefused,
                CONTEXT_LENGTH,
                "the agent refused the request: the request exceeds the available context size",
            ),
            (
                401,
                r#"{"error":{"message":"bad key sk-123"}}"#,
                K::UpstreamRefused,
                K::UpstreamRefused.code(),
                "the agent refused the gateway's credentials",
            ),
            (402, "", K::UpstreamRateLimited, QUOTA, "the agent's quota is used up"),
            (
                429,
                r#"{"error":{"code":"insufficient_quota","message":"pay"}}"#,
                K::UpstreamRateLimited,
                QUOTA,
                "the agent's quota is used up",
            ),
            (
                404,
                r#"{"error":{"code":"model_not_found","message":"x"}}"#,
                K::UpstreamRefused,
                MODEL_NOT_FOUND,
                "the agent does not have the model",
            ),
            (
                404,
                r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-9"}}"#,
                K::UpstreamRefused,
                MODEL_NOT_FOUND,
                "the agent does not have the model",
            ),
            (
                404,
                "<html>",
                K::UpstreamRefused,
                K::UpstreamRefused.code(),
                "the agent has nothing at the URL that the gateway asks",
            ),
            (
                400,
                r#"{"error":{"code":"tool_use_failed","message":"broken call"}}"#,
                K::AgentFailed,
                K::AgentFailed.code(),
                "the agent failed: broken call",
            ),
            (
                503,
                r#"{"error":"busy"}"#,
                K::UpstreamUnreachable,
                K::UpstreamUnreachable.code(),
                "the agent is not available",
            ),
            (529, "", K::UpstreamUnreachable, K::UpstreamUnreachable.code(), "the agent is not available"),
            (
                500,
                r#"{"error":{"message":"secret"}}"#,
                K::UpstreamRefused,
                K::UpstreamRefused.code(),
                "the agent refused the request",
            ),
        ] {
            let fault = map_refusal(&Refusal { status, body: body.as_bytes(), retry_after: None });
            assert_eq!((fault.kind, fault.code(), fault.message.as_str()), (kind, code, message), "{status} {body}");
            assert_eq!((fault.upstream_status, fault.detail.as_deref()), (Some(status), Some(body)));
        }
    }

    #[test]
    fn the_pause_is_read_from_the_header_or_the_text() {
        let pause = |text: &str, header: Option<u64>| {
            let body = format!(r#"{{"error":{{"message":"{text}"}}}}"#);
            let retry_after = header.map(Duration::from_secs);
            map_refusal(&Refusal { status: 429, body: body.as_bytes(), retry_after }).retry_after
        };

        assert_eq!(pause("Please try again in 1.5s.", None), Some(Duration::from_millis(1500)));
        assert_eq!(pause("try again in 20 seconds", None), Some(Duration::from_secs(20)));
        assert_eq!(pause("Try again in 300ms", None), Some(Duration::from_millis(300)));
        assert_eq!(pause("try again in 2m", None), Some(Duration::from_secs(120)));
        assert_eq!(pause("try again in 99999999999999999999999s", None), Some(MAX_RETRY_AFTER));
        assert_eq!(pause("try again in 20s", Some(3)), Some(Duration::from_secs(3)));
        assert_eq!(pause("try again later", None), None);
    }
}
