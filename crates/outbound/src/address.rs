//! Recognizes addresses that are no public host: the special-purpose ranges of IANA, and the metadata addresses of clouds.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses: its first address, its prefix length, and its kind.
type Range<A> = (A, u8, &'static str);

/// The special ranges of IPv4. The first range that contains an address counts, so a metadata address must come before the range
/// around it.
const V4: &[Range<[u8; 4]>] = &[
    ([0, 0, 0, 0], 8, "unspecified"),
    ([10, 0, 0, 0], 8, "private"),
    // The metadata address of Alibaba Cloud.
    ([100, 100, 100, 200], 32, "metadata"),
    ([100, 64, 0, 0], 10, "carrier-grade NAT"),
    ([127, 0, 0, 0], 8, "loopback"),
    // Contains the metadata address of most clouds, 169.254.169.254.
    ([169, 254, 0, 0], 16, "link-local"),
    // A public address by its number, but inside Azure it serves the host's own services.
    ([168, 63, 129, 16], 32, "metadata"),
    ([172, 16, 0, 0], 12, "private"),
    // Contains the metadata address of Oracle Cloud, 192.0.0.192.
    ([192, 0, 0, 0], 24, "protocol assignment"),
    ([192, 0, 2, 0], 24, "documentation"),
    ([192, 31, 196, 0], 24, "AS112"),
    ([192, 52, 193, 0], 24, "multicast tunnel"),
    ([192, 88, 99, 0], 24, "6to4 relay"),
    ([192, 168, 0, 0], 16, "private"),
    ([192, 175, 48, 0], 24, "AS112"),
    ([198, 18, 0, 0], 15, "benchmark"),
    ([198, 51, 100, 0], 24, "documentation"),
    ([203, 0, 113, 0], 24, "documentation"),
    ([224, 0, 0, 0], 4, "multicast"),
    ([255, 255, 255, 255], 32, "broadcast"),
    ([240, 0, 0, 0], 4, "reserved"),
];

/// The special ranges of IPv6. Every address outside `2000::/3` is special anyway; the ranges outside it are listed for their
/// names.
const V6: &[Range<[u16; 8]>] = &[
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, "unspecified"),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, "loopback"),
    ([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, "IPv4-mapped"),
    ([0, 0, 0, 0, 0, 0, 0, 0], 96, "IPv4-compatible"),
    ([0, 0, 0, 0, 0xffff, 0, 0, 0], 96, "IPv4-translated"),
    ([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96, "NAT64"),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, "NAT64"),
    ([0x100, 0, 0, 0, 0, 0, 0, 0], 64, "discard"),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, "Teredo"),
    ([0x2001, 2, 0, 0, 0, 0, 0, 0], 48, "benchmark"),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, "protocol assignment"),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, "documentation"),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, "6to4"),
    ([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0], 48, "AS112"),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "documentation"),
    // The metadata addresses of AWS and of Google Cloud.
    ([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32, "metadata"),
    ([0xfd20, 0xce, 0, 0, 0, 0, 0, 0], 32, "metadata"),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, "private"),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "link-local"),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, "site-local"),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "multicast"),
];

/// The range from which IANA assigns addresses to hosts of the Internet.
const PUBLIC_V6: ([u16; 8], u8) = ([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// The kind of the special range that contains the address. `None`: a public host may have the address.
pub(crate) fn special(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => {
            let found = V4.iter().find(|(first, bits, _)| in_v4(address, *first, *bits));
            found.map(|(_, _, kind)| *kind)
        }
        IpAddr::V6(address) => {
            if let Some((_, _, kind)) = V6.iter().find(|(first, bits, _)| in_v6(address, *first, *bits)) {
                return Some(kind);
            }
            if !in_v6(address, PUBLIC_V6.0, PUBLIC_V6.1) {
                return Some("unassigned");
            }
            // The address of an ISATAP interface contains an IPv4 address, to which a router would send the packets.
            let [.., high, low, _, _] = address.segments();
            (high & 0xfdff == 0 && low == 0x5efe).then_some("ISATAP")
        }
    }
}

fn in_v4(address: Ipv4Addr, first: [u8; 4], bits: u8) -> bool {
    let difference = address.to_bits() ^ Ipv4Addr::from(first).to_bits();
    difference.checked_shr(32 - u32::from(bits)).unwrap_or(0) == 0
}

fn in_v6(address: Ipv6Addr, first: [u16; 8], bits: u8) -> bool {
    let difference = address.to_bits() ^ Ipv6Addr::from(first).to_bits();
    difference.checked_shr(128 - u32::from(bits)).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first and the last address of each range, and their neighbours outside.
    #[test]
    fn each_range_ends_where_its_prefix_ends() {
        let cases = [
            ("9.255.255.255", None),
            ("10.0.0.0", Some("private")),
            ("10.255.255.255", Some("private")),
            ("11.0.0.0", None),
            ("100.63.255.255", None),
            ("100.64.0.0", Some("carrier-grade NAT")),
            ("100.127.255.255", Some("carrier-grade NAT")),
            ("100.128.0.0", None),
            ("100.100.100.200", Some("metadata")),
            ("100.100.100.201", Some("carrier-grade NAT")),
            ("126.255.255.255", None),
            ("127.255.255.255", Some("loopback")),
            ("128.0.0.0", None),
            ("168.63.129.15", None),
            ("168.63.129.16", Some("metadata")),
            ("169.253.255.255", None),
            ("169.254.169.254", Some("link-local")),
            ("172.15.255.255", None),
            ("172.31.255.255", Some("private")),
            ("172.32.0.0", None),
            ("192.0.0.192", Some("protocol assignment")),
            ("192.0.1.0", None),
            ("198.17.255.255", None),
            ("198.19.255.255", Some("benchmark")),
            ("198.20.0.0", None),
            ("223.255.255.255", None),
            ("224.0.0.0", Some("multicast")),
            ("239.255.255.255", Some("multicast")),
            ("240.0.0.0", Some("reserved")),
            ("255.255.255.255", Some("broadcast")),
            ("1fff:ffff::", Some("unassigned")),
            ("2000::", None),
            ("2001::1", Some("Teredo")),
            ("2001:1ff:ffff::", Some("protocol assignment")),
            ("2001:200::", None),
            ("2001:db8:ffff::", Some("documentation")),
            ("2001:db9::", None),
            ("2002:7f00:1::", Some("6to4")),
            ("2003::", None),
            ("2606:4700::5efe:7f00:1", Some("ISATAP")),
            ("2606:4700::200:5efe:a00:1", Some("ISATAP")),
            ("2606:4700::300:5efe:a00:1", None),
            ("3fff:fff:ffff::", Some("documentation")),
            ("3fff:1000::", None),
            ("4000::", Some("unassigned")),
            ("::7f00:1", Some("IPv4-compatible")),
            ("::ffff:8.8.8.8", Some("IPv4-mapped")),
            ("::ffff:0:8.8.8.8", Some("IPv4-translated")),
            ("64:ff9b::808:808", Some("NAT64")),
            ("fd00:ec1:ffff::", Some("private")),
            ("fd00:ec2::23", Some("metadata")),
            ("fd00:ec2::254", Some("metadata")),
            ("fd00:ec3::", Some("private")),
            ("fd20:ce::254", Some("metadata")),
            ("fd20:cf::", Some("private")),
            ("fdff::1", Some("private")),
            ("fe80::1", Some("link-local")),
            ("fec0::1", Some("site-local")),
            ("ff02::1", Some("multicast")),
        ];
        for (address, expected) in cases {
            assert_eq!(special(address.parse().unwrap()), expected, "{address}");
        }
    }
}
