//! `docs/matrix.md`: the change of each kind of content in each pair, as it was played. One section for each protocol
//! of agents; each test compares its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use interlingua_core::loss::ContentKind;

use crate::oracle::{ContentOutcome, Verdict};

const HEAD: &str = "# Matrix\n\n\
    The content that arrives at the other side, for every pair of protocols with default options. Only the option `parts` is\n\
    set: the simulated model servers accept every kind of media. A test produces each cell: a scripted agent and a scripted\n\
    client exchange the content through the gateway. `cargo xtask matrix --write` generates the page, and the tests compare it\n\
    with their results.\n\n\
    - *yes*: it arrives unchanged.\n\
    - *mostly*: it arrives unchanged, except in the case of the numbered note.\n\
    - *changed*: it arrives in another form, which the numbered note describes.\n\
    - *no*: it does not arrive. The numbered note has the reason. The gateway logs a line `content lost or changed`.\n\
    - –: one of the two protocols cannot express it.\n";

/// The findings for one agent.
#[derive(Default)]
pub(crate) struct Table {
    cells: BTreeMap<(ContentKind, &'static str), Cell>,
}

#[derive(Default)]
struct Cell {
    /// With the direction.
    fates: BTreeSet<(&'static str, ContentOutcome)>,
    /// In what ways it was lost, or else changed.
    how: BTreeSet<(bool, String)>,
}

impl Table {
    /// Adds the findings of a scenario.
    pub(crate) fn add(&mut self, client: &'static str, verdict: &Verdict) {
        for (kind, fates) in &verdict.fates {
            let cell = self.cells.entry((*kind, client)).or_default();
            cell.fates.extend(fates);
            let reported = verdict.how.get(kind).into_iter().flatten();
            cell.how.extend(reported.map(|one| (one.is_lost, one.how.clone())));
        }
    }

    /// Compares this agent's section of the file, or writes it.
    pub(crate) fn check(&self, agent: &str) {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/matrix.md");
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        let mut sections = sections(&written);
        let found = self.section(agent);
        if std::env::var_os("MATRIX_WRITE").is_some() {
            sections.insert(agent.to_owned(), found);
            let text: String = sections.values().map(|section| format!("\n{section}")).collect();
            std::fs::write(&path, format!("{HEAD}{text}")).expect("the table is written");
            return;
        }
        assert!(written.starts_with(HEAD), "the head of docs/matrix.md is stale: run cargo xtask matrix --write");
        let known = sections.remove(agent).unwrap_or_default();
        assert_eq!(known, found, "docs/matrix.md is not what was found: cargo xtask matrix --write");
    }

    fn section(&self, agent: &str) -> String {
        let clients: Vec<&str> = interlingua_testing_clients::all().iter().map(|client| client.protocol()).collect();
        let mut text = format!("{MARK}{agent}`\n\n| content | {} |\n", clients.join(" | "));
        let _ = writeln!(text, "| --- |{}", " --- |".repeat(clients.len()));

        let mut notes: Vec<String> = Vec::new();
        let kinds: BTreeSet<ContentKind> = self.cells.keys().map(|(kind, _)| *kind).collect();
        for kind in kinds {
            let _ = write!(text, "| {} |", kind.as_str().replace('_', " "));
            for client in &clients {
                let cell = self.cells.iter().find(|((of, by), _)| *of == kind && by == client);
                let _ =
                    write!(text, " {} |", cell.map_or_else(|| "–".to_owned(), |(_, cell)| cell.text(kind, &mut notes)));
            }
            text.push('\n');
        }
        if !notes.is_empty() {
            text.push('\n');
        }
        for (number, note) in notes.iter().enumerate() {
            let _ = writeln!(text, "{}. {note}", number + 1);
        }
        text
    }
}

impl Cell {
    fn text(&self, kind: ContentKind, notes: &mut Vec<String>) -> String {
        let worst = self.fates.iter().map(|(_, fate)| *fate).max().unwrap_or(ContentOutcome::Carried);
        // What arrives in some case, in each direction in which there is any.
        let is_in_part = self.fates.iter().all(|(way, _)| self.fates.contains(&(*way, ContentOutcome::Carried)));
        let word = match worst {
            ContentOutcome::Carried => return "yes".to_owned(),
            _ if is_in_part => "mostly",
            ContentOutcome::Changed => "changed",
            ContentOutcome::Lost => "no",
        };
        let ways = self.how.iter().filter(|(is_lost, _)| *is_lost == (worst == ContentOutcome::Lost));
        let numbers: Vec<String> = ways
            .map(|(_, how)| {
                let note = format!("{}: {how}", kind.as_str().replace('_', " "));
                let known = notes.iter().position(|known| *known == note);
                let number = known.unwrap_or_else(|| {
                    notes.push(note);
                    notes.len() - 1
                });
                (number + 1).to_string()
            })
            .collect();
        format!("{word} ({})", numbers.join(", "))
    }
}

/// The beginning of a section.
const MARK: &str = "## Agents that speak `";

/// The sections of the file, by their agents.
fn sections(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for part in text.split(&format!("\n{MARK}")).skip(1) {
        let agent = part.split('`').next().unwrap_or_default().to_owned();
        found.insert(agent, format!("{MARK}{}\n", part.trim_end()));
    }
    found
}
