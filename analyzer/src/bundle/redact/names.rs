//! Names of accounts, machines and programs: learned first, replaced wherever they stand.

use super::log::Sort;
use super::words::{ACCOUNTS, HOSTS, SUBJECT};
use super::{Keep, Redactor};

/// From this length on a name is found inside of other words.
const LONG: usize = 5;
/// Shorter names are found only where a path or a field says that they are names.
const SHORT: usize = 3;
/// Characters that the kernel keeps of a process's name.
const KERNEL_NAME: usize = 15;
/// Names of one sort that are learned: a hostile text may have any number of them.
const MOST: usize = 10_000;

/// Names and their stand-ins.
#[derive(Debug, Default)]
pub(super) struct Names {
    users: Vec<String>,
    hosts: Vec<String>,
    /// Names of the recorded programs, for logs that name processes.
    programs: Vec<String>,
}

/// Directories below which accounts have their own.
const HOMES: [&str; 3] = ["home", "Users", "homes"];

impl Names {
    pub(super) fn learn_user(&mut self, name: &str) {
        let name = name.trim();
        if !name.is_empty() && !ACCOUNTS.contains(&name) {
            push(&mut self.users, name);
        }
    }

    pub(super) fn learn_host(&mut self, name: &str) {
        let name = name.trim();
        if !name.is_empty() && !HOSTS.contains(&name) {
            push(&mut self.hosts, name);
        }
    }

    pub(super) fn learn_program(&mut self, executable: &str) {
        let name = executable.rsplit('/').next().unwrap_or_default();
        if name.len() >= SHORT {
            push(&mut self.programs, name);
        }
    }

    /// Learns accounts from paths and from what tools print (`USER=`, `uid=1000(name)`).
    pub(super) fn learn_text(&mut self, text: &str) {
        for home in HOMES {
            for (at, _) in text.match_indices(&format!("/{home}/")) {
                self.learn_user(word_at(&text[at + home.len() + 2..]));
            }
        }
        for field in ["USER=", "LOGNAME=", "USERNAME="] {
            for (at, _) in text.match_indices(field) {
                self.learn_user(word_at(&text[at + field.len()..]));
            }
        }
        for (at, _) in text.match_indices("uid=") {
            let rest = text[at + 4..].trim_start_matches(|c: char| c.is_ascii_digit());
            if let Some(name) = rest.strip_prefix('(') {
                self.learn_user(word_at(name));
            }
        }
    }

    /// Learns machines from the lines of a system's log: `Nov 20 14:03:11 atlas kernel: ...`.
    pub(super) fn learn_log(&mut self, text: &str) {
        for line in text.lines() {
            let Some(before) = line.find(" kernel:").map(|at| &line[..at]) else { continue };
            if let Some((stamp, host)) = before.rsplit_once(' ')
                && stamp.contains(':')
                && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'))
            {
                self.learn_host(host);
            }
        }
    }

    /// The account that a part of a path names.
    pub(super) fn home_of(&mut self, parts: &[&str]) -> Option<(usize, String)> {
        if parts.first() == Some(&"") && parts.get(1) == Some(&"root") {
            return Some((2, "~".to_owned()));
        }
        let at = parts.iter().take(4).position(|part| HOMES.contains(part))?;
        let name = parts.get(at + 1).filter(|name| !name.is_empty())?;
        self.learn_user(name);
        let number = self.users.iter().position(|known| known == name);
        let home = match number {
            None | Some(0) => "~".to_owned(),
            Some(number) => format!("~user-{}", number + 1),
        };
        Some((at + 2, home))
    }
}

fn push(names: &mut Vec<String>, name: &str) {
    if names.len() < MOST && !names.iter().any(|known| known == name) {
        names.push(name.to_owned());
    }
}

/// The name that a text begins with.
fn word_at(text: &str) -> &str {
    let end = text.find(|c: char| c.is_whitespace() || "/\"'`:;,()[]{}<>|&\\\0".contains(c)).unwrap_or(text.len());
    &text[..end]
}

impl Redactor {
    /// Replaces the names of accounts and machines.
    pub(super) fn names(&mut self, place: &str, text: &str) -> String {
        let Keep { user, host, .. } = self.keep;
        let mut text = text.to_owned();
        let mut replace = |names: &[String], prefix: &str, sort: Sort| {
            for (number, name) in names.iter().enumerate() {
                let stand_in = format!("{prefix}-{}", number + 1);
                let mut count = replace_name(&mut text, name, &stand_in);
                // A machine is also called by the first part of its name.
                if let Some((short, _)) = name.split_once('.').filter(|_| sort == Sort::Host) {
                    count += replace_name(&mut text, short, &stand_in);
                }
                self.log.note_many(sort, place, count);
            }
        };
        if !host {
            replace(&self.names.hosts, "host", Sort::Host);
        }
        if !user {
            replace(&self.names.users, "user", Sort::User);
        }
        text
    }

    /// Replaces the names of the recorded programs, as the kernel's log has them.
    pub(super) fn programs(&mut self, place: &str, text: &str) -> String {
        let mut text = text.to_owned();
        for program in self.names.programs.clone() {
            let cut: String = program.chars().take(KERNEL_NAME).collect();
            if find(&text, &cut.to_ascii_lowercase(), 0).is_none() {
                continue;
            }
            let stand_in = self.file_name(place, &program);
            if stand_in != program {
                replace_name(&mut text, &program, &stand_in);
                replace_name(&mut text, &cut, &stand_in);
            }
        }
        text
    }

    /// A field that holds nothing but the name of a machine.
    pub(super) fn host(&mut self, place: &str, name: &str) -> String {
        if self.keep.host || name.is_empty() || HOSTS.contains(&name) {
            return name.to_owned();
        }
        self.names.learn_host(name);
        self.log.note(Sort::Host, place);
        let number = self.names.hosts.iter().position(|known| known == name.trim());
        format!("host-{}", number.unwrap_or(0) + 1)
    }
}

/// Replaces a name and says how often it was there.
fn replace_name(text: &mut String, name: &str, stand_in: &str) -> u64 {
    let lower = name.to_ascii_lowercase();
    let length = name.chars().count();
    if length < SHORT || SUBJECT.contains(&lower.as_str()) {
        return 0;
    }
    let mut count = 0;
    let mut at = 0;
    while let Some(found) = find(text, &lower, at) {
        let (before, behind) = (text[..found].chars().next_back(), text[found + lower.len()..].chars().next());
        let is_part = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        if length >= LONG || !(is_part(before) || is_part(behind)) {
            text.replace_range(found..found + lower.len(), stand_in);
            at = found + stand_in.len();
            count += 1;
        } else {
            at = found + lower.len();
        }
    }
    count
}

/// Where a name stands, whatever its capital letters. Only ASCII letters differ, so positions stay.
fn find(text: &str, lower: &str, from: usize) -> Option<usize> {
    let (text, lower) = (text.as_bytes(), lower.as_bytes());
    let windows = text.get(from..)?.windows(lower.len());
    windows.into_iter().position(|window| window.eq_ignore_ascii_case(lower)).map(|at| at + from)
}
