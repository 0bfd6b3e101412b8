//! Numbers and names as people read them.

/// One gibibyte.
const GIB: f64 = (1u64 << 30) as f64;
/// Sizes from here on are given in GiB.
const SMALLEST_IN_GIB: u64 = 512 << 20;

/// Sizes from here on are told in EiB: no memory has them, and in GiB nobody can read them.
const SMALLEST_IN_EIB: u64 = 1 << 60;

/// A size: `512 MiB`, `1.41 GiB`, `20.5 KiB`. Whole MiB below a GiB stay what the program's author wrote.
pub fn size(bytes: u64) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    match bytes {
        0 => "0 bytes".to_owned(),
        1 => "1 byte".to_owned(),
        MIB..1_073_741_824 if bytes.is_multiple_of(MIB) => format!("{} MiB", bytes / MIB),
        // A sum or a product that does not fit 64 bits ends there.
        u64::MAX => "16.00 EiB or more".to_owned(),
        SMALLEST_IN_EIB.. => format!("{:.2} EiB", bytes as f64 / SMALLEST_IN_EIB as f64),
        SMALLEST_IN_GIB.. => gib(bytes),
        MIB.. => format!("{:.1} MiB", bytes as f64 / MIB as f64),
        KIB.. if bytes.is_multiple_of(KIB) => format!("{} KiB", bytes / KIB),
        KIB.. => format!("{:.1} KiB", bytes as f64 / KIB as f64),
        _ => format!("{bytes} bytes"),
    }
}

/// A size that is needed or was asked for: never told as less than it is, and in the unit that shows it.
pub fn whole_size(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    let is_shown = match bytes {
        SMALLEST_IN_EIB.. => true,
        SMALLEST_IN_GIB.. => u128::from(bytes) * 25 % u128::from(MIB * 256) == 0,
        MIB.. => bytes.is_multiple_of(MIB),
        _ => bytes < 1024 || bytes.is_multiple_of(1024),
    };
    match bytes {
        _ if is_shown => size(bytes),
        MIB.. => format!("{} MiB", bytes.div_ceil(MIB)),
        _ => format!("{} KiB", bytes.div_ceil(1024)),
    }
}

/// A size in GiB with two digits.
pub fn gib(bytes: u64) -> String {
    format!("{:.2} GiB", bytes as f64 / GIB)
}

/// The number of a size in GiB with two digits, for columns that name the unit.
pub fn gib_number(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / GIB)
}

/// The number of a size in MiB with two digits, for columns that name the unit.
pub fn mib_number(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / GIB * 1024.0)
}

/// A share with one digit: `9.7 %`.
pub fn percent(share: f64) -> String {
    // Digits that say nothing beside so many.
    let digits = usize::from(share < 10.0);
    format!("{:.digits$} %", share * 100.0)
}

/// A moment: seconds with three digits.
pub fn moment(at_ns: u64) -> String {
    format!("{:.3} s", at_ns as f64 / 1e9)
}

/// A duration in the unit that suits it.
pub fn span(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..10_000 => format!("{:.1} µs", ns as f64 / 1e3),
        10_000..1_000_000 => format!("{:.0} µs", ns as f64 / 1e3),
        1_000_000..10_000_000_000 if ns < 1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => moment(ns),
    }
}

/// `1 call`, `2 calls`.
pub fn count(number: u64, one: &str, many: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{} {many}", grouped(number)),
    }
}

/// How often: `once`, `twice`, `3 times`.
pub fn times(number: u64) -> String {
    match number {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        number => count(number, "time", "times"),
    }
}

/// A number with thin groups: `12 345 678`. Four digits stay together.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    if digits.len() < 5 {
        return digits;
    }
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Text from a file, safe for a terminal: control characters become visible.
pub fn clean(text: &str) -> String {
    let is_unsafe =
        |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) || ('\u{2066}'..='\u{2069}').contains(&c);
    text.chars().map(|c| if is_unsafe(c) { '\u{fffd}' } else { c }).collect()
}

/// Text of at most `width` characters: a longer one loses its middle.
pub fn shorten(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    // The end of a path says more than its beginning.
    let kept = width.saturating_sub(1);
    let head: String = text.chars().take(kept / 3).collect();
    let tail: String = text.chars().skip(length - (kept - kept / 3)).collect();
    format!("{head}…{tail}")
}

/// The rank of a process behind its name, where one is known.
pub fn rank(rank: Option<u32>) -> String {
    rank.map_or_else(String::new, |rank| format!(", rank {rank}"))
}

/// The name of a signal.
pub fn signal(number: i32) -> String {
    let names = [
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGTERM, "SIGTERM"),
    ];
    let name = names.iter().find(|(known, _)| *known == number).map(|(_, name)| name);
    name.map_or_else(|| format!("signal {number}"), |name| format!("{name} ({number})"))
}

/// A device: `GPU 0`.
pub fn gpu(device: Option<u8>) -> String {
    device.map_or("an unknown device".to_owned(), |device| format!("GPU {device}"))
}

/// The people's name of a runtime.
pub fn runtime(name: Option<&str>) -> &'static str {
    match name {
        Some("hip") => "HIP",
        Some("cuda") => "CUDA",
        _ => "the runtime",
    }
}

/// A version as the runtimes encode it.
pub fn runtime_version(runtime: Option<&str>, version: i32) -> String {
    match runtime {
        Some("hip") => format!("{}.{}.{}", version / 10_000_000, version / 100_000 % 100, version % 100_000),
        Some("cuda") => format!("{}.{}", version / 1000, version % 1000 / 10),
        _ => version.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Of a size that is needed nothing is rounded away.
    #[test]
    fn a_size_that_is_needed_is_never_told_as_less() {
        const MIB: u64 = 1 << 20;
        let told = [1026 * MIB, 1024 * MIB, 1536 * MIB, 1000 * MIB, 20 * MIB + 1, 1026 * MIB + 1, 3000, 2048, 7]
            .map(whole_size);
        let wanted =
            ["1026 MiB", "1.00 GiB", "1.50 GiB", "1000 MiB", "21 MiB", "1027 MiB", "3 KiB", "2 KiB", "7 bytes"];
        assert_eq!(told, wanted);
    }

    proptest! {
        /// What people are shown, they can type in: it means the same within what was rounded away.
        #[test]
        fn what_is_shown_is_read(number in any::<u64>(), shift in 0u32..64) {
            let number = number >> shift;
            let near = |shown: &str, read: u64, last_digit: f64| {
                prop_assert!((read as f64 - number as f64).abs() <= last_digit / 2.0 + 1.0, "{}: {}", shown, read);
                Ok(())
            };
            // Nobody types in EiB.
            if number < SMALLEST_IN_EIB {
                let shown = size(number);
                let last_digit = match shown.rsplit(' ').next() {
                    Some("GiB") => 0.01 * (1u64 << 30) as f64,
                    Some("MiB") => 0.1 * (1u64 << 20) as f64,
                    Some("KiB") => 0.1 * 1024.0,
                    _ => 0.0,
                };
                // A large number is not exact as a floating-point number, and printed from one.
                near(&shown, gpuoom_units::size(&shown).unwrap(), last_digit + number as f64 * 1e-15)?;
            }
            let shown = span(number);
            let last_digit = match shown.rsplit(' ').next() {
                Some("s") => 1e6,
                Some("ms") => 1e5,
                Some("µs") => 1e3,
                _ => 0.0,
            };
            if number < u64::MAX - 1_000_000_000 {
                near(&shown, gpuoom_units::time(&shown).unwrap(), last_digit + number as f64 * 1e-15)?;
            }
        }
    }

    #[test]
    fn sizes_read_well() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (513, "513 bytes"),
            (4096, "4 KiB"),
            (5000, "4.9 KiB"),
            (512 << 20, "512 MiB"),
            ((512 << 20) + 1, "0.50 GiB"),
            ((3 << 20) + 5, "3.0 MiB"),
            (1 << 30, "1.00 GiB"),
            (u64::MAX, "16.00 EiB or more"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn times_and_counts_read_well() {
        assert_eq!([span(999), span(1500), span(99_000), span(3_200_000)], ["999 ns", "1.5 µs", "99 µs", "3.2 ms"]);
        assert_eq!((span(1_250_000_000), moment(40_917_000_000)), ("1.250 s".into(), "40.917 s".into()));
        assert_eq!(count(1, "call", "calls"), "1 call");
        assert_eq!(count(1_234_567, "call", "calls"), "1 234 567 calls");
        assert_eq!((percent(0.3298), percent(511.04)), ("33.0 %".to_owned(), "51104 %".to_owned()));
    }

    #[test]
    fn long_paths_lose_their_middle_and_terminals_are_safe() {
        assert_eq!(shorten("/home/someone/models/model.gguf", 20), "/home/…ls/model.gguf");
        assert_eq!(shorten("short", 20), "short");
        assert_eq!(clean("a\x1b[31mb\n"), "a\u{fffd}[31mb\u{fffd}");
    }

    #[test]
    fn versions_as_their_vendors_write_them() {
        assert_eq!(runtime_version(Some("hip"), 60_443_483), "6.4.43483");
        assert_eq!(runtime_version(Some("cuda"), 12_040), "12.4");
    }
}
