//! Checks of the files of TLS.

use std::path::Path;

use super::diagnostics::Diagnostic;
use super::located::{Table, WithSpan};
use super::tls_table::TlsTable;
use super::validator::Validator;
use interlingua_base::tls::{MAX_FILE_LEN, TlsFile, TlsFiles};

/// The files, unless one of them is unusable.
pub(super) fn files(located: &WithSpan<Table<TlsTable>>, validator: &mut Validator<'_, '_>) -> Option<TlsFiles> {
    let table = &located.value;
    let (Some(cert), Some(key)) = (&table.cert, &table.key) else {
        let is_known = |name| validator.rejected.contains(&located.span, name);
        if !is_known("cert") && !is_known("key") {
            let diagnostic = Diagnostic::error("\"tls\" needs both \"cert\" and \"key\"").at(&located.span);
            validator.report(diagnostic.label("name the files, in PEM"));
        }
        return None;
    };

    let files = TlsFiles {
        cert: validator.folder.join(&cert.value),
        key: validator.folder.join(&key.value),
        client_ca: table.client_ca.as_ref().map(|authorities| validator.folder.join(&authorities.value)),
    };
    let read = |path: &Path| (validator.env.file)(path, MAX_FILE_LEN);
    if let Ok(key) = read(&files.key) {
        validator.env.remember(&String::from_utf8_lossy(&key));
    }

    if let Err(error) = files.check(&read) {
        let (written, label) = match error.file {
            TlsFile::Cert => (cert, "must hold the certificate of the gateway, then its issuers"),
            TlsFile::Key => (key, "must hold the private key of the certificate"),
            TlsFile::ClientCa => {
                (table.client_ca.as_ref().unwrap_or(cert), "must hold the authorities that sign clients")
            }
        };
        validator.report(
            Diagnostic::error(format!("{:?} {}", written.value, error.reason))
                .at(&written.span)
                .label(label)
                .help("relative paths start at the folder of this file"),
        );
        return None;
    }
    Some(files)
}
