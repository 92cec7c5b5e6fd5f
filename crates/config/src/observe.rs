//! The checks of `[observe]`: the access log, the audit log, and the collectors of telemetry.

use std::ops::Range;
use std::path::{Path, PathBuf};

use interlingua_core::duration::Period;
use url::{Host, Url};

use super::diagnostics::Diagnostic;
use super::headers::{self, HeaderValue};
use super::located::{Entries, Table, WithSpan};
use super::observe_settings::{AccessLog, Collector, Observe, Reports, Traces};
use super::operators::{
    AccessLogTable, CollectorTable, LogForm, ObserveTable, OtlpForm, ReportsTable, SessionForm, TracesTable,
};
use super::validator::Validator;

/// The port of collectors that speak gRPC.
const GRPC_PORT: u16 = 4317;

pub(super) fn resolve(table: &ObserveTable, validator: &mut Validator<'_, '_>) -> Observe {
    let access_log = table.access_log.as_ref().map(|log| {
        let AccessLogTable { format, path, session } = &*log.value;
        AccessLog {
            path: path.as_ref().map(|path| file(path, "\"path\" of access_log is empty", validator)),
            json: *format == LogForm::Json,
            hash_sessions: *session == SessionForm::Hashed,
        }
    });
    let audit = table.audit.as_ref().map(|path| file(path, "\"audit\" is empty", validator));

    let access_path = access_log.as_ref().and_then(|log| log.path.as_ref());
    if let (Some(located), Some(_)) = (&table.audit, access_path.filter(|path| audit.as_ref() == Some(path))) {
        let message = "\"audit\" and \"access_log\" write the same file";
        validator.report(Diagnostic::error(message).at(&located.span).label("give each its own"));
    }

    let traces = table.traces.as_ref().and_then(|traces| self::traces(traces, validator));
    let known = traces.as_ref().map(|traces| &traces.collector);
    // An error in the collector of the traces is reported once.
    let is_known = table.traces.is_some();
    let every = table
        .metrics
        .as_ref()
        .map(|located| validator.within(&located.value.every, "every", Period::seconds(1), Period::seconds(60 * 60)));
    let mut signal = |key: &str, span: &Range<usize>, written: WrittenCollector<'_>| {
        let (endpoint, protocol, headers) = written;
        if endpoint.is_none() && is_known {
            ignored(key, protocol.is_some() || headers.iter().next().is_some(), span, validator);
            return known.cloned();
        }
        collector(key, span, written, validator)
    };
    let metrics = table.metrics.as_ref().zip(every).and_then(|(located, every)| {
        let ReportsTable { endpoint, protocol, headers, .. } = &*located.value;
        let collector = signal("metrics", &located.span, (endpoint.as_ref(), *protocol, headers))?;
        Some(Reports { collector, every })
    });
    let logs = table.logs.as_ref().and_then(|located| {
        let CollectorTable { endpoint, protocol, headers } = &*located.value;
        signal("logs", &located.span, (endpoint.as_ref(), *protocol, headers))
    });

    let service_name = table.service_name.value.trim().to_owned();
    if service_name.is_empty() {
        let error = Diagnostic::error("\"service_name\" is empty").at(&table.service_name.span);
        validator.report(error.label("write the name that collectors know the gateway by"));
    }
    Observe { access_log, audit, traces, metrics, logs, service_name, caller_label: table.caller_label }
}

fn traces(located: &WithSpan<Table<TracesTable>>, validator: &mut Validator<'_, '_>) -> Option<Traces> {
    let TracesTable { endpoint, protocol, headers, sample, content } = &*located.value;
    let share = validator.share(sample, "sample");
    let collector = collector("traces", &located.span, (endpoint.as_ref(), *protocol, headers), validator)?;
    if content.value {
        let host = collector.endpoint.host_str().unwrap_or_default();
        let warning = Diagnostic::warning(format!("what people and agents say is sent to {host:?}"));
        validator.report(warning.at(&content.span).label("spans have messages, and arguments and results of tools"));
    }
    Some(Traces { collector, sample: share, content: content.value })
}

/// A collector as written: endpoint, protocol, headers.
type WrittenCollector<'a> = (Option<&'a WithSpan<String>>, Option<OtlpForm>, &'a Entries<HeaderValue>);

/// `key`: the signal that is sent there; `span`: its table.
fn collector(
    key: &str,
    span: &Range<usize>,
    (endpoint, protocol, headers): WrittenCollector<'_>,
    validator: &mut Validator<'_, '_>,
) -> Option<Collector> {
    let headers = headers::resolve(headers, validator.folder, validator.env, &validator.rejected, &mut validator.found);
    let Some(written) = endpoint else {
        if !validator.rejected.contains(span, "endpoint") {
            let error = Diagnostic::error(format!("{key:?} has no endpoint")).at(span);
            validator.report(error.label(format!("write endpoint = \"http://127.0.0.1:{GRPC_PORT}\"")));
        }
        return None;
    };

    let endpoint = validator.url(written, "endpoint")?;
    if endpoint.scheme() == "http" && !is_this_machine(&endpoint) {
        let warning = Diagnostic::warning("a collector on another machine is reached without TLS").at(&written.span);
        validator.report(warning.label("what is sent can be read on the way"));
    }
    let grpc = match protocol {
        Some(form) => form == OtlpForm::Grpc,
        None => endpoint.port() == Some(GRPC_PORT),
    };
    let headers = headers.into_iter().map(|header| (header.name, header.value)).collect();
    Some(Collector { endpoint, grpc, headers })
}

/// Settings of a collector that is not named.
fn ignored(key: &str, is_set: bool, span: &Range<usize>, validator: &mut Validator<'_, '_>) {
    if is_set {
        let error = Diagnostic::error(format!("{key:?} has settings of a collector, and no endpoint"));
        validator.report(error.at(span).label("write endpoint = \"…\", or leave them out"));
    }
}

fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.to_canonical().is_loopback(),
        None => false,
    }
}

fn file(located: &WithSpan<String>, empty: &str, validator: &mut Validator<'_, '_>) -> PathBuf {
    if located.value.is_empty() {
        validator.report(Diagnostic::error(empty).at(&located.span).label("write a file name"));
    }
    validator.folder.join(Path::new(&located.value))
}
