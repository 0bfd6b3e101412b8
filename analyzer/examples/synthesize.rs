//! Writes a large trace to measure the analyzer with: `synthesize FILE [EVENTS [LIVE [LAYERS]]]`.
//!
//! Two threads allocate and free blocks of mixed sizes on one card; addresses are reused as an allocator would. Each call
//! passes LAYERS layers (1 to 3): the runtime, HSA, KFD. With 0 layers these are blocks of PyTorch's allocator, from 500 call sites.

use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};

use gpuoom_analyze::testing::{GIB, TraceBuilder, event_chunk};
use gpuoom_trace::chunk::ChunkMaker;
use gpuoom_trace::columns::MAX_CHUNK_SLOTS;
use gpuoom_trace::record::{Event, Granule, Kind, Record};
use gpuoom_trace::ring::SlotWords;

/// Sizes that a framework asks for, in bytes: small tensors, activations, weights.
const SIZES: [u64; 8] = [512, 4096, 20_480, 262_144, 2 << 20, 2 << 20, 8 << 20, 20 << 20];
/// Call sites of blocks.
const SITES: u32 = 500;
/// The function that PyTorch's caching allocator tells of its blocks by.
const TENSOR: &str = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";
/// Threads of the program.
const THREADS: [u32; 2] = [4711, 4712];

/// xorshift64*: repeatable, and good enough to choose blocks.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

/// The program that is imitated.
struct Program {
    random: Random,
    live: Vec<u64>,
    free_addresses: Vec<u64>,
    next_address: u64,
    wanted: usize,
    calls: [u32; 2],
    at_ns: u64,
    /// Functions of each layer: the one that gives, and the one that gives back.
    layers: Vec<(u16, u16)>,
    /// Records of calls below, still to be written.
    waiting: Vec<Record>,
    /// Whether these are blocks, told by this function.
    blocks: Option<u16>,
    sites: u32,
}

impl Program {
    fn next(&mut self, seq: u64) -> Record {
        if let Some(api) = self.blocks {
            return Record { commit: seq + 1, ..self.block(api) };
        }
        if self.waiting.is_empty() {
            let outermost = self.outermost();
            self.waiting = self.through_layers(outermost);
        }
        let record = self.waiting.pop().unwrap_or_default();
        Record { commit: seq + 1, ..record }
    }

    /// The next block: first its call sites, each once.
    fn block(&mut self, api: u16) -> Record {
        if self.sites < SITES {
            self.sites += 1;
            let address = 0x5500_0000_0000 + u64::from(self.sites);
            return Record { site: self.sites, address, ..Record::new(Event::Site, Kind::None) };
        }
        let call = self.outermost();
        let gives = call.event() == Some(Event::Alloc);
        let site = 1 + self.random.below(u64::from(SITES)) as u32;
        let event = if gives { Event::Block } else { Event::BlockFree };
        let block = Record { at: call.at, thread: call.thread, device: 0, api, ..Record::new(event, Kind::Tensor) };
        Record { address: call.address, requested: call.requested, site: if gives { site } else { 0 }, ..block }
    }

    /// The records of a call and those below it, the first one last: an allocation is recorded after what it calls.
    fn through_layers(&mut self, outermost: Record) -> Vec<Record> {
        let thread = usize::from(outermost.thread == THREADS[1]);
        let gives = outermost.event() == Some(Event::Alloc);
        let mut records = Vec::new();
        for (depth, (give, back)) in (0u16..).zip(&self.layers) {
            let api = if gives { *give } else { *back };
            let (call, at) = (outermost.call + u32::from(depth), outermost.at + u64::from(depth));
            records.push(Record { api, call, at, parent_distance: u16::from(depth > 0), ..outermost });
        }
        self.calls[thread] += self.layers.len() as u32 - 1;
        if !gives {
            records.reverse();
        }
        records
    }

    fn outermost(&mut self) -> Record {
        let fills = self.random.below(2 * self.wanted as u64) >= self.live.len() as u64;
        let thread = self.random.below(2) as usize;
        self.calls[thread] += 1;
        self.at_ns += 800 + self.random.below(4000);
        let event = if fills { Event::Alloc } else { Event::Free };
        let common = Record {
            at: self.at_ns,
            thread: THREADS[thread],
            call: self.calls[thread],
            device: 0,
            ..Record::new(event, Kind::Device)
        };
        if fills { self.allocation(common) } else { self.release(common) }
    }

    fn allocation(&mut self, common: Record) -> Record {
        let class = self.random.below(SIZES.len() as u64) as usize;
        let requested = SIZES[class] + 256 * self.random.below(64);
        let address = self.free_addresses.pop().unwrap_or_else(|| {
            self.next_address += 32 << 20;
            self.next_address
        });
        self.live.push(address);
        let duration = 600 + self.random.below(2000) as u32;
        Record { address, requested, duration, padded_granules: Granule::new(256 << 20).count(requested), ..common }
    }

    fn release(&mut self, common: Record) -> Record {
        let which = self.random.below(self.live.len() as u64) as usize;
        let address = self.live.swap_remove(which);
        self.free_addresses.push(address);
        Record { address, ..common }
    }
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let path = arguments.get(1).map_or("synthetic.trace.bin", String::as_str);
    let number = |at: usize, default| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (events, live) = (number(2, 10_000_000), number(3, 20_000) as usize);
    let mut builder = TraceBuilder::default().device(0, "AMD Instinct MI300X", 192 * GIB);
    let layers = [
        ("hipMalloc", "hipFree"),
        ("hsa_amd_memory_pool_allocate", "hsa_amd_memory_pool_free"),
        ("AMDKFD_IOC_ALLOC_MEMORY_OF_GPU", "AMDKFD_IOC_FREE_MEMORY_OF_GPU"),
    ];
    let blocks = (number(4, 1) == 0).then(|| builder.api(TENSOR));
    let layers = layers[..number(4, 1).clamp(1, 3) as usize].iter();
    let layers = layers.map(|(give, back)| (builder.api(give), builder.api(back))).collect();
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(&builder.bytes())?;
    let mut program = Program {
        random: Random(0x9E37_79B9_7F4A_7C15),
        live: Vec::new(),
        free_addresses: Vec::new(),
        next_address: 0x7f00_0000_0000,
        wanted: live,
        calls: [0; 2],
        at_ns: 1000,
        layers,
        waiting: Vec::new(),
        blocks,
        sites: 0,
    };
    let mut maker = ChunkMaker::default();
    let mut seq = 0;
    while seq < events {
        let until = events.min(seq + MAX_CHUNK_SLOTS as u64);
        let slots: Vec<SlotWords> = (seq..until).map(|seq| bytemuck::cast(program.next(seq))).collect();
        file.write_all(event_chunk(&mut maker, &slots, seq, Granule::new(256 << 20)))?;
        seq = until;
    }
    let end = file.stream_position()?;
    let mut header = builder.header;
    (header.head, header.tail, header.chunks_end) = (seq, seq, end);
    file.seek(SeekFrom::Start(0))?;
    file.write_all(bytemuck::bytes_of(&header))?;
    file.flush()
}
