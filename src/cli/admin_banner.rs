//! The start-up message about the admin listener, and the key of a start: printed to the terminal of the operator, or
//! written to a file that only its owner reads.
//!
//! Standard output is often kept by a log collector, so it never has the key. Not here: making and checking the key
//! (`crate::gateway`, `interlingua_server`).

use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use interlingua_base::clock;

/// The admin listener of a gateway that has started.
pub(super) struct AdminBanner {
    address: SocketAddr,
    /// Ends with a slash.
    url: String,
    has_console: bool,
    key: StartKey,
}

/// Where the operator finds the start key.
enum StartKey {
    /// The configuration has credentials, so there is no start key.
    None,
    /// It is printed to standard error, which is a terminal.
    Printed(String),
    /// It is in a file.
    InFile(KeyFile),
    /// It could not be written.
    Lost(io::Error),
}

impl AdminBanner {
    /// `key`: the key of this start, if there is one.
    pub(super) fn new(address: SocketAddr, tls: bool, has_console: bool, key: Option<String>) -> Self {
        let url = format!("{}://{address}/", if tls { "https" } else { "http" });
        let key = match key {
            None => StartKey::None,
            Some(key) if io::stderr().is_terminal() => StartKey::Printed(key),
            Some(key) => KeyFile::write(&folder(), &key).map_or_else(StartKey::Lost, StartKey::InFile),
        };
        Self { address, url, has_console, key }
    }

    /// Prints the address of the listener, and where its key is.
    pub(super) fn print_address(&self) {
        println!("operators find metrics and state at {}: /metrics, /readyz, /api/gateway", self.address);
        let curl = |key: &str| format!("curl -H \"authorization: Bearer {key}\" {}api/gateway", self.url);
        match &self.key {
            StartKey::None => {}
            StartKey::Printed(key) => eprintln!("the admin key of this start: {}", curl(key)),
            StartKey::InFile(file) => {
                let path = file.0.display();
                println!("the admin key of this start is in {path}\n  {}", curl(&format!("$(cat {path})")));
            }
            StartKey::Lost(error) => {
                tracing::warn!(%error, "cannot write the admin key to a file: set key in [admin]");
            }
        }
    }

    /// Prints the link to the console, if it is served.
    pub(super) fn print_console(&self) {
        if !self.has_console {
            return;
        }
        match &self.key {
            // Within the fragment, which browsers send nowhere and no one logs.
            StartKey::Printed(key) => eprintln!("Console: {}#key={key}", self.url),
            StartKey::InFile(file) => println!("Console: {} (sign in with the key in {})", self.url, file.0.display()),
            StartKey::None | StartKey::Lost(_) => println!("Console: {}", self.url),
        }
    }
}

/// The folder of the user's runtime files (XDG Base Directory Specification), else that of temporary files.
fn folder() -> PathBuf {
    std::env::var_os("XDG_RUNTIME_DIR")
        .filter(|folder| !folder.is_empty())
        .map_or_else(std::env::temp_dir, PathBuf::from)
}

/// A file with a key. It is removed when this is dropped; the key of a gateway that was killed is worth nothing.
struct KeyFile(PathBuf);

impl KeyFile {
    fn write(folder: &Path, key: &str) -> io::Result<Self> {
        let path = folder.join(format!("interlingua-admin-{}.key", clock::new_id()));
        let mut options = OpenOptions::new();
        // A new file: others may write to the folder, and a link there could lead anywhere.
        options.create_new(true).write(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&path)?;
        let kept = Self(path);
        writeln!(file, "{key}")?;
        Ok(kept)
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_is_for_its_owner_and_is_removed_in_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = KeyFile::write(folder.path(), "il_key").expect("a file");
        assert_eq!(fs::read_to_string(&file.0).expect("the key"), "il_key\n");
        #[cfg(unix)]
        assert_eq!(interlingua_base::files::mode(&file.0).map(|mode| mode & 0o777), Some(0o600));
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }
}
