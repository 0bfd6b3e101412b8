//! The way of a watched call while something is watched, or before its real function is known.

use gpuoom_trace::meaning::Does;
use gpuoom_trace::metadata::trigger;
use gpuoom_trace::outcome::Step;
use gpuoom_trace::payload::{self, MAX_TEXT_BYTES};
use gpuoom_trace::record::{Event, Kind, MAX_PAYLOAD_BYTES, Record, flag, message};

use super::failure::{self, FailedPointer, Side};
use super::printf::Variadic;
use super::waits::Target;
use super::{abort, directions, empty, exception, last_error, log_line};
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
        "lea rcx, [rbp + 16]",
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
unsafe extern "C" fn seen(api: u32, caller: usize, arguments: *const Arguments, on_stack: *const u64) -> *const () {
    let api = api as u16;
    let real = link::real(api, caller);
    let row = table::row(api);
    // SAFETY: the stub's own stack frame.
    let arguments = unsafe { &*arguments };
    if failure::is_watched()
        && let Some(answer) = last_error::instead(api, caller, real)
    {
        return answer;
    }
    let target = row.meaning.does.waits().then(|| target_of(row, arguments));
    if failure::is_watched() && !row.is_answered || target.is_some_and(|target| target.news().is_some()) {
        let given = Given { arguments, on_stack, real };
        guard::cold((), || record(api, caller, given, target));
    }
    if faults::is_on() { faults::instead(api, caller, real).unwrap_or(real) } else { real }
}

/// What a call waits for.
fn target_of(row: &Row, arguments: &Arguments) -> Target {
    let state = thread::current();
    Target::new(row.meaning.does, arguments.integers[0], state.device.get(), state.thread.get())
}

/// The arguments of the call.
#[derive(Clone, Copy)]
struct Given<'a> {
    arguments: &'a Arguments,
    /// The first that does not fit into a register, if the function has so many.
    on_stack: *const u64,
    /// The function that is called.
    real: *const (),
}

impl<'a> Given<'a> {
    /// The arguments as those of a variadic function, none of them taken.
    fn variadic(self) -> Variadic<'a> {
        let Arguments { integers, vectors, .. } = self.arguments;
        Variadic { integers, integers_taken: 0, vectors, vectors_taken: 0, on_stack: self.on_stack as u64 }
    }

    /// The argument at this position, which the function must have.
    fn at(self, position: usize) -> u64 {
        match position.checked_sub(directions::IN_REGISTERS) {
            None => self.arguments.integers[position],
            // SAFETY: the caller has put it there, right above the return address, and waits for the call to end.
            Some(place) => unsafe { self.on_stack.add(place).read() },
        }
    }
}

fn record(api: u16, caller: usize, given: Given<'_>, target: Option<Target>) {
    let arguments = given.arguments;
    thread::current().caller.set(caller);
    let Some(frame) = Frame::enter(api) else { return };
    let row = table::row(api);
    // A copy of no bytes is no work that went on: a program that set its sizes to 0 has noticed the failure.
    let is_idle = row.event == Event::GpuWork && empty::is_nothing(row, &arguments.integers);
    if frame.is_programs_own() && !is_idle {
        // Before the record: what comes to matter meanwhile must not count as waited for.
        let moments = target.and_then(Target::news);
        let pointer = match row.event {
            Event::GpuWork => failed_pointer(row, given),
            _ => FailedPointer::No,
        };
        note(&frame, row, given, pointer);
        if let (Some(target), Some(moments)) = (target, moments) {
            target.recorded(moments);
        }
        match row.event {
            Event::GpuWork => failure::works(pointer),
            _ => step_of(row, arguments).into_iter().for_each(failure::step),
        }
    }
    frame.leave();
}

/// A call of the program works on these pointers or handles: what a watched call would leave, while a failure is open.
#[inline(always)]
pub(crate) fn works_on(frame: &Frame, pointers: &[u64]) {
    if failure::is_watched() && frame.is_programs_own() {
        guard::cold((), || {
            let failed_pointer = failure::uses_failed_pointer(pointers.iter().map(|pointer| (*pointer, Side::Any)));
            let what = Described::new(pointers.first().copied().unwrap_or(0), 0);
            let record = frame.record(Event::GpuWork, Kind::None, 0, &what, false);
            note_work(frame, record, failed_pointer);
            failure::works(failed_pointer);
        });
    }
}

/// Whether a call works on the pointer of a failed one.
fn failed_pointer(row: &Row, given: Given<'_>) -> FailedPointer {
    let of_host = directions::kind_position(row).map_or(0, |position| directions::of_host(row, given.at(position)));
    let positions = (0..directions::IN_REGISTERS).filter(|position| row.pointers & (1 << position) != 0);
    let side = |position| if of_host & (1u8 << position) == 0 { Side::Any } else { Side::Host };
    failure::uses_failed_pointer(positions.map(|position| (given.at(position), side(position))))
}

fn step_of(row: &Row, arguments: &Arguments) -> Option<Step> {
    Some(match row.event {
        Event::ErrorQuery => Step::ErrorText { status: arguments.integers[0] as i32 },
        Event::Exception => Step::Thrown,
        _ => return None,
    })
}

fn note(frame: &Frame, row: &Row, given: Given<'_>, pointer: FailedPointer) {
    let arguments = given.arguments;
    let what = Described::new(arguments.integers[0], 0);
    let mut record = frame.record(row.event, Kind::None, 0, &what, false);
    match row.event {
        Event::GpuWork => return note_work(frame, record, pointer),
        Event::ErrorQuery => {
            record.kind_flags |= flag::ERROR_TEXT;
            record.status = arguments.integers[0] as i32;
            record.address = 0;
        }
        Event::Sync if row.meaning.does == Does::WaitsForDevice => record.address = 0,
        Event::Reading => (record.status, record.address) = (trigger::PROGRAM, 0),
        Event::Exception => return note_exception(frame, record, given),
        Event::Message => return note_said(frame, row, record, given),
        _ => {}
    }
    frame.recorder().publish(&record);
}

/// GPU work; of a failed call's pointer the record says which and whose, because the analyzer knows what lives.
fn note_work(frame: &Frame, record: Record, pointer: FailedPointer) {
    let FailedPointer::Left(left) = pointer else {
        frame.recorder().publish(&record);
        return;
    };
    let whose = left.whose.map_or(0, |seq| seq + 1);
    let numbers = [left.pointer, u64::from(left.left_by), whose, u64::from(left.is_still_held), u64::from(left.others)];
    let record = Record { kind_flags: record.kind_flags | flag::FAILED_POINTER, ..record };
    let mut out = [0; MAX_PAYLOAD_BYTES];
    frame.recorder().publish_long(&record, payload::numbers(&numbers, &mut out));
}

/// The name of the thrown type, the second word of `std::type_info` (Itanium C++ ABI), and what the object says.
fn note_exception(frame: &Frame, record: Record, given: Given<'_>) {
    let [object, type_info, ..] = given.arguments.integers;
    let name_at = program_memory::word(type_info.wrapping_add(8)).unwrap_or(0);
    let mut name = [0u8; 256];
    let length = program_memory::text(name_at, &mut name);
    let mut out = [0; MAX_PAYLOAD_BYTES];
    frame.recorder().publish_long(&record, payload::pack(&name[..length], &mut out));
    let mut text = [0; MAX_TEXT_BYTES];
    let length = exception::text(object, type_info, given.real, &mut text);
    note_message(frame, Record { status: message::EXCEPTION, ..record }, &text[..length]);
}

/// A text that the program hands over as a format with arguments, and the failure that it came after.
fn note_said(frame: &Frame, row: &Row, record: Record, given: Given<'_>) {
    let mut text = [0; MAX_TEXT_BYTES];
    let (status, length) = match row.meaning.does {
        Does::Logs if !failure::may_say_more() => return,
        Does::Logs => (message::LOG, log_line::text(given.variadic(), &mut text)),
        _ => (message::ABORT, abort::text(given.variadic(), &mut text)),
    };
    note_message(frame, Record { status, address: failure::last_record(), ..record }, &text[..length]);
    if status == message::LOG && length > 0 {
        failure::said();
    }
}

fn note_message(frame: &Frame, record: Record, text: &[u8]) {
    if !text.is_empty() {
        let record = Record { event: Event::Message as u8, ..record };
        let mut out = [0; MAX_PAYLOAD_BYTES];
        frame.recorder().publish_long(&record, payload::pack(text, &mut out));
    }
}
