//! Networks in CIDR notation, for `trusted_proxies`: `"10.0.0.0/8"`, `"::1"`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An IP network: an address and a prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_len: u8,
}

impl Network {
    /// True if `address` belongs to the network. IPv4-mapped IPv6 addresses count as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let common_bits = (network.to_bits() ^ address.to_bits()).leading_zeros();
                common_bits >= u32::from(self.prefix_len)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let common_bits = (network.to_bits() ^ address.to_bits()).leading_zeros();
                common_bits >= u32::from(self.prefix_len)
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, prefix_len) = match text.split_once('/') {
            Some((address, prefix_len)) => (address, Some(prefix_len)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| "write an address or a network, like \"10.0.0.0/8\"")?;
        let max = if address.is_ipv4() { 32 } else { 128 };
        let prefix_len = match prefix_len {
            None => max,
            Some(prefix_len) => prefix_len
                .parse()
                .ok()
                .filter(|prefix_len| *prefix_len <= max)
                .ok_or("the prefix length must be at most 32, or 128 for IPv6")?,
        };

        // `::ffff:10.0.0.0/104` is `10.0.0.0/8`.
        match address.to_canonical() {
            IpAddr::V4(v4) if address.is_ipv6() && prefix_len >= 96 => {
                Ok(Self { address: IpAddr::V4(v4), prefix_len: prefix_len - 96 })
            }
            _ => Ok(Self { address, prefix_len }),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_addresses_with_its_prefix() {
        let network: Network = "10.1.0.0/16".parse().expect("a network");
        assert!(network.contains("10.1.255.1".parse().expect("an address")));
        assert!(network.contains("::ffff:10.1.2.3".parse().expect("an address")));
        assert!(!network.contains("10.2.0.1".parse().expect("an address")));
        assert!(!network.contains("::1".parse().expect("an address")));

        let single: Network = "::1".parse().expect("a network");
        assert!(single.contains("::1".parse().expect("an address")));
        let all: Network = "0.0.0.0/0".parse().expect("a network");
        assert!(all.contains("203.0.113.9".parse().expect("an address")));
    }

    #[test]
    fn invalid_networks_are_rejected() {
        for text in ["", "10.0.0", "10.0.0.0/33", "::1/129", "10.0.0.0/", "proxy.local"] {
            assert!(text.parse::<Network>().is_err(), "{text:?}");
        }
    }
}
