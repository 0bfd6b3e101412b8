//! From the rows of a table to [`Row`](super::Row)s.
//!
//! A table is a macro that hands its rows to another one: to [`rows`] here, and to `entries` of [`crate::hooks`], which makes
//! an exported function of each. So a function stands in one place, and nothing below the hooks knows them.
//!
//! `recorded` rows: `name(arguments) => how, event, kind, description;` where `how` is a function of `hooks::around` that runs
//! around the real call, and the description is made from the arguments (and `done`: the call succeeded).
//! `hands_out` rows: `name(arguments) => (symbol, out, version, flags);` functions that hand out functions.
//! `watched` rows: `name => event, [positions of device pointers];`
//! `told` rows: `name(arguments) => event, description;` functions that return nothing and tell of an allocator's block: recorded
//! before the real call, which may be missing.
//! `scoped` rows: `name => how, event;` functions of a framework that memory is asked for inside; `how` is a function of `hooks::scopes`.
//! `answering` rows: `name(arguments) => event, description;` a record only where memory was refused inside the call, or where it says itself
//! that there was none; `event` is that of such a record, and `description` a function of the file that has the hooks.
//! `answered` rows: `name;` no event; hooked for the virtual card, which answers in the runtime's place.
//!
//! What a function means, its table says in `meaning`. A row that means something else says so at its end: `, ends(Context)`,
//! `, does(SetsPool)`, `, codes(CuDnn)`, `, says(RETAINS_PRIMARY)`, in the words of [`gpuoom_trace::meaning`]. A trace carries
//! that along, so the analyzer knows no names.
//!
//! To add a function: its row here, the version it is there since (`since.rs`), the function in the simulator, and a call of it
//! in a client of the tests. `COVERAGE.md` is made from the rows.

/// Makes the rows of one table.
macro_rules! rows {
    (
        base: $base:expr, library: $library:expr, layer: $layer:expr, meaning: $meaning:expr;
        recorded { $(
            $name:ident ( $($argument:ident : $type:ty),* ) => $how:ident, $event:ident, $kind:ident, |$done:ident| $what:expr
                $(, $word:ident($value:ident))*;
        )* }
        $( hands_out { $( $giver:ident ( $($given:ident : $given_type:ty),* ) => ($($handed:tt)*); )* } )?
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
        /// The rows by their names.
        #[allow(non_camel_case_types)]
        #[repr(u16)]
        pub(crate) enum Number {
            $($name,)* $($($giver,)*)? $($watched,)* $($($answered,)*)? $($($answering,)*)? $($($told,)*)? $($($scope,)*)? End
        }

        /// Rows of this table.
        pub(super) const COUNT: usize = Number::End as usize;

        /// The table.
        pub(super) const ROWS: [$crate::table::Row; COUNT] = [
            $($crate::table::Row {
                library: $library,
                layer: $layer,
                event: gpuoom_trace::record::Event::$event,
                kind: gpuoom_trace::record::Kind::$kind,
                meaning: $crate::table::macros::meant!($crate::table::macros::hooked!($how, $meaning) $(, $word($value))*),
                has_hook: true,
                #[cfg(test)]
                how: stringify!($how),
                ..$crate::table::Row::named($crate::table::macros::terminated!($name))
            },)*
            $($($crate::table::Row {
                library: $library,
                layer: $layer,
                event: gpuoom_trace::record::Event::Module,
                meaning: $meaning,
                has_hook: true,
                #[cfg(test)]
                how: "hands_out",
                ..$crate::table::Row::named($crate::table::macros::terminated!($giver))
            },)*)?
            $($crate::table::Row {
                library: $library,
                layer: $layer,
                event: gpuoom_trace::record::Event::$watched_event,
                meaning: $crate::table::macros::meant!($meaning $(, $watched_word($watched_value))*),
                pointers: 0 $(| 1 << $pointer)*,
                is_tail_called: true,
                has_hook: true,
                #[cfg(test)]
                how: "watched",
                ..$crate::table::Row::named($crate::table::macros::terminated!($watched))
            },)*
            $($($crate::table::Row {
                library: $library,
                layer: $layer,
                event: gpuoom_trace::record::Event::Reading,
                meaning: $meaning,
                is_tail_called: true,
                has_hook: true,
                is_answered: true,
                #[cfg(test)]
                how: "answered",
                ..$crate::table::Row::named($crate::table::macros::terminated!($answered))
            },)*)?
            $($($crate::table::Row {
                library: $library,
                layer: $layer,
                event: gpuoom_trace::record::Event::$answering_event,
                meaning: $meaning,
                has_hook: true,
                #[cfg(test)]
                how: "answering",
                ..$crate::table::Row::named($crate::table::macros::terminated!($answering))
            },)*)?
            $($($crate::table::Row {
                library: $library,
                layer: $layer,
                event: gpuoom_trace::record::Event::$told_event,
                kind: gpuoom_trace::record::Kind::Tensor,
                meaning: $crate::table::macros::meant!($meaning $(, $told_word($told_value))*),
                has_hook: true,
                #[cfg(test)]
                how: "told",
                ..$crate::table::Row::named($crate::table::macros::terminated!($told))
            },)*)?
            $($($crate::table::Row {
                library: $library,
                layer: $layer,
                event: gpuoom_trace::record::Event::$scope_event,
                kind: match gpuoom_trace::record::Event::$scope_event {
                    gpuoom_trace::record::Event::Block => gpuoom_trace::record::Kind::Tensor,
                    _ => gpuoom_trace::record::Kind::None,
                },
                meaning: $crate::table::macros::meant!($meaning $(, $scope_word($scope_value))*),
                has_hook: true,
                #[cfg(test)]
                how: stringify!($scope_how),
                ..$crate::table::Row::named($crate::table::macros::terminated!($scope))
            },)*)?
        ];
    };
}

/// A table's meaning with what a row says of its own.
macro_rules! meant {
    ($meaning:expr) => { $meaning };
    ($meaning:expr, codes($value:ident) $($more:tt)*) => {
        $crate::table::macros::meant!($meaning.codes(gpuoom_trace::meaning::Codes::$value) $($more)*)
    };
    ($meaning:expr, ends($value:ident) $($more:tt)*) => {
        $crate::table::macros::meant!($meaning.ends(gpuoom_trace::meaning::Ends::$value) $($more)*)
    };
    ($meaning:expr, does($value:ident) $($more:tt)*) => {
        $crate::table::macros::meant!($meaning.does(gpuoom_trace::meaning::Does::$value) $($more)*)
    };
    ($meaning:expr, says($value:ident) $($more:tt)*) => {
        $crate::table::macros::meant!($meaning.says(gpuoom_trace::meaning::says::$value) $($more)*)
    };
}

/// What the way in which a function is hooked says of it: these set something up, and take memory that nobody tells.
macro_rules! hooked {
    (creation, $meaning:expr) => {
        $meaning.says(gpuoom_trace::meaning::says::SETS_UP)
    };
    (context, $meaning:expr) => {
        $meaning.says(gpuoom_trace::meaning::says::SETS_UP)
    };
    ($how:ident, $meaning:expr) => {
        $meaning
    };
}

/// The name of a function as a C string.
macro_rules! terminated {
    ($name:ident) => {
        match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        }
    };
}

pub(crate) use {hooked, meant, rows, terminated};
