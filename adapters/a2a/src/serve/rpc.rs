//! The JSON-RPC binding: decodes the envelope and the method (docs/protocols/a2a.md#reading-requests).

use interlingua_core::tree::{Kind, Node};
use interlingua_core::{Call, Fault, Json, Request};

use super::A2aExchange;
use super::params::Params;
use crate::dialect::{Binding, RequestedVersion};
use crate::dialect::{ServedVersions, check_media_type};
use crate::errors::{self, Problem};

fn invalid(message: &str) -> Fault {
    errors::fault(Problem::InvalidRequest, message)
}

impl A2aExchange {
    pub(super) fn decode_rpc(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let requested = RequestedVersion::from_request(request);
        self.writer.dialect.generation = requested.generation();
        check_media_type(request, Binding::JsonRpc, requested.generation())?;

        let body = Node::parse(request.body)?;
        match body.kind() {
            Kind::Object => {}
            Kind::Array => return Err(invalid("batches are not supported")),
            _ => return Err(invalid("the request must be a JSON object")),
        }

        let envelope = body.object().map_err(|_| invalid("the request must be a JSON object"))?;
        if let Some(id) = envelope.get("id") {
            self.writer.id = echoable_id(&id).ok_or_else(|| invalid("'id' must be a string, an integer or null"))?;
        }

        if !matches!(envelope.string("jsonrpc"), Ok(Some(version)) if version == "2.0") {
            return Err(invalid("'jsonrpc' must be '2.0'"));
        }

        let method = envelope.string("method").ok().flatten().ok_or_else(|| invalid("'method' must be a string"))?;

        let options = &self.route.options;
        let served = ServedVersions {
            versions: &options.versions,
            by_method: options.missing_version == crate::options::MissingVersion::ByMethod,
        };
        let (operation, generation) = served.resolve_method(&method, requested).inspect_err(|fault| {
            if Problem::from_fault(fault) == Problem::VersionNotSupported {
                self.writer.dialect.generation = crate::dialect::Generation::V1;
            }
            // Without a valid method it is unknown whether the client expects a stream.
            self.writer.operation = None;
        })?;

        self.writer.dialect.generation = generation;
        self.writer.operation = Some(operation);
        self.begin_operation(operation, Params::from_rpc(envelope.get("params"), operation), request)
    }
}

/// The request id, if its type can be echoed: a string or an integer.
fn echoable_id(node: &Node<'_>) -> Option<Json> {
    let fits = match node.kind() {
        Kind::String => node.string().is_ok(),
        Kind::Number => {
            let digits = node.text().strip_prefix('-').unwrap_or(node.text());
            digits.bytes().all(|byte| byte.is_ascii_digit())
        }
        _ => false,
    };
    fits.then(|| node.to_json())
}
