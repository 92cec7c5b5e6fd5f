//! The log: to standard error, as text or JSON, with the secrets of the configuration masked. Its filter can be changed
//! while the gateway is running. Warnings and errors that pass the filter are also sent to a collector, if one is
//! configured.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt, registry, reload};

use super::LogFormat;
use interlingua_base::secrets::MaskingWriter;
use interlingua_observe::{LogFilter, LogForwarder};

/// Initializes the global log subscriber. Returns its filter.
pub(super) fn start(filter: &str, format: LogFormat) -> anyhow::Result<LogFilter> {
    let (layer, handle) = reload::Layer::new(parse(filter)?);
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let writer = MaskingWriter { inner: std::io::stderr, json: matches!(format, LogFormat::Json) };
    let lines = fmt::layer().with_ansi(colour).with_writer(writer);
    let lines = match format {
        LogFormat::Pretty => lines.with_target(false).compact().boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    registry().with(layer).with(lines).with(LogForwarder).try_init()?;

    Ok(LogFilter::new(filter, move |filter| {
        let filter = parse(filter).map_err(|error| format!("{error:#}"))?;
        handle.reload(filter).map_err(|error| error.to_string())
    }))
}

fn parse(filter: &str) -> anyhow::Result<EnvFilter> {
    let invalid = || format!("\"{filter}\" is not a valid log filter");
    EnvFilter::try_new(filter).with_context(invalid)?;
    // The later of two directives for one target wins, so that the user's filter takes precedence.
    EnvFilter::try_new(format!("{},{filter}", crate::server::QUIET.join(","))).with_context(invalid)
}
