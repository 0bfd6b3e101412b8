//! What an error text says: sizes, which are known as far as they were printed, and names.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::evidence::kernel_log::KernelEvent;
use crate::evidence::torch_message::{Printed, TorchMessage};

/// Declares names with their words.
macro_rules! named {
    ($(#[doc = $about:literal])* $kind:ident { $(#[doc = $meaning:literal] $name:ident = $word:literal, $shown:literal;)* }) => {
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $kind { $(#[doc = $meaning] $name,)* }

        impl $kind {
            /// The one that the table calls so.
            pub(super) fn named(word: &str) -> Option<$kind> {
                match word {
                    $($word => Some($kind::$name),)*
                    _ => None,
                }
            }

            /// As people read it.
            pub fn words(self) -> &'static str {
                match self {
                    $($kind::$name => $shown,)*
                }
            }
        }
    };
}

named! {
    /// A size that an error text has.
    Quantity {
        /// One allocation that was refused.
        Requested = "requested", "requested";
        /// What a plan needs in all.
        Needed = "needed", "needed";
        /// What there is for it.
        Available = "available", "available";
        /// Free on the device.
        Free = "free", "free";
        /// What the device has.
        Total = "total", "total";
        /// What the program's tensors hold.
        Allocated = "allocated", "allocated";
        /// Reserved by the allocator and used by no tensor.
        Unallocated = "unallocated", "reserved but unallocated";
        /// All that the allocator reserved.
        Reserved = "reserved", "reserved";
        /// Of what is allocated: in private pools.
        PrivatePools = "private_pools", "in private pools";
        /// The ceiling of this process.
        Allowed = "allowed", "allowed";
        /// What this process holds on the device.
        ThisProcess = "this_process", "held by this process";
        /// What others hold on the device.
        Others = "others", "held by others";
        /// What a process held in RAM.
        Resident = "resident", "resident in RAM";
    }
}

named! {
    /// A name or a plain number that an error text has.
    Name {
        /// Number of the device.
        Device = "device", "device";
        /// Process.
        Pid = "pid", "process";
        /// Its name.
        Process = "process", "process name";
        /// Name of a buffer, as `ROCm0`.
        Buffer = "buffer", "buffer";
        /// A share of the card, as it was set.
        Share = "share", "share";
        /// Sizes of a tensor's dimensions.
        Shape = "shape", "shape";
        /// Type of a tensor's elements.
        Type = "type", "type";
        /// Tokens of the longest request.
        Longest = "longest", "longest request in tokens";
        /// Tokens for which there is room.
        Fits = "fits", "tokens that fit";
        /// Number of an error.
        Code = "code", "code";
    }
}

/// What was read from one text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Captured {
    /// Sizes.
    pub sizes: BTreeMap<Quantity, Printed>,
    /// Names.
    pub names: BTreeMap<Name, String>,
}

impl Captured {
    /// A size.
    pub fn size(&self, quantity: Quantity) -> Option<Printed> {
        self.sizes.get(&quantity).copied()
    }

    /// Takes what another text about the same error says, where this one says nothing.
    pub(super) fn fill(&mut self, other: Captured) {
        for (quantity, size) in other.sizes {
            // Of two prints of one number the exact one is better.
            let is_better = |known: &Printed| {
                size.rounding_bytes < known.rounding_bytes && size.bytes.abs_diff(known.bytes) <= known.rounding_bytes
            };
            if self.sizes.get(&quantity).is_none_or(is_better) {
                self.sizes.insert(quantity, size);
            }
        }
        for (name, text) in other.names {
            self.names.entry(name).or_insert(text);
        }
    }

    /// The size of a tensor whose shape and type a text has, where no size is there.
    pub(super) fn size_shapes(&mut self) {
        let (Some(shape), Some(kind)) = (self.names.get(&Name::Shape), self.names.get(&Name::Type)) else { return };
        let size = element_bytes(kind).and_then(|bytes| {
            shape.split(',').try_fold(bytes, |size, dimension| size.checked_mul(dimension.trim().parse().ok()?))
        });
        if let Some(bytes) = size {
            self.sizes.entry(Quantity::Requested).or_insert(Printed { bytes, rounding_bytes: 0 });
        }
    }

    /// What PyTorch's message says.
    pub(super) fn of_torch(message: &TorchMessage) -> Captured {
        let others = message.other_processes.iter().map(|process| process.in_use).reduce(Printed::plus);
        let sizes = [
            (Quantity::Requested, message.tried),
            (Quantity::Total, message.total),
            (Quantity::Free, message.free),
            (Quantity::Allocated, message.allocated),
            (Quantity::Unallocated, message.unallocated()),
            (Quantity::Reserved, message.reserved),
            (Quantity::PrivatePools, message.private_pools),
            (Quantity::Allowed, message.allowed),
            (Quantity::ThisProcess, message.this_process),
            (Quantity::Others, others),
        ];
        let sizes = sizes.into_iter().filter_map(|(quantity, size)| Some((quantity, size?))).collect();
        let names = message.device.map(|device| (Name::Device, device.to_string())).into_iter().collect();
        Captured { sizes, names }
    }

    /// What a line of the kernel's log says.
    pub(super) fn of_kernel(event: &KernelEvent) -> Captured {
        let resident = event.sizes.iter().find(|(name, _)| *name == "anon-rss").map(|(_, bytes)| *bytes);
        let sizes = resident.map(|bytes| (Quantity::Resident, Printed { bytes, rounding_bytes: 0 }));
        let names = [
            (Name::Pid, event.pid.map(|pid| pid.to_string())),
            (Name::Process, event.process.clone()),
            (Name::Code, event.code.map(|code| code.to_string())),
        ];
        Captured {
            sizes: sizes.into_iter().collect(),
            names: names.into_iter().filter_map(|(name, text)| Some((name, text?))).collect(),
        }
    }
}

/// Bytes of one element, by TensorFlow's names of types (tensorflow/core/framework/types.cc).
fn element_bytes(kind: &str) -> Option<u64> {
    Some(match kind {
        "bool" | "int8" | "uint8" => 1,
        "half" | "bfloat16" | "int16" | "uint16" => 2,
        "float" | "int32" | "uint32" => 4,
        "double" | "int64" | "uint64" | "complex64" => 8,
        "complex128" => 16,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_shape(shape: &str, kind: &str) -> Option<u64> {
        let names = [(Name::Shape, shape.to_owned()), (Name::Type, kind.to_owned())].into();
        let mut captured = Captured { names, ..Captured::default() };
        captured.size_shapes();
        captured.size(Quantity::Requested).map(|size| size.bytes)
    }

    #[test]
    fn the_size_of_a_tensor_is_that_of_its_elements() {
        assert_eq!(of_shape("25088,4096", "float"), Some(25088 * 4096 * 4));
        assert_eq!(of_shape("16", "half"), Some(32));
        for (shape, kind) in [("2,", "float"), ("2", "string"), ("99999999999,99999999999", "float")] {
            assert_eq!(of_shape(shape, kind), None, "{shape} {kind}");
        }
    }

    #[test]
    fn the_exact_print_of_a_number_counts() {
        let of = |bytes, rounding_bytes| Captured {
            sizes: [(Quantity::Requested, Printed { bytes, rounding_bytes })].into(),
            ..Captured::default()
        };
        for (other, kept) in [(of(103, 0), 103), (of(200, 0), 100), (of(101, 50), 100)] {
            let mut captured = of(100, 5);
            captured.fill(other);
            assert_eq!(captured.size(Quantity::Requested).map(|size| size.bytes), Some(kept));
        }
    }
}
