//! Places on the PCI bus, as drivers, runtimes and tools spell them.

use std::fmt;

/// `0000:03:00.0`. NVIDIA's tools write the domain with eight digits, its driver's log leaves the function out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    /// Not told by some logs.
    function: Option<u8>,
}

/// A text of hexadecimal digits.
fn hex(text: &str) -> Option<&str> {
    text.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(text)
}

impl PciAddress {
    /// Reads an address with its domain: without one, a time of day would look like it.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split(':');
        let domain = parts.next().filter(|domain| (4..=8).contains(&domain.len())).and_then(hex)?;
        let bus = parts.next().filter(|bus| bus.len() == 2).and_then(hex)?;
        let last = parts.next().filter(|_| parts.next().is_none())?;
        let (device, function) = match last.split_once('.') {
            Some((device, function)) => (device, Some(hex(function).filter(|digit| digit.len() == 1)?)),
            None => (last, None),
        };
        let device = hex(device).filter(|device| device.len() == 2)?;
        Some(PciAddress {
            domain: u32::from_str_radix(domain, 16).ok()?,
            bus: u8::from_str_radix(bus, 16).ok()?,
            device: u8::from_str_radix(device, 16).ok()?,
            function: function.and_then(|digit| u8::from_str_radix(digit, 16).ok()),
        })
    }

    /// The first address in a line of text, such as `amdgpu 0000:03:00.0: ...` or `NVRM: Xid (PCI:0000:3b:00): ...`.
    pub fn in_text(text: &str) -> Option<Self> {
        let words = text.split(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | '[' | ']' | ','));
        let bare = |word: &str| PciAddress::parse(word.trim_start_matches("PCI:").trim_end_matches(':'));
        words.filter_map(bare).next()
    }

    /// Whether two addresses are of one device; a function that one of them does not tell may be any.
    pub fn is(self, other: PciAddress) -> bool {
        let slot = |address: PciAddress| (address.domain, address.bus, address.device);
        let functions = self.function.zip(other.function);
        slot(self) == slot(other) && functions.is_none_or(|(one, other)| one == other)
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:04x}:{:02x}:{:02x}", self.domain, self.bus, self.device)?;
        self.function.map_or(Ok(()), |function| write!(formatter, ".{function:x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Option<String> {
        PciAddress::parse(text).map(|address| address.to_string())
    }

    #[test]
    fn addresses_are_one_in_all_spellings() {
        assert_eq!(shown("0000:0A:00.0").as_deref(), Some("0000:0a:00.0"));
        assert_eq!(shown("00000000:3B:00.0").as_deref(), Some("0000:3b:00.0"));
        assert_eq!(shown("0000:3b:00").as_deref(), Some("0000:3b:00"));
        for other in
            ["", "08:24:00", "3b:00.0", "0000:3b", "0000:3b:00.0:1", "0000:3b:00.10", "zzzz:00:00.0", "0000:é:0"]
        {
            assert_eq!(shown(other), None, "{other}");
        }
        let of = |text| PciAddress::parse(text).unwrap();
        assert!(of("0000:3b:00").is(of("00000000:3b:00.1")) && !of("0000:3b:00.0").is(of("0000:3b:00.1")));
        assert!(!of("0001:3b:00.0").is(of("0000:3b:00.0")));
    }

    #[test]
    fn lines_of_logs_have_addresses() {
        let of = |text| PciAddress::in_text(text).map(|address| address.to_string());
        assert_eq!(of("amdgpu 0000:03:00.0: amdgpu: GPU reset begin!").as_deref(), Some("0000:03:00.0"));
        assert_eq!(of("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off").as_deref(), Some("0000:3b:00"));
        assert_eq!(of("[Sun Mar 30 08:24:00 2025] [drm] VRAM is lost due to GPU reset!"), None);
    }
}
