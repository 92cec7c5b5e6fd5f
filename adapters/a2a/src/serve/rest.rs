//! The REST binding: maps paths to operations and versions (docs/protocols/a2a.md#endpoints).

use interlingua_core::{Call, Fault, FaultKind, Method, Request};

use super::A2aExchange;
use super::params::Params;
use crate::dialect::{Binding, Generation, Operation, RequestedVersion};
use crate::dialect::{ServedVersions, check_media_type};
use crate::options::MissingVersion;

use Generation::{V1, V03};
use Method::{Delete, Get, Post};
use Operation as O;

/// All paths. The first match wins: static segments before variable ones, actions before their resource.
pub(crate) const REST: &[(Method, &str, Generation, Operation)] = &[
    (Post, "/v1/message:send", V03, O::Send),
    (Post, "/v1/message:stream", V03, O::Stream),
    (Get, "/v1/tasks", V03, O::List),
    (Post, "/v1/tasks/{id}:cancel", V03, O::Cancel),
    (Get, "/v1/tasks/{id}:subscribe", V03, O::Subscribe),
    (Post, "/v1/tasks/{id}:subscribe", V03, O::Subscribe),
    (Post, "/v1/tasks/{id}/pushNotificationConfigs", V03, O::SetPush),
    (Get, "/v1/tasks/{id}/pushNotificationConfigs", V03, O::ListPush),
    (Get, "/v1/tasks/{id}/pushNotificationConfigs/{config}", V03, O::GetPush),
    (Delete, "/v1/tasks/{id}/pushNotificationConfigs/{config}", V03, O::DeletePush),
    (Get, "/v1/tasks/{id}", V03, O::Get),
    (Get, "/v1/card", V03, O::ExtendedCard),
    (Get, "/agent/authenticatedExtendedCard", V03, O::ExtendedCard),
    (Post, "/message:send", V1, O::Send),
    (Post, "/message:stream", V1, O::Stream),
    (Get, "/tasks", V1, O::List),
    (Post, "/tasks/{id}:cancel", V1, O::Cancel),
    (Get, "/tasks/{id}:subscribe", V1, O::Subscribe),
    (Post, "/tasks/{id}:subscribe", V1, O::Subscribe),
    (Post, "/tasks/{id}/pushNotificationConfigs", V1, O::SetPush),
    (Get, "/tasks/{id}/pushNotificationConfigs", V1, O::ListPush),
    (Get, "/tasks/{id}/pushNotificationConfigs/{config}", V1, O::GetPush),
    (Delete, "/tasks/{id}/pushNotificationConfigs/{config}", V1, O::DeletePush),
    (Get, "/tasks/{id}", V1, O::Get),
    (Get, "/extendedAgentCard", V1, O::ExtendedCard),
    (Post, "/{tenant}/message:send", V1, O::Send),
    (Post, "/{tenant}/message:stream", V1, O::Stream),
    (Get, "/{tenant}/tasks", V1, O::List),
    (Post, "/{tenant}/tasks/{id}:cancel", V1, O::Cancel),
    (Get, "/{tenant}/tasks/{id}:subscribe", V1, O::Subscribe),
    (Post, "/{tenant}/tasks/{id}:subscribe", V1, O::Subscribe),
    (Post, "/{tenant}/tasks/{id}/pushNotificationConfigs", V1, O::SetPush),
    (Get, "/{tenant}/tasks/{id}/pushNotificationConfigs", V1, O::ListPush),
    (Get, "/{tenant}/tasks/{id}/pushNotificationConfigs/{config}", V1, O::GetPush),
    (Delete, "/{tenant}/tasks/{id}/pushNotificationConfigs/{config}", V1, O::DeletePush),
    (Get, "/{tenant}/tasks/{id}", V1, O::Get),
    (Get, "/{tenant}/extendedAgentCard", V1, O::ExtendedCard),
];

impl A2aExchange {
    pub(super) fn decode_rest(
        &mut self,
        generation: Generation,
        operation: Operation,
        request: &Request<'_>,
    ) -> Result<Call, Fault> {
        if request.param("tenant") == "v1" {
            // No tenant may have this name, so this is an unknown path of 0.3.
            self.writer.dialect.generation = V03;
            return Err(Fault::new(FaultKind::NoSuchPath, "nothing answers on this path"));
        }

        let options = &self.route.options;
        let served = ServedVersions {
            versions: &options.versions,
            by_method: options.missing_version == MissingVersion::ByMethod,
        };
        served
            .check_path(generation, RequestedVersion::from_request(request))
            .inspect_err(|_| self.writer.dialect.generation = V1)?;

        if request.method == "POST" {
            check_media_type(request, Binding::Rest, generation)?;
        }
        self.begin_operation(operation, Params::from_rest(request), request)
    }
}
