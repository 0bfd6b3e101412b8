//! The settings: environment variables, read once before the program runs.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuoom_units as units;
use once_cell::sync::OnceCell;

use super::inject::{self, Rule, Wrong};

/// Padding of the record where nobody says.
const MODEL_GRANULARITY_BYTES: u64 = 256 << 20;
/// Where the trace goes when nobody says, and what it is called in a directory.
pub(crate) const DEFAULT_TRACE: &str = "gpuoom-%e-%p.trace.bin";

/// How much is said on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
}

/// When the largest allocatable block is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    Off,
    First,
    All,
}

/// Which stacks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stacks {
    /// Native return addresses.
    pub(crate) native: bool,
    /// Frames of Python code.
    pub(crate) python: bool,
}

/// The settings of `contract`'s environment variables.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    /// `GPUOOM_TRACE`, made absolute: the program may change its directory before the first GPU call.
    pub(crate) trace: PathBuf,
    /// `GPUOOM_GRANULARITY`, `None`: not set.
    pub(crate) granularity_bytes: Option<u64>,
    /// `GPUOOM_SAMPLE`, `None`: off.
    pub(crate) sample: Option<Duration>,
    /// `GPUOOM_PROBE`.
    pub(crate) probe: Probe,
    /// `GPUOOM_STACKS`.
    pub(crate) stacks: Stacks,
    /// `GPUOOM_FRAMEWORK`: blocks of allocators above the runtime are recorded.
    pub(crate) framework: bool,
    /// `GPUOOM_SYSROOT`.
    pub(crate) sysroot: PathBuf,
    /// `GPUOOM_CAPACITY`: bytes of each device of the virtual card, `None`: off.
    pub(crate) capacity_bytes: Option<u64>,
    /// `GPUOOM_INJECT`: which calls are to fail.
    pub(crate) inject: Vec<Rule>,
    /// `GPUOOM_SEED`.
    pub(crate) seed: u64,
    /// `GPUOOM_LOG`.
    pub(crate) log: LogLevel,
    /// `GPUOOM_EXPLAIN`: where the process ends after a failure, it is said how to read its trace. `gpuoom-analyze record` says that
    /// itself, of all traces together.
    pub(crate) explain: bool,
    /// `GPUOOM_DISABLE=1`.
    pub(crate) disabled: bool,
    /// Variables that could not be understood, a line each.
    pub(crate) complaints: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            trace: DEFAULT_TRACE.into(),
            granularity_bytes: None,
            sample: Some(Duration::from_secs(1)),
            probe: Probe::First,
            stacks: Stacks { native: true, python: true },
            framework: true,
            sysroot: PathBuf::from("/"),
            capacity_bytes: None,
            inject: Vec::new(),
            seed: 0,
            log: LogLevel::Warn,
            explain: true,
            disabled: false,
            complaints: Vec::new(),
        }
    }
}

static CONFIG: OnceCell<Config> = OnceCell::new();

/// The settings; read from the environment at the first call.
pub(crate) fn get() -> &'static Config {
    CONFIG.get_or_init(|| {
        let mut config = Config::read(|name| std::env::var_os(name));
        config.complaints.extend(unknown(std::env::vars_os().map(|(name, _)| name)));
        config
    })
}

impl Config {
    /// Reads the settings through `variable`.
    fn read(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let mut config = Config::default();
        let mut complaints = Vec::new();
        let mut set = |name: &str, expected: &str, apply: &mut dyn FnMut(&str) -> Result<(), Wrong>| {
            let Some(value) = variable(name).filter(|value| !value.is_empty()) else { return };
            let value = value.to_string_lossy();
            if let Err(wrong) = apply(&value) {
                let wrong = wrong.unwrap_or_else(|| format!("expected {expected}"));
                complaints.push(format!("{name}={value}: {wrong}; the default is used"));
            }
        };
        set("GPUOOM_LOG", "off, error, warn, info or debug", &mut |v| {
            config.log = log_level(v).ok_or(None)?;
            Ok(())
        });
        set("GPUOOM_EXPLAIN", "on or off", &mut |v| {
            config.explain = switch(v).ok_or(None)?;
            Ok(())
        });
        set("GPUOOM_DISABLE", "0 or 1", &mut |v| {
            config.disabled = flag(v).ok_or(None)?;
            Ok(())
        });
        set("GPUOOM_GRANULARITY", "a size from 512 to 1T, such as 256M or 2M", &mut |v| {
            config.granularity_bytes = Some(granularity(v)?);
            Ok(())
        });
        set("GPUOOM_SAMPLE", "a time from 1ms to 24h, or off", &mut |v| {
            config.sample = period(v)?;
            Ok(())
        });
        set("GPUOOM_PROBE", "off, first or all", &mut |v| {
            config.probe = probe(v).ok_or(None)?;
            Ok(())
        });
        set("GPUOOM_STACKS", "native, python, both with a comma between, or off", &mut |v| {
            config.stacks = stacks(v).ok_or(None)?;
            Ok(())
        });
        set("GPUOOM_FRAMEWORK", "on or off", &mut |v| {
            config.framework = switch(v).ok_or(None)?;
            Ok(())
        });
        set("GPUOOM_SYSROOT", "a directory", &mut |v| {
            config.sysroot = PathBuf::from(v);
            Ok(())
        });
        set("GPUOOM_CAPACITY", "a size above 0, or off", &mut |v| {
            config.capacity_bytes = capacity(v)?;
            Ok(())
        });
        set("GPUOOM_INJECT", inject::EXPECTED, &mut |v| {
            config.inject = inject::parse(v)?;
            Ok(())
        });
        set("GPUOOM_SEED", "a whole number", &mut |v| {
            config.seed = v.parse().map_err(|_| None)?;
            Ok(())
        });
        // A path is bytes: it need not be text.
        if let Some(trace) = variable("GPUOOM_TRACE").filter(|value| !value.is_empty()) {
            config.trace = trace.into();
        }
        if config.trace.is_relative() {
            config.trace = literal(&std::env::current_dir().unwrap_or_default()).join(&config.trace);
        }
        // A small virtual card and large granules: easily meant otherwise, because each block counts as whole granules.
        if let (Some(capacity), Some(granule)) = (config.capacity_bytes, config.granularity_bytes)
            && capacity < granule
        {
            let (capacity, granule) = (units::Exact(capacity), units::Exact(granule));
            complaints.push(format!(
                "GPUOOM_CAPACITY is {capacity}, less than one granule of {granule}: nothing fits on this virtual card. Without \
                 GPUOOM_GRANULARITY it rounds as the real card is seen to round"
            ));
        }
        config.complaints = complaints;
        config
    }

    /// Bytes to which the record pads each allocation.
    pub(crate) fn model_granularity_bytes(&self) -> u64 {
        self.granularity_bytes.unwrap_or(MODEL_GRANULARITY_BYTES)
    }

    /// A path below the system root.
    pub(crate) fn system_path(&self, path: &str) -> PathBuf {
        self.sysroot.join(path.trim_start_matches('/'))
    }
}

/// Letters of a setting's own name for each slip of the pen: in three letters one may be wrong, in six two.
const LETTERS_PER_SLIP: usize = 3;
/// Letters of an unknown name that are compared.
const MOST_LETTERS: usize = 64;

/// Names that begin as ours do: those of [`Config::read`], and those that the analyzer reads.
const NAMES: [&str; 14] = [
    "GPUOOM_TRACE",
    "GPUOOM_LOG",
    "GPUOOM_EXPLAIN",
    "GPUOOM_DISABLE",
    "GPUOOM_GRANULARITY",
    "GPUOOM_SAMPLE",
    "GPUOOM_PROBE",
    "GPUOOM_STACKS",
    "GPUOOM_FRAMEWORK",
    "GPUOOM_SYSROOT",
    "GPUOOM_CAPACITY",
    "GPUOOM_INJECT",
    "GPUOOM_SEED",
    "GPUOOM_LIBRARY",
];

/// Variables that look like settings and are none: a slip of the pen would else be a setting that nobody obeys.
fn unknown(names: impl Iterator<Item = OsString>) -> Option<String> {
    let is_strange =
        |name: &OsString| name.to_str().is_some_and(|name| name.starts_with("GPUOOM_") && !NAMES.contains(&name));
    let mut strange: Vec<String> = names.filter(is_strange).map(|name| name.to_string_lossy().into_owned()).collect();
    strange.sort_unstable();
    let what = if strange.len() == 1 { "is no setting" } else { "are no settings" };
    let told: Vec<String> = strange.iter().map(|name| with_the_name_that_was_meant(name)).collect();
    (!strange.is_empty()).then(|| format!("{} {what} of gpuoom: see the README for their names", told.join(", ")))
}

/// An unknown name, and behind it the setting that is near enough to be meant.
fn with_the_name_that_was_meant(unknown: &str) -> String {
    let nearest = NAMES.iter().map(|name| (letters_apart(unknown, name), *name)).min();
    let most_slips = |name: &str| name.trim_start_matches("GPUOOM_").len() / LETTERS_PER_SLIP;
    match nearest.filter(|(slips, name)| *slips <= most_slips(name)) {
        Some((_, meant)) => format!("{unknown} (did you mean {meant}?)"),
        None => unknown.to_owned(),
    }
}

/// Letters to add, to leave out and to change between two names (Levenshtein's distance). Of a long name the beginning counts: a
/// variable's name may have any length.
fn letters_apart(one: &str, other: &str) -> usize {
    let one = &one.as_bytes()[..one.len().min(MOST_LETTERS)];
    let mut row: Vec<usize> = (0..=one.len()).collect();
    for (above, theirs) in other.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], above + 1);
        for (column, ours) in one.iter().enumerate() {
            let changed = diagonal + usize::from(*ours != theirs);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[one.len()]
}

/// A pattern that stands for exactly this path.
fn literal(path: &Path) -> PathBuf {
    let mut pattern = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        pattern.extend_from_slice(if *byte == b'%' { b"%%" } else { std::slice::from_ref(byte) });
    }
    OsString::from_vec(pattern).into()
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "off" => Some(false),
        "on" => Some(true),
        _ => None,
    }
}

fn log_level(text: &str) -> Option<LogLevel> {
    Some(match text {
        "off" => LogLevel::Off,
        "error" => LogLevel::Error,
        "warn" => LogLevel::Warn,
        "info" => LogLevel::Info,
        "debug" => LogLevel::Debug,
        _ => return None,
    })
}

fn probe(text: &str) -> Option<Probe> {
    Some(match text {
        "off" => Probe::Off,
        "first" => Probe::First,
        "all" => Probe::All,
        _ => return None,
    })
}

fn stacks(text: &str) -> Option<Stacks> {
    let mut stacks = Stacks { native: false, python: false };
    if text == "off" {
        return Some(stacks);
    }
    for part in text.split(',') {
        match part.trim() {
            "native" => stacks.native = true,
            "python" => stacks.python = true,
            _ => return None,
        }
    }
    Some(stacks)
}

fn size(text: &str) -> Result<u64, Wrong> {
    units::size(text).map_err(|invalid| Some(invalid.to_string()))
}

/// From 512 bytes on, so that the count of granules of any real request fits its 32 bits.
fn granularity(text: &str) -> Result<u64, Wrong> {
    Some(size(text)?).filter(|bytes| (512..=1 << 40).contains(bytes)).ok_or(None)
}

fn capacity(text: &str) -> Result<Option<u64>, Wrong> {
    if text == "off" {
        return Ok(None);
    }
    Some(size(text)?).filter(|bytes| *bytes > 0).map(Some).ok_or(None)
}

fn period(text: &str) -> Result<Option<Duration>, Wrong> {
    if matches!(text, "off" | "0") {
        return Ok(None);
    }
    let period = units::time(text).map(Duration::from_nanos).map_err(|invalid| Some(invalid.to_string()))?;
    let range = Duration::from_millis(1)..=Duration::from_secs(86_400);
    range.contains(&period).then_some(Some(period)).ok_or(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Config {
        Config::read(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn values_are_understood() {
        let config = read(&[
            ("GPUOOM_TRACE", "/tmp/%p.bin"),
            ("GPUOOM_GRANULARITY", "2M"),
            ("GPUOOM_SAMPLE", "250ms"),
            ("GPUOOM_PROBE", "all"),
            ("GPUOOM_STACKS", "native"),
            ("GPUOOM_LOG", "debug"),
            ("GPUOOM_EXPLAIN", "off"),
            ("GPUOOM_DISABLE", "1"),
            ("GPUOOM_CAPACITY", "8G"),
            ("GPUOOM_INJECT", "oom@3,oom>1G"),
            ("GPUOOM_SEED", "7"),
        ]);
        assert_eq!(config.complaints, Vec::<String>::new());
        assert_eq!((config.trace.as_path(), config.granularity_bytes), (Path::new("/tmp/%p.bin"), Some(2 << 20)));
        assert_eq!((config.sample, config.probe), (Some(Duration::from_millis(250)), Probe::All));
        assert!(config.disabled && !config.explain && config.log == LogLevel::Debug);
        assert_eq!(config.stacks, Stacks { native: true, python: false });
        assert_eq!((config.capacity_bytes, config.inject.len(), config.seed), (Some(8 << 30), 2, 7));
        assert_eq!(read(&[("GPUOOM_CAPACITY", "off")]).capacity_bytes, None);
    }

    #[test]
    fn bad_values_are_named_and_the_default_stays() {
        let config = read(&[
            ("GPUOOM_GRANULARITY", "3X"),
            ("GPUOOM_SAMPLE", "soon"),
            ("GPUOOM_PROBE", "maybe"),
            ("GPUOOM_STACKS", "native,ruby"),
            ("GPUOOM_LOG", "loud"),
            ("GPUOOM_EXPLAIN", "please"),
            ("GPUOOM_DISABLE", "yes"),
            ("GPUOOM_CAPACITY", "0"),
            ("GPUOOM_INJECT", "oom@3,boom"),
            ("GPUOOM_SEED", "-1"),
        ]);
        assert_eq!(config.complaints.len(), 10);
        assert_eq!((config.capacity_bytes, config.inject.len(), config.seed), (None, 0, 0));
        let defaults = Config::default();
        assert_eq!((config.granularity_bytes, config.sample), (defaults.granularity_bytes, defaults.sample));
        assert_eq!((config.probe, config.log, config.disabled), (defaults.probe, defaults.log, false));
        assert!(config.explain);
    }

    #[test]
    fn a_name_that_is_no_setting_is_said() {
        let said = |names: &[&str]| unknown(names.iter().map(OsString::from));
        assert_eq!(said(&["GPUOOM_CAPACITY", "PATH", "GPUOOM", "MY_GPUOOM_X"]), None);
        let told = said(&["GPUOOM_STACK", "GPUOOM_CAPACTY"]).unwrap();
        assert!(
            told.starts_with(
                "GPUOOM_CAPACTY (did you mean GPUOOM_CAPACITY?), GPUOOM_STACK (did you mean GPUOOM_STACKS?) are no settings of gpuoom"
            ),
            "{told}"
        );
        // No name is near enough to be meant.
        for strange in ["GPUOOM_FOO", "GPUOOM_", "GPUOOM_ENTIRELY_DIFFERENT"] {
            assert!(said(&[strange]).unwrap().starts_with(&format!("{strange} is no setting")), "{strange}");
        }
        assert!(said(&["GPUOOM_LOGS"]).unwrap().contains("did you mean GPUOOM_LOG?"));
        assert!(said(&[&format!("GPUOOM_{}", "X".repeat(100_000))]).is_some());
    }

    /// What is read must not be called unknown.
    #[test]
    fn each_name_that_is_read_is_known() {
        let read = std::cell::RefCell::new(Vec::new());
        Config::read(|name| {
            read.borrow_mut().push(name.to_owned());
            None
        });
        assert!(read.borrow().iter().all(|name| NAMES.contains(&&name[..])), "{read:?}");
        assert_eq!(unknown(NAMES.iter().map(OsString::from)), None);
    }

    #[test]
    fn a_virtual_card_smaller_than_a_granule_is_said() {
        let complaints = |values: &[(&'static str, &'static str)]| read(values).complaints;
        let small = complaints(&[("GPUOOM_CAPACITY", "100M"), ("GPUOOM_GRANULARITY", "256M")]);
        assert!(
            small.len() == 1 && small[0].contains("GPUOOM_CAPACITY is 100M, less than one granule of 256M"),
            "{small:?}"
        );
        assert!(complaints(&[("GPUOOM_CAPACITY", "100M"), ("GPUOOM_GRANULARITY", "2M")]).is_empty());
        assert!(complaints(&[("GPUOOM_CAPACITY", "1M")]).is_empty(), "the real card's granularity is not known yet");
    }

    #[test]
    fn stacks_are_chosen_part_by_part() {
        let both = Stacks { native: true, python: true };
        assert_eq!((stacks("python, native"), Config::default().stacks), (Some(both), both));
        assert_eq!(stacks("off"), Some(Stacks { native: false, python: false }));
        assert_eq!((stacks("native,off"), stacks(",")), (None, None));
    }

    #[test]
    fn sizes_and_periods() {
        assert_eq!(
            (size("1.5G"), granularity("1MiB"), capacity("16G")),
            (Ok(3 << 29), Ok(1 << 20), Ok(Some(16 << 30)))
        );
        assert_eq!(
            (granularity("0"), granularity("2T"), capacity("0"), period("25h")),
            (Err(None), Err(None), Err(None), Err(None))
        );
        assert_eq!((period("off"), period("1.5s")), (Ok(None), Ok(Some(Duration::from_millis(1500)))));
        let complaints = |name: &'static str, value| read(&[(name, value)]).complaints;
        let invalid = "invalid size '3X': expected bytes, or K, M, G, T (such as 1.5G)";
        for name in ["GPUOOM_GRANULARITY", "GPUOOM_CAPACITY"] {
            assert_eq!(complaints(name, "3X"), [format!("{name}=3X: {invalid}; the default is used")]);
        }
        assert_eq!(
            complaints("GPUOOM_INJECT", "oom@1,oom>3X"),
            [format!("GPUOOM_INJECT=oom@1,oom>3X: {invalid}; the default is used")]
        );
        let wrong = complaints("GPUOOM_SAMPLE", "-1s");
        assert!(wrong[0].contains("invalid time '-1s': expected a number with ns, us, ms, s, min or h"), "{wrong:?}");
    }

    #[test]
    fn every_size_means_what_it_means_elsewhere() {
        for (text, bytes) in units::examples() {
            let config = read(&[
                ("GPUOOM_GRANULARITY", text),
                ("GPUOOM_CAPACITY", "1T"),
                ("GPUOOM_INJECT", &format!("oom>{text}")),
            ]);
            assert_eq!((config.granularity_bytes, config.inject), (Some(bytes), vec![Rule::Above(bytes)]), "{text}");
            assert_eq!(read(&[("GPUOOM_CAPACITY", text)]).capacity_bytes, Some(bytes), "{text}");
            assert_eq!(config.complaints, Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn a_relative_path_is_made_absolute() {
        assert!(read(&[("GPUOOM_TRACE", "t.bin")]).trace.is_absolute());
        assert_eq!(literal(Path::new("/data/50%p/x")), Path::new("/data/50%%p/x"));
    }

    #[test]
    fn a_path_need_not_be_text() {
        let trace = std::ffi::OsStr::from_bytes(b"/t/\xff-%p.bin");
        let config = Config::read(|name| (name == "GPUOOM_TRACE").then(|| trace.to_owned()));
        assert_eq!(config.trace, Path::new(trace));
    }
}
