//! Which of the four ways of speaking A2A a request is in: two generations, two bindings (sections 1 to 3).
//!
//! Not here: how each is written (`wire`) and what is asked for (`serve`).

use interlingua_core::{Fault, FaultKind, Request};
use serde::Deserialize;

use crate::errors::{self, Problem};

/// A generation of the protocol, as options and cards name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum Generation {
    /// 1.0
    #[serde(rename = "1.0")]
    V1,
    /// 0.3
    #[serde(rename = "0.3")]
    V03,
}

impl Generation {
    /// `major.minor`
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "1.0",
            Self::V03 => "0.3",
        }
    }
}

/// A binding of the protocol to HTTP, as options and cards name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum Binding {
    /// JSON-RPC 2.0 by POST.
    #[serde(rename = "JSONRPC")]
    JsonRpc,
    /// Resources and verbs.
    #[serde(rename = "HTTP+JSON")]
    Rest,
}

impl Binding {
    /// As cards name it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::JsonRpc => "JSONRPC",
            Self::Rest => "HTTP+JSON",
        }
    }
}

/// How objects are spelled: both bindings of 1.0 agree, those of 0.3 do not (section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    V1,
    V03,
    V03Rest,
}

/// A way of speaking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dialect {
    pub(crate) binding: Binding,
    pub(crate) generation: Generation,
}

impl Dialect {
    pub(crate) const fn form(self) -> Form {
        match (self.generation, self.binding) {
            (Generation::V1, _) => Form::V1,
            (Generation::V03, Binding::JsonRpc) => Form::V03,
            (Generation::V03, Binding::Rest) => Form::V03Rest,
        }
    }

    pub(crate) fn is_rpc(self) -> bool {
        self.binding == Binding::JsonRpc
    }

    pub(crate) fn is_old(self) -> bool {
        self.generation == Generation::V03
    }
}

/// The version a request asks for: header, else query; only `major.minor` counts; nothing means 0.3 (S).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    V1,
    V03,
    /// Nothing was said, which means 0.3.
    Unsaid,
    Other,
}

impl Asked {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        let header = request.header("a2a-version").map(str::trim).filter(|text| !text.is_empty());
        match header {
            Some(text) => Self::read(text),
            None => request.query("A2A-Version").map_or(Self::Unsaid, |text| Self::read(&text)),
        }
    }

    fn read(text: &str) -> Self {
        let mut numbers = text.trim().split('.');
        match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
            (Some(""), None, ..) => Self::Unsaid,
            (Some("1"), Some("0"), patch, None) if is_patch(patch) => Self::V1,
            (Some("0"), Some("3"), patch, None) if is_patch(patch) => Self::V03,
            _ => Self::Other,
        }
    }

    /// The generation it stands for; 1.0 where errors have to be told to somebody of an unknown version.
    pub(crate) const fn generation(self) -> Generation {
        match self {
            Self::V03 | Self::Unsaid => Generation::V03,
            Self::V1 | Self::Other => Generation::V1,
        }
    }
}

fn is_patch(patch: Option<&str>) -> bool {
    patch.is_none_or(|patch| !patch.is_empty() && patch.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What can be asked for (section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    Send,
    Stream,
    Get,
    List,
    Cancel,
    Subscribe,
    SetPush,
    GetPush,
    ListPush,
    DeletePush,
    ExtendedCard,
}

impl Operation {
    /// The names of the JSON-RPC methods, of 1.0 and 0.3.
    pub(crate) const METHODS: [(Self, &'static str, Option<&'static str>); 11] = [
        (Self::Send, "SendMessage", Some("message/send")),
        (Self::Stream, "SendStreamingMessage", Some("message/stream")),
        (Self::Get, "GetTask", Some("tasks/get")),
        (Self::List, "ListTasks", None),
        (Self::Cancel, "CancelTask", Some("tasks/cancel")),
        (Self::Subscribe, "SubscribeToTask", Some("tasks/resubscribe")),
        (Self::SetPush, "CreateTaskPushNotificationConfig", Some("tasks/pushNotificationConfig/set")),
        (Self::GetPush, "GetTaskPushNotificationConfig", Some("tasks/pushNotificationConfig/get")),
        (Self::ListPush, "ListTaskPushNotificationConfigs", Some("tasks/pushNotificationConfig/list")),
        (Self::DeletePush, "DeleteTaskPushNotificationConfig", Some("tasks/pushNotificationConfig/delete")),
        (Self::ExtendedCard, "GetExtendedAgentCard", Some("agent/getAuthenticatedExtendedCard")),
    ];

    /// Answered by a stream.
    pub(crate) const fn streams(self) -> bool {
        matches!(self, Self::Stream | Self::Subscribe)
    }
}

/// What a route serves, as far as choosing the dialect goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served<'a> {
    pub(crate) versions: &'a [Generation],
    /// Methods of 1.0 are served also to those who name no version.
    pub(crate) by_method: bool,
}

impl Served<'_> {
    /// The operation and the generation of a JSON-RPC method (section 3).
    pub(crate) fn method(self, method: &str, asked: Asked) -> Result<(Operation, Generation), Fault> {
        let new = Operation::METHODS.iter().find(|(_, name, _)| *name == method);
        let old = Operation::METHODS.iter().find(|(_, _, name)| *name == Some(method));
        let (operation, generation) = match (new, old) {
            (Some((operation, ..)), _) => (*operation, Generation::V1),
            (None, Some((operation, ..))) => (*operation, Generation::V03),
            (None, None) => {
                return Err(errors::fault(Problem::MethodNotFound, format!("'{method}'")).with_field("method"));
            }
        };
        if asked == Asked::Other {
            return Err(self.not_supported(None));
        }
        match (generation, asked) {
            (Generation::V1, Asked::Unsaid | Asked::V03) if !self.by_method => {
                // What is not served does not come with a header either.
                self.offered(Generation::V1)?;
                let message = "this method needs the header 'A2A-Version: 1.0'";
                return Err(self.not_supported(Some(message)));
            }
            (Generation::V03, Asked::V1) => {
                let name = new_name(operation);
                let message = format!("'{method}' is of version 0.3: in version 1.0 it is called '{name}'");
                return Err(errors::fault(Problem::MethodNotFound, message).with_field("method"));
            }
            _ => {}
        }
        self.offered(generation)?;
        Ok((operation, generation))
    }

    /// Judges a REST path of this generation (section 3).
    pub(crate) fn path(self, generation: Generation, asked: Asked) -> Result<(), Fault> {
        let fits = match generation {
            Generation::V1 => asked == Asked::V1 || (self.by_method && asked == Asked::Unsaid),
            Generation::V03 => matches!(asked, Asked::V03 | Asked::Unsaid),
        };
        self.offered(generation)?;
        if !fits {
            let message = match (generation, asked) {
                (_, Asked::Other) => None,
                (Generation::V1, _) => Some("this path needs the header 'A2A-Version: 1.0'"),
                (Generation::V03, _) => Some("paths below /v1 are of version 0.3: version 1.0 has them without it"),
            };
            return Err(self.not_supported(message));
        }
        Ok(())
    }

    fn offered(self, generation: Generation) -> Result<(), Fault> {
        if self.versions.contains(&generation) { Ok(()) } else { Err(self.not_supported(None)) }
    }

    fn not_supported(self, message: Option<&str>) -> Fault {
        let message = message.unwrap_or("the requested version is not served here").to_owned();
        errors::fault(Problem::VersionNotSupported, message)
    }
}

fn new_name(operation: Operation) -> &'static str {
    Operation::METHODS.iter().find(|(known, ..)| *known == operation).map_or("", |(_, name, _)| name)
}

/// A request body's media type, judged (section 2). `missing`: whether none will do.
pub(crate) fn accepts_media_type(request: &Request<'_>, binding: Binding, generation: Generation) -> Result<(), Fault> {
    let media = request.media_type();
    let fits = match media.as_str() {
        "" | "application/json" => true,
        "application/a2a+json" => (binding, generation) != (Binding::Rest, Generation::V03),
        other => binding == Binding::JsonRpc && other.ends_with("+json"),
    };
    if fits {
        return Ok(());
    }
    Err(Fault::new(FaultKind::UnsupportedMedia, format!("content type '{media}' is not read here")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Served<'_> = Served { versions: &[Generation::V1, Generation::V03], by_method: false };

    #[test]
    fn only_major_and_minor_count() {
        for (text, asked) in [
            ("1.0", Asked::V1),
            ("1.0.1", Asked::V1),
            (" 1.0 ", Asked::V1),
            ("0.3", Asked::V03),
            ("0.3.0", Asked::V03),
            ("", Asked::Unsaid),
            ("0.2", Asked::Other),
            ("1.7", Asked::Other),
            ("2.0", Asked::Other),
            ("1", Asked::Other),
            ("x", Asked::Other),
            ("1.0.x", Asked::Other),
            ("1.0.1.2", Asked::Other),
        ] {
            assert_eq!(Asked::read(text), asked, "{text}");
        }
    }

    #[test]
    fn every_row_of_the_table_of_dialects_holds() {
        let problem = |fault: Fault| Problem::of(&fault);
        for (method, asked, wanted) in [
            ("SendMessage", Asked::V1, Ok(Generation::V1)),
            ("SendMessage", Asked::Unsaid, Err(Problem::VersionNotSupported)),
            ("SendMessage", Asked::V03, Err(Problem::VersionNotSupported)),
            ("message/send", Asked::Unsaid, Ok(Generation::V03)),
            ("message/send", Asked::V03, Ok(Generation::V03)),
            ("message/send", Asked::V1, Err(Problem::MethodNotFound)),
            ("tasks/send", Asked::Unsaid, Err(Problem::MethodNotFound)),
            ("tasks/list", Asked::V03, Err(Problem::MethodNotFound)),
            ("x", Asked::Other, Err(Problem::MethodNotFound)),
            ("SendMessage", Asked::Other, Err(Problem::VersionNotSupported)),
            ("message/send", Asked::Other, Err(Problem::VersionNotSupported)),
        ] {
            let chosen = BOTH.method(method, asked).map(|(_, generation)| generation).map_err(problem);
            assert_eq!(chosen, wanted, "{method} {asked:?}");
        }
        let told = BOTH.method("message/send", Asked::V1).expect_err("of the other version").message;
        assert!(told.contains("'SendMessage'"), "{told}");
        let lenient = Served { by_method: true, ..BOTH };
        assert_eq!(lenient.method("GetTask", Asked::Unsaid).map(|(_, it)| it).map_err(problem), Ok(Generation::V1));
        let narrow = Served { versions: &[Generation::V1], by_method: false };
        assert_eq!(narrow.method("tasks/get", Asked::Unsaid).map_err(problem), Err(Problem::VersionNotSupported));
        for (path, asked, fits) in [
            (Generation::V1, Asked::V1, true),
            (Generation::V1, Asked::Unsaid, false),
            (Generation::V1, Asked::V03, false),
            (Generation::V1, Asked::Other, false),
            (Generation::V03, Asked::Unsaid, true),
            (Generation::V03, Asked::V03, true),
            (Generation::V03, Asked::V1, false),
            (Generation::V03, Asked::Other, false),
        ] {
            assert_eq!(BOTH.path(path, asked).is_ok(), fits, "{path:?} {asked:?}");
        }
    }
}
