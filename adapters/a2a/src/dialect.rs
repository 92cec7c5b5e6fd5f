//! The four A2A dialects: two protocol versions times two bindings, and how a request selects one
//! (docs/protocols/a2a.md#version-and-binding-of-a-request).
//!
//! Not here: encoding (`wire`) and operations (`serve`).

use interlingua_core::{Fault, FaultKind, Request};

use crate::errors::{self, Problem};
pub use crate::generation::{Binding, Generation};
pub(crate) use crate::generation::{Dialect, WireFormat};

/// The version a request names: in the header, else in the query. Only `major.minor` counts (S).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestedVersion {
    V1,
    V03,
    /// Not named, which means 0.3.
    Missing,
    Other,
}

impl RequestedVersion {
    pub(crate) fn from_request(request: &Request<'_>) -> Self {
        let header = request.header("a2a-version").map(str::trim).filter(|text| !text.is_empty());
        match header {
            Some(text) => Self::parse(text),
            None => request.query("A2A-Version").map_or(Self::Missing, |text| Self::parse(&text)),
        }
    }

    fn parse(text: &str) -> Self {
        let mut numbers = text.trim().split('.');
        match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
            (Some(""), None, ..) => Self::Missing,
            (Some("1"), Some("0"), patch, None) if is_patch(patch) => Self::V1,
            (Some("0"), Some("3"), patch, None) if is_patch(patch) => Self::V03,
            _ => Self::Other,
        }
    }

    /// The version to respond in. Errors for an unknown version are sent in 1.0.
    pub(crate) const fn generation(self) -> Generation {
        match self {
            Self::V03 | Self::Missing => Generation::V03,
            Self::V1 | Self::Other => Generation::V1,
        }
    }
}

fn is_patch(patch: Option<&str>) -> bool {
    patch.is_none_or(|patch| !patch.is_empty() && patch.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The operations of the protocol (docs/protocols/a2a.md#operations).
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
    /// JSON-RPC method names in 1.0 and 0.3.
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

    /// True if the response is a stream.
    pub(crate) const fn is_streaming(self) -> bool {
        matches!(self, Self::Stream | Self::Subscribe)
    }
}

/// The names of all JSON-RPC methods, each with the version it is of.
pub fn rpc_methods() -> impl Iterator<Item = (&'static str, Generation)> {
    Operation::METHODS.iter().flat_map(|(_, new, old)| {
        let old = old.map(|name| (name, Generation::V03));
        [(*new, Generation::V1)].into_iter().chain(old)
    })
}

/// The versions a route serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServedVersions<'a> {
    pub(crate) versions: &'a [Generation],
    /// True if 1.0 methods are accepted without a version header.
    pub(crate) by_method: bool,
}

impl ServedVersions<'_> {
    /// Finds the operation and version of a JSON-RPC method (docs/protocols/a2a.md#version-and-binding-of-a-request).
    pub(crate) fn resolve_method(
        self,
        method: &str,
        requested: RequestedVersion,
    ) -> Result<(Operation, Generation), Fault> {
        let new = Operation::METHODS.iter().find(|(_, name, _)| *name == method);
        let old = Operation::METHODS.iter().find(|(_, _, name)| *name == Some(method));
        let (operation, generation) = match (new, old) {
            (Some((operation, ..)), _) => (*operation, Generation::V1),
            (None, Some((operation, ..))) => (*operation, Generation::V03),
            (None, None) => {
                return Err(errors::fault(Problem::MethodNotFound, format!("'{method}'")).with_field("method"));
            }
        };

        if requested == RequestedVersion::Other {
            return Err(self.not_supported(None));
        }

        match (generation, requested) {
            (Generation::V1, RequestedVersion::Missing | RequestedVersion::V03) if !self.by_method => {
                // Asking for the header would not help if the version is not served at all.
                self.check_served(Generation::V1)?;
                let message = "this method needs the header 'A2A-Version: 1.0'";
                return Err(self.not_supported(Some(message)));
            }
            (Generation::V03, RequestedVersion::V1) => {
                let name = v1_name(operation);
                let message = format!("'{method}' is a method of version 0.3: in version 1.0 it is called '{name}'");
                return Err(errors::fault(Problem::MethodNotFound, message).with_field("method"));
            }
            _ => {}
        }

        self.check_served(generation)?;
        Ok((operation, generation))
    }

    /// Checks that a REST path of this version may be used with the requested version
    /// (docs/protocols/a2a.md#version-and-binding-of-a-request).
    pub(crate) fn check_path(self, generation: Generation, requested: RequestedVersion) -> Result<(), Fault> {
        let fits = match generation {
            Generation::V1 => {
                requested == RequestedVersion::V1 || (self.by_method && requested == RequestedVersion::Missing)
            }
            Generation::V03 => matches!(requested, RequestedVersion::V03 | RequestedVersion::Missing),
        };

        self.check_served(generation)?;
        if !fits {
            let message = match (generation, requested) {
                (_, RequestedVersion::Other) => None,
                (Generation::V1, _) => Some("this path needs the header 'A2A-Version: 1.0'"),
                (Generation::V03, _) => {
                    Some("paths below /v1 belong to version 0.3: in version 1.0 they have no /v1 prefix")
                }
            };
            return Err(self.not_supported(message));
        }
        Ok(())
    }

    fn check_served(self, generation: Generation) -> Result<(), Fault> {
        if self.versions.contains(&generation) { Ok(()) } else { Err(self.not_supported(None)) }
    }

    fn not_supported(self, message: Option<&str>) -> Fault {
        let message = message.unwrap_or("the requested version is not served").to_owned();
        errors::fault(Problem::VersionNotSupported, message)
    }
}

fn v1_name(operation: Operation) -> &'static str {
    Operation::METHODS.iter().find(|(known, ..)| *known == operation).map_or("", |(_, name, _)| name)
}

/// Checks the media type of a request body (docs/protocols/a2a.md#media-types). A missing type is accepted.
pub(crate) fn check_media_type(request: &Request<'_>, binding: Binding, generation: Generation) -> Result<(), Fault> {
    let media = request.media_type();
    let fits = match media.as_str() {
        "" | "application/json" => true,
        "application/a2a+json" => (binding, generation) != (Binding::Rest, Generation::V03),
        other => binding == Binding::JsonRpc && other.ends_with("+json"),
    };

    if fits {
        return Ok(());
    }
    Err(Fault::new(FaultKind::UnsupportedMedia, format!("content type '{media}' is not supported")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: ServedVersions<'_> = ServedVersions { versions: &[Generation::V1, Generation::V03], by_method: false };

    #[test]
    fn only_major_and_minor_select_the_version() {
        for (text, requested) in [
            ("1.0", RequestedVersion::V1),
            ("1.0.1", RequestedVersion::V1),
            (" 1.0 ", RequestedVersion::V1),
            ("0.3", RequestedVersion::V03),
            ("0.3.0", RequestedVersion::V03),
            ("", RequestedVersion::Missing),
            ("0.2", RequestedVersion::Other),
            ("1.7", RequestedVersion::Other),
            ("2.0", RequestedVersion::Other),
            ("1", RequestedVersion::Other),
            ("x", RequestedVersion::Other),
            ("1.0.x", RequestedVersion::Other),
            ("1.0.1.2", RequestedVersion::Other),
        ] {
            assert_eq!(RequestedVersion::parse(text), requested, "{text}");
        }
    }

    #[test]
    fn a_method_and_a_version_select_the_dialect() {
        let problem = |fault: Fault| Problem::from_fault(&fault);
        for (method, requested, expected) in [
            ("SendMessage", RequestedVersion::V1, Ok(Generation::V1)),
            ("SendMessage", RequestedVersion::Missing, Err(Problem::VersionNotSupported)),
            ("SendMessage", RequestedVersion::V03, Err(Problem::VersionNotSupported)),
            ("message/send", RequestedVersion::Missing, Ok(Generation::V03)),
            ("message/send", RequestedVersion::V03, Ok(Generation::V03)),
            ("message/send", RequestedVersion::V1, Err(Problem::MethodNotFound)),
            ("tasks/send", RequestedVersion::Missing, Err(Problem::MethodNotFound)),
            ("tasks/list", RequestedVersion::V03, Err(Problem::MethodNotFound)),
            ("x", RequestedVersion::Other, Err(Problem::MethodNotFound)),
            ("SendMessage", RequestedVersion::Other, Err(Problem::VersionNotSupported)),
            ("message/send", RequestedVersion::Other, Err(Problem::VersionNotSupported)),
        ] {
            let chosen = BOTH.resolve_method(method, requested).map(|(_, generation)| generation).map_err(problem);
            assert_eq!(chosen, expected, "{method} {requested:?}");
        }
        let message = BOTH
            .resolve_method("message/send", RequestedVersion::V1)
            .expect_err("a method of the other version")
            .message;
        assert!(message.contains("'SendMessage'"), "{message}");

        let lenient = ServedVersions { by_method: true, ..BOTH };
        assert_eq!(
            lenient.resolve_method("GetTask", RequestedVersion::Missing).map(|(_, it)| it).map_err(problem),
            Ok(Generation::V1)
        );

        let narrow = ServedVersions { versions: &[Generation::V1], by_method: false };
        assert_eq!(
            narrow.resolve_method("tasks/get", RequestedVersion::Missing).map_err(problem),
            Err(Problem::VersionNotSupported)
        );
        for (path, requested, fits) in [
            (Generation::V1, RequestedVersion::V1, true),
            (Generation::V1, RequestedVersion::Missing, false),
            (Generation::V1, RequestedVersion::V03, false),
            (Generation::V1, RequestedVersion::Other, false),
            (Generation::V03, RequestedVersion::Missing, true),
            (Generation::V03, RequestedVersion::V03, true),
            (Generation::V03, RequestedVersion::V1, false),
            (Generation::V03, RequestedVersion::Other, false),
        ] {
            assert_eq!(BOTH.check_path(path, requested).is_ok(), fits, "{path:?} {requested:?}");
        }
    }
}
