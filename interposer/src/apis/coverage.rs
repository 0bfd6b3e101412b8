//! `COVERAGE.md`, made from the tables of functions: what is hooked, what of it is recorded, what is out of reach.

use std::fmt::Write;
use std::path::Path;

use gpuoom_trace::record::{Event, Kind};

use super::{Row, rows, since::since};
use crate::link::Library;

/// Set to have the page written anew.
const UPDATE: &str = "UPDATE_COVERAGE";

/// A part of the page.
struct Section {
    library: Library,
    title: &'static str,
    /// Which libraries are meant.
    about: &'static str,
    /// Head of the column of versions; empty where no version is known.
    since: &'static str,
}

const SECTIONS: [Section; 7] = [
    Section {
        library: Library::Hip,
        title: "HIP",
        about: "`libamdhip64.so.5`, `.6`, `.7` (ROCm 5 to 7), under any name that contains",
        since: "since ROCm",
    },
    Section {
        library: Library::CudaRuntime,
        title: "CUDA runtime",
        about: "`libcudart.so.11.0`, `.12`, `.13`, under any name that contains",
        since: "since CUDA",
    },
    Section {
        library: Library::CudaDriver,
        title: "CUDA driver",
        about: "`libcuda.so.1`; any name that contains",
        since: "since CUDA",
    },
    Section {
        library: Library::Hsa,
        title: "HSA",
        about: "`libhsa-runtime64.so.1`, under any name that contains",
        since: "",
    },
    Section {
        library: Library::Handles,
        title: "Handles of mathematical libraries",
        about: "hipBLAS, rocBLAS, cuBLAS, cuDNN, MIOpen; names that contain",
        since: "",
    },
    Section {
        library: Library::Kernel,
        title: "Requests to the kernel",
        about: "`ioctl` of the C library, on descriptors of the drivers' device files.",
        since: "",
    },
    Section {
        library: Library::Cxx,
        title: "Process",
        about: "The C++ runtime, the ways out of a process, and the recorder's own records. The C++ runtime is found under any \
                name that contains",
        since: "",
    },
];

const HEAD: &str = "\
# What is recorded

Every function that the recorder hooks, by interface. This page is made from the recorder's tables
(`interposer/src/apis/`); a test fails when it is out of date and says how to write it anew.

| recorded | means |
| --- | --- |
| always | each call, with size, address, device, thread, time, duration and status |
| status | each call, with its status; what it takes is not told by the interface |
| after a failure | only while some thread has an undecided out-of-memory return: one test and a jump otherwise |
| followed | no event; the recorder remembers what it needs (the thread's device) |
| hands out | no event; the functions that it hands out are the hooks of this page |
| virtual card | no event; with `GPUOOM_CAPACITY` the answer is that of the virtual card |

*Since* is the version of the vendor's library in which the function first appears; empty where it is not known. A hook
for a function that the loaded library lacks answers \"not supported\" (801), and look-ups by name find what they would
find without the recorder. Beside these, `dlsym` and `dlvsym` are hooked: a look-up of a name of this page gives the
hook, for the very copy of the library that was asked.
";

const OUT_OF_REACH: &str = "
## Out of reach

| what | what is still seen |
| --- | --- |
| CUDA runtime linked statically | its driver calls: each CUDA runtime takes them from `cuGetProcAddress` |
| HIP linked statically | the requests to the kernel |
| libraries loaded with `RTLD_DEEPBIND` | the layers below; the report names the library that was bound past the recorder |
| `dlmopen`: a namespace of its own, where nothing is preloaded | nothing |
| system calls made without the C library (`syscall`, inline assembly) | the layers above, if the program goes through them |
| drivers in user space that map the card themselves (over PCI or USB) | nothing |
| functions in private tables (`cuGetExportTable`, `cudaGetExportTable`) | the layers below them |
| calls inside a vendor's library | the layers below it |
| C++ runtime linked statically | everything but exceptions: a failure may then be told by its other signs only |
| programs that ignore preloads: set-user-id, statically linked, another C library than glibc | nothing |
| managed memory that moves by a page fault | its allocation and its prefetches; not where it lies |
| memory without a call of its own: contexts, code loaded late, scratch | requests to the kernel, where they are hooked; else only what the readings show |
";

/// How calls of a row are recorded, in the words of the page.
fn recorded(row: &Row) -> &'static str {
    match row.how {
        "watched" | "selection" | "context_selected" => "after a failure",
        "creation" | "context" => "status",
        "context_pushed" | "context_popped" => "followed",
        "hands_out" => "hands out",
        "answered" => "virtual card",
        "allocation" | "release" | "context_destroyed" | "naming" | "migration" | "capture_begun" | "capture_ended"
        | "" => "always",
        other => panic!("{}: the page has no word for {other}", row.name),
    }
}

fn event(row: &Row) -> &'static str {
    match recorded(row) {
        "followed" | "hands out" | "virtual card" => "",
        _ => row.event.name(),
    }
}

fn kind(row: &Row) -> &'static str {
    if row.kind == Kind::None { "" } else { row.kind.name() }
}

fn section(page: &mut String, section: &Section) {
    let of_section: Vec<&Row> = rows().filter(|row| row.library == section.library).collect();
    let parts: Vec<String> = section.library.path_parts().iter().map(|part| format!("`{part}`")).collect();
    let about = match parts.len() {
        0 => section.about.to_owned(),
        _ => format!("{} {}.", section.about, parts.join(", ")),
    };
    let _ = write!(page, "\n## {}\n\n{about} {} functions.\n\n", section.title, of_section.len());
    let has_kinds = of_section.iter().any(|row| row.kind != Kind::None);
    let mut columns = vec!["function", "recorded", "event"];
    columns.extend(has_kinds.then_some("kind"));
    columns.extend(Some(section.since).filter(|since| !since.is_empty()));
    line(page, &columns);
    line(page, &vec!["---"; columns.len()]);
    for row in of_section {
        let name = format!("`{}`", row.name);
        let mut cells = vec![name.as_str(), recorded(row), event(row)];
        cells.extend(has_kinds.then_some(kind(row)));
        cells.extend((!section.since.is_empty()).then(|| since(row.name)));
        line(page, &cells);
    }
}

fn line(page: &mut String, cells: &[&str]) {
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    SECTIONS.iter().for_each(|one| section(&mut page, one));
    page.push_str(OUT_OF_REACH);
    page
}

#[test]
fn the_page_is_what_the_tables_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("COVERAGE.md");
    let page = page();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, page).expect("the page");
        return;
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = there.lines().zip(page.lines()).find(|(old, new)| old != new);
    assert!(
        there == page,
        "interposer/COVERAGE.md is out of date ({differs:?}); write it anew with: {UPDATE}=1 cargo test -p gpuoom coverage"
    );
}

#[test]
fn every_row_is_in_one_section_and_its_memory_has_a_kind() {
    let in_sections: usize =
        SECTIONS.iter().map(|section| rows().filter(|row| row.library == section.library).count()).sum();
    assert_eq!(in_sections, rows().count());
    for row in rows().filter(|row| row.has_hook && row.event == Event::Alloc) {
        assert!(row.kind != Kind::None, "{} takes memory of no kind", row.name);
    }
}
