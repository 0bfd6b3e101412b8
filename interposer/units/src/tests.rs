extern crate std;

use std::format;
use std::string::{String, ToString};

use proptest::prelude::*;

use super::*;

const GIB: u64 = 1 << 30;

#[test]
fn sizes() {
    for (text, bytes) in [
        ("0", 0),
        ("4096", 4096),
        ("18446744073709551615", u64::MAX),
        ("16777215T", 16_777_215 << 40),
        ("256M", 256 << 20),
        ("16g", 16 * GIB),
        ("1.5G", 3 * GIB / 2),
        (" 64 MiB ", 64 << 20),
        ("2MB", 2 << 20),
        ("1024 bytes", 1024),
        ("1 byte", 1),
        ("0.3K", 307),
        (".5G", GIB / 2),
        ("5.G", 5 * GIB),
        ("12.000", 12),
        ("1.05GiB", 1_127_428_915),
        ("0.999999999999999999999999999999999999999999T", (1 << 40) - 1),
        ("0000000000000000000000000000000000000000000001K", 1024),
    ] {
        assert_eq!(size(text), Ok(bytes), "{text}");
    }
    assert_eq!((size_in("24564", 1 << 20), size_in("7 GB", 1 << 20)), (Ok(24_564 << 20), Ok(7 * GIB)));
}

#[test]
fn examples_are_read() {
    assert_eq!(examples().count(), include_str!("../sizes.tsv").lines().count() - 1, "each row is one");
    examples().for_each(|(text, bytes)| assert_eq!(size(text), Ok(bytes), "{text}"));
}

#[test]
fn times() {
    for (text, ns) in [
        ("1.5s", 1_500_000_000),
        ("250ms", 250_000_000),
        ("10us", 10_000),
        ("10µs", 10_000),
        ("10μs", 10_000),
        ("500ns", 500),
        ("2 min", 120_000_000_000),
        ("24h", 86_400_000_000_000),
        ("0s", 0),
        ("0.0000000019s", 1),
    ] {
        assert_eq!(time(text), Ok(ns), "{text}");
    }
}

#[test]
fn what_is_neither_is_said() {
    for text in [
        "",
        " ",
        ".",
        "G",
        ".G",
        "-1",
        "+4",
        "1.5",
        "0.5 bytes",
        "1e9",
        "1.2.3G",
        "1..2G",
        "12X",
        "12 apples",
        "NaN",
        "inf",
        "1é",
        "1 2M",
        "0x10",
        "1,5G",
        "5%",
        "M12",
        "1 iB",
    ] {
        let expected = format!("invalid size '{text}': expected bytes, or K, M, G, T (such as 1.5G)");
        assert_eq!(size(text).unwrap_err().to_string(), expected);
    }
    for text in ["", "s", "-1s", "NaNs", "infs", "12", "0", "später", "1.5ns", "5m", "5G", "1 s 2"] {
        let expected = format!("invalid time '{text}': expected a number with ns, us, ms, s, min or h (such as 1.5s)");
        assert_eq!(time(text).unwrap_err().to_string(), expected);
    }
    for text in ["18446744073709551616", "16777216T", "99999999999999999999999999999999999999999999999999G"] {
        assert!(size(text).unwrap_err().to_string().ends_with("': expected less than 16 EiB"), "{text}");
    }
    assert!(time("99999999999h").unwrap_err().to_string().contains("584 years"));
    let long = size(&"x".repeat(1000)).map_err(|invalid| invalid.to_string().len()).unwrap_err();
    assert!(long < 120, "{long}");
}

proptest! {
    /// What a size is printed as is that size.
    #[test]
    fn what_is_printed_returns(bytes in any::<u64>(), shift in 0u32..64) {
        for bytes in [bytes, bytes >> shift, bytes >> shift << shift] {
            let printed = Exact(bytes).to_string();
            prop_assert_eq!(size(&printed), Ok(bytes));
        }
    }

    /// No text makes it panic, and no unit makes a number smaller.
    #[test]
    fn any_text_is_read_or_not(text in "\\PC{0,12}|[0-9.]{0,60} ?[a-zA-Zµ]{0,3}") {
        let _ = (time(&text).map_err(|invalid| invalid.to_string()), size(&text).map_err(|invalid| invalid.to_string()));
        if let (Ok(bare), Ok(scaled)) = (size(&text), size_in(&text, 1 << 20)) {
            prop_assert!(scaled >= bare);
        }
    }

    /// Fractions round down, by less than a byte.
    #[test]
    fn fractions_round_down(whole in 0u64..1000, thousandths in 0u64..1000) {
        let text: String = format!("{whole}.{thousandths:03}M");
        prop_assert_eq!(size(&text), Ok((whole * 1000 + thousandths) * (1 << 20) / 1000));
    }
}
