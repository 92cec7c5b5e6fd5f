//! `interlingua check` with a store in a database: its contents, or the reason why it is unusable. The command changes
//! nothing.

use std::path::Path;

use super::cluster;
use super::support::cluster::Cluster;
use super::support::process;
use super::support::upstream::Upstream;
use crate::support::agent::text_reply;

/// The output of `interlingua check` and its exit code, for a URL.
pub(super) fn check(stand: &Cluster, url: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gateway.toml"), stand.config(folder.path())).unwrap();
    write_url(folder.path(), url);
    let output = process::run(folder.path(), &["check"]);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

fn write_url(folder: &Path, url: &str) {
    std::fs::write(folder.join("url"), url).unwrap();
}

#[tokio::test]
async fn a_check_describes_the_database_or_the_error() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let stand = cluster(&upstream, "", "");
    let url = stand.database().url();

    let (code, text) = check(&stand, &url);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("store: PostgreSQL ") && text.contains("schema interlingua will be made"), "{text}");
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'interlingua'";
    assert_eq!(stand.database().sql(schemas).unwrap().trim(), "0", "it makes nothing");

    stand.database().sql("CREATE ROLE weak LOGIN").unwrap();
    let weak = url.replace("postgres@", "weak@");
    let (code, text) = check(&stand, &weak);
    assert!(code == Some(1) && text.contains("may not make the tables"), "{text}");

    let gateway = stand.gateway().await;
    let (code, text) = check(&stand, &url);
    assert!(code == Some(0) && text.contains("schema interlingua of version 4"), "{text}");
    let (code, text) = check(&stand, &weak);
    assert!(code == Some(1) && text.contains("permission denied for schema"), "{text}");
    gateway.stop().await;

    stand.database().sql("UPDATE interlingua.migrations SET reader = 99").unwrap();
    let (code, text) = check(&stand, &url);
    assert!(code == Some(1) && text.contains("supports versions up to"), "{text}");

    let (code, text) = check(&stand, "postgres://postgres@127.0.0.1:1/interlingua?sslmode=disable");
    assert!(code == Some(1) && text.contains("cannot be reached"), "{text}");
    stand.database().sql("DROP OWNED BY weak; DROP ROLE weak").unwrap();
}
