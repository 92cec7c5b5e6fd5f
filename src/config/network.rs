//! Networks of addresses, as `trusted_proxies` names them: `"10.0.0.0/8"`, `"::1"`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// All addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Whether `address` belongs to the network. An IPv4 address in IPv6 clothes is IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let differing = (network.to_bits() ^ address.to_bits()).leading_zeros();
                differing >= u32::from(self.bits)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let differing = (network.to_bits() ^ address.to_bits()).leading_zeros();
                differing >= u32::from(self.bits)
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| "write an address or a network, like \"10.0.0.0/8\"")?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => bits
                .parse()
                .ok()
                .filter(|bits| *bits <= most)
                .ok_or("the number after the slash counts bits: up to 32, or 128 for IPv6")?,
        };
        // `::ffff:10.0.0.0/104` is `10.0.0.0/8`.
        match address.to_canonical() {
            IpAddr::V4(v4) if address.is_ipv6() && bits >= 96 => Ok(Self { address: IpAddr::V4(v4), bits: bits - 96 }),
            _ => Ok(Self { address, bits }),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_what_begins_like_it() {
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
    fn what_is_no_network_is_refused() {
        for text in ["", "10.0.0", "10.0.0.0/33", "::1/129", "10.0.0.0/", "proxy.local"] {
            assert!(text.parse::<Network>().is_err(), "{text:?}");
        }
    }
}
