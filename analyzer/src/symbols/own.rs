//! Whose line it is: a program calls `from_pretrained`, and an installed package asks for the memory. The row is the program's line,
//! and the package's function stands behind it.

use super::file_name;
use super::frame::{Frame, FrameKind};
use super::plumbing::{begins_a_process, is_plumbing, who};

/// What Python calls code that was typed or handed over, and comes from no file. Other names in angle brackets are of code that
/// libraries generate.
const TYPED: [&str; 3] = ["<string>", "<stdin>", "<ipython-input"];

/// Who allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Whose<'a> {
    /// The program's own frame that is nearest; where none is known, the frame that asked.
    pub who: &'a Frame,
    /// The frame that asked for it, where that is not the program's own.
    pub asked_by: Option<&'a Frame>,
}

/// Whose a call is, by the frames that led to it.
pub(super) fn whose(frames: &[Frame]) -> Option<Whose<'_>> {
    let asked = who(frames)?;
    let own = (asked.kind == FrameKind::Python && !is_own(asked)).then(|| own_behind(frames, asked)).flatten();
    Some(match own {
        Some(own) => Whose { who: own, asked_by: Some(asked) },
        None => Whose { who: asked, asked_by: None },
    })
}

/// The program's frame that is nearest to one that asked. A function that Python made for a package calls itself `<string>`, too: a
/// file goes before it.
fn own_behind<'a>(frames: &'a [Frame], asked: &Frame) -> Option<&'a Frame> {
    let python = frames.iter().filter(|frame| frame.kind == FrameKind::Python);
    let behind = || python.clone().skip_while(|frame| !std::ptr::eq(*frame, asked)).skip(1);
    // Who began a process with a copy of this one's stack did not call what runs in it.
    let known = || behind().take_while(|frame| !begins_a_process(frame)).filter(|frame| is_own(frame));
    known().find(|frame| !is_typed(frame)).or_else(|| known().next())
}

/// Whether a frame is of the program itself: of no installed package, not of the standard library, and not generated.
pub fn is_own(frame: &Frame) -> bool {
    let Some(file) = frame.file.as_deref().filter(|_| frame.kind == FrameKind::Python) else { return false };
    let is_generated = file.starts_with('<') && !is_typed(frame);
    frame.package_path.is_none() && !is_plumbing(frame) && !is_generated && !is_launcher(file)
}

fn is_typed(frame: &Frame) -> bool {
    frame.file.as_deref().is_some_and(|file| TYPED.iter().any(|name| file.starts_with(name)))
}

/// Whether a file is one of the commands that are installed with a package (`/venv/bin/vllm`).
fn is_launcher(file: &str) -> bool {
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    file_name(folder) == "bin" && !file_name(file).contains('.')
}

/// What stands behind the program's function or line: `, in transformers modeling_utils.py:3789 PreTrainedModel.from_pretrained`.
pub fn behind(asked_by: Option<&Frame>, has_line: bool) -> String {
    let Some((frame, file)) = asked_by.and_then(|frame| Some((frame, frame.file.as_deref()?))) else {
        return String::new();
    };
    let package = frame.package_path.as_deref().and_then(|path| path.split_once('/'));
    let package = package.map_or(String::new(), |(package, _)| format!("{package} "));
    let line = frame.line.filter(|_| has_line).map_or(String::new(), |line| format!(":{line}"));
    let function = frame.function.as_deref().map_or(String::new(), |name| format!(" {}", last_name(name)));
    format!(", in {package}{}{line}{function}", file_name(file))
}

/// A function with its class, for two classes have a `forward`, and without the functions around it and what has no name in it:
/// `A.load.<locals>.<lambda>` is `A.load`.
fn last_name(function: &str) -> &str {
    let mut named = function;
    while let Some((before, _)) = named.rsplit_once('.').filter(|(_, last)| last.starts_with('<')) {
        named = before;
    }
    named.rsplit_once("<locals>.").map_or(named, |(_, own)| own)
}

#[cfg(test)]
mod tests {
    use super::super::CallSite;
    use super::*;

    const PACKAGES: &str = "/venv/lib/python3.12/site-packages";

    fn package(path: &str, function: &str, line: u32) -> Frame {
        Frame::python(&format!("{PACKAGES}/{path}"), function, line)
    }

    fn load() -> Frame {
        package("transformers/modeling_utils.py", "PreTrainedModel.from_pretrained", 3789)
    }

    fn main(line: u32) -> Frame {
        Frame::python("/home/me/train.py", "main", line)
    }

    fn labels(frames: &[Frame]) -> (String, String) {
        let site = CallSite::of(frames);
        (site.label_with_line().unwrap(), site.label)
    }

    #[test]
    fn the_programs_line_goes_before_the_packages() {
        let way = [package("torch/nn/modules/module.py", "Module.to", 1), load(), main(31)];
        let (with_line, without) = labels(&way);
        assert_eq!(
            with_line,
            "main (train.py:31, in transformers modeling_utils.py:3789 PreTrainedModel.from_pretrained)"
        );
        assert_eq!(without, "main (train.py, in transformers modeling_utils.py PreTrainedModel.from_pretrained)");
        let site = CallSite::of(&way);
        assert_eq!((site.who.line, site.asked_by.and_then(|frame| frame.line)), (Some(31), Some(3789)));
    }

    #[test]
    fn who_asks_for_itself_stands_alone() {
        let forward = Frame::python("/home/me/model.py", "Net.forward", 12);
        let way = [forward, package("lightning/trainer.py", "Trainer.fit", 5), main(31)];
        assert_eq!(labels(&way), ("Net.forward (model.py:12)".into(), "Net.forward (model.py)".into()));
    }

    /// Two functions of a package below one line are two rows, and so is one function below two lines.
    #[test]
    fn neither_hides_the_other() {
        let other = || package("transformers/generation.py", "GenerationMixin.generate", 90);
        let (one, two, three) =
            (labels(&[load(), main(31)]), labels(&[other(), main(31)]), labels(&[load(), main(44)]));
        assert!(one.0 != two.0 && one.1 != two.1 && one.0 != three.0);
    }

    #[test]
    fn a_program_that_lives_in_packages_has_no_line_of_its_own() {
        let run = package("vllm/worker.py", "Worker.load_model", 200);
        let ends = [
            Frame::python("/venv/bin/vllm", "<module>", 8),
            Frame::python("<frozen runpy>", "_run_module_as_main", 198),
            Frame::python("/usr/lib/python3.12/threading.py", "Thread.run", 10),
            Frame::python("<eval_with_key>.3", "forward", 10),
        ];
        for end in ends {
            assert_eq!(labels(&[run.clone(), end]).0, "Worker.load_model (worker.py:200)");
        }
    }

    /// A worker that was forked off still has its parent's frames.
    #[test]
    fn the_line_that_began_a_process_asked_for_nothing_in_it() {
        let begun = Frame::python("/usr/lib/python3.12/multiprocessing/process.py", "BaseProcess._bootstrap", 314);
        let way = [package("vllm/worker.py", "run", 9), begun, main(31)];
        assert_eq!(labels(&way).0, "run (worker.py:9)");
    }

    #[test]
    fn trees_that_are_not_installed_are_the_programs() {
        let editable = Frame::python("/home/me/vllm/vllm/worker.py", "run", 9);
        assert_eq!(labels(&[load(), editable, main(31)]).0.split(',').next(), Some("run (worker.py:9"));
        let script = Frame::python("/home/me/bin/train.py", "main", 3);
        assert!(is_own(&script) && is_own(&Frame::python("train.py", "main", 3)));
    }

    #[test]
    fn code_without_a_file_counts_where_it_was_typed() {
        let generated = Frame::python("<string>", "__init__", 3);
        let typed = Frame::python("<stdin>", "<module>", 1);
        let own = |frames: &[Frame]| whose(frames).map(|whose| whose.who.clone());
        assert_eq!(own(&[load(), generated.clone(), main(31)]), Some(main(31)));
        assert_eq!(own(&[load(), typed.clone()]), Some(typed));
        assert_eq!(own(&[generated.clone(), main(31)]), Some(generated.clone()), "`python -c` hands its code over so");
        let graph = Frame::python("<eval_with_key>.3", "forward", 10);
        assert_eq!(labels(&[graph, main(31)]).0, "main (train.py:31, in <eval_with_key>.3:10 forward)");
    }

    /// Else two functions of a program would have one key, and each other's label.
    #[test]
    fn a_key_has_the_programs_function_however_deep_the_package_is() {
        let deep: Vec<Frame> = (0..9).map(|depth| package("deep/a.py", &format!("f{depth}"), 1)).collect();
        let key = |own: Frame| CallSite::of(&[&deep[..], &[own]].concat()).key;
        assert_eq!(key(main(31)), "a.py!f0 < a.py!f1 < a.py!f2 < a.py!f3 < a.py!f4 < a.py!f5 < train.py!main");
        assert_eq!(key(main(31)), key(main(44)));
        assert_ne!(key(main(31)), key(Frame::python("/home/me/train.py", "evaluate", 3)));
        assert_eq!(CallSite::of(&deep).key.matches(" < ").count(), 5);
    }

    #[test]
    fn names_are_short() {
        assert_eq!(last_name("A.load.<locals>.<lambda>"), "A.load");
        assert_eq!(last_name("move.<locals>.batch_to"), "batch_to");
        assert_eq!((last_name("<module>"), last_name("f")), ("<module>", "f"));
        assert_eq!(behind(Some(&package("six.py", "", 3)), true), ", in six.py:3");
    }
}
