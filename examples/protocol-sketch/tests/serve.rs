//! The skeleton refuses every request of a client. Replace these tests with the first endpoint.

use interlingua_core::{Out, ProtocolAdapter as _};
use interlingua_core_testkit::{self as testkit, ClientRequest};
use interlingua_sketch::{Options, Sketch};

#[test]
fn a_request_is_refused_as_not_implemented() {
    let mounted = Sketch::mount(&testkit::mount("/sketch", &["demo"]), Options::default()).expect("it mounts");
    let (endpoint, _) = testkit::endpoint(&mounted, "POST", "").expect("an endpoint");
    let mut exchange = (endpoint.open)();
    let fault = ClientRequest::post("", b"{}").decode(exchange.as_mut()).expect_err("it is refused");

    let mut out = Out::new();
    exchange.fail(&fault, &mut out);
    assert_eq!(out.head.status, 501);
    assert!(String::from_utf8_lossy(&out.body).contains("not implemented"));
}
