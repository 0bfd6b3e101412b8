//! From a row to an exported symbol.

/// Makes the hooks of one vendor interface from its table, see [`crate::table::macros`].
macro_rules! entries {
    (
        base: $base:expr, library: $library:expr, layer: $layer:expr, meaning: $meaning:expr;
        recorded { $(
            $name:ident ( $($argument:ident : $type:ty),* ) => $how:ident, $event:ident, $kind:ident, |$done:ident| $what:expr
                $(, $word:ident($value:ident))*;
        )* }
        $( hands_out { $( $giver:ident ( $($given:ident : $given_type:ty),* ) => ($symbol:expr, $out:expr, $version:expr, $flags:expr); )* } )?
        watched { $( $watched:ident => $watched_event:ident, [$($pointer:literal),*] $(, $watched_word:ident($watched_value:ident))*; )* }
        $( answered { $( $answered:ident; )* } )?
        $( answering { $(
            $answering:ident ( $($answering_argument:ident : $answering_type:ty),* ) => $answering_event:ident, $answering_what:expr;
        )* } )?
        $( told { $(
            $told:ident ( $($told_argument:ident : $told_type:ty),* ) => $told_event:ident, $told_what:expr
                $(, $told_word:ident($told_value:ident))*;
        )* } )?
        $( scoped { $( $scope:ident => $scope_how:ident, $scope_event:ident $(, $scope_word:ident($scope_value:ident))*; )* } )?
    ) => {
        /// What is exported under these names.
        #[allow(non_snake_case)]
        mod entries {
            #[allow(unused_imports)]
            use super::*;
            $($crate::hooks::macros::recorded!($base, $name($($argument: $type),*), $how, $event, $kind, |$done| $what);)*
            $($($crate::hooks::macros::hands_out!($base, $giver($($given: $given_type),*), ($symbol, $out, $version, $flags));)*)?
            $($crate::hooks::macros::watched!($base, $watched $(, $watched_word($watched_value))*);)*
            $($($crate::hooks::macros::watched!($base, $answered);)*)?
            $($($crate::hooks::macros::answering!($base, $answering($($answering_argument: $answering_type),*), $answering_what);)*)?
            $($($crate::hooks::macros::told!($base, $told($($told_argument: $told_type),*), $told_what);)*)?
            $($($crate::hooks::macros::scoped!($base, $scope, $scope_how);)*)?
        }
    };
}

/// A hook with a signature: notes the return address, then runs an ordinary function in its place.
macro_rules! recorded {
    ($base:expr, $name:ident ( $($argument:ident : $type:ty),* ), $how:ident, $event:ident, $kind:ident, |$done:ident| $what:expr) => {
        /// # Safety
        /// Has the signature of the vendor's function; whoever calls it keeps that function's rules.
        #[cfg_attr(not(test), unsafe(export_name = stringify!($name)))]
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn $name() {
            const API: u16 = ($base + Number::$name as usize) as u16;

            unsafe extern "C-unwind" fn body($($argument: $type),*) -> i32 {
                let frame = $crate::call::Frame::enter(API);
                let real = $crate::hooks::around::real_of(API);
                // SAFETY: the vendor's function of this name has this signature (see the table for its source).
                let real: unsafe extern "C-unwind" fn($($type),*) -> i32 = unsafe { std::mem::transmute(real) };
                let call = $crate::hooks::around::Call {
                    frame,
                    api: API,
                    event: gpuoom_trace::record::Event::$event,
                    kind: gpuoom_trace::record::Kind::$kind,
                };
                $crate::hooks::how::$how(
                    call,
                    // SAFETY: the description reads what the vendor's function itself reads or has just written.
                    |$done: bool| {
                        // SAFETY: as said above.
                        #[allow(unused_unsafe)]
                        unsafe { $what }
                    },
                    // SAFETY: the program's own arguments.
                    || unsafe { real($($argument),*) },
                )
            }

            // The return address goes into the thread's block (its first field), with the registers that a stack is walked
            // from. All arguments stay where they are, and the body is entered by a jump, so it returns to the program by
            // itself. r10 and r11 are free at a call of a C function.
            std::arch::naked_asm!(
                "mov r11, qword ptr [rsp]",
                "mov r10, qword ptr [rip + gpuoom_thread@GOTTPOFF]",
                "mov qword ptr fs:[r10], r11",
                "mov qword ptr fs:[r10 + 24], rsp",
                "mov qword ptr fs:[r10 + 32], rbp",
                "jmp {body}",
                body = sym body,
            )
        }
    };
}

/// A hook on a function that hands out functions: what it hands out is ours. It is no event and starts no recording.
macro_rules! hands_out {
    ($base:expr, $name:ident ( $($argument:ident : $type:ty),* ), ($symbol:expr, $out:expr, $version:expr, $flags:expr)) => {
        /// # Safety
        /// Has the signature of the vendor's function; whoever calls it keeps that function's rules.
        #[cfg_attr(not(test), unsafe(export_name = stringify!($name)))]
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn $name() {
            const API: u16 = ($base + Number::$name as usize) as u16;

            unsafe extern "C-unwind" fn body($($argument: $type),*) -> i32 {
                let real = $crate::hooks::around::real_of(API);
                // SAFETY: the vendor's function of this name has this signature (see the table for its source), and these
                // are the program's own arguments.
                let status = unsafe {
                    std::mem::transmute::<*const (), unsafe extern "C-unwind" fn($($type),*) -> i32>(real)($($argument),*)
                };
                if status == 0 {
                    // SAFETY: the vendor's function has just used name and place.
                    unsafe { $crate::hooks::handed::entry_points::replace($symbol, $out, $version, $flags) };
                }
                status
            }

            // As for a recorded hook.
            std::arch::naked_asm!(
                "mov r11, qword ptr [rsp]",
                "mov r10, qword ptr [rip + gpuoom_thread@GOTTPOFF]",
                "mov qword ptr fs:[r10], r11",
                "jmp {body}",
                body = sym body,
            )
        }
    };
}

/// A hook on a function of a framework that memory is asked for inside. All that may be handed to it goes on to the real one; what
/// that returns, an integer, a pointer or a truth value, is in one register.
macro_rules! scoped {
    ($base:expr, $name:ident, $how:ident) => {
        /// # Safety
        /// Takes and returns what the framework's function of this name does; whoever calls it keeps that function's rules.
        #[cfg_attr(not(test), unsafe(export_name = stringify!($name)))]
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn $name() {
            const API: u16 = ($base + Number::$name as usize) as u16;

            unsafe extern "C-unwind" fn body(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> u64 {
                // SAFETY: entered by the stub below, with the caller's arguments.
                unsafe { $crate::hooks::scopes::$how(API, [a, b, c, d, e, f]) }
            }

            // As for a recorded hook.
            std::arch::naked_asm!(
                "mov r11, qword ptr [rsp]",
                "mov r10, qword ptr [rip + gpuoom_thread@GOTTPOFF]",
                "mov qword ptr fs:[r10], r11",
                "mov qword ptr fs:[r10 + 24], rsp",
                "mov qword ptr fs:[r10 + 32], rbp",
                "jmp {body}",
                body = sym body,
            )
        }
    };
}

/// A hook on a function whose answer matters where memory was refused inside it. What it returns, a status or a pointer, is in one register.
macro_rules! answering {
    ($base:expr, $name:ident ( $($argument:ident : $type:ty),* ), $what:expr) => {
        /// # Safety
        /// Has the signature of the vendor's function, but for the width of what it returns; whoever calls it keeps that function's rules.
        #[cfg_attr(not(test), unsafe(export_name = stringify!($name)))]
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn $name() {
            const API: u16 = ($base + Number::$name as usize) as u16;

            #[allow(unused_variables, clippy::too_many_arguments)]
            unsafe extern "C-unwind" fn body($($argument: $type),*) -> u64 {
                let real = $crate::hooks::around::real_of(API);
                // SAFETY: the vendor's function of this name takes these arguments (see the table for its source), and what it returns
                // is in the register of a u64.
                let real: unsafe extern "C-unwind" fn($($type),*) -> u64 = unsafe { std::mem::transmute(real) };
                // SAFETY: the program's own arguments.
                answering(API, &$what, || unsafe { real($($argument),*) })
            }

            // As for a recorded hook.
            std::arch::naked_asm!(
                "mov r11, qword ptr [rsp]",
                "mov r10, qword ptr [rip + gpuoom_thread@GOTTPOFF]",
                "mov qword ptr fs:[r10], r11",
                "mov qword ptr fs:[r10 + 24], rsp",
                "mov qword ptr fs:[r10 + 32], rbp",
                "jmp {body}",
                body = sym body,
            )
        }
    };
}

/// A hook on a function that tells of an allocator's block and returns nothing; `told` is a function of the file that has the row.
macro_rules! told {
    ($base:expr, $name:ident ( $($argument:ident : $type:ty),* ), $what:expr) => {
        /// # Safety
        /// Has the signature of the allocator's function; whoever calls it keeps that function's rules.
        #[cfg_attr(not(test), unsafe(export_name = stringify!($name)))]
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn $name() {
            const API: u16 = ($base + Number::$name as usize) as u16;

            unsafe extern "C-unwind" fn body($($argument: $type),*) {
                let real = $crate::hooks::around::real_of(API);
                told(API, || $what);
                // SAFETY: the allocator's function of this name has this signature (see the table for its source), and these are
                // the program's own arguments.
                unsafe { std::mem::transmute::<*const (), unsafe extern "C-unwind" fn($($type),*)>(real)($($argument),*) }
            }

            // As for a recorded hook.
            std::arch::naked_asm!(
                "mov r11, qword ptr [rsp]",
                "mov r10, qword ptr [rip + gpuoom_thread@GOTTPOFF]",
                "mov qword ptr fs:[r10], r11",
                "mov qword ptr fs:[r10 + 24], rsp",
                "mov qword ptr fs:[r10 + 32], rbp",
                "jmp {body}",
                body = sym body,
            )
        }
    };
}

/// A function that is exported as it stands here: it notes where the call came from, then runs the body.
macro_rules! exported {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) $(-> $answer:ty)? $body:block) => {
        $(#[$doc])*
        #[cfg_attr(not(test), unsafe(export_name = stringify!($name)))]
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn $name() {
            unsafe extern "C-unwind" fn body($($argument: $type),*) $(-> $answer)? $body

            // As for a recorded hook.
            std::arch::naked_asm!(
                "mov r11, qword ptr [rsp]",
                "mov r10, qword ptr [rip + gpuoom_thread@GOTTPOFF]",
                "mov qword ptr fs:[r10], r11",
                "mov qword ptr fs:[r10 + 24], rsp",
                "mov qword ptr fs:[r10 + 32], rbp",
                "jmp {body}",
                body = sym body,
            )
        }
    };
}

/// A hook without a signature: one test, then a jump. Calls that wait for the device have a word of their own.
macro_rules! watched {
    ($base:expr, $name:ident, does(WaitsForDevice)) => { $crate::hooks::macros::watched!(@ $base, $name, WAITS); };
    ($base:expr, $name:ident, does(WaitsForStream)) => { $crate::hooks::macros::watched!(@ $base, $name, WAITS); };
    ($base:expr, $name:ident, does(WaitsForEvent)) => { $crate::hooks::macros::watched!(@ $base, $name, WAITS); };
    ($base:expr, $name:ident $(, $word:ident($value:ident))*) => {
        $crate::hooks::macros::watched!(@ $base, $name, WATCHING);
    };
    (@ $base:expr, $name:ident, $tested:ident) => {
        /// # Safety
        /// Jumps to the vendor's function of this name with all arguments untouched.
        #[cfg_attr(not(test), unsafe(export_name = stringify!($name)))]
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn $name() {
            const API: usize = $base + Number::$name as usize;
            std::arch::naked_asm!(
                "cmp dword ptr [rip + {watching}], 0",
                "jne 2f",
                "mov r11, qword ptr [rip + {real} + {offset}]",
                "test r11, r11",
                "jz 2f",
                "jmp r11",
                "2:",
                "mov r11d, {api}",
                "jmp {slow}",
                watching = sym $crate::base::watching::$tested,
                real = sym $crate::link::REAL,
                offset = const API * 8,
                api = const API,
                slow = sym $crate::watch::slow_path,
            )
        }
    };
}

pub(super) use {answering, entries, exported, hands_out, recorded, scoped, told, watched};
