//! Machines for labelled traces: the files that a recorder would have kept.

/// RAM of a Strix Halo with 128 GiB, without what the firmware keeps.
pub(super) const RAM: u64 = 131_151_392 << 10;
/// Half of it: what TTM gives by itself.
pub(super) const HALF: u64 = 16_393_924 * 4096;

/// A machine with one GPU of AMD at `0000:03:00.0`.
#[derive(Clone, Copy)]
pub(super) struct AmdMachine {
    /// `gfx_target_version`: 110501 is gfx1151, an APU; 110000 is gfx1100.
    pub(super) target: u64,
    /// `MemTotal`.
    pub(super) ram: u64,
    /// TTM limit in bytes.
    pub(super) ttm: u64,
    /// `mem_info_vram_total`.
    pub(super) vram: u64,
    /// `mem_info_gtt_total`.
    pub(super) gtt: u64,
    /// KFD's memory bank.
    pub(super) bank: u64,
}

/// An APU whose kernel gives half of the RAM, as it is delivered.
pub(super) const STRIX_HALO: AmdMachine =
    AmdMachine { target: 110_501, ram: RAM, ttm: HALF, vram: 512 << 20, gtt: HALF, bank: HALF };
/// A card of 24 GiB in a machine with 64.
pub(super) const CARD: AmdMachine =
    AmdMachine { target: 110_000, ram: 64 << 30, ttm: 32 << 30, vram: 24 << 30, gtt: 32 << 30, bank: 24 << 30 };

impl AmdMachine {
    /// Its files, with more of them.
    pub(super) fn with(self, more: &[(&str, String)]) -> Vec<(String, String)> {
        let (node, card) = ("/sys/class/kfd/kfd/topology/nodes/1", "/sys/class/drm/card0/device");
        let mut files = vec![
            ("/proc/meminfo".to_owned(), format!("MemTotal: {} kB\n", self.ram >> 10)),
            (format!("{card}/vendor"), "0x1002\n".to_owned()),
            (format!("{card}/uevent"), "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0\n".to_owned()),
            (format!("{card}/mem_info_vram_total"), format!("{}\n", self.vram)),
            (format!("{card}/mem_info_gtt_total"), format!("{}\n", self.gtt)),
            (format!("{node}/gpu_id"), "51312\n".to_owned()),
            (
                format!("{node}/properties"),
                format!("simd_count 80\nlocation_id 768\ndomain 0\ngfx_target_version {}\n", self.target),
            ),
            (format!("{node}/mem_banks/0/properties"), format!("heap_type 1\nsize_in_bytes {}\n", self.bank)),
            ("/sys/module/ttm/parameters/pages_limit".to_owned(), format!("{}\n", self.ttm / 4096)),
        ];
        files.extend(more.iter().map(|(path, text)| ((*path).to_owned(), text.clone())));
        files
    }

    /// Its files.
    pub(super) fn files(self) -> Vec<(String, String)> {
        self.with(&[])
    }
}
