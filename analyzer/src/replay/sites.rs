//! Call sites: for each number the return address, and from format 1.4 on the way there.

use gpuoom_trace::payload::{CodeName, PythonFrame, Stack, stack_flag};
use gpuoom_trace::record::Record;
use rustc_hash::FxHashMap;

use super::places::{Place, Places};

/// Call sites that are kept. A recorder has numbers for fewer; a file that has more is not one of ours.
const MAX_SITES: usize = 1 << 20;
/// Frames that are kept, of all stacks together.
const MAX_FRAMES: usize = 1 << 24;
/// Code objects of Python that are kept.
const MAX_CODES: usize = 1 << 18;
/// Bytes of their names.
const MAX_CODE_BYTES: usize = 64 << 20;

/// One call site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Return address of the call.
    pub address: u64,
    /// Bits of [`stack_flag`].
    flags: u8,
    native: u8,
    python: u8,
    /// Where its frames begin.
    start: u32,
    /// The first site with the same return address in the same library.
    place: u32,
    /// Where what was said about the places of its frames begins, if anything was.
    said: u32,
    has_said: bool,
}

/// The way to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way<'a> {
    /// Bits of [`stack_flag`].
    pub flags: u8,
    /// Return addresses, innermost first: at least the call's own.
    pub native: &'a [u64],
    /// What the trace says about the library of the first native frames; none is said about those behind.
    said: &'a [Place],
    /// Frames of Python, innermost first, each as code and line.
    python: &'a [u64],
}

impl<'a> Way<'a> {
    /// Native frames, innermost first, with what the trace says about the library that each lies in.
    pub fn native_places(&self) -> impl Iterator<Item = (u64, Place)> + 'a {
        let said = self.said.iter().copied().chain(std::iter::repeat(Place::NotSaid));
        self.native.iter().copied().zip(said)
    }

    /// Frames of Python, innermost first.
    pub fn python(&self) -> impl Iterator<Item = PythonFrame> + 'a {
        self.python.iter().map(|word| PythonFrame { code: *word as u32, line: (*word >> 32) as u32 })
    }

    /// Whether frames are missing at the outer end of the native part.
    pub fn native_is_cut(&self) -> bool {
        self.flags & stack_flag::NATIVE_WHOLE == 0
    }

    /// Whether the way through some native code was inferred from frame pointers, because it has no unwind tables.
    pub fn native_is_inferred(&self) -> bool {
        self.flags & stack_flag::NATIVE_GUESSED != 0
    }

    /// Whether frames are missing at the outer end of the Python part.
    pub fn python_is_cut(&self) -> bool {
        self.flags & stack_flag::PYTHON_CUT != 0
    }
}

/// The call sites of a trace, by number.
#[derive(Clone, Debug, Default)]
pub struct Sites {
    by_number: FxHashMap<u32, Site>,
    /// The first site with each return address and library.
    places: FxHashMap<(u64, Place), u32>,
    /// Which libraries came to places where others had been.
    libraries: Places,
    /// What was said about the frames of those sites that have any such.
    said: Vec<Place>,
    /// Return addresses and Python frames of all stacks, one after the other.
    frames: Vec<u64>,
    codes: FxHashMap<u32, CodeName>,
    code_bytes: usize,
    /// Stacks that found no room.
    dropped: u64,
}

impl Sites {
    /// Takes a `site` record.
    #[cold]
    pub fn introduce(&mut self, record: &Record, payload: &[u8]) {
        if self.by_number.len() >= MAX_SITES && !self.by_number.contains_key(&record.site) {
            self.dropped += 1;
            return;
        }
        let key = (record.address, self.libraries.of_return(record.address));
        let place = *self.places.entry(key).or_insert(record.site);
        let mut site = Site { address: record.address, place, ..Site::default() };
        match Stack::read(payload) {
            Some(stack) => self.keep(&mut site, &stack),
            None => self.keep_said(&mut site, &[record.address]),
        }
        self.by_number.insert(record.site, site);
    }

    /// Takes a `library` record.
    #[cold]
    pub fn note_library(&mut self, record: &Record, payload: &[u8]) {
        self.libraries.note(record, payload);
    }

    /// Keeps what was said about these frames, if anything was.
    fn keep_said(&mut self, site: &mut Site, native: &[u64]) {
        if self.libraries.are_empty() || self.said.len() > MAX_FRAMES {
            return;
        }
        (site.said, site.has_said) = (self.said.len() as u32, true);
        self.said.extend(native.iter().map(|address| self.libraries.of_return(*address)));
    }

    fn keep(&mut self, site: &mut Site, stack: &Stack) {
        let Some(start) = u32::try_from(self.frames.len()).ok().filter(|_| self.frames.len() < MAX_FRAMES) else {
            self.dropped += 1;
            return;
        };
        self.frames.extend(&stack.native);
        self.frames.extend(stack.python.iter().map(|frame| u64::from(frame.code) | u64::from(frame.line) << u32::BITS));
        let (native, python) = (stack.native.len() as u8, stack.python.len() as u8);
        *site = Site { flags: stack.flags, native, python, start, ..*site };
        self.keep_said(site, &stack.native);
    }

    /// Takes a `code` record.
    #[cold]
    pub fn name_code(&mut self, record: &Record, payload: &[u8]) {
        let name = CodeName::read(payload);
        let bytes = name.file.len() + name.function.len();
        if self.codes.len() < MAX_CODES && self.code_bytes + bytes <= MAX_CODE_BYTES {
            self.code_bytes += bytes;
            self.codes.insert(record.site, name);
        }
    }

    /// The return address of a site; `None` where the number was not introduced. Number 0 is none.
    pub fn address(&self, site: u32) -> Option<u64> {
        self.by_number.get(&site).filter(|_| site != 0).map(|site| site.address)
    }

    /// The site that stands for all sites with the same return address, whichever way leads there. Before 1.4, and of calls
    /// that give memory back, each site is its own.
    pub fn place(&self, site: u32) -> u32 {
        self.by_number.get(&site).map_or(site, |known| known.place)
    }

    /// Whether the trace has the way to a site's call, and not the return address alone.
    pub fn has_way(&self, site: u32) -> bool {
        self.by_number.get(&site).is_some_and(|known| site != 0 && (known.native > 0 || known.python > 0))
    }

    /// Whether frames of Python were looked for on the way to a site's call.
    #[inline]
    pub fn looked_for_python(&self, site: u32) -> bool {
        self.by_number.get(&site).is_some_and(|known| site != 0 && known.flags & stack_flag::PYTHON_SEEN != 0)
    }

    /// The way to a site's call; where the trace keeps no stacks, the return address alone, cut.
    pub fn way(&self, site: u32) -> Option<Way<'_>> {
        let site = self.by_number.get(&site).filter(|_| site != 0)?;
        let frames = self.frames.get(site.start as usize..).unwrap_or_default();
        let (native, rest) = frames.split_at_checked(usize::from(site.native)).unwrap_or_default();
        let python = rest.get(..usize::from(site.python)).unwrap_or_default();
        let native = if native.is_empty() { std::slice::from_ref(&site.address) } else { native };
        let said = self.said.get(site.said as usize..).filter(|_| site.has_said).unwrap_or_default();
        let said = &said[..said.len().min(native.len())];
        Some(Way { flags: site.flags, native, said, python })
    }

    /// The return address of a site and what the trace says about the library that it lies in.
    pub fn return_place(&self, site: u32) -> Option<(u64, Place)> {
        let way = self.way(site)?;
        Some((self.address(site)?, way.native_places().next().map_or(Place::NotSaid, |(_, place)| place)))
    }

    /// The numbers of all sites, in order.
    pub fn numbers(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = self.by_number.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }

    /// The libraries that came to places where others had been.
    pub fn libraries(&self) -> &Places {
        &self.libraries
    }

    /// The file and function of a Python code object.
    pub fn code(&self, number: u32) -> Option<&CodeName> {
        self.codes.get(&number)
    }

    /// The files of all of them.
    pub fn code_files(&self) -> impl Iterator<Item = &str> {
        self.codes.values().map(|code| &*code.file)
    }

    /// Sites and stacks that were not kept, because there are more than any recorder writes.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use gpuoom_trace::payload;
    use gpuoom_trace::record::{Event, Kind, MAX_PAYLOAD_BYTES};

    use super::*;

    fn record(event: Event, site: u32, address: u64) -> Record {
        Record { site, address, ..Record::new(event, Kind::None) }
    }

    #[test]
    fn a_site_has_its_address_and_its_way() {
        let mut sites = Sites::default();
        let mut out = [0; MAX_PAYLOAD_BYTES];
        sites.introduce(&record(Event::Site, 1, 0x10), &[]);
        let python = [PythonFrame { code: 3, line: 41 }, PythonFrame { code: 4, line: 0 }];
        let stack = payload::stack(stack_flag::NATIVE_WHOLE, &[0x20, 0x30], &python, &mut out).to_vec();
        sites.introduce(&record(Event::Site, 2, 0x20), &stack);
        sites.introduce(&record(Event::Site, 0, 0x40), &stack);
        sites.name_code(&record(Event::Code, 3, 0), payload::code_name(b"/a/train.py", b"Model.forward", &mut out));

        sites.introduce(&record(Event::Site, 7, 0x20), &[]);
        assert_eq!((sites.place(7), sites.place(2), sites.place(1), sites.place(99)), (2, 2, 1, 99));
        let alone = sites.way(1).unwrap();
        assert_eq!((sites.address(1), alone.native, alone.native_is_cut()), (Some(0x10), &[0x10][..], true));
        let way = sites.way(2).unwrap();
        assert_eq!((way.native, way.native_is_cut(), way.python_is_cut()), (&[0x20, 0x30][..], false, false));
        assert_eq!(way.python().collect::<Vec<_>>(), python);
        assert_eq!(sites.code(3).map(|code| code.function.as_str()), Some("Model.forward"));
        assert_eq!((sites.code(4), sites.way(0), sites.address(0), sites.way(9)), (None, None, None, None));
    }

    #[test]
    fn a_site_keeps_what_was_said_before_it() {
        let mut sites = Sites::default();
        let mut out = [0; MAX_PAYLOAD_BYTES];
        let stack = |out: &mut _| payload::stack(0, &[0x1010, 0x5000], &[], out).to_vec();
        let library = |build_id: u8, out: &mut _| payload::library(&[build_id], b"/b.so", out).to_vec();
        let noted = Record { requested: 0x1000, ..record(Event::Library, 0, 0x1000) };
        sites.introduce(&record(Event::Site, 1, 0x1010), &stack(&mut out));
        sites.note_library(&noted, &library(7, &mut out));
        sites.introduce(&record(Event::Site, 2, 0x1010), &stack(&mut out));
        sites.note_library(&noted, &[]);
        sites.introduce(&record(Event::Site, 3, 0x1010), &[]);
        let said = |site: u32| sites.way(site).unwrap().native_places().map(|(_, place)| place).collect::<Vec<_>>();
        assert_eq!(said(1), [Place::NotSaid, Place::NotSaid]);
        assert_eq!((said(2)[1], said(3)), (Place::NotSaid, vec![Place::NoLibrary]));
        let Place::Library(number) = said(2)[0] else { panic!() };
        assert_eq!(sites.libraries().get(number).map(|module| module.build_id.as_str()), Some("07"));
        assert_eq!(
            (sites.place(1), sites.place(2), sites.place(3)),
            (1, 2, 3),
            "equal addresses in different libraries"
        );
        assert_eq!(sites.return_place(3), Some((0x1010, Place::NoLibrary)));
    }

    #[test]
    fn a_payload_that_lies_leaves_the_address() {
        let mut sites = Sites::default();
        let mut out = [0; MAX_PAYLOAD_BYTES];
        let mut stack = payload::stack(0, &[0x20], &[], &mut out).to_vec();
        stack[3] = 99;
        sites.introduce(&record(Event::Site, 1, 0x20), &stack);
        assert_eq!(sites.way(1).map(|way| way.native.to_vec()), Some(vec![0x20]));
    }
}
