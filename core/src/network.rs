//! Networks in CIDR notation, as operators write them: `"10.0.0.0/8"`, `"::1"`.

use core::net::IpAddr;

pub use ipnet::IpNet;

/// Parses a network; a single address is a network of its own. Networks of IPv4-mapped IPv6 addresses become IPv4:
/// `::ffff:10.0.0.0/104` is `10.0.0.0/8`.
///
/// # Errors
/// How to write it, for the operator.
pub fn parse(text: &str) -> Result<IpNet, &'static str> {
    let (address, prefix_len) = match text.split_once('/') {
        Some((address, prefix_len)) => (address, Some(prefix_len)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| "write an address or a network, like \"10.0.0.0/8\"")?;
    let Some(prefix_len) = prefix_len else { return Ok(IpNet::from(address.to_canonical())) };

    let network = prefix_len.parse().ok().and_then(|prefix_len| IpNet::new(address, prefix_len).ok());
    let network = network.ok_or("the prefix length must be at most 32, or 128 for IPv6")?;
    let mapped = match address.to_canonical() {
        inner @ IpAddr::V4(_) if address.is_ipv6() => {
            network.prefix_len().checked_sub(96).and_then(|prefix_len| IpNet::new(inner, prefix_len).ok())
        }
        _ => None,
    };
    Ok(mapped.unwrap_or(network))
}

/// True if `address` belongs to the network. IPv4-mapped IPv6 addresses count as IPv4.
#[must_use]
pub fn contains(network: &IpNet, address: IpAddr) -> bool {
    network.contains(&address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_network_contains_addresses_with_its_prefix() {
        for (network, address, expected) in [
            ("10.1.0.0/16", "10.1.255.1", true),
            ("10.1.0.0/16", "::ffff:10.1.2.3", true),
            ("10.1.0.0/16", "10.2.0.1", false),
            ("10.1.0.0/16", "::1", false),
            ("10.1.2.3/16", "10.1.9.9", true),
            ("::ffff:10.0.0.0/104", "10.9.9.9", true),
            ("::1", "::1", true),
            ("::1", "::2", false),
            ("0.0.0.0/0", "203.0.113.9", true),
        ] {
            let parsed = parse(network).expect("a network");
            assert_eq!(contains(&parsed, ip(address)), expected, "{network} {address}");
        }
    }

    #[test]
    fn invalid_networks_are_rejected() {
        for text in ["", "10.0.0", "10.0.0.0/33", "::1/129", "10.0.0.0/", "proxy.local"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
