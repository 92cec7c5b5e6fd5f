//! Files of the configuration, and whether they have changed.
//!
//! They are looked at from time to time, since notifications miss replaced symbolic links and network file systems.

use std::path::PathBuf;

use interlingua_base::files::{Version, version};
use interlingua_config::Settings;

/// The files without that of the keys, which is read as soon as it changes, apart from the configuration.
pub(super) fn without_keys(mut files: Vec<PathBuf>, settings: &Settings) -> Vec<PathBuf> {
    files.retain(|file| Some(file) != settings.auth.keys.as_ref());
    files
}

/// Files, and the version of each that was read last.
pub(super) struct WatchedFiles {
    files: Vec<(PathBuf, Option<Version>)>,
    /// The versions that the last poll found, if they differ.
    changed: Option<Vec<Option<Version>>>,
}

impl WatchedFiles {
    /// Files that were just read.
    pub(super) fn new(files: Vec<PathBuf>) -> Self {
        let mut watched = Self { files: Vec::new(), changed: None };
        watched.replace(files);
        watched
    }

    /// Watches these files, which were just read, instead.
    pub(super) fn replace(&mut self, mut files: Vec<PathBuf>) {
        files.sort();
        files.dedup();
        self.files = files.into_iter().map(|file| (file.clone(), version(&file))).collect();
        self.changed = None;
    }

    /// True once the files have changed and are the same in two polls in a row: an editor may write one in several
    /// steps.
    pub(super) fn poll(&mut self) -> bool {
        let now: Vec<_> = self.files.iter().map(|(file, _)| version(file)).collect();
        let is_same = self.files.iter().zip(&now).all(|((_, known), now)| known == now);
        if is_same {
            self.changed = None;
            return false;
        }

        let is_settled = self.changed.as_ref() == Some(&now);
        self.changed = Some(now);
        is_settled
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_change_counts_once_it_is_the_same_twice() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, missing) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&file, "1").expect("a file");
        let mut watched = WatchedFiles::new(vec![file.clone(), missing.clone(), file.clone()]);
        assert!(!watched.poll() && !watched.poll());

        fs::write(&file, "22").expect("a file");
        assert!(!watched.poll(), "it may still be written");
        fs::write(&file, "333").expect("a file");
        assert!(!watched.poll(), "it was");
        assert!(watched.poll());
        watched.replace(vec![file, missing.clone()]);
        assert!(!watched.poll());

        fs::write(&missing, "").expect("a file");
        assert!(!watched.poll() && watched.poll(), "a file that was missing");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_leads_elsewhere_is_a_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["a", "b"] {
            fs::write(path(name), "x").expect("a file");
        }
        std::os::unix::fs::symlink(path("a"), path("link")).expect("a link");
        let mut watched = WatchedFiles::new(vec![path("link")]);
        std::os::unix::fs::symlink(path("b"), path("new")).expect("a link");
        fs::rename(path("new"), path("link")).expect("replaced");
        assert!(!watched.poll() && watched.poll());
    }
}
