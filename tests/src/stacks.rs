//! Calls of a trace with their stacks, by the crate that reads the format.

use std::collections::HashMap;

use gpuoom_trace::payload::{CodeName, Stack};
use gpuoom_trace::reader::TraceFile;
use gpuoom_trace::record::{Event, Record};

use crate::Trace;

/// A frame of Python code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonLine {
    /// File as the code names it.
    pub file: String,
    /// Line, from 1 on.
    pub line: u32,
    /// Function with what is around it.
    pub function: String,
}

/// A call and the stack that its site stands for.
#[derive(Clone, Debug)]
pub struct StackedCall {
    /// The record.
    pub record: Record,
    /// The stack; `None` where the site has a return address only.
    pub stack: Option<Stack>,
    /// Its Python frames with their names, innermost first.
    pub python: Vec<PythonLine>,
}

impl Trace {
    /// All calls with a site, in order. Panics where a site is never introduced, a code is used before it is, or one of them
    /// is introduced twice. A site may come a little after a record of another thread that uses it.
    pub fn stacked_calls(&self) -> Vec<StackedCall> {
        let mut trace = TraceFile::open(&self.path).expect("a trace");
        let mut codes: HashMap<u32, CodeName> = HashMap::new();
        let mut sites: HashMap<u32, (Option<Stack>, Vec<PythonLine>)> = HashMap::new();
        let mut calls = Vec::new();
        let read = trace.for_each_batch::<()>(|batch| {
            for (record, payload) in batch.iter() {
                match record.event() {
                    Some(Event::Code) => {
                        let old = codes.insert(record.site, CodeName::read(payload));
                        assert!(old.is_none() && record.requested > 0, "{record:?}");
                    }
                    Some(Event::Site) => {
                        let stack = Stack::read(payload);
                        let first = stack.as_ref().and_then(|stack| stack.native.first().copied());
                        assert!(first.is_none_or(|first| first == record.address), "{record:?} {stack:?}");
                        let python = named(stack.as_ref(), &codes);
                        assert!(sites.insert(record.site, (stack, python)).is_none(), "{record:?}");
                    }
                    _ if record.is_note() || record.site == 0 => {}
                    _ => calls.push(*record),
                }
            }
            Ok(())
        });
        assert!(read.is_ok());
        let with_stack = |record: Record| {
            let (stack, python) = sites.get(&record.site).expect("a site that was introduced").clone();
            StackedCall { record, stack, python }
        };
        calls.into_iter().map(with_stack).collect()
    }
}

fn named(stack: Option<&Stack>, codes: &HashMap<u32, CodeName>) -> Vec<PythonLine> {
    let frames = stack.iter().flat_map(|stack| &stack.python);
    frames
        .map(|frame| {
            let code = codes.get(&frame.code).expect("a code that was named").clone();
            PythonLine { file: code.file, line: frame.line, function: code.function }
        })
        .collect()
}
