//! Programs that look like a diagnosis and are not: for each diagnosis that can be proven, runs in which it is false although
//! most of its signs are there. They were written from the catalogue's refuters and from what programs do, and know no rule.
//!
//! `SCENE=part-of-an-id cargo test -p gpuoom-tests --test lookalikes` plays some of them, and says more about those that fail.

#[path = "../diagnoses/machine.rs"]
#[allow(dead_code, reason = "shared with the scenes that must be diagnosed, which need more of it")]
mod machine;
#[path = "../diagnoses/scene.rs"]
#[allow(dead_code, reason = "shared with the scenes that must be diagnosed, which need more of it")]
mod scene;

mod a;
mod bcd;
mod e_h;
mod f_g;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use scene::{Played, Says, Scene, scene};

/// A program that looks like this diagnosis, which is not true of it. [`Scene::also`] names what is.
pub(crate) fn looks_like(id: &'static str, story: &'static str, script: impl Into<String>) -> Scene {
    scene(id, Says::Not, story, script)
}

fn scenes() -> Vec<Scene> {
    [a::scenes(), bcd::scenes(), e_h::scenes(), f_g::scenes()].concat()
}

/// Scenes that are played at once: most of their time is spent on waiting for a process to end.
const AT_ONCE: usize = 4;

/// All scenes, played once for all tests.
fn played() -> &'static [(Scene, Played)] {
    static ALL: OnceLock<Vec<(Scene, Played)>> = OnceLock::new();
    ALL.get_or_init(|| {
        let wanted = std::env::var("SCENE").unwrap_or_default();
        let scenes: Vec<Scene> = scenes().into_iter().filter(|scene| scene.id.contains(&wanted)).collect();
        let next = AtomicUsize::new(0);
        let play = || {
            let mut done = Vec::new();
            while let Some(scene) = scenes.get(next.fetch_add(1, Ordering::Relaxed)) {
                done.push((scene.clone(), scene.play()));
            }
            done
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(play)).collect();
            workers.into_iter().flat_map(|worker| worker.join().expect("a scene that can be played")).collect()
        })
    })
}

fn describe(scene: &Scene, played: &Played) -> String {
    let found: Vec<String> =
        played.found.iter().map(|found| format!("{} {} ({})", found.id, found.confidence, found.role)).collect();
    let details = if std::env::var_os("SCENE").is_some() { played.details.as_str() } else { "" };
    format!(
        "{} ({}): true are {:?}; found {found:?}; causes {:?} {details}",
        scene.id, scene.story, scene.also, played.causes
    )
}

/// Fails with what is wrong, in numbers and in words.
fn expect_none(wrong: &[String]) {
    println!("{} of {} programs are told something untrue", wrong.len(), played().len());
    assert!(wrong.is_empty(), "{} of {} are wrong:\n{}", wrong.len(), played().len(), wrong.join("\n"));
}

#[test]
fn what_it_looks_like_is_at_most_possible() {
    let is_surer = |scene: &Scene, played: &Played| matches!(played.sure_of(scene.id), Some("proven" | "probable"));
    let is_cause = |scene: &Scene, played: &Played| played.causes.iter().any(|cause| cause == scene.id);
    let wrong = played().iter().filter(|(scene, played)| is_surer(scene, played) || is_cause(scene, played));
    expect_none(&wrong.map(|(scene, played)| describe(scene, played)).collect::<Vec<_>>());
}

#[test]
fn nothing_that_is_not_true_is_called_proven() {
    let untrue = |scene: &Scene, played: &Played| {
        let proven = played.found.iter().filter(|found| found.confidence == "proven" && found.role != "refutation");
        proven.filter(|found| !scene.is_true(&found.id)).map(|found| found.id.clone()).collect::<Vec<_>>()
    };
    let wrong = played().iter().filter(|(scene, played)| !untrue(scene, played).is_empty());
    let wrong = wrong.map(|(scene, played)| format!("{:?}: {}", untrue(scene, played), describe(scene, played)));
    expect_none(&wrong.collect::<Vec<_>>());
}
