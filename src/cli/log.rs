//! The log: to standard error, as text or JSON, with the secrets of the configuration masked. Its filter can be changed
//! while the gateway is running. Warnings and errors that pass the filter are also sent to a collector, if one is
//! configured.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt, registry, reload};

use super::LogFormat;
use super::error_line::error_line;
use super::log_lines::{self, LogWriter};
use interlingua_base::secrets::MaskingWriter;
use interlingua_observe::{LogFilter, LogForwarder};

/// Initializes the global log subscriber. Returns its filter.
pub(super) fn start(filter: &str, format: LogFormat) -> anyhow::Result<LogFilter> {
    let (layer, handle) = reload::Layer::new(parse(filter)?);
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    log_lines::start()?;
    let writer = MaskingWriter { inner: LogWriter, json: matches!(format, LogFormat::Json) };
    let lines = fmt::layer().with_ansi(colour).with_writer(writer);
    let lines = match format {
        LogFormat::Pretty => lines.with_target(false).compact().boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    registry().with(layer).with(lines).with(LogForwarder).try_init()?;

    Ok(LogFilter::new(filter, move |filter| {
        let filter = parse(filter).map_err(|error| error_line(&error))?;
        handle.reload(filter).map_err(|error| error.to_string())
    }))
}

fn parse(filter: &str) -> anyhow::Result<EnvFilter> {
    let invalid = || format!("\"{filter}\" is not a valid log filter");
    EnvFilter::try_new(filter).with_context(invalid)?;
    // The later of two directives for one target wins, so that the user's filter takes precedence.
    EnvFilter::try_new(format!("{},{}", interlingua_server::QUIET.join(","), with_crates(filter))).with_context(invalid)
}

/// Parts of the gateway as filters name them, and the targets of their log lines. A part comes after its own parts.
const TARGETS: &[(&str, &str)] = &[
    ("interlingua::server::admin", "interlingua_admin"),
    ("interlingua::store::postgres", "interlingua_store_postgres"),
    ("interlingua::store::sqlite", "interlingua_store_sqlite"),
    ("interlingua::admin", "interlingua_admin"),
    ("interlingua::callers", "interlingua_callers"),
    ("interlingua::config", "interlingua_config"),
    ("interlingua::engine", "interlingua_engine"),
    ("interlingua::keys", "interlingua_config::keys"),
    ("interlingua::metrics", "interlingua_observe::metrics"),
    ("interlingua::observe", "interlingua_observe"),
    ("interlingua::server", "interlingua_server"),
    ("interlingua::store", "interlingua_store"),
    ("interlingua::tls", "interlingua_base::tls"),
    ("interlingua::upstream", "interlingua_upstream"),
];

/// Replaces the parts of the gateway in a filter with the crates that they are, so that `interlingua::engine=debug`
/// works.
fn with_crates(filter: &str) -> String {
    TARGETS.iter().fold(filter.to_owned(), |filter, (part, target)| filter.replace(part, target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_gateway_are_their_crates() {
        let filter = "info,interlingua::engine=debug,interlingua::store::postgres::writer=trace,hyper=warn";
        let expected = "info,interlingua_engine=debug,interlingua_store_postgres::writer=trace,hyper=warn";
        assert_eq!(with_crates(filter), expected);
        assert_eq!(with_crates("interlingua=debug"), "interlingua=debug");
    }
}
