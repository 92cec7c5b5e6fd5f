//! Errors and warnings about a configuration file, and their rendering.
//!
//! Not here: the checks, which are made where the values are read; and masking of the source, which happens earlier.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use interlingua_base::secrets::Masks;

/// Whether a diagnostic keeps the gateway from starting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The gateway does not start.
    Error,
    /// The gateway starts, but the operator should check this.
    Warning,
}

/// One error or warning, and the span of the file it refers to.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    severity: Severity,
    message: String,
    span: Option<Range<usize>>,
    label: Option<String>,
    also: Option<(Range<usize>, String)>,
    help: Option<String>,
    /// The code by which `[server] quiet` accepts a warning, and the agent that the warning concerns.
    code: Option<(&'static str, Option<String>)>,
}

impl Diagnostic {
    /// An error: the gateway does not start.
    pub fn error(message: impl Into<String>) -> Self {
        Self::new(Severity::Error, message.into())
    }

    /// A warning: the gateway starts.
    pub fn warning(message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, message.into())
    }

    fn new(severity: Severity, message: String) -> Self {
        Self { severity, message, span: None, label: None, also: None, help: None, code: None }
    }

    /// Sets the span, as a byte range of the file. An empty range means none.
    #[must_use]
    pub fn at(mut self, span: &Range<usize>) -> Self {
        self.span = (!span.is_empty()).then(|| span.clone());
        self
    }

    /// Adds a suggestion, shown next to the span.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Points at a second span that conflicts with the first.
    #[must_use]
    pub fn also(mut self, span: &Range<usize>, label: impl Into<String>) -> Self {
        self.also = (!span.is_empty()).then(|| (span.clone(), label.into()));
        self
    }

    /// Adds a sentence of help below the snippet.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Masks the secrets of the configuration in all texts.
    pub(super) fn masked(mut self, secrets: &Masks) -> Self {
        let mask = |text: String| secrets.mask(&text).into_owned();
        self.message = mask(self.message);
        self.label = self.label.map(mask);
        self.help = self.help.map(mask);
        self.also = self.also.map(|(span, label)| (span, mask(label)));
        self
    }

    /// Lets `[server] quiet` accept a warning by this code. `agent`: the only agent that the warning concerns, if there
    /// is one.
    #[must_use]
    pub fn code(mut self, code: &'static str, agent: Option<&str>) -> Self {
        self.code = Some((code, agent.map(str::to_owned)));
        self
    }

    /// Whether an entry of `[server] quiet` accepts this warning: its code, or its code and agent.
    pub fn is_accepted_by(&self, entry: &str) -> bool {
        let Some((code, agent)) = &self.code else { return false };
        match entry.split_once(':') {
            Some((named, of)) => named == *code && agent.as_deref() == Some(of),
            None => entry == *code,
        }
    }

    /// Whether the warning concerns this agent alone.
    pub fn is_of_agent(&self, name: &str) -> bool {
        self.code.as_ref().is_some_and(|(_, agent)| agent.as_deref() == Some(name))
    }

    /// The entry of `[server] quiet` that accepts this warning. `None`: the warning has no code.
    fn quiet_entry(&self) -> Option<String> {
        self.code.as_ref().map(|(code, agent)| match agent {
            Some(agent) => format!("{code}:{agent}"),
            None => (*code).to_owned(),
        })
    }

    /// The label, the help, and the entry of `[server] quiet`, without an excerpt of the file.
    pub fn advice(&self) -> String {
        let accepted = self.quiet_entry().map(|entry| format!("accept it with [server] quiet = [{entry:?}]"));
        [self.label.clone(), self.help.clone(), accepted].into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// Error or warning.
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// The problem, in one sentence.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The byte range in the file; `None` if the diagnostic concerns the file as a whole.
    pub fn span(&self) -> Option<Range<usize>> {
        self.span.clone()
    }

    fn group<'a>(&'a self, name: &'a str, source: &'a str) -> Group<'a> {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(self.message.as_str()));
        if let Some(span) = &self.span {
            let mut primary = AnnotationKind::Primary.span(within(span, source));
            if let Some(label) = &self.label {
                primary = primary.label(label.as_str());
            }
            let mut snippet = Snippet::source(source).path(name).annotation(primary);
            if let Some((span, label)) = &self.also {
                let other = AnnotationKind::Context.span(within(span, source));
                snippet = snippet.annotation(other.label(label.as_str()));
            }
            group = group.element(snippet);
        } else if let Some(label) = &self.label {
            group = group.element(Level::HELP.message(label.as_str()));
        }

        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        match self.quiet_entry() {
            Some(entry) => group.element(Level::NOTE.message(format!("accept it with [server] quiet = [{entry:?}]"))),
            None => group,
        }
    }
}

/// The number of rendered diagnostics: each one is rendered with the complete source.
const MAX_SHOWN: usize = 100;

/// Clamps a span to the source and to its first line, so that rendering cannot fail and a table of twenty lines is not
/// quoted in full.
fn within(span: &Range<usize>, source: &str) -> Range<usize> {
    let start = boundary_before(source, span.start);
    let end = boundary_before(source, span.end).max(start);
    match source[start..end].find('\n') {
        // A span at the end of a line is shown at the line's last character.
        Some(0) if start > 0 => boundary_before(source, start - 1)..start,
        Some(length) => start..start + length.max(1),
        None => start..end,
    }
}

/// The nearest character boundary at or before `at`.
fn boundary_before(source: &str, at: usize) -> usize {
    (0..=at.min(source.len())).rev().find(|at| source.is_char_boundary(*at)).unwrap_or(0)
}

/// All diagnostics of one file: errors before warnings, each in the order of the file.
///
/// [`Display`](fmt::Display) renders it without colours; [`render`](Self::render) with them.
#[derive(Clone)]
pub struct Diagnostics {
    name: String,
    source: String,
    found: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Collects the diagnostics of the file at `path`.
    ///
    /// `source` is the file with its secrets masked; it has the same length, so that spans stay valid.
    pub(super) fn new(path: &Path, source: String, mut found: Vec<Diagnostic>) -> Self {
        // Errors first, since they keep the gateway from starting.
        found.sort_by_key(|one| {
            let span = one.span.as_ref().map_or(usize::MAX, |span| span.start);
            (one.severity == Severity::Warning, span)
        });
        found.dedup_by(|one, other| one.message == other.message && one.span == other.span);
        Self { name: path.display().to_string(), source, found }
    }

    /// Keeps the diagnostics that `keep` accepts.
    #[must_use]
    pub fn filtered(mut self, keep: impl Fn(&Diagnostic) -> bool) -> Self {
        self.found.retain(keep);
        self
    }

    /// Name of the file in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A single error without a position in the file.
    pub fn of_error(path: &Path, message: String) -> Self {
        Self::new(path, String::new(), vec![Diagnostic::error(message)])
    }

    /// The text of the file, with its secrets masked.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The first diagnostic on one line, with its position.
    pub fn first_line(&self) -> String {
        let Some(first) = self.found.first() else { return self.name.clone() };
        match self.line_and_column(first) {
            Some((line, column)) => format!("{}:{line}:{column}: {}", self.name, first.message),
            None => format!("{}: {}", self.name, first.message),
        }
    }

    /// True if there are neither errors nor warnings.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// True if the gateway cannot start with this file.
    pub fn has_errors(&self) -> bool {
        self.count(Severity::Error) > 0
    }

    /// Errors before warnings, each in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.found.iter()
    }

    /// Line and column of a diagnostic of this file, both 1-based, columns in characters.
    pub fn line_and_column(&self, one: &Diagnostic) -> Option<(usize, usize)> {
        let start = within(one.span.as_ref()?, &self.source).start;
        let before = &self.source[..start];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        Some((line, before[line_start..].chars().count() + 1))
    }

    /// All diagnostics, each with its [position](Self::line_and_column). The time is linear in the file, even if the
    /// file is a single line.
    pub fn with_positions(&self) -> impl Iterator<Item = (&Diagnostic, Option<(usize, usize)>)> {
        let newlines = self.source.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        let lines: Vec<usize> = std::iter::once(0).chain(newlines).collect();
        // The previous position. Columns of the same line are counted from there.
        let (mut known, mut line, mut column) = (0, 1, 1);
        self.found.iter().map(move |one| {
            let position = one.span.as_ref().map(|span| {
                let start = within(span, &self.source).start;
                let own_line = lines.partition_point(|line| *line <= start);
                if own_line != line || start < known {
                    (known, line, column) = (lines[own_line - 1], own_line, 1);
                }
                column += self.source[known..start].chars().count();
                known = start;
                (line, column)
            });
            (one, position)
        })
    }

    /// The text for a terminal, with or without colours. The last line counts errors and warnings.
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let mut text = String::new();
        for one in self.found.iter().take(MAX_SHOWN) {
            text.push_str(&renderer.render(&[one.group(&self.name, &self.source)]));
            text.push_str("\n\n");
        }

        if let more @ 1.. = self.found.len().saturating_sub(MAX_SHOWN) {
            text.push_str(&format!("and {more} more\n\n"));
        }
        let counts = [(Severity::Error, "error"), (Severity::Warning, "warning")]
            .into_iter()
            .filter_map(|(severity, word)| match self.count(severity) {
                0 => None,
                1 => Some(format!("1 {word}")),
                many => Some(format!("{many} {word}s")),
            })
            .collect::<Vec<_>>();
        if !counts.is_empty() {
            text.push_str(&format!("{} in {}\n", counts.join(" and "), self.name));
        }
        text
    }

    fn count(&self, severity: Severity) -> usize {
        self.found.iter().filter(|one| one.severity == severity).count()
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.render(false))
    }
}

impl fmt::Debug for Diagnostics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Diagnostics").field("found", &self.found).finish_non_exhaustive()
    }
}

impl std::error::Error for Diagnostics {}
