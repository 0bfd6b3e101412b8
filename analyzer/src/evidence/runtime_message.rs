//! What the GPU runtime itself writes to a program's standard error: why it aborts, and what it did not find.
//!
//! Sources: ROCr amd_memory_region.cpp (block allocator), hsa.h (names of its errors); ROCm/clr rocdevice.cpp (queues that
//! abort); user document 002 (libdrm).

use serde::Serialize;

/// Most messages that are kept.
const MOST: usize = 1000;
/// Longest part of a line that is kept.
const MOST_CHARACTERS: usize = 300;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeSays {
    /// It found no memory for itself.
    OutOfResources,
    /// An address was illegal.
    IllegalAddress,
    /// Code was not made for this GPU, or is none.
    InvalidCode,
    /// A queue aborted, for another reason.
    QueueAborted,
    /// `libdrm_amdgpu.so` can't be opened.
    NoLibdrm,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuntimeMessage {
    /// Line, from 1.
    pub line: u64,
    /// What it says.
    pub says: RuntimeSays,
    /// The line.
    pub text: String,
}

/// What lines have in them: all of these words. The first row that fits counts.
const ROWS: [(&[&str], RuntimeSays); 11] = [
    (&["HSA_STATUS_ERROR_OUT_OF_RESOURCES"], RuntimeSays::OutOfResources),
    (&["BlockAllocator::alloc failed"], RuntimeSays::OutOfResources),
    (&["Memory access fault by GPU"], RuntimeSays::IllegalAddress),
    (&["HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION"], RuntimeSays::IllegalAddress),
    (&["HSA_STATUS_ERROR_MEMORY_FAULT"], RuntimeSays::IllegalAddress),
    (&["HSA_STATUS_ERROR_INVALID_ISA"], RuntimeSays::InvalidCode),
    (&["HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION"], RuntimeSays::InvalidCode),
    (&["HSA_STATUS_ERROR_INVALID_CODE_OBJECT"], RuntimeSays::InvalidCode),
    (&["Queue", "aborting with error"], RuntimeSays::QueueAborted),
    (&["libdrm_amdgpu.so", "annot open"], RuntimeSays::NoLibdrm),
    (&["libdrm_amdgpu.so", "No such file"], RuntimeSays::NoLibdrm),
];

/// All such lines of a log.
pub fn find_all(log: &str) -> Vec<RuntimeMessage> {
    let message = |(number, line): (usize, &str)| {
        let row = ROWS.iter().find(|(words, _)| words.iter().all(|word| line.contains(word)))?;
        let text = line.trim().chars().take(MOST_CHARACTERS).collect();
        Some(RuntimeMessage { line: number as u64 + 1, says: row.1, text })
    };
    log.lines().enumerate().filter_map(message).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_runtime_are_told_apart() {
        let log = "loading\n\
            :0:rocdevice.cpp:2875: Callback: Queue 0x7f00 aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime \
            failed to allocate the necessary resources.\n\
              what():  MemoryRegion::BlockAllocator::alloc failed.\n\
            Memory access fault by GPU node-1 (Agent handle: 0x55) on address 0x7f. Reason: Unknown.\n\
            libdrm_amdgpu.so: cannot open shared object file: No such file or directory\n\
            Queue 0x7f00 aborting with error : HSA_STATUS_ERROR_INVALID_ISA\n";
        let says: Vec<_> = find_all(log).into_iter().map(|message| (message.line, message.says)).collect();
        assert_eq!(
            says,
            [
                (2, RuntimeSays::OutOfResources),
                (3, RuntimeSays::OutOfResources),
                (4, RuntimeSays::IllegalAddress),
                (5, RuntimeSays::NoLibdrm),
                (6, RuntimeSays::InvalidCode),
            ]
        );
        assert_eq!(find_all("nothing of that sort: libdrm_amdgpu.so.1 => /usr/lib/libdrm_amdgpu.so.1"), []);
    }
}
