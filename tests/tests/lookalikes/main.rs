//! Programs that look like a diagnosis and are not: for each diagnosis that can be proven, runs in which it is false although
//! most of its signs are there. They were written from the catalogue's refuters and from what programs do, and know no rule.
//!
//! `SCENE=part-of-an-id cargo test -p gpuoom-tests --test lookalikes` plays some of them, and says more about those that fail.

#[path = "../diagnoses/machine.rs"]
#[allow(dead_code, reason = "shared with the scenes that must be diagnosed, which need more of it")]
mod machine;
#[path = "../diagnoses/play.rs"]
mod play;
#[path = "../diagnoses/scene.rs"]
#[allow(dead_code, reason = "shared with the scenes that must be diagnosed, which need more of it")]
mod scene;

mod a;
mod bcd;
mod e_h;
mod f_g;

use scene::{Played, Says, Scene, scene};

/// A program that looks like this diagnosis, which is not true of it. [`Scene::also`] names what is.
pub(crate) fn looks_like(id: &'static str, story: &'static str, script: impl Into<String>) -> Scene {
    scene(id, Says::Not, story, script)
}

fn scenes() -> Vec<Scene> {
    [a::scenes(), bcd::scenes(), e_h::scenes(), f_g::scenes()].concat()
}

fn played() -> &'static [(Scene, Played)] {
    play::played(scenes)
}

fn describe(scene: &Scene, played: &Played) -> String {
    play::describe(scene, &format!("true are {:?}", scene.also), played)
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
