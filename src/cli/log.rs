//! The log: to standard error, as text or JSON, with the secrets of the configuration masked.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;

use super::LogFormat;
use crate::secrets::MaskingWriter;

/// Initializes the global log subscriber.
pub(super) fn start(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    EnvFilter::try_new(filter).with_context(|| format!("\"{filter}\" is not a valid log filter"))?;
    // The later of two directives for one target wins, so that the user's filter takes precedence.
    let filter = EnvFilter::try_new(format!("{},{filter}", crate::server::QUIET.join(",")))?;

    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colour).with_writer(MaskingWriter(std::io::stderr));
    let started = match format {
        LogFormat::Pretty => lines.with_target(false).compact().try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("{error}"))
}
