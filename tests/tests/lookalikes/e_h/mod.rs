//! E. Leaks, and H. training and serving.

mod leaks;
mod serving;
mod swaps;
mod training;

use crate::scene::Scene;

pub(crate) fn scenes() -> Vec<Scene> {
    [leaks::scenes(), swaps::scenes(), training::scenes(), serving::scenes()].concat()
}

/// Fields of a simulation, columns of a table, textures: whatever a program keeps, all of different sizes.
const FIELDS: &str = "push 96M; push 33M; push 40M; push 21M; push 57M; push 12M; push 71M; push 84M; push 18M; push 29M; \
                      push 45M; push 63M;";
/// The same with their contents.
const COPIED: &str = "push 96M; copy -; push 33M; copy -; push 40M; copy -; push 21M; copy -; push 57M; copy -; push 12M; copy -; \
                      push 71M; copy -; push 84M; copy -; push 18M; copy -; push 29M; copy -; push 45M; copy -; push 63M; copy -;";
/// The sizes of [`FIELDS`] in reverse.
const REVERSED: &str = "push 63M; push 45M; push 29M; push 18M; push 84M; push 71M; push 12M; push 57M; push 21M; push 40M; \
                        push 33M; push 96M;";
/// What a card of 24 GiB can't give beside them.
const TOO_MUCH: &str = "alloc x 24400M";
