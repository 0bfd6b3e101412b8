//! Failures on request (`GPUOOM_INJECT`): which calls fail, what the program is told, what becomes of it.

use gpuoom_tests::{Client, Finished, Library, program, program_with};

fn numbered(inject: &str, more: &[(&str, &str)]) -> Finished {
    let client = Client::new(program("alloc_numbered.c")).env("GPUOOM_INJECT", inject).env("GPUOOM_PROBE", "off");
    let run = more.iter().fold(client, |client, (name, value)| client.env(name, *value)).run_recorded();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    assert_eq!(run.recorder_lines().iter().filter(|line| line.contains("expected")).count(), 0, "{}", run.stderr);
    run
}

#[test]
fn calls_fail_by_number_by_size_and_together() {
    assert_eq!(numbered("oom@3", &[]).stdout, "3:2 \n");
    assert_eq!(numbered("oom@5,oom@20", &[]).stdout, "5:2 20:2 \n", "host memory counts");
    assert_eq!(numbered("oom>18M", &[]).stdout, "19:2 20:2 \n", "above, not at");
    assert_eq!(numbered("oom@1,oom>19M", &[]).stdout, "1:2 20:2 \n");
    let run = numbered("oom>18M", &[]);
    let reached: Vec<u64> = run.truth().iter().map(|line| line.requested_bytes() >> 20).collect();
    assert_eq!(reached, (1..=18).collect::<Vec<_>>(), "what is refused does not reach the device");
    let report = run.only_trace().report();
    assert_eq!(report.count("/ooms"), 2);
    assert_eq!((report.text("/ooms/1/injected/reason"), report.number("/ooms/1/injected/call")), ("size", 20));
    assert_eq!(report.causes(), ["requested-refusal"; 2]);
}

#[test]
fn chance_follows_the_seed() {
    let of_seed = |seed| numbered("oom%40", &[("GPUOOM_SEED", seed)]).stdout;
    let first = of_seed("1");
    assert_eq!(first, of_seed("1"));
    assert_ne!(first, of_seed("2"));
    assert_eq!(numbered("oom%100", &[]).stdout.split_whitespace().count(), 20);
    assert_eq!(numbered("oom%0", &[]).stdout, "\n");
}

/// The same questions about the last error, after failures on request and after the device's own.
#[test]
fn the_last_error_is_the_runtimes_own() {
    for settings in [[("SIM_LAST_ERROR", "rocm6")], [("SIM_LAST_ERROR", "rocm7")]] {
        let client = || {
            let client = Client::new(program_with("last_error.c", Library::Hip)).env("GPUOOM_PROBE", "off");
            settings.iter().fold(client, |client, (name, value)| client.env(name, *value))
        };
        let own = client().run_plain();
        let requested = client().env("GPUOOM_INJECT", "oom>4095G").env("SIM_CAPACITY", "8T").run_recorded();
        assert_eq!((&requested.stdout, requested.status), (&own.stdout, own.status), "{settings:?}");
        assert_eq!(requested.truth().iter().filter(|line| line.event() == "failed").count(), 0);
    }
}

#[test]
fn without_recording_nothing_is_refused() {
    let client = Client::new(program("alloc_numbered.c")).env("GPUOOM_INJECT", "oom%100");
    assert_eq!(client.env("GPUOOM_DISABLE", "1").run_recorded().stdout, "\n");
}
