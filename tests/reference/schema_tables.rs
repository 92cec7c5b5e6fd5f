//! Markdown tables of a JSON Schema: one section for each table of the configuration, one row for each key.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

/// The schema of a file, and the heading under which each definition is described, once.
pub(crate) struct Tables<'a> {
    definitions: &'a Value,
    headings: RefCell<BTreeMap<String, String>>,
}

/// A table below another one: its name in the file, and its schema.
struct NestedTable<'a> {
    heading: String,
    definition: Option<&'a str>,
    schema: &'a Value,
}

impl<'a> Tables<'a> {
    pub(crate) fn new(schema: &'a Value) -> Self {
        Self { definitions: &schema["definitions"], headings: RefCell::default() }
    }

    /// The sections of a whole file.
    pub(crate) fn file(&self, schema: &'a Value) -> String {
        let mut text = String::new();
        for (key, value) in properties(schema) {
            let (definition, resolved) = self.resolve(value);
            let nested = self.nested(key, value, definition, resolved);
            self.section(&mut text, &nested, description(value));
        }
        text
    }

    /// The options of each protocol that has some, from the conditions of a definition.
    pub(crate) fn options(&self, definition: &str) -> String {
        let mut text = String::new();
        for rule in self.definitions[definition]["allOf"].as_array().into_iter().flatten() {
            let name = rule["if"]["properties"]["protocol"]["const"].as_str().unwrap_or_default();
            let options = &rule["then"]["properties"]["options"];
            if properties(options).next().is_none() {
                continue;
            }
            let _ =
                write!(text, "\n### `{name}` {}\n", if definition == "RouteTable" { "for clients" } else { "agents" });
            if let Some(text_of_options) = description(options) {
                let _ = write!(text, "\n{text_of_options}\n");
            }
            text.push_str("\n| key | type | default | description |\n| --- | --- | --- | --- |\n");
            self.rows(&mut text, options, "");
        }
        text
    }

    /// Appends the section of a table and of the tables below it.
    fn section(&self, text: &mut String, table: &NestedTable<'a>, about: Option<String>) {
        let _ = write!(text, "\n## `{}`\n", table.heading);
        if let Some(about) = about.or_else(|| description(table.schema)) {
            let _ = write!(text, "\n{about}\n");
        }

        text.push_str("\n| key | type | default | description |\n| --- | --- | --- | --- |\n");
        let mut below = Vec::new();
        for (key, value) in properties(table.schema) {
            let mut kind = self.kind(value);
            let name = format!("{}.{key}", table.heading.trim_matches(['[', ']']));
            let nested = self.table_below(&name, value);
            let is_table = nested.is_some();
            if let Some(nested) = nested {
                let (heading, is_new) = self.heading(&nested);
                kind = format!("[{kind}](#{})", anchor(&heading));
                below.extend(is_new.then(|| (nested, description(value))));
            }
            row(text, key, &kind, &default(value, is_table), &self.about(value));
        }

        for (nested, about) in below {
            self.section(text, &nested, about);
        }
    }

    /// The heading under which a table is described, and whether this is its first use.
    fn heading(&self, table: &NestedTable<'a>) -> (String, bool) {
        let Some(name) = table.definition else { return (table.heading.clone(), true) };
        let mut headings = self.headings.borrow_mut();
        let is_new = !headings.contains_key(name);
        (headings.entry(name.to_owned()).or_insert_with(|| table.heading.clone()).clone(), is_new)
    }

    /// The table of a key: its value, an entry of its list or map, or one of several possible values. `None`: the key
    /// has no table with known keys.
    fn table_below(&self, key: &str, value: &'a Value) -> Option<NestedTable<'a>> {
        let (definition, resolved) = self.resolve(value);
        if is_section(resolved, definition) {
            return Some(NestedTable { heading: format!("[{key}]"), definition, schema: resolved });
        }
        if resolved["items"].is_object() {
            let entry = self.table_below(key, &resolved["items"])?;
            return Some(NestedTable { heading: format!("[[{key}]]"), ..entry });
        }
        if resolved["additionalProperties"].is_object() {
            return self.table_below(&format!("{key}.NAME"), &resolved["additionalProperties"]);
        }
        resolved["anyOf"].as_array()?.iter().find_map(|choice| self.table_below(key, choice))
    }

    fn nested(&self, key: &str, value: &'a Value, definition: Option<&'a str>, resolved: &'a Value) -> NestedTable<'a> {
        let entries = &value["additionalProperties"];
        if entries.is_object() {
            let (definition, schema) = self.resolve(entries);
            return NestedTable { heading: format!("[{key}.NAME]"), definition, schema };
        }
        if value["items"].is_object() {
            let (definition, schema) = self.resolve(&value["items"]);
            return NestedTable { heading: format!("[[{key}]]"), definition, schema };
        }
        NestedTable { heading: format!("[{key}]"), definition, schema: resolved }
    }

    /// Appends the rows of nested options with dotted keys.
    fn rows(&self, text: &mut String, table: &'a Value, before: &str) {
        for (key, value) in properties(table) {
            let (_, resolved) = self.resolve(value);
            let key = format!("{before}{key}");
            row(text, &key, &self.kind(value), &default(value, false), &self.about(value));
            // A table of free form has no known keys.
            if properties(resolved).next().is_some() {
                self.rows(text, resolved, &format!("{key}."));
            }
        }
    }

    /// Follows a reference, also one that is wrapped for a description or for `null`.
    fn resolve(&self, value: &'a Value) -> (Option<&'a str>, &'a Value) {
        if let Some(name) = value["$ref"].as_str().and_then(|path| path.strip_prefix("#/definitions/")) {
            return (Some(name), &self.definitions[name]);
        }
        if let Some([only]) = value["allOf"].as_array().map(Vec::as_slice) {
            return self.resolve(only);
        }
        let choices = value["anyOf"].as_array().into_iter().flatten().filter(|choice| choice["type"] != "null");
        match choices.collect::<Vec<_>>()[..] {
            [only] => self.resolve(only),
            _ => (None, value),
        }
    }

    /// The type of a value, in the words of the page.
    fn kind(&self, value: &'a Value) -> String {
        let (definition, resolved) = self.resolve(value);
        if definition == Some(SECRET) {
            return "secret".to_owned();
        }
        if let Some(known) = unit(resolved) {
            return known.to_owned();
        }
        let choices = choices(resolved);
        if !choices.is_empty() {
            return choices.iter().map(|(choice, _)| format!("`{choice}`")).collect::<Vec<_>>().join(", ");
        }
        for of in ["anyOf", "oneOf"] {
            if let Some(several) = resolved[of].as_array() {
                let kinds: BTreeSet<String> =
                    several.iter().filter(|k| k["type"] != "null").map(|k| self.kind(k)).collect();
                return kinds.into_iter().collect::<Vec<_>>().join(" or ");
            }
        }
        match &resolved["type"] {
            Value::String(name) => match name.as_str() {
                "array" => format!("list of {}", self.kind(&resolved["items"])),
                "object" => "table".to_owned(),
                "integer" | "number" => range(resolved),
                other => other.to_owned(),
            },
            // A value that may be absent.
            Value::Array(names) => {
                let names = names.iter().filter_map(Value::as_str).filter(|name| *name != "null");
                names.map(|name| if name == "object" { "table" } else { name }).collect::<Vec<_>>().join(" or ")
            }
            _ => "any value".to_owned(),
        }
    }

    /// The description of a value, with the meaning of each choice.
    fn about(&self, value: &'a Value) -> String {
        let (_, resolved) = self.resolve(value);
        let mut about = description(value).or_else(|| description(resolved)).unwrap_or_default();
        for (choice, meaning) in choices(resolved).into_iter().filter(|(_, meaning)| !meaning.is_empty()) {
            let _ = write!(about, " `{choice}`: {meaning}");
        }
        about
    }
}

fn row(text: &mut String, key: &str, kind: &str, default: &str, about: &str) {
    let cell = |text: &str| text.replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(text, "| `{key}` | {} | {} | {} |", cell(kind), cell(default), cell(about));
}

/// The anchor of a heading, as mdBook and GitHub derive it.
fn anchor(heading: &str) -> String {
    heading.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).flat_map(char::to_lowercase).collect()
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten()
}

fn description(schema: &Value) -> Option<String> {
    let text = schema["description"].as_str()?;
    Some(text.split("\n\n").map(|part| part.replace('\n', " ")).collect::<Vec<_>>().join("\n\n"))
}

/// The definition of a secret, which the head of the page explains.
const SECRET: &str = "SecretTable";

/// Whether a value has a section of its own: a table of the file with keys.
fn is_section(resolved: &Value, definition: Option<&str>) -> bool {
    definition.is_some_and(|name| name != SECRET) && properties(resolved).next().is_some()
}

/// The default of a key. Empty: none, or the text says it.
fn default(value: &Value, is_table: bool) -> String {
    match &value["default"] {
        Value::Null => String::new(),
        _ if is_table => String::new(),
        Value::Array(list) if list.is_empty() => "`[]`".to_owned(),
        Value::Object(table) if table.is_empty() => "`{}`".to_owned(),
        default => format!("`{default}`"),
    }
}

/// The fixed texts that a value may be, with their descriptions.
fn choices(schema: &Value) -> Vec<(String, String)> {
    let listed = schema["enum"].as_array().into_iter().flatten().map(|choice| (choice.to_string(), String::new()));
    let described = schema["oneOf"].as_array().into_iter().flatten().filter(|choice| choice.get("const").is_some());
    listed
        .chain(described.map(|choice| (choice["const"].to_string(), description(choice).unwrap_or_default())))
        .filter(|(choice, _)| choice != "null")
        .collect()
}

fn unit(schema: &Value) -> Option<&'static str> {
    let examples = schema["examples"].as_array()?;
    if examples.iter().any(|example| example == "64KiB") {
        return Some("size");
    }
    examples.iter().any(|example| example == "1h30m").then_some("duration")
}

fn range(schema: &Value) -> String {
    let name = if schema["type"] == "number" { "number" } else { "integer" };
    match (schema["minimum"].as_f64(), schema["maximum"].as_f64()) {
        (Some(least), Some(most)) => format!("{name}, {least} to {most}"),
        (Some(least), None) if least > 0.0 => format!("{name}, at least {least}"),
        (None, Some(most)) => format!("{name}, at most {most}"),
        _ => name.to_owned(),
    }
}
