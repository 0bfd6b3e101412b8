//! A bar for work that takes more than a second, on a terminal only.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work of less than this shows no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// Progress over a known number of records.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    began: Instant,
    done: u64,
    total: u64,
}

impl Progress {
    /// Shows nothing yet.
    pub(super) fn new(total: u64) -> Self {
        Progress { bar: None, began: Instant::now(), done: 0, total }
    }

    /// More records are done.
    pub(super) fn advance(&mut self, records: u64) {
        self.done += records;
        if self.bar.is_none() && self.began.elapsed() > PATIENCE && std::io::stderr().is_terminal() {
            self.bar = Some(bar(self.total.max(self.done)));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(self.done);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(total: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:30} {percent} % of {human_len} events");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
