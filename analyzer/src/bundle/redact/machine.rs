//! The machine's files: names in their texts, and the names of control groups, which can be those of people and jobs.

use gpuoom_trace::metadata::MachineFacts;

use super::Redactor;
use super::words::GROUPS;

const PLACE: &str = "machine files";
/// Where control groups are mounted.
const MOUNTED: &str = "/sys/fs/cgroup";
/// The file that names the process's own groups: `0::/user.slice/app.scope`.
const OWN_GROUPS: &str = "/proc/self/cgroup";

impl Redactor {
    pub(super) fn machine(&mut self, machine: &mut MachineFacts) {
        for (path, text) in &mut machine.files {
            *text = match path.as_str() {
                OWN_GROUPS => self.own_groups(text),
                _ => text.split_inclusive('\n').map(|line| self.names(PLACE, line)).collect(),
            };
            *path = self.machine_path(path);
        }
        for path in &mut machine.unreadable {
            *path = self.machine_path(path);
        }
    }

    fn machine_path(&mut self, path: &str) -> String {
        match path.strip_prefix(MOUNTED) {
            Some(group) => format!("{MOUNTED}{}", self.group(group)),
            None => self.path(PLACE, path),
        }
    }

    fn own_groups(&mut self, text: &str) -> String {
        let line = |line: &str| {
            let fields: Vec<&str> = line.splitn(3, ':').collect();
            match fields[..] {
                [number, controllers, group] => format!("{number}:{controllers}:{}", self.group(group)),
                _ => self.names(PLACE, line),
            }
        };
        let lines: Vec<String> = text.lines().map(line).collect();
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// The path of a control group, with or without a file of the kernel's at its end.
    fn group(&mut self, group: &str) -> String {
        if self.keep.paths {
            return self.names(PLACE, group);
        }
        let parts: Vec<String> = group.split('/').map(|part| self.group_part(part)).collect();
        self.names(PLACE, &parts.join("/"))
    }

    fn group_part(&mut self, part: &str) -> String {
        let is_file = part.starts_with("memory.") || part.starts_with("dmem.") || part == "memory";
        // `user-1000.slice`, `user@1000.service`: numbers of accounts, not names.
        let is_numbered = ["user-", "user@", "uid_", "job_", "step_", "task_"]
            .iter()
            .find_map(|begin| part.strip_prefix(begin))
            .is_some_and(|rest| rest.split('.').next().is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_digit())));
        match is_file || is_numbered || part.is_empty() || part == ".." || GROUPS.contains(&part) {
            true => part.to_owned(),
            false => self.file_name(PLACE, part),
        }
    }
}
