//! Mesa's Vulkan for AMD (RADV), unmodified, over the simulated card: what it takes by the DRM against the card's own log, and what the
//! report says of memory that the kernel may put on the card or into the host's.

use gpuoom_tests::{Client, MIB, assert_addresses_alternate, assert_kernel_agrees, vulkan_client};

const CARD: u64 = 8 << 30;

fn tour() -> Option<Client> {
    vulkan_client("vulkan_tour")
}

#[test]
fn each_buffer_is_recorded_once() {
    for run in [tour(), tour().map(|client| client.arg("half"))].into_iter().flatten().map(|client| client.run_both()) {
        assert_addresses_alternate(&assert_kernel_agrees(&run));
        let report = run.only_trace().report();
        report.assert_nothing_lost();
        assert_eq!(report.number("/devices/0/end/live_allocations"), 0, "the tour frees everything");
        assert_eq!(report.number("/devices/0/total_bytes"), CARD);
        assert!(run.stdout.contains("visible: 42"), "{}", run.stdout);
    }
}

/// More than the card has fits, because the kernel puts buffers into the host's memory. So the card is not what is full.
#[test]
fn a_refusal_is_of_the_card_and_of_gtt() {
    let Some(client) = tour() else { return };
    let run = client.run_recorded();
    assert!(run.stdout.contains("30 blocks, then -2"), "{}", run.stdout);
    let report = run.only_trace().report();
    assert_eq!(report.number("/ooms/0/requested_bytes"), 512 * MIB);
    assert_eq!(report.text("/ooms/0/refused_by"), "kernel");
    assert_eq!(run.confidence("gtt-exhaustion").as_deref(), Some("probable"));
    assert_eq!(run.confidence("true-capacity"), None);
    let page = run.page();
    assert!(page.contains("GEM buffers, 31 blocks, 15.00 GiB asked; its pages move"), "{page}");
    assert!(page.contains("held then: 15.00 GiB asked, in 31 blocks, all of which may lie in RAM"), "{page}");
    // Loader, driver and libdrm only pass on.
    let own = page.lines().find(|line| line.contains("managed, may lie in RAM: "));
    assert!(own.is_some_and(|line| line.contains("(vulkan_tour)")), "{page}");
}

/// With little GTT, buffers fill the card: still no call tells where they lie.
#[test]
fn nothing_is_said_of_where_buffers_lie() {
    let Some(client) = tour() else { return };
    let run = client.env("SIM_GTT", "256M").run_recorded();
    assert!(run.stdout.contains("15 blocks, then -2"), "{}", run.stdout);
    assert_eq!(run.confidence("true-capacity"), None);
    assert_eq!(run.confidence("gtt-exhaustion").as_deref(), Some("probable"));
}

/// What stays from step to step is told of buffers that may lie in RAM, too; how much of it the card holds is not known.
#[test]
fn buffers_that_stay_are_a_rise() {
    let Some(client) = tour() else { return };
    let run = client.arg("leak").run_recorded();
    assert!(run.stdout.contains("leaked"), "{}", run.stdout);
    assert_eq!(run.confidence("live-leak").as_deref(), Some("possible"));
    let page = run.page();
    assert!(page.contains("GPU 0: 64 MiB more after each cycle"), "{page}");
    assert!(page.contains("may lie in RAM: when the card would be full is not foretold"), "{page}");
}
