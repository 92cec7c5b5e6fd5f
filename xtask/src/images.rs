//! `cargo xtask pin-images`: pins the base images of the Dockerfile and of the compose files by digest.
//!
//! A registry can move a tag to another image; a digest never changes. In `image:tag@sha256:…` the tag tells people
//! what it is. The command asks the registry for the current digest of every tag and rewrites the files. It needs the
//! network and one of `docker`, `skopeo` or `crane`. `--check` needs neither: it lists the images without a digest.
//!
//! Not here: building images.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{process, root};

/// The files with images.
const FILES: [&str; 3] = ["Dockerfile", "examples/replicas/compose.yaml", "docs/operations/postgresql.md"];

/// Time that a registry has to answer.
const LIMIT: Duration = Duration::from_secs(60);

/// Programs that ask a registry for a digest, each with its arguments before the name of the image.
const CLIENTS: [(&str, &[&str]); 3] = [
    ("docker", &["buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}"]),
    ("skopeo", &["inspect", "--no-tags", "--format", "{{.Digest}}"]),
    ("crane", &["digest"]),
];

/// Updates the pins, or checks with `--check` that every image has one. False: an image has none.
pub(crate) fn run(arguments: &[&str]) -> Result<bool> {
    match arguments {
        [] => {
            let mut digests = Digests::default();
            for name in FILES {
                let path = root().join(name);
                let text = read(&path)?;
                let pinned = pinned(&text, |image| digests.of(image))?;
                if pinned != text {
                    std::fs::write(&path, pinned).with_context(|| format!("cannot write {name}"))?;
                    println!("{name}: updated");
                }
            }
            Ok(true)
        }
        ["--check"] => {
            let mut is_pinned = true;
            for name in FILES {
                for image in images(&read(&root().join(name))?).filter(|image| image.digest.is_none()) {
                    println!("{name}: {}:{} has no digest", image.name, image.tag);
                    is_pinned = false;
                }
            }
            Ok(is_pinned)
        }
        other => bail!("unknown arguments {other:?} of pin-images, expected --check or none"),
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("no {}", path.display()))
}

/// A reference to an image with a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Image<'a> {
    name: &'a str,
    tag: &'a str,
    /// With the algorithm: `sha256:…`.
    digest: Option<&'a str>,
    /// The whole reference, as a part of the text.
    reference: &'a str,
}

/// All images in the lines of a Dockerfile or a compose file. Images without a tag are our own, and stages of the same
/// Dockerfile have none either.
fn images(text: &str) -> impl Iterator<Item = Image<'_>> {
    text.lines().filter_map(|line| image(reference(line)?))
}

/// The reference of a line `FROM reference` or of a key `image:`.
fn reference(line: &str) -> Option<&str> {
    let value = match line.strip_prefix("FROM ") {
        // Options such as --platform stand before the image.
        Some(words) => words.split_whitespace().find(|word| !word.starts_with("--"))?,
        None => {
            let (before, value) = line.split_once("image:")?;
            let is_key = before.chars().next_back().is_none_or(|letter| letter.is_whitespace() || letter == '{');
            value.split_whitespace().next().filter(|_| is_key)?
        }
    };
    Some(value.trim_matches(['"', '\'', ',', '}']))
}

fn image(reference: &str) -> Option<Image<'_>> {
    let (tagged, digest) = match reference.split_once('@') {
        Some((tagged, digest)) => (tagged, Some(digest)),
        None => (reference, None),
    };
    // The port of a registry is no tag.
    let (name, tag) = tagged.rsplit_once(':').filter(|(_, tag)| !tag.contains('/'))?;
    let is_name = !name.is_empty() && !tag.is_empty() && !reference.contains(['$', '{']);
    is_name.then_some(Image { name, tag, digest, reference })
}

/// The text with the digests that `digest_of` returns for `name:tag`.
fn pinned(text: &str, mut digest_of: impl FnMut(&str) -> Result<String>) -> Result<String> {
    let mut output = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        match reference(line.trim_end_matches(['\n', '\r'])).and_then(image) {
            None => output.push_str(line),
            Some(image) => {
                let tagged = format!("{}:{}", image.name, image.tag);
                let digest = digest_of(&tagged)?;
                output.push_str(&line.replacen(image.reference, &format!("{tagged}@{digest}"), 1));
            }
        }
    }
    Ok(output)
}

/// The digest of each image, by name. Asks the registry once per image, even if several files use the image.
#[derive(Default)]
struct Digests(BTreeMap<String, String>);

impl Digests {
    fn of(&mut self, image: &str) -> Result<String> {
        if let Some(known) = self.0.get(image) {
            return Ok(known.clone());
        }
        let digest = look_up(image)?;
        self.0.insert(image.to_owned(), digest.clone());
        Ok(digest)
    }
}

/// Asks the registry of an image with the first client that is installed.
fn look_up(image: &str) -> Result<String> {
    let installed = |(name, _): &&(&str, &[&str])| find(name).is_some();
    let (client, arguments) = CLIENTS
        .iter()
        .find(installed)
        .context("install docker (with buildx), skopeo or crane: one of them asks the registry for a digest")?;
    // skopeo reaches several kinds of storage, and wants to know which.
    let image_name = if *client == "skopeo" { format!("docker://{image}") } else { image.to_owned() };
    let mut command = Command::new(client);
    command.args(*arguments).arg(&image_name);
    let (status, output) = process::run_and_read(&mut command, LIMIT)?;
    if !status.success() {
        bail!("{}: {status}", process::shown(&command));
    }
    digest(&output).with_context(|| format!("{client} printed no digest of {image}"))
}

/// The digest in the output of a client.
fn digest(output: &str) -> Option<String> {
    let found = output.split_whitespace().find(|word| is_digest(word))?;
    Some(found.to_owned())
}

fn is_digest(word: &str) -> bool {
    let hex = word.strip_prefix("sha256:");
    hex.is_some_and(|hex| {
        hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}

/// The path of a program in `PATH`.
fn find(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn found(text: &str) -> Vec<(&str, &str, Option<&str>)> {
        images(text).map(|image| (image.name, image.tag, image.digest)).collect()
    }

    #[test]
    fn images_are_found_where_files_name_them() {
        let dockerfile = "FROM rust:1.95-alpine AS build\nFROM --platform=linux/amd64 host:5000/a/b:1\nFROM scratch\nFROM build\n# FROM x:1\n";
        assert_eq!(found(dockerfile), [("rust", "1.95-alpine", None), ("host:5000/a/b", "1", None)]);

        let compose = "  image: interlingua\n    image: postgres:17\n  b: { image: \"haproxy:3.2-alpine\", ports: [] }\n\
                       # the image: is postgres:16\n  x-image: old:1\n    image: ${IMAGE}:1\n";
        assert_eq!(found(compose), [("postgres", "17", None), ("haproxy", "3.2-alpine", None)]);

        let pinned = format!("    image: 'postgres:17@{DIGEST}'\n");
        assert_eq!(found(&pinned), [("postgres", "17", Some(DIGEST))]);
    }

    #[test]
    fn digests_are_added_and_replaced_and_nothing_else_changes() {
        let text = "FROM rust:1.95-alpine AS build\r\nRUN echo image: x\n  b: { image: \"postgres:17@sha256:old\", c: 1 }\n    image: own\n";
        let mut asked = Vec::new();
        let answer = |image: &str| {
            asked.push(image.to_owned());
            Ok(DIGEST.to_owned())
        };
        let expected = format!(
            "FROM rust:1.95-alpine@{DIGEST} AS build\r\nRUN echo image: x\n  b: {{ image: \"postgres:17@{DIGEST}\", c: 1 }}\n    image: own\n"
        );
        assert_eq!(pinned(text, answer).unwrap(), expected);
        assert_eq!(asked, ["rust:1.95-alpine", "postgres:17"]);
        assert_eq!(pinned(&expected, |_| Ok(DIGEST.to_owned())).unwrap(), expected, "a second run changes nothing");
        assert!(pinned(text, |_| bail!("no network")).is_err(), "a file is not half pinned");
    }

    #[test]
    fn only_a_whole_digest_is_accepted() {
        assert_eq!(digest(&format!("{DIGEST}\n")).as_deref(), Some(DIGEST));
        assert_eq!(digest(&format!("Name: x\nDigest: {DIGEST}\n")).as_deref(), Some(DIGEST));
        for wrong in ["", "sha256:abc", "no such manifest", &DIGEST.to_uppercase()] {
            assert_eq!(digest(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn every_file_with_images_is_listed() {
        let count = |name: &str| images(&read(&root().join(name)).unwrap()).count();
        assert_eq!(FILES.map(count), [1, 2, 2]);
    }
}
