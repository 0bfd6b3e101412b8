//! Copies and fills of nothing: they are no work, and a null pointer given to them stands for "none".

use crate::table::Row;

/// Where functions have the sizes that make them do nothing when one is zero: part of the name, and positions of arguments. The
/// first row that fits counts. What has its sizes behind the registers, or in a structure, has no position here.
const SIZES: [(&str, &[usize]); 17] = [
    ("2DArrayToArray", &[]),
    ("2DToArray", &[5]),
    ("2DFromArray", &[5]),
    ("emcpy2D", &[4, 5]),
    ("emset2D", &[3, 4]),
    ("emsetD2D", &[3, 4]),
    ("ArrayToArray", &[]),
    ("ToArray", &[4]),
    ("FromArray", &[4]),
    ("Peer", &[4]),
    ("AtoA", &[4]),
    ("DtoA", &[3]),
    ("AtoD", &[3]),
    ("HtoA", &[3]),
    ("AtoH", &[3]),
    ("async_copy", &[4]),
    ("em", &[2]),
];

/// Positions of the arguments that say how much a call moves or fills.
fn sizes(row: &Row) -> &'static [usize] {
    SIZES.iter().find(|(part, _)| row.name.contains(part)).map_or(&[], |(_, positions)| positions)
}

/// Whether a call with these arguments surely moves and fills nothing. Where the addresses lie in a structure, the sizes do, too.
pub(super) fn is_nothing(row: &Row, arguments: &[u64; 6]) -> bool {
    row.pointers != 0 && sizes(row).iter().any(|position| arguments[*position] == 0)
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
    fn a_size_is_no_pointer() {
        let rows =
            (0..table::COUNT as u16).map(table::row).filter(|row| row.event == Event::GpuWork && row.pointers != 0);
        for row in rows {
            let clash = sizes(row).iter().find(|position| row.pointers & (1 << **position) != 0);
            assert_eq!(clash, None, "{}", row.name);
        }
    }

    #[test]
    fn each_function_has_its_sizes_where_the_headers_say() {
        for (name, positions) in [
            ("hipMemcpy", &[2][..]),
            ("hipMemcpyHtoDAsync", &[2]),
            ("hipMemsetD32Async", &[2]),
            ("hipMemcpyPeerAsync", &[4]),
            ("hipMemcpy2DAsync", &[4, 5]),
            ("hipMemcpy2DToArray", &[5]),
            ("hipMemcpyToArray", &[4]),
            ("hipMemcpyToSymbol", &[2]),
            ("hipMemset2D", &[3, 4]),
            ("cudaMemcpyFromArray_ptds", &[4]),
            ("cudaMemcpyArrayToArray", &[]),
            ("cuMemsetD2D16_v2", &[3, 4]),
            ("cuMemcpyDtoA_v2", &[3]),
            ("hsa_memory_copy", &[2]),
            ("hsa_amd_memory_async_copy_on_engine", &[4]),
        ] {
            assert_eq!(sizes(row(name)), positions, "{name}");
        }
    }

    #[test]
    fn a_copy_of_no_bytes_is_nothing() {
        assert!(is_nothing(row("hipMemcpy"), &[0, 0, 0, 1, 0, 0]));
        assert!(!is_nothing(row("hipMemcpy"), &[0, 0, 4096, 0, 0, 0]));
        assert!(is_nothing(row("hipMemcpy2D"), &[0, 64, 0, 64, 64, 0]));
        assert!(!is_nothing(row("hipLaunchKernel"), &[0; 6]));
        for in_structures in ["hsa_amd_memory_async_batch_copy", "cuMemcpy2D_v2", "hipMemcpy3D", "cudaMemcpyBatchAsync"]
        {
            assert!(!is_nothing(row(in_structures), &[0x1000, 3, 0, 0, 0, 0]), "{in_structures}");
        }
    }
}
