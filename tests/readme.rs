//! Tests of the README and of the book in `docs/`: examples work, and tables match the code.
//!
//! The curl commands of a page are sent to a running gateway with the shipped configuration, in the order in which a
//! reader would paste them. Code blocks marked `file=…` must be part of that file. Not here: generated pages
//! (`tests/reference`), links and the quality of the text (`tests/tidy`).

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use interlingua::Gateway;
use interlingua::config::{self, Env, Protocols, StoreKind};
use interlingua_core::{Blame, FaultKind};
use serde_json::Value;
use tokio::sync::oneshot;

/// The largest README, in bytes.
const MAX_README: usize = 8 * 1024;

/// Pages outside of the book.
const OTHER_PAGES: [&str; 7] = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benches/README.md",
    "examples/custom-adapter/README.md",
];

/// The URL of the gateway on all pages.
const BASE: &str = "http://127.0.0.1:8080";

/// Forms of a run's id in responses: a background task, a native response, an OpenAI response, a message of Anthropic,
/// an A2A task.
const RUN_IDS: [(&str, &str); 5] = [
    (r#""task_id":""#, ""),
    (r#""id":""#, "response_"),
    (r#""id":""#, "resp_"),
    (r#"{"id":""#, "msg_"),
    (r#""task":{"id":""#, ""),
];

/// The timeout of every wait, so that a test fails instead of hanging.
const TIMEOUT: Duration = Duration::from_secs(60);

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The paths of all tested pages.
fn pages() -> Vec<String> {
    let mut pages: Vec<String> = OTHER_PAGES.iter().map(ToString::to_string).collect();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the book") {
            let path = entry.expect("an entry of the book").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let below = path.strip_prefix(root()).expect("the book is in the repository");
                pages.push(below.to_str().expect("names of pages are UTF-8").to_owned());
            }
        }
    }
    pages.sort();
    pages
}

fn read(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// A fenced code block: its info string and its content.
struct Block {
    info: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in page.lines() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(_), Some(block)) => blocks.push(block),
            (Some(info), None) => open = Some(Block { info: info.to_owned(), text: String::new() }),
            (None, Some(mut block)) => {
                writeln!(block.text, "{line}").expect("writing into a string does not fail");
                open = Some(block);
            }
            (None, None) => {}
        }
    }

    assert!(open.is_none(), "a code block is not closed");
    blocks
}

/// The files that configurations on the pages name: those of TLS, and secrets.
fn file(path: &Path, _: usize) -> std::io::Result<Vec<u8>> {
    static IDENTITY: LazyLock<(String, String)> = LazyLock::new(|| {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        (made.cert.pem(), made.signing_key.serialize_pem())
    });
    let content = match path.file_name().and_then(|name| name.to_str()) {
        Some("key.pem" | "identity.pem") => &IDENTITY.1,
        Some("cert.pem" | "clients.pem" | "operators.pem") => &IDENTITY.0,
        Some("keys.toml") => "",
        _ => "a secret",
    };
    Ok(content.as_bytes().to_vec())
}

#[test]
fn every_configuration_is_valid() {
    let env = Env {
        env: &|name| Some(format!("value of {name}, long enough for the key of an administrator")),
        file: &file,
        mode: &|_| None,
    };
    let (mut count, mut all) = (0, String::new());
    for page in pages() {
        for block in blocks(&read(&page)).into_iter().filter(|block| block.info == "toml") {
            all.push_str(&block.text);
            let read = config::read(&block.text, Path::new("gateway.toml"), &builtin(), &env);
            if let Err(error) = read {
                panic!("{page}:\n{}\n{}", block.text, error.render(false));
            }
            count += 1;
        }
    }
    assert!(count > 10, "only {count} configurations were found");
    for protocol in builtin().upstream_names() {
        assert!(all.contains(&format!("protocol = \"{protocol}\"")), "no page configures an agent with {protocol}");
    }
}

#[test]
fn the_readme_is_short() {
    let length = read("README.md").len();
    assert!(length <= MAX_README, "the README has {length} bytes, at most {MAX_README} are allowed");
}

fn builtin() -> Protocols {
    Gateway::builtin().protocols()
}

/// Collects the keys of a table in the JSON Schema, including nested tables except for options of protocols.
fn keys(schema: &Value, table: &Value, found: &mut Vec<String>) {
    if let Some(name) = table["$ref"].as_str().and_then(|path| path.strip_prefix("#/definitions/")) {
        return keys(schema, &schema["definitions"][name], found);
    }
    for part in ["allOf", "anyOf"].iter().filter_map(|word| table[word].as_array()).flatten() {
        keys(schema, part, found);
    }
    for nested in [&table["items"], &table["additionalProperties"]] {
        if nested.is_object() {
            keys(schema, nested, found);
        }
    }

    for (name, value) in table["properties"].as_object().into_iter().flatten() {
        found.push(name.clone());
        if name != "options" {
            keys(schema, value, found);
        }
    }
}

#[test]
fn the_reference_has_every_configuration_key() {
    let schema = config::schema(&builtin());
    let mut known = Vec::new();
    keys(&schema, &schema, &mut known);
    assert!(known.iter().any(|key| key == "first_byte"), "the keys were not found: {known:?}");
    let page = read("docs/reference/configuration.md");
    let missing: Vec<_> = known
        .iter()
        .filter(|key| {
            let written = [format!("| `{key}` |"), format!("[{key}]"), format!("[{key}."), format!(".{key}]")];
            // Keys of a secret are on the head of the page.
            let is_of_secret = ["env", "file", "prefix"].contains(&key.as_str());
            !is_of_secret && !written.iter().any(|way| page.contains(way.as_str()))
        })
        .collect();

    assert!(missing.is_empty(), "the reference lacks {missing:?}");
}

#[test]
fn every_protocol_of_the_shipped_configuration_has_a_page() {
    let env = Env { env: &|_| None, file: &|_, _| Err(std::io::ErrorKind::NotFound.into()), mode: &|_| None };
    let shipped = config::read(&read("gateway.toml"), Path::new("gateway.toml"), &builtin(), &env);
    let (settings, _) = shipped.unwrap_or_else(|error| panic!("{}", error.render(false)));

    for route in &settings.routes {
        let page = read(&format!("docs/protocols/{}.md", route.protocol));
        assert!(page.contains("\ncurl "), "the page of {} has no curl line", route.protocol);
    }
}

/// True if repeating the same request can succeed.
fn is_retryable(kind: FaultKind) -> bool {
    use FaultKind as K;
    matches!(
        kind,
        K::Busy
            | K::RateLimited
            | K::UpstreamUnreachable
            | K::UpstreamRateLimited
            | K::UpstreamOverloaded
            | K::Restarted
            | K::ShuttingDown
            | K::Overloaded
    )
}

#[test]
fn the_table_of_errors_matches_the_code() {
    let mut expected: Vec<String> = FaultKind::ALL
        .iter()
        .map(|kind| {
            let who = match kind.blame() {
                Blame::Client => "client",
                Blame::Upstream => "upstream",
                Blame::Gateway => "gateway",
            };
            let again = if is_retryable(*kind) { "yes" } else { "no" };
            format!("| `{}` | {} | {who} | {again} | ", kind.code(), kind.status())
        })
        .collect();

    // Several kinds with the same code share a row.
    expected.dedup();
    let page = read("docs/operations/troubleshooting.md");
    let (_, table) =
        page.split_once("| code | status | caused by | retryable | meaning |").expect("there is a table of errors");
    let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), expected.len());
    for (row, beginning) in rows.iter().zip(&expected) {
        assert!(row.starts_with(beginning) && row.len() > beginning.len() + 2, "{row} is not {beginning}…");
    }
}

/// Packages that the suites pin, with their versions: those of agents behind the gateway, or those of its clients.
fn tested_packages(are_agents: bool) -> Vec<(String, String)> {
    let minor = |version: &str| version.split('.').take(2).collect::<Vec<_>>().join(".");
    let mut clients = Vec::new();
    for suite in std::fs::read_dir(root().join("tests/conformance")).expect("the suites are there") {
        let folder = suite.expect("a suite can be read").path();
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        if (name.starts_with("upstream-") || name == "agentscope") != are_agents {
            continue;
        }
        let requirements = std::fs::read_to_string(folder.join("requirements.txt")).unwrap_or_default();
        // Some lists name all dependencies, behind the client itself.
        let named = requirements.lines().take_while(|line| *line != "# What it needs:");
        let pinned = named.filter_map(|line| line.split_once("=="));
        clients.extend(pinned.map(|(name, version)| (name.to_owned(), minor(version))));

        let package = std::fs::read_to_string(folder.join("package.json")).unwrap_or_else(|_| "{}".to_owned());
        let package: Value = serde_json::from_str(&package).expect("a package.json is JSON");
        for (name, version) in package["dependencies"].as_object().into_iter().flatten() {
            clients.push((name.clone(), minor(version.as_str().expect("versions are pinned"))));
        }
    }
    clients
}

#[test]
fn the_book_lists_the_tested_official_clients() {
    /// Dependencies of other clients and of the suites' scripts.
    const NOT_CLIENTS: [&str; 25] = [
        "langchain-core",
        "cryptography",
        "httpx",
        "httpx[http2]",
        "playwright-core",
        "typescript",
        "eslint",
        "@eslint/js",
        "globals",
        "axe-core",
        "@preact/signals-core",
        "lit-html",
        "undici",
        "node",
        "uplot",
        "websockets",
        "zod",
        "ai",
        "prometheus-client",
        "grpcio",
        "opentelemetry-proto",
        "rxjs",
        "client-0042",
        "client-0047",
        "client-0059",
    ];
    let page = read("docs/protocols/overview.md");
    let (named, _) = page.split_once("\n### Servers\n").expect("the page names servers");
    let (_, named) = named.split_once("\n### Clients\n").expect("the page names clients");
    let named = named.split_whitespace().collect::<Vec<_>>().join(" ");
    let clients = tested_packages(false);
    assert!(clients.len() > 5, "{clients:?}");

    for (name, version) in clients {
        if NOT_CLIENTS.contains(&&*name) {
            continue;
        }
        let quoted = format!("`{name}`");
        let places = named.match_indices(&quoted);
        // The text up to the next name.
        let mut versions = places.map(|(at, name)| named[at + name.len()..].split('`').next().unwrap_or_default());
        assert!(versions.any(|versions| versions.contains(&version)), "{name} {version} is tested: {named}");
    }
}

#[test]
fn the_book_lists_the_tested_official_servers() {
    let page = read("docs/protocols/overview.md");
    let (_, named) = page.split_once("\n### Servers\n").expect("the page names servers");
    let named = named.split_whitespace().collect::<Vec<_>>().join(" ");
    let packages = tested_packages(true);

    let mut count = 0;
    for quoted in named.split('`').skip(1).step_by(2).filter(|quoted| !quoted.contains(' ')) {
        let after = named.split(&format!("`{quoted}` ")).nth(1).expect("a version follows it");
        let version = after.split([' ', ',', ';']).next().unwrap_or_default().trim_end_matches('.');
        let is_pinned = packages.iter().any(|(name, pinned)| {
            let name = name.split('[').next().unwrap_or_default();
            name == quoted && version.starts_with(pinned.as_str())
        });
        assert!(is_pinned, "{quoted} {version} is not tested: {packages:?}");
        count += 1;
    }
    assert!(count > 8, "{named}");
}

#[test]
fn every_xtask_command_exists() {
    let known = read("xtask/src/main.rs");
    for page in pages() {
        let text = read(&page);
        for command in text.split("cargo xtask ").skip(1) {
            let word: String = command.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
            assert!(known.contains(&format!("[\"{word}\"")), "{page}: cargo xtask has no {word:?}");
        }
    }
}

#[test]
fn code_blocks_match_their_files() {
    let mut count = 0;
    for page in pages() {
        for block in blocks(&read(&page)) {
            if let Some((_, file)) = block.info.split_once("file=") {
                count += 1;
                assert!(read(file).contains(&block.text), "{page}: this is not in {file}:\n{}", block.text);
            }
        }
    }

    assert!(count > 5, "only {count} code blocks have a file");
}

/// A gateway on its own thread, stopped when it is dropped.
struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts the shipped configuration, with a free port and a store in memory.
    fn start() -> Self {
        let (listening, address) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let gateway = Gateway::builtin();
            let loaded = gateway.load(&root().join("gateway.toml"));
            let (mut settings, _) = loaded.unwrap_or_else(|error| panic!("{}", error.render(false)));
            settings.server.listen = ([127, 0, 0, 1], 0).into();
            settings.store.kind = StoreKind::Memory;
            // Its port is fixed, and other tests run at the same time.
            settings.admin = None;
            actix_web::rt::System::new().block_on(async {
                let running = gateway.start(&settings).await.expect("a free port");
                listening.send(running.address).expect("the test waits for it");
                running.run(async { _ = stopped.await }).await.expect("it serves until it is stopped");
            });
        });

        let address = address.recv_timeout(TIMEOUT).expect("the server listens");
        Self { address, stop: Some(stop), thread: Some(thread) }
    }

    /// Sends the request of a curl command. Returns status and body.
    fn send(&self, curl: &Curl) -> (String, String) {
        let mut connection = TcpStream::connect(self.address).expect("the server listens");
        connection.set_read_timeout(Some(TIMEOUT)).expect("a socket has timeouts");
        let path = curl.url.strip_prefix(BASE).unwrap_or_else(|| panic!("{} is not a URL of the gateway", curl.url));
        let mut request = format!("{} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n", curl.method);
        for header in &curl.headers {
            write!(request, "{header}\r\n").expect("writing into a string does not fail");
        }
        write!(request, "content-length: {}\r\n\r\n{}", curl.body.len(), curl.body)
            .expect("writing into a string does not fail");
        connection.write_all(request.as_bytes()).expect("the server reads");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("the answer is text, and ends");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        let status = head.split(' ').nth(1).expect("an answer has a status").to_owned();
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");

        (status, if chunked { decode_chunked(body) } else { body.to_owned() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) && !std::thread::panicking() {
            panic!("the server panicked");
        }
    }
}

/// Decodes a body in chunked transfer coding (RFC 9112, section 7.1).
fn decode_chunked(mut body: &str) -> String {
    let mut decoded = String::new();
    loop {
        let (length, rest) = body.split_once("\r\n").expect("a chunk has a length");
        let length = usize::from_str_radix(length, 16).expect("a length is hexadecimal");
        if length == 0 {
            return decoded;
        }
        decoded.push_str(&rest[..length]);
        body = rest[length..].strip_prefix("\r\n").expect("a chunk ends with its line");
    }
}

/// A curl command, with the options that the pages use.
#[derive(Debug)]
struct Curl {
    method: String,
    url: String,
    headers: Vec<String>,
    body: String,
    /// The expected status from a comment at the end of the line, or 200.
    expected: String,
}

impl Curl {
    /// Parses a command line, with these shell variables.
    fn parse(line: &str, variables: &[(&str, &str)]) -> Self {
        let (words, comment) = shell_words(line, variables);
        let mut words = words.into_iter();
        assert_eq!(words.next().as_deref(), Some("curl"));
        let expected = if comment.is_empty() { "200".to_owned() } else { comment };
        let mut curl =
            Self { method: String::new(), url: String::new(), headers: Vec::new(), body: String::new(), expected };
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_else(|| panic!("{word} needs a value: {line}"));
            match word.as_str() {
                "-N" | "-s" | "-i" => {}
                "-X" => curl.method = value(),
                "-H" => curl.headers.push(value()),
                "-d" => curl.body = value(),
                url if url.starts_with("http") => curl.url = word,
                other => panic!("unsupported argument {other:?}: {line}"),
            }
        }

        if curl.method.is_empty() {
            curl.method = if curl.body.is_empty() { "GET" } else { "POST" }.to_owned();
        }
        curl
    }
}

/// Splits a line into words and a comment, with quotes and variables as in a shell.
fn shell_words(line: &str, variables: &[(&str, &str)]) -> (Vec<String>, String) {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match (c, quote) {
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, Some(open)) if c == open => quote = None,
            (' ', None) => words.extend(word.take()),
            ('#', None) if word.is_none() => return (words, rest.trim().to_owned()),
            ('$', None | Some('"')) => {
                let end = rest.find(|c: char| !c.is_ascii_uppercase()).unwrap_or(rest.len());
                let (name, after) = rest.split_at(end);
                let value = variables.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
                let value = value.filter(|value| !value.is_empty());
                word.get_or_insert_default().push_str(value.unwrap_or_else(|| panic!("${name} is not set yet")));
                rest = after;
            }
            (c, _) => word.get_or_insert_default().push(c),
        }
    }

    assert!(quote.is_none(), "a quote is not closed: {line}");
    words.extend(word);
    (words, String::new())
}

/// The last id in a response that follows one of these texts and has its prefix.
fn last_id<'a>(answer: &'a str, places: &[(&str, &str)]) -> Option<&'a str> {
    let found =
        places.iter().filter_map(|(before, word)| Some(answer.rfind(&format!("{before}{word}"))? + before.len()));
    answer[found.max()?..].split('"').next()
}

/// Sends the curl commands of a page, in order. Returns their number.
fn run_curl_commands(page: &str) -> usize {
    let lines: Vec<String> = blocks(&read(page))
        .into_iter()
        .filter(|block| block.info == "sh")
        .flat_map(|block| block.text.replace("\\\n", " ").lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| line.starts_with("curl "))
        .collect();
    if lines.is_empty() {
        return 0;
    }

    let server = Server::start();
    let (mut run, mut asked, mut session) = (String::new(), String::new(), String::new());
    for line in &lines {
        let curl = Curl::parse(line, &[("RUN", &run), ("ASKED", &asked), ("SESSION", &session)]);
        let (status, body) = server.send(&curl);
        assert_eq!(status, curl.expected, "{page}: {line}\n{body}");
        // A failed run may still have status 200, but the pages have no such example.
        assert!(!body.contains(r#""status":"failed""#), "{page}: {line}\n{body}");
        if let Some(id) = last_id(&body, &RUN_IDS) {
            id.clone_into(&mut run);
        }
        if let Some(id) = last_id(&body, &[(r#""id":""#, "appr_")]) {
            id.clone_into(&mut asked);
        }
        if let Some(id) = last_id(&body, &[(r#""session_id":""#, "hitl_")]) {
            id.clone_into(&mut session);
        }
    }
    lines.len()
}

#[test]
fn every_curl_command_works() {
    let count: usize = pages().iter().map(|page| run_curl_commands(page)).sum();
    assert!(count > 40, "only {count} curl commands were found");
}

#[test]
fn the_table_of_demo_commands_matches_the_help_of_the_agent() {
    let server = Server::start();
    let line = format!(
        r#"curl {BASE}/agents/demo/process -H 'content-type: application/json' -d '{{"stream":false,"input":[{{"role":"user","content":"help"}}]}}'"#
    );
    let (_, body) = server.send(&Curl::parse(&line, &[]));
    let response: Value = serde_json::from_str(&body).expect("a response");
    let help = response["output"][0]["content"][0]["text"].as_str().expect("a text");
    let expected: Vec<String> = help
        .lines()
        .filter_map(|line| line.strip_prefix("- ")?.split_once(": "))
        .map(|(word, shows)| format!("| `{word}` | {shows} |"))
        .collect();

    assert!(expected.len() > 10, "{help}");
    let page = read("docs/extending/agents.md");
    let (_, table) = page.split_once("| word | shows |\n").expect("there is a table of words");
    let rows: Vec<&str> = table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
    assert_eq!(rows, expected);
}
