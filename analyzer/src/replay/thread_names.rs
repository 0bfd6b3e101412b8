//! What threads are called, and which of them came to a call site first.

use gpuoom_trace::payload;
use gpuoom_trace::record::Record;
use rustc_hash::FxHashMap;

/// Threads, and sites, whose names are kept. A file that has more is not one of ours.
const MOST: usize = 1 << 20;
/// Different names.
const MOST_NAMES: usize = 1 << 14;
/// Bytes of a name: the kernel keeps 15.
const MOST_BYTES: usize = 15;

/// The number of a name.
type Number = u32;

/// Names of threads by kernel thread id, as they are at this record. A number that a new thread has is that one's.
#[derive(Clone, Debug, Default)]
pub struct ThreadNames {
    names: Vec<Box<str>>,
    numbers: FxHashMap<Box<str>, Number>,
    threads: FxHashMap<u32, Number>,
    sites: FxHashMap<u32, Number>,
}

impl ThreadNames {
    /// Takes a `thread` record.
    #[cold]
    pub(super) fn names(&mut self, record: &Record, payload: &[u8]) {
        let name = payload::unpack(payload);
        let text = String::from_utf8_lossy(&name[..name.len().min(MOST_BYTES)]);
        let known = self.numbers.get(&*text).copied();
        if (known.is_none() && self.names.len() >= MOST_NAMES) || self.threads.len() >= MOST {
            self.threads.remove(&record.thread);
            return;
        }
        let number = known.unwrap_or_else(|| {
            let (number, name) = (self.names.len() as Number, Box::<str>::from(text));
            self.numbers.insert(name.clone(), number);
            self.names.push(name);
            number
        });
        self.threads.insert(record.thread, number);
    }

    /// A thread came to a site that nobody had come to before.
    pub(super) fn came_to(&mut self, site: u32, thread: u32) {
        if let Some(number) = self.threads.get(&thread).filter(|_| self.sites.len() < MOST) {
            self.sites.insert(site, *number);
        }
    }

    /// What a thread is called now.
    pub fn of(&self, thread: u32) -> Option<&str> {
        self.name(self.threads.get(&thread))
    }

    /// What the thread was called that came to a site first, as it was then.
    pub fn of_site(&self, site: u32) -> Option<&str> {
        self.name(self.sites.get(&site))
    }

    fn name(&self, number: Option<&Number>) -> Option<&str> {
        self.names.get(*number? as usize).map(|name| &**name)
    }
}

#[cfg(test)]
mod tests {
    use gpuoom_trace::record::{Event, Kind, MAX_PAYLOAD_BYTES};

    use super::*;

    fn named(names: &mut ThreadNames, thread: u32, name: &[u8]) {
        let mut out = [0; MAX_PAYLOAD_BYTES];
        names.names(&Record { thread, ..Record::new(Event::Thread, Kind::None) }, payload::pack(name, &mut out));
    }

    #[test]
    fn a_name_is_the_threads_until_it_has_another() {
        let mut names = ThreadNames::default();
        names.came_to(1, 7);
        named(&mut names, 7, b"python");
        names.came_to(2, 7);
        named(&mut names, 7, b"pt_autograd_0");
        named(&mut names, 8, b"a name of more than fifteen bytes");
        names.came_to(3, 7);
        assert_eq!((names.of(7), names.of(8), names.of(9)), (Some("pt_autograd_0"), Some("a name of more "), None));
        assert_eq!(
            (names.of_site(1), names.of_site(2), names.of_site(3)),
            (None, Some("python"), Some("pt_autograd_0"))
        );
    }

    #[test]
    fn a_file_can_not_have_any_number_of_names() {
        let mut names = ThreadNames::default();
        (0..MOST_NAMES as u32 + 9).for_each(|number| named(&mut names, number, number.to_string().as_bytes()));
        assert_eq!((names.names.len(), names.of(MOST_NAMES as u32)), (MOST_NAMES, None));
        named(&mut names, 3, b"one too many");
        assert_eq!(names.of(3), None, "it is called so no longer");
    }
}
