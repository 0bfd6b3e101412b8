use super::redacted::{self, Redacted};
use crate::bundle::redact::{Keep, Redactor};
use crate::evidence::Source;

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
