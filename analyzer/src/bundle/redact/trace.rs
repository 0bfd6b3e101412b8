//! A trace's own texts: facts about the process, libraries, the machine's files, marks, messages and names of Python code.

use gpuoom_trace::meaning::Does;
use gpuoom_trace::payload;
use gpuoom_trace::reader::Metadata;
use gpuoom_trace::record::{Event, MAX_PAYLOAD_BYTES, Record, flag};
use gpuoom_trace::rewrite::Rewording;
use rustc_hash::FxHashMap;

use super::arguments::is_amounts;
use super::log::Sort;
use super::paths::public_from;
use super::words::{FUNCTIONS, PROGRAMS, THREADS};
use super::{Redactor, letters};
use crate::evidence::torch_message::find_all;
use crate::passes::shape::labels;
use crate::replay::tracks::marks;

/// Where things stood.
const PROCESS: &str = "process";
const LIBRARIES: &str = "libraries";
const MARKS: &str = "marks";
const MESSAGES: &str = "messages";
const CODE: &str = "Python code";
const POOLS: &str = "pools";
const THREAD_NAMES: &str = "names of threads";

impl Rewording for Redactor {
    fn metadata(&mut self, metadata: &mut Metadata) {
        let rows = (0..).zip(&metadata.meanings.rows);
        let has_numbers = rows.filter(|(_, row)| row.does == Does::TellsOfBuffer as u8);
        self.numbered = has_numbers.map(|(number, _)| number).collect();
        let process = &mut metadata.process;
        process.executable = self.path(PROCESS, &process.executable);
        process.command_line = self.arguments(&process.command_line);
        for (name, value) in &mut process.environment {
            *value = self.variable(name, value);
            *name = self.names("environment", name);
        }
        process.hostname = self.host(PROCESS, &process.hostname);
        process.kernel = self.names(PROCESS, &process.kernel);
        for note in &mut process.notes {
            *note = self.note(note);
        }
        self.libraries(metadata);
        for bypass in &mut metadata.bypasses.bypasses {
            bypass.caller = self.path(LIBRARIES, &bypass.caller);
            bypass.target = self.path(LIBRARIES, &bypass.target);
        }
        for device in &mut metadata.devices {
            device.name = self.names("devices", &device.name);
        }
        self.machine(&mut metadata.machine);
    }

    fn payload(&mut self, record: &Record, bytes: &mut [u8]) {
        match record.event() {
            // A library's range is no secret, and by its name it is known not to be the program's.
            Some(Event::Mark) if !marks::is_programs(bytes) => {}
            Some(Event::Mark) => {
                let label = payload::text(bytes);
                let label = self.label(MARKS, &label);
                put(bytes, &label);
            }
            // An allocator's own totals and the memory of a buffer are numbers; a pool and its block have names.
            Some(Event::Block | Event::BlockFree)
                if record.has(flag::TOTALS) || self.numbered.contains(&record.api) => {}
            Some(Event::Block | Event::BlockFree) if !bytes.is_empty() => {
                let names = payload::text(bytes);
                let names: Vec<String> = names.split('\0').map(|name| self.pool(name)).collect();
                put(bytes, &names.join("\0"));
            }
            Some(Event::Code) => {
                let code = payload::text(bytes);
                let code = self.code(&code);
                put(bytes, &code);
            }
            Some(Event::Library) => {
                let library = payload::text(bytes);
                if let Some((build_id, path)) = library.split_once('\0') {
                    let path = self.path(LIBRARIES, path);
                    put(bytes, &format!("{build_id}\0{path}"));
                }
            }
            Some(Event::Thread) => {
                let name = payload::text(bytes);
                let name = self.thread(&name);
                put(bytes, &name);
            }
            Some(Event::Message) => {
                let text = payload::text(bytes);
                let text = self.message(&text);
                put(bytes, &text);
            }
            Some(_) => {}
            // Of a newer recorder: nobody here knows what is in it.
            None if !bytes.is_empty() => {
                self.log.note(Sort::Label, "events of a newer recorder");
                bytes.fill(0);
            }
            None => {}
        }
    }
}

impl Redactor {
    /// The libraries of all lists. What the last list has counts once.
    fn libraries(&mut self, metadata: &mut Metadata) {
        let mut known: FxHashMap<String, String> = FxHashMap::default();
        for module in &mut metadata.modules.modules {
            let path = self.path(LIBRARIES, &module.path);
            known.insert(std::mem::replace(&mut module.path, path.clone()), path);
        }
        for module in metadata.module_lists.iter_mut().flat_map(|list| &mut list.modules) {
            module.path = match known.get(&module.path) {
                Some(path) => path.clone(),
                None => self.path(LIBRARIES, &module.path),
            };
        }
    }

    /// A setting that the recorder could not understand: `NAME=VALUE: expected ...`.
    fn note(&mut self, note: &str) -> String {
        const PLACE: &str = "notes of the recorder";
        let parts = note.split_once('=').and_then(|(name, rest)| Some((name, rest.split_once(": expected")?)));
        let Some((name, (value, rest))) = parts.filter(|_| !self.keep.environment) else {
            return self.text(PLACE, note);
        };
        let value = if is_amounts(value) { value.to_owned() } else { self.stand_in(Sort::Variable, PLACE, value) };
        format!("{}={value}: expected{}", self.names(PLACE, name), self.text(PLACE, rest))
    }

    /// What a thread is called: names that libraries give their threads say nothing of the program.
    fn thread(&mut self, name: &str) -> String {
        let of_all = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
        if name.is_empty() || self.keep.marks || THREADS.contains(&of_all) || PROGRAMS.contains(&of_all) {
            return name.to_owned();
        }
        self.log.note(Sort::Label, THREAD_NAMES);
        format!("thread {}", self.thread_names.of(name))
    }

    fn pool(&mut self, name: &str) -> String {
        if name.is_empty() { String::new() } else { self.label(POOLS, name) }
    }

    /// What an exception or a log says. A program may say anything; PyTorch's message of its memory is made of numbers.
    fn message(&mut self, text: &str) -> String {
        match find_all(text).as_slice() {
            // Behind its line comes where it was raised.
            [of_torch] if of_torch.has_numbers() && of_torch.offset_bytes == 0 => {
                self.text(MESSAGES, text.lines().next().unwrap_or_default())
            }
            _ => self.stand_in(Sort::Label, MESSAGES, text),
        }
    }

    fn label(&mut self, place: &'static str, label: &str) -> String {
        if self.keep.marks {
            return self.text(place, label);
        }
        // What a diagnosis rests on stays, or a bundle's report would say something else than the trace's.
        if labels::says_nothing_private(label) {
            return label.to_owned();
        }
        self.log.note(Sort::Label, place);
        // Labels that differ only in their numbers are of one sort, for the trend of what they hold: they must stay so.
        let sort: String = label.chars().filter(|c| !c.is_ascii_digit()).collect();
        format!("mark {}{}", letters(self.sorts.of(&sort)), self.labels.of(label))
    }

    /// A file and the name of a function in it, with a zero between them.
    fn code(&mut self, code: &str) -> String {
        let (file, function) = code.split_once('\0').unwrap_or((code, ""));
        if file.starts_with('<') {
            // `<frozen importlib._bootstrap>`, `<string>`.
            return code.to_owned();
        }
        let place = self.path(CODE, file);
        // What lies in a public package or the system is public as a whole.
        let is_packages = || public_from(&file.split('/').collect::<Vec<_>>()).is_some();
        let is_public = file.contains('/') && (place == file && !self.keep.paths || is_packages());
        let last = function.rsplit('.').next().unwrap_or(function);
        let function = match is_public || function.is_empty() || FUNCTIONS.contains(&last) && last == function {
            true => function.to_owned(),
            false if self.keep.marks => self.names(CODE, function),
            false => {
                self.log.note(Sort::Label, CODE);
                format!("function {}", self.functions.of(function))
            }
        };
        format!("{place}\0{function}")
    }
}

/// Puts a text into the room of a payload; what does not fit is cut.
fn put(bytes: &mut [u8], text: &str) {
    let mut room = [0; MAX_PAYLOAD_BYTES];
    let most = bytes.len().saturating_sub(2);
    let mut length = text.len().min(most);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    let packed = payload::pack(&text.as_bytes()[..length], &mut room);
    bytes.fill(0);
    if let Some(target) = bytes.get_mut(..packed.len()) {
        target.copy_from_slice(packed);
    }
}
