//! HIP's own log of its calls (`AMD_LOG_LEVEL=3`): written by the vendor's library itself, so a truth that owes nothing to us.

use crate::trace::Event;

/// An allocation as HIP logged it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedCall {
    /// `hipMalloc` or `hipHostMalloc`.
    pub api: String,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// `hipSuccess`, ...
    pub status: String,
    /// What was given; `None` for a failure.
    pub address: Option<u64>,
}

const APIS: [&str; 2] = ["hipMalloc", "hipHostMalloc"];

/// Finds the allocations in HIP's log, in order. One thread is assumed: an entry is followed by its own return.
pub fn logged_allocations(log: &str) -> Vec<LoggedCall> {
    let mut calls = Vec::new();
    let mut entered: Option<(&str, u64)> = None;
    for line in log.lines() {
        // HIP colours the name of the call.
        let line = line.replace("\u{1b}[32m", "").replace("\u{1b}[0m", "");
        for api in APIS {
            if let Some((_, arguments)) = line.split_once(&format!(" {api} ( ")) {
                let size = arguments.split([',', ')']).nth(1).and_then(|text| text.trim().parse().ok());
                entered = Some((api, size.unwrap_or_else(|| panic!("no size in {line}"))));
            } else if let Some((_, result)) = line.split_once(&format!(" {api}: Returned ")) {
                let (name, requested_bytes) =
                    entered.take().unwrap_or_else(|| panic!("a return without a call: {line}"));
                assert_eq!(name, api);
                let mut fields = result.split(" : ");
                let status = fields.next().unwrap_or_default().trim().to_owned();
                let pointer = fields.next().and_then(|text| text.split(':').next()?.trim().strip_prefix("0x"));
                let address = pointer.and_then(|digits| u64::from_str_radix(digits, 16).ok());
                let address = address.filter(|_| status == "hipSuccess");
                calls.push(LoggedCall { api: api.into(), requested_bytes, status, address });
            }
        }
    }
    calls
}

/// The same calls as the trace has them.
pub fn recorded_allocations(events: &[Event]) -> Vec<LoggedCall> {
    let wanted = events.iter().filter(|event| event.event() == "alloc" && APIS.contains(&event.api()));
    wanted
        .map(|event| LoggedCall {
            api: event.api().into(),
            requested_bytes: event.requested_bytes(),
            status: event.status_name().into(),
            address: event.address(),
        })
        .collect()
}
