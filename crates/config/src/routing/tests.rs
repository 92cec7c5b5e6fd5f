//! Tests of the routing table: examples of every rule, and a comparison with a simple reference on random tables.

use std::fmt::Write as _;

use interlingua_core::Method::{self, Delete, Get, Post};
use interlingua_core::exchange::ReadHeader;
use proptest::prelude::*;

use super::{EndpointPattern, MountPoint, Overlap, OverlapKind, OwnPath, RouteMatch, Table};

/// A mount whose route is its index.
fn mount(index: usize, path: &str, protocol: &str, endpoints: &[(Method, &str)]) -> MountPoint<usize> {
    let endpoints = endpoints.iter().map(|(method, path)| EndpointPattern::new(*method, *path)).collect();
    MountPoint { path: path.to_owned(), protocol: protocol.to_owned(), endpoints, route: index }
}

type Spec<'a> = (&'a str, &'a str, &'a [(Method, &'a str)]);

fn mounts(specs: &[Spec<'_>]) -> Vec<MountPoint<usize>> {
    let specs = specs.iter().enumerate();
    specs.map(|(index, (path, protocol, endpoints))| mount(index, path, protocol, endpoints)).collect()
}

fn build(specs: &[Spec<'_>]) -> (Table<usize>, Vec<Overlap>) {
    Table::build(&mounts(specs)).expect("a valid table")
}

/// The overlaps, as text.
fn overlaps(specs: &[Spec<'_>]) -> Vec<String> {
    let describe = |overlap: Overlap| {
        let Overlap { kind, first, later, answers, requests } = overlap;
        format!("{kind:?} {first} {later}, {answers} answers: {}", requests.join(", "))
    };
    build(specs).1.into_iter().map(describe).collect()
}

/// Where a request like `GET /a` goes, as text: the route, the index of the endpoint, and the parameters.
fn find(table: &Table<usize>, request: &str) -> String {
    find_with(table, request, &|_| None)
}

fn find_with(table: &Table<usize>, request: &str, header: &ReadHeader<'_>) -> String {
    let (method, path) = request.split_once(' ').expect("a method and a path");
    match table.find(method, path, header) {
        RouteMatch::Endpoint(found) => {
            let mut text = format!("{}.{}", found.route, found.endpoint);
            for (name, value) in found.params {
                write!(text, " {name}={value}").expect("writing into a string does not fail");
            }
            text
        }
        RouteMatch::WrongMethod { route, allow } => format!("{route} allows {}", allow.join(", ")),
        RouteMatch::Fallback(route) => format!("fallback of {route}"),
        RouteMatch::Own(OwnPath::Health) => "health".to_owned(),
        RouteMatch::Own(OwnPath::Ready) => "ready".to_owned(),
        RouteMatch::Outside => "nothing".to_owned(),
    }
}

#[track_caller]
fn check(table: &Table<usize>, expected: &[(&str, &str)]) {
    for (request, expected) in expected {
        assert_eq!(find(table, request), *expected, "{request}");
    }
}

#[test]
fn the_most_specific_path_wins_in_any_order() {
    let endpoints = [
        (Get, "/{tenant}/tasks"),
        (Get, "/tasks/{id}"),
        (Post, "/{tenant}/message:send"),
        (Post, "/tasks/{id}:cancel"),
        (Get, "/tasks/{id}/configs/{config}"),
        (Get, "/tasks"),
        (Delete, "/tasks/{task}"),
        (Get, "/files/{*path}"),
    ];
    let expected = [
        ("GET /a/tasks", "0.5"),
        ("GET /a/t/tasks", "0.0 tenant=t"),
        ("GET /a/tasks/x", "0.1 id=x"),
        // The path of a literal segment is not given up for another method.
        ("POST /a/tasks/message:send", "0 allows GET, HEAD, DELETE"),
        ("POST /a/t/message:send", "0.2 tenant=t"),
        ("POST /a/tasks/x:cancel", "0.3 id=x"),
        ("GET /a/tasks/x:cancel", "0 allows POST"),
        ("GET /a/tasks/:cancel", "0.1 id=:cancel"),
        ("POST /a/tasks/x:y:cancel", "0.3 id=x:y"),
        ("GET /a/tasks/x:other", "0.1 id=x:other"),
        ("GET /a/tasks/x/configs/y", "0.4 id=x config=y"),
        ("DELETE /a/tasks/x", "0.6 task=x"),
        ("GET /a/files/x/y", "0.7 path=x/y"),
        ("GET /a/files/", "fallback of 0"),
        ("GET /a/tasks/", "fallback of 0"),
    ];
    check(&build(&[("/a", "p", &endpoints)]).0, &expected);

    let (reversed, _) = build(&[("/a", "p", &endpoints.iter().rev().copied().collect::<Vec<_>>())]);
    assert_eq!(find(&reversed, "GET /a/tasks/x"), "0.6 id=x");
    assert_eq!(find(&reversed, "POST /a/tasks/x:cancel"), "0.4 id=x");
}

#[test]
fn the_mount_itself_has_a_path_with_and_without_a_slash() {
    let (table, _) = build(&[("/a", "p", &[(Post, ""), (Get, "/x")])]);
    check(
        &table,
        &[
            ("POST /a", "0.0"),
            ("POST /a/", "0.0"),
            ("GET /a", "0 allows POST"),
            ("GET /a/x", "0.1"),
            ("HEAD /a/x", "0.1"),
            ("OPTIONS /a/x", "0 allows GET, HEAD"),
            ("BREW /a/x", "0 allows GET, HEAD"),
            ("GET /a/x/", "fallback of 0"),
            ("GET /a//x", "fallback of 0"),
            ("GET //a/x", "nothing"),
            ("GET /ab", "nothing"),
            ("GET /", "nothing"),
            ("OPTIONS *", "nothing"),
            ("GET ", "nothing"),
        ],
    );
}

#[test]
fn each_agent_has_its_own_mount() {
    let endpoints: &[(Method, &str)] = &[(Post, "/process"), (Get, "/runs/{id}")];
    let (table, overlaps) =
        build(&[("/agents/demo", "p", endpoints), ("/agents/friday", "p", endpoints), ("/agents/f", "p", endpoints)]);
    assert!(overlaps.is_empty());
    check(
        &table,
        &[
            ("POST /agents/demo/process", "0.0"),
            ("GET /agents/friday/runs/x", "1.1 id=x"),
            ("GET /agents/f/runs/x", "2.1 id=x"),
            ("GET /agents/fr/runs/x", "nothing"),
            ("GET /agents", "nothing"),
            ("GET /agents/demo", "fallback of 0"),
        ],
    );
}

#[test]
fn a_mount_at_the_root_answers_every_other_path() {
    let (table, _) = build(&[("", "p", &[(Post, ""), (Get, "/{x}/y")]), ("/a", "q", &[(Get, "/z")])]);
    check(
        &table,
        &[
            ("POST /", "0.0"),
            ("GET /b/y", "0.1 x=b"),
            ("GET /a/y", "0.1 x=a"),
            ("GET /a/z", "1.0"),
            ("GET /a/b", "fallback of 1"),
            ("GET /b", "fallback of 0"),
            ("GET /healthz", "health"),
            ("POST /%72eadyz", "ready"),
            ("GET /healthz/", "fallback of 0"),
        ],
    );
}

#[test]
fn a_longer_mount_answers_before_a_shorter_one() {
    let specs: &[Spec<'_>] = &[
        ("/a", "p", &[(Get, "/{x}/c"), (Post, "/b/d")]),
        ("/a/b", "q", &[(Post, "/c"), (Get, "/d")]),
        ("/a/b/c/d", "p", &[(Get, "/e")]),
    ];
    assert!(overlaps(specs).is_empty());
    let (table, _) = build(specs);
    check(
        &table,
        &[
            // What only the shorter mount has, it answers.
            ("GET /a/b/c", "0.0 x=b"),
            ("POST /a/b/c", "1.0"),
            ("GET /a/b/d", "1.1"),
            ("POST /a/b/d", "0.1"),
            ("DELETE /a/b/c", "1 allows POST, GET, HEAD"),
            ("GET /a/b/c/d", "fallback of 2"),
            ("GET /a/b/c/e", "fallback of 1"),
            ("GET /a/c", "fallback of 0"),
        ],
    );
}

#[test]
fn paths_are_decoded_before_they_are_matched_except_for_slashes() {
    let (table, _) = build(&[("/a", "p", &[(Get, "/runs/{id}"), (Get, "/files/{*path}")])]);
    check(
        &table,
        &[
            ("GET /%61/r%75ns/x", "0.0 id=x"),
            ("GET /a/runs/x%2Fy", "0.0 id=x/y"),
            ("GET /a/runs/x%252Fy", "0.0 id=x%2Fy"),
            ("GET /a/runs/x%2By+z", "0.0 id=x+y+z"),
            ("GET /a/runs/%C3%BC%20x", "0.0 id=ü x"),
            ("GET /a%2Fruns/x", "nothing"),
            ("GET /a/files/x%2Fy/z", "0.1 path=x/y/z"),
            ("GET /a/%2e%2e/runs/x", "fallback of 0"),
        ],
    );
}

#[test]
fn protocols_share_a_mount() {
    let specs: &[Spec<'_>] = &[
        ("/v1", "p", &[(Get, "/models"), (Get, "/models/{*id}"), (Post, "/responses")]),
        ("/v1", "q", &[(Get, "/models"), (Get, "/models/{id}"), (Post, "/chat"), (Delete, "/responses")]),
    ];
    assert_eq!(overlaps(specs), ["Shared 0 1, 0 answers: GET /v1/models, GET /v1/models/{id}"]);
    let (table, overlaps) = build(specs);
    assert!(!overlaps[0].is_error());
    check(
        &table,
        &[
            ("GET /v1/models", "0.0"),
            ("GET /v1/models/x", "0.1 id=x"),
            ("POST /v1/responses", "0.2"),
            ("POST /v1/chat", "1.2"),
            ("DELETE /v1/responses", "1.3"),
            // Protocols report errors about the paths that they have; the first one reports all others.
            ("GET /v1/chat", "1 allows POST"),
            ("GET /v1/responses", "0 allows POST, DELETE"),
            ("GET /v1/nothing", "fallback of 0"),
        ],
    );

    let preflight = |method, path| table.preflight(method, path, &|_| None);
    assert_eq!(preflight("DELETE", "/v1/responses"), Some((1, vec!["DELETE"])));
    assert_eq!(preflight("PUT", "/v1/responses"), Some((0, vec!["POST"])));
    assert_eq!(preflight("GET", "/v1/models"), Some((0, vec!["GET", "HEAD"])));
    assert_eq!(preflight("GET", "/v1/nothing"), None);
}

#[test]
fn endpoints_that_answer_alike_are_told_from_those_that_do_not() {
    let mut mounts = mounts(&[
        ("/v1", "p", &[(Get, "/models"), (Get, "/models/{id}"), (Get, "/files")]),
        ("/v1", "q", &[(Get, "/models"), (Get, "/models/{id}"), (Get, "/files")]),
    ]);
    for mount in &mut mounts {
        mount.endpoints[0].common = Some("models");
    }
    mounts[0].endpoints[2].common = Some("files");
    mounts[1].endpoints[2].common = Some("other files");

    let (table, overlaps) = Table::build(&mounts).expect("a valid table");
    let found: Vec<_> = overlaps.iter().map(|overlap| (overlap.kind, overlap.requests.join(", "))).collect();
    let wanted = [(OverlapKind::Shared, "GET /v1/models/{id}, GET /v1/files"), (OverlapKind::Common, "GET /v1/models")];
    assert_eq!(found, wanted.map(|(kind, requests)| (kind, requests.to_owned())));
    assert!(overlaps.iter().all(|overlap| !overlap.is_error()));
    assert_eq!(find(&table, "GET /v1/models"), "0.0");
}

#[test]
fn a_protocol_that_recognizes_its_requests_answers_them() {
    let versioned: fn(&ReadHeader<'_>) -> bool = |header| header("version").is_some();
    let shared = |recognizing: &[usize]| {
        let mut mounts = mounts(&[
            ("/v1", "p", &[(Get, "/models")]),
            ("/v1", "q", &[(Get, "/models")]),
            ("/v1", "r", &[(Get, "/models")]),
        ]);
        for index in recognizing {
            mounts[*index].endpoints[0].recognizes = Some(versioned);
        }
        Table::build(&mounts).expect("a valid table")
    };
    let header = |name: &str| (name == "version").then_some("1");

    type Case<'c> = (&'c [usize], &'c str, &'c str, &'c [(usize, usize)]);
    let cases: [Case<'_>; 4] = [
        (&[], "0.0", "0.0", &[(0, 1), (0, 2), (1, 2)]),
        (&[1], "1.0", "0.0", &[(0, 2)]),
        (&[0], "0.0", "1.0", &[(1, 2)]),
        (&[0, 1, 2], "0.0", "0.0", &[]),
    ];
    for (recognizing, with, without, warned) in cases {
        let (table, overlaps) = shared(recognizing);
        assert_eq!(find_with(&table, "GET /v1/models", &header), with, "{recognizing:?}");
        assert_eq!(find(&table, "GET /v1/models"), without, "{recognizing:?}");
        let pairs: Vec<_> = overlaps.iter().map(|overlap| (overlap.first, overlap.later)).collect();
        assert_eq!(pairs, warned, "{recognizing:?}");
    }
}

#[test]
fn every_route_serves_paths_in_front_of_its_mount_point() {
    const METADATA: &str = "/.well-known/metadata";
    let mut mounts = mounts(&[("/a/x", "p", &[(Get, METADATA)]), ("/b", "p", &[(Get, METADATA)]), ("", "q", &[])]);
    for mount in &mut mounts[..2] {
        mount.endpoints[0].before_mount = true;
    }
    let (table, overlaps) = Table::build(&mounts).expect("a valid table");
    check(
        &table,
        &[
            ("GET /.well-known/metadata/a/x", "0.0"),
            ("GET /.well-known/metadata/b", "1.0"),
            ("GET /b/.well-known/metadata", "1.0"),
            ("GET /.well-known/metadata", "fallback of 2"),
            ("GET /.well-known/metadata/a", "fallback of 2"),
        ],
    );
    assert!(overlaps.is_empty(), "{overlaps:?}");
}

#[test]
fn the_first_route_of_a_protocol_serves_its_well_known_paths_at_the_root() {
    const CARD: &str = "/.well-known/card";

    let mut mounts = mounts(&[
        ("", "q", &[(Get, "/.well-known/{name}"), (Post, CARD)]),
        ("/a", "p", &[(Get, CARD)]),
        ("/b", "p", &[(Get, CARD)]),
    ]);
    for mount in &mut mounts[1..] {
        mount.endpoints[0].at_root = true;
    }
    let (table, overlaps) = Table::build(&mounts).expect("a valid table");
    check(
        &table,
        &[
            ("GET /.well-known/card", "1.0"),
            ("GET /a/.well-known/card", "1.0"),
            ("GET /b/.well-known/card", "2.0"),
            ("POST /.well-known/card", "0.1"),
            ("PUT /.well-known/card", "1 allows GET, HEAD, POST"),
        ],
    );
    // The other path of the mount at the root is hidden by its own literal path, which has another method.
    assert!(overlaps.is_empty(), "{overlaps:?}");

    mounts[0].endpoints.truncate(1);
    let (_, overlaps) = Table::build(&mounts).expect("a valid table");
    let [Overlap { kind: OverlapKind::Root, first: 0, later: 1, answers: 1, .. }] = overlaps.as_slice() else {
        panic!("{overlaps:?}");
    };
}

#[test]
fn requests_for_two_routes_are_conflicts() {
    let process: &[(Method, &str)] = &[(Post, "/process")];
    // A short path of both may be one of the first alone, with another method.
    let hiding: &[(Method, &str)] = &[(Get, "/{*r}"), (Post, "/a/{p}")];
    let cases: [(&[Spec<'_>], &str); 6] = [
        (&[("/b", "p", hiding), ("/b/a", "p", &[(Get, "/{*r}")])], "Conflict 0 1, 1 answers: GET /b/a/{r}/{r}"),
        (&[("/a", "p", process), ("/a", "p", process)], "Conflict 0 1, 0 answers: POST /a/process"),
        (&[("/a/b", "p", process), ("/a", "q", &[(Post, "/{x}/{y}")])], "Conflict 0 1, 0 answers: POST /a/b/process"),
        (
            &[("/o", "q", &[(Get, "/{*x}")]), ("/o/a", "p", &[(Get, "")])],
            "Conflict 0 1, 1 answers: GET /o/a, GET /o/a/",
        ),
        (&[("", "p", &[(Get, "/{x}")])], "Own 0 0, 0 answers: GET /healthz, GET /readyz"),
        (&[("/readyz", "p", process)], "Own 0 0, 0 answers: /readyz"),
    ];
    for (specs, expected) in cases {
        assert_eq!(overlaps(specs), [expected]);
    }

    // Not reported: other methods, and what the gateway's own paths do not need.
    assert_eq!(overlaps(&[("/a", "p", process), ("/a", "p", &[(Get, "/process")])]), [""; 0]);
    assert_eq!(overlaps(&[("", "p", &[(Post, "/{x}")])]), [""; 0]);
}

#[test]
fn paths_that_cannot_be_routed_are_refused() {
    for endpoints in [
        &[(Get, "/{a}{b}")][..],
        &[(Get, "x")],
        &[(Get, "/{*a}/x")],
        &[(Get, "/x-{a}"), (Get, "/{a}:y")],
        &[(Get, "/{a}"), (Get, "/{*b}")],
    ] {
        let built = Table::build(&mounts(&[("/ok", "p", &[]), ("/a", "p", endpoints)]));
        assert_eq!(built.map(|_| ()).expect_err("an error").mount, 1, "{endpoints:?}");
    }
}

#[test]
fn the_order_of_endpoints_decides_nothing_about_whether_they_can_be_routed() {
    for endpoints in [[(Get, "/foo{a}"), (Get, "/{a}/bar")], [(Get, "/{a}/bar"), (Get, "/foo{a}")]] {
        let (table, _) = build(&[("/a", "p", &endpoints)]);
        assert!(find(&table, "GET /a/foox").ends_with("a=x"));
        assert!(find(&table, "GET /a/x/bar").ends_with("a=x"));
    }
}

/// The specificity of a match, segment by segment: the smallest one wins.
type Rank = Vec<(u8, usize)>;

/// A simple matcher of one complete pattern.
fn rank(pattern: &str, path: &str) -> Option<Rank> {
    let mut segments = path.strip_prefix('/')?.split('/');
    let mut ranks = Vec::new();
    for part in pattern.strip_prefix('/')?.split('/') {
        if part.starts_with("{*") {
            let rest: Vec<&str> = segments.collect();
            ranks.push((3, 0));
            return (!rest.join("/").is_empty()).then_some(ranks);
        }

        let segment = segments.next()?;
        match part.split_once('}') {
            None => {
                ranks.push((0, 0));
                if part != segment {
                    return None;
                }
            }
            Some((_, suffix)) => {
                ranks.push(if suffix.is_empty() { (2, 0) } else { (1, usize::MAX - suffix.len()) });
                if segment.strip_suffix(suffix)?.is_empty() {
                    return None;
                }
            }
        }
    }
    segments.next().is_none().then_some(ranks)
}

/// The methods that these paths of a route have for a request.
fn methods(paths: impl Iterator<Item = (Method, String)>, path: &str) -> Vec<Method> {
    let ranked: Vec<(Rank, Method)> =
        paths.filter_map(|(method, pattern)| Some((rank(&pattern, path)?, method))).collect();
    let best = ranked.iter().map(|(rank, _)| rank).min();
    ranked.iter().filter(|(rank, _)| Some(rank) == best).map(|(_, method)| *method).collect()
}

/// The methods of each mount for a path, with those that it serves at the root of the host first.
fn reference(mounts: &[MountPoint<usize>], path: &str) -> Vec<[Vec<Method>; 2]> {
    let of_mount = |(index, mount): (usize, &MountPoint<usize>)| {
        let is_first = !mounts[..index].iter().any(|earlier| earlier.protocol == mount.protocol);
        let at_root = mount.endpoints.iter().filter(|endpoint| endpoint.at_root && is_first && !mount.path.is_empty());
        let below = mount.endpoints.iter().flat_map(|endpoint| {
            let path = format!("{}{}", mount.path, endpoint.path);
            let with_slash = endpoint.path.is_empty().then(|| format!("{path}/"));
            std::iter::once(path).chain(with_slash).map(|path| (endpoint.method, path))
        });
        [methods(at_root.map(|endpoint| (endpoint.method, endpoint.path.clone())), path), methods(below, path)]
    };
    mounts.iter().enumerate().map(of_mount).collect()
}

/// The mounts that have an endpoint for a request.
fn serving(methods: &[[Vec<Method>; 2]], method: Method) -> Vec<usize> {
    let serves = |index: &usize| methods[*index].iter().any(|methods| methods.contains(&method));
    (0..methods.len()).filter(serves).collect()
}

fn endpoint() -> impl Strategy<Value = EndpointPattern> {
    let segment = prop::sample::select(vec!["/a", "/b", "/{p}", "/c:x"]);
    let end = prop::sample::select(vec!["", "", "", "/", "/{p}:x", "/{*r}", "/{p}:xx"]);
    let method = prop::sample::select(vec![Get, Post]);
    (prop::collection::vec(segment, 0..3), end, method, prop::bool::weighted(0.1)).prop_map(
        |(segments, end, method, at_root)| {
            // Names are different, since one pattern may not use a name twice.
            let mut path = String::new();
            for (index, segment) in segments.iter().enumerate() {
                path.push_str(&segment.replace('p', &format!("p{index}")));
            }
            path.push_str(end);
            let at_root = at_root && !path.is_empty();
            EndpointPattern { at_root, ..EndpointPattern::new(method, path) }
        },
    )
}

fn table_input() -> impl Strategy<Value = Vec<MountPoint<usize>>> {
    let path = prop::sample::select(vec!["", "/a", "/b", "/a/b", "/a/a/b"]);
    let protocol = prop::sample::select(vec!["p", "q", "r"]);
    let mount = (path, protocol, prop::collection::vec(endpoint(), 0..5));
    prop::collection::vec(mount, 1..5).prop_map(|mounts| {
        let mounts = mounts.into_iter().enumerate();
        mounts
            .map(|(route, (path, protocol, endpoints))| MountPoint {
                path: path.to_owned(),
                protocol: protocol.to_owned(),
                endpoints,
                route,
            })
            .collect()
    })
}

fn request() -> impl Strategy<Value = (Method, String)> {
    let segment = prop::sample::select(vec!["a", "b", "c:x", "q:x", "q:xx", "y", "", "y%2Fz", ":x"]);
    let method = prop::sample::select(vec![Get, Post, Delete]);
    (method, prop::collection::vec(segment, 1..6)).prop_map(|(method, path)| (method, format!("/{}", path.join("/"))))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Everything that the check says of a table is true of the requests that it routes.
    #[test]
    fn the_verdict_of_the_check_is_that_of_the_server(
        mounts in table_input(),
        requests in prop::collection::vec(request(), 1..20),
    ) {
        // Protocols whose own paths cannot be told apart are refused as a whole.
        let Ok((table, overlaps)) = Table::build(&mounts) else { return Ok(()) };

        for (method, path) in &requests {
            let methods = reference(&mounts, path);
            let serving = serving(&methods, *method);
            match table.find(method.as_str(), path, &|_| None) {
                RouteMatch::Endpoint(found) => prop_assert!(serving.contains(&found.route)),
                RouteMatch::WrongMethod { allow, .. } => {
                    prop_assert!(serving.is_empty());
                    let expected = methods.iter().flatten().flatten();
                    prop_assert!(expected.clone().count() > 0);
                    prop_assert!(expected.clone().all(|method| allow.contains(&method.as_str())));
                }
                RouteMatch::Fallback(route) => {
                    prop_assert!(methods.iter().flatten().all(Vec::is_empty));
                    let contains = |mount: &&MountPoint<usize>| rank(&format!("{}/{{*r}}", mount.path), path).is_some()
                        || *path == mount.path || *path == format!("{}/", mount.path);
                    let longest = mounts.iter().filter(contains).map(|mount| mount.path.len()).max();
                    let first = mounts.iter().find(|mount| Some(mount.path.len()) == longest && contains(mount));
                    prop_assert_eq!(Some(route), first.map(|mount| mount.route));
                }
                RouteMatch::Own(_) => prop_assert!(false, "no request is for the gateway itself"),
                RouteMatch::Outside => prop_assert!(methods.iter().flatten().all(Vec::is_empty)),
            }

            // No two routes have an endpoint for a request unless the check says so.
            for (position, later) in serving.iter().enumerate() {
                for first in &serving[..position] {
                    let reported = overlaps.iter().any(|overlap| (overlap.first, overlap.later) == (*first, *later));
                    prop_assert!(reported, "{method:?} {path} is for {first} and {later}: {overlaps:?}");
                }
            }
        }

        for overlap in &overlaps {
            for request in overlap.requests.iter().filter(|_| overlap.kind != OverlapKind::Own) {
                let (method, path) = request.split_once(' ').expect("a method and a path");
                let method = if method == "GET" { Get } else { Post };
                let methods = reference(&mounts, path);
                let serving = serving(&methods, method);
                prop_assert!(serving.contains(&overlap.first) && serving.contains(&overlap.later), "{overlap:?}");
                let RouteMatch::Endpoint(found) = table.find(method.as_str(), path, &|_| None) else {
                    return Err(TestCaseError::fail(format!("{request} has no endpoint")));
                };
                // A third route may come before both.
                let at_root = methods.iter().any(|[root, _]| root.contains(&method));
                prop_assert!(serving.len() > 2 || at_root || found.route == overlap.answers, "{overlap:?}");
            }
        }
    }
}
