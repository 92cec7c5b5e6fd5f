//! Clients that send all of their conversation, beside clients of every other protocol: what one is asked, the other can
//! answer.
//!
//! Not here: how conversations are found again (`tests/behaviour/resent.rs`), and pairs of the other protocols
//! (`tests/behaviour/pairs.rs`).

use crate::support::gateway::{DEMO, Gateway};
use crate::support::http::Response;
use crate::support::pairs::{ALL_DECISIONS, ALL_PROTOCOLS, Decision, ROUTES, texts_of};
use crate::support::stateless::{ALL_STATELESS, STATELESS_ROUTES};

async fn start() -> Gateway {
    Gateway::with_config(&format!("[store]\nkind = \"memory\"\n{DEMO}{ROUTES}{STATELESS_ROUTES}")).await
}

fn expect_reply(what: &str, answer: &Response, decision: Decision) {
    assert_eq!(answer.status, 200, "{what}: {}", answer.text());
    let shown = texts_of(answer.text()).replace("\\\"", "\"");
    assert!(shown.contains(decision.expected_text()), "{what}: {}", answer.text());
}

#[tokio::test]
async fn what_is_asked_over_another_protocol_is_answered_by_a_client_that_sends_everything() {
    let gateway = start().await;
    for asker in ALL_PROTOCOLS {
        for answerer in ALL_STATELESS {
            for decision in ALL_DECISIONS {
                let what = format!("{asker:?} asks, {answerer:?} answers {decision:?}");
                let interrupt =
                    asker.ask(&gateway, &format!("{asker:?}-{answerer:?}-{decision:?}"), decision.demo_command()).await;
                expect_reply(&what, &answerer.answer(&gateway, &interrupt, decision).await, decision);
            }
        }
    }
}

#[tokio::test]
async fn what_a_client_that_sends_everything_is_asked_is_answered_over_any_protocol() {
    let gateway = start().await;
    for asker in ALL_STATELESS {
        for answerer in ALL_PROTOCOLS {
            for decision in ALL_DECISIONS {
                let what = format!("{asker:?} asks, {answerer:?} answers {decision:?}");
                let interrupt =
                    asker.ask(&gateway, &format!("{asker:?}-{answerer:?}-{decision:?}"), decision.demo_command()).await;
                let Some(answer) = answerer.answer(&gateway, &interrupt, decision).await else { continue };
                expect_reply(&what, &answer, decision);
            }
        }

        for answerer in ALL_STATELESS {
            for decision in ALL_DECISIONS {
                let what = format!("{asker:?} asks, {answerer:?} answers {decision:?}");
                let interrupt =
                    asker.ask(&gateway, &format!("{asker:?}-{answerer:?}-{decision:?}"), decision.demo_command()).await;
                expect_reply(&what, &answerer.answer(&gateway, &interrupt, decision).await, decision);
            }
        }
    }
}

#[tokio::test]
async fn an_answer_is_given_once() {
    let gateway = start().await;
    for answerer in ALL_STATELESS {
        let interrupt = answerer.ask(&gateway, &format!("{answerer:?}"), "approval").await;
        let first = answerer.answer(&gateway, &interrupt, Decision::Accept).await;
        expect_reply("the first answer", &first, Decision::Accept);
        let second = answerer.answer(&gateway, &interrupt, Decision::Accept).await;
        assert!(!second.text().contains("The mail was sent"), "{answerer:?}: {}", second.text());
    }
}
