//! The environment, the files and their permissions that the configurations of the tests refer to.

use std::io;
use std::path::Path;
use std::sync::LazyLock;

/// The value of an environment variable.
pub(crate) fn env(name: &str) -> Option<String> {
    match name {
        "FRIDAY_TOKEN" => Some("hunter2".to_owned()),
        "ADMIN_KEY" => Some("an-admin-key-of-at-least-32-characters".to_owned()),
        "TWO_LINES" => Some("hunter2\nhunter2".to_owned()),
        "EMPTY" => Some(String::new()),
        "SHORT" => Some("pin42".to_owned()),
        _ => None,
    }
}

/// The content of a file.
pub(crate) fn file(path: &Path, _: usize) -> io::Result<Vec<u8>> {
    let [identity, other] = identities();
    let content = match path.strip_prefix("conf").unwrap_or(path).to_str() {
        Some("secrets/friday.key" | "secrets/open-friday.key") => "hunter3\n",
        Some("secrets/open-admin.key") => "an-admin-key-of-at-least-32-characters\n",
        Some("tls/cert.pem" | "tls/clients.pem") => &identity.0,
        Some("tls/key.pem" | "tls/open-key.pem") => &identity.1,
        Some("tls/other-key.pem") => &other.1,
        Some("tls/encrypted-key.pem") => {
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----\n"
        }
        Some("tls/empty.pem") => "nothing\n",
        Some("keys.toml" | "secrets/keys.toml") => "# no keys yet\n",
        Some("secrets/no-keys.toml") => "[[keys]]\nid = \"hunter2hunter\"\n",
        _ => return Err(io::Error::new(io::ErrorKind::NotFound, "no such file")),
    };
    Ok(content.as_bytes().to_vec())
}

/// Two certificates with their keys, in PEM.
fn identities() -> &'static [(String, String); 2] {
    static IDENTITIES: LazyLock<[(String, String); 2]> = LazyLock::new(|| {
        ["one", "another"].map(|name| {
            let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
            (made.cert.pem(), made.signing_key.serialize_pem())
        })
    });
    &IDENTITIES
}

/// The permission bits of files: those that are called open are readable by everyone.
pub(crate) fn mode(path: &Path) -> Option<u32> {
    let is_open = path.file_name()?.to_str()?.starts_with("open");
    Some(if is_open { 0o644 } else { 0o600 })
}
