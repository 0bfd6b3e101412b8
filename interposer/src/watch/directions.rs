//! Which pointer of a copy is the host's. A failed device allocation did not leave a null there.

use crate::table::Row;

/// Where copies have their kind: part of the name, and the position of that argument; from [`IN_REGISTERS`] on it lies on the stack.
/// The first row that fits counts. What has no row says its direction by its name, or by nothing.
const KINDS: [(&str, usize); 9] = [
    ("emcpy2DArrayToArray", 8),
    ("emcpyArrayToArray", 7),
    ("emcpy2DToArray", 7),
    ("emcpy2DFromArray", 7),
    ("emcpy2D", 6),
    ("emcpyToArray", 5),
    ("emcpyFromArray", 5),
    ("Symbol", 4),
    ("emcpy", 3),
];

/// Arguments that come in registers (System V ABI for x86-64).
pub(super) const IN_REGISTERS: usize = 6;

/// Copies of the runtimes whose fourth argument is no kind.
const WITHOUT: [&str; 13] =
    ["Peer", "HtoD", "DtoH", "DtoD", "HtoA", "AtoH", "DtoA", "AtoD", "AtoA", "Attributes", "Batch", "3D", "Param"];

/// Where a row has its kind of copy.
pub(super) fn kind_position(row: &Row) -> Option<usize> {
    let is_runtimes = row.name.starts_with("hipMem") || row.name.starts_with("cudaMem");
    if row.pointers == 0 || !is_runtimes || WITHOUT.iter().any(|part| row.name.contains(part)) {
        return None;
    }
    KINDS.iter().find(|(part, _)| row.name.contains(part)).map(|(_, position)| *position)
}

/// Positions of the pointers that are of the host by the kind of the copy, a bit each. The destination comes first.
pub(super) fn of_host(row: &Row, kind: u64) -> u8 {
    /// `hipMemcpyKind` and `cudaMemcpyKind`: what is copied from where.
    const HOST_TO_HOST: u32 = 0;
    const HOST_TO_DEVICE: u32 = 1;
    const DEVICE_TO_HOST: u32 = 2;
    match kind as u32 {
        HOST_TO_HOST => row.pointers,
        HOST_TO_DEVICE => row.pointers & !1,
        DEVICE_TO_HOST => row.pointers & 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use gpuoom_trace::record::Event;

    use super::*;
    use crate::table;

    fn row(name: &str) -> &'static Row {
        table::row(table::number_of(name).unwrap())
    }

    #[test]
    fn each_copy_has_its_kind_where_the_headers_say() {
        for (name, position) in [
            ("hipMemcpy", Some(3)),
            ("hipMemcpyAsync_spt", Some(3)),
            ("hipMemcpyWithStream", Some(3)),
            ("cudaMemcpy2DAsync_ptsz", Some(6)),
            ("hipMemcpy2DToArray", Some(7)),
            ("hipMemcpy2DFromArrayAsync", Some(7)),
            ("hipMemcpy2DArrayToArray", Some(8)),
            ("cudaMemcpyArrayToArray", Some(7)),
            ("hipMemcpyToArray", Some(5)),
            ("cudaMemcpyFromArray_ptds", Some(5)),
            ("hipMemcpyToSymbolAsync", Some(4)),
            ("cudaMemcpyFromSymbol", Some(4)),
            ("hipMemcpyHtoD", None),
            ("hipMemcpyDtoHAsync", None),
            ("hipMemcpyPeerAsync", None),
            ("cudaMemcpyWithAttributesAsync", None),
            ("cuMemcpy", None),
            ("hipMemset", None),
            ("hsa_memory_copy", None),
        ] {
            assert_eq!(kind_position(row(name)), position, "{name}");
        }
    }

    #[test]
    fn a_kind_is_no_pointer() {
        let rows = (0..table::COUNT as u16).map(table::row).filter(|row| row.event == Event::GpuWork);
        for row in rows {
            let Some(position) = kind_position(row) else { continue };
            assert!(position >= IN_REGISTERS || row.pointers & (1 << position) == 0, "{}", row.name);
        }
    }

    #[test]
    fn the_kind_says_which_side_is_the_hosts() {
        let copy = row("hipMemcpy");
        assert_eq!([0, 1, 2, 3, 4].map(|kind| of_host(copy, kind)), [0b11, 0b10, 0b01, 0, 0]);
        assert_eq!(of_host(row("hipMemcpy2D"), 1), 0b100);
        assert_eq!(of_host(row("hipMemcpyToSymbol"), 1), 0b10);
        assert_eq!(of_host(row("hipMemcpyFromSymbol"), 2), 0b1);
    }
}
