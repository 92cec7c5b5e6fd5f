//! The reported losses of a stream (docs/protocols/ag-ui.md#what-is-lost).

use interlingua_core::End;
use interlingua_core::model::{Body, Content, MessageType};
use interlingua_core_testkit::{RunBuilder, TestRun, laws};

use super::support::{hello, info, started};

const URL: &str = "https://a.example/p.png";
const INLINE: &str = "data:image/png;base64,AAAA";

/// The reported losses of a message with tool results and a picture.
fn reported(kind: MessageType, results: usize, url: &str, media: &str, version: Option<&str>) -> Vec<String> {
    let mut run = RunBuilder::begin();
    let call =
        if kind == MessageType::FunctionCallOutput { MessageType::FunctionCall } else { MessageType::PluginCall };
    for result in 0..results {
        run.call(call.clone(), &format!("c{result}"), "draw", &["{}"]);
    }
    let output = run.message(kind);
    for result in 0..results {
        run.json(output, &format!(r#"{{"call_id":"c{result}","output":"drawn"}}"#));
    }
    run.value(output, Content::new(Body::Image(Some(url.to_owned()))));
    run.end(output);
    let record = run.finish(End::Completed);

    let (mut exchange, run) = started(&format!(r#"{{"media":"{media}"}}"#), &hello(version));
    laws::encode(exchange.as_mut(), TestRun::with_info(&record, info(&record, run.labels)).view());
    exchange.losses().iter().map(|loss| format!("{:?} {loss}", loss.change)).collect()
}

#[test]
fn media_of_tool_results_are_reported_as_the_client_receives_them() {
    let of = |results, url, media, version| reported(MessageType::PluginCallOutput, results, url, media, version);
    for media in ["both", "custom"] {
        assert_eq!(of(1, URL, media, Some("1.0")), ["Changed agent_output (sent as a part)"]);
        assert_eq!(of(1, URL, media, None), ["Changed agent_output (sent as a custom event)"]);
        assert_eq!(of(2, URL, media, Some("1.0")), ["Changed agent_output (sent as a custom event)"]);
    }
    assert_eq!(of(1, URL, "link", None), ["Changed agent_output (shown as a link in the text)"]);
    assert_eq!(of(1, INLINE, "link", None), ["Lost agent_output (media without a URL have no place in the text)"]);
    assert_eq!(of(2, URL, "link", None), ["Lost agent_output (media beside several results belong to none)"]);
    assert_eq!(of(1, URL, "drop", Some("1.0")), ["Lost agent_output (hidden by the route's option media)"]);
}

#[test]
fn media_of_the_clients_own_results_are_not_hidden() {
    let of = |version| reported(MessageType::FunctionCallOutput, 1, URL, "drop", version);
    assert_eq!(of(Some("1.0")), ["Changed agent_output (sent as a part)"]);
    assert_eq!(of(None), ["Changed agent_output (sent as a custom event)"]);
}

#[test]
fn media_of_messages_are_reported_as_before() {
    let of = |media| reported(MessageType::Message, 0, URL, media, Some("1.0"));
    assert_eq!(of("both"), ["Changed image_out (sent as a custom event)"]);
    assert_eq!(of("link"), ["Changed image_out (shown as a link in the text)"]);
    assert_eq!(of("drop"), ["Lost image_out (hidden by the route's option media)"]);
}
