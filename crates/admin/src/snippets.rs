//! Writes a sample request as a snippet: a shell command, Python or TypeScript.
//!
//! If a protocol has an official library, the snippet uses it: its adapter has the template
//! ([`ClientSnippets`]). All values are quoted as literals of the language, so
//! that a text cannot inject code. Not here: the request itself ([`super::samples`]).

use std::fmt::Write as _;

use interlingua_core::console::ClientSnippets;
use interlingua_core::sample::SampleRequest;
use serde_json::Value;

use interlingua_config::Methods;

/// The route of a snippet.
pub(super) struct SnippetTarget {
    /// The URL of the mount for clients.
    pub(super) url: String,
    /// The accepted credentials.
    pub(super) auth: Methods,
}

/// The environment variable that stands for a key or a token.
const KEY: &str = "INTERLINGUA_KEY";

impl SnippetTarget {
    fn wants_key(&self) -> bool {
        self.auth.keys || self.auth.jwt
    }

    fn wants_certificate(&self) -> bool {
        self.auth.certificates && !self.wants_key()
    }

    /// The expression for the key.
    fn key(&self, language: Language) -> String {
        match (self.wants_key(), language) {
            (false, _) => language.text("none"),
            (true, Language::Python) => format!("os.environ[\"{KEY}\"]"),
            (true, Language::TypeScript) => format!("process.env.{KEY}!"),
        }
    }
}

/// The language of literals.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    Python,
    TypeScript,
}

impl Language {
    /// A text as a literal. A JSON string is a literal in both languages.
    fn text(self, text: &str) -> String {
        Value::from(text).to_string()
    }

    /// A value as a literal over several lines.
    fn value(self, value: &Value, indent: usize) -> String {
        let (inner, outer) = (" ".repeat(indent + 4), " ".repeat(indent));
        let lines = |open: char, close: char, items: Vec<String>| {
            let body: String = items.iter().map(|item| format!("{inner}{item},\n")).collect();
            format!("{open}\n{body}{outer}{close}")
        };
        match (value, self) {
            (Value::Object(object), _) if !object.is_empty() => {
                let items = object
                    .iter()
                    .map(|(name, value)| format!("{}: {}", self.text(name), self.value(value, indent + 4)));
                lines('{', '}', items.collect())
            }
            (Value::Array(array), _) if !array.is_empty() => {
                lines('[', ']', array.iter().map(|item| self.value(item, indent + 4)).collect())
            }
            (Value::Bool(value), Self::Python) => if *value { "True" } else { "False" }.to_owned(),
            (Value::Null, Self::Python) => "None".to_owned(),
            (value, _) => value.to_string(),
        }
    }
}

/// The request as a `curl` command.
pub(super) fn curl(target: &SnippetTarget, sample: &SampleRequest) -> String {
    let mut text = format!("curl -N {}", quoted(&format!("{}{}", target.url, sample.path())));
    if sample.method.as_str() != "POST" {
        let _ = write!(text, " -X {}", sample.method.as_str());
    }
    let mut add = |part: String| text.push_str(&format!(" \\\n  {part}"));
    if target.wants_certificate() {
        add("--cert client.pem --key client-key.pem".to_owned());
    }
    if target.wants_key() {
        add(format!("-H \"authorization: Bearer ${KEY}\""));
    }
    add("-H 'content-type: application/json'".to_owned());
    for (name, value) in &sample.headers {
        add(format!("-H {}", quoted(&format!("{name}: {value}"))));
    }
    add(format!("--data-raw {}", quoted(&sample.body.to_string())));
    text
}

/// Quotes a text as one shell word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A program in Python. `text`: the text of the user in the request.
pub(super) fn python(target: &SnippetTarget, templates: &ClientSnippets, sample: &SampleRequest, text: &str) -> String {
    let language = Language::Python;
    if let Some(template) = templates.python {
        return fill(template, language, target, sample, text);
    }

    let mut headers: Vec<String> = Vec::new();
    if target.wants_key() {
        headers.push(format!("\"authorization\": \"Bearer \" + {}", target.key(language)));
    }
    headers.extend(
        sample.headers.iter().map(|(name, value)| format!("{}: {}", language.text(name), language.text(value))),
    );
    let imports = if target.wants_key() { "import os\n\n" } else { "" };
    let certificate = if target.wants_certificate() { "    cert=(\"client.pem\", \"client-key.pem\"),\n" } else { "" };
    let headers = if headers.is_empty() { String::new() } else { format!("    headers={{{}}},\n", headers.join(", ")) };
    format!(
        "{imports}import httpx\n\nwith httpx.stream(\n    {},\n    {},\n{headers}    json={},\n{certificate}    timeout=None,\n) as response:\n    \
         for text in response.iter_text():\n        print(text, end=\"\", flush=True)\n",
        language.text(sample.method.as_str()),
        language.text(&format!("{}{}", target.url, sample.path())),
        language.value(&sample.body, 4),
    )
}

/// A program in TypeScript. `text`: the text of the user in the request.
pub(super) fn typescript(
    target: &SnippetTarget,
    templates: &ClientSnippets,
    sample: &SampleRequest,
    text: &str,
) -> String {
    let language = Language::TypeScript;
    if let Some(template) = templates.typescript {
        return fill(template, language, target, sample, text);
    }

    let mut headers = vec!["\"content-type\": \"application/json\"".to_owned()];
    if target.wants_key() {
        headers.push(format!("authorization: \"Bearer \" + {}", target.key(language)));
    }
    headers.extend(
        sample.headers.iter().map(|(name, value)| format!("{}: {}", language.text(name), language.text(value))),
    );
    format!(
        "const response = await fetch({}, {{\n    method: {},\n    headers: {{ {} }},\n    body: JSON.stringify({}),\n}});\n\
         for await (const text of response.body!.pipeThrough(new TextDecoderStream())) process.stdout.write(text);\n",
        language.text(&format!("{}{}", target.url, sample.path())),
        language.text(sample.method.as_str()),
        headers.join(", "),
        language.value(&sample.body, 4),
    )
}

/// Fills in a template of [`ClientSnippets`]. What replaces a placeholder is not searched for placeholders.
fn fill(template: &str, language: Language, target: &SnippetTarget, sample: &SampleRequest, text: &str) -> String {
    let values = [
        ("URL", language.text(&target.url)),
        ("KEY", target.key(language)),
        ("TEXT", language.text(text)),
        ("BODY", language.value(&sample.body, 0)),
        ("ARGUMENTS", arguments(&sample.body)),
    ];
    let (key, jwt) = (target.wants_key(), target.auth.jwt && !target.auth.keys);
    let conditions = [("?key", key), ("?no-key", !key), ("?jwt", jwt), ("?no-jwt", !jwt)];

    let mut out = String::new();
    for line in template.lines() {
        let (condition, rest) =
            if line.starts_with('?') { line.split_once(' ').unwrap_or((line, "")) } else { ("", line) };
        if conditions.iter().any(|(name, holds)| *name == condition && !holds) {
            continue;
        }
        let mut rest = rest;
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            rest = match values.iter().find(|(name, _)| after.starts_with(name)) {
                Some((name, value)) => {
                    out.push_str(value);
                    &after[name.len()..]
                }
                None => {
                    out.push('$');
                    after
                }
            };
        }
        out.push_str(rest);
        out.push('\n');
    }
    out
}

/// The fields of a body as keyword arguments, in their order, one per line.
fn arguments(body: &Value) -> String {
    let fields = body.as_object().into_iter().flatten();
    let lines: Vec<String> =
        fields.map(|(name, value)| format!("    {name}={},", Language::Python.value(value, 4))).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const OPEN: Methods = Methods::NONE;
    const KEYS: Methods = Methods { keys: true, ..Methods::NONE };
    const JWT: Methods = Methods { jwt: true, ..Methods::NONE };
    /// No templates: a general HTTP library.
    const GENERAL: ClientSnippets = ClientSnippets { python: None, typescript: None };
    const TEMPLATE: &str = "?key import os\n?key\n?jwt c(token=$KEY)\n?no-jwt c(key=$KEY)\nsay($URL, $TEXT, $BODY)\nsay(\n$ARGUMENTS\n) # $5\n";
    const OWN: ClientSnippets = ClientSnippets { python: Some(TEMPLATE), typescript: Some(TEMPLATE) };

    fn target(auth: Methods) -> SnippetTarget {
        SnippetTarget { url: "https://gateway.example/v1".to_owned(), auth }
    }

    fn sample(text: &str) -> SampleRequest {
        let body = json!({ "input": text, "stream": true, "none": null, "tools": [] });
        SampleRequest::post("/say", body).with_header("x-version", "1.0")
    }

    #[test]
    fn any_text_is_one_shell_word() {
        let text = "it's $HOME `id` \"x\" \\ \n --data @/etc/passwd";
        let command = curl(&target(OPEN), &sample(text)).replace("curl", "printf '%s\\n'");
        let shown = std::process::Command::new("sh").args(["-c", &command]).output().expect("a shell");
        let words = String::from_utf8(shown.stdout).expect("text");
        let words: Vec<&str> = words.lines().collect();
        assert_eq!(words[..3], ["-N", "https://gateway.example/v1/say", "-H"], "{command}");
        assert_eq!(words[words.len() - 2], "--data-raw");
        let body: Value = serde_json::from_str(words[words.len() - 1]).expect("JSON");
        assert_eq!(body["input"], text);
    }

    #[test]
    fn a_key_is_named_where_the_route_asks_for_one_and_nowhere_else() {
        for (auth, is_named) in [(OPEN, false), (KEYS, true), (JWT, true)] {
            let (target, sample) = (target(auth), sample("hi"));
            for shown in [
                curl(&target, &sample),
                python(&target, &GENERAL, &sample, "hi"),
                typescript(&target, &GENERAL, &sample, "hi"),
                python(&target, &OWN, &sample, "hi"),
                typescript(&target, &OWN, &sample, "hi"),
            ] {
                assert_eq!(shown.contains(KEY), is_named, "{shown}");
                assert!(shown.contains("https://gateway.example/v1"), "{shown}");
            }
        }
    }

    #[test]
    fn a_template_is_filled_in_once() {
        let text = "$KEY ?key $BODY";
        let of = |auth| python(&target(auth), &OWN, &SampleRequest::post("/say", json!({ "n": 1, "s": text })), text);
        let said = "say(\"https://gateway.example/v1\", \"$KEY ?key $BODY\", {\n    \"n\": 1,\n    \"s\": \"$KEY ?key $BODY\",\n})\n\
                    say(\n    n=1,\n    s=\"$KEY ?key $BODY\",\n) # $5\n";
        assert_eq!(of(OPEN), format!("c(key=\"none\")\n{said}"));
        assert_eq!(of(KEYS), format!("import os\n\nc(key=os.environ[\"{KEY}\"])\n{said}"));
        assert_eq!(of(JWT), format!("import os\n\nc(token=os.environ[\"{KEY}\"])\n{said}"));
    }

    #[test]
    fn python_has_values_of_python() {
        let text = python(&target(OPEN), &GENERAL, &sample("a\"b\n"), "a\"b\n");
        for part in [
            "\"stream\": True",
            "\"none\": None",
            "\"input\": \"a\\\"b\\n\"",
            "\"tools\": []",
            "\"x-version\": \"1.0\"",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
