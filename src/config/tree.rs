//! From text to typed values, without stopping at the first mistake.
//!
//! serde gives up at the first thing it does not like. So the tree is read again and again: each
//! time reading fails, the entry at fault is noted, cut out of the tree, and reading starts anew,
//! until what is left is sound. One set of derived types thus serves for reading, for the JSON
//! Schema and for messages, and finds every mistake. The types this is used with have a default
//! for every key, so that cutting one entry never breaks another.

use std::fmt;
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, ValueDeserializer};

use super::diagnostics::Diagnostic;
use super::suggest;

/// A value as written, with its place.
pub(super) type Written<'i> = Spanned<DeValue<'i>>;

/// After so many mistakes in one table, the rest is left for the next reading.
const MAX_ERRORS: usize = 50;

/// An entry that was cut out because it could not be read.
pub(super) struct Cut {
    /// Where the table it stood in starts.
    table: usize,
    key: String,
    /// Whether it was one value of an array, and `key` is the array's.
    of_array: bool,
    /// What it was, in TOML's words.
    kind: &'static str,
}

/// All entries that were cut out of one file.
#[derive(Default)]
pub(super) struct Cuts(Vec<Cut>);

impl Cuts {
    /// Whether `key` did stand in the table at `place`, but could not be read. Then it is no
    /// second mistake that it is missing now.
    pub(super) fn contain(&self, place: &Range<usize>, key: &str) -> bool {
        self.0.iter().any(|cut| cut.table == place.start && cut.key == key)
    }

    /// Whether an entry of this name could not be read, wherever it stood.
    pub(super) fn name(&self, key: &str) -> bool {
        self.0.iter().any(|cut| cut.key == key)
    }

    /// Whether anything in the table at `place` could not be read.
    pub(super) fn are_in(&self, place: &Range<usize>) -> bool {
        self.0.iter().any(|cut| cut.table == place.start)
    }
}

/// Parses the whole file. What is no TOML at all is told as one mistake.
pub(super) fn parse(source: &str) -> Result<Spanned<DeTable<'_>>, Vec<Diagnostic>> {
    DeTable::parse(source).map_err(|error| {
        // At the end of the file there is nothing left to point at but the last character.
        let place = error.span().unwrap_or(0..1);
        let start = place.start.min(source.trim_end().len().saturating_sub(1));
        let place = start..place.end.clamp(start + 1, source.len().max(start + 1));
        vec![Diagnostic::error("this is not TOML").at(&place).label(plain(error.message()))]
    })
}

/// Reads a typed value out of a tree, noting every mistake on the way.
///
/// `name` is what messages call the value itself. Gives `None` where what is left after all cuts
/// still cannot be read.
pub(super) fn read<T: DeserializeOwned>(
    name: &str,
    mut tree: Written<'_>,
    cuts: &mut Cuts,
    found: &mut Vec<Diagnostic>,
) -> Option<T> {
    for _ in 0..MAX_ERRORS {
        let error = match T::deserialize(ValueDeserializer::from(tree.clone())) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let place = error.span().unwrap_or_else(|| tree.span());
        if let Some(key) = missing(error.message())
            && cuts.contain(&place, key)
        {
            return None;
        }
        let start = tree.span().start;
        let whole = tree.get_ref().type_str();
        // `[[x]]` puts the array and its first table at one place; the message tells them apart.
        let array = error.message().starts_with("invalid type: sequence");
        let cut = cut(tree.get_mut(), start, &place, array);
        let subject = match &cut {
            Some(cut) => Subject { name: &cut.key, each: cut.of_array, kind: cut.kind },
            None => Subject { name, each: false, kind: whole },
        };
        found.push(explain(error.message(), &place, &subject));
        cuts.0.push(cut?);
    }
    found.push(Diagnostic::error("there are too many mistakes to tell them all").at(&tree.span()));
    None
}

/// Removes the innermost entry whose key or value stands at `place`; an array, if that is asked for.
fn cut(value: &mut DeValue<'_>, start: usize, place: &Range<usize>, is_array: bool) -> Option<Cut> {
    match value {
        DeValue::Table(table) => {
            for (key, value) in table.iter_mut() {
                let inner = value.span().start;
                if let Some(mut cut) = cut(value.get_mut(), inner, place, is_array) {
                    if cut.of_array && cut.key.is_empty() {
                        cut.key = key.get_ref().to_string();
                        cut.table = start;
                    }
                    return Some(cut);
                }
            }
            let (key, value) = table.iter().find(|(key, value)| {
                let value_fits = value.span() == *place && (!is_array || value.get_ref().is_array());
                value_fits || key.span() == *place
            })?;
            let cut =
                Cut { table: start, key: key.get_ref().to_string(), of_array: false, kind: value.get_ref().type_str() };
            let key = key.get_ref().to_string();
            table.remove(key.as_str());
            Some(cut)
        }
        DeValue::Array(array) => {
            for value in array.iter_mut() {
                let inner = value.span().start;
                if let Some(cut) = cut(value.get_mut(), inner, place, is_array) {
                    return Some(cut);
                }
            }
            let index =
                array.iter().position(|value| value.span() == *place && (!is_array || value.get_ref().is_array()))?;
            let kind = array[index].get_ref().type_str();
            let all = std::mem::replace(array, DeArray::from_iter([]));
            let kept = all.into_iter().enumerate().filter(|(at, _)| *at != index);
            *array = kept.map(|(_, value)| value).collect();
            // The key is that of the array; the table the array stands in fills it in.
            Some(Cut { table: start, key: String::new(), of_array: true, kind })
        }
        _ => None,
    }
}

/// What a message speaks of.
struct Subject<'a> {
    name: &'a str,
    each: bool,
    kind: &'static str,
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = if self.each { "each of " } else { "" };
        write!(formatter, "{each}{:?}", self.name)
    }
}

/// Turns serde's words into ours.
///
/// Custom messages may have two lines: the second becomes the label beside the place. Values as
/// written are never repeated: they could be secrets that stand in the wrong place.
fn explain(message: &str, place: &Range<usize>, subject: &Subject<'_>) -> Diagnostic {
    let kind = subject.kind;
    if message.starts_with("unknown field ") {
        let known = expected_names(message);
        let label = suggest::label(subject.name, known.iter().copied(), "not known here");
        let mistake = Diagnostic::error(format!("unknown key {:?}", subject.name)).at(place).label(label);
        return match known.as_slice() {
            [] => mistake.help("no keys are known here"),
            known => mistake.help(format!("known here: {}", suggest::list(known.iter().copied()))),
        };
    }
    if let Some(rest) = message.strip_prefix("unknown variant `") {
        let known = expected_names(message);
        let value = rest.rsplit_once("`, expected ").or_else(|| rest.rsplit_once("`, ")).map_or("", |(value, _)| value);
        let label = suggest::label(value, known.iter().copied(), "not known here");
        let cannot =
            if subject.each { format!("{:?} cannot hold", subject.name) } else { format!("{subject} cannot be") };
        return Diagnostic::error(format!("{cannot} {value:?}"))
            .at(place)
            .label(label)
            .help(format!("known here: {}", suggest::list(known.iter().copied())));
    }
    if let Some(key) = missing(message) {
        return Diagnostic::error(format!("missing key {key:?}")).at(place).label("must be given here");
    }
    if message == "wanted string or table" {
        return Diagnostic::error(format!("{subject} must be a string, not {}", article(kind))).at(place);
    }
    if message.starts_with("invalid type: ") || message.starts_with("invalid value: ") {
        let wanted = message.rsplit_once(", expected ").map_or("something else", |(_, it)| it);
        let (wanted, range) = in_toml_words(wanted);
        let error = if message.starts_with("invalid type: ") {
            format!("{subject} must be {wanted}, not {}", article(kind))
        } else {
            format!("{subject} must be {wanted}{range}")
        };
        let mistake = Diagnostic::error(error).at(place);
        return match remedy(subject.name, wanted, kind) {
            Some(remedy) => mistake.label(remedy),
            None => mistake,
        };
    }
    match message.split_once('\n') {
        Some((message, label)) => Diagnostic::error(message).at(place).label(plain(label)),
        None => Diagnostic::error(plain(message)).at(place),
    }
}

/// What to write instead of a value of another type, for the mistakes that are made most.
fn remedy(name: &str, wanted: &str, kind: &str) -> Option<String> {
    Some(match (name, wanted, kind) {
        ("listen", _, "integer") => "write an address with a port, like \"127.0.0.1:8080\"".to_owned(),
        ("agents", "a table", "array") => "write [agents.NAME], once for each agent".to_owned(),
        ("routes", "an array", "table") => "write [[routes]], once for each route".to_owned(),
        ("server" | "store", "a table", "array") => format!("write [{name}]"),
        (_, "a table", _) => "write { key = value }".to_owned(),
        (_, "an array", "string") => "write it in brackets: [\"…\"]".to_owned(),
        _ => return None,
    })
}

fn missing(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.strip_suffix('`')
}

/// The names serde would have taken: "…, expected one of `a`, `b`".
fn expected_names(message: &str) -> Vec<&str> {
    let names = message.rsplit_once(", expected ").map_or("", |(_, names)| names);
    names.split('`').skip(1).step_by(2).collect()
}

/// What serde calls a Rust type, as a reader of TOML would say it, and which values it can have.
fn in_toml_words(wanted: &str) -> (&str, &'static str) {
    match wanted {
        "u8" => ("a whole number", " from 0 to 255"),
        "u16" => ("a whole number", " from 0 to 65535"),
        "u32" => ("a whole number", " from 0 to 4294967295"),
        "u64" | "usize" => ("a whole number", ", not negative"),
        "i8" | "i16" | "i32" | "i64" | "isize" => ("a whole number", " of another size"),
        "f32" | "f64" => ("a number", ""),
        "a boolean" => ("true or false", ""),
        "a sequence" => ("an array", ""),
        "a map" => ("a table", ""),
        other if other.starts_with("struct ") => ("a table", ""),
        other => (other, ""),
    }
}

pub(super) fn article(kind: &str) -> String {
    match kind.chars().next() {
        Some('a' | 'e' | 'i' | 'o' | 'u') => format!("an {kind}"),
        _ => format!("a {kind}"),
    }
}

fn plain(message: &str) -> String {
    message.trim().replace('\n', "; ")
}
