//! What was given beside the trace.

use crate::catalogue;
use crate::conclusion::Summary;
use crate::evidence::model::ModelFacts;
use crate::evidence::smi::{Card, CardProcess};
use crate::evidence::torch_message::{Finding, Numbers, Printed};
use crate::passes::evidence::{
    JoinMoment, JoinedDevice, JoinedHost, JudgedMessage, KernelLine, KernelLog, ProgramLog, Smi, TorchLog,
    TorchSnapshot,
};
use crate::passes::model::{GivenModel, Predicted};
use crate::report::page::{Page, Paint};
use crate::words::{clean, count, gpu, grouped, percent, size};

/// Most messages of a log on the page; the JSON has more.
const MOST_MESSAGES: usize = 5;
/// Most cards, processes, or lines of a log on the page.
const MOST_LINES: usize = 8;

pub(in crate::report) fn write(page: &mut Page, summary: &Summary) {
    let Some(evidence) = &summary.facts.other_evidence else { return };
    page.headed(
        "OTHER EVIDENCE",
        Paint::Bold,
        "what the files say that were given beside the trace; not measured by the recorder",
    );
    let says_more = |log: &&TorchLog| log.count > 0 || evidence.program_logs.iter().all(|other| other.path != log.path);
    evidence.torch_logs.iter().filter(says_more).for_each(|log| write_log(page, log));
    evidence.program_logs.iter().for_each(|log| write_program_log(page, log));
    evidence.torch_snapshots.iter().for_each(|snapshot| write_snapshot(page, snapshot));
    evidence.smi.iter().for_each(|smi| write_smi(page, smi));
    evidence.kernel_logs.iter().for_each(|log| write_kernel_log(page, log));
    evidence.model.iter().for_each(|model| write_model(page, model));
    page.gap();
}

fn file(page: &mut Page, path: &str, what: &str) {
    page.indented("  ", "      ", &format!("{}: {what}", clean(path)));
}

fn note(page: &mut Page, text: &str) {
    page.indented("    ", "      ", text);
}

/// What was said of the model, what follows from it, and what the trace shows of that.
fn write_model(page: &mut Page, model: &GivenModel) {
    let from = if model.from.is_empty() { "the model".to_owned() } else { model.from.join(", ") };
    file(page, &from, &format!("facts of the model: {}", facts_of(&model.facts)));
    let beside = |predicted: &Predicted| match (predicted.nearest_bytes, predicted.is_near) {
        (None, _) => "the trace has no request on a device".to_owned(),
        (Some(nearest), true) if predicted.was_refused => {
            format!("the request of {} that failed is that", size(nearest))
        }
        (Some(nearest), true) => format!("the trace has a block of {}", size(nearest)),
        (Some(nearest), false) => format!("no single request has that; the nearest is {}", size(nearest)),
    };
    if let Some(cache) = &model.kv_cache {
        let context = model.facts.context.map_or_else(String::new, |tokens| format!(" for {} tokens", grouped(tokens)));
        let certain = if model.facts.context_is_certain { "" } else { ", which is all that the model allows" };
        note(page, &format!("KV cache{context}{certain}: {} by the facts; {}", size(cache.bytes), beside(cache)));
    }
    if let Some(weights) = &model.weights {
        note(page, &format!("weights: {} by the facts; {}", size(weights.bytes), beside(weights)));
    }
    if let Some(bytes) = model.training_bytes {
        note(page, &format!("state of a training: {} by the facts", size(bytes)));
    }
    note(page, &format!("the program's blocks came to {} at most on one device", size(model.peak_bytes)));
}

fn facts_of(facts: &ModelFacts) -> String {
    let text = facts.to_toml();
    let lines = text.lines().map(|line| line.replace(" = ", "=").replace('"', ""));
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect::<Vec<_>>().join(", ")
}

fn write_log(page: &mut Page, log: &TorchLog) {
    file(page, &log.path, &count(log.count, "out-of-memory message of PyTorch", "out-of-memory messages of PyTorch"));
    for message in log.messages.iter().take(MOST_MESSAGES) {
        write_message(page, message);
    }
    if log.messages.len() > MOST_MESSAGES {
        note(page, &format!("{} more; --format json has them", log.messages.len() - MOST_MESSAGES));
    }
}

fn write_program_log(page: &mut Page, log: &ProgramLog) {
    file(
        page,
        &log.path,
        &count(
            log.lines.len() as u64,
            "line of llama.cpp or vLLM about memory",
            "lines of llama.cpp or vLLM about memory",
        ),
    );
    for line in log.lines.iter().take(MOST_LINES) {
        note(page, &format!("line {}: {}", line.line, clean(&line.text)));
    }
    more(page, log.lines.len());
}

fn write_message(page: &mut Page, judged: &JudgedMessage) {
    let JudgedMessage { message, judgement, versions, repeated } = judged;
    let of = |name: &str, number: Option<Printed>| number.map(|number| format!("{} {name}", size(number.bytes)));
    let numbers: Vec<String> = [
        of("asked for", message.tried),
        of("in total", message.total),
        of("free", message.free),
        of("in tensors", message.allocated),
        of("reserved and unused", message.unallocated()),
        of("allowed", message.allowed),
    ]
    .into_iter()
    .flatten()
    .collect();
    let device = message.device.map(|device| format!("GPU {device}: ")).unwrap_or_default();
    let said = if numbers.is_empty() { "no numbers in it".to_owned() } else { numbers.join(", ") };
    let again = if *repeated > 0 { format!(" ({} more alike)", repeated) } else { String::new() };
    let version = versions.map(|versions| format!("; the wording of PyTorch {versions}")).unwrap_or_default();
    note(page, &format!("line {}: {device}{said}{version}{again}", message.line));
    for finding in &judgement.findings {
        write_finding(page, finding, &judgement.numbers);
    }
    if !judgement.look_at.is_empty() {
        page.indented("      ", "        ", &format!("to be told apart from: {}", judgement.look_at.join(", ")));
    }
}

fn write_finding(page: &mut Page, finding: &Finding, numbers: &Numbers) {
    let title = catalogue::find(finding.id).map(|entry| format!(": {}", entry.title)).unwrap_or_default();
    let sum = match finding.id {
        "true-capacity" => {
            numbers.free_and_unallocated.map(|sum| format!("; free and unused are {} together", size(sum.bytes)))
        }
        "caching-fragmentation" => {
            numbers.unallocated.map(|sum| format!("; the unused part alone is {}", size(sum.bytes)))
        }
        "process-fraction-cap" => {
            numbers.with_request.map(|sum| format!("; with the request it would be {}", size(sum.bytes)))
        }
        "other-process-on-gpu" | "hidden-runtime-memory" => {
            numbers.outside.map(|sum| format!("; {} are neither free nor PyTorch's", size(sum.bytes)))
        }
        _ => None,
    };
    let doubt =
        if finding.certain { "" } else { " (not certain: the numbers are rounded, or do not say whose memory it is)" };
    page.indented("      ", "        ", &format!("speaks for {}{title}{}{doubt}", finding.id, sum.unwrap_or_default()));
}

fn write_snapshot(page: &mut Page, snapshot: &TorchSnapshot) {
    file(page, &snapshot.path, "a memory snapshot of PyTorch");
    let settings = snapshot.allocator_settings.iter();
    for (name, value) in settings.filter(|(name, value)| name.contains("ALLOC_CONF") && !value.is_empty()) {
        note(page, &format!("allocator: {}={}", clean(name), clean(value)));
    }
    snapshot.devices.iter().for_each(|device| write_device(page, device));
    if let Some(JoinedHost { sums, in_trace_bytes }) = &snapshot.host {
        let blocks = count(sums.blocks, "block", "blocks");
        let (reserved, unused) = (size(sums.reserved_bytes), size(sums.unused_bytes));
        note(
            page,
            &format!(
                "pinned host memory: {reserved} in {blocks} of PyTorch's host allocator, {unused} of it unused; the trace has {} of it \
                 pinned",
                size(*in_trace_bytes)
            ),
        );
    }
}

fn write_device(page: &mut Page, device: &JoinedDevice) {
    let JoinedDevice { moment, join } = device;
    let sums = &join.sums;
    let name = gpu(u8::try_from(sums.device).ok());
    let name = name.trim();
    let mut parts = vec![
        format!("{} reserved in {}", size(sums.reserved_bytes), count(sums.segments, "segment", "segments")),
        format!("{} in tensors", size(sums.allocated_bytes)),
        format!("{} reserved and unused", size(sums.unallocated_bytes)),
        format!("largest free block {}", size(sums.largest_free_block_bytes)),
    ];
    parts.extend((sums.private_bytes > 0).then(|| format!("{} in private pools", size(sums.private_bytes))));
    parts.extend(
        (sums.ooms > 0)
            .then(|| count(sums.ooms, "out-of-memory error in its history", "out-of-memory errors in its history")),
    );
    note(page, &format!("{name}: {}", parts.join(", ")));
    let at = match moment {
        JoinMoment::End => "the end",
        JoinMoment::Peak => "the peak",
    };
    let share = match join.traced_bytes {
        0 => String::new(),
        traced => format!(" ({})", percent(join.common_bytes as f64 / traced as f64)),
    };
    let text = format!(
        "of {} that the trace has live at {at}, {}{share} are PyTorch's segments; {} are not in the snapshot; {} of the \
         snapshot are not in the trace",
        size(join.traced_bytes),
        size(join.common_bytes),
        size(join.only_in_trace_bytes),
        size(join.only_in_snapshot_bytes)
    );
    page.indented("      ", "        ", &text);
}

fn more(page: &mut Page, count: usize) {
    if count > MOST_LINES {
        note(page, &format!("{} more; --format json has them", count - MOST_LINES));
    }
}

fn write_smi(page: &mut Page, smi: &Smi) {
    file(page, &smi.path, &format!("output of {}", smi.report.format));
    for card in smi.report.cards.iter().take(MOST_LINES) {
        let Card { index, pci_bus_id, name, total_bytes, used_bytes, free_bytes, .. } = card;
        let Card { retired_pages, uncorrected_errors, .. } = card;
        let of = |name: &str, bytes: &Option<u64>| bytes.map(|bytes| format!("{} {name}", size(bytes)));
        let mut parts = vec![of("in total", total_bytes), of("in use", used_bytes), of("free", free_bytes)];
        parts.push(retired_pages.filter(|pages| *pages > 0).map(|pages| count(pages, "retired page", "retired pages")));
        let errors = uncorrected_errors.filter(|errors| *errors > 0);
        parts.push(errors.map(|errors| count(errors, "uncorrected memory error", "uncorrected memory errors")));
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let index = index.map_or("a card".to_owned(), |index| format!("card {index}"));
        let place = pci_bus_id.as_deref().map(|place| format!(" at {}", clean(place))).unwrap_or_default();
        let name = name.as_deref().map(|name| format!(" ({})", clean(name))).unwrap_or_default();
        let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
        note(page, &format!("{index}{name}{place}{parts}"));
    }
    more(page, smi.report.cards.len());
    for CardProcess { card, pid, name, used_bytes, .. } in smi.report.processes.iter().take(MOST_LINES) {
        let name = name.as_deref().map(|name| format!(" ({})", clean(name))).unwrap_or_default();
        let card = card.map(|card| format!(" of card {card}")).unwrap_or_default();
        let used = used_bytes.map_or("an unknown amount".to_owned(), size);
        note(page, &format!("process {pid}{name} holds {used}{card}"));
    }
    more(page, smi.report.processes.len());
}

fn write_kernel_log(page: &mut Page, log: &KernelLog) {
    let own = log.lines.iter().filter(|line| line.of_this_process).count() as u64;
    let what = match (log.lines.len() as u64, own) {
        (0, _) => "nothing in the kernel's log about memory, the GPU or a crash".to_owned(),
        (lines, 0) => format!("{} of the kernel, none of which names this process", count(lines, "line", "lines")),
        (lines, own) => format!("{} of the kernel, {own} of them about this process", count(lines, "line", "lines")),
    };
    file(page, &log.path, &what);
    for KernelLine { event, of_this_process, meaning } in log.lines.iter().take(MOST_LINES) {
        let stamp = event.stamp.as_deref().map(|stamp| format!("[{}] ", clean(stamp.trim()))).unwrap_or_default();
        let own = if *of_this_process { "this process: " } else { "" };
        let meaning =
            meaning.map(|meaning| format!(" (Xid {}: {meaning})", event.code.unwrap_or(0))).unwrap_or_default();
        let again = if event.repeated > 0 { format!(" ({} more alike)", event.repeated) } else { String::new() };
        note(page, &format!("{own}{stamp}{}{meaning}{again}", clean(&event.text)));
    }
    more(page, log.lines.len());
}
