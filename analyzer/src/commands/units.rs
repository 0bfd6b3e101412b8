//! Sizes, times and moments on the command line.

use crate::replay::Until;

/// A size in bytes that is not nothing: `256M`, `1.5G`, `4096`.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    match parse_size_or_nothing(text)? {
        0 => Err(format!("invalid size '{text}': expected more than 0")),
        bytes => Ok(bytes),
    }
}

/// The same, where `0` means something.
pub(super) fn parse_size_or_nothing(text: &str) -> Result<u64, String> {
    gpuoom_units::size(text).map_err(|invalid| invalid.to_string())
}

/// A time in nanoseconds: `1.5s`, `250ms`, `10us`, `500ns`.
pub(super) fn parse_time(text: &str) -> Result<u64, String> {
    gpuoom_units::time(text).map_err(|invalid| invalid.to_string())
}

/// `oom:N`, counted from 1.
pub(super) fn parse_oom(text: &str) -> Result<u64, String> {
    let number = text.strip_prefix("oom:").and_then(|number| number.parse().ok()).filter(|number| *number > 0);
    number.ok_or_else(|| format!("'{text}' is no failure: write oom:1 for the first out-of-memory return"))
}

/// What is said where a trace has no failure of that number.
pub(super) fn no_such_failure(number: u64, there_are: u64) -> String {
    match there_are {
        0 => format!("oom:{number}: no call in this trace ran out of memory"),
        1 => format!("oom:{number}: only one call in this trace ran out of memory, which is oom:1"),
        _ => format!(
            "oom:{number}: {there_are} calls in this trace ran out of memory, the last of which is oom:{there_are}"
        ),
    }
}

/// A moment of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// Each device at its peak.
    Peak,
    /// Right after the failure with this number, counted from 1.
    Oom(u64),
    /// Where a replay stops.
    Stop(Until),
}

/// `peak`, `end`, `oom:N` or a time.
pub(super) fn parse_at(text: &str) -> Result<At, String> {
    match text {
        "peak" => Ok(At::Peak),
        "end" => Ok(At::Stop(Until::End)),
        _ if text.starts_with("oom:") => parse_oom(text).map(At::Oom),
        _ => match parse_time(text) {
            Ok(ns) => Ok(At::Stop(Until::Time(ns))),
            Err(_) => Err(format!("invalid moment '{text}': expected peak, end, oom:1 or a time (such as 1.5s)")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::model::ModelFacts;
    use crate::policy::{Quantity, Unit};
    use crate::thresholds::Thresholds;

    #[test]
    fn sizes() {
        for (text, bytes) in
            [("4096", 4096), ("256M", 256 << 20), ("16g", 16 << 30), ("2MiB", 2 << 20), ("1.5G", 3 << 29)]
        {
            assert_eq!(parse_size(text), Ok(bytes));
        }
        for text in ["", "M", "-1", "1.5", "12X", "0", "0.0001K", "99999999999T", "1é"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert_eq!((parse_size_or_nothing("0"), parse_size_or_nothing("0M")), (Ok(0), Ok(0)));
    }

    /// One list, every entrance: nobody may read a text as something else.
    #[test]
    fn every_entrance_reads_sizes_alike() {
        for (text, bytes) in gpuoom_units::examples() {
            let threshold = |name: &str| {
                let mut thresholds = Thresholds::default();
                thresholds.set(&format!("{name}={text}")).map(|()| thresholds)
            };
            let mut facts = ModelFacts::default();
            facts.add(&format!("weights={text}")).unwrap();
            let entrances = [
                parse_size(text),
                parse_size_or_nothing(text),
                Quantity::parse(text, Unit::Bytes).map(|quantity| quantity.number() as u64),
                Quantity::parse_growth(text, Unit::Bytes).map(|quantity| quantity.number() as u64),
                threshold("model-granule").map(|set| set.model_granule_bytes).map_err(|wrong| wrong.to_string()),
                facts.weights_bytes.ok_or_else(String::new),
            ];
            entrances.into_iter().for_each(|read| assert_eq!(read, Ok(bytes), "{text}"));
        }
        for text in ["3X", "1.5", "-1", "1.2.3G"] {
            let said = format!("invalid size '{text}': expected bytes, or K, M, G, T (such as 1.5G)");
            let mut facts = ModelFacts::default();
            let wrong = [
                parse_size(text).unwrap_err(),
                Quantity::parse(text, Unit::Bytes).unwrap_err(),
                Thresholds::default().set(&format!("model-granule={text}")).unwrap_err().to_string(),
                facts.add(&format!("weights={text}")).unwrap_err().to_string(),
            ];
            assert!(wrong.iter().all(|wrong| wrong.ends_with(&said)), "{wrong:?}");
        }
    }

    #[test]
    fn every_entrance_reads_times_alike() {
        for (text, ns) in
            [("1.5s", 1_500_000_000), ("250 ms", 250_000_000), ("10µs", 10_000), ("2min", 120_000_000_000)]
        {
            let mut thresholds = Thresholds::default();
            thresholds.set(&format!("hang={text}")).unwrap();
            assert_eq!((parse_time(text), thresholds.hang_ns), (Ok(ns), ns), "{text}");
        }
        let said = "invalid time '5G': expected a number with ns, us, ms, s, min or h (such as 1.5s)";
        let threshold = Thresholds::default().set("hang=5G").unwrap_err().to_string();
        assert_eq!((parse_time("5G"), threshold), (Err(said.to_owned()), format!("hang=5G: {said}")));
    }

    #[test]
    fn times_and_moments() {
        assert_eq!(parse_time("1.5s"), Ok(1_500_000_000));
        assert_eq!(parse_time("250ms"), Ok(250_000_000));
        assert_eq!(parse_at("oom:2"), Ok(At::Oom(2)));
        assert_eq!(parse_at("peak"), Ok(At::Peak));
        for text in ["", "s", "-1s", "NaNs", "infs", "oom:0", "oom:x", "12", "später"] {
            assert!(parse_at(text).is_err(), "{text}");
        }
    }
}
