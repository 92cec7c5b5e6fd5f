//! Tables of allowed and disallowed addresses and URLs.

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn special_addresses_are_not_public_in_any_notation() {
    for inner in [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "168.63.129.16",
    ] {
        let plain: Ipv4Addr = inner.parse().expect("an address");
        let [a, b, c, d] = plain.octets();
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));

        for form in [
            inner.to_owned(),
            format!("::ffff:{inner}"),
            format!("::{inner}"),
            format!("::ffff:0:{inner}"),
            format!("64:ff9b::{inner}"),
            format!("2002:{high:x}:{low:x}::1"),
            format!("2001:0:4136:e378:8000:63bf:{:x}:{:x}", !high, !low),
            format!("2001:0:{high:x}:{low:x}::f7f7:f7f7"),
            format!("2606:4700::200:5efe:{high:x}:{low:x}"),
        ] {
            assert!(!is_public(ip(&form)), "{form}");
        }
    }

    for address in [
        "::",
        "::1",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "2001:db8::1",
        "3fff:fff::1",
        "2001:2::1",
        "2001:10::1",
        "2001:20::1",
        "100::1",
        "64:ff9b:1::808:808",
        "5f00::1",
        "4000::1",
    ] {
        assert!(!is_public(ip(address)), "{address}");
    }
}

#[test]
fn internet_addresses_are_public() {
    for address in [
        "8.8.8.8",
        "1.1.1.1",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "192.0.1.1",
        "198.20.0.1",
        "223.255.255.255",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2002:808:808::1",
        "2606:4700:4700::1111",
        "2a00:1450:4001:81b::200e",
        "2001:4860:4860::8888",
    ] {
        assert!(is_public(ip(address)), "{address}");
    }
}

#[test]
fn a_url_is_checked_the_way_resolvers_interpret_it() {
    let policy = Policy { allow_http: true, ..Policy::default() };
    for (url, refused) in [
        ("https://127.0.0.1/", RefusedAddress::Host),
        ("https://2130706433/", RefusedAddress::Host),
        ("https://0x7f000001/", RefusedAddress::Host),
        ("https://0x7f.1/", RefusedAddress::Host),
        ("https://0177.0.0.1/", RefusedAddress::Host),
        ("https://017700000001/", RefusedAddress::Host),
        ("https://127.1/", RefusedAddress::Host),
        ("https://10.1/", RefusedAddress::Host),
        ("https://127.0.0.1./", RefusedAddress::Host),
        ("https://0/", RefusedAddress::Host),
        ("https://3232235777:8443/x", RefusedAddress::Host),
        ("https://169.254.169.254/latest/meta-data", RefusedAddress::Host),
        ("https://0xa9fea9fe/", RefusedAddress::Host),
        ("https://[::1]/", RefusedAddress::Host),
        ("https://[::ffff:127.0.0.1]/", RefusedAddress::Host),
        ("https://[::ffff:7f00:1]:8443/", RefusedAddress::Host),
        ("https://[64:ff9b::7f00:1]/", RefusedAddress::Host),
        ("https://[2002:7f00:1::]/", RefusedAddress::Host),
        ("https://[fe80::1]/", RefusedAddress::Host),
        ("https://[fe80::1%25eth0]/", RefusedAddress::InvalidUrl),
        ("https://256.0.0.1/", RefusedAddress::InvalidUrl),
        ("https://1.2.3.4.5/", RefusedAddress::InvalidUrl),
        ("https://host.09/", RefusedAddress::InvalidUrl),
        ("https://4294967296/", RefusedAddress::InvalidUrl),
        ("https://user@hooks.example/", RefusedAddress::UserInfo),
        ("https://user:word@hooks.example/", RefusedAddress::UserInfo),
        ("https://hooks.example@127.0.0.1/", RefusedAddress::UserInfo),
        ("https://hooks.example\\@127.0.0.1/", RefusedAddress::InvalidUrl),
        ("https://127。0。0。1/", RefusedAddress::InvalidUrl),
        ("https://%31%32%37.0.0.1/", RefusedAddress::InvalidUrl),
        ("https://hooks.example\t.evil/", RefusedAddress::InvalidUrl),
        ("https:///x", RefusedAddress::InvalidUrl),
        ("https:hooks.example", RefusedAddress::InvalidUrl),
        ("//hooks.example/", RefusedAddress::InvalidUrl),
        ("hooks.example", RefusedAddress::InvalidUrl),
        ("", RefusedAddress::InvalidUrl),
        ("ftp://hooks.example/", RefusedAddress::Scheme),
        ("file:///etc/passwd", RefusedAddress::Scheme),
        ("gopher://127.0.0.1:70/", RefusedAddress::Scheme),
        ("https://hooks.example:0/", RefusedAddress::Port),
        ("https://hooks.example:65536/", RefusedAddress::Port),
        ("https://hooks.example:x/", RefusedAddress::InvalidUrl),
    ] {
        assert_eq!(policy.destination(url), Err(refused), "{url}");
    }

    let good = policy.destination("HTTPS://Hooks.Example.:8443/a?b@c#d").expect("a public name");
    assert_eq!((good.tls, good.host.as_str(), good.address, good.port), (true, "hooks.example", None, 8443));
    let good = policy.destination("http://0x08080808").expect("a public address");
    assert_eq!((good.host.as_str(), good.port), ("8.8.8.8", 80));
    assert_eq!(Policy::default().destination("http://hooks.example/"), Err(RefusedAddress::Scheme));

    let narrow = Policy { ports: vec![443], ..Policy::default() };
    assert_eq!(narrow.destination("https://hooks.example:8443/"), Err(RefusedAddress::Port));
    assert!(narrow.destination("https://hooks.example/").is_ok());
}

#[test]
fn exceptions_allow_only_their_addresses() {
    let parse = |text: &str| text.parse::<AddressException>().expect("an exception");
    let policy = Policy {
        allow_http: true,
        ports: Vec::new(),
        allow: ["10.1.0.0/16", "Hooks.Internal", "fd00:1::/32", "127.0.0.1"].map(parse).to_vec(),
    };

    for (host, address, allowed) in [
        ("x", "10.1.2.3", true),
        ("x", "::ffff:10.1.2.3", true),
        ("x", "10.2.0.1", false),
        ("x", "64:ff9b::10.1.2.3", false),
        ("hooks.internal", "192.168.7.7", true),
        ("other.internal", "192.168.7.7", false),
        ("x", "fd00:1::5", true),
        ("x", "fd00:2::5", false),
        ("x", "127.0.0.1", true),
        ("x", "127.0.0.2", false),
    ] {
        assert_eq!(policy.allows(host, ip(address)), allowed, "{host} {address}");
    }

    assert!(policy.destination("http://127.0.0.1:9000/").is_ok());
    for wrong in ["", "10.0.0.0/33", "10.0.0.0/x", "a b", "name/8"] {
        assert!(wrong.parse::<AddressException>().is_err(), "{wrong}");
    }
}

#[test]
fn one_disallowed_address_is_enough_to_refuse_a_name() {
    let policy = Policy::default();
    let addresses =
        |texts: &[&str]| -> Vec<SocketAddr> { texts.iter().map(|text| text.parse().expect("one")).collect() };
    let good = addresses(&["8.8.8.8:443", "[2606:4700::1]:443"]);
    let no_gateway = OwnAddresses::default();
    assert_eq!(policy.check_resolved("h", &good, &no_gateway), Ok(()));
    assert_eq!(
        policy.check_resolved("h", &addresses(&["8.8.8.8:443", "10.0.0.1:443"]), &no_gateway),
        Err(RefusedAddress::Host)
    );
    assert_eq!(policy.check_resolved("h", &[], &no_gateway), Err(RefusedAddress::Host));

    let own = OwnAddresses { listens: addresses(&["8.8.8.8:443"]), machine: Some(Vec::new()) };
    assert_eq!(policy.check_resolved("h", &good, &own), Err(RefusedAddress::Host), "the gateway itself");
}

#[test]
fn the_address_of_the_gateway_is_always_refused() {
    let parse = |text: &str| text.parse::<AddressException>().expect("an exception");
    let open = Policy { allow_http: true, ports: Vec::new(), allow: ["0.0.0.0/0", "::/0"].map(parse).to_vec() };
    let address = |text: &str| -> SocketAddr { text.parse().expect("an address") };
    let machine = Some(vec![ip("192.168.5.7"), ip("127.0.0.1"), ip("8.8.4.4"), ip("fe80::7"), ip("2606:4700::7")]);
    let everywhere = [
        "127.0.0.1:8080",
        "127.0.0.5:8080",
        "192.168.5.7:8080",
        "8.8.4.4:8080",
        "0.0.0.0:8080",
        "[::]:8080",
        "[::1]:8080",
        "[fe80::7]:8080",
        "[2606:4700::7]:8080",
        "[::ffff:127.0.0.1]:8080",
        "[::ffff:192.168.5.7]:8080",
        "[::ffff:0.0.0.0]:8080",
    ];

    for listens in ["0.0.0.0:8080", "[::]:8080", "[::ffff:0.0.0.0]:8080"] {
        let own = OwnAddresses { listens: vec![address(listens)], machine: machine.clone() };
        for reached in everywhere {
            assert_eq!(
                open.check_resolved("h", &[address(reached)], &own),
                Err(RefusedAddress::Host),
                "{listens} {reached}"
            );
        }
        for other in ["192.168.5.7:8081", "192.168.5.8:8080", "8.8.8.8:8080", "0.0.0.0:9000", "[::1]:80"] {
            assert_eq!(open.check_resolved("h", &[address(other)], &own), Ok(()), "{listens} {other}");
        }
        let unknown_machine = OwnAddresses { machine: None, ..own };
        assert_eq!(open.check_resolved("h", &[address("8.8.8.8:8080")], &unknown_machine), Err(RefusedAddress::Host));
        assert_eq!(open.check_resolved("h", &[address("8.8.8.8:8081")], &unknown_machine), Ok(()));
    }

    // A gateway that listens on one address is reached there and via the unspecified address.
    let own = OwnAddresses { listens: vec![address("127.0.0.1:8080")], machine: Some(Vec::new()) };
    for reached in ["127.0.0.1:8080", "[::ffff:127.0.0.1]:8080", "0.0.0.0:8080", "[::]:8080", "[::ffff:0:0]:8080"] {
        assert_eq!(open.check_resolved("h", &[address(reached)], &own), Err(RefusedAddress::Host), "{reached}");
    }
    for other in ["127.0.0.2:8080", "[::1]:8080", "192.168.5.7:8080", "127.0.0.1:8081"] {
        assert_eq!(open.check_resolved("h", &[address(other)], &own), Ok(()), "{other}");
    }

    // One such address among allowed ones is enough.
    let both = [address("8.8.8.8:8080"), address("127.0.0.1:8080")];
    assert_eq!(open.check_resolved("h", &both, &own), Err(RefusedAddress::Host));
}

#[test]
fn names_for_local_use_are_recognized_without_resolving_them() {
    for host in [
        "localhost",
        "LocalHost",
        "localhost.",
        "app.localhost",
        "localhost.localdomain",
        "LocalHost.LocalDomain.",
        "localhost6",
        "localhost6.localdomain6",
        "printer.localdomain",
        "hooks",
        "printer.local",
        "x.internal",
        "metadata.google.INTERNAL.",
        "a.b.intranet",
        "nas.lan",
        "router.home",
        "x.corp",
        "x.private",
        "router.home.arpa",
        "1.0.0.127.in-addr.arpa",
        "",
    ] {
        assert!(is_local_name(host), "{host}");
    }

    for host in ["hooks.example", "hooks.invalid.example", "internal.example.com", "localhost.example", "x.locale"] {
        assert!(!is_local_name(host), "{host}");
    }
}

#[test]
fn an_allowed_name_does_not_allow_its_subdomains_or_parents() {
    let policy =
        Policy { allow: vec!["Hooks.Internal.".parse::<AddressException>().expect("a name")], ..Policy::default() };
    assert!(policy.allows_name("hooks.internal"));
    assert!(!policy.allows_name("x.hooks.internal") && !policy.allows_name("internal"));
}
