use std::collections::HashSet;

use super::*;
use crate::judgement::role::Role;

/// Platforms that entries name.
const PLATFORMS: [&str; 13] = [
    "rocm",
    "cuda",
    "any",
    "linux",
    "windows",
    "torch",
    "apu",
    "rocm-apu",
    "rocm-dgpu",
    "mi300",
    "rdna4",
    "cuda-mig",
    "amd-instinct",
];

#[test]
fn every_diagnosis_has_an_id_of_its_own_and_each_chapter_has_some() {
    let ids: Vec<&str> = entries().map(|entry| entry.id.as_str()).collect();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
    assert!(
        ids.iter().all(|id| id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')),
        "{ids:?}"
    );
    assert!(chapters().iter().all(|chapter| !chapter.entries.is_empty()));
}

/// Words that only people who wrote the catalogue understand: sources that nobody can open, and remarks about the page itself.
#[test]
fn entries_speak_to_readers() {
    for entry in entries() {
        let text = toml_text(entry);
        for phrase in ["print it last", "seed claim", "say so"] {
            assert!(!text.contains(phrase), "{}: '{phrase}' is no sentence for a reader", entry.id);
        }
    }
}

fn toml_text(entry: &Entry) -> String {
    serde_json::to_string(entry).unwrap().to_lowercase()
}

#[test]
fn relations_name_entries() {
    for entry in entries() {
        let named = entry.resolves.iter().chain((!entry.asked_after.is_empty()).then_some(&entry.asked_after));
        for other in named {
            assert!(find(other).is_some(), "{} names {other}, which is no entry", entry.id);
        }
        assert!(entry.resolves.is_empty() || entry.role != Role::Refutation, "{}", entry.id);
    }
}

#[test]
fn every_entry_can_be_decided_and_acted_on() {
    for entry in entries() {
        let id = &entry.id;
        assert!(!entry.title.is_empty() && !entry.sources.is_empty(), "{id}");
        assert!(!entry.proves.is_empty() || !entry.any_proves.is_empty(), "{id}: nothing proves it");
        assert!(!entry.platforms.is_empty(), "{id}");
        for platform in &entry.platforms {
            assert!(PLATFORMS.contains(&platform.as_str()), "{id}: platform {platform}");
        }
        for fix in &entry.fixes {
            assert!(!fix.text.is_empty(), "{id}: {fix:?}");
            assert!(fix.rungs.iter().all(|&rung| rung <= 11), "{id}: {fix:?}");
        }
    }
}

/// A shape is nearer to the point than the full card that it ended in: without a rung its fixes would stand behind all of that.
#[test]
fn every_fix_of_a_shape_has_a_rung() {
    let shapes = entries().filter(|entry| entry.role == crate::judgement::role::Role::Shape);
    for entry in shapes {
        let without: Vec<_> = entry.fixes.iter().filter(|fix| fix.rungs.is_empty()).map(|fix| &fix.text).collect();
        assert!(without.is_empty(), "{}: {without:?}", entry.id);
    }
}

/// With both set, a live allocation was seen to read back zeros.
#[test]
fn no_fix_names_the_dangerous_pair() {
    for entry in entries() {
        for fix in &entry.fixes {
            let pair = ["expandable_segments", "max_split_size_mb"];
            let whole = format!("{} {}", fix.command, fix.text);
            assert!(!pair.iter().all(|option| whole.contains(option)), "{}: {whole}", entry.id);
        }
    }
}

/// What the catalogue warns about when it is set is never advised.
#[test]
fn no_fix_is_one_of_the_unsafe_ones() {
    let unsafe_ones = [
        "pkill",
        "killall",
        "HSA_XNACK=1",
        "HSA_OVERRIDE_GFX_VERSION=",
        "> /sys/kernel/debug",
        "NO_HIP_MEMORY_CACHING=1",
    ];
    for entry in entries() {
        for fix in &entry.fixes {
            assert!(!unsafe_ones.iter().any(|bad| fix.command.contains(bad)), "{}: {}", entry.id, fix.command);
        }
    }
}

/// Nobody measured one: the rates that circulate have no source.
#[test]
fn no_text_names_a_silent_failure_rate_or_a_folk_number() {
    for (letter, _, data) in FILES {
        for rate in ["34 %", "66 %", "95 %", "85-90 %", "1 in 200", "20 to 30 %", "1.2 GB", "2.4 GB", "#2578", "18.9"] {
            assert!(!data.contains(rate), "chapter {letter}: {rate}");
        }
    }
}

#[test]
fn an_entry_without_a_rule_of_its_own_has_the_default_one() {
    assert!(entries().all(|entry| !entry.confidence.is_empty()));
    let data = r#"
        [[entry]]
        id = "a"
        title = "t"
        platforms = ["any"]
        tier = "T0"
        role = "cause"
        proves = ["p"]
    "#;
    assert_eq!(read('Z', "z", data).entries[0].confidence, DEFAULT_CONFIDENCE);
}

#[test]
fn a_mistyped_id_is_understood() {
    assert_eq!(distance("kitten", "sitting"), 3);
    assert_eq!(distance("", "abc"), 3);
    assert_eq!(nearest("true-capasity")[0], "true-capacity");
    assert_eq!(nearest("ttm")[0], "uma-ttm-limit");
    assert_eq!(nearest(&"x".repeat(1 << 20)).len(), 3);
}

/// Words of PyTorch, of training and of language models. Advice with them is for programs in which such a thing was seen; a
/// diagnosis that is itself about a model has said so.
#[test]
fn advice_for_frameworks_is_for_their_programs() {
    const WORDS: [&str; 14] = [
        "torch",
        "transformers",
        "lora",
        "zero 1",
        "fsdp",
        "adafactor",
        "micro-batch",
        "autocast",
        "checkpointing",
        "device_map",
        "kv cache",
        "flashattention",
        "layers",
        "sequences",
    ];
    const OF_MODELS: [&str; 2] = ["training-state-exceeds-card", "attention-quadratic"];
    let mut wrong = Vec::new();
    for entry in chapters().iter().filter(|chapter| "AIJ".contains(chapter.letter)).flat_map(|chapter| &chapter.entries)
    {
        for fix in entry.fixes.iter().filter(|fix| fix.only.program.is_none()) {
            let text = fix.text.to_lowercase();
            let named = WORDS.iter().find(|word| text.contains(*word));
            if named.is_some() && !OF_MODELS.contains(&&entry.id[..]) {
                wrong.push(format!("{}: {} ({named:?})", entry.id, fix.text));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// One thing to do has one wording: the report tells what two diagnoses advise only once, and knows it by its words.
#[test]
fn no_two_fixes_say_the_same_in_other_words() {
    const THINGS: [&[&str]; 11] = [
        &["accumulation steps", "gradient accumulation"],
        &["autocast"],
        &["activation checkpointing"],
        &["sdpa", "flashattention"],
        &["shorter sequences"],
        &["8-bit"],
        &["zero 1", "zero-1"],
        &["lora"],
        &["no_grad", "inference_mode"],
        &["smaller pieces", "smaller chunks"],
        &["larger card"],
    ];
    for words in THINGS {
        let fixes = entries().flat_map(|entry| entry.fixes.iter().map(|fix| (&fix.command, &fix.text)));
        let says = |text: &str| words.iter().any(|word| text.to_lowercase().contains(word));
        let of_it: HashSet<_> = fixes.filter(|(command, text)| says(command) || says(text)).collect();
        assert_eq!(of_it.len(), 1, "{words:?}: {of_it:?}");
    }
}
