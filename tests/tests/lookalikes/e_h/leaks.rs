//! What rises, and is no leak: it stopped, it came in steps, it is given back later, or it is one thing that grows.

use super::TOO_MUCH;
use crate::looks_like;
use crate::scene::Scene;

pub(crate) fn scenes() -> Vec<Scene> {
    [stopped(), stepped(), given_back(), of_one_thing()].concat()
}

/// A request's or a step's temporaries.
const WORK: &str = "alloc t 512M; alloc u 300M; launch; free u; free t;";

fn leak(story: &'static str, script: String) -> Scene {
    looks_like("live-leak", story, script).also(&["true-capacity"])
}

fn stopped() -> Vec<Scene> {
    vec![
        leak(
            "a cache of answers is full after 24 requests; the 65th asks for too much",
            format!("alloc m 2G; loop 24; push 64M; {WORK} end; loop 40; {WORK} end; {TOO_MUCH}"),
        ),
        leak(
            "the same, and no request fails",
            format!("alloc m 2G; loop 24; push 64M; {WORK} end; loop 12; {WORK} end"),
        ),
        leak(
            "a solver's workspaces grow over its first nine sizes of matrices and are kept; 30 more solve the same sizes",
            format!("alloc m 2G; loop 9; push 100M+30M; {WORK} end; loop 30; {WORK} end; {TOO_MUCH}"),
        ),
        leak(
            "a cache that fills more and more slowly: 640, 320, 160, 80 ... MiB for five requests each",
            format!(
                "alloc m 2G; loop 5; push 640M; {WORK} end; loop 5; push 320M; {WORK} end; loop 5; push 160M; {WORK} end; \
                 loop 5; push 40M; {WORK} end; loop 5; push 10M; {WORK} end; loop 12; {WORK} end; {TOO_MUCH}"
            ),
        ),
        leak(
            "a window of the last eight frames, which fills and then moves",
            format!(
                "alloc m 2G; alloc a 300M; {WORK} alloc b 300M; {WORK} alloc c 300M; {WORK} alloc d 300M; {WORK} alloc e 300M; \
                 {WORK} alloc f 300M; {WORK} loop 8; free a; alloc a 300M; {WORK} free b; alloc b 300M; {WORK} free c; \
                 alloc c 300M; {WORK} free d; alloc d 300M; {WORK} free e; alloc e 300M; {WORK} free f; alloc f 300M; {WORK} end; \
                 {TOO_MUCH}"
            ),
        ),
    ]
}

fn stepped() -> Vec<Scene> {
    vec![
        leak(
            "a second mesh after half of the steps: one step up",
            format!("alloc m 2G; loop 20; {WORK} end; push 3G; loop 20; {WORK} end; {TOO_MUCH}"),
        ),
        leak(
            "a second mesh in the last third of the steps",
            format!("alloc m 2G; loop 30; {WORK} end; push 3G; loop 9; {WORK} end; {TOO_MUCH}"),
        ),
        leak(
            "three stages of a simulation, each with fields of its own",
            format!(
                "alloc m 2G; loop 14; {WORK} end; push 1G; loop 14; {WORK} end; push 1G; loop 14; {WORK} end; push 1G; \
                 loop 14; {WORK} end; {TOO_MUCH}"
            ),
        ),
        leak(
            "two tenants of a server: the second comes late, with a cache that fills in six requests",
            format!(
                "alloc m 2G; loop 6; push 50M; {WORK} end; loop 20; {WORK} end; loop 6; push 50M; {WORK} end; loop 20; {WORK} \
                 end; {TOO_MUCH}"
            ),
        ),
        leak(
            "a loader that fills the card shard by shard, with a staging buffer for each",
            format!("loop 48; alloc s 256M; push 500M; copy -; free s; end"),
        ),
        leak(
            "columns of a table are read one by one through a buffer that is given back, and then queries run",
            format!("loop 20; alloc s 256M; push 500M; copy -; free s; end; loop 20; {WORK} end; {TOO_MUCH}"),
        ),
    ]
}

fn given_back() -> Vec<Scene> {
    let filled = format!("loop 10; push 64M; {WORK} end;");
    vec![
        leak(
            "a cache that is emptied after each ten requests; the last fails in its sixth round",
            format!("alloc m 2G; loop 5; {filled} pop; end; loop 8; push 64M; {WORK} end; {TOO_MUCH}"),
        ),
        leak(
            "results of ten steps stay until they are written to disk; the run ends before the writing",
            format!("alloc m 2G; loop 4; {filled} pop; end; loop 9; push 64M; {WORK} end"),
        ),
        leak(
            "floors that go up and down with the data of each step",
            format!(
                "alloc m 2G; loop 12; alloc a 900M; {WORK} alloc b 300M; {WORK} free a; alloc c 700M; {WORK} free b; \
                 alloc d 500M; {WORK} free c; {WORK} free d; end; {TOO_MUCH}"
            ),
        ),
    ]
}

fn of_one_thing() -> Vec<Scene> {
    vec![
        leak(
            "an array of particles that is replaced by a larger one at each step: one block, and no second one stays",
            format!(
                "alloc m 2G; alloc a 1G; loop 14; alloc b 1100M+200M; launch; free a; {WORK} alloc a 1200M+200M; launch; \
                 free b; {WORK} end; {TOO_MUCH}"
            ),
        ),
        leak(
            "a list of contacts that is doubled when it is full",
            format!(
                "alloc m 2G; alloc a 256M; loop 10; {WORK} end; alloc b 512M; free a; loop 10; {WORK} end; alloc a 1G; free b; \
                 loop 10; {WORK} end; alloc b 2G; free a; loop 10; {WORK} end; {TOO_MUCH}"
            ),
        ),
        leak(
            "an adaptive mesh: fields are replaced by larger ones, as many as before",
            format!(
                "alloc m 2G; alloc a 300M; alloc b 300M; alloc c 300M; loop 14; free a; alloc a 320M+20M; {WORK} free b; \
                 alloc b 320M+20M; {WORK} free c; alloc c 320M+20M; {WORK} end; {TOO_MUCH}"
            ),
        ),
    ]
}
