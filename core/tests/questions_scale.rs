//! The time for the questions of a turn is linear in their number: four times as many may take up to ten times as long.
//! Quadratic code would take sixteen times as long.

use std::time::Instant;

use interlingua_core::answer::{ALL_DECISIONS, AnswerPolicy, AskContext, Outcome, Waiting};
use interlingua_core::capability::ToolOutputs;
use interlingua_core::model::ToolCall;
use interlingua_core::pending::Pending;
use interlingua_core::{Json, RunId};

fn items(count: usize) -> Vec<Pending> {
    let one = |number: usize| {
        if number.is_multiple_of(2) {
            let data = format!(r#"{{"id":"item-{number}","name":"send_mail","arguments":"{{}}"}}"#);
            return Pending::parse(&Json::parse(&data).expect("JSON")).expect("an item");
        }
        Pending::tool(ToolCall { call_id: format!("item-{number}"), name: "look".into(), ..ToolCall::default() })
    };
    (0..count).map(one).collect()
}

fn timed(items: Vec<Pending>) -> f64 {
    let asked = AskContext {
        run: RunId(uuid::Uuid::from_u128(7)),
        now: 1_000,
        terms: AnswerPolicy::default(),
        tools: &[],
        decisions: ALL_DECISIONS,
        tool_outputs: ToolOutputs::Each,
    };
    let mut waiting = Waiting::default();
    let answers = waiting.take(Vec::new(), Vec::new(), AnswerPolicy::default(), 1_000);
    let Outcome::Send { taken, .. } = answers else { panic!("nothing is open: {answers:?}") };
    let sent = waiting.confirm_sent(taken);
    let start = Instant::now();
    waiting.ask(sent, items, &asked);
    let took = start.elapsed().as_secs_f64();
    assert_eq!(waiting.open().count(), 256, "a bounded number stays open");
    took
}

#[test]
fn an_agent_that_asks_without_end_costs_linear_time() {
    // Other processes can slow down a measurement, so the best of five counts.
    let mut ratios = Vec::new();
    loop {
        let (once, four_times) = (timed(items(20_000)), timed(items(80_000)));
        let ratio = four_times / once.max(1e-4);
        if ratio < 10.0 {
            return;
        }
        ratios.push(ratio);
        assert!(ratios.len() < 5, "four times as many questions take {ratios:.1?} times as long");
    }
}
