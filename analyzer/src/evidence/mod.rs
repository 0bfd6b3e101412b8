//! Evidence from beside the trace: what the program, PyTorch, the vendor's tools and the kernel wrote. Values only; nothing
//! here trusts its input.

pub mod torch_message;
