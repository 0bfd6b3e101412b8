//! The hook on `ioctl`.

use std::ffi::{c_int, c_ulong};
use std::sync::atomic::{AtomicPtr, Ordering};

use gpuoom_trace::record::Event;

use super::payload::Payload;
use super::plan::{How, Plan};
use super::{calls, drm, kfd, nvidia, origin, uvm};
use crate::base::{config, guard, thread};
use crate::call::{Frame, probed};
use crate::devices::nodes::{self, Node};
use crate::link;
use crate::record::state;

/// Letters of the drivers' requests. Their lowest three bits differ, which [`CANDIDATES`] needs.
const KFD: u8 = b'K';
const DRM: u8 = b'd';
const NVIDIA: u8 = b'F';
/// NVIDIA's unified memory numbers its requests from 1 on, without a letter.
const UVM: u8 = 0;

/// The next `ioctl`: the C library's, or another preloaded one behind us. Null until it is first needed.
static NEXT: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// A bit for each number of each letter that may be recorded, at (letter mod 8) * 256 + number.
static CANDIDATES: [u32; 64] = candidates();

const fn candidates() -> [u32; 64] {
    let letters: [(u8, &[u8]); 4] =
        [(KFD, &kfd::NUMBERS), (DRM, &drm::NUMBERS), (NVIDIA, &nvidia::NUMBERS), (UVM, &uvm::NUMBERS)];
    let (mut bits, mut letter) = ([0; 64], 0);
    while letter < letters.len() {
        let (name, numbers) = letters[letter];
        let mut index = 0;
        while index < numbers.len() {
            let bit = (name as usize & 7) << 8 | numbers[index] as usize;
            bits[bit / 32] |= 1 << (bit % 32);
            index += 1;
        }
        letter += 1;
    }
    bits
}

/// # Safety
/// As the C library's `ioctl`.
#[cfg_attr(not(test), unsafe(export_name = "ioctl"))]
#[unsafe(naked)]
pub(super) unsafe extern "C" fn ioctl() {
    // The descriptor is in edi, the request in rsi, its argument in rdx, the number of vector registers in al. All stay as
    // they are: r10 and r11 are free at the call of a C function.
    std::arch::naked_asm!(
        "mov r11d, esi",
        "shr r11d, 8",
        "movzx r11d, r11b",
        "cmp r11d, {kfd}",
        "je 2f",
        "cmp r11d, {drm}",
        "je 2f",
        "cmp r11d, {nvidia}",
        "je 2f",
        "cmp r11d, {uvm}",
        "je 2f",
        "3:",
        "mov r11, qword ptr [rip + {next}]",
        "test r11, r11",
        "jz 4f",
        "jmp r11",
        "2:",
        "lea r10, [rip + {candidates}]",
        "mov r11d, esi",
        "and r11d, 0x7FF",
        "bt dword ptr [r10], r11d",
        "jnc 3b",
        // One of ours, by its name: as in a recorded hook, return address, stack pointer and rbp go into the
        // thread's block.
        "mov r11, qword ptr [rsp]",
        "mov r10, qword ptr [rip + gpuoom_thread@GOTTPOFF]",
        "mov qword ptr fs:[r10], r11",
        "mov qword ptr fs:[r10 + 24], rsp",
        "mov qword ptr fs:[r10 + 32], rbp",
        "jmp {body}",
        "4:",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rax",
        "sub rsp, 8",
        "call {find}",
        "mov r11, rax",
        "add rsp, 8",
        "pop rax",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp r11",
        kfd = const KFD,
        drm = const DRM,
        nvidia = const NVIDIA,
        uvm = const UVM,
        next = sym NEXT,
        candidates = sym CANDIDATES,
        body = sym body,
        find = sym find,
    )
}

type Ioctl = unsafe extern "C-unwind" fn(c_int, c_ulong, ...) -> c_int;

/// Looks for the next `ioctl`. No heap: the first caller may be anybody, at any moment.
extern "C" fn find() -> *mut () {
    let found = guard::cold(std::ptr::null_mut(), || link::next::after_us(c"ioctl").cast::<()>());
    let found = if found.is_null() { by_system_call as *mut () } else { found };
    // Release: whoever sees the pointer may call through it. Two threads find the same.
    NEXT.store(found, Ordering::Release);
    found
}

/// Stands in where nobody has an `ioctl`.
unsafe extern "C-unwind" fn by_system_call(fd: c_int, request: c_ulong, argument: u64) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) as c_int }
}

fn real(fd: c_int, request: c_ulong, argument: u64) -> c_int {
    let known = NEXT.load(Ordering::Acquire);
    let next = if known.is_null() { find() } else { known };
    // SAFETY: a function of this name and signature, and the program's own arguments.
    unsafe { std::mem::transmute::<*mut (), Ioctl>(next)(fd, request, argument) }
}

/// A candidate.
unsafe extern "C-unwind" fn body(fd: c_int, request: c_ulong, argument: u64) -> c_int {
    let errno = guard::errno();
    let planned = plan(fd, request, argument);
    let Some((plan, payload)) = planned else {
        // Looking at a descriptor or a pointer that is none leaves an error, which a successful call would not clear.
        guard::set_errno(errno);
        return real(fd, request, argument);
    };
    let frame = begin(&plan);
    guard::set_errno(errno);
    match frame {
        Some(frame) => calls::make(&frame, &plan, &payload, || real(fd, request, argument)),
        None => {
            let result = real(fd, request, argument);
            if result == 0 && (plan.how == How::Tells || probed::is_under_way()) {
                tell(&plan, &payload);
            }
            result
        }
    }
}

/// What the request is about, if it is one that is recorded, on a descriptor of that driver.
fn plan(fd: c_int, request: c_ulong, argument: u64) -> Option<(Plan, Payload)> {
    if thread::current().is_recorders.get() && !probed::is_under_way() || config::get().disabled {
        return None;
    }
    let [number, letter] = [request as u8, (request >> 8) as u8];
    let size = (request >> 16) as usize & 0x3FFF;
    let node = nodes::of(fd)?;
    // Which of NVIDIA's handles go with which block of a probe nobody has seen.
    if probed::is_under_way() && !matches!(node, Node::Kfd | Node::Amdgpu(_)) {
        return None;
    }
    if node == Node::Uvm {
        // The driver compares 32 bits, as the system call hands them over.
        return uvm::plan(u8::try_from(request as u32).ok()?, fd, argument);
    }
    let payload = Payload::read(fd, argument, size)?;
    match (node, letter) {
        (Node::Kfd, KFD) => Some((kfd::plan(number, &payload)?, payload)),
        (Node::Amdgpu(minor), DRM) => Some((drm::plan(number, minor, &payload)?, payload)),
        (Node::Nvidia, NVIDIA) => {
            let (number, payload) = nvidia::unwrap(number, payload)?;
            Some((nvidia::plan(number, &payload)?, payload))
        }
        _ => None,
    }
}

/// Enters the call; `None` when it is only forwarded.
fn begin(plan: &Plan) -> Option<Frame> {
    let is_recorded = plan.how != How::Tells && (plan.starts_recording() || state::running().is_some());
    if !is_recorded {
        return None;
    }
    if probed::is_under_way() {
        return (plan.how == How::Gives).then(|| probed::given_back(plan.api(), plan.what.address))?;
    }
    let passed_on = origin::passes_on(thread::current().caller.get());
    Frame::enter_for(plan.api(), passed_on)
}

/// Remembers what the driver has answered.
fn tell(plan: &Plan, payload: &Payload) {
    let errno = guard::errno();
    if let Some(after) = payload.again()
        && plan.status_at.is_none_or(|at| after.u32(at) == Some(0))
    {
        let mut what = plan.what;
        (plan.complete)(&mut what, &after);
        // To map a block takes none: it may be the program's.
        if probed::is_under_way() && plan.how == How::Takes && plan.event != Event::Map {
            probed::taken(plan.api(), what.address);
        }
    }
    guard::set_errno(errno);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_are_those_of_the_tables() {
        let is_set = |letter: u8, number: u8| {
            let bit = (usize::from(letter) & 7) << 8 | usize::from(number);
            CANDIDATES[bit / 32] >> (bit % 32) & 1 != 0
        };
        for (letter, numbers) in
            [(KFD, &kfd::NUMBERS[..]), (DRM, &drm::NUMBERS), (NVIDIA, &nvidia::NUMBERS), (UVM, &uvm::NUMBERS)]
        {
            for number in 0..=u8::MAX {
                assert_eq!(is_set(letter, number), numbers.contains(&number), "{letter} {number:#x}");
            }
        }
        assert_eq!(CANDIDATES.iter().map(|word| word.count_ones()).sum::<u32>(), 31);
    }

    #[test]
    fn the_stub_lets_others_through() {
        // SAFETY: the hook has the signature of `ioctl`.
        let hook = unsafe { std::mem::transmute::<unsafe extern "C" fn(), Ioctl>(ioctl) };
        let mut waiting: c_int = -1;
        let mut pipe = [0; 2];
        // SAFETY: a place for two descriptors; a pipe with three bytes in it; a place for the count.
        unsafe {
            assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
            assert_eq!(libc::write(pipe[1], c"abc".as_ptr().cast(), 3), 3);
            assert_eq!(hook(pipe[0], libc::FIONREAD, &raw mut waiting), 0);
            assert_eq!(waiting, 3);
            // A KFD request on a pipe is the kernel's to refuse.
            assert_eq!(hook(pipe[0], 0xC028_4B16, 8usize), -1);
            assert_eq!(guard::errno(), libc::ENOTTY);
        }
    }
}
