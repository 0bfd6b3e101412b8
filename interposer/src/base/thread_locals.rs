//! The standard library's thread-locals are not destroyed when a thread ends.
//!
//! It registers each with `__cxa_thread_atexit_impl`, for which the C library takes memory: where a process has none left, that ends
//! the process (`Fatal glibc error: failed to register TLS destructor`). Asking for memory before does not help, because another thread
//! may take it in between. So this library has a function of that name for itself alone, hidden from everybody else, which does
//! nothing. What stays is a few hundred bytes for each of the recorder's own threads, of which there are few; what the program's
//! threads need is in [`super::thread`], and has nothing to destroy.

use std::arch::global_asm;

global_asm!(
    ".pushsection .text.gpuoom_thread_locals,\"ax\",@progbits",
    ".globl __cxa_thread_atexit_impl",
    ".hidden __cxa_thread_atexit_impl",
    ".type __cxa_thread_atexit_impl,@function",
    "__cxa_thread_atexit_impl:",
    "xor eax, eax",
    "ret",
    ".size __cxa_thread_atexit_impl,.-__cxa_thread_atexit_impl",
    ".popsection",
);
