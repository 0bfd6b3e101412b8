//! What ggml's memory is for, and by which of its functions and llama.cpp's that shows.
//!
//! llama.cpp makes memory for tensors in two places only: where a model is loaded, for its weights, and where a context is made, for
//! what the context keeps (its KV cache, or the state of a recurrent model). Everything else that it makes there is for graphs, by
//! functions that do nothing else, or lies in the host's memory.

use gpuoom_trace::meaning::Does;
use gpuoom_trace::payload;
use gpuoom_trace::record::usage;
use rustc_hash::FxHashMap;

use super::apis::Apis;
use super::block::Side;

/// Functions of one scope that are kept.
const MOST_FUNCTIONS: usize = 16;

/// What memory is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// Nobody says.
    #[default]
    Unknown,
    /// A model's weights.
    Weights,
    /// What a context keeps of the tokens so far.
    KvCache,
    /// What a graph computes.
    Compute,
}

impl Purpose {
    /// The name in JSON.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Purpose::Unknown => None,
            Purpose::Weights => Some("weights"),
            Purpose::KvCache => Some("kv-cache"),
            Purpose::Compute => Some("compute"),
        }
    }

    /// What it is, for people.
    pub fn words(self) -> Option<&'static str> {
        match self {
            Purpose::Unknown => None,
            Purpose::Weights => Some("weights"),
            Purpose::KvCache => Some("KV cache"),
            Purpose::Compute => Some("compute buffer"),
        }
    }

    /// The same behind "it was" or "it asked".
    pub fn what_for(self) -> Option<&'static str> {
        match self {
            Purpose::Unknown => None,
            Purpose::Weights => Some("for weights"),
            Purpose::KvCache => Some("for the KV cache"),
            Purpose::Compute => Some("for a compute buffer"),
        }
    }

    /// What ggml says by its own number; `None` where it says nothing.
    pub fn told(number: i32) -> Option<Self> {
        match number {
            usage::WEIGHTS => Some(Purpose::Weights),
            usage::COMPUTE => Some(Purpose::Compute),
            _ => None,
        }
    }
}

/// The functions of a framework that threads are in, as the trace says, by kernel thread id.
#[derive(Clone, Debug)]
pub struct Scopes {
    threads: FxHashMap<u32, Box<[u16]>>,
    is_whole: bool,
}

impl Scopes {
    /// `is_whole`: no record is missing. Else the one may be that says that a thread has left a function, so none is believed.
    pub(super) fn new(is_whole: bool) -> Self {
        Scopes { threads: FxHashMap::default(), is_whole }
    }

    /// A thread is inside these functions from here on.
    pub(super) fn enters(&mut self, thread: u32, payload: &[u8]) {
        let rows = payload::unpack_numbers(payload).take(MOST_FUNCTIONS);
        let rows: Box<[u16]> = rows.filter_map(|row| u16::try_from(row).ok()).collect();
        match rows.is_empty() || !self.is_whole {
            true => _ = self.threads.remove(&thread),
            false => _ = self.threads.insert(thread, rows),
        }
    }

    /// The functions that a thread is in, outermost first.
    pub fn of(&self, thread: u32) -> &[u16] {
        self.threads.get(&thread).map_or(&[], |rows| rows)
    }
}

/// What memory is for that is asked for inside these functions, outermost first, and the function that says so.
pub fn purpose_of(scopes: &[u16], apis: &Apis, side: Side) -> (Purpose, Option<u16>) {
    let mut for_tensors = false;
    for row in scopes.iter().rev() {
        match apis.get(*row).does {
            Does::PlansGraph => return (Purpose::Compute, Some(*row)),
            Does::MakesTensors => for_tensors = true,
            Does::LoadsModel if for_tensors => return (Purpose::Weights, Some(*row)),
            // What lies in the host's memory there may be for something else, in versions of 2024.
            Does::MakesContext if for_tensors && side == Side::Device => return (Purpose::KvCache, Some(*row)),
            Does::LoadsModel | Does::MakesContext => return (Purpose::Unknown, None),
            _ => {}
        }
    }
    (Purpose::Unknown, None)
}

/// Whether a model was loaded (true) or computed with inside these functions, and the function that says so.
pub fn loads_or_computes(scopes: &[u16], apis: &Apis) -> Option<(bool, u16)> {
    let says = |row: &u16| match apis.get(*row).does {
        Does::LoadsModel => Some((true, *row)),
        Does::Computes => Some((false, *row)),
        _ => None,
    };
    scopes.iter().rev().find_map(says)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{MIB, TraceBuilder, replay};

    #[test]
    fn the_innermost_function_that_does_one_thing_only_decides() {
        let mut trace = TraceBuilder::new(MIB).device(0, "Card", MIB);
        let names = [
            "llama_model_load_from_file",
            "llama_init_from_model",
            "ggml_backend_alloc_ctx_tensors_from_buft",
            "ggml_backend_sched_reserve",
            "ggml_backend_buft_alloc_buffer",
            "llama_decode",
        ];
        names.iter().for_each(|name| trace.scope(&[name]));
        let replay = replay(&trace, Default::default());
        let of = |inside: &[usize], side| {
            let rows: Vec<u16> = inside.iter().map(|name| trace.row_of(names[*name])).collect();
            purpose_of(&rows, &replay.apis, side).0
        };
        let device = |inside: &[usize]| of(inside, Side::Device);
        assert_eq!(device(&[0, 2, 4]), Purpose::Weights);
        assert_eq!(of(&[0, 2, 4], Side::Host), Purpose::Weights);
        assert_eq!(device(&[1, 2, 4]), Purpose::KvCache);
        assert_eq!(of(&[1, 2, 4], Side::Host), Purpose::Unknown);
        assert_eq!(device(&[1, 3, 4]), Purpose::Compute);
        assert_eq!(device(&[0, 3, 4]), Purpose::Compute);
        assert_eq!(device(&[5, 3, 4]), Purpose::Compute);
        assert_eq!(device(&[0, 1, 2, 4]), Purpose::KvCache, "a context that a model's callback makes");
        for unknown in [&[][..], &[0], &[1], &[0, 4], &[1, 4], &[2, 4], &[4], &[5], &[5, 4], &[5, 2, 4]] {
            assert_eq!(device(unknown), Purpose::Unknown, "{unknown:?}");
        }
        assert_eq!(purpose_of(&[999], &replay.apis, Side::Device), (Purpose::Unknown, None));
    }
}
