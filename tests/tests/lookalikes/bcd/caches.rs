//! B. What looks like fragmentation: of a cache, or by rounding.

use super::of_torch;
use crate::looks_like;
use crate::machine::Machine;
use crate::scene::Scene;

/// PyTorch's message for a request, what was free, what it had in use, and what it held unused.
fn message(gpu: u32, asked: &str, free: &str, in_use: &str, unused: &str) -> String {
    format!(
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate {asked}. GPU {gpu} has a total capacity of 23.98 GiB of \
         which {free} is free. Of the allocated memory {in_use} is allocated by PyTorch, and {unused} is reserved by PyTorch but \
         unallocated.\n"
    )
}

pub(crate) fn scenes() -> Vec<Scene> {
    [split(), greed(), plateau(), rounding()].concat()
}

fn split() -> Vec<Scene> {
    let id = "caching-fragmentation";
    let full = "push 1022M 24; alloc x 8746M";
    let adam = "push 96M; push 33M; push 40M; push 21M; push 57M; push 12M; push 71M; push 84M; push 18M; push 29M;";
    vec![
        of_torch(id, "even packed without a gap it would not fit", full)
            .given("--torch-log", message(0, "8.54 GiB", "0 bytes", "16.10 GiB", "7.10 GiB"))
            .also(&["true-capacity"]),
        of_torch(id, "the message is of an earlier run, whose log was appended to", "push 1022M 24; alloc x 1200M")
            .given("--torch-log", message(0, "8.54 GiB", "0 bytes", "11.97 GiB", "9.27 GiB"))
            .also(&["true-capacity"]),
        of_torch(
            id,
            "the message is of an earlier run on a full card, and asked for as much",
            "push 980M 17; alloc x 8746M",
        )
        .given("--torch-log", message(0, "8.54 GiB", "0 bytes", "11.97 GiB", "9.27 GiB")),
        of_torch(id, "the message is of another card", full)
            .given("--torch-log", message(3, "8.54 GiB", "0 bytes", "11.97 GiB", "9.27 GiB"))
            .also(&["true-capacity"]),
        of_torch(
            id,
            "a library beside PyTorch was refused; PyTorch's own message came before, and was caught",
            "push 980M 20; through {lib}/librccl.so; alloc x 8746M",
        )
        .library("librccl.so")
        .given("--torch-log", message(0, "12.00 GiB", "4.00 GiB", "10.00 GiB", "9.50 GiB"))
        .also(&["true-capacity"]),
        of_torch(
            id,
            "Adam's state, made at the first step, fills the card",
            &format!(
                "loop 8; {adam} end; push 200M; launch; pop 1; loop 16; {adam} end; push 4G; push 5G; \
                 alloc s 200M; failures retry; on_failure; sync; free s; end; alloc x 3G"
            ),
        )
        .also(&["true-capacity", "oom-optimizer-step"]),
        of_torch(
            id,
            "expandable segments are on and work: handles are mapped",
            "loop 1; virtual v 20G; end; virtual w 5G",
        )
        .set("PYTORCH_HIP_ALLOC_CONF", "expandable_segments:True")
        .given("--torch-log", message(0, "5.00 GiB", "3.98 GiB", "14.00 GiB", "5.50 GiB"))
        .also(&["true-capacity"]),
    ]
}

fn greed() -> Vec<Scene> {
    let id = "cache-greed";
    vec![
        looks_like(
            id,
            "a solver without any cache gives up its old grid to make a larger one",
            "push 2G 10; failures retry; on_failure; sync; pop 3; end; alloc x 8G",
        )
        .also(&["true-capacity"]),
        of_torch(
            id,
            "the program asks for half after it freed memory",
            "push 1G 22; failures go; alloc x 4G; pop 4; alloc y 2G; launch",
        )
        .also(&["true-capacity"]),
        of_torch(
            id,
            "another thread gave its buffers back meanwhile",
            "push 1G 22; failures retry; on_failure; thread other; pop 4; end; end; alloc x 4G",
        )
        .also(&["true-capacity"]),
        of_torch(
            id,
            "a user pressed a button: the model goes, and five seconds later a new one comes",
            "push 1G 22; failures go; alloc x 4G; query; sleep 1500; pop 4; alloc y 4G; launch",
        )
        .also(&["true-capacity"]),
        of_torch(
            id,
            "little was freed, and what was freed before comes back at the synchronisation",
            "async a 12G; alloc s 100M; async b 6G; free a; failures retry; on_failure; free s; sync; end; alloc c 10G",
        )
        .set("SIM_FREES_WAIT", 1)
        .also(&["async-free-pending"]),
    ]
}

fn plateau() -> Vec<Scene> {
    let id = "reserved-plateau";
    vec![
        looks_like(
            id,
            "4 MiB of each step stay beside 14 GiB: little, and without an end",
            "push 14G; loop 40; alloc l 4M; push 300M 4; pop 4; end",
        )
        .also(&["live-leak"]),
        looks_like(
            id,
            "flat for twenty steps, and at the end it rises again",
            "loop 5; alloc a 100M; push 300M 4; pop 4; end; loop 15; push 300M 4; pop 4; end; loop 12; alloc b 100M; push 300M 4; pop 4; end",
        )
        .also(&["live-leak"]),
        looks_like(
            id,
            "it is flat because the card is full, and each further block is refused",
            "failures go; loop 60; alloc a 1G; push 30M 4; pop 4; launch; end",
        )
        .also(&["live-leak", "true-capacity", "dropped-oom-return"]),
    ]
}

fn rounding() -> Vec<Scene> {
    let card =
        |id, story, script: &str| looks_like(id, story, script).on(Machine::card_of(14_600)).also(&["true-capacity"]);
    let both = |story: &'static str, script: &'static str| {
        ["granularity-waste", "mixed-size-padding"].map(|id| card(id, story, script))
    };
    // The first ones are far apart in time, so that readings stand around each; the small ones come at once.
    let watched = "loop 10; push 512M; sleep 45; end; push 3M 40; push 512M 17; push 250M 2; alloc x 600M";
    let aligned = both(
        "large blocks begin at multiples of 256 MiB, as an address for huge pages does, and take what they ask for",
        "push 201863463 50; push 134217728 30; alloc x 600M",
    )
    .map(|scene| scene.set("SIM_ALIGNMENT", "256M"));
    let falls = both("only the blocks of 512 MiB were seen to take a multiple of 256", watched);
    let far = both(
        "blocks of 300 MiB begin at multiples of 256 MiB, and something else refuses the next one",
        "push 300M 45; alloc x 600M",
    )
    .map(|scene| {
        scene.set("SIM_ALIGNMENT", "256M").set("SIM_PROCESS_LIMIT", "13900M").also(&["phantom-free", "true-capacity"])
    });
    let few = both("one block at a round address says nothing of any rounding", "push 13500M; alloc x 1200M")
        .map(|scene| scene.set("SIM_ALIGNMENT", "256M"));
    let own = both("the program rounds all it asks for to 256 MiB by itself", "push 256M 30; push 512M 12; alloc x 1G");
    [aligned, falls, far, few, own].concat()
}
