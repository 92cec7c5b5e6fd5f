//! Arbitrary configuration files: the result is settings or errors, and no error contains a secret.
#![no_main]

use std::io;
use std::path::Path;
use std::sync::LazyLock;

use interlingua::config::{self, ClientProtocol, Env, Protocols, UpstreamProtocol};
use interlingua_fuzz::edited;
use libfuzzer_sys::fuzz_target;

const SECRET: &str = "hunter2-correct-horse";

const SEEDS: &[&[u8]] = &[
    include_bytes!("../../gateway.toml"),
    include_bytes!("../../tests/config/good/everything.toml"),
    include_bytes!("../../tests/config/good/one_path_two_protocols.toml"),
    include_bytes!("../../tests/config/good/smallest.toml"),
    include_bytes!("../../tests/config/bad/everything_at_once.toml"),
    include_bytes!("../../tests/config/bad/missing_secrets.toml"),
    include_bytes!("../../tests/config/bad/unknown_keys.toml"),
    include_bytes!("../../tests/config/bad/bad_urls.toml"),
];

#[derive(serde::Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
#[allow(dead_code, reason = "read and dropped")]
struct Options {
    tasks: bool,
    depth: u8,
    flavour: Option<String>,
}

static PROTOCOLS: LazyLock<Protocols> = LazyLock::new(|| {
    Protocols::new()
        .client(ClientProtocol::new::<Options>("agent-api"))
        .client(ClientProtocol::new::<Options>("a2a"))
        .client(ClientProtocol::new::<Options>("responses"))
        .upstream(UpstreamProtocol::new::<Options>("agent-api"))
        .upstream(UpstreamProtocol::new::<Options>("demo").built_in())
});

fn env(name: &str) -> Option<String> {
    (!name.contains("MISSING")).then(|| SECRET.to_owned())
}

fn file(_: &Path, max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = SECRET.as_bytes().to_vec();
    bytes.truncate(max);
    Ok(bytes)
}

fuzz_target!(|input: &[u8]| {
    let Some(source) = edited(SEEDS, input).and_then(|source| String::from_utf8(source).ok()) else { return };
    // Skip files that contain the secret themselves.
    if source.contains("hunter2") {
        return;
    }
    let env_values = Env { env: &env, file: &file, mode: &|_| None };
    let output = match config::read(&source, Path::new("gateway.toml"), &PROTOCOLS, &env_values) {
        Ok((settings, warnings)) => format!("{settings:?}\n{warnings}"),
        Err(errors) => {
            assert!(errors.has_errors(), "refused without a reason:\n{source}");
            errors.to_string()
        }
    };
    assert!(!output.contains(SECRET), "a secret is shown:\n{output}");
});
