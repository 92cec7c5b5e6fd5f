//! The routing table: which endpoint of which route answers a request.
//!
//! The configuration check and the server build it with the same function from the same input: the mount points in the
//! order of the file, each with the endpoints of its protocol. What the check accepts is therefore what is served.
//!
//! How a request is routed:
//! - The gateway's own paths come first, then the well-known paths that a protocol serves at the root of the host.
//! - Of the mounts that contain the path, the longest one comes first. An endpoint of a longer mount wins over one of a
//!   shorter mount; both would be a mistake of the operator, which the check reports ([`overlap`]).
//! - Within a protocol, the most specific path wins: a literal segment over a parameter, a parameter with a longer
//!   suffix or prefix over a plain one, and all of them over the rest of a path.
//! - Protocols that share a mount point share its paths. An endpoint that only one of them has goes to that one. If
//!   several have it, the first that [recognizes](EndpointPattern::recognizes) the request answers, else the first in
//!   the file that cannot tell.
//! - A path without an endpoint is answered by the longest mount that contains it: by the first route there in the
//!   file.
//!
//! The table is generic over the route, and knows no protocol. Not here: the syntax of paths ([`pattern`]), and how
//! requests are answered (the server).

mod overlap;
mod pattern;
mod table;
#[cfg(test)]
mod tests;

pub use self::overlap::{Overlap, OverlapKind};
pub use self::pattern::EndpointPattern;
use self::table::Paths;
pub use self::table::{EndpointMatch, MountError, MountPoint, OwnPath, RouteMatch, Table};

impl<R: Clone> Table<R> {
    /// Builds the table of these mounts, in the order of the file. Also returns the requests that several of them would
    /// answer; the table is usable unless one of them [is an error](Overlap::is_error).
    ///
    /// # Errors
    /// If the paths of a protocol are invalid, or cannot be told apart.
    pub fn build(mounts: &[MountPoint<R>]) -> Result<(Self, Vec<Overlap>), MountError> {
        let mut bound = Vec::with_capacity(mounts.len());
        for (index, mount) in mounts.iter().enumerate() {
            let is_first = !mounts[..index].iter().any(|earlier| earlier.protocol == mount.protocol);
            let paths = Paths::parse(mount, is_first).map_err(|reason| MountError { mount: index, reason })?;
            bound.push(paths);
        }

        let table = Self::assemble(mounts, &bound)?;
        let overlaps = overlap::find(&table, mounts, &bound);
        Ok((table, overlaps))
    }
}
