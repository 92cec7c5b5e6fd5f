//! `cargo xtask new-protocol NAME`: writes the skeleton of an adapter, and registers it: the row of the registry of
//! rigs, the list of adapters, the manifests, and its page in the book.
//!
//! The templates are the files of `examples/protocol-sketch`, which is a crate of the workspace: they compile and are
//! tested.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::root;

/// The folder with the templates, and the name that they have for the protocol.
const TEMPLATES: (&str, &str) = ("examples/protocol-sketch", "sketch");
/// The template of the page; the other files are those of the adapter.
const PAGE: &str = "protocol.md";
/// The page of the summary before which new protocols are listed.
const AFTER_PROTOCOLS: &str = "- [Human in the loop](";

/// Makes the new text of a file.
type Edit<'a> = &'a dyn Fn(&str) -> Result<String>;

/// The parts of a new protocol.
#[derive(Clone, Copy, Debug)]
struct Plan<'a> {
    name: &'a str,
    serves: bool,
    connects: bool,
}

pub(crate) fn run(arguments: &[&str]) -> Result<bool> {
    let plan = Plan::parse(arguments)?;
    let written = plan.write(root())?;
    println!("written:\n  {}", written.join("\n  "));
    println!(
        "next:\n  cargo check -p interlingua-{name}\n  \
         INSTA_UPDATE=always cargo nextest run -p interlingua --test reference   (docs/reference/options.md)\n  \
         docs/extending/protocol.md says how to implement it",
        name = plan.name
    );
    Ok(true)
}

impl<'a> Plan<'a> {
    /// Reads the command line. Without `--serves` and `--connects` the protocol has both halves.
    fn parse(arguments: &[&'a str]) -> Result<Self> {
        const USAGE: &str = "usage: cargo xtask new-protocol NAME [--serves] [--connects]";
        let (mut names, mut serves, mut connects) = (Vec::new(), false, false);
        for argument in arguments {
            match *argument {
                "--serves" => serves = true,
                "--connects" => connects = true,
                name => names.push(name),
            }
        }
        let [name] = names[..] else { bail!(USAGE) };
        let is_word = |word: &str| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        let is_valid = name.split('-').all(is_word) && name.starts_with(|first: char| first.is_ascii_lowercase());
        ensure!(
            is_valid,
            "{name:?} is no name of a protocol: write lower-case words with hyphens, such as a2a or ag-ui"
        );
        let both = !serves && !connects;
        Ok(Self { name, serves: serves || both, connects: connects || both })
    }

    /// Writes all files below a root folder. Returns their paths.
    fn write(self, root: &Path) -> Result<Vec<String>> {
        let (templates, name) = (root.join(TEMPLATES.0), self.name);
        let (folder, page) = (format!("adapters/{name}"), format!("docs/protocols/{name}.md"));
        ensure!(!root.join(&folder).exists() && !root.join(&page).exists(), "there is a protocol {name:?} already");

        let mut written = Vec::new();
        for file in files_below(&templates)? {
            let text = fs::read_to_string(templates.join(&file)).with_context(|| file.clone())?;
            let target = if file == PAGE { page.clone() } else { format!("{folder}/{}", self.rename(&file)) };
            if !self.is_wanted(&file) {
                continue;
            }
            let path = root.join(&target);
            fs::create_dir_all(path.parent().context("a file has a folder")?)?;
            fs::write(&path, self.fill(&text))?;
            written.push(target);
        }

        let package = format!("interlingua-{name}");
        let edits: [(&str, Edit<'_>); 5] = [
            ("Cargo.toml", &|text| {
                let text = insert_sorted(
                    text,
                    "[workspace.dependencies]",
                    "interlingua-",
                    &format!("{package} = {{ path = \"{folder}\" }}"),
                )?;
                insert_sorted(&text, "[dependencies]", "interlingua-", &format!("{package}.workspace = true"))
            }),
            ("testing/protocols/Cargo.toml", &|text| {
                insert_sorted(text, "[dependencies]", "interlingua-", &format!("{package}.workspace = true"))
            }),
            ("src/adapters.rs", &|text| self.list(text)),
            ("testing/protocols/src/rows.rs", &|text| self.row(text)),
            ("docs/SUMMARY.md", &|text| {
                before(text, AFTER_PROTOCOLS, &format!("- [{}](protocols/{name}.md)\n", self.title()))
            }),
        ];
        for (file, edit) in edits {
            let path = root.join(file);
            let text = fs::read_to_string(&path).with_context(|| file.to_owned())?;
            fs::write(&path, edit(&text).with_context(|| file.to_owned())?)?;
            written.push(file.to_owned());
        }
        Ok(written)
    }

    /// Whether a template belongs to one of the wanted halves.
    fn is_wanted(self, file: &str) -> bool {
        let is_of = |parts: &[&str]| parts.iter().any(|part| file.contains(part));
        if is_of(&["src/connect/", "tests/connect"]) {
            self.connects
        } else if is_of(&["src/serve/", "src/decode/", "src/encode/", "tests/serve"]) {
            self.serves
        } else {
            true
        }
    }

    /// A template with the names of this protocol, without lines of unwanted halves.
    fn fill(self, text: &str) -> String {
        let is_of = |line: &str, modules: &[&str]| {
            modules
                .iter()
                .any(|module| line == format!("mod {module};") || line.starts_with(&format!("pub use {module}::")))
        };
        let kept = text.split_inclusive('\n').filter(|line| {
            let line = line.trim_end();
            (self.connects || !is_of(line, &["connect"]))
                && (self.serves || !is_of(line, &["decode", "encode", "serve"]))
        });
        self.rename(&kept.collect::<String>())
    }

    /// A text with the names of this protocol: as a type, as a crate, and as it is.
    fn rename(self, text: &str) -> String {
        let template = TEMPLATES.1;
        let crate_name = |name: &str| format!("interlingua_{}", name.replace('-', "_"));
        text.replace(&crate_name(template), &crate_name(self.name))
            .replace(&format!("# {}\n", type_name(template)), &format!("# {}\n", self.title()))
            .replace(&type_name(template), &type_name(self.name))
            .replace(template, self.name)
    }

    /// The name for people.
    fn title(self) -> String {
        let words = self.name.split('-').map(type_name);
        words.collect::<Vec<_>>().join(" ")
    }

    /// The names that other crates import.
    fn import(self) -> String {
        let crate_name = format!("interlingua_{}", self.name.replace('-', "_"));
        let name = type_name(self.name);
        match (self.serves, self.connects) {
            (true, true) => format!("use {crate_name}::{{{name}, {name}Upstream}};"),
            (true, false) => format!("use {crate_name}::{name};"),
            (false, _) => format!("use {crate_name}::{name}Upstream;"),
        }
    }

    /// The list of adapters with this one.
    fn list(self, text: &str) -> Result<String> {
        let mut text = insert_sorted(text, "", "use interlingua_", &self.import())?;
        if self.serves {
            let line = format!("            .serve::<{}>()\n", type_name(self.name));
            text = before(&text, "            .upstream::<", &line)?;
        }
        if self.connects {
            let line = format!("            .upstream::<{}Upstream>()\n", type_name(self.name));
            text = before(&text, "    }\n}", &line)?;
        }
        Ok(text)
    }

    /// The registry with a row of this protocol, which rigs leave out until it is finished.
    fn row(self, text: &str) -> Result<String> {
        let (name, adapter) = (self.name, type_name(self.name));
        let serves = if self.serves {
            format!("Some(Serves::with::<{adapter}>(\"/{name}/{{agent}}\", &[]))")
        } else {
            "None".to_owned()
        };
        let connects = if self.connects {
            format!("Some(Connects::with::<{adapter}Upstream>(\"\", \"\", None))")
        } else {
            "None".to_owned()
        };
        let row = format!(
            "    Protocol {{\n        name: \"{name}\",\n        is_finished: false,\n        serves: {serves},\n        \
             connects: {connects},\n    }},\n"
        );
        let text = insert_sorted(text, "", "use interlingua_", &self.import())?;
        let end = text.rfind("\n];").context("there is no end of the rows")? + 1;
        Ok(format!("{}{row}{}", &text[..end], &text[end..]))
    }
}

/// A name in lower case with hyphens as the name of a type.
fn type_name(name: &str) -> String {
    let capitalized = |word: &str| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    };
    name.split('-').map(capitalized).collect()
}

/// Inserts a line among those with a prefix, after a heading and in alphabetical order. No heading: the first such
/// lines.
fn insert_sorted(text: &str, heading: &str, prefix: &str, line: &str) -> Result<String> {
    let lines: Vec<&str> = text.lines().collect();
    let from = if heading.is_empty() { 0 } else { position(&lines, 0, |other| other == heading)? };
    let first = position(&lines, from, |other| other.starts_with(prefix))?;
    let count = lines[first..].iter().take_while(|other| other.starts_with(prefix)).count();
    let place = lines[first..first + count].iter().position(|other| *other > line).unwrap_or(count);
    let mut lines = lines;
    lines.insert(first + place, line);
    Ok(lines.join("\n") + "\n")
}

fn position(lines: &[&str], from: usize, is_it: impl Fn(&str) -> bool) -> Result<usize> {
    let found = lines[from..].iter().position(|line| is_it(line));
    found.map(|place| from + place).context("the expected line is missing")
}

/// Inserts a text before the first line that begins with a text.
fn before(text: &str, line: &str, new: &str) -> Result<String> {
    let at = text.find(&format!("\n{line}")).with_context(|| format!("no line begins with {line:?}"))? + 1;
    Ok(format!("{}{new}{}", &text[..at], &text[at..]))
}

/// The files below a folder, relative to it, in order.
fn files_below(folder: &Path) -> Result<Vec<String>> {
    let (mut found, mut folders) = (Vec::new(), vec![String::new()]);
    while let Some(below) = folders.pop() {
        for entry in fs::read_dir(folder.join(&below)).with_context(|| format!("no {}", folder.display()))? {
            let entry = entry?;
            let name = entry.file_name().into_string().ok().context("names are UTF-8")?;
            let path = if below.is_empty() { name } else { format!("{below}/{name}") };
            if entry.file_type()?.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files that the command changes, beside those that it makes.
    const CHANGED: [&str; 5] = [
        "Cargo.toml",
        "docs/SUMMARY.md",
        "src/adapters.rs",
        "testing/protocols/Cargo.toml",
        "testing/protocols/src/rows.rs",
    ];

    /// A copy of all that the command reads.
    fn copy() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let templates = files_below(&root().join(TEMPLATES.0)).expect("templates");
        let templates = templates.iter().map(|file| format!("{}/{file}", TEMPLATES.0));
        for file in CHANGED.map(str::to_owned).into_iter().chain(templates) {
            let target = folder.path().join(&file);
            fs::create_dir_all(target.parent().expect("a folder")).expect("a folder");
            fs::copy(root().join(&file), target).expect("a file of the repository");
        }
        folder
    }

    fn read(folder: &Path, file: &str) -> String {
        fs::read_to_string(folder.join(file)).expect(file)
    }

    /// The lines that a file has beside those of the repository.
    fn added(folder: &Path, file: &str) -> Vec<String> {
        let (old, new) = (read(root(), file), read(folder, file));
        let mut old = old.lines().peekable();
        let added = new.lines().filter(|line| old.next_if(|known| known == line).is_none());
        let added = added.map(|line| line.trim().to_owned()).collect();
        assert_eq!(old.next(), None, "{file} keeps all lines");
        added
    }

    #[test]
    fn a_protocol_is_written_and_registered() {
        let folder = copy();
        let root = folder.path();
        let plan = Plan::parse(&["pig-latin"]).expect("a plan");
        let written = plan.write(root).expect("it is written");

        let templates = files_below(&root.join(TEMPLATES.0)).expect("templates");
        assert_eq!(written.len(), templates.len() + CHANGED.len());
        for template in templates.iter().filter(|file| *file != PAGE) {
            let back = read(root, &format!("adapters/pig-latin/{template}"))
                .replace("# Pig Latin", "# Sketch")
                .replace("PigLatin", "Sketch")
                .replace("pig_latin", "sketch")
                .replace("pig-latin", "sketch");
            assert_eq!(
                back,
                read(root, &format!("{}/{template}", TEMPLATES.0)),
                "{template} is the one that is compiled"
            );
        }
        assert!(read(root, "docs/protocols/pig-latin.md").starts_with("# Pig Latin\n\n`protocol = \"pig-latin\"`"));

        let workspace = "interlingua-pig-latin.workspace = true";
        assert_eq!(added(root, "Cargo.toml"), ["interlingua-pig-latin = { path = \"adapters/pig-latin\" }", workspace]);
        assert_eq!(added(root, "testing/protocols/Cargo.toml"), [workspace]);
        assert_eq!(added(root, "docs/SUMMARY.md"), ["- [Pig Latin](protocols/pig-latin.md)"]);
        let import = "use interlingua_pig_latin::{PigLatin, PigLatinUpstream};";
        assert_eq!(added(root, "src/adapters.rs"), [import, ".serve::<PigLatin>()", ".upstream::<PigLatinUpstream>()"]);
        assert_eq!(
            added(root, "testing/protocols/src/rows.rs"),
            [
                import,
                "Protocol {",
                "name: \"pig-latin\",",
                "is_finished: false,",
                "serves: Some(Serves::with::<PigLatin>(\"/pig-latin/{agent}\", &[])),",
                "connects: Some(Connects::with::<PigLatinUpstream>(\"\", \"\", None)),",
                "},",
            ]
        );

        let again = plan.write(root).expect_err("it is there");
        assert!(again.to_string().contains("already"), "{again}");
    }

    #[test]
    fn one_half_alone_has_no_file_and_no_name_of_the_other() {
        for (argument, own, other) in [("--serves", "serve", "connect"), ("--connects", "connect", "serve")] {
            let folder = copy();
            let root = folder.path();
            let written = Plan::parse(&["pig", argument]).and_then(|plan| plan.write(root)).expect("it is written");
            let has = |part: &str| written.contains(&format!("adapters/pig/src/{part}/mod.rs"));
            assert_eq!((has(own), has(other), has("decode")), (true, false, own == "serve"));

            let text = read(root, "adapters/pig/src/lib.rs");
            assert!(text.contains(&format!("mod {own};")) && !text.contains(&format!("mod {other};")), "{text}");
            assert!(!text.contains(&format!("pub use {other}::")), "{text}");
            let list = added(root, "src/adapters.rs");
            assert_eq!(list.len(), 2, "{list:?}");
            let row = added(root, "testing/protocols/src/rows.rs");
            assert!(row.iter().any(|line| line.ends_with(": None,")), "{row:?}");
        }
    }

    #[test]
    fn other_names_are_refused() {
        for wrong in [&[][..], &["Pig"], &["pig--latin"], &["-pig"], &["9p"], &["pig", "latin"], &["--serves"]] {
            assert!(Plan::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
