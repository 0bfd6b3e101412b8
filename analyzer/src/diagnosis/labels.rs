//! What a program's own labels (`gpuoom_mark`) say of its work: only they, a framework or facts of a model name a training, a
//! batch or a sequence.

use super::case::{Case, Failure};
use crate::replay::tracks::marks::Mark;

/// How words begin that a training has.
const OF_TRAINING: [&str; 4] = ["backward", "optim", "train", "epoch"];
/// How words begin that any step of a model has.
const OF_STEPS: [&str; 2] = ["forward", "batch"];
/// How words begin for what only a network's model is made of.
const OF_WEIGHTS: [&str; 2] = ["weight", "param"];
/// Letters that may stand between a word and its number, as in `batch_size = 4`.
const MOST_BETWEEN: usize = 20;

/// A number in a label, and what else the label says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// The number.
    pub number: u64,
    /// The label without it: two steps compare only where this is the same.
    pub rest: String,
}

/// The number behind a word: `seq=4096`, `forward seq_len 2048`.
pub fn number_behind(label: &str, word: &str) -> Option<Numbered> {
    let behind = label.find(word)? + word.len();
    let digits =
        label[behind..].find(|c: char| c.is_ascii_digit()).filter(|between| *between <= MOST_BETWEEN)? + behind;
    let end = label[digits..].find(|c: char| !c.is_ascii_digit()).map_or(label.len(), |length| digits + length);
    let number = label[digits..end].parse().ok().filter(|number| *number > 0)?;
    Some(Numbered { number, rest: [&label[..digits], &label[end..]].concat() })
}

/// Whether numbers, in their order, count what comes: then they are no sizes. Of a label that speaks of a size they are one.
pub fn count_up<'a>(numbers: impl Iterator<Item = &'a Numbered>) -> bool {
    let (mut pairs, mut by_one, mut before) = (0, 0, None);
    for numbered in numbers.filter(|numbered| !["size", "len"].iter().any(|word| numbered.rest.contains(word))) {
        if let Some(before) = before.filter(|before| *before != numbered.number) {
            pairs += 1;
            by_one += usize::from(before + 1 == numbered.number);
        }
        before = Some(numbered.number);
    }
    pairs > 0 && 2 * by_one > pairs
}

/// Whether a word of the label begins like one of these.
fn has_word(label: &str, beginnings: &[&str]) -> bool {
    let lower = label.to_ascii_lowercase();
    let mut words = lower.split(|c: char| !c.is_ascii_alphabetic());
    words.any(|word| beginnings.iter().any(|beginning| word.starts_with(beginning)))
}

impl<'a> Case<'a> {
    /// The labels before a failure, in order.
    pub fn labels_before(&self, failure: &Failure<'_>) -> impl Iterator<Item = &'a Mark> + use<'a> {
        let at = failure.oom.at;
        self.replay.tracks.marks.listed().iter().filter(move |mark| mark.at <= at)
    }

    /// Whether a label before the failure names a training.
    pub fn labels_name_training(&self, failure: &Failure<'_>) -> bool {
        self.labels_before(failure).any(|mark| has_word(&mark.label, &OF_TRAINING))
    }

    /// Whether the last label of the thread that failed names a step of a model, in training or not.
    pub fn last_label_names_a_step(&self, failure: &Failure<'_>) -> bool {
        let last = self.last_label(failure);
        last.is_some_and(|mark| has_word(&mark.label, &OF_STEPS) || has_word(&mark.label, &OF_TRAINING))
    }

    /// Whether it names weights or parameters.
    pub fn last_label_names_weights(&self, failure: &Failure<'_>) -> bool {
        self.last_label(failure).is_some_and(|mark| has_word(&mark.label, &OF_WEIGHTS))
    }

    fn last_label(&self, failure: &Failure<'_>) -> Option<&'a Mark> {
        self.labels_before(failure).filter(|mark| mark.thread == failure.oom.thread).last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_behind_their_word() {
        let behind = |label, word| number_behind(label, word).map(|found| (found.number, found.rest));
        assert_eq!(behind("seq=4096", "seq"), Some((4096, "seq=".to_owned())));
        assert_eq!(behind("forward seq_len 2048 batch 4", "seq"), Some((2048, "forward seq_len  batch 4".to_owned())));
        assert_eq!(behind("forward seq_len 2048 batch 4", "batch").map(|found| found.0), Some(4));
        assert_eq!(behind("epoch 3", "seq"), None);
        assert_eq!(behind("seq", "seq"), None);
        assert_eq!(behind("sequence of things that took very long: 12", "seq"), None);
    }

    #[test]
    fn numbers_that_count_are_no_sizes() {
        let count = |label: &str, numbers: &[u64]| {
            let labels: Vec<_> =
                numbers.iter().map(|number| number_behind(&format!("{label} {number}"), "seq")).collect();
            count_up(labels.iter().flatten())
        };
        assert!(count("sequence", &[1, 2, 3, 4]) && count("sequence", &[7, 7, 8, 8, 9, 1, 2]));
        assert!(!count("seq", &[128, 256, 512]) && !count("seq", &[12, 9, 30, 31]) && !count("seq", &[512, 512]));
        assert!(!count("seq_len", &[1, 2, 3, 4]), "it says that it is a length");
    }

    #[test]
    fn words_are_whole_at_their_beginning() {
        assert!(has_word("train_step 4", &OF_TRAINING) && has_word("Epoch3", &OF_TRAINING));
        assert!(!has_word("constraint", &OF_TRAINING));
    }
}
