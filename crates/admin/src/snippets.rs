//! Writes a sample request as a snippet: a shell command, Python or TypeScript.
//!
//! If a protocol has an official library, the snippet uses it. All values are quoted as literals of the language, so
//! that a text cannot inject code. Not here: the request itself ([`super::samples`]).

use std::fmt::Write as _;

use interlingua_core::sample::SampleRequest;
use serde_json::Value;

use interlingua_config::Methods;

/// The route of a snippet.
pub(super) struct SnippetTarget {
    /// The URL of the mount for clients.
    pub(super) url: String,
    pub(super) protocol: &'static str,
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

/// `text`: the text of the user in the request.
pub(super) fn python(target: &SnippetTarget, sample: &SampleRequest, text: &str) -> String {
    let language = Language::Python;
    let (url, key, said) = (language.text(&target.url), target.key(language), language.text(text));
    let imports = if target.wants_key() { "import os\n\n" } else { "" };
    let arguments = || arguments(&sample.body);
    match target.protocol {
        "chat-completions" => format!(
            "{imports}from openai import OpenAI\n\nclient = OpenAI(base_url={url}, api_key={key})\n\
             stream = client.chat.completions.create(\n{})\nfor chunk in stream:\n    for choice in chunk.choices:\n        \
             print(choice.delta.content or \"\", end=\"\", flush=True)\n",
            arguments()
        ),
        "responses" => format!(
            "{imports}from openai import OpenAI\n\nclient = OpenAI(base_url={url}, api_key={key})\n\
             for event in client.responses.create(\n{}):\n    if event.type == \"response.output_text.delta\":\n        \
             print(event.delta, end=\"\", flush=True)\n",
            arguments()
        ),
        "anthropic-messages" => format!(
            "{imports}from anthropic import Anthropic\n\nclient = Anthropic(base_url={url}, {}={key})\n\
             for event in client.messages.create(\n{}):\n    \
             if event.type == \"content_block_delta\" and event.delta.type == \"text_delta\":\n        \
             print(event.delta.text, end=\"\", flush=True)\n",
            anthropic_key(target, "auth_token", "api_key"),
            arguments()
        ),
        "a2a" => {
            let headers = if target.wants_key() {
                format!("headers={{\"authorization\": \"Bearer \" + {key}}}, ")
            } else {
                String::new()
            };
            format!(
                "import asyncio\n{}import uuid\n\nimport httpx\nfrom a2a.client import A2ACardResolver, ClientConfig, ClientFactory\n\
                 from a2a.types.a2a_pb2 import Message, Part, Role, SendMessageRequest\n\n\nasync def main():\n    \
                 async with httpx.AsyncClient({headers}timeout=None) as http:\n        \
                 card = await A2ACardResolver(http, {url}).get_agent_card()\n        \
                 client = ClientFactory(ClientConfig(streaming=True, httpx_client=http)).create(card)\n        \
                 message = Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[Part(text={said})])\n        \
                 async for event in client.send_message(SendMessageRequest(message=message)):\n            print(event)\n\n\n\
                 asyncio.run(main())\n",
                if target.wants_key() { "import os\n" } else { "" }
            )
        }
        _ => {
            let mut headers: Vec<String> = Vec::new();
            if target.wants_key() {
                headers.push(format!("\"authorization\": \"Bearer \" + {key}"));
            }
            headers.extend(
                sample.headers.iter().map(|(name, value)| format!("{}: {}", language.text(name), language.text(value))),
            );
            let certificate =
                if target.wants_certificate() { "    cert=(\"client.pem\", \"client-key.pem\"),\n" } else { "" };
            let headers =
                if headers.is_empty() { String::new() } else { format!("    headers={{{}}},\n", headers.join(", ")) };
            format!(
                "{imports}import httpx\n\nwith httpx.stream(\n    {},\n    {},\n{headers}    json={},\n{certificate}    timeout=None,\n) as response:\n    \
                 for text in response.iter_text():\n        print(text, end=\"\", flush=True)\n",
                language.text(sample.method.as_str()),
                language.text(&format!("{}{}", target.url, sample.path())),
                language.value(&sample.body, 4),
            )
        }
    }
}

/// The fields of a body as keyword arguments, in their order.
fn arguments(body: &Value) -> String {
    let fields = body.as_object().into_iter().flatten();
    fields.map(|(name, value)| format!("    {name}={},\n", Language::Python.value(value, 4))).collect()
}

fn anthropic_key<'a>(target: &SnippetTarget, token: &'a str, key: &'a str) -> &'a str {
    if target.auth.jwt && !target.auth.keys { token } else { key }
}

/// `text`: the text of the user in the request.
pub(super) fn typescript(target: &SnippetTarget, sample: &SampleRequest, text: &str) -> String {
    let language = Language::TypeScript;
    let (url, key, said) = (language.text(&target.url), target.key(language), language.text(text));
    let body = || language.value(&sample.body, 0);
    match target.protocol {
        "chat-completions" => format!(
            "import OpenAI from \"openai\";\n\nconst client = new OpenAI({{ baseURL: {url}, apiKey: {key} }});\n\
             const stream = await client.chat.completions.create({});\n\
             for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? \"\");\n",
            body()
        ),
        "responses" => format!(
            "import OpenAI from \"openai\";\n\nconst client = new OpenAI({{ baseURL: {url}, apiKey: {key} }});\n\
             const stream = await client.responses.create({});\nfor await (const event of stream) {{\n    \
             if (event.type === \"response.output_text.delta\") process.stdout.write(event.delta);\n}}\n",
            body()
        ),
        "anthropic-messages" => format!(
            "import Anthropic from \"@anthropic-ai/sdk\";\n\nconst client = new Anthropic({{ baseURL: {url}, {}: {key} }});\n\
             const stream = await client.messages.create({});\nfor await (const event of stream) {{\n    \
             if (event.type === \"content_block_delta\" && event.delta.type === \"text_delta\") process.stdout.write(event.delta.text);\n}}\n",
            anthropic_key(target, "authToken", "apiKey"),
            body()
        ),
        "ag-ui" => {
            let headers = if target.wants_key() {
                format!(", headers: {{ authorization: \"Bearer \" + {key} }}")
            } else {
                String::new()
            };
            format!(
                "import {{ HttpAgent }} from \"@ag-ui/client\";\n\nconst agent = new HttpAgent({{ url: {url}{headers} }});\n\
                 agent.messages = [{{ id: crypto.randomUUID(), role: \"user\", content: {said} }}];\n\
                 await agent.runAgent({{}}, {{\n    \
                 onTextMessageContentEvent: ({{ event }}) => {{ process.stdout.write(event.delta); }},\n}});\n"
            )
        }
        _ => {
            let mut headers = vec!["\"content-type\": \"application/json\"".to_owned()];
            if target.wants_key() {
                headers.push(format!("authorization: \"Bearer \" + {key}"));
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
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const OPEN: Methods = Methods::NONE;
    const KEYS: Methods = Methods { keys: true, ..Methods::NONE };
    const PROTOCOLS: [&str; 8] =
        ["agent-api", "responses", "chat-completions", "anthropic-messages", "a2a", "ag-kit", "ag-ui", "hitl"];

    fn target(protocol: &'static str, auth: Methods) -> SnippetTarget {
        SnippetTarget { url: "https://gateway.example/v1".to_owned(), protocol, auth }
    }

    fn sample(text: &str) -> SampleRequest {
        let body = json!({ "input": text, "stream": true, "none": null, "tools": [] });
        SampleRequest::post("/say", body).with_header("x-version", "1.0")
    }

    #[test]
    fn any_text_is_one_shell_word() {
        let text = "it's $HOME `id` \"x\" \\ \n --data @/etc/passwd";
        let command = curl(&target("agent-api", OPEN), &sample(text)).replace("curl", "printf '%s\\n'");
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
        for protocol in PROTOCOLS {
            for (auth, is_named) in [(OPEN, false), (KEYS, true)] {
                let target = target(protocol, auth);
                let sample = sample("hi");
                for shown in
                    [curl(&target, &sample), python(&target, &sample, "hi"), typescript(&target, &sample, "hi")]
                {
                    assert_eq!(shown.contains(KEY), is_named, "{shown}");
                    assert!(shown.contains("https://gateway.example/v1"), "{shown}");
                }
            }
        }
    }

    #[test]
    fn python_has_values_of_python() {
        let text = python(&target("agent-api", OPEN), &sample("a\"b\n"), "a\"b\n");
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
