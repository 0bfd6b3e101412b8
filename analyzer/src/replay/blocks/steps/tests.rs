use proptest::prelude::*;

use super::*;
use crate::replay::blocks::NameNumber;
use crate::replay::blocks::steps::kept::MOST_STEPS;
use crate::replay::purpose::Purpose;

const MIB: u64 = 1 << 20;

/// Steps that are told of blocks by hand; a block's address is its place in `live`.
struct Program {
    steps: Steps,
    live: Vec<Option<Given>>,
    at: u64,
    rows_left: usize,
}

impl Program {
    fn new() -> Self {
        Program { steps: Steps::default(), live: Vec::new(), at: 0, rows_left: 1 << 16 }
    }

    fn give(&mut self, site: u32, size_bytes: u64) -> usize {
        self.at += 1;
        let slot = self.steps.slot(site, &Sites::default());
        let given = Given {
            address: 0,
            size_bytes,
            entered: self.at,
            site,
            nth: 0,
            device: 0,
            allocator: 0,
            name: NameNumber::NONE,
            slot,
            purpose: Purpose::Unknown,
        };
        self.steps.given(&given, 7, self.at, &mut self.rows_left);
        self.live.push(Some(given));
        self.live.len() - 1
    }

    fn take(&mut self, place: usize) {
        self.at += 1;
        let given = self.live[place].take().unwrap();
        self.steps.taken(&given, self.at, &mut self.rows_left);
    }

    /// What comes and goes within a step.
    fn swing(&mut self, site: u32, size_bytes: u64) {
        let place = self.give(site, size_bytes);
        self.take(place);
    }

    fn of_site(&self, kept: &Kept, site: u32) -> Vec<u64> {
        kept.steps().iter().map(|step| step.of_site(site).map_or(0, |row| row.bytes / MIB)).collect()
    }
}

/// A model that is loaded layer by layer for each request, and whose memory goes at once where the program ends.
#[test]
fn what_falls_where_the_program_ends_hides_no_cycles() {
    let mut program = Program::new();
    let mut kept = Vec::new();
    for _ in 0..40 {
        let layers: Vec<usize> = (0..8).map(|_| program.give(2, 4 * MIB)).collect();
        (0..8).for_each(|_| program.swing(3, 20 * MIB));
        kept.push(program.give(1, 12 * MIB));
        layers.into_iter().for_each(|layer| program.take(layer));
    }
    kept.into_iter().for_each(|place| program.take(place));
    let floors = program.of_site(program.steps.floors(), 1);
    assert!(floors.len() > 30 && floors.windows(2).all(|pair| pair[0] < pair[1]), "{floors:?}");
}

#[test]
fn floors_have_what_each_site_held_there() {
    let mut program = Program::new();
    program.give(1, 50 * MIB);
    for _ in 0..10 {
        let activation = program.give(2, 100 * MIB);
        program.give(3, 4 * MIB);
        // Humps within the step are no ends.
        (0..3).for_each(|_| program.swing(2, 20 * MIB));
        program.take(activation);
    }
    let floors = program.steps.floors();
    // The last floor is left by nothing.
    assert_eq!(program.of_site(floors, 3), (1..10).map(|step| 4 * step).collect::<Vec<u64>>());
    assert!(program.of_site(floors, 1).iter().all(|held| *held == 50));
    assert!(
        floors
            .steps()
            .iter()
            .all(|step| step.of_site(2).is_none() && step.bytes == step.rows.iter().map(|row| row.bytes).sum::<u64>())
    );
    let last = floors.steps().last().unwrap().of_site(3).unwrap();
    assert_eq!((last.blocks, last.given), (9, 9));
    assert_eq!((floors.count(), floors.is_cut()), (9, false));
}

#[test]
fn a_floor_that_turns_out_lower_counts_there() {
    let mut program = Program::new();
    for _ in 0..8 {
        let large = program.give(1, 100 * MIB);
        let small = program.give(2, 10 * MIB);
        program.take(large);
        program.swing(3, 5 * MIB);
        program.take(small);
    }
    assert_eq!(program.of_site(program.steps.floors(), 2), [0; 7]);
}

#[test]
fn steps_behind_a_load_that_was_thrown_away() {
    let mut program = Program::new();
    program.swing(1, 10_000 * MIB);
    program.give(2, 300 * MIB);
    for _ in 0..12 {
        program.swing(3, 100 * MIB);
        program.give(4, MIB);
    }
    assert_eq!(program.of_site(program.steps.floors(), 4), (0..11).collect::<Vec<u64>>());
    // Where the program ends, all is given back: that is no step, and makes none of them small.
    (0..program.live.len()).for_each(|place| {
        if program.live[place].is_some() {
            program.take(place)
        }
    });
    assert_eq!(program.steps.floors().count(), 11);
}

#[test]
fn small_swings_before_great_ones_are_no_steps() {
    let mut program = Program::new();
    (0..40).for_each(|_| program.swing(1, MIB));
    (0..9).for_each(|_| program.swing(2, 100 * MIB));
    let floors = program.steps.floors();
    assert_eq!((floors.count(), floors.steps()[0].number), (8, 1));
}

#[test]
fn labels_are_told_apart_by_more_than_numbers() {
    let mut program = Program::new();
    for number in 0..5 {
        program.steps.marked(&format!("step {number}"), program.at, &mut program.rows_left);
        program.give(1, MIB);
        program.steps.marked("forward", program.at, &mut program.rows_left);
    }
    let [steps, forward] = program.steps.labelled() else { panic!() };
    assert_eq!((steps.first.as_str(), steps.last.as_str(), forward.first.as_str()), ("step 0", "step 4", "forward"));
    assert_eq!(program.of_site(&steps.kept, 1), [0, 1, 2, 3, 4]);
    assert_eq!(program.of_site(&forward.kept, 1), [1, 2, 3, 4, 5]);
    for letter in 'a'..='z' {
        program.steps.marked(&letter.to_string(), program.at, &mut program.rows_left);
    }
    assert_eq!(program.steps.labelled().len(), MOST_LABELS);
}

#[test]
fn a_long_run_keeps_few_steps_evenly_and_knows_their_numbers() {
    let mut program = Program::new();
    for _ in 0..10_000u64 {
        program.swing(1, 100 * MIB);
        program.give(2, MIB);
    }
    let floors = program.steps.floors();
    assert!(floors.steps().len() > MOST_STEPS / 4 && floors.steps().len() <= MOST_STEPS);
    assert!(floors.steps().iter().all(|step| step.of_site(2).map_or(0, |row| row.bytes / MIB) == step.number - 1));
    assert_eq!(floors.count(), 9999);
    assert_eq!(program.rows_left, (1 << 16) - floors.steps().iter().map(|step| step.rows.len() + 1).sum::<usize>());
}

#[test]
fn sites_and_rows_are_bounded() {
    let mut program = Program::new();
    (1..=MOST_SITES as u32 + 100).for_each(|site| _ = program.give(site, 1));
    assert_eq!(program.steps.slots.len(), MOST_SITES);
    assert_eq!(program.steps.slots[0].now.blocks, 101, "of no known place");
    let mut far = Program::new();
    for site in [u32::MAX, 7, u32::MAX, MOST_NEAR as u32] {
        far.give(site, MIB);
    }
    assert_eq!((far.steps.slots.len(), far.steps.near.len()), (4, 8));
    program.rows_left = 10;
    program.steps.marked("step", program.at, &mut program.rows_left);
    assert!(program.steps.labelled()[0].kept.is_cut() && program.rows_left == 10);
}

proptest! {
    #[test]
    fn each_row_is_what_lives_there(events in prop::collection::vec((any::<bool>(), 0u32..4, 1u64..1000), 1..400)) {
        let mut program = Program::new();
        let budget = program.rows_left;
        for (gives, site, bytes) in events {
            let living = program.live.iter().position(Option::is_some);
            match living.filter(|_| !gives) {
                Some(place) => program.take(place),
                None => _ = program.give(site, bytes),
            }
        }
        let mut cost = 0;
        for kept in [program.steps.floors[0].kept(), program.steps.floors[1].kept(), &program.steps.before] {
            for step in kept.steps() {
                cost += step.rows.len() + 1;
                prop_assert_eq!(step.bytes, step.rows.iter().map(|row| row.bytes).sum::<u64>());
                prop_assert!(step.rows.iter().all(|row| row.given >= row.blocks && row.blocks > 0));
            }
            prop_assert!(kept.steps().windows(2).all(|two| two[0].number < two[1].number && two[0].at <= two[1].at));
        }
        prop_assert_eq!(program.rows_left + cost, budget);
    }
}
