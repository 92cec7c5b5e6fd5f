//! Keeps the README honest: what it shows is tried, what it lists is compared with the code, what it links to exists.
//!
//! Curl lines are asked of a running gateway with the shipped configuration, in the order in which a reader would paste
//! them. Blocks of code marked `file=…` have to stand in that file. Not here: whether the sentences are good.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use interlingua::Gateway;
use interlingua::config::{self, Env, Protocols, StoreKind};
use interlingua_core::{Blame, FaultKind};
use serde_json::Value;
use tokio::sync::oneshot;

/// The pages that are kept honest.
const PAGES: [&str; 5] =
    ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "benches/README.md", "examples/custom-adapter/README.md"];

/// Where the README's gateway listens.
const BASE: &str = "http://127.0.0.1:8080";

/// Where an answer tells the id of its run: a background task, a native response, one of OpenAI's, an A2A task.
const RUNS: [(&str, &str); 4] =
    [(r#""task_id":""#, ""), (r#""id":""#, "response_"), (r#""id":""#, "resp_"), (r#""task":{"id":""#, "")];

/// Nothing here takes long; a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(60);

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// A fenced block: the words behind the fence, and what stands in it.
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
    assert!(open.is_none(), "a block of code is not closed");
    blocks
}

/// The page without its blocks of code.
fn prose(page: &str) -> String {
    let mut inside = false;
    let mut kept = String::new();
    for line in page.lines() {
        if line.starts_with("```") {
            inside = !inside;
        } else if !inside {
            writeln!(kept, "{line}").expect("writing into a string does not fail");
        }
    }
    kept
}

#[test]
fn every_configuration_in_the_readme_is_right() {
    let surroundings = Env { env: &|name| Some(format!("value of {name}")), file: &|_, _| Ok(b"a secret".to_vec()) };
    let readme = read("README.md");
    let shown: Vec<Block> = blocks(&readme).into_iter().filter(|block| block.info == "toml").collect();
    assert!(shown.len() >= 2, "the README shows a small configuration and a whole one");
    for block in shown {
        let read = config::read(&block.text, Path::new("gateway.toml"), &builtin(), &surroundings);
        let (_, warnings) = read.unwrap_or_else(|wrong| panic!("{}", wrong.render(false)));
        assert!(warnings.is_empty(), "{}", warnings.render(false));
    }
}

fn builtin() -> Protocols {
    Gateway::builtin().protocols()
}

/// The keys of a table in the JSON Schema, and of the tables in it. Options are the protocols' own.
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
fn every_key_of_the_configuration_is_explained() {
    let schema = config::schema(&builtin());
    let mut known = Vec::new();
    keys(&schema, &schema, &mut known);
    assert!(known.iter().any(|key| key == "first_byte"), "the walk did not find the keys: {known:?}");
    let readme = read("README.md");
    let shown: String = blocks(&readme).iter().filter(|block| block.info == "toml").map(|block| &*block.text).collect();
    // "file" is one of two ways to name a secret: it is told in a comment.
    let missing: Vec<_> = known
        .iter()
        .filter(|key| {
            let written = [format!("{key} = "), format!("[{key}"), format!("[[{key}"), format!(".{key}]")];
            !written.iter().any(|way| shown.contains(way.as_str()))
        })
        .collect();
    assert!(missing.is_empty(), "the README shows no {missing:?}");
}

#[test]
fn every_protocol_of_the_shipped_configuration_has_a_section() {
    let surroundings = Env { env: &|_| None, file: &|_, _| Err(std::io::ErrorKind::NotFound.into()) };
    let shipped = config::read(&read("gateway.toml"), Path::new("gateway.toml"), &builtin(), &surroundings);
    let (settings, _) = shipped.unwrap_or_else(|wrong| panic!("{}", wrong.render(false)));
    let readme = read("README.md");
    for route in &settings.routes {
        let heading = format!("\n### `{}`\n", route.protocol);
        let section = readme.split_once(&heading).map(|(_, rest)| rest.split("\n##").next().unwrap_or(rest));
        let section = section.unwrap_or_else(|| panic!("the README has no section `{}`", route.protocol));
        assert!(section.contains("curl "), "the section of {} has no curl line", route.protocol);
    }
}

#[test]
fn the_table_of_errors_is_that_of_the_code() {
    let mut expected: Vec<String> = FaultKind::ALL
        .iter()
        .map(|kind| {
            let who = match kind.blame() {
                Blame::Client => "client",
                Blame::Upstream => "upstream",
                Blame::Gateway => "gateway",
            };
            let again = if kind.retryable() { "yes" } else { "no" };
            format!("| `{}` | {} | {who} | {again} | ", kind.code(), kind.status())
        })
        .collect();
    // Several kinds may share a code, in one row.
    expected.dedup();
    let readme = read("README.md");
    let (_, table) =
        readme.split_once("| code | status | caused by | retryable | meaning |").expect("there is a table of errors");
    let told: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    assert_eq!(told.len(), expected.len());
    for (row, beginning) in told.iter().zip(&expected) {
        assert!(row.starts_with(beginning) && row.len() > beginning.len() + 2, "{row} is not {beginning}…");
    }
}

/// The official clients that the conformance suites install, with major and minor version.
fn tested_clients() -> Vec<(String, String)> {
    let minor = |version: &str| version.split('.').take(2).collect::<Vec<_>>().join(".");
    let mut clients = Vec::new();
    for suite in std::fs::read_dir(root().join("tests/conformance")).expect("the suites are there") {
        let folder = suite.expect("a suite can be read").path();
        // An upstream, and not a client.
        if folder.ends_with("agentscope") {
            continue;
        }
        let requirements = std::fs::read_to_string(folder.join("requirements.txt")).unwrap_or_default();
        let pinned = requirements.lines().filter_map(|line| line.split_once("=="));
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
fn the_readme_names_the_official_clients_that_are_tested() {
    /// Parts of the others, and what the suites' own scripts need.
    const NOT_CLIENTS: [&str; 5] = ["langchain-core", "httpx", "websockets", "zod", "ai"];
    let readme = read("README.md");
    let (_, named) = readme.split_once("Official clients that are tested").expect("the README names them");
    let named = named.split("\n\n").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    let clients = tested_clients();
    assert!(clients.len() > 5, "{clients:?}");
    for (name, version) in clients {
        if NOT_CLIENTS.contains(&&*name) {
            continue;
        }
        let quoted = format!("`{name}`");
        let places = named.match_indices(&quoted);
        // Up to the next name.
        let mut versions = places.map(|(at, name)| named[at + name.len()..].split('`').next().unwrap_or_default());
        assert!(versions.any(|versions| versions.contains(&version)), "README: {name} {version} is tested: {named}");
    }
}

#[test]
fn every_xtask_command_exists() {
    let known = read("xtask/src/main.rs");
    for page in PAGES {
        let text = read(page);
        for command in text.split("cargo xtask ").skip(1) {
            let word: String = command.chars().take_while(char::is_ascii_lowercase).collect();
            assert!(known.contains(&format!("[\"{word}\"")), "{page}: cargo xtask has no {word:?}");
        }
    }
}

#[test]
fn every_link_leads_somewhere() {
    let mut dead = Vec::new();
    for page in PAGES {
        let text = prose(&read(page));
        let folder = root().join(page).parent().expect("a page lies in a folder").to_path_buf();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target) {
            if target.starts_with("https://") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = if path.is_empty() { root().join(page) } else { folder.join(path) };
            let found = match std::fs::read_to_string(&file) {
                Ok(text) => anchor.is_empty() || prose(&text).lines().filter_map(anchored).any(|known| known == anchor),
                Err(_) => file.is_dir(),
            };
            if !found {
                dead.push(format!("{page} links to {target}"));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

/// A heading as links name it.
fn anchored(line: &str) -> Option<String> {
    let heading = line.strip_prefix('#')?.trim_start_matches('#').trim();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    Some(kept.collect::<String>().to_lowercase().replace(' ', "-"))
}

#[test]
fn code_in_the_readme_is_code_in_the_repository() {
    let readme = read("README.md");
    let mut count = 0;
    for block in blocks(&readme) {
        if let Some((_, file)) = block.info.split_once("file=") {
            count += 1;
            assert!(read(file).contains(&block.text), "this is not in {file}:\n{}", block.text);
        }
    }
    assert!(count > 0, "the README shows code");
}

/// A gateway on a thread of its own, stopped when it is dropped.
struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// The shipped configuration, but for the port and the store's file.
    fn start() -> Self {
        let (listening, address) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let gateway = Gateway::builtin();
            let loaded = gateway.load(&root().join("gateway.toml"));
            let (mut settings, _) = loaded.unwrap_or_else(|wrong| panic!("{}", wrong.render(false)));
            settings.server.listen = ([127, 0, 0, 1], 0).into();
            settings.store.kind = StoreKind::Memory;
            actix_web::rt::System::new().block_on(async {
                let running = gateway.start(&settings).await.expect("a free port");
                listening.send(running.address).expect("the test waits for it");
                running.run(async { _ = stopped.await }).await.expect("it serves until it is stopped");
            });
        });
        let address = address.recv_timeout(PATIENCE).expect("the server listens");
        Self { address, stop: Some(stop), thread: Some(thread) }
    }

    /// Asks as a curl line does: status and body.
    fn ask(&self, curl: &Curl) -> (String, String) {
        let mut connection = TcpStream::connect(self.address).expect("the server listens");
        connection.set_read_timeout(Some(PATIENCE)).expect("a socket has timeouts");
        let path = curl.url.strip_prefix(BASE).unwrap_or_else(|| panic!("{} is elsewhere", curl.url));
        let mut request = format!("{} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n", curl.method);
        for header in &curl.headers {
            write!(request, "{header}\r\n").expect("writing into a string does not fail");
        }
        write!(request, "content-length: {}\r\n\r\n{}", curl.body.len(), curl.body).expect("as above");
        connection.write_all(request.as_bytes()).expect("the server reads");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("the answer is text, and ends");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        let status = head.split(' ').nth(1).expect("an answer has a status").to_owned();
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        (status, if chunked { unchunked(body) } else { body.to_owned() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) && !std::thread::panicking() {
            panic!("the server has failed");
        }
    }
}

/// The body that came in chunks, each after a line with its length (RFC 9112, section 7.1).
fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    loop {
        let (length, rest) = body.split_once("\r\n").expect("a chunk has a length");
        let length = usize::from_str_radix(length, 16).expect("a length is hexadecimal");
        if length == 0 {
            return whole;
        }
        whole.push_str(&rest[..length]);
        body = rest[length..].strip_prefix("\r\n").expect("a chunk ends with its line");
    }
}

/// A curl line, as far as the README uses curl.
#[derive(Debug)]
struct Curl {
    method: String,
    url: String,
    headers: Vec<String>,
    body: String,
    /// The status it says in a comment, or 200.
    expected: String,
}

impl Curl {
    /// Reads a line as a shell would, with these variables.
    fn read(line: &str, variables: &[(&str, &str)]) -> Self {
        let (words, comment) = shell_words(line, variables);
        let mut words = words.into_iter();
        assert_eq!(words.next().as_deref(), Some("curl"));
        let expected = if comment.is_empty() { "200".to_owned() } else { comment };
        let mut curl =
            Self { method: String::new(), url: String::new(), headers: Vec::new(), body: String::new(), expected };
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_else(|| panic!("{word} wants a value: {line}"));
            match word.as_str() {
                "-N" | "-s" | "-i" => {}
                "-X" => curl.method = value(),
                "-H" => curl.headers.push(value()),
                "-d" => curl.body = value(),
                url if url.starts_with("http") => curl.url = word,
                other => panic!("the test does not know {other:?}: {line}"),
            }
        }
        if curl.method.is_empty() {
            curl.method = if curl.body.is_empty() { "GET" } else { "POST" }.to_owned();
        }
        curl
    }
}

/// The words of a line and its comment: quotes and variables are taken as a shell takes them.
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
                let (name, behind) = rest.split_at(end);
                let value = variables.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
                let value = value.filter(|value| !value.is_empty());
                word.get_or_insert_default().push_str(value.unwrap_or_else(|| panic!("nothing is called ${name} yet")));
                rest = behind;
            }
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    assert!(quote.is_none(), "a quote is not closed: {line}");
    words.extend(word);
    (words, String::new())
}

/// The last id in an answer that stands behind one of these texts and begins with its word.
fn last_id<'a>(answer: &'a str, places: &[(&str, &str)]) -> Option<&'a str> {
    let found =
        places.iter().filter_map(|(before, word)| Some(answer.rfind(&format!("{before}{word}"))? + before.len()));
    answer[found.max()?..].split('"').next()
}

#[test]
fn every_curl_line_does_what_is_said() {
    let server = Server::start();
    let (mut run, mut asked, mut session, mut count) = (String::new(), String::new(), String::new(), 0);
    let readme = read("README.md");
    for block in blocks(&readme).into_iter().filter(|block| block.info == "sh") {
        for line in block.text.lines().filter(|line| line.starts_with("curl ")) {
            let curl = Curl::read(line, &[("RUN", &run), ("ASKED", &asked), ("SESSION", &session)]);
            let (status, body) = server.ask(&curl);
            assert_eq!(status, curl.expected, "{line}\n{body}");
            // What the agent answers to an error is an answer, too; the README shows none of those.
            assert!(!body.contains(r#""status":"failed""#), "{line}\n{body}");
            if let Some(id) = last_id(&body, &RUNS) {
                id.clone_into(&mut run);
            }
            if let Some(id) = last_id(&body, &[(r#""id":""#, "appr_")]) {
                id.clone_into(&mut asked);
            }
            if let Some(id) = last_id(&body, &[(r#""session_id":""#, "hitl_")]) {
                id.clone_into(&mut session);
            }
            count += 1;
        }
    }
    assert!(count > 10, "only {count} curl lines were found");
}

#[test]
fn the_demo_agents_words_are_those_of_its_help() {
    let server = Server::start();
    let line = format!(
        r#"curl {BASE}/agents/demo/process -H 'content-type: application/json' -d '{{"stream":false,"input":[{{"role":"user","content":"help"}}]}}'"#
    );
    let (_, body) = server.ask(&Curl::read(&line, &[]));
    let response: Value = serde_json::from_str(&body).expect("a response");
    let help = response["output"][0]["content"][0]["text"].as_str().expect("a text");
    let expected: Vec<String> = help
        .lines()
        .filter_map(|line| line.strip_prefix("- ")?.split_once(": "))
        .map(|(word, shows)| format!("| `{word}` | {shows} |"))
        .collect();
    assert!(expected.len() > 10, "{help}");
    let readme = read("README.md");
    let (_, table) = readme.split_once("| word | shows |\n").expect("there is a table of words");
    let told: Vec<&str> = table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
    assert_eq!(told, expected);
}
