//! Arithmetic of GPUs that use the host's memory (APUs). Sources: Linux `drivers/gpu/drm/ttm/ttm_device.c` (half of the
//! RAM), `amdgpu_amdkfd_gpuvm.c` (KFD's limit of system memory).

use super::PAGE_BYTES;

/// What a host keeps for itself beside a GPU, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostKeeps {
    /// Below this the machine may freeze.
    pub least_bytes: u64,
    /// What is good.
    pub good_bytes: u64,
}

/// The limit that TTM gives itself: half of the RAM, in pages.
pub fn default_pages(ram_bytes: u64) -> u64 {
    ram_bytes / PAGE_BYTES / 2
}

/// The limit, in pages, that keeps so many bytes for the host.
pub fn pages_keeping(ram_bytes: u64, kept_bytes: u64) -> u64 {
    ram_bytes.saturating_sub(kept_bytes) / PAGE_BYTES
}

/// What KFD gives of the host's memory at most: the RAM less a 64th and less 1.5 GiB. A TTM limit above it adds nothing.
pub fn kfd_limit_bytes(ram_bytes: u64) -> u64 {
    ram_bytes.saturating_sub(ram_bytes / 64).saturating_sub(3 << 29)
}

/// What KFD keeps of video memory for page tables: the 16384th part of all memory, at least 8 MiB.
pub fn page_table_reserve_bytes(ram_bytes: u64, vram_bytes: u64) -> u64 {
    (ram_bytes.saturating_add(vram_bytes) / 16_384).max(8 << 20)
}

/// The TTM limit to set, in pages: what keeps enough for the host, never more than KFD gives.
pub fn recommended_pages(ram_bytes: u64, keeps: HostKeeps) -> u64 {
    // A machine with little memory keeps a quarter instead.
    let kept = keeps.good_bytes.min((ram_bytes / 4).max(keeps.least_bytes));
    pages_keeping(ram_bytes, kept).min(kfd_limit_bytes(ram_bytes) / PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAM: u64 = 131_151_392 << 10;
    const KEEPS: HostKeeps = HostKeeps { least_bytes: 4 << 30, good_bytes: 8 << 30 };

    #[test]
    fn the_numbers_of_a_strix_halo_with_128_gib() {
        assert_eq!(default_pages(RAM), 16_393_924);
        assert_eq!(default_pages(RAM) * PAGE_BYTES, 67_149_512_704);
        assert_eq!(default_pages(RAM) * PAGE_BYTES, 65_575_696 << 10);
        assert_eq!((120u64 << 30) / PAGE_BYTES, 31_457_280);
        assert_eq!(pages_keeping(RAM, 8 << 30), 30_690_696);
        assert_eq!(recommended_pages(RAM, KEEPS), 30_690_696);
        assert_eq!(kfd_limit_bytes(RAM), 130_589_990_400);
        let left = (RAM - (120 << 30)) as f64 / (1u64 << 30) as f64;
        assert_eq!(format!("{left:.4}"), "5.0757");
    }

    #[test]
    fn small_and_impossible_machines() {
        assert_eq!(page_table_reserve_bytes(64 << 30, 24 << 30), 8 << 20);
        assert_eq!(recommended_pages(16 << 30, KEEPS) * PAGE_BYTES, 12 << 30);
        assert_eq!((default_pages(0), recommended_pages(0, KEEPS), kfd_limit_bytes(1 << 30)), (0, 0, 0));
        assert_eq!(kfd_limit_bytes(u64::MAX) < u64::MAX, pages_keeping(u64::MAX, 0) > 0);
    }
}
