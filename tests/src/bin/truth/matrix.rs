//! The confusion matrix, and the worst of what was said.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::judge::Judgement;

/// One row: all runs with one cause.
#[derive(Clone, Default)]
struct Row {
    runs: u64,
    decidable: u64,
    right_first: u64,
    proven_right: u64,
    /// Runs with at least one such statement.
    proven_wrong: u64,
    probable_wrong: u64,
    ruled_out: u64,
    broken: u64,
}

/// All runs.
#[derive(Default)]
pub(crate) struct Matrix {
    rows: BTreeMap<&'static str, Row>,
    /// Untrue statements: what, how sure, in which kind of run; the runs.
    untrue: BTreeMap<(String, String, &'static str), Vec<u64>>,
    /// Runs with another id first, or none.
    misses: BTreeMap<(&'static str, String), Vec<u64>>,
    /// Runs whose right diagnosis is ruled out.
    ruled_out: BTreeMap<&'static str, Vec<u64>>,
    broken: Vec<(u64, &'static str, String)>,
}

/// Numbers of runs that are printed of each group.
const EXAMPLES: usize = 6;
/// Groups that are printed.
const GROUPS: usize = 60;

impl Matrix {
    /// Counts a run.
    pub(crate) fn add(&mut self, number: u64, cause: &'static str, judged: &Judgement) {
        let row = self.rows.entry(cause).or_default();
        row.runs += 1;
        if let Some(why) = &judged.broken {
            row.broken += 1;
            self.broken.push((number, cause, why.clone()));
            return;
        }
        let said = |confidence: &str| judged.untrue.iter().any(|untrue| untrue.confidence == confidence);
        row.proven_wrong += u64::from(said("proven"));
        row.probable_wrong += u64::from(said("probable"));
        row.ruled_out += u64::from(judged.is_ruled_out);
        if judged.is_ruled_out {
            self.ruled_out.entry(cause).or_default().push(number);
        }
        row.proven_right += u64::from(judged.is_proven_right);
        if judged.is_decidable {
            row.decidable += 1;
            row.right_first += u64::from(judged.is_right_first);
            if !judged.is_right_first && !judged.is_healthy {
                let first = judged.first.clone().unwrap_or_else(|| "nothing".to_owned());
                self.misses.entry((cause, first)).or_default().push(number);
            }
        }
        for untrue in &judged.untrue {
            let key = (untrue.id.clone(), untrue.confidence.clone(), cause);
            self.untrue.entry(key).or_default().push(number);
        }
    }

    fn total(&self, is_in: impl Fn(&str) -> bool) -> Row {
        let rows = self.rows.iter().filter(|(name, _)| is_in(name)).map(|(_, row)| row);
        rows.fold(Row::default(), |sum, row| Row {
            runs: sum.runs + row.runs,
            decidable: sum.decidable + row.decidable,
            right_first: sum.right_first + row.right_first,
            proven_right: sum.proven_right + row.proven_right,
            proven_wrong: sum.proven_wrong + row.proven_wrong,
            probable_wrong: sum.probable_wrong + row.probable_wrong,
            ruled_out: sum.ruled_out + row.ruled_out,
            broken: sum.broken + row.broken,
        })
    }

    /// Whether the promise holds: nothing untrue is proven, nothing is named where nothing is wrong.
    pub(crate) fn is_good(&self) -> bool {
        let healthy = self.total(is_healthy);
        self.total(|_| true).proven_wrong == 0 && healthy.probable_wrong == 0 && self.broken.is_empty()
    }

    /// The matrix, for people.
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::from(
            "| cause | runs | decidable | right id first | proven, right | proven, wrong | probable, wrong | right one ruled out |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        );
        for (name, row) in &self.rows {
            write_row(&mut text, name, row);
        }
        write_row(&mut text, "**with a cause**", &self.total(|name| !is_healthy(name)));
        write_row(&mut text, "**nothing wrong**", &self.total(is_healthy));
        write_row(&mut text, "**all**", &self.total(|_| true));
        text
    }

    /// What was said wrongly, with the runs to look at.
    pub(crate) fn worst(&self, seed: u64) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "\nUntrue statements (show one with --seed {seed} --only N):");
        let mut untrue: Vec<_> = self.untrue.iter().collect();
        untrue.sort_by_key(|((_, sure, cause), runs)| {
            (sure != "proven", !is_healthy(cause), std::cmp::Reverse(runs.len()))
        });
        for ((id, sure, cause), runs) in untrue.iter().take(GROUPS) {
            let _ = writeln!(text, "  {sure:8} {id:28} {:4}x in '{cause}': {}", runs.len(), examples(runs));
        }
        let _ = writeln!(text, "\nDecidable runs with another id first:");
        let mut misses: Vec<_> = self.misses.iter().collect();
        misses.sort_by_key(|(_, runs)| std::cmp::Reverse(runs.len()));
        for ((cause, first), runs) in misses.iter().take(GROUPS) {
            let _ = writeln!(text, "  {first:28} {:4}x in '{cause}': {}", runs.len(), examples(runs));
        }
        let _ = writeln!(text, "\nRuns in which the right diagnosis is ruled out:");
        for (cause, runs) in &self.ruled_out {
            let _ = writeln!(text, "  {:4}x in '{cause}': {}", runs.len(), examples(runs));
        }
        if !self.broken.is_empty() {
            let _ = writeln!(text, "\nRuns that were not what they were meant to be:");
            for (number, cause, why) in self.broken.iter().take(GROUPS) {
                let _ = writeln!(text, "  {number} '{cause}': {}", why.lines().next().unwrap_or_default());
            }
        }
        text
    }
}

/// Whether nothing is wrong in runs of that name.
pub(crate) fn is_healthy(cause: &str) -> bool {
    cause.starts_with("healthy") || cause == "injected: one call"
}

fn examples(runs: &[u64]) -> String {
    let numbers: Vec<String> = runs.iter().take(EXAMPLES).map(u64::to_string).collect();
    numbers.join(" ")
}

fn write_row(text: &mut String, name: &str, row: &Row) {
    let share = match row.decidable {
        0 => String::new(),
        decidable => format!(" ({:.1} %)", row.right_first as f64 * 100.0 / decidable as f64),
    };
    let _ = writeln!(
        text,
        "| {name} | {} | {} | {}{share} | {} | {} | {} | {} |",
        row.runs, row.decidable, row.right_first, row.proven_right, row.proven_wrong, row.probable_wrong, row.ruled_out
    );
}
