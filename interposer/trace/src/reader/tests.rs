//! The reader on files that are cut, damaged or no traces at all.

use std::sync::atomic::Ordering;

use super::*;
use crate::ring::tests::{Memory, record};

const SLOTS: usize = 1024;

/// Opens a file that holds this ring and no chunks.
fn calls_in(memory: &Memory, change: impl FnOnce(&mut Header, &mut Vec<u8>)) -> (Vec<u32>, TraceFile) {
    let mut header = Header::new(SLOTS as u64, 1 << 28, 1);
    (header.head, header.tail) = (memory.head.load(Ordering::Relaxed), memory.tail.load(Ordering::Relaxed));
    let mut bytes = vec![0; header.ring_offset as usize];
    bytes.extend(memory.bytes());
    change(&mut header, &mut bytes);
    bytes[..HEADER_BYTES].copy_from_slice(bytemuck::bytes_of(&header));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let mut trace = TraceFile::open(file.path()).unwrap();
    let mut calls = Vec::new();
    let read: Result<(), ()> = trace.for_each_batch(|batch| {
        calls.extend(batch.records.iter().map(|record| record.call));
        Ok(())
    });
    read.unwrap();
    (calls, trace)
}

#[test]
fn the_ring_is_read_up_to_what_was_committed() {
    let memory = Memory::new(SLOTS);
    memory.ring().publish(&record(1)).unwrap();
    memory.head.fetch_add(1, Ordering::Relaxed);
    memory.ring().publish_long(&record(2), &[7; 100]).unwrap();
    let (calls, trace) = calls_in(&memory, |_, _| ());
    assert_eq!((calls, trace.header.torn), (vec![1, 2], 1));
    assert_eq!(trace.damages(), []);
}

/// A thread that was stopped inside its claim committed after the drainer had gone on; then the process was killed.
#[test]
fn a_record_that_came_late_is_found() {
    let memory = Memory::new(SLOTS);
    let stopped = memory.head.fetch_add(1, Ordering::Relaxed);
    memory.ring().publish(&record(1)).unwrap();
    let mut out = vec![[0; 8]; 16];
    let taken = memory.ring().take(&mut out, true);
    memory.ring().give_back(&taken);
    memory.commit(stopped, &record(9));
    memory.ring().publish(&record(2)).unwrap();
    assert_eq!(calls_in(&memory, |_, _| ()).0, [9, 2]);
}

#[test]
fn lies_in_the_header_are_damage_and_not_a_panic() {
    let memory = Memory::new(SLOTS);
    memory.ring().publish(&record(1)).unwrap();
    let lies: [fn(&mut Header); 5] = [
        |header| header.head = u64::MAX,
        |header| header.tail = u64::MAX,
        |header| header.chunks_end = u64::MAX,
        |header| header.in_flight_offset = u64::MAX,
        |header| header.in_flight_entries = u32::MAX,
    ];
    for lie in lies {
        calls_in(&memory, |header, _| lie(header)).1.calls_under_way();
    }
    let (calls, trace) = calls_in(&memory, |_, bytes| bytes.truncate(50_000));
    assert!(calls.is_empty() && trace.damages().len() == 1);
}

#[test]
fn what_is_no_trace_is_refused_by_name() {
    let refuse = |bytes: &[u8]| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        TraceFile::open(file.path()).unwrap_err().to_string()
    };
    assert!(refuse(b"").contains("still empty"));
    assert!(refuse(&[0; 5000]).contains("still empty"));
    assert!(refuse(b"#!/bin/sh").contains("not a gpuoom trace"));
    assert!(refuse(&MAGIC).contains("ends inside the header"));
    let mut newer = Header::new(SLOTS as u64, 1 << 28, 1);
    newer.major = FORMAT_MAJOR + 1;
    assert!(refuse(bytemuck::bytes_of(&newer)).contains("use a newer gpuoom-analyze"));
    let mut odd = Header::new(SLOTS as u64, 1 << 28, 1);
    odd.ring_slots = 3;
    assert!(refuse(bytemuck::bytes_of(&odd)).contains("offset 24"));
}

#[test]
fn what_is_no_file_is_refused_without_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let refuse = |path: &Path| TraceFile::open(path).unwrap_err().to_string();
    assert!(refuse(directory.path()).contains("a directory, and a trace is a file; name the traces that are in it"));
    assert!(refuse(&directory.path().join("no.bin")).contains("there is no such file"));
    let pipe = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(refuse(&pipe).contains("a pipe, and a trace is a file; save what comes out of it"));
    assert!(refuse(Path::new("/dev/zero")).contains("a device"));
}

/// What is said once is not said again by `{:#}`, which adds all sources of an error.
#[test]
fn an_error_of_the_system_is_said_once() {
    let error = unreadable(Path::new("t.bin"), std::io::ErrorKind::PermissionDenied.into());
    assert_eq!(error.to_string(), "t.bin: permission denied");
    assert!(std::error::Error::source(&error).is_none());
}

#[test]
fn a_cut_before_the_chunks_says_how_much_is_missing_once() {
    let memory = Memory::new(SLOTS);
    let (_, mut trace) = calls_in(&memory, |header, bytes| {
        header.chunks_end = header.chunks_offset + 1000;
        bytes.truncate(6000);
    });
    let missing = trace.header.chunks_end - 6000;
    let found = trace.damages().to_vec();
    assert_eq!(found[0].offset, 6000);
    assert_eq!(found[0].reason, format!("the file ends here, {missing} bytes before the end of its chunks"));
    let again: Result<(), ()> = trace.for_each_batch(|_| Ok(()));
    again.unwrap();
    assert_eq!(trace.damages(), found);
}
