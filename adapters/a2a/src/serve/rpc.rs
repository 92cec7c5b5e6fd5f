//! The JSON-RPC binding: the envelope, and the method in it (sections 3 and 7).

use interlingua_core::tree::{Kind, Node};
use interlingua_core::{Call, Fault, Json, Request};

use super::Serve;
use super::params::Params;
use crate::dialect::{Asked, Binding, Served, accepts_media_type};
use crate::errors::{self, Problem};

fn invalid(message: &str) -> Fault {
    errors::fault(Problem::InvalidRequest, message)
}

impl Serve {
    pub(super) fn decode_rpc(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let asked = Asked::of(request);
        self.write.dialect.generation = asked.generation();
        accepts_media_type(request, Binding::JsonRpc, asked.generation())?;
        let body = Node::parse(request.body)?;
        match body.kind() {
            Kind::Object => {}
            Kind::Array => return Err(invalid("batches are not supported")),
            _ => return Err(invalid("the request must be a JSON object")),
        }
        let envelope = body.object().map_err(|_| invalid("the request must be a JSON object"))?;
        if let Some(id) = envelope.get("id") {
            self.write.id = id_of(&id).ok_or_else(|| invalid("'id' must be a string, an integer or null"))?;
        }
        if !matches!(envelope.string("jsonrpc"), Ok(Some(version)) if version == "2.0") {
            return Err(invalid("'jsonrpc' must be '2.0'"));
        }
        let method = envelope.string("method").ok().flatten().ok_or_else(|| invalid("'method' must be a string"))?;
        let options = &self.route.options;
        let served = Served {
            versions: &options.versions,
            by_method: options.missing_version == crate::options::MissingVersion::ByMethod,
        };
        let (operation, generation) = served.method(&method, asked).inspect_err(|fault| {
            if Problem::of(fault) == Problem::VersionNotSupported {
                self.write.dialect.generation = crate::dialect::Generation::V1;
            }
            // Clients of 0.3 want errors of streams as streams, whatever is wrong.
            self.write.operation = None;
        })?;
        self.write.dialect.generation = generation;
        self.write.operation = Some(operation);
        self.begin_operation(operation, Params::rpc(envelope.get("params"), operation), request)
    }
}

/// An id that can be echoed: its JSON type counts.
fn id_of(node: &Node<'_>) -> Option<Json> {
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
