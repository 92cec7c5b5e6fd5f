//! OAuth clients of MCP: the metadata of the route, and the challenges that name it.

use serde_json::json;

use crate::mcp_support::{MCP, open};
use crate::support::callers::{AUTH, write_keys};
use crate::support::gateway::{DEMO, Gateway};

const JWT: &str = "[auth]\n[[auth.jwt]]\nissuer = \"https://id.example.com/\"\naudience = \"https://gw.example.com/mcp\"\nalgorithms = [\"ES256\"]\n";
const METADATA: &str = "/.well-known/oauth-protected-resource";

#[tokio::test]
async fn the_metadata_names_the_issuers_and_the_challenge_the_metadata() {
    let server = "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\npublic_url = \"https://gw.example.com\"\n";
    let options = "auth = [\"jwt\"]\n[routes.options]\nscopes = [\"agents\"]\n";
    let gateway = Gateway::with_config(&format!("{server}{JWT}[store]\nkind = \"memory\"\n{DEMO}{MCP}{options}")).await;
    for path in [METADATA.to_owned(), format!("{METADATA}/mcp")] {
        let metadata = gateway.get(&path).await;
        assert_eq!(metadata.status, 200, "{path} {}", metadata.text());
        assert_eq!(
            metadata.json(),
            json!({
                "resource": "https://gw.example.com/mcp",
                "authorization_servers": ["https://id.example.com/"],
                "bearer_methods_supported": ["header"],
                "scopes_supported": ["agents"],
                "resource_name": "Interlingua",
            })
        );
        assert_eq!(metadata.header("cache-control"), Some("max-age=300"));
        assert_eq!(metadata.header("access-control-allow-origin"), Some("*"));
    }

    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let named = format!("resource_metadata=\"https://gw.example.com{METADATA}/mcp\", scope=\"agents\"");
    for (headers, challenge) in [
        (vec![], format!("Bearer {named}")),
        (vec![("authorization", "Bearer nonsense")], format!("Bearer {named}, error=\"invalid_token\"")),
    ] {
        let refused = open(&gateway, &headers, &ping).await.response().await;
        assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some(&*challenge)));
        let error = refused.json();
        assert_eq!((&error["error"]["code"], &error["error"]["data"]["code"]), (&json!(-32600), &json!("AUTH_FAILED")));
        assert!(error.get("id").is_none());
    }
    for method in ["GET", "DELETE"] {
        let refused = gateway.open(method, "/mcp", &[("accept", "text/event-stream")], b"").await.response().await;
        assert_eq!((refused.status, refused.header("www-authenticate").is_some()), (401, true), "{method}");
    }
}

#[tokio::test]
async fn a_route_with_keys_has_no_metadata() {
    let folder = tempfile::tempdir().expect("a folder");
    write_keys(folder.path(), &["ada"]);
    let config = format!("{AUTH}[store]\nkind = \"memory\"\n{DEMO}{MCP}");
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    assert_eq!(gateway.get(&format!("{METADATA}/mcp")).await.status, 404);
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let refused = open(&gateway, &[], &ping).await.response().await;
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")));
    let served = open(&gateway.as_caller("ada"), &[], &ping).await.response().await;
    assert_eq!(served.status, 200, "{}", served.text());
}

#[tokio::test]
async fn pages_of_other_origins_are_refused_without_a_challenge() {
    let gateway = Gateway::start(&format!("{DEMO}{MCP}")).await;
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let refused = open(&gateway, &[("origin", "https://evil.example")], &ping).await.response().await;
    assert_eq!((refused.status, refused.header("www-authenticate")), (403, None));
    assert_eq!(refused.json()["error"]["code"], json!(-32600));
}
