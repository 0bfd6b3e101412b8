use super::issue;
use super::redacted::{self, Redacted};
use crate::bundle::issue::{Known, fill};
use crate::bundle::redact::{Keep, Redactor};
use crate::evidence::Source;
use crate::testing::{GIB, MIB, TraceBuilder, summary};

fn issue_of(trace: &TraceBuilder) -> String {
    let summaries = [summary(trace)];
    issue::write(&fill(&Known { summaries: &summaries, readings: &[], evidence: &[] }).unwrap(), &[])
}

/// A diagnosis that is only possible is named in the title, and as possible.
#[test]
fn the_title_names_what_is_possible() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    for step in 0..30 {
        trace.alloc(0x100_0000_0000 + step * GIB, 300 * MIB);
        trace.alloc(0x20_0000_0000, 4 * GIB);
        trace.free(0x20_0000_0000);
    }
    let healthy = issue_of(&trace);
    assert!(
        healthy.starts_with("# GPU memory on card; possible: live memory is higher after later rises and falls"),
        "{healthy}"
    );
    trace.refuse(16 * GIB);
    let failed = issue_of(&trace);
    assert!(failed.starts_with("# Out of GPU memory on card; possible: live memory is higher"), "{failed}");
    assert!(failed.contains("Not sure: `live-leak`, possible: "), "{failed}");
    let mut unknown = TraceBuilder::default().device(0, "card", 24 * GIB);
    unknown.refuse(MIB);
    let unknown = issue_of(&unknown);
    assert!(unknown.starts_with("# Out of GPU memory on card; why is not known"), "{unknown}");
}

#[test]
fn what_was_redacted() {
    let mut redactor = Redactor::new(Keep { marks: true, ..Keep::default() });
    redactor.learn_user("alice");
    let log =
        "torch.OutOfMemoryError: CUDA out of memory on alice's card\nhello\nat /home/alice/acme.py: out of memory\n";
    redactor.evidence(Source::TorchLog, "evidence/torch-log-01.txt", log);
    redactor.left_out("memory snapshots of PyTorch");
    let damage = ["traces/01.trace.bin: offset 77 of the original: a chunk of 5 events is damaged".to_owned()];
    insta::assert_snapshot!(redacted::write(&Redacted { log: redactor.log(), kept: &["marks"], unreadable: &damage }));
    let empty = Redactor::default();
    let page = redacted::write(&Redacted { log: empty.log(), kept: &[], unreadable: &[] });
    assert!(page.contains("Nothing had to be replaced."), "{page}");
}
