//! The parameters of a send: its message, and its `configuration`.

use interlingua_core::tree::Object;
use interlingua_core::{Fault, Json, Request};
use serde::Serialize;

use super::super::params::{Params, history_length};
use super::super::push::Config;
use crate::Route;
use crate::dialect::{Dialect, WireFormat};
use crate::wire::Message;
use crate::wire::read::{self, Faults};

/// Valid parameters.
pub(super) struct SendParams {
    pub(super) message: Message<'static>,
    pub(super) metadata: Option<Json>,
    pub(super) settings: Settings,
}

impl SendParams {
    /// # Errors
    /// All errors of the parameters at once.
    pub(super) fn read(
        params: &Params<'_>,
        route: &Route,
        dialect: Dialect,
        request: &Request<'_>,
    ) -> Result<Self, Fault> {
        let mut faults = Faults::default();
        let object = &params.object;

        let message = match read::field(object, "message") {
            Some(node) => read::message(&node, dialect.wire_format(), &mut faults),
            None => {
                faults.add(read::missing(object, "message"));
                None
            }
        };
        let metadata = faults.record(read::json_object(object, "metadata")).flatten();

        let settings = match faults.record(read::field(object, "configuration").map(|node| node.object()).transpose()) {
            Some(Some(object)) => Settings::read(&object, dialect, request, &mut faults),
            // Without a configuration every dialect blocks.
            _ => Some(Settings::default()),
        };
        if let Some(config) = settings.as_ref().and_then(|settings| settings.push.as_ref()) {
            config.check(route, &mut faults);
        }

        if let Some(context) = message.as_ref().and_then(|message| message.context.as_deref())
            && (context.chars().count() > 256 || context.chars().any(char::is_control))
        {
            let message = "must have at most 256 characters, and no control characters";
            faults.add(Fault::invalid("message.contextId", message));
        }

        faults.check()?;
        let (Some(message), Some(settings)) = (message, settings) else {
            return Err(Fault::invalid("message", "is invalid"));
        };
        Ok(Self { message, metadata, settings })
    }
}

/// `configuration`
#[derive(Default)]
pub(super) struct Settings {
    pub(super) background: bool,
    pub(super) history: Option<usize>,
    pub(super) push: Option<Config>,
    pub(super) output_modes: Vec<String>,
}

/// Request data for the agent in addition to the message.
#[derive(Serialize)]
pub(super) struct RequestExtras<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Json>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) accepted_output_modes: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) extensions: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tenant: Option<&'a str>,
}

/// Names of the push config in `configuration`, one per dialect.
const PUSH: [&str; 3] = ["taskPushNotificationConfig", "pushNotificationConfig", "pushNotification"];

/// True if a send includes a push config, valid or not.
pub(in super::super) fn wants_push(params: &Params<'_>) -> bool {
    let object = read::field(&params.object, "configuration").and_then(|node| node.object().ok());
    object.is_some_and(|object| PUSH.iter().any(|name| read::field(&object, name).is_some()))
}

impl Settings {
    fn read(object: &Object<'_>, dialect: Dialect, request: &Request<'_>, faults: &mut Faults) -> Option<Self> {
        let now = faults.record(read::boolean(object, "returnImmediately"));
        let blocking = faults.record(read::boolean(object, "blocking"));
        let push = PUSH.iter().find_map(|name| read::field(object, name));
        let push = push.map(|node| Config::read(&node, dialect, request, faults));

        let length = read::integer(object, "historyLength");
        let length = length.and_then(|length| history_length(length, &object.path_of("historyLength")));
        let length = faults.record(length);

        let output_modes = faults.record(read::strings(object, "acceptedOutputModes"));
        // REST 0.3 cannot distinguish false from absent; over JSON-RPC absent means blocking
        // (docs/protocols/a2a.md#waiting-for-the-answer).
        let background = match (dialect.wire_format(), now?, blocking?) {
            (_, Some(now), None) => now,
            (WireFormat::V1, now, blocking) => now.unwrap_or(blocking == Some(false)),
            (WireFormat::V03, _, blocking) => blocking == Some(false),
            (WireFormat::V03Rest, _, blocking) => !blocking.unwrap_or(false),
        };

        let push = match push {
            Some(read) => Some(read?),
            None => None,
        };
        Some(Self { background, history: length?, push, output_modes: output_modes? })
    }
}
