//! What a trace cannot tell, whatever the program did, and why: rules must not take silence for a "no".

/// A fact that the recorder does not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Which blocks are filled from the host.
    CopiesToDevice,
    /// Whether the program waited for a device or a stream, in traces before format 1.6.
    Synchronisations,
    /// Whether a stream had got to what was ordered on it, where nobody waited for it.
    StreamProgress,
    /// Which stream a free was ordered on.
    StreamOfFree,
    /// What was allocated while a stream was captured, in traces before format 1.3.
    Captures,
    /// Which blocks were handed to other processes, in traces before format 1.3.
    IpcExports,
    /// Modules that were loaded and unloaded above HSA, in traces before format 1.3.
    Modules,
    /// Names of threads.
    ThreadNames,
}

impl Unknown {
    /// Why it is not known, and what would tell it.
    pub fn reason(self) -> &'static str {
        match self {
            Unknown::CopiesToDevice => {
                "copies are recorded only after a failure, so the trace does not say which blocks are filled from the host; a \
                 mark (gpuoom_mark) at the end of the load would settle it"
            }
            Unknown::Synchronisations => {
                "the recorder that made this trace kept synchronisations only after a failure, so the trace does not say whether \
                 the program waited for these frees; one as new as this program keeps them"
            }
            Unknown::StreamProgress => {
                "no thread waited for the device after these frees, and the trace does not say whether their stream had got to \
                 them; synchronise before the failing call and record again"
            }
            Unknown::StreamOfFree => "the stream of a free is not recorded",
            Unknown::Captures => {
                "the recorder that made this trace did not keep stream captures; one as new as this program does"
            }
            Unknown::IpcExports => {
                "the recorder that made this trace did not keep exports to other processes (hipIpcGetMemHandle); one as new as \
                 this program does"
            }
            Unknown::Modules => {
                "the recorder that made this trace kept module loads only after a failure, and loads of code objects by HSA; one \
                 as new as this program keeps all"
            }
            Unknown::ThreadNames => "names of threads are not recorded",
        }
    }
}
