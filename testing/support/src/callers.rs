//! Callers with keys, for tests of rights.

use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::http::Response;

/// Ways for callers to prove who they are: by a key of the file that [`write_keys`] writes.
pub const AUTH: &str = "[auth]\nkeys = \"keys.toml\"\n";

/// The key of a caller: the same in every test. The caller's name is at most twelve letters.
pub fn key_of(caller: &str) -> String {
    format!("il_{}_{}", id_of(caller), hex(&Sha256::digest(caller)))
}

fn id_of(caller: &str) -> String {
    format!("{caller:x<12}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes the key file of these callers.
pub fn write_keys(folder: &Path, callers: &[&str]) {
    let entry = |caller: &&str| {
        let hash = hex(&Sha256::digest(key_of(caller)));
        let id = id_of(caller);
        format!(
            "[[keys]]\nid = \"{id}\"\ncaller = \"{caller}\"\nsha256 = \"{hash}\"\ncreated = 2026-11-22T17:00:00Z\n\n"
        )
    };
    let path = folder.join("keys.toml");
    std::fs::write(&path, callers.iter().map(entry).collect::<String>()).expect("the key file is written");
    restrict(&path);
}

/// Everything in a response that does not differ between two requests.
pub fn comparable(response: &Response) -> (u16, Vec<(String, String)>, String) {
    // A connection is closed after a refusal whose body has not arrived yet: that depends on the network alone.
    let varies = ["connection", "date", "x-request-id", "request-id"];
    let mut headers: Vec<_> =
        response.headers.iter().filter(|(name, _)| !varies.contains(&name.as_str())).cloned().collect();
    // Their order is that of a hash map.
    headers.sort_unstable();
    let id = response.header("x-request-id").unwrap_or("no id");
    (response.status, headers, response.text().replace(id, "ID"))
}

#[cfg(unix)]
fn restrict(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("the owner of the file");
}

#[cfg(not(unix))]
fn restrict(_: &Path) {}
