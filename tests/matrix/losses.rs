//! What the gateway says it lost: its log lines `content lost`, which it writes before the line of the request in the
//! access log.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, Once};

use interlingua_core::loss::{Change, ContentKind};
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::support::poll_until;

/// One line of the log, with its request.
#[derive(Clone, Debug, Default)]
struct Line {
    request: String,
    lost: String,
    changed: String,
}

static LINES: LazyLock<Mutex<Vec<Line>>> = LazyLock::new(|| Mutex::new(Vec::new()));

/// Something that the gateway reported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reported {
    /// Such as `usage`.
    pub(crate) kind: String,
    /// Lost, not only changed.
    pub(crate) is_lost: bool,
    /// In what way.
    pub(crate) how: String,
}

impl Reported {
    /// Whether it is about this kind of content.
    pub(crate) fn is_about(&self, kind: ContentKind) -> bool {
        self.kind == kind.as_str()
    }
}

/// Reads the log of one gateway.
pub(crate) struct Losses {
    access_log: PathBuf,
}

impl Losses {
    /// What a gateway needs in its configuration.
    pub(crate) const CONFIG: &'static str = "[observe]\naccess_log = { format = \"json\", path = \"access.jsonl\" }";

    /// Begins to listen to the log of this process.
    pub(crate) fn watch() -> Watching {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let _ = tracing_subscriber::registry().with(Listener).try_init();
        });
        Watching
    }

    /// What was lost in these requests, once they are over.
    pub(crate) async fn of_requests(&self, requests: &[String]) -> Vec<Reported> {
        poll_until("the requests to be over", async || {
            let text = std::fs::read_to_string(&self.access_log).unwrap_or_default();
            requests.iter().all(|id| text.contains(id.as_str())).then_some(())
        })
        .await;
        let lines = LINES.lock().expect("no listener panics");
        let mine = lines.iter().filter(|line| requests.contains(&line.request));
        mine.flat_map(|line| reported(&line.lost, true).chain(reported(&line.changed, false))).collect()
    }
}

/// The log is listened to.
pub(crate) struct Watching;

impl Watching {
    /// The log of the gateway in this folder.
    pub(crate) fn of(self, folder: &Path) -> Losses {
        Losses { access_log: folder.join("access.jsonl") }
    }
}

/// Reads `usage (not reported) ×2; text (…)`.
fn reported(text: &str, is_lost: bool) -> impl Iterator<Item = Reported> {
    text.split("; ").filter_map(move |one| {
        let (kind, rest) = one.split_once(" (")?;
        let (how, _) = rest.rsplit_once(')')?;
        Some(Reported { kind: kind.to_owned(), is_lost, how: how.to_owned() })
    })
}

struct Listener;

impl<S: Subscriber> Layer<S> for Listener {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if fields.message == "content lost" {
            LINES.lock().expect("no listener panics").push(fields.line);
        }
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    line: Line,
}

impl Fields {
    fn set(&mut self, name: &str, text: String) {
        match name {
            "message" => self.message = text,
            "request" => self.line.request = text,
            "lost" => self.line.lost = text,
            "changed" => self.line.changed = text,
            _ => {}
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.set(field.name(), format!("{value:?}"));
    }
}

#[test]
fn a_line_names_each_loss() {
    let found: Vec<Reported> = reported("usage (not reported) ×2; text (an (odd) word)", true).collect();
    let usage = Reported { kind: "usage".into(), is_lost: true, how: "not reported".into() };
    let text = Reported { kind: "text".into(), is_lost: true, how: "an (odd) word".into() };
    assert_eq!(found, [usage, text]);
    assert!(serde_json::to_value(ContentKind::Usage).is_ok_and(|value| value == Value::from("usage")));
    assert_ne!(Change::Lost, Change::Changed);
}
