//! Subscriptions to lists and to tasks.

use interlingua_core::model::MessageType;
use interlingua_core::run::Record;
use interlingua_core::{End, Target};
use interlingua_core_testkit::{NOW, RUN, RunBuilder, TestRun};

use super::*;
use crate::revision::Revision;

const TASKS: ClientAbilities = ClientAbilities { modes: Modes { form: true, url: false }, tasks: true };

fn decode(notifications: Value, client: ClientAbilities, options: &Options) -> Result<(Subscription, Call), RpcError> {
    let params = Params::from_iter([("notifications".to_owned(), notifications)]);
    Subscription::decode(RpcId::Number(7), &params, client, options, NOW)
}

fn context(options: &Options) -> ResultContext<'_> {
    ResultContext { options, revision: Revision::July2026, resources: true }
}

fn methods(notices: &[Value]) -> Vec<&str> {
    notices.iter().map(|notice| notice["method"].as_str().expect("a method")).collect()
}

/// Replies with a run to the call, until the subscription returns to its notices.
fn look(subscription: &mut Subscription, mut call: Call, record: Option<&Record>) -> Vec<Value> {
    let options = Options::default();
    let mut out = Vec::new();
    while !matches!(call, Call::Listen(_)) {
        let run = record.map(TestRun::new);
        let reply = match (&call, &run) {
            (Call::Fetch(Target::Run(RUN)), Some(run)) => Reply::Run(run.view()),
            (Call::Fetch(_), _) => {
                call = subscription.on_not_found().expect("it looks at tasks");
                continue;
            }
            (Call::Document(_), _) => Reply::Documents(&[]),
            (Call::Nothing, _) => Reply::Done,
            (other, _) => panic!("{other:?}"),
        };
        call = subscription.reply(reply, &context(&options), &mut out).expect("a reply that matches");
    }
    out
}

#[test]
fn the_honored_part_is_acknowledged_and_nothing_else_is_sent() {
    let wanted = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": false,
        "resourceSubscriptions": ["interlingua://agents/a"], "other": true});
    let (mut subscription, call) = decode(wanted, TASKS, &Options::default()).expect("a subscription");
    assert!(matches!(call, Call::Listen(Listen { session: None, agents: true })));
    assert_eq!(subscription.wake_at(), None);

    let mut out = Vec::new();
    subscription.on_notice(Notice::Begin, &mut out);
    let meta = json!({ SUBSCRIPTION: 7 });
    assert_eq!(
        out,
        [json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
            "params": {"notifications": {"toolsListChanged": true, "promptsListChanged": true}, "_meta": meta}})]
    );
    out.clear();
    subscription.on_notice(Notice::Begin, &mut out);
    assert!(out.is_empty(), "once");
    subscription.on_notice(Notice::Agents, &mut out);
    assert_eq!(methods(&out), ["notifications/tools/list_changed", "notifications/prompts/list_changed"]);
    assert!(out.iter().all(|notice| notice["params"]["_meta"] == meta));
    assert_eq!(subscription.result(), json!({"resultType": "complete", "_meta": meta}));
}

#[test]
fn lists_that_are_switched_off_are_not_honored() {
    let options = Options { prompts: false, resources: false, ..Options::default() };
    let wanted = json!({"promptsListChanged": true, "resourcesListChanged": true});
    let (mut subscription, call) = decode(wanted, TASKS, &options).expect("a subscription");
    assert!(matches!(call, Call::Listen(Listen { session: None, agents: false })));
    let mut out = Vec::new();
    subscription.on_notice(Notice::Begin, &mut out);
    assert_eq!(out[0]["params"]["notifications"], json!({}));
    assert_eq!(methods(&list_notices(&options)), ["notifications/tools/list_changed"]);
    assert_eq!(list_notices(&Options::default()).len(), 3);
}

#[test]
fn tasks_need_the_extension_and_a_list_of_texts() {
    let code = |notifications: Value, client| {
        decode(notifications, client, &Options::default()).err().map(|error| (error.status, error.code))
    };
    let none = ClientAbilities::default();
    assert_eq!(code(json!({"taskIds": [RUN.to_string()]}), none), Some((400, -32021)));
    assert_eq!(code(json!({"taskIds": []}), none), None);
    let many: Vec<String> = (0..65).map(|_| RUN.to_string()).collect();
    for wrong in [json!({"taskIds": "x"}), json!({"taskIds": [7]}), json!({ "taskIds": many }), json!([]), Value::Null]
    {
        assert_eq!(code(wrong.clone(), TASKS), Some((200, -32602)), "{wrong}");
    }
}

#[test]
fn changes_of_tasks_are_noticed_until_they_end() {
    let mut run = RunBuilder::begin();
    let other = "00000000-0000-0000-0000-0000000000aa";
    let wanted = json!({"taskIds": [RUN.to_string(), other, "x", RUN.to_string()]});
    let (mut subscription, call) = decode(wanted, TASKS, &Options::default()).expect("a subscription");
    assert!(look(&mut subscription, call, Some(&run.record)).is_empty(), "nothing before the acknowledgement");
    let mut out = Vec::new();
    subscription.on_notice(Notice::Begin, &mut out);
    assert_eq!(methods(&out), ["notifications/subscriptions/acknowledged", "notifications/tasks"]);
    assert_eq!(out[0]["params"]["notifications"], json!({"taskIds": [RUN.to_string()]}), "the other is not there");
    assert_eq!(
        (&out[1]["params"]["taskId"], &out[1]["params"]["status"]),
        (&json!(RUN.to_string()), &json!("working"))
    );
    assert_eq!(out[1]["params"]["_meta"], json!({ SUBSCRIPTION: 7 }));

    let mut now = NOW + 1000;
    assert_eq!(subscription.wake_at(), Some(now));
    assert!(!subscription.on_time(now - 1) && subscription.on_time(now));
    let call = subscription.next_call();
    assert_eq!(subscription.wake_at(), None, "not while it looks");
    assert!(look(&mut subscription, call, Some(&run.record)).is_empty(), "no change");
    assert_eq!(subscription.wake_at(), Some(now + 2000), "later");

    run.say(MessageType::Message, &["Hello"]);
    now += 2000;
    assert!(subscription.on_time(now));
    let call = subscription.next_call();
    let changed = look(&mut subscription, call, Some(&run.record));
    assert_eq!((changed.len(), &changed[0]["params"]["statusMessage"]), (1, &json!("Hello")));
    assert_eq!(subscription.wake_at(), Some(now + 1000), "sooner again");

    let record = run.finish(End::Completed);
    assert!(subscription.on_time(now + 1000));
    let call = subscription.next_call();
    let ended = look(&mut subscription, call, Some(&record));
    assert_eq!(
        (&ended[0]["params"]["status"], &ended[0]["params"]["result"]["isError"]),
        (&json!("completed"), &json!(false))
    );
    assert_eq!(subscription.wake_at(), None, "it cannot change any longer");
}

#[test]
fn a_deleted_task_is_forgotten() {
    let run = RunBuilder::begin();
    let (mut subscription, call) =
        decode(json!({"taskIds": [RUN.to_string()]}), TASKS, &Options::default()).expect("a subscription");
    look(&mut subscription, call, Some(&run.record));
    subscription.on_notice(Notice::Begin, &mut Vec::new());
    assert!(subscription.on_time(NOW + 1000));
    let call = subscription.next_call();
    assert!(look(&mut subscription, call, None).is_empty());
    assert_eq!(subscription.wake_at(), None);
}
