//! Names from small programs that are compiled here.

use std::path::Path;

use gpuoom_trace::header::Header;
use gpuoom_trace::metadata::Module;
use gpuoom_trace::reader::Metadata;

use super::compiled::{Library, run, text};
use super::*;
use crate::replay::places::{Place, Places};

/// Names of one library.
struct Named {
    symbols: Symbols,
    module: Arc<Module>,
}

impl Named {
    fn frames(&self, address: u64) -> Rc<[Frame]> {
        self.symbols.frames(address, Some(&self.module))
    }

    fn missing(&self) -> Vec<MissingSymbols> {
        self.symbols.missing()
    }
}

fn symbols(module: Module, places: SymbolPlaces) -> Named {
    Named { symbols: Symbols::new(&places), module: Arc::new(module) }
}

fn here() -> SymbolPlaces {
    SymbolPlaces::here(&[])
}

/// Functions and lines of the frames, as text.
fn words(frames: &[Frame]) -> Vec<String> {
    let one = |frame: &Frame| {
        let function = frame.function.as_deref().unwrap_or("?");
        let line = frame.line.map(|line| format!(":{line}")).unwrap_or_default();
        format!("{function}{line}{}", if frame.inlined { " inlined" } else { "" })
    };
    frames.iter().map(one).collect()
}

#[test]
fn debug_information_names_inlined_functions_and_lines() {
    let library = Library::compile("", &["-g"]);
    let address = library.return_address_in("middle");
    let symbols = symbols(library.module(), here());
    let frames = symbols.frames(address);
    assert_eq!(words(&frames), ["inner:3 inlined", "middle:6"]);
    assert_eq!(frames[0].module.as_deref(), Some("liblayers.so.1.2"));
    assert!(frames[0].file.as_deref().is_some_and(|file| file.ends_with("layers.c")), "{frames:?}");
    assert_eq!((frames[0].address, frames[0].offset), (Some(address), Some(address - 0x7f00_0000_0000)));
    assert_eq!(symbols.missing(), []);
}

#[test]
fn without_debug_information_the_table_of_symbols_names_functions() {
    let library = Library::compile("", &[]);
    let (middle, outer) = (library.return_address_in("middle"), library.return_address_in("outer"));
    let whole = symbols(library.module(), here());
    assert_eq!(words(&whole.frames(middle)), ["middle"]);
    assert_eq!(words(&whole.frames(outer)), ["outer"]);

    // Only exported functions are left; a static one is not taken for its neighbour.
    library.strip(&["--strip-all"]);
    let stripped = symbols(library.module(), here());
    assert_eq!(words(&stripped.frames(middle)), ["?"]);
    assert_eq!(words(&stripped.frames(outer)), ["outer"]);
    assert!(stripped.missing()[0].reason.contains("it was stripped"), "{:?}", stripped.missing());
}

/// As `_init` is in libraries that older linkers made: exported, without a size, far before all that is called.
#[test]
fn a_function_without_a_size_does_not_name_what_follows() {
    let entry = ".globl entry\\n.type entry,@function\\nentry: call work@PLT\\nret\\n";
    let library = Library::compile(&format!("__asm__(\"{entry}\");\n"), &[]);
    let (inside, middle) = (library.return_address_in("entry"), library.return_address_in("middle"));
    let whole = symbols(library.module(), here());
    assert_eq!(words(&whole.frames(inside)), ["entry"]);
    assert_eq!(words(&whole.frames(middle)), ["middle"]);
    library.strip(&["--strip-symbol=middle"]);
    assert_eq!(words(&symbols(library.module(), here()).frames(middle)), ["?"], "`work` is between");
    library.strip(&["--strip-all"]);
    let stripped = symbols(library.module(), here());
    assert_eq!(words(&stripped.frames(inside)), ["?"]);
    assert_eq!(words(&stripped.frames(middle)), ["?"]);
}

#[test]
fn an_address_without_a_library_stays_an_address() {
    let library = Library::compile("", &[]);
    let (symbols, start) = (Symbols::new(&here()), library.module().start);
    let listed = modules::Modules::new(
        &Header::new(1 << 10, 1, 1),
        &Metadata {
            modules: gpuoom_trace::metadata::Modules { modules: vec![library.module()] },
            ..Metadata::default()
        },
    );
    let at = |address| listed.at(address, Place::NotSaid, &Places::default()).map(|module| module.start);
    for address in [0, 0x1000, start - 1, 0x7f00_0010_0001, u64::MAX] {
        assert_eq!(at(address), None);
        assert_eq!(*symbols.frames(address, None), [Frame::native(address)]);
    }
    assert_eq!((at(start), at(0x7f00_000f_ffff)), (Some(start), Some(start)));
    assert_eq!(symbols.missing(), [], "nothing was opened");
}

#[test]
fn another_build_is_refused_with_a_sentence() {
    let library = Library::compile("", &["-g"]);
    let address = library.return_address_in("middle");
    let module = Module { build_id: "00".repeat(20), ..library.module() };
    let other = symbols(module, here());
    let frames = other.frames(address);
    assert_eq!(words(&frames), ["?"]);
    let missing = other.missing();
    assert!(missing[0].reason.contains(&format!("is another build ({}): not used", library.build_id)), "{missing:?}");

    let unknown = symbols(Module { build_id: String::new(), ..library.module() }, here());
    assert_eq!(words(&unknown.frames(address)), ["?"]);
    assert!(unknown.missing()[0].reason.contains("it has no build id"), "{:?}", unknown.missing());
}

#[test]
fn a_library_that_is_elsewhere_is_found_in_the_directory_that_is_named() {
    let library = Library::compile("", &["-g"]);
    let address = library.return_address_in("middle");
    let moved = Module { path: "/gone/lib/liblayers.so.1.2".into(), ..library.module() };
    let missing = symbols(moved.clone(), here());
    assert_eq!(words(&missing.frames(address)), ["?"]);
    assert_eq!(missing.missing()[0].reason, "its file was not found");

    let root = tempfile::tempdir().unwrap();
    let (first, rest) = library.build_id.split_at(2);
    for place in [
        "liblayers.so.1.2".to_owned(),
        "gone/lib/liblayers.so.1.2".to_owned(),
        format!(".build-id/{first}/{rest}"),
        format!(".build-id/{first}/{rest}.debug"),
    ] {
        let file = root.path().join(&place);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::copy(&library.path, &file).unwrap();
        let found = symbols(moved.clone(), SymbolPlaces { directories: vec![root.path().into()], this_machine: false });
        assert_eq!(words(&found.frames(address)), ["inner:3 inlined", "middle:6"], "{place}");
        std::fs::remove_file(&file).unwrap();
    }
    // Under whatever name: the build id tells.
    let file = root.path().join("some/where/renamed.bin");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::copy(&library.path, &file).unwrap();
    let found = symbols(moved.clone(), SymbolPlaces { directories: vec![root.path().into()], this_machine: false });
    assert_eq!(words(&found.frames(address)), ["inner:3 inlined", "middle:6"]);
    std::fs::remove_file(&file).unwrap();
    // A file may be named, too; one that is no ELF file is passed over.
    let nonsense = root.path().join("nonsense");
    std::fs::write(&nonsense, "no library").unwrap();
    let given = SymbolPlaces { directories: vec![nonsense, library.path.clone()], this_machine: false };
    assert_eq!(words(&symbols(moved, given).frames(address)), ["inner:3 inlined", "middle:6"]);
}

#[test]
fn debug_files_beside_a_stripped_library_are_found() {
    for compressed in ["none", "zlib", "zstd"] {
        let library = Library::compile("", &["-g"]);
        let address = library.return_address_in("middle");
        let debug = library.directory.path().join("layers.debug");
        let option = format!("--compress-debug-sections={compressed}");
        run("objcopy", &["--only-keep-debug", &option, text(&library.path), text(&debug)]);
        library.strip(&["--strip-all"]);
        run("objcopy", &[&format!("--add-gnu-debuglink={}", text(&debug)), text(&library.path)]);
        let linked = symbols(library.module(), here());
        assert_eq!(words(&linked.frames(address)), ["inner:3 inlined", "middle:6"], "{compressed}");

        // The same file below a directory by build id, with and without the library itself.
        let root = tempfile::tempdir().unwrap();
        let (first, rest) = library.build_id.split_at(2);
        let place = root.path().join(format!(".build-id/{first}/{rest}.debug"));
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::rename(&debug, &place).unwrap();
        let places = SymbolPlaces::here(&[root.path().into()]);
        for path in [text(&library.path), "/gone/liblayers.so.1.2"] {
            let symbols = symbols(Module { path: path.into(), ..library.module() }, places.clone());
            assert_eq!(words(&symbols.frames(address)), ["inner:3 inlined", "middle:6"], "{compressed} {path}");
        }
    }
}

#[test]
fn what_the_user_names_helps_a_stripped_library_that_is_there() {
    let library = Library::compile("", &["-g"]);
    let address = library.return_address_in("middle");
    let build = tempfile::tempdir().unwrap();
    let whole = build.path().join("liblayers.so.1.2");
    std::fs::copy(&library.path, &whole).unwrap();
    library.strip(&["--strip-all"]);
    let frames = |given: &Path| words(&symbols(library.module(), SymbolPlaces::here(&[given.into()])).frames(address));
    assert_eq!(frames(build.path()), ["inner:3 inlined", "middle:6"], "the directory of the build");
    assert_eq!(frames(&whole), ["inner:3 inlined", "middle:6"], "the file of the build");
    // Without debug information the table of symbols is better than nothing.
    run("strip", &["--strip-debug", text(&whole)]);
    assert_eq!(frames(build.path()), ["middle"]);
    assert_eq!(frames(tempfile::tempdir().unwrap().path()), ["?"]);
}

#[test]
fn debug_files_are_found_below_the_root_of_another_machine() {
    let library = Library::compile("", &["-g"]);
    let address = library.return_address_in("middle");
    let root = tempfile::tempdir().unwrap();
    let debug = library.directory.path().join("layers.debug");
    run("objcopy", &["--only-keep-debug", text(&library.path), text(&debug)]);
    library.strip(&["--strip-all"]);
    run("objcopy", &[&format!("--add-gnu-debuglink={}", text(&debug)), text(&library.path)]);
    let module = Module { path: "/gone/lib/liblayers.so.1.2".into(), ..library.module() };
    let (first, rest) = library.build_id.split_at(2);
    let installed = root.path().join("gone/lib/liblayers.so.1.2");
    std::fs::create_dir_all(installed.parent().unwrap()).unwrap();
    std::fs::copy(&library.path, &installed).unwrap();
    for place in [
        format!("usr/lib/debug/.build-id/{first}/{rest}.debug"),
        "gone/lib/layers.debug".into(),
        "gone/lib/.debug/layers.debug".into(),
    ] {
        let file = root.path().join(&place);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::copy(&debug, &file).unwrap();
        let places = SymbolPlaces { directories: vec![root.path().into()], this_machine: false };
        let found = symbols(module.clone(), places);
        assert_eq!(words(&found.frames(address)), ["inner:3 inlined", "middle:6"], "{place}");
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn builds_in_which_code_only_moved_have_the_same_keys() {
    let before = Library::compile("", &["-g"]);
    let moved = "/* many\n\n\n lines */ __attribute__((noinline)) int first(int x) { return x * 77; }\n";
    let after = Library::compile(moved, &["-g"]);
    let bare = Library::compile(moved, &[]);
    let key = |library: &Library| {
        let symbols = symbols(library.module(), here());
        let frames = |function| symbols.frames(library.return_address_in(function)).to_vec();
        CallSite::of(&[frames("middle"), frames("outer")].concat())
    };
    let (before, after, bare) = (key(&before), key(&after), key(&bare));
    assert_ne!(before.who.line, after.who.line);
    assert_eq!(before.key, "liblayers.so!middle < liblayers.so!outer");
    assert_eq!((&before.key, &before.key), (&after.key, &bare.key));
    assert_eq!((before.label.as_str(), bare.label.as_str()), ("inner (liblayers.so.1.2)", "middle (liblayers.so.1.2)"));
}

#[test]
fn cpp_functions_have_readable_names() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("layers.cpp");
    let path = directory.path().join("liblayers.so");
    std::fs::write(
        &source,
        "int work(int);\nnamespace { template <class T> __attribute__((noinline)) T pool(T x) { return work(x) + 1; } }\n\
         struct Cache { __attribute__((noinline)) int grow(int x) { return pool(x) + 1; } };\n\
         int run(int x) { Cache cache; return cache.grow(x) + 1; }\nint work(int x) { return x; }\n",
    )
    .unwrap();
    run("c++", &["-O1", "-shared", "-fPIC", "-Wl,--build-id", "-o", text(&path), text(&source)]);
    let build_id = elf::Elf::open(&path).unwrap().build_id;
    let library = Library { directory, path, build_id };
    let symbols = symbols(library.module(), here());
    let name = |mangled| {
        let frames = symbols.frames(library.return_address_in(mangled));
        (frames[0].function.clone().unwrap(), frames[0].short().unwrap())
    };
    assert_eq!(name("_ZN5Cache4growEi"), ("Cache::grow(int)".into(), "Cache::grow".into()));
    let (long, short) = name("_ZN12_GLOBAL__N_14poolIiEET_S1_");
    assert_eq!((long.contains("pool<int>"), short.as_str()), (true, "(anonymous namespace)::pool"), "{long}");
}

#[test]
fn files_that_lie_neither_panic_nor_take_long() {
    let library = Library::compile("", &["-g", "-Wl,--hash-style=gnu"]);
    let addresses = [library.return_address_in("middle"), library.return_address_in("outer")];
    let bytes = std::fs::read(&library.path).unwrap();
    let path = library.directory.path().join("lies.so");
    let began = std::time::Instant::now();
    let look = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let Ok(build_id) = elf::Elf::open(&path).map(|elf| elf.build_id) else { return };
        let module = Module { path: text(&path).to_owned(), build_id, ..library.module() };
        let symbols = symbols(module, here());
        for address in addresses.into_iter().chain((0..8).map(|step| library.module().start + step * 0x777)) {
            assert!(!symbols.frames(address).is_empty());
        }
    };
    for length in (0..bytes.len()).step_by(bytes.len() / 150) {
        look(&bytes[..length]);
    }
    for (start, value) in (0..bytes.len()).step_by(bytes.len() / 150).flat_map(|at| [(at, 0), (at, 0xff)]) {
        let mut lies = bytes.clone();
        lies[start..].iter_mut().take(24).for_each(|byte| *byte = value);
        look(&lies);
    }
    // A generator of its own: the same bytes each time.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..600 {
        let mut lies = bytes.clone();
        for _ in 0..8 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 20) as usize % lies.len();
            lies[at] ^= (state >> 12) as u8 | 1;
        }
        look(&lies);
    }
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}

#[test]
fn what_is_no_file_is_passed_over() {
    for path in ["/dev/zero", "/dev/null", "/", "/proc/self/mem", "relative.so", ""] {
        let module = Module { path: path.into(), build_id: "abcd".into(), start: 0, end: 0x1000, vendor: false };
        let places = SymbolPlaces::here(&["/dev/zero".into(), "/nowhere".into()]);
        assert_eq!(words(&symbols(module, places).frames(0x10)), ["?"], "{path}");
    }
}
