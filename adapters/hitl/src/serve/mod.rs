//! The endpoints, one file each, with their errors and the names of a user's sessions.

pub(crate) mod delete;
pub(crate) mod fault;
pub(crate) mod invoke;
pub(crate) mod names;
pub(crate) mod overview;
pub(crate) mod resume;
pub(crate) mod status;

use interlingua_core::Request;

/// The user in the path of a request, and the session, if the path names one.
fn user_and_session(request: &Request<'_>) -> (String, Option<String>) {
    let session = Some(request.param("session_id")).filter(|session| !session.is_empty());
    (request.param("user_id").to_owned(), session.map(str::to_owned))
}
