//! What the tracker asks for that a diagnosis belongs to: what of it is in the bundle, and how to get the rest.

use gpuoom_trace::metadata::Quantity;

use crate::catalogue::need::Need;
use crate::conclusion::Summary;
use crate::conclusion::finding::Finding;
use crate::evidence::Source;
use crate::judgement::check::Confidence;
use crate::judgement::role::Role;

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
    /// What it is.
    need: Need,
    /// Where in the bundle it is; none where it is not there.
    have: fn(&Known<'_>) -> Option<String>,
    /// How to get it.
    get: &'static str,
}

const TRACE: fn(&Known<'_>) -> Option<String> = |known| known.any(|_| true, "traces/");
const NOWHERE: fn(&Known<'_>) -> Option<String> = |_| None;

const ASKED: [Asked; 30] = [
    Asked { need: Need::Trace, have: TRACE, get: "" },
    Asked { need: Need::Versions, have: |_| Some("the table above".to_owned()), get: "" },
    Asked {
        need: Need::CommandLine,
        have: |known| {
            known.any(
                |summary| !summary.facts.process.command_line.is_empty(),
                "the steps above (--keep arguments shows its values)",
            )
        },
        get: "record the program again: the trace holds no command line",
    },
    Asked { need: Need::CallsAfterFailure, have: TRACE, get: "" },
    Asked { need: Need::PoolAttributes, have: TRACE, get: "" },
    Asked { need: Need::ExportsAndFrees, have: TRACE, get: "" },
    Asked { need: Need::DriverAllocationInside, have: TRACE, get: "" },
    Asked {
        need: Need::FreeMemoryByBoth,
        have: |known| {
            let both = |summary: &Summary| {
                summary.facts.ooms.iter().any(|oom| oom.free_reported_bytes.is_some() && oom.free_sysfs_bytes.is_some())
            };
            known.any(both, "report.json (ooms: free_reported_bytes, free_sysfs_bytes)")
        },
        get: "amd-smi metric --mem-usage > smi.txt at the moment of the failure, then --amd-smi smi.txt",
    },
    Asked {
        need: Need::FreeMemoryAroundFrees,
        have: |known| known.reading(Quantity::RuntimeFree),
        get: "record again with GPUOOM_SAMPLE=100ms",
    },
    Asked {
        need: Need::MemoryAfterEachRun,
        have: |known| {
            let read = known
                .summaries
                .iter()
                .filter(|summary| summary.facts.devices.iter().any(|device| device.used_at_start_bytes.is_some()));
            (read.count() > 1).then(|| "report.json (devices: used_at_start_bytes of each trace)".to_owned())
        },
        get: "record three runs, one after the other, and give all their traces",
    },
    Asked {
        need: Need::MemoryInUse,
        have: |known| {
            known
                .reading(Quantity::VramUsed)
                .or_else(|| known.reading(Quantity::NvmlUsed))
                .or_else(|| known.evidence(Source::Smi))
        },
        get: "amd-smi metric --mem-usage > smi.txt (or nvidia-smi -q -x), then --amd-smi smi.txt",
    },
    Asked {
        need: Need::ProcessList,
        have: |known| known.evidence(Source::Smi),
        get: "amd-smi process --json > smi.json (or nvidia-smi -q -x), then --amd-smi smi.json",
    },
    Asked {
        need: Need::GraphicsClients,
        have: |known| known.reading(Quantity::GraphicsVram),
        get: "fuser -v /dev/dri/renderD* (as root it shows all users' clients)",
    },
    Asked { need: Need::RuntimePools, have: NOWHERE, get: "rocminfo > rocminfo.txt; on CUDA: nvidia-smi -q" },
    Asked {
        need: Need::LogsOfBothRuns,
        have: NOWHERE,
        get: "HSAKMT_DEBUG_LEVEL=7 AMD_LOG_LEVEL=4 COMMAND 2> with.log, then the same with HSA_ENABLE_SDMA=0 and 2> without.log",
    },
    Asked {
        need: Need::LibraryLog,
        have: NOWHERE,
        get: "ROCBLAS_LAYER=1 COMMAND 2> rocblas.log, or MIOPEN_ENABLE_LOGGING=1 COMMAND 2> miopen.log",
    },
    Asked {
        need: Need::LlamaBuffers,
        have: |known| known.evidence(Source::TorchLog),
        get: "COMMAND 2> run.log, then the lines of run.log with \"buffer size\"",
    },
    Asked {
        need: Need::TorchSnapshot,
        have: |known| known.evidence(Source::TorchSnapshot),
        get: "torch.cuda.memory._record_memory_history() at the start, torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") at the failure, \
              then --torch-snapshot snapshot.pickle --keep evidence: it holds the paths of source files",
    },
    Asked { need: Need::CollectEnv, have: NOWHERE, get: "python3 -m torch.utils.collect_env > collect_env.txt" },
    Asked {
        need: Need::AllocatorSettings,
        have: |known| {
            let is_set =
                |summary: &Summary| summary.facts.process.environment.keys().any(|name| name.starts_with("PYTORCH_"));
            known.any(is_set, "the settings above").or_else(|| Some("none are set in the environment".to_owned()))
        },
        get: "",
    },
    Asked {
        need: Need::TtmLimit,
        have: |known| known.any(|summary| summary.facts.machine.ttm.is_some(), "machine.json (ttm)"),
        get: "cat /sys/module/ttm/parameters/pages_limit",
    },
    Asked {
        need: Need::GttTotal,
        have: |known| {
            known.any(
                |summary| summary.facts.machine.cards.iter().any(|card| card.gtt_total_bytes.is_some()),
                "machine.json (cards)",
            )
        },
        get: "cat /sys/class/drm/card*/device/mem_info_gtt_total",
    },
    Asked {
        need: Need::KfdMemoryBank,
        have: |known| {
            known.any(|summary| summary.facts.machine.nodes.iter().any(|node| node.is_gpu()), "machine.json (nodes)")
        },
        get: "cat /sys/class/kfd/kfd/topology/nodes/*/mem_banks/*/properties",
    },
    Asked {
        need: Need::RuntimeTotal,
        have: |known| {
            known.any(
                |summary| summary.facts.devices.iter().any(|device| device.total_bytes.is_some()),
                "report.json (devices: total_bytes)",
            )
        },
        get: "python3 -c 'import torch; print(torch.cuda.get_device_properties(0).total_memory)'",
    },
    Asked {
        need: Need::Mappings,
        have: |known| known.reading(Quantity::MemoryMaps),
        get: "wc -l /proc/PID/maps while the program runs",
    },
    Asked { need: Need::LiveBlocks, have: |known| known.any(|_| true, "report.json (devices, ledger)"), get: "" },
    Asked {
        need: Need::OpenDescriptors,
        have: |known| known.reading(Quantity::OpenDescriptors),
        get: "ls /proc/PID/fd | wc -l while the program runs",
    },
    Asked {
        need: Need::MeasuredSlope,
        have: |known| known.any(|summary| !summary.facts.growth.is_empty(), "report.json (growth)"),
        get: "record a longer run: a slope takes at least five cycles",
    },
    Asked {
        need: Need::WheelTag,
        have: NOWHERE,
        get: "python3 -m pip show --verbose torch, and the WHEEL file of its .dist-info directory",
    },
    Asked {
        need: Need::LibraryHashes,
        have: |known| {
            known.any(
                |summary| summary.facts.process.libraries.iter().any(|library| library.build_id.is_some()),
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
    /// What it asks for, item by item.
    pub items: Vec<Item>,
}

/// What an issue is about.
#[derive(Clone, Debug)]
pub struct Issue<'a> {
    /// The report that it is about.
    pub summary: &'a Summary,
    /// The most telling diagnosis that is somebody's defect, else what the verdict names, else the most telling one.
    pub finding: Option<&'a Finding>,
    /// Where none is sure enough, the most telling one that is possible, as the verdict names it.
    pub possible: Option<&'a Finding>,
    /// What else is at least probable.
    pub others: Vec<&'a Finding>,
    /// Where to file; empty: nowhere.
    pub places: Vec<Place>,
}

/// Chooses the report and the diagnosis, and looks up what their trackers ask for.
pub fn fill<'a>(known: &Known<'a>) -> Option<Issue<'a>> {
    let telling = |summary: &&Summary| summary.conclusion.findings.iter().any(is_telling);
    let failed = |summary: &&Summary| summary.facts.oom_count > 0;
    let all = || known.summaries.iter();
    let summary =
        all().find(|one| telling(one) && failed(one)).or_else(|| all().find(telling)).or_else(|| all().find(failed));
    let summary = summary.or_else(|| all().next())?;
    let found = || summary.conclusion.findings.iter().filter(|finding| is_telling(finding));
    // The page says what the verdict says, whatever part that plays.
    let verdict = &summary.conclusion.verdict;
    let decides = verdict.confidence.filter(|confidence| *confidence >= Confidence::Probable).and(verdict.cause);
    let decides = || summary.conclusion.findings.iter().find(|finding| Some(finding.id) == decides);
    let finding = found().find(|finding| !finding.file.is_empty()).or_else(decides).or_else(|| found().next());
    let others =
        found().filter(|other| finding.is_none_or(|finding| finding.id != other.id)).take(MOST_PLACES).collect();
    let filed = summary.conclusion.findings.iter().filter(|finding| is_telling(finding));
    let places = filed.flat_map(|finding| finding.file.iter().map(move |filing| (finding.id, filing)));
    let places = places.take(MOST_PLACES).map(|(id, filing)| Place {
        id,
        place: filing.place.clone(),
        items: filing.needs.iter().filter_map(|need| item(*need, known)).collect(),
    });
    let possible = summary.conclusion.perhaps().filter(|_| finding.is_none());
    Some(Issue { summary, finding, possible, others, places: places.collect() })
}

fn is_telling(finding: &Finding) -> bool {
    finding.confidence >= Confidence::Probable && matches!(finding.role, Role::Cause | Role::Severity)
}

/// Where something that is asked for is, or how to get it.
fn item(need: Need, known: &Known<'_>) -> Option<Item> {
    let asked = ASKED.iter().find(|asked| asked.need == need)?;
    Some(Item { what: need.what(), have: (asked.have)(known), get: asked.get })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_the_catalogue_asks_for_has_its_row_once() {
        for need in Need::ALL {
            assert_eq!(ASKED.iter().filter(|asked| asked.need == *need).count(), 1, "{need:?}");
        }
    }

    /// What is always there needs no way to get it; everything else has one.
    #[test]
    fn what_can_be_missing_says_how_to_get_it() {
        use Need::*;
        let always = [
            Trace,
            Versions,
            CallsAfterFailure,
            PoolAttributes,
            ExportsAndFrees,
            DriverAllocationInside,
            AllocatorSettings,
            LiveBlocks,
        ];
        for asked in &ASKED {
            assert_eq!(asked.get.is_empty(), always.contains(&asked.need), "{:?}", asked.need);
        }
    }
}
