//! Warnings about the configuration as lines of the log: one line each, and only once while they stay the same.

use std::collections::HashSet;

use interlingua_config::{Diagnostics, Severity};

/// The messages of warnings that were shown.
pub(super) type ShownWarnings = HashSet<String>;

pub(super) fn messages(diagnostics: &Diagnostics) -> ShownWarnings {
    diagnostics.iter().map(|one| one.message().to_owned()).collect()
}

/// Logs each warning that was not shown before.
pub(super) fn log_new(diagnostics: &Diagnostics, shown: &ShownWarnings) {
    for one in diagnostics.iter().filter(|one| one.severity() == Severity::Warning && !shown.contains(one.message())) {
        let (file, advice) = (diagnostics.name(), one.advice());
        match diagnostics.line_and_column(one) {
            Some((line, column)) => tracing::warn!(file, line, column, advice, "configuration: {}", one.message()),
            None => tracing::warn!(file, advice, "configuration: {}", one.message()),
        }
    }
}

/// Logs all warnings.
pub(crate) fn log(diagnostics: &Diagnostics) {
    log_new(diagnostics, &ShownWarnings::new());
}
