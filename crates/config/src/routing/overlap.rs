//! Requests that endpoints of several routes would answer.
//!
//! A candidate for such a request is made from the patterns of two endpoints; the table itself then says whether both
//! routes have an endpoint for it. Within a protocol, overlapping paths are its own design, and are not reported.

use interlingua_core::Method;

use super::pattern::Pattern;
use super::table::{MountPoint, OWN_PATHS, Paths, RouteEndpoints, Table};

/// Requests that two routes would answer, or that are for the gateway itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The kind of the overlap.
    pub kind: OverlapKind,
    /// The index of the mount that comes first in the file.
    pub first: usize,
    /// The index of the other mount; the same for [`OverlapKind::Own`].
    pub later: usize,
    /// The index of the mount that answers.
    pub answers: usize,
    /// The requests, like `GET /v1/models`. Never empty.
    pub requests: Vec<String>,
}

/// Kinds of overlap, from errors to information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlapKind {
    /// A route with the gateway's own paths.
    Own,
    /// Two routes of one protocol at the same path, or two routes of which one is below the other.
    Conflict,
    /// Two protocols at the same path: the first route of the file answers.
    Shared,
    /// The same, where both protocols answer alike: for their own agents.
    Common,
    /// A well-known path at the root of the host, which comes before all mounts.
    Root,
}

impl Overlap {
    /// True if the gateway must not start; false if the operator should know which route answers.
    pub fn is_error(&self) -> bool {
        matches!(self.kind, OverlapKind::Own | OverlapKind::Conflict)
    }
}

/// All overlaps, ordered by the later mount.
pub(super) fn find<R: Clone>(table: &Table<R>, mounts: &[MountPoint<R>], bound: &[Paths]) -> Vec<Overlap> {
    let patterns = bound.iter().flat_map(|paths| paths.below.iter().chain(&paths.at_root));
    let search = Search { mounts, longest: patterns.map(|(_, pattern)| pattern.len()).max().unwrap_or(0) };
    let below = |one: &RouteEndpoints<R>| bound[one.mount].below.as_slice();
    let at_root = |one: &RouteEndpoints<R>| bound[one.mount].at_root.as_slice();
    let mut overlaps = Vec::new();

    for node in &table.mounts {
        for (position, one) in node.routes.iter().enumerate() {
            overlaps.extend(search.own(one));
            for other in &node.routes[..position] {
                let same_protocol = mounts[one.mount].protocol == mounts[other.mount].protocol;
                let kind = if same_protocol { OverlapKind::Conflict } else { OverlapKind::Shared };
                overlaps.extend(search.between(kind, (other, below(other)), (one, below(one))));
            }

            let mut parent = node.parent;
            while let Some(above) = parent {
                for other in &table.mounts[above].routes {
                    overlaps.extend(search.between(OverlapKind::Conflict, (one, below(one)), (other, below(other))));
                }
                parent = table.mounts[above].parent;
            }
            for root in table.root.iter().filter(|root| root.mount != one.mount) {
                overlaps.extend(search.between(OverlapKind::Root, (root, at_root(root)), (one, below(one))));
            }
        }
    }
    for (position, one) in table.root.iter().enumerate() {
        for other in &table.root[..position] {
            overlaps.extend(search.between(OverlapKind::Shared, (other, at_root(other)), (one, at_root(one))));
        }
    }

    overlaps.sort_by_key(|overlap| (overlap.later, overlap.kind != OverlapKind::Own, overlap.first));
    overlaps
}

struct Search<'t, R> {
    mounts: &'t [MountPoint<R>],
    /// The number of segments of the longest pattern.
    longest: usize,
}

impl<R> Search<'_, R> {
    /// Endpoints of a route at the gateway's own paths, which it would never answer.
    fn own(&self, endpoints: &RouteEndpoints<R>) -> Option<Overlap> {
        let (index, mount) = (endpoints.mount, &self.mounts[endpoints.mount]);
        let mut requests: Vec<String> =
            OWN_PATHS.iter().filter(|(path, _)| *path == mount.path).map(|(path, _)| (*path).to_owned()).collect();
        for (path, _) in OWN_PATHS {
            if has_method(endpoints, Method::Get, path) {
                requests.push(format!("GET {path}"));
            }
        }
        let kind = OverlapKind::Own;
        (!requests.is_empty()).then_some(Overlap { kind, first: index, later: index, answers: index, requests })
    }

    /// Requests that both routes would answer. `one` does.
    fn between(
        &self,
        kind: OverlapKind,
        (one, paths): (&RouteEndpoints<R>, &[(usize, Pattern)]),
        (other, other_paths): (&RouteEndpoints<R>, &[(usize, Pattern)]),
    ) -> Vec<Overlap> {
        let (mut requests, mut common): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for (index, pattern) in paths {
            let endpoint = &self.mounts[one.mount].endpoints[*index];
            for (other_index, other_pattern) in other_paths {
                let other_endpoint = &self.mounts[other.mount].endpoints[*other_index];
                let told_apart = kind == OverlapKind::Shared
                    && (endpoint.recognizes.is_some() || other_endpoint.recognizes.is_some());
                if endpoint.method != other_endpoint.method || told_apart {
                    continue;
                }

                let serves =
                    |path: &String| [one, other].iter().all(|endpoints| has_method(endpoints, endpoint.method, path));
                if let Some(path) = pattern.unify(other_pattern, self.longest).find(serves) {
                    let request = format!("{} {path}", endpoint.method.as_str());
                    let is_common = kind == OverlapKind::Shared
                        && endpoint.common.is_some()
                        && endpoint.common == other_endpoint.common;
                    let requests = if is_common { &mut common } else { &mut requests };
                    if !requests.contains(&request) {
                        requests.push(request);
                    }
                }
            }
        }

        let (first, later) = (one.mount.min(other.mount), one.mount.max(other.mount));
        let overlaps = [(kind, requests), (OverlapKind::Common, common)].into_iter();
        let found = overlaps.filter(|(_, requests)| !requests.is_empty());
        found.map(|(kind, requests)| Overlap { kind, first, later, answers: one.mount, requests }).collect()
    }
}

/// True if the route has an endpoint for this request.
fn has_method<R>(endpoints: &RouteEndpoints<R>, method: Method, path: &str) -> bool {
    let found = endpoints.router.at(path);
    found.is_ok_and(|found| found.value.endpoints.iter().any(|endpoint| endpoint.method == method))
}
