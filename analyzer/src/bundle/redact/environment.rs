//! Variables: settings of runtimes and allocators stay, with their paths and identifiers replaced; other values do not.

use super::Redactor;
use super::arguments::{is_amounts, is_secret};
use super::log::Sort;
use super::words::{PLAIN_VALUES, VARIABLES};

const PLACE: &str = "environment";

impl Redactor {
    /// The value of a variable.
    pub(super) fn variable(&mut self, name: &str, value: &str) -> String {
        if value.is_empty() {
            return String::new();
        }
        if is_secret(name) {
            self.log.note(Sort::Secret, PLACE);
            return "***".to_owned();
        }
        match name {
            "HOSTNAME" => return self.host(PLACE, value),
            "USER" | "LOGNAME" | "SUDO_USER" => return self.names(PLACE, value),
            _ => {}
        }
        let is_setting = VARIABLES.iter().any(|begin| name.starts_with(begin));
        let is_plain = is_amounts(value) || PLAIN_VALUES.contains(&value.to_ascii_lowercase().as_str());
        match () {
            () if is_plain => value.to_owned(),
            () if value.starts_with(['/', '~']) && is_setting => self.path_list(PLACE, value),
            () if is_setting || self.keep.environment => self.text(PLACE, value),
            () => self.stand_in(Sort::Variable, PLACE, value),
        }
    }

    /// What stands for a value.
    pub(super) fn stand_in(&mut self, sort: Sort, place: &str, value: &str) -> String {
        self.log.note(sort, place);
        format!("***{}", self.values.of(value))
    }
}
