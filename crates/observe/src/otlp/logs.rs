//! Log records: the lines of the access log, and what the program warns of.

use std::sync::Arc;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use prost::Message as _;
use serde_json::Value;

use super::value::{self, Attributes, Origin};
use crate::access::Line;
use crate::conventions as names;
use crate::parts::RequestParts;

/// A record to come.
pub(super) enum LogItem {
    /// The line of a request.
    Access(Arc<RequestParts>),
    /// A line of the log.
    Event(LogEvent),
}

/// A line of the log.
pub(crate) struct LogEvent {
    /// In nanoseconds since 1970.
    pub(crate) at: u64,
    /// True: an error. False: a warning.
    pub(crate) is_error: bool,
    /// Where in the program it comes from.
    pub(crate) target: &'static str,
    pub(crate) message: String,
    pub(crate) fields: Vec<(&'static str, String)>,
}

impl LogEvent {
    pub(super) fn size(&self) -> usize {
        self.message.len() + self.fields.iter().map(|(_, text)| text.len() + 64).sum::<usize>()
    }

    /// A field whose text is a number in hexadecimal digits.
    fn hexadecimal(&self, name: &str) -> Option<u128> {
        let (_, text) = self.fields.iter().find(|(field, _)| *field == name)?;
        u128::from_str_radix(text, 16).ok()
    }
}

/// The request for these, and how many records it has.
pub(super) fn encode(origin: &Origin, items: &[LogItem]) -> (Bytes, u64) {
    let records = items.iter().map(|item| match item {
        LogItem::Access(parts) => access(parts),
        LogItem::Event(event) => line(event),
    });
    let scope_logs = vec![ScopeLogs { scope: Origin::scope(), log_records: records.collect(), ..ScopeLogs::default() }];
    let resource_logs = vec![ResourceLogs { resource: origin.resource(), scope_logs, ..ResourceLogs::default() }];
    (ExportLogsServiceRequest { resource_logs }.encode_to_vec().into(), items.len() as u64)
}

/// A line of the access log: its fields are attributes by the same names.
fn access(parts: &RequestParts) -> LogRecord {
    let line = Line::new(parts);
    let mut body = String::new();
    line.write_pretty(&mut body);
    let fields = serde_json::to_value(&line).unwrap_or_default();
    let mut attributes = Attributes::default();
    for (name, field) in fields.as_object().into_iter().flatten().filter(|(name, _)| *name != "time") {
        attributes = match field {
            Value::Number(field) => attributes.number(name, field.as_u64().unwrap_or_default()),
            Value::String(field) => attributes.text(name, field),
            other => attributes.text(name, &other.to_string()),
        };
    }

    let mut record = record(parts.at.saturating_mul(1_000_000), SeverityNumber::Info, "INFO", &body);
    names::ACCESS_EVENT.clone_into(&mut record.event_name);
    record.attributes = attributes.done();
    if let Some(span) = parts.span {
        record.trace_id = span.trace.to_be_bytes().to_vec();
        record.span_id = span.span.to_be_bytes().to_vec();
        record.flags = u32::from(span.sampled);
    }
    record
}

fn line(event: &LogEvent) -> LogRecord {
    let (severity, text) =
        if event.is_error { (SeverityNumber::Error, "ERROR") } else { (SeverityNumber::Warn, "WARN") };
    let mut record = record(event.at, severity, text, &event.message);
    let mut attributes = Attributes::default().text("code.namespace", event.target);
    for (name, field) in &event.fields {
        attributes = attributes.text(name, field);
    }
    record.attributes = attributes.done();
    // As the lines of turns name them.
    if let Some((trace, span)) = event.hexadecimal("trace").zip(event.hexadecimal("span")) {
        record.trace_id = trace.to_be_bytes().to_vec();
        record.span_id = span.to_be_bytes()[8..].to_vec();
    }
    record
}

fn record(at: u64, severity: SeverityNumber, text: &str, body: &str) -> LogRecord {
    LogRecord {
        time_unix_nano: at,
        observed_time_unix_nano: at,
        severity_number: severity.into(),
        severity_text: text.to_owned(),
        body: Some(value::text(body)),
        ..LogRecord::default()
    }
}
