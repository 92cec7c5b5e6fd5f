//! What the gateway reports about itself: the access log and the audit log.

use std::path::{Path, PathBuf};

use super::diagnostics::Diagnostic;
use super::located::Located;
use super::operators::{AccessLogTable, LogForm, ObserveTable, SessionForm};
use super::settings::{AccessLog, Observe};
use super::validator::Validator;

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
    Observe { access_log, audit }
}

fn file(located: &Located<String>, empty: &str, validator: &mut Validator<'_, '_>) -> PathBuf {
    if located.value.is_empty() {
        validator.report(Diagnostic::error(empty).at(&located.span).label("write a file name"));
    }
    validator.folder.join(Path::new(&located.value))
}
