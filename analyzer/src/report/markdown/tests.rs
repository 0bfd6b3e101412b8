use gpuoom_trace::metadata::Quantity;
use gpuoom_trace::payload::stack_flag;
use gpuoom_trace::record::{Event, flag};

use crate::conclusion::sum_up;
use crate::intake::read_through;
use crate::job::{Member, assemble};
use crate::passes::map::{DeviceMap, Moment, draw};
use crate::replay::timeline::Timeline;
use crate::replay::{Options, Replay};
use crate::symbols::SymbolPlaces;
use crate::symbols::compiled::Library;
use crate::testing::{GIB, MIB, TraceBuilder};

/// A trace on disk, read like the command does.
fn read(trace: &TraceBuilder) -> (Member, Vec<DeviceMap>) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut trace = trace.clone();
    // A later minor version changes nothing of the page.
    trace.header.minor = 3;
    trace.write(file.path()).unwrap();
    let opened = std::fs::File::open(file.path()).unwrap();
    let mut trace_file = gpuoom_trace::reader::TraceFile::from_file(opened, "run.trace.bin".as_ref()).unwrap();
    let mut replay = Replay::new(&trace_file, Options::default());
    replay.timeline = Some(Timeline::default());
    read_through(&mut trace_file, |_| {}, |batch| replay.batch(batch));
    replay.finish();
    let maps = draw(&replay, Moment::Peak, None);
    (Member::new(&trace_file, &replay, sum_up(&trace_file, &replay, &trace.evidence)), maps)
}

fn dropped() -> TraceBuilder {
    let mut trace =
        TraceBuilder::default().device(0, "Radeon RX 7900 XTX", 24 * GIB).library("/opt/app/libapp|x.so", 0x1000, 7);
    trace.site = 7;
    for number in 0..20 {
        trace.alloc(0x7f00_0000_0000 + number * 2 * GIB, GIB + 3 * MIB);
    }
    let seq = trace.refuse(5 * GIB);
    trace.read_at_failure(seq, &[(Quantity::RuntimeTotal as u16, 24 * GIB), (Quantity::RuntimeFree as u16, 3 * GIB)]);
    trace.after(Event::GpuWork, "hipLaunchKernel", 0, flag::FAILED_POINTER);
    trace.process.command_line.push("@alice <b>|`x`".into());
    trace
}

#[test]
fn a_failure_that_was_dropped() {
    let (member, maps) = read(&dropped());
    insta::assert_snapshot!(super::write(&member.summary, &maps, 1));
}

#[test]
fn a_healthy_run_is_short() {
    let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
    trace.alloc(0x1000, GIB);
    trace.free(0x1000);
    let (member, maps) = read(&trace);
    insta::assert_snapshot!(super::write(&member.summary, &maps, 1));
}

/// Who asked and who allocated; what was inferred says so.
#[test]
fn stacks() {
    let library = Library::compile("", &["-g"]);
    let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
    trace.modules.push(library.module());
    let way = [library.return_address_in("middle"), library.return_address_in("outer")];
    let guessed = stack_flag::NATIVE_WHOLE | stack_flag::NATIVE_GUESSED;
    trace.stack_with(guessed, 1, &way, &[]).stack(2, &way[1..], &[]);
    for (site, address) in [(1, 0x1000), (2, 0x2_0000_0000)] {
        trace.site = site;
        trace.alloc(address, GIB);
    }
    trace.site = 1;
    trace.refuse(16 * GIB);
    trace.evidence.symbols = SymbolPlaces::here(&[]);
    let (member, maps) = read(&trace);
    let text = super::write(&member.summary, &maps, 1);
    let parts = [("<details><summary>Who asked", "## "), ("## Who allocated", "<details>")].map(|(from, to)| {
        let part = &text[text.find(from).unwrap_or_else(|| panic!("{from}: {text}"))..];
        part[..part[3..].find(to).map_or(part.len(), |end| end + 3)].to_owned()
    });
    insta::assert_snapshot!(parts.join("\n...\n"));
}

#[test]
fn several_traces() {
    let mut other = TraceBuilder::default().device(0, "card", 16 * GIB);
    other.header.pid = 4712;
    (other.process.pid, other.process.rank) = (4712, 1);
    other.alloc(0x1000, GIB);
    let (job, summaries) = assemble(vec![read(&other).0, read(&dropped()).0], Vec::new());
    insta::assert_snapshot!(super::write_job(&job, &summaries));
}

/// The ledger splits segments into tensors, as the text does.
#[test]
fn tensors_in_the_ledger() {
    let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
    trace.segment(0x7f00_0000_0000, 4 * GIB);
    trace.tensor(0, 0x7f00_0000_0000, GIB);
    trace.tensor(0, 0x7f00_8000_0000, GIB);
    let (member, maps) = read(&trace);
    let text = super::write(&member.summary, &maps, 1);
    let part = &text[text.find("## Who holds").unwrap()..];
    insta::assert_snapshot!(part[..part[3..].find("##").map_or(part.len(), |at| at + 3)].trim_end());
}
