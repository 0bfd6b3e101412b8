//! Something that is read from files once and then used by all threads without a lock.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::base::guard;

/// A value that is made when it is first needed. Old values are never freed: another thread may be reading them.
pub(crate) struct Cache<T>(AtomicPtr<T>);

impl<T> Cache<T> {
    pub(crate) const fn new() -> Self {
        Cache(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The value; `make` runs the first time. `None` when it panicked.
    pub(crate) fn get(&'static self, make: impl FnOnce() -> T) -> Option<&'static T> {
        // Acquire: whoever sees the pointer sees what it points at.
        // SAFETY: null, or a value that is never freed.
        let known = unsafe { self.0.load(Ordering::Acquire).as_ref() };
        known.or_else(|| self.renew(make))
    }

    /// A new value. Signals are held back: a handler that came here from within would meet the heap's lock.
    #[cold]
    pub(crate) fn renew(&'static self, make: impl FnOnce() -> T) -> Option<&'static T> {
        let made = guard::cold(None, || guard::without_signals(|| Some(Box::into_raw(Box::new(make())))))?;
        self.0.store(made, Ordering::Release);
        // SAFETY: as above.
        unsafe { made.as_ref() }
    }
}
