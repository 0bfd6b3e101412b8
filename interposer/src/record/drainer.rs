//! Who may drain: a lock, the file, and the memory set aside for it.

use std::cell::UnsafeCell;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use gpuoom_trace::chunk::ChunkMaker;
use gpuoom_trace::columns::MAX_CHUNK_SLOTS;
use gpuoom_trace::ring::SlotWords;

use super::file::File;
use crate::base::{guard, thread};

/// What the holder of the lock works with.
pub(super) struct Memory {
    pub(super) maker: ChunkMaker,
    pub(super) slots: Vec<SlotWords>,
    pub(super) blocked_at: u64,
    pub(super) blocked_looks: u32,
}

/// The one who drains, the file, and the memory set aside for it.
pub(crate) struct Drainer {
    /// Kernel thread id of the holder, 0: free.
    owner: AtomicU32,
    memory: UnsafeCell<Memory>,
    file: File,
}

impl Drainer {
    pub(super) fn new(file: File) -> Self {
        let memory = Memory {
            maker: ChunkMaker::default(),
            slots: vec![[0; 8]; MAX_CHUNK_SLOTS],
            blocked_at: u64::MAX,
            blocked_looks: 0,
        };
        Drainer { owner: AtomicU32::new(0), memory: UnsafeCell::new(memory), file }
    }

    /// Gives the file its name.
    pub(crate) fn publish(&mut self, pid: u32) -> Result<(), std::io::Error> {
        self.file.publish(pid)
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn try_lock(&self) -> Option<Locked<'_>> {
        let me = thread::kernel_thread_id();
        // Acquire: what the previous holder did to the memory is seen; its release is in `Drop`.
        self.owner.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(Locked { drainer: self })
    }

    /// Takes the lock within about `micros`, unless the holder is this very thread (a signal handler above its own
    /// draining), which could never let go.
    pub(super) fn lock(&self, micros: i64) -> Option<Locked<'_>> {
        let me = thread::kernel_thread_id();
        for _ in 0..=micros / 50 {
            if let Some(locked) = self.try_lock() {
                return Some(locked);
            }
            if self.owner.load(Ordering::Relaxed) == me {
                return None;
            }
            guard::sleep_micros(50);
        }
        None
    }
}

/// The drain lock, held.
pub(super) struct Locked<'a> {
    drainer: &'a Drainer,
}

impl Locked<'_> {
    pub(super) fn memory(&mut self) -> &mut Memory {
        // SAFETY: only the holder of the lock gets here, and `&mut self` makes it once at a time.
        unsafe { &mut *self.drainer.memory.get() }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `try_lock`.
        self.drainer.owner.store(0, Ordering::Release);
    }
}
