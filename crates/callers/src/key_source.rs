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
    /// The file was there before. If it is not any more, that is a mistake, and not the order to revoke every key.
    has_existed: bool,
}

impl KeySource {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), seen: None, has_existed: false }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// True if the file is another one than was read last, or is gone since then.
    pub(super) fn is_changed(&self) -> bool {
        files::version(&self.path) != self.seen
    }

    /// Reads the file, whether it can be used or not: the same version is not tried twice. A file that was never there
    /// has no keys.
    ///
    /// # Errors
    /// Why the file cannot be used.
    pub(super) fn read(&mut self) -> Result<Vec<KeyEntry>, String> {
        // Before the content, so that a change in between is noticed later.
        self.seen = files::version(&self.path);
        self.has_existed |= self.seen.is_some();
        let text = match fs::read_to_string(&self.path) {
            Ok(text) if text.len() > keys::MAX_FILE_LEN => return Err("it is too large".to_owned()),
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.has_existed => return Ok(Vec::new()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err("it does not exist any more".to_owned());
            }
            Err(error) => return Err(error.to_string()),
        };
        keys::parse(&text)
    }

    /// True if everyone on this machine can read the file.
    pub(super) fn is_readable_by_others(&self) -> bool {
        files::mode(&self.path).is_some_and(|mode| mode & files::READABLE_BY_OTHERS != 0)
    }
}

#[cfg(test)]
mod tests {
    use interlingua_config::keys::{NewKey, append};

    use super::*;

    #[test]
    fn a_file_that_was_never_there_has_no_keys_and_one_that_is_removed_cannot_be_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keys.toml");
        let mut source = KeySource::new(&path);
        assert_eq!(source.read().map(|keys| keys.len()), Ok(0));
        assert!(!source.is_changed());

        let add = || append(&path, &NewKey::generate().expect("a key"), "ann", 0, None).expect("the key is added");
        add();
        assert!(source.is_changed());
        assert_eq!(source.read().map(|keys| keys.len()), Ok(1));
        fs::remove_file(&path).expect("removed");
        assert!(source.is_changed());
        assert!(source.read().is_err());
        assert!(!source.is_changed(), "it is reported once");
        assert!(source.read().is_err(), "a reload of the configuration reads it too");

        add();
        assert!(source.is_changed());
        assert_eq!(source.read().map(|keys| keys.len()), Ok(1));
    }
}
