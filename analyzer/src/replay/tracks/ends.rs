//! A list that keeps its beginning and its end: what happens first explains the start, what happens last the failure.

use std::collections::VecDeque;

/// The first and the last entries of a list of any length.
#[derive(Clone, Debug)]
pub struct Ends<T> {
    first: Vec<T>,
    last: VecDeque<T>,
    each: usize,
    count: u64,
}

impl<T> Ends<T> {
    /// Keeps so many entries of the beginning, and as many of the end.
    pub fn new(each: usize) -> Self {
        Ends { first: Vec::new(), last: VecDeque::new(), each, count: 0 }
    }

    /// Adds an entry.
    pub fn push(&mut self, entry: T) {
        self.count += 1;
        if self.first.len() < self.each {
            self.first.push(entry);
            return;
        }
        if self.last.len() == self.each {
            self.last.pop_front();
        }
        self.last.push_back(entry);
    }

    /// Entries that were added, kept or not.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether none is missing.
    pub fn is_complete(&self) -> bool {
        self.count == (self.first.len() + self.last.len()) as u64
    }

    /// What is kept, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.first.iter().chain(&self.last)
    }

    /// What is kept, in order, to change it.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.first.iter_mut().chain(&mut self.last)
    }

    /// Keeps the entries of which this is true, which may change them; the others were never added.
    pub fn retain_mut(&mut self, mut keep: impl FnMut(&mut T) -> bool) {
        let before = self.first.len() + self.last.len();
        self.first.retain_mut(&mut keep);
        self.last.retain_mut(&mut keep);
        self.count = self.count.saturating_sub((before - self.first.len() - self.last.len()) as u64);
    }

    /// What was added last.
    pub fn last_mut(&mut self) -> Option<&mut T> {
        self.last.back_mut().or(self.first.last_mut())
    }

    /// The entry whose key this is, where keys ascend.
    pub fn find<K: Ord>(&self, key: K, of: impl Fn(&T) -> K) -> Option<&T> {
        let in_first = self.first.binary_search_by(|entry| of(entry).cmp(&key)).ok().map(|at| &self.first[at]);
        in_first.or_else(|| self.last.binary_search_by(|entry| of(entry).cmp(&key)).ok().map(|at| &self.last[at]))
    }

    /// The same, to change it.
    pub fn find_mut<K: Ord>(&mut self, key: K, of: impl Fn(&T) -> K) -> Option<&mut T> {
        match self.first.binary_search_by(|entry| of(entry).cmp(&key)) {
            Ok(at) => self.first.get_mut(at),
            Err(_) => match self.last.binary_search_by(|entry| of(entry).cmp(&key)) {
                Ok(at) => self.last.get_mut(at),
                Err(_) => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginning_and_end_are_kept() {
        let mut ends = Ends::new(3);
        (0..5).for_each(|number| ends.push(number));
        assert!(ends.is_complete());
        (5..100).for_each(|number| ends.push(number));
        assert_eq!(ends.iter().copied().collect::<Vec<_>>(), [0, 1, 2, 97, 98, 99]);
        assert_eq!((ends.count(), ends.is_complete()), (100, false));
        assert_eq!((ends.find(98, |entry| *entry), ends.find(50, |entry| *entry)), (Some(&98), None));
        *ends.find_mut(1, |entry| *entry).unwrap() = 1;
        assert_eq!(ends.find_mut(50, |entry| *entry), None);
    }
}
