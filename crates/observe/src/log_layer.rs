//! Sends warnings and errors of the log to a collector, besides writing them.
//!
//! The log is one for the process; and so is its destination. Not here: writing the log
//! (`src/cli`).

use std::fmt::{self, Write as _};
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwapOption;
use interlingua_core::filter::truncated;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::otlp::{LogEvent, Otlp};
use super::quiet::is_quiet;
use interlingua_base::clock;

/// Maximum length of a field that is sent, in bytes.
const MAX_FIELD: usize = 4096;

/// Where the lines go. `None`: nowhere else.
static TARGET: LazyLock<ArcSwapOption<Otlp>> = LazyLock::new(ArcSwapOption::empty);

/// Sends warnings and errors from now on to the collector of these, or to none.
pub fn forward_logs(to: Option<&Arc<Otlp>>) {
    TARGET.store(to.filter(|otlp| otlp.sends_logs()).cloned());
}

/// A layer of the log that sends warnings and errors to [the collector](forward_logs).
#[derive(Clone, Copy, Debug, Default)]
pub struct LogForwarder;

impl<S: Subscriber> Layer<S> for LogForwarder {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if *metadata.level() > Level::WARN || is_quiet() {
            return;
        }
        let target = TARGET.load();
        let Some(target) = &*target else { return };

        let mut fields = Fields::default();
        event.record(&mut fields);
        target.log(LogEvent {
            at: clock::now().saturating_mul(1_000_000),
            is_error: *metadata.level() == Level::ERROR,
            target: metadata.target(),
            message: fields.message,
            fields: fields.others,
        });
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, String)>,
}

impl Fields {
    fn add(&mut self, field: &Field, mut text: String) {
        text.truncate(truncated(&text, MAX_FIELD).len());
        if field.name() == "message" {
            self.message = text;
        } else {
            self.others.push((field.name(), text));
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        let _ = write!(text, "{value:?}");
        self.add(field, text);
    }
}
