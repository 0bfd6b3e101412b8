//! What the tracker asks for that a diagnosis belongs to: what of it is in the bundle, and how to get the rest.

use gpuoom_trace::metadata::Quantity;

use crate::diagnosis::check::Confidence;
use crate::diagnosis::finding::{Finding, Role};
use crate::evidence::Source;
use crate::passes::summary::Summary;

/// Places that one issue is written for.
const MOST_PLACES: usize = 3;

/// What there is to choose from.
#[derive(Debug)]
pub struct Known<'a> {
    /// The reports, in the bundle's order.
    pub summaries: &'a [Summary],
    /// Readings that any of the traces has.
    pub readings: &'a [Quantity],
    /// Other evidence that is in the bundle.
    pub evidence: &'a [(Source, String)],
}

impl Known<'_> {
    fn evidence(&self, source: Source) -> Option<String> {
        self.evidence.iter().find(|(known, _)| *known == source).map(|(_, name)| name.clone())
    }

    fn reading(&self, quantity: Quantity) -> Option<String> {
        self.readings.contains(&quantity).then(|| "traces/ (readings of the recorder)".to_owned())
    }

    fn any(&self, is: impl Fn(&Summary) -> bool, place: &str) -> Option<String> {
        self.summaries.iter().any(is).then(|| place.to_owned())
    }
}

/// Something that is asked for.
struct Asked {
    /// Words of the catalogue that ask for it.
    words: &'static str,
    /// What it is.
    what: &'static str,
    /// Where in the bundle it is; none where it is not there.
    have: fn(&Known<'_>) -> Option<String>,
    /// How to get it.
    get: &'static str,
}

const TRACE: fn(&Known<'_>) -> Option<String> = |known| known.any(|_| true, "traces/");
const NOWHERE: fn(&Known<'_>) -> Option<String> = |_| None;

const ASKED: [Asked; 28] = [
    Asked { words: "the trace", what: "the trace", have: TRACE, get: "" },
    Asked { words: "version", what: "versions", have: |_| Some("the table above".to_owned()), get: "" },
    Asked {
        words: "command line",
        what: "the command line",
        have: |known| {
            known.any(
                |summary| !summary.process.command_line.is_empty(),
                "the steps above (--keep arguments shows its values)",
            )
        },
        get: "record the program again: the trace holds no command line",
    },
    Asked { words: "calls after it", what: "the calls after the failure", have: TRACE, get: "" },
    Asked { words: "attributes", what: "the pool's attributes", have: TRACE, get: "" },
    Asked { words: "exports, frees", what: "exports and frees", have: TRACE, get: "" },
    Asked { words: "allocation seen inside", what: "the driver's allocation inside the call", have: TRACE, get: "" },
    Asked {
        words: "both readings of free memory",
        what: "free memory by the runtime and by the driver",
        have: |known| {
            let both = |summary: &Summary| {
                summary.ooms.iter().any(|oom| oom.free_reported_bytes.is_some() && oom.free_sysfs_bytes.is_some())
            };
            known.any(both, "report.json (ooms: free_reported_bytes, free_sysfs_bytes)")
        },
        get: "amd-smi metric --mem-usage > smi.txt at the moment of the failure, then --amd-smi smi.txt",
    },
    Asked {
        words: "free memory around",
        what: "free memory around the frees",
        have: |known| known.reading(Quantity::RuntimeFree),
        get: "record again with GPUOOM_SAMPLE=100ms",
    },
    Asked {
        words: "idle memory in use",
        what: "memory in use after each run",
        have: |known| {
            let read = known
                .summaries
                .iter()
                .filter(|summary| summary.devices.iter().any(|device| device.used_at_start_bytes.is_some()));
            (read.count() > 1).then(|| "report.json (devices: used_at_start_bytes of each trace)".to_owned())
        },
        get: "record three runs, one after the other, and give all their traces",
    },
    Asked {
        words: "memory in use,",
        what: "memory in use",
        have: |known| {
            known
                .reading(Quantity::VramUsed)
                .or_else(|| known.reading(Quantity::NvmlUsed))
                .or_else(|| known.evidence(Source::Smi))
        },
        get: "amd-smi metric --mem-usage > smi.txt (or nvidia-smi -q -x), then --amd-smi smi.txt",
    },
    Asked {
        words: "process list",
        what: "the processes that hold memory of the card",
        have: |known| known.evidence(Source::Smi),
        get: "amd-smi process --json > smi.json (or nvidia-smi -q -x), then --amd-smi smi.json",
    },
    Asked {
        words: "graphics clients",
        what: "the graphics clients of the card",
        have: |known| known.reading(Quantity::GraphicsVram),
        get: "fuser -v /dev/dri/renderD* (as root it shows all users' clients)",
    },
    Asked {
        words: "runtime's pools",
        what: "the pools of the runtime",
        have: NOWHERE,
        get: "rocminfo > rocminfo.txt; on CUDA: nvidia-smi -q",
    },
    Asked {
        words: "HSAKMT_DEBUG_LEVEL=7 and AMD_LOG_LEVEL=4",
        what: "the runtime's log of both runs",
        have: NOWHERE,
        get: "HSAKMT_DEBUG_LEVEL=7 AMD_LOG_LEVEL=4 COMMAND 2> with.log, then the same with HSA_ENABLE_SDMA=0 and 2> without.log",
    },
    Asked {
        words: "library's log",
        what: "the library's log",
        have: NOWHERE,
        get: "ROCBLAS_LAYER=1 COMMAND 2> rocblas.log, or MIOPEN_ENABLE_LOGGING=1 COMMAND 2> miopen.log",
    },
    Asked {
        words: "lines on the buffers",
        what: "what llama.cpp says of its buffers",
        have: |known| known.evidence(Source::TorchLog),
        get: "COMMAND 2> run.log, then the lines of run.log with \"buffer size\"",
    },
    Asked {
        words: "snapshot",
        what: "a memory snapshot of PyTorch",
        have: |known| known.evidence(Source::TorchSnapshot),
        get: "torch.cuda.memory._record_memory_history() at the start, torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") at the failure, \
              then --torch-snapshot snapshot.pickle --keep evidence: it holds the paths of source files",
    },
    Asked {
        words: "collect_env",
        what: "PyTorch's description of the machine",
        have: NOWHERE,
        get: "python3 -m torch.utils.collect_env > collect_env.txt",
    },
    Asked {
        words: "effective settings",
        what: "settings of the allocator",
        have: |known| {
            let is_set =
                |summary: &Summary| summary.process.environment.keys().any(|name| name.starts_with("PYTORCH_"));
            known.any(is_set, "the settings above").or_else(|| Some("none are set in the environment".to_owned()))
        },
        get: "",
    },
    Asked {
        words: "TTM limit",
        what: "TTM's limit",
        have: |known| known.any(|summary| summary.machine.ttm.is_some(), "machine.json (ttm)"),
        get: "cat /sys/module/ttm/parameters/pages_limit",
    },
    Asked {
        words: "GTT total",
        what: "the GTT total",
        have: |known| {
            known.any(
                |summary| summary.machine.cards.iter().any(|card| card.gtt_total_bytes.is_some()),
                "machine.json (cards)",
            )
        },
        get: "cat /sys/class/drm/card*/device/mem_info_gtt_total",
    },
    Asked {
        words: "KFD's memory bank",
        what: "the size of KFD's memory banks",
        have: |known| {
            known.any(|summary| summary.machine.nodes.iter().any(|node| node.is_gpu()), "machine.json (nodes)")
        },
        get: "cat /sys/class/kfd/kfd/topology/nodes/*/mem_banks/*/properties",
    },
    Asked {
        words: "torch's total",
        what: "the total that the runtime reports",
        have: |known| {
            known.any(
                |summary| summary.devices.iter().any(|device| device.total_bytes.is_some()),
                "report.json (devices: total_bytes)",
            )
        },
        get: "python3 -c 'import torch; print(torch.cuda.get_device_properties(0).total_memory)'",
    },
    Asked {
        words: "mappings",
        what: "the number of memory mappings",
        have: |known| known.reading(Quantity::MemoryMaps),
        get: "wc -l /proc/PID/maps while the program runs",
    },
    Asked {
        words: "live",
        what: "live blocks and handles",
        have: |known| known.any(|_| true, "report.json (devices, ledger)"),
        get: "",
    },
    Asked {
        words: "descriptors",
        what: "the number of open descriptors",
        have: |known| known.reading(Quantity::OpenDescriptors),
        get: "ls /proc/PID/fd | wc -l while the program runs",
    },
    Asked {
        words: "measured slope",
        what: "the measured slope",
        have: |known| known.any(|summary| !summary.growth.is_empty(), "report.json (growth)"),
        get: "record a longer run: a slope takes at least five cycles",
    },
];

/// Asked for in words that stand for two things.
const WHEEL: [Asked; 2] = [
    Asked {
        words: "tag of the wheel",
        what: "name and tag of the wheel",
        have: NOWHERE,
        get: "python3 -m pip show --verbose torch, and the WHEEL file of its .dist-info directory",
    },
    Asked {
        words: "hashes",
        what: "hashes of the libraries",
        have: |known| {
            known.any(
                |summary| summary.process.libraries.iter().any(|library| library.build_id.is_some()),
                "report.json (process: libraries, build_id)",
            )
        },
        get: "sha256sum of the wheel's .so files",
    },
];

/// Something that is asked for, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// What it is.
    pub what: &'static str,
    /// Where in the bundle it is.
    pub have: Option<String>,
    /// How to get it.
    pub get: &'static str,
}

/// A place for a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The diagnosis.
    pub id: &'static str,
    /// The tracker or project.
    pub place: String,
    /// What it asks for, in the catalogue's words.
    pub with: String,
    /// The same, item by item.
    pub items: Vec<Item>,
}

/// What an issue is about.
#[derive(Clone, Debug)]
pub struct Issue<'a> {
    /// The report that it is about.
    pub summary: &'a Summary,
    /// The most telling diagnosis that is somebody's defect, else the most telling one.
    pub finding: Option<&'a Finding>,
    /// What else is at least probable.
    pub others: Vec<&'a Finding>,
    /// Where to file; empty: nowhere.
    pub places: Vec<Place>,
}

/// Chooses the report and the diagnosis, and looks up what their trackers ask for.
pub fn fill<'a>(known: &Known<'a>) -> Option<Issue<'a>> {
    let telling = |summary: &&Summary| summary.diagnoses.iter().any(is_telling);
    let failed = |summary: &&Summary| summary.oom_count > 0;
    let all = || known.summaries.iter();
    let summary =
        all().find(|one| telling(one) && failed(one)).or_else(|| all().find(telling)).or_else(|| all().find(failed));
    let summary = summary.or_else(|| all().next())?;
    let found = || summary.diagnoses.iter().filter(|finding| is_telling(finding));
    let finding = found().find(|finding| !finding.file.is_empty()).or_else(|| found().next());
    let others =
        found().filter(|other| finding.is_none_or(|finding| finding.id != other.id)).take(MOST_PLACES).collect();
    let filed = summary.diagnoses.iter().filter(|finding| is_telling(finding));
    let places = filed.flat_map(|finding| finding.file.iter().map(move |filing| (finding.id, filing)));
    let places = places.take(MOST_PLACES).map(|(id, filing)| Place {
        id,
        place: filing.place.clone(),
        with: filing.with.clone(),
        items: items(&filing.with, known),
    });
    Some(Issue { summary, finding, others, places: places.collect() })
}

fn is_telling(finding: &Finding) -> bool {
    finding.confidence >= Confidence::Probable && matches!(finding.role, Role::Cause | Role::Severity)
}

/// What a filing asks for, item by item.
fn items(with: &str, known: &Known<'_>) -> Vec<Item> {
    let asked = ASKED.iter().chain(&WHEEL).filter(|asked| with.contains(asked.words));
    asked.map(|asked| Item { what: asked.what, have: (asked.have)(known), get: asked.get }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    /// Each part of each filing of the catalogue is asked for in words of the table.
    #[test]
    fn everything_that_the_catalogue_asks_for_is_known() {
        for entry in catalogue::entries() {
            for filing in entry.file.iter().filter(|filing| !filing.with.is_empty()) {
                for part in filing.with.split(", ").flat_map(|part| part.split(" and ")) {
                    let asks = |asked: &Asked| {
                        filing.with.match_indices(asked.words).any(|(at, words)| {
                            let begin = filing.with.find(part).unwrap_or(0);
                            at < begin + part.len() && begin < at + words.len()
                        })
                    };
                    assert!(
                        ASKED.iter().chain(&WHEEL).any(asks),
                        "{}: nobody knows what '{part}' of '{}' is",
                        entry.id,
                        filing.with
                    );
                }
            }
        }
    }

    /// What is always there needs no way to get it; everything else has one.
    #[test]
    fn what_can_be_missing_says_how_to_get_it() {
        let always = [
            "the trace",
            "version",
            "calls after it",
            "attributes",
            "exports, frees",
            "allocation seen inside",
            "effective settings",
            "live",
        ];
        for asked in ASKED.iter().chain(&WHEEL) {
            assert_eq!(asked.get.is_empty(), always.contains(&asked.words), "{}", asked.what);
        }
    }
}
