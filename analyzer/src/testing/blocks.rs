//! What allocators above the runtime tell, for traces that tests make.

use gpuoom_trace::meaning::{Codes, Does, Family, Meaning};
use gpuoom_trace::metadata::{ApiMeanings, ApiRow};
use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, Kind, Layer, MAX_PAYLOAD_BYTES, Record, flag};
use rustc_hash::FxHashMap;

use super::TraceBuilder;
use crate::replay::apis::by_name;

/// The function that PyTorch's caching allocator tells of its blocks by.
pub const TENSOR: &str = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";
/// The function that it tells of its errors by.
pub const NO_TENSOR: &str = "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE";
/// The functions that a pool of the program's own tells by.
pub const POOL: [&str; 2] = ["gpuoom_pool_alloc", "gpuoom_pool_free"];

/// The functions that ggml makes buffers by, frees them by, and says by what they are for.
pub const BUFFER: [&str; 3] =
    ["ggml_backend_buft_alloc_buffer", "ggml_backend_buffer_free", "ggml_backend_buffer_set_usage"];
/// Functions of ggml and llama.cpp inside which memory is asked for.
const SCOPES: [(&str, Does); 7] = [
    ("ggml_backend_alloc_ctx_tensors_from_buft", Does::MakesTensors),
    ("ggml_gallocr_reserve_n", Does::PlansGraph),
    ("ggml_backend_sched_reserve", Does::PlansGraph),
    ("ggml_backend_sched_alloc_graph", Does::PlansGraph),
    ("llama_model_load_from_file", Does::LoadsModel),
    ("llama_init_from_model", Does::MakesContext),
    ("llama_decode", Does::Computes),
];

/// PyTorch's caching allocator: its totals by device, and its blocks.
#[derive(Clone, Debug, Default)]
pub struct Torch {
    totals: FxHashMap<u8, [u64; 2]>,
    /// What follows from the last record.
    written: FxHashMap<u8, [u64; 2]>,
    blocks: FxHashMap<u64, (u8, u64)>,
}

/// What a function of an allocator above the runtime does; `None`: it is none.
pub(super) fn does(name: &str) -> Option<Does> {
    match name {
        TENSOR | NO_TENSOR => Some(Does::TellsOfTensor),
        _ if POOL.contains(&name) => Some(Does::TellsOfPool),
        _ if BUFFER.contains(&name) => Some(Does::TellsOfBuffer),
        _ => SCOPES.iter().find(|(scope, _)| *scope == name).map(|(_, does)| *does),
    }
}

/// What functions mean, as a recorder of 1.7 writes it.
pub(super) fn meanings(rows: &[ApiRow]) -> ApiMeanings {
    ApiMeanings::of(rows.iter().map(|row| match does(&row.name) {
        Some(does) => (Kind::Tensor, Meaning { does, ..Meaning::new(Codes::Framework, Family::Pointers) }),
        None => (by_name::kind(&row.name), by_name::meaning(&row.name, Layer::from_number(row.layer))),
    }))
}

impl TraceBuilder {
    /// A record of PyTorch's allocator on a device, with its totals where they do not follow from the last one.
    fn told(&mut self, record: Record, device: u8, delta: i128) -> u64 {
        let record = Record { device, duration: 0, site: self.site, ..record };
        let now = self.torch.totals.entry(device).or_default();
        now[0] = now[0].saturating_add_signed(delta.clamp(i64::MIN.into(), i64::MAX.into()) as i64);
        let now = *now;
        let follows = self.torch.written.get(&device).is_some_and(|[allocated, reserved]| {
            [i128::from(*allocated) + delta, i128::from(*reserved)] == now.map(i128::from)
        });
        self.torch.written.insert(device, now);
        match follows {
            true => self.push(record, &[]),
            false => {
                let record = Record { kind_flags: record.kind_flags | flag::TOTALS, ..record };
                self.with_numbers(record, &now)
            }
        }
    }

    /// PyTorch's allocator holds so much on a device from here on, by its own word.
    pub fn reserved(&mut self, device: u8, bytes: u64) -> &mut Self {
        self.torch.totals.entry(device).or_default()[1] = bytes;
        self
    }

    /// PyTorch's allocator gives a block out.
    pub fn tensor(&mut self, device: u8, address: u64, bytes: u64) -> u64 {
        self.torch.blocks.insert(address, (device, bytes));
        let record = self.record(Event::Block, Kind::Tensor, TENSOR);
        self.told(Record { address, requested: bytes, ..record }, device, i128::from(bytes))
    }

    /// It takes a block back.
    pub fn free_tensor(&mut self, address: u64) -> u64 {
        let (device, bytes) = self.torch.blocks.remove(&address).unwrap_or_default();
        let record = self.record(Event::BlockFree, Kind::Tensor, TENSOR);
        self.told(Record { address, requested: bytes, ..record }, device, -i128::from(bytes))
    }

    /// It has no memory for a block, and says so.
    pub fn no_tensor(&mut self, device: u8, bytes: u64) -> u64 {
        let record = self.record(Event::Block, Kind::Tensor, NO_TENSOR);
        self.told(Record { requested: bytes, status: 1, ..record }, device, 0)
    }

    /// A segment of PyTorch's: `hipMalloc`, which it says it holds with its next record.
    pub fn segment(&mut self, address: u64, bytes: u64) -> u64 {
        self.torch.totals.entry(0).or_default()[1] += bytes;
        self.alloc(address, bytes)
    }

    /// A pool of the program's own gives a block out.
    pub fn pool_alloc(&mut self, pool: &str, name: &str, address: u64, bytes: u64) -> u64 {
        let record = self.record(Event::Block, Kind::Tensor, POOL[0]);
        let record = Record { address, requested: bytes, duration: 0, site: self.site, ..record };
        self.with_text(record, &format!("{pool}\0{name}"))
    }

    /// It takes a block back.
    pub fn pool_free(&mut self, pool: &str, address: u64) -> u64 {
        let record = self.record(Event::BlockFree, Kind::Tensor, POOL[1]);
        let record = Record { address, duration: 0, site: self.site, ..record };
        self.with_text(record, &format!("{pool}\0"))
    }

    /// From here on the thread is inside these functions of ggml and llama.cpp, outermost first.
    pub fn scope(&mut self, functions: &[&str]) {
        let rows: Vec<u64> = functions.iter().map(|name| u64::from(self.api(name))).collect();
        let record = Record { thread: super::THREAD, ..Record::new(Event::Scope, Kind::None) };
        self.with_numbers(record, &rows);
    }

    /// The thread is called so from here on.
    pub fn thread_name(&mut self, name: &str) {
        self.with_text(Record { thread: super::THREAD, ..Record::new(Event::Thread, Kind::None) }, name);
    }

    /// The row of a function.
    pub fn row_of(&self, name: &str) -> u16 {
        self.apis.iter().position(|row| row.name == name).map_or(u16::MAX, |row| row as u16)
    }

    /// ggml made a buffer of so many bytes, in memory that one call gave.
    pub fn buffer(&mut self, handle: u64, memory: u64, bytes: u64) -> u64 {
        self.buffer_of(handle, bytes, &[memory, 1])
    }

    /// The same with whatever a file may hold of its memory.
    pub fn buffer_of(&mut self, handle: u64, bytes: u64, memory: &[u64]) -> u64 {
        let record = self.record(Event::Block, Kind::Tensor, BUFFER[0]);
        self.with_numbers(Record { address: handle, requested: bytes, duration: 0, site: self.site, ..record }, memory)
    }

    /// ggml frees a buffer.
    pub fn buffer_free(&mut self, handle: u64) -> u64 {
        let record = self.record(Event::BlockFree, Kind::Tensor, BUFFER[1]);
        self.push(Record { address: handle, duration: 0, ..record }, &[])
    }

    /// ggml says what a buffer is for.
    pub fn buffer_use(&mut self, handle: u64, usage: i32) -> u64 {
        let record = self.record(Event::BlockUse, Kind::Tensor, BUFFER[2]);
        self.push(Record { address: handle, duration: 0, status: usage, ..record }, &[])
    }

    /// A record of PyTorch's allocator with whatever a file may hold.
    pub fn hostile_tensor(
        &mut self,
        free: bool,
        device: u8,
        address: u64,
        bytes: u64,
        totals: Option<[u64; 2]>,
    ) -> u64 {
        let event = if free { Event::BlockFree } else { Event::Block };
        let record = self.record(event, Kind::Tensor, TENSOR);
        let record = Record { device, address, requested: bytes, ..record };
        match totals {
            Some(totals) => {
                let mut out = [0; MAX_PAYLOAD_BYTES];
                let record = Record { kind_flags: record.kind_flags | flag::TOTALS, ..record };
                self.push(record, payload::numbers(&totals, &mut out))
            }
            None => self.push(record, &[]),
        }
    }
}
