//! Logs for the operator: the access log, the audit log, telemetry for collectors, and the level of the log at run
//! time.
//!
//! Not here: numbers (`crate::metrics`), and log lines, which all code writes with `tracing`.

mod access;
mod audit;
mod conventions;
mod filter;
mod lines;
mod log_layer;
mod losses;
pub mod metrics;
mod observer;
mod otlp;
mod parts;
mod quiet;
mod recent_audit;
mod refusals;
mod request_log;
mod time;

use interlingua_core::Json;
use serde_json::Value;

pub use self::access::AccessLog;
pub use self::audit::{Action, AuditEntry, append_audit};
pub use self::conventions::finish_reason;
pub use self::filter::LogFilter;
pub use self::lines::LogTarget;
pub use self::log_layer::{LogForwarder, forward_logs};
pub use self::observer::{Logs, Observer, SharedObserver};
pub use self::otlp::{Otlp, OtlpSettings};
pub use self::parts::{ServerSpan, ToolPart, TurnPart};
pub use self::request_log::RequestLog;

/// The tokens that an agent reported: input and output. `None` if it is in no known form.
#[must_use]
pub fn usage(usage: &Json) -> Option<(u64, u64)> {
    let usage: Value = usage.decode()?;
    let number = |names: [&str; 2]| names.iter().find_map(|name| usage.get(name)?.as_u64());
    let (input, output) = (number(["input_tokens", "prompt_tokens"]), number(["output_tokens", "completion_tokens"]));
    (input.is_some() || output.is_some()).then(|| (input.unwrap_or(0), output.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_in_both_spellings() {
        let read = |text: &str| usage(&Json::parse(text).expect("JSON"));
        assert_eq!(read(r#"{"input_tokens":3,"output_tokens":4,"time":1.5}"#), Some((3, 4)));
        assert_eq!(read(r#"{"prompt_tokens":3}"#), Some((3, 0)));
        assert_eq!(read(r#"{"total":3}"#), None);
        assert_eq!(read("[]"), None);
    }
}
