//! The console checks a configuration: it reads only permitted files and changes nothing. Not here: the errors of a
//! configuration (`tests/config.rs`).

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::gateway::{DEMO, JSON, ROUTE};
use crate::support::http::Response;
use crate::support::poll_until;
use crate::support::process::{Process, binary};

const KEY: &str = "an-admin-key-of-at-least-32-characters";

/// A gateway that names the variable `NAMED` and the file `named`, and writes an audit log.
struct Stand {
    process: Process,
    folder: tempfile::TempDir,
}

fn config() -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n[store]\nkind = \"memory\"\n\
         [observe]\naudit = \"audit.jsonl\"\n[auth]\nkeys = \"keys.toml\"\n[callers.mallory]\nconsole = \"act\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\nkey = {{ env = \"ADMIN_KEY\" }}\n{DEMO}\
         [agents.friday.upstream]\nprotocol = \"agent-api\"\nurl = \"http://127.0.0.1:1/process\"\n\
         headers = {{ x-one = {{ env = \"NAMED\" }}, x-two = {{ file = \"named\" }} }}\n{}auth = \"none\"\n",
        ROUTE,
    )
}

impl Stand {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("named"), "a-secret-in-a-named-file").expect("a file");
        std::fs::write(path("unnamed"), "a-secret-in-an-unnamed-file").expect("a file");
        #[cfg(unix)]
        std::fs::set_permissions(path("named"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("a file");
        std::fs::write(path("gateway.toml"), config()).expect("a file");
        let made = binary(folder.path()).args(["key", "new", "mallory"]).output().expect("it starts");
        std::fs::write(path("mallory"), made.stdout).expect("a file");
        let mut command = binary(folder.path());
        command.args(["--log", "error"]).stderr(std::process::Stdio::null());
        command.env("ADMIN_KEY", KEY).env("NAMED", "a-secret-in-a-named-variable").env("UNNAMED", "an-unnamed-secret");
        Self { process: Process::spawn(command), folder }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    async fn check(&self, text: &str) -> Response {
        let bearer = format!("Bearer {KEY}");
        let body = json!({ "text": text }).to_string();
        let headers = [("authorization", bearer.as_str()), JSON[0]];
        self.process.operate("POST", "/api/config/check", &headers, body.as_bytes()).await
    }

    /// The messages of errors and of warnings.
    async fn messages(&self, text: &str) -> (Vec<String>, Vec<String>) {
        let answer = self.check(text).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let of = |kind: &str| {
            let found = answer.json()[kind].as_array().expect("a list").clone();
            found.iter().map(|one| one["message"].as_str().expect("a message").to_owned()).collect()
        };
        (of("errors"), of("warnings"))
    }

    fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("audit.jsonl")).expect("the audit log");
        text.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
    }

    async fn sign_in(&self, key: &str) -> u16 {
        let body = json!({ "key": key }).to_string();
        self.process.operate("POST", "/api/session", JSON, body.as_bytes()).await.status
    }
}

#[tokio::test]
async fn a_check_masks_nothing_in_the_logs() {
    let stand = Stand::new();
    let secrets = ["mallory", "credential_refused", "%22what%22%3A%22", "sign_in", "/api/session"];
    let agents: String = secrets
        .iter()
        .enumerate()
        .map(|(number, secret)| {
            let url = format!("http://127.0.0.1:1/?key={secret}");
            format!("[agents.a{number}.upstream]\nprotocol = \"agent-api\"\nurl = \"{url}\"\n")
        })
        .collect();
    let (errors, warnings) = stand.messages(&format!("{}{agents}", config())).await;
    assert!(errors.is_empty() && warnings.iter().filter(|text| text.contains("holds a secret")).count() == 5);
    // Valid TOML with errors, and a text that is no TOML at all.
    stand.check(&format!("{agents}[nonsense]\n")).await;
    stand.check(&format!("{agents}nonsense")).await;

    let mallory = std::fs::read_to_string(stand.path("mallory")).expect("a key");
    poll_until("a sign-in", async || (stand.sign_in(mallory.trim()).await == 200).then_some(())).await;
    assert_eq!(stand.sign_in("il_wrong").await, 401);
    let entry = async |what: &'static str| {
        poll_until(what, async || stand.audit().into_iter().find(|one| one["what"] == what)).await
    };
    assert_eq!(entry("sign_in").await["who"], "mallory");
    assert_eq!(entry("credential_refused").await["target"], "/api/session");
}

#[tokio::test]
async fn a_check_of_many_secrets_is_quick_and_bounded() {
    let stand = Stand::new();
    let urls: Vec<String> =
        (0..9000).map(|number| format!("{{ url = \"http://127.0.0.1:1/?key=secret-{number}\" }}")).collect();
    let text = format!("[agents.many.upstream]\nprotocol = \"agent-api\"\nurls = [{}]\n", urls.join(", "));
    let began = Instant::now();
    let answer = stand.check(&format!("{}{text}", config())).await;
    assert!(matches!(answer.status, 200 | 503), "{}", answer.text());
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    let healthy = Instant::now();
    assert_eq!(stand.process.operate("GET", "/readyz", &[], b"").await.status, 200);
    assert!(healthy.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_check_does_not_reveal_which_files_and_variables_exist() {
    let stand = Stand::new();
    let with = |secret: &str| config().replace("{ env = \"NAMED\" }", secret);
    let file = async |path: &Path| {
        let (errors, _) = stand.messages(&with(&format!("{{ file = {:?} }}", path.to_str().expect("text")))).await;
        errors.into_iter().map(|error| error.replace(path.to_str().expect("text"), "FILE")).collect::<Vec<_>>()
    };
    let missing = file(Path::new("/nothing/at/all")).await;
    assert_eq!(missing.len(), 1, "{missing:?}");
    for path in [stand.path("unnamed"), stand.path("mallory"), "/etc/passwd".into(), "/dev/zero".into(), "/".into()] {
        assert_eq!(file(&path).await, missing, "{}", path.display());
    }
    let variable = async |name: &str| {
        let (errors, warnings) = stand.messages(&with(&format!("{{ env = \"{name}\" }}"))).await;
        (errors, warnings.into_iter().map(|text| text.replace(name, "NAME")).collect::<Vec<_>>())
    };
    assert_eq!(variable("UNNAMED").await, variable("NOT_SET").await);
    assert_eq!(variable("PATH").await, variable("NOT_SET").await);

    // The check reads the secrets that the running configuration names, if reading them cannot block.
    let (errors, warnings) = stand.messages(&config()).await;
    assert!(errors.is_empty() && !warnings.iter().any(|text| text.contains("not read")), "{errors:?} {warnings:?}");
    std::fs::remove_file(stand.path("named")).expect("removed");
    let made = std::process::Command::new("mkfifo").arg(stand.path("named")).status().expect("mkfifo");
    assert!(made.success());
    let (errors, _) = stand.messages(&config()).await;
    assert!(errors[0].contains("named"), "{errors:?}");
}
