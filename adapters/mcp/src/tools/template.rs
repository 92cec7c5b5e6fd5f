//! The template of a message: `Translate into {language}: {text}`.

use serde_json::{Map, Value};

/// A text with places for arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// The name of an argument.
    Argument(String),
}

impl Template {
    /// Parses a template. `{name}` is a place, `{{` a brace; a closing brace elsewhere is text.
    ///
    /// # Errors
    /// The problem, for the operator.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            literal.push_str(before);
            if let Some(after) = after.strip_prefix('{') {
                literal.push('{');
                rest = after;
                continue;
            }
            let (name, after) = after.split_once('}').ok_or("a brace is not closed\nwrite {{ for a brace")?;
            if name.is_empty() || name.contains('{') {
                return Err(format!("'{{{name}}}' names no argument\nwrite {{{{ for a brace"));
            }
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Argument(name.to_owned()));
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        Ok(Self(pieces))
    }

    /// The names of the arguments, in the order of their places.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Argument(name) => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }

    /// The text with the arguments in their places: texts unchanged, other values as JSON, nothing for absent ones.
    pub(crate) fn fill(&self, arguments: &Map<String, Value>) -> String {
        let mut filled = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Argument(name) => match arguments.get(name) {
                    Some(Value::String(text)) => filled.push_str(text),
                    Some(value) => filled.push_str(&value.to_string()),
                    None => {}
                },
            }
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn filled(template: &str, arguments: Value) -> String {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        Template::parse(template).expect("a template").fill(&arguments)
    }

    #[test]
    fn arguments_are_filled_in() {
        for (template, text) in [
            ("Translate into {language}: {text}", "Translate into de: a {text}"),
            ("{n}, {list}, {flag}, {nothing}, {absent}.", r#"3, [1,"b"], true, null, ."#),
            (r#"{{"a": {n}}"#, r#"{"a": 3}"#),
            ("}{{}", "}{}"),
            ("{{{n}}", "{3}"),
            ("go", "go"),
            ("", ""),
        ] {
            let arguments = json!({
                "language": "de", "text": "a {text}", "n": 3, "list": [1, "b"], "flag": true, "nothing": null,
            });
            assert_eq!(filled(template, arguments), text, "{template}");
        }
    }

    #[test]
    fn the_arguments_of_a_template_are_known() {
        let template = Template::parse("{a}{{b}{c d}").expect("a template");
        assert_eq!(template.arguments().collect::<Vec<_>>(), ["a", "c d"]);
    }

    #[test]
    fn templates_with_open_braces_are_refused() {
        for wrong in ["{", "a {b", "{}", "{a{b}", "{{{"] {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_text_with_doubled_braces_is_filled_to_itself(text in "\\PC{0,30}") {
            prop_assert_eq!(filled(&text.replace('{', "{{"), json!({})), text);
        }

        #[test]
        fn no_template_causes_a_panic(text in "[{}a\\PC]{0,20}") {
            if let Ok(template) = Template::parse(&text) {
                template.fill(&Map::new());
            }
        }
    }
}
