//! Changes of the key file, as text: comments and other entries stay as they are.
//!
//! One change at a time, by a lock on a file next to it; the new file replaces the old one whole, so that a gateway
//! that is running never reads half of it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use interlingua_core::event::Millis;
use jiff::Timestamp;

use super::file::{self, MAX_FILE_LEN, read};
use super::{NewKey, hash, hex};

/// The first lines of a new file.
const HEAD: &str = "# API keys of Interlingua. It holds hashes, no keys. Made by `interlingua key new CALLER`.\n";

/// Adds a key for a caller whose name was checked. Creates the file if it does not exist.
///
/// # Errors
/// The file cannot be read or written, or is not a key file.
pub fn append(path: &Path, key: &NewKey, caller: &str, now: Millis, expires: Option<Millis>) -> Result<(), String> {
    change(path, |text| {
        let mut text = if text.is_empty() { HEAD.to_owned() } else { text };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        let (id, hash, created) = (&key.id, hex(&hash(&key.text)), written(now));
        text.push_str(&format!(
            "\n[[keys]]\nid = \"{id}\"\ncaller = \"{caller}\"\nsha256 = \"{hash}\"\ncreated = {created}\n"
        ));
        if let Some(expires) = expires {
            text.push_str(&format!("expires = {}\n", written(expires)));
        }

        Ok(text)
    })
}

/// Marks a key as revoked. Returns its caller, and whether it was revoked before.
///
/// # Errors
/// If the file cannot be read or written, is not a key file, or has no such key.
pub fn revoke(path: &Path, id: &str, now: Millis) -> Result<(String, bool), String> {
    let mut revoked = None;
    change(path, |mut text| {
        let entries = file::parse(&text)?;
        let Some(at) = entries.iter().position(|entry| entry.id_text() == id) else {
            return Err(format!("no key has the id {id:?}"));
        };
        revoked = Some((entries[at].caller.clone(), entries[at].revoked.is_some()));
        if entries[at].revoked.is_none() {
            // A line of its own, right after that of the id.
            let id_end = read(&text)?.keys[at].get_ref().id.span().end;
            let line_end = text[id_end..].find('\n').map(|end| id_end + end);
            let line = format!("\nrevoked = {}", written(now));
            text.insert_str(line_end.unwrap_or(text.len()), &line);
        }

        Ok(text)
    })?;
    revoked.ok_or_else(|| format!("no key has the id {id:?}"))
}

/// A time as the file holds it, in whole seconds.
fn written(time: Millis) -> String {
    let time = i64::try_from(time).ok().and_then(|time| Timestamp::from_millisecond(time).ok());
    let time = time.unwrap_or(Timestamp::UNIX_EPOCH);
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Replaces the file by what `edit` makes of its text.
fn change(path: &Path, edit: impl FnOnce(String) -> Result<String, String>) -> Result<(), String> {
    let shown = path.display();
    let failed = |what: &str, error: io::Error| format!("cannot {what} {shown}: {error}");

    let lock = beside(path, ".lock");
    let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock);
    let lock = lock.map_err(|error| failed("lock", error))?;
    lock.lock().map_err(|error| failed("lock", error))?;

    let old = read_file(path).map_err(|error| failed("read", error))?;
    file::parse(&old).map_err(|error| format!("{shown} cannot be used: {error}"))?;
    let new = edit(old)?;
    // The new text must be readable, whatever the old text looked like.
    file::parse(&new).map_err(|error| format!("{shown} cannot be changed: {error}"))?;
    replace(path, &new).map_err(|error| failed("write", error))
}

/// The text of a file; empty if the file does not exist.
fn read_file(path: &Path) -> io::Result<String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(MAX_FILE_LEN as u64).read_to_string(&mut text)?;
    Ok(text)
}

/// Writes a file that only its owner can read instead of another one, so that either the old or the new one is
/// there after a crash.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = beside(path, ".tmp");
    // A file that an interrupted change left behind may have other permissions.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;

    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// The path with an ending added to its name.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::keys::{KeyEntry, KeyState};

    const NOW: Millis = 1_800_000_000_000;

    fn entries(path: &Path) -> Vec<KeyEntry> {
        file::parse(&fs::read_to_string(path).expect("a file")).expect("a key file")
    }

    #[test]
    fn keys_are_added_and_revoked_and_comments_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keys.toml");
        let (one, other) = (NewKey::generate().expect("a key"), NewKey::generate().expect("a key"));
        append(&path, &one, "ann", NOW, None).expect("added");
        let commented =
            fs::read_to_string(&path).expect("a file").replace("caller = \"ann\"", "caller = \"ann\" # Ann");
        fs::write(&path, commented.trim_end()).expect("written");
        append(&path, &other, "bob", NOW, Some(NOW + 1000)).expect("added");

        assert_eq!(revoke(&path, &one.id, NOW), Ok(("ann".to_owned(), false)));
        assert_eq!(revoke(&path, &one.id, NOW), Ok(("ann".to_owned(), true)));
        assert!(revoke(&path, "nosuchkey000", NOW).is_err_and(|error| error.contains("nosuchkey000")));
        let text = fs::read_to_string(&path).expect("a file");
        assert!(text.starts_with(HEAD) && text.contains("\"ann\" # Ann\n") && !text.contains(&one.text[16..]));
        let states: Vec<KeyState> = entries(&path).iter().map(|entry| entry.state(NOW)).collect();
        assert_eq!(states, [KeyState::Revoked, KeyState::Valid]);
        assert_eq!(entries(&path)[1].state(NOW + 1000), KeyState::Expired);
        assert_eq!(entries(&path)[1].hash, hash(&other.text));
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn an_invalid_file_stays_unchanged() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keys.toml");
        fs::write(&path, "keys = 1\n").expect("written");
        let key = NewKey::generate().expect("a key");
        assert!(append(&path, &key, "ann", NOW, None).is_err_and(|error| error.contains("line 1")));
        assert_eq!(fs::read_to_string(&path).expect("a file"), "keys = 1\n");
    }
}
