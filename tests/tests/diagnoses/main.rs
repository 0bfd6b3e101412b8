//! From a running program to a diagnosis: programs that play a script over simulated devices, under the real recorder, on
//! machines whose files stand below `GPUOOM_SYSROOT`, and the report on their traces.
//!
//! `SCENE=part-of-an-id cargo test -p gpuoom-tests --test diagnoses` plays some of them, and says more about those that fail.

mod machine;
mod play;
mod scene;

mod capacity;
mod errors;
mod fragmentation;
mod free_memory;
mod healthy;
mod host;
mod leaks;
mod platform;
mod pools;
mod serving;
mod training;

use std::collections::BTreeSet;
use std::process::Command;

use gpuoom_tests::analyzer;
use scene::{Played, Says, Scene};

fn scenes() -> Vec<Scene> {
    [
        capacity::scenes(),
        fragmentation::scenes(),
        free_memory::scenes(),
        pools::scenes(),
        leaks::scenes(),
        errors::scenes(),
        platform::scenes(),
        training::scenes(),
        serving::scenes(),
        host::scenes(),
        healthy::scenes(),
    ]
    .concat()
}

fn played() -> &'static [(Scene, Played)] {
    play::played(scenes)
}

fn describe(scene: &Scene, played: &Played) -> String {
    play::describe(scene, &format!("must be {:?}", scene.says), played)
}

/// The measured figure: how often the right diagnosis comes first.
#[test]
fn the_report_says_what_happened() {
    let wrong: Vec<String> =
        played().iter().filter(|(scene, played)| !played.is_as(scene)).map(|(s, p)| describe(s, p)).collect();
    let first = || played().iter().filter(|(scene, _)| matches!(scene.says, Says::First(_)));
    let right = first().filter(|(scene, played)| played.is_as(scene)).count();
    println!("{} scenes; {right} of {} have the right diagnosis first", played().len(), first().count());
    assert!(wrong.is_empty(), "{} of {} are wrong:\n{}", wrong.len(), played().len(), wrong.join("\n"));
}

#[test]
fn nothing_that_is_not_true_is_called_proven() {
    let mut wrong = Vec::new();
    for (scene, played) in played() {
        let proven = played.found.iter().filter(|found| found.confidence == "proven" && found.role != "refutation");
        for found in proven.filter(|found| !scene.is_true(&found.id)) {
            wrong.push(format!("{} is called proven: {}", found.id, describe(scene, played)));
        }
    }
    println!("{} wrong diagnoses were called proven", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Entries that a trace or readings decide (T0, T1), and that no scene shows, with the reason. This list may only get shorter.
const WITHOUT_SCENE: &[(&str, &str)] = &[];

/// Ids of entries of these tiers, as `explain` lists them.
fn entries_of(tiers: &[&str]) -> BTreeSet<String> {
    let output = Command::new(analyzer()).args(["explain", "--format", "json"]).output().expect("the analyzer starts");
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a list of entries");
    let chapters = list["chapters"].as_array().into_iter().flatten();
    let entries = chapters.flat_map(|chapter| chapter["entries"].as_array().into_iter().flatten());
    let of_tier = entries.filter(|entry| tiers.iter().any(|tier| entry["tier"] == *tier));
    of_tier.map(|entry| entry["id"].as_str().expect("an id").to_owned()).collect()
}

#[test]
fn what_a_trace_can_decide_is_shown_by_a_scene() {
    let scenes = scenes();
    let shown: BTreeSet<&str> = scenes.iter().filter(|scene| scene.is_positive()).map(|scene| scene.id).collect();
    let (decidable, all) = (entries_of(&["T0", "T1"]), entries_of(&["T0", "T1", "T2", "T3"]));
    let excused: BTreeSet<&str> = WITHOUT_SCENE.iter().map(|(id, _)| *id).collect();
    let missing: Vec<&String> =
        decidable.iter().filter(|id| !shown.contains(&id[..]) && !excused.contains(&id[..])).collect();
    println!(
        "{} of {} decidable entries have a scene",
        decidable.iter().filter(|id| shown.contains(&id[..])).count(),
        decidable.len()
    );
    println!(
        "without one:\n{}",
        WITHOUT_SCENE.iter().map(|(id, why)| format!("  {id}: {why}")).collect::<Vec<_>>().join("\n")
    );
    assert!(missing.is_empty(), "no scene shows {missing:?}");
    let outdated: Vec<&&str> = excused.iter().filter(|id| shown.contains(**id) || !decidable.contains(**id)).collect();
    assert!(outdated.is_empty(), "they have a scene now, or need none: {outdated:?}");
    assert!(shown.iter().all(|id| all.contains(*id)), "a scene about an entry that does not exist");
}
