//! The file of keys as it changes: read when it is another one than before.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use interlingua_base::files::{self, Version};
use interlingua_config::keys::{self, KeyEntry};

/// A file of keys, and which version of it was read.
#[derive(Debug)]
pub(super) struct KeySource {
    path: PathBuf,
    seen: Option<Version>,
}

impl KeySource {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), seen: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// True if the file is another one than was read last. A file that is gone is not.
    pub(super) fn is_changed(&self) -> bool {
        files::version(&self.path).is_some_and(|version| self.seen != Some(version))
    }

    /// Reads the file, whether it can be used or not: the same version is not tried twice. No file has no keys.
    ///
    /// # Errors
    /// Why the file cannot be used.
    pub(super) fn read(&mut self) -> Result<Vec<KeyEntry>, String> {
        // Before the content, so that a change in between is noticed later.
        self.seen = files::version(&self.path);
        let text = match fs::read_to_string(&self.path) {
            Ok(text) if text.len() > keys::MAX_FILE_LEN => return Err("it is too large".to_owned()),
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error.to_string()),
        };
        keys::parse(&text)
    }

    /// True if everyone on this machine can read the file.
    pub(super) fn is_readable_by_others(&self) -> bool {
        files::mode(&self.path).is_some_and(|mode| mode & files::READABLE_BY_OTHERS != 0)
    }
}
