//! The way of a watched call while something is watched, or before its real function is known.

use gpuoom_trace::meaning::Does;
use gpuoom_trace::metadata::trigger;
use gpuoom_trace::outcome::Step;
use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, MAX_PAYLOAD_BYTES, Record, flag};

use super::empty;
use super::failure::{self, FailedPointer};
use super::waits::Target;
use crate::base::{guard, program_memory, thread};
use crate::call::{Described, Frame};
use crate::table::{self, Row};
use crate::{faults, link};

/// The argument registers of the call, as the stub saved them.
#[repr(C)]
pub(crate) struct Arguments {
    integers: [u64; 6],
    rax: u64,
    unused: u64,
    vectors: [[u64; 2]; 8],
}

/// Saves every register that can hold an argument, lets [`seen`] record the call, puts all back, and jumps to the real
/// function as if nothing had been in between. The row's number comes in r11.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn slow_path() {
    // 64 bytes of integer registers and 128 of vector registers, 16-byte aligned. rbp keeps the caller's stack pointer;
    // the return address lies at rbp + 8.
    std::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "sub rsp, 192",
        "and rsp, -16",
        "mov [rsp], rdi",
        "mov [rsp + 8], rsi",
        "mov [rsp + 16], rdx",
        "mov [rsp + 24], rcx",
        "mov [rsp + 32], r8",
        "mov [rsp + 40], r9",
        "mov [rsp + 48], rax",
        "movups [rsp + 64], xmm0",
        "movups [rsp + 80], xmm1",
        "movups [rsp + 96], xmm2",
        "movups [rsp + 112], xmm3",
        "movups [rsp + 128], xmm4",
        "movups [rsp + 144], xmm5",
        "movups [rsp + 160], xmm6",
        "movups [rsp + 176], xmm7",
        "mov edi, r11d",
        "mov rsi, [rbp + 8]",
        "mov rdx, rsp",
        "call {seen}",
        "mov r11, rax",
        "mov rdi, [rsp]",
        "mov rsi, [rsp + 8]",
        "mov rdx, [rsp + 16]",
        "mov rcx, [rsp + 24]",
        "mov r8, [rsp + 32]",
        "mov r9, [rsp + 40]",
        "mov rax, [rsp + 48]",
        "movups xmm0, [rsp + 64]",
        "movups xmm1, [rsp + 80]",
        "movups xmm2, [rsp + 96]",
        "movups xmm3, [rsp + 112]",
        "movups xmm4, [rsp + 128]",
        "movups xmm5, [rsp + 144]",
        "movups xmm6, [rsp + 160]",
        "movups xmm7, [rsp + 176]",
        "mov rsp, rbp",
        "pop rbp",
        "jmp r11",
        seen = sym seen,
    )
}

/// Records a watched call if this thread has an undecided failure, or if it waits and that is news. Returns what the stub jumps
/// to: the real function, or what answers in its place.
unsafe extern "C" fn seen(api: u32, caller: usize, arguments: *const Arguments) -> *const () {
    let api = api as u16;
    let real = link::real(api, caller);
    let row = table::row(api);
    // SAFETY: the stub's own stack frame.
    let arguments = unsafe { &*arguments };
    let target = row.meaning.does.waits().then(|| target_of(row, arguments));
    if failure::is_watched() && !row.is_answered || target.is_some_and(|target| target.news().is_some()) {
        guard::cold((), || record(api, caller, arguments, target));
    }
    if faults::is_on() { faults::instead(api, caller, real).unwrap_or(real) } else { real }
}

/// What a call waits for.
fn target_of(row: &Row, arguments: &Arguments) -> Target {
    let state = thread::current();
    Target::new(row.meaning.does, arguments.integers[0], state.device.get(), state.thread.get())
}

fn record(api: u16, caller: usize, arguments: &Arguments, target: Option<Target>) {
    thread::current().caller.set(caller);
    let Some(frame) = Frame::enter(api) else { return };
    let row = table::row(api);
    // A copy of no bytes is no work that went on: a program that set its sizes to 0 has noticed the failure.
    let is_idle = row.event == Event::GpuWork && empty::is_nothing(row, &arguments.integers);
    if frame.is_programs_own() && !is_idle {
        // Before the record: what comes to matter meanwhile must not count as waited for.
        let moments = target.and_then(Target::news);
        let pointer = match row.event {
            Event::GpuWork => failed_pointer(row, &arguments.integers),
            _ => FailedPointer::No,
        };
        note(&frame, row, arguments, pointer);
        if let (Some(target), Some(moments)) = (target, moments) {
            target.recorded(moments);
        }
        if let Some(step) = step_of(row, arguments, pointer) {
            failure::step(step);
        }
    }
    frame.leave();
}

/// A recorded call of the program works on this pointer: what a watched call would leave, while a failure is open.
#[inline(always)]
pub(crate) fn works_on(frame: &Frame, pointer: u64, size_bytes: u64) {
    if failure::is_watched() && frame.is_programs_own() {
        guard::cold((), || {
            if size_bytes == 0 {
                return;
            }
            let failed_pointer = failure::uses_failed_pointer(std::iter::once(pointer));
            let what = Described::new(pointer, 0);
            let record = frame.record(Event::GpuWork, gpuoom_trace::record::Kind::None, 0, &what, false);
            note_work(frame, record, failed_pointer);
            failure::step(work(failed_pointer));
        });
    }
}

/// Whether a call works on the pointer of a failed one.
fn failed_pointer(row: &Row, arguments: &[u64; 6]) -> FailedPointer {
    let positions = row.pointers;
    let pointers = arguments.iter().enumerate().filter(move |(position, _)| positions & (1 << position) != 0);
    failure::uses_failed_pointer(pointers.map(|(_, value)| *value))
}

/// GPU work as a step. A stale pointer may be a block that lives, so it shows nothing here.
fn work(failed_pointer: FailedPointer) -> Step {
    Step::GpuWork { failed_pointer: failed_pointer == FailedPointer::Null }
}

fn step_of(row: &Row, arguments: &Arguments, pointer: FailedPointer) -> Option<Step> {
    Some(match row.event {
        Event::GpuWork => work(pointer),
        Event::ErrorQuery if asks_for_text(row) => Step::ErrorText { status: arguments.integers[0] as i32 },
        Event::ErrorQuery => Step::LastErrorRead,
        Event::Exception => Step::Thrown,
        _ => return None,
    })
}

fn asks_for_text(row: &Row) -> bool {
    row.meaning.does == Does::NamesError
}

fn note(frame: &Frame, row: &Row, arguments: &Arguments, pointer: FailedPointer) {
    let what = Described::new(arguments.integers[0], 0);
    let mut record = frame.record(row.event, gpuoom_trace::record::Kind::None, 0, &what, false);
    match row.event {
        Event::GpuWork => return note_work(frame, record, pointer),
        Event::ErrorQuery if asks_for_text(row) => {
            record.kind_flags |= flag::ERROR_TEXT;
            record.status = arguments.integers[0] as i32;
            record.address = 0;
        }
        Event::ErrorQuery => record.address = 0,
        Event::Sync if row.meaning.does == Does::WaitsForDevice => record.address = 0,
        Event::Reading => (record.status, record.address) = (trigger::PROGRAM, 0),
        Event::Exception => return note_exception(frame, record, arguments.integers[1]),
        _ => {}
    }
    frame.recorder().publish(&record);
}

/// GPU work; of a stale pointer the record says which, because the analyzer knows what lives.
fn note_work(frame: &Frame, record: Record, pointer: FailedPointer) {
    let pointer = match pointer {
        FailedPointer::No => {
            frame.recorder().publish(&record);
            return;
        }
        FailedPointer::Null => 0,
        FailedPointer::Stale(pointer) => pointer,
    };
    let record = Record { kind_flags: record.kind_flags | flag::FAILED_POINTER, ..record };
    let mut out = [0; MAX_PAYLOAD_BYTES];
    frame.recorder().publish_long(&record, payload::numbers(&[pointer], &mut out));
}

/// The name of the thrown type: the second word of `std::type_info` (Itanium C++ ABI).
fn note_exception(frame: &Frame, record: Record, type_info: u64) {
    let name_at = program_memory::word(type_info.wrapping_add(8)).unwrap_or(0);
    let mut name = [0u8; 256];
    let length = program_memory::text(name_at, &mut name);
    let mut out = [0; MAX_PAYLOAD_BYTES];
    frame.recorder().publish_long(&record, payload::pack(&name[..length], &mut out));
}
