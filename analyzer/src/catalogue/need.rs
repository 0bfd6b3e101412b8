//! What a tracker asks for with a report: the keys that the catalogue's filings name.

use serde::{Deserialize, Serialize};

/// Declares the keys once: their variants, and what each stands for.
macro_rules! needs {
    ($($variant:ident: $what:literal;)*) => {
        /// One thing that a tracker asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Need {
            $(#[doc = $what] $variant,)*
        }

        impl Need {
            /// All of them.
            pub const ALL: &[Need] = &[$(Need::$variant),*];

            /// What it is, as people read it.
            pub fn what(self) -> &'static str {
                match self {
                    $(Need::$variant => $what,)*
                }
            }
        }
    };
}

needs! {
    Trace: "the trace";
    Versions: "versions of the runtime, the driver and the framework";
    CommandLine: "the command line";
    CallsAfterFailure: "the calls after the failure";
    PoolAttributes: "the pool's attributes";
    ExportsAndFrees: "exports and frees";
    DriverAllocationInside: "the driver's allocation inside the call";
    FreeMemoryByBoth: "free memory by the runtime and by the driver at one moment";
    FreeMemoryAroundFrees: "free memory around the frees";
    MemoryAfterEachRun: "memory in use after each run";
    MemoryInUse: "memory in use";
    ProcessList: "the processes that hold memory of the card";
    GraphicsClients: "the graphics clients of the card";
    RuntimePools: "the pools of the runtime";
    LogsOfBothRuns: "the runtime's log of both runs (HSAKMT_DEBUG_LEVEL=7, AMD_LOG_LEVEL=4)";
    LibraryLog: "the library's log";
    LlamaBuffers: "what llama.cpp says of its buffers";
    TorchSnapshot: "a memory snapshot of PyTorch";
    CollectEnv: "PyTorch's description of the machine (collect_env)";
    AllocatorSettings: "settings of the allocator";
    TtmLimit: "TTM's limit";
    GttTotal: "the GTT total";
    KfdMemoryBank: "the size of KFD's memory banks";
    RuntimeTotal: "the total that the runtime reports";
    Mappings: "the number of memory mappings";
    LiveBlocks: "live blocks and handles";
    OpenDescriptors: "the number of open descriptors";
    MeasuredSlope: "the measured slope";
    WheelTag: "name and tag of the wheel";
    LibraryHashes: "hashes of the libraries";
}
