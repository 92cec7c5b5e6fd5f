//! The losses that the gateway reports: the field `lost` of the request's line in its access log, which equals its log
//! line `content lost or changed`.

use std::path::{Path, PathBuf};

use interlingua_core::loss::ContentKind;
use serde_json::Value;

use crate::support::poll_until;

/// Something that the gateway reported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReportedLoss {
    /// Such as `usage`.
    pub(crate) kind: String,
    /// Lost, not only changed.
    pub(crate) is_lost: bool,
    /// In what way.
    pub(crate) how: String,
}

impl ReportedLoss {
    pub(crate) fn is_about(&self, kind: ContentKind) -> bool {
        self.kind == kind.as_str()
    }

    fn read(entry: &Value) -> Self {
        let text = |name: &str| entry[name].as_str().unwrap_or_else(|| panic!("no {name} in {entry}")).to_owned();
        Self { kind: text("kind"), is_lost: text("change") == "lost", how: text("how") }
    }
}

/// Reads the access log of one gateway.
pub(crate) struct AccessLog {
    path: PathBuf,
}

impl AccessLog {
    /// The configuration that this needs.
    pub(crate) const CONFIG: &'static str = "[observe]\naccess_log = { format = \"json\", path = \"access.jsonl\" }";

    /// The log of the gateway in this folder.
    pub(crate) fn of(folder: &Path) -> Self {
        Self { path: folder.join("access.jsonl") }
    }

    /// The losses of an ended request.
    pub(crate) async fn lost_in(&self, request: &str) -> Vec<ReportedLoss> {
        let line = poll_until("the request to be over", async || {
            let text = std::fs::read_to_string(&self.path).unwrap_or_default();
            // The last line may be half written. Requests are over soon, so the end is read first.
            let line = text.split_inclusive('\n').rev().find(|line| line.contains(request) && line.ends_with('\n'));
            line.map(|line| serde_json::from_str::<Value>(line).expect("the log is JSON"))
        });
        line.await["lost"].as_array().into_iter().flatten().map(ReportedLoss::read).collect()
    }
}
