//! The trace file and the program's own files: nothing may be in the way of either, and neither may damage the other.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use gpuoom_tests::{Client, Finished, MIB, Trace, program};
use tempfile::TempDir;

fn traces_in(dir: &Path) -> Vec<Trace> {
    let mut paths: Vec<_> =
        fs::read_dir(dir).expect("the directory").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.into_iter().map(Trace::new).collect()
}

/// A trace that was cut short by its surroundings is read up to the cut, or refused with exit status 3; the analyzer
/// neither dies of it nor says nothing.
fn assert_readable_or_refused(trace: &Trace) {
    let output = trace.analyze_anyway(&["report", "--format", "json"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => assert!(!output.stdout.is_empty()),
        Some(3) => assert!(stderr.contains(&*trace.path.to_string_lossy()), "the file is not named: {stderr}"),
        other => panic!("{other:?}: {stderr}"),
    }
}

#[test]
fn directory_that_is_none_costs_one_line() {
    let run = Client::new(program("linked.c")).env("GPUOOM_TRACE", "/dev/null/trace.bin").run_both();
    assert_eq!(run.recorder_lines().len(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("/dev/null/trace.bin"), "the path is not named: {}", run.stderr);
}

#[test]
fn directory_that_is_none_stays_quiet_when_asked() {
    let client = Client::new(program("linked.c")).env("GPUOOM_TRACE", "/dev/null/trace.bin").env("GPUOOM_LOG", "off");
    assert_eq!(client.run_both().stderr, "");
}

/// A directory as the place of the trace means: in there, under the usual name.
#[test]
fn directory_gets_the_trace_under_its_usual_name() {
    let place = TempDir::new().expect("a directory");
    for pattern in [place.path().to_owned(), place.path().join("")] {
        let run = Client::new(program("linked.c")).env("GPUOOM_TRACE", pattern).run_both();
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    }
    let names: Vec<String> =
        traces_in(place.path()).iter().map(|trace| trace.path.file_name().unwrap().to_string_lossy().into()).collect();
    assert!(names.len() == 2 && names.iter().all(|name| name.starts_with("gpuoom-linked-")), "{names:?}");
}

/// A path is bytes, and only what the user wrote is a pattern.
#[test]
fn directory_of_odd_bytes_is_used_as_it_is() {
    let place = TempDir::new().expect("a directory");
    for name in [OsStr::from_bytes(b"odd\xff"), OsStr::new("50%p")] {
        let own = place.path().join(name);
        fs::create_dir(&own).expect("a directory in it");
        let run = Client::new("/bin/sh").args(["-c", "cd \"$0\" && exec \"$1\""]).arg(&own).arg(program("linked.c"));
        let run = run.env("GPUOOM_TRACE", "%e.trace.bin").run_recorded();
        assert_eq!(run.recorder_lines().len(), 0, "{}", run.stderr);
        assert!(own.join("linked.trace.bin").exists(), "{:?}", traces_in(&own));
    }
}

/// Mounts a tmpfs on `dir` in a mount namespace of the calling thread's own: only the thread and its children see it,
/// and it goes with them.
fn mount_small_disk(dir: &Path, options: &str) -> io::Result<()> {
    let target = CString::new(dir.as_os_str().as_encoded_bytes())?;
    let options = CString::new(options)?;
    let none = c"none".as_ptr();
    let done = |status: i32| if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: NUL-terminated strings that outlive the calls, null where mount takes nothing; the namespace is the calling
    // thread's, which was made for this.
    unsafe {
        done(libc::unshare(libc::CLONE_NEWNS))?;
        done(libc::mount(none, c"/".as_ptr(), std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE, std::ptr::null()))?;
        done(libc::mount(none, target.as_ptr(), c"tmpfs".as_ptr(), 0, options.as_ptr().cast()))
    }
}

/// Runs `many` with its trace on a disk of that size and checks what is left there; nothing where none can be mounted.
fn on_small_disk(name: &str, options: &str, rounds: &str, check: fn(&Finished, &[Trace])) {
    let run = || {
        let disk = TempDir::new().expect("a directory to mount on");
        if let Err(error) = mount_small_disk(disk.path(), options) {
            eprintln!("skipped: {name} (no tmpfs can be mounted here: {error})");
            return;
        }
        let trace = disk.path().join("%e-%p.trace.bin");
        let run =
            Client::new(program("many.c")).arg(rounds).env("GPUOOM_TRACE", trace).without_env("SIM_LOG").run_both();
        assert_eq!(run.exit_code(), 0);
        let traces = traces_in(disk.path());
        assert!(!traces.is_empty() || !run.recorder_lines().is_empty(), "nothing is recorded, and nobody was told");
        check(&run, &traces);
    };
    std::thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[test]
fn disk_without_room_is_not_the_programs_problem() {
    on_small_disk("disk_without_room", "size=64k", "2000", |run, traces| {
        assert_ne!(run.recorder_lines().len(), 0, "64 KiB hold no recording, and nobody was told");
        traces.iter().for_each(assert_readable_or_refused);
    });
}

#[test]
fn disk_that_fills_up_later_keeps_what_fits() {
    // Room for a start, whatever the ring takes, but not for all of it.
    on_small_disk("disk_that_fills_up", "size=24m", "300000", |_, traces| {
        traces.iter().for_each(assert_readable_or_refused);
    });
}

#[test]
fn disk_without_inodes_is_not_the_programs_problem() {
    // One inode: the root directory's own.
    on_small_disk("disk_without_inodes", "nr_inodes=1", "100", |_, traces| assert!(traces.is_empty(), "{traces:?}"));
}

// The limit would end the simulated device's own log too, so both do without.
#[test]
fn file_size_limit_from_the_start_does_not_kill() {
    let run = Client::new(program("file_size_limit.c")).arg("early").without_env("SIM_LOG").run_both();
    assert_eq!(run.exit_code(), 0);
    run.traces().iter().for_each(assert_readable_or_refused);
}

#[test]
fn file_size_limit_after_the_first_call_does_not_kill() {
    let run = Client::new(program("file_size_limit.c")).arg("late").without_env("SIM_LOG").run_both();
    assert_eq!(run.exit_code(), 0);
    let own = fs::read_to_string(run.cwd().join("own.txt")).expect("the program's own file");
    assert_eq!(own, (0..30).map(|i| format!("{}\n", i * 100)).collect::<String>());
    let events = run.only_trace().events();
    assert!(events.iter().any(|event| event.is_allocation()), "the time before the limit is lost");
}

#[test]
fn reused_descriptors_are_left_alone() {
    let run = Client::new(program("reused_descriptors.c")).run_both();
    assert_eq!(run.stdout, "0 damaged\n");
    for (number, path) in run.files_in_cwd().iter().enumerate() {
        let wanted = vec![b'a' + number as u8; 8192];
        assert!(fs::read(path).expect("an own file") == wanted, "{} is damaged", path.display());
    }
    run.assert_trace_is_true();
    let report = run.only_trace().report();
    report.assert_nothing_lost();
    assert_eq!(report.number("/devices/0/allocations"), 301);
}

#[test]
fn changed_root_does_not_end_the_recording() {
    let client = Client::new(program("chrooted.c"));
    if client.run_plain().status.code() == Some(77) {
        eprintln!("skipped: changed_root (chroot is not allowed here)");
        return;
    }
    // The device's own log has no path either after the change: the program's design says what it allocated.
    let run = client.run_both();
    let events = run.only_trace().events();
    let sizes: Vec<_> =
        events.iter().filter(|event| event.is_allocation()).map(|event| event.requested_bytes()).collect();
    assert_eq!(sizes, [vec![22 * MIB], vec![23 * MIB; 200]].concat());
    let report = run.only_trace().report();
    assert_eq!(report.number("/devices/0/frees"), 201);
    report.assert_nothing_lost();
}

#[test]
fn data_file_under_the_number_of_stderr_is_left_alone() {
    let run = Client::new(program("stderr_reused.c")).env("GPUOOM_LOG", "debug").run_both();
    assert_eq!(run.exit_code(), 0);
    assert_eq!(fs::read_to_string(run.cwd().join("data.txt")).expect("the data file"), "first\nsecond\n");
    run.only_trace().report().assert_only_oom("dropped", "gpu_work_continued");
}

#[test]
fn trace_goes_to_the_current_directory_by_default() {
    let run = Client::new(program("linked.c")).without_env("GPUOOM_TRACE").run_both();
    let files = run.files_in_cwd();
    assert_eq!(files.len(), 1, "{files:?}");
    let pid = Trace::new(files[0].clone()).pid();
    assert_eq!(files[0].file_name().expect("a name").to_string_lossy(), format!("gpuoom-linked-{pid}.trace.bin"));
}

#[test]
fn pattern_names_executable_host_rank_and_process() {
    let dir = TempDir::new().expect("a directory for traces");
    let client =
        Client::new(program("linked.c")).env("RANK", "3").env("GPUOOM_TRACE", dir.path().join("%e_%h_%r_%p.bin"));
    client.run_recorded();
    let traces = traces_in(dir.path());
    assert_eq!(traces.len(), 1);
    let report = traces[0].report();
    let wanted = format!("linked_{}_3_{}.bin", report.text("/process/hostname"), report.number("/process/pid"));
    assert_eq!(traces[0].path.file_name().expect("a name").to_string_lossy(), wanted);
}

#[test]
fn second_process_does_not_overwrite_the_first_ones_trace() {
    let dir = TempDir::new().expect("a directory for traces");
    let client = Client::new(program("linked.c")).env("GPUOOM_TRACE", dir.path().join("same.bin"));
    client.run_recorded();
    let first = Trace::new(dir.path().join("same.bin"));
    let (first_pid, first_bytes) = (first.pid(), fs::read(&first.path).expect("the first trace"));
    client.run_recorded();
    assert_eq!(first.pid(), first_pid);
    assert!(fs::read(&first.path).expect("the first trace") == first_bytes, "the first trace changed");
    let traces = traces_in(dir.path());
    assert_eq!(traces.len(), 2, "{traces:?}");
    let second_pid = traces[1].pid();
    assert_ne!(second_pid, first_pid);
    assert_eq!(traces[1].path, dir.path().join(format!("same.bin.{second_pid}")));
}

#[test]
fn bad_value_costs_one_line_and_the_default_is_used() {
    let run = Client::new(program("linked.c")).env("GPUOOM_GRANULARITY", "banana").run_both();
    assert_eq!(run.recorder_lines().len(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("GPUOOM_GRANULARITY") && run.stderr.contains("banana"), "{}", run.stderr);
    assert_eq!(run.only_trace().report().number("/devices/0/granularity_bytes"), 256 * MIB);
}

#[test]
fn granularity_pads_the_record() {
    let run = Client::new(program("linked.c")).env("GPUOOM_GRANULARITY", "2M").run_both();
    let events = run.only_trace().events();
    let padded: Vec<_> =
        events.iter().filter(|event| event.is_allocation()).map(|event| event.padded_bytes()).collect();
    assert_eq!(padded, [300 * MIB, 6 * MIB, 2 * MIB, 2 * MIB]);
}

#[test]
fn disabled_recorder_records_nothing() {
    let run = Client::new(program("oom_ignored_launch.c")).env("GPUOOM_DISABLE", "1").run_both();
    assert_eq!(run.traces().len(), 0);
    assert_eq!(run.stderr, "");
}
