//! Whether a kill in the kernel's log is of this process. A number alone does not say so: a log may be of a run before, and in
//! a container a process has another number outside.

use super::case::Case;
use crate::evidence::kernel_log::{KernelEvent, KernelEventKind};
use crate::judgement::check::Holds;

const OTHER_NAME: &str = "whether the process that the kernel killed was this one: it has its number and another name";
const OTHER_NUMBER: &str = "whether the process that the kernel killed was this one: it has its name and another number, as a \
    sibling has, or this one outside of its container";

impl<'a> Case<'a> {
    /// Whether the kernel killed this very process for want of memory.
    pub fn kernel_killed_this(&self) -> Holds {
        match self.kill() {
            Some((_, holds)) => holds,
            None => self.kernel_says(|_| false),
        }
    }

    /// The same because of the limit of a control group.
    pub fn group_limit_killed_this(&self) -> Holds {
        match self.kill() {
            Some((event, holds)) => holds.and((event.kind == KernelEventKind::CgroupOomKill).into()),
            None => self.kernel_says(|_| false),
        }
    }

    /// The line of the kernel's log that tells of this process's kill.
    pub fn kill_text(&self) -> Option<String> {
        self.kill().map(|(event, _)| format!("the kernel's log: {}", event.text))
    }

    /// The kill that is, or may be, of this process.
    fn kill(&self) -> Option<(&'a KernelEvent, Holds)> {
        let is_kill =
            |event: &&KernelEvent| matches!(event.kind, KernelEventKind::OomKill | KernelEventKind::CgroupOomKill);
        let kills = || self.kernel_events().filter(is_kill);
        let is_number = |event: &&KernelEvent| event.pid == Some(u64::from(self.trace.header.pid));
        let sure = kills().filter(is_number).find(|event| event.process.is_none() || self.has_name(event));
        let sure = sure.map(|event| (event, Holds::Yes));
        let numbered = || kills().find(is_number).map(|event| (event, Holds::Unknown(OTHER_NAME)));
        let named = || kills().find(|event| self.has_name(event)).map(|event| (event, Holds::Unknown(OTHER_NUMBER)));
        sure.or_else(numbered).or_else(named)
    }

    /// Whether an event names this program's file. The kernel keeps 15 characters of a name.
    fn has_name(&self, event: &KernelEvent) -> bool {
        let executable = self.facts.process.executable.rsplit('/').next().unwrap_or_default();
        event.process.as_deref().is_some_and(|name| !name.is_empty() && executable.starts_with(name))
    }
}
