//! Where a Python file lies in its package: a program's own folder may be called `torch`, too.

use gpuoom_trace::metadata::Module;
use gpuoom_trace::reader::TraceFile;

use super::Modules;

/// Where packages are installed.
const INSTALLED: [&str; 2] = ["/site-packages/", "/dist-packages/"];
/// Libraries that lie in their package's folder, also where the package was built in its own source tree.
const LIBRARIES: [&str; 2] = ["torch/lib/libtorch_cpu.so", "torch/lib/libc10.so"];

/// The path from the folder of installed packages on.
pub(super) fn installed(path: &str) -> Option<&str> {
    INSTALLED.iter().find_map(|folder| path.rsplit_once(folder)).map(|(_, package)| package)
}

/// Folders in which packages lie that are used from their source trees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    folders: Vec<String>,
}

impl Sources {
    /// By the libraries that a process had loaded.
    pub(super) fn of<'a>(modules: impl Iterator<Item = &'a Module>) -> Self {
        let folder =
            |module: &Module| LIBRARIES.iter().find_map(|library| module.path.strip_suffix(library).map(str::to_owned));
        let mut folders: Vec<String> = modules.filter_map(folder).filter(|folder| folder.ends_with('/')).collect();
        folders.sort_unstable();
        folders.dedup();
        Sources { folders }
    }

    /// By all libraries of a trace.
    pub fn of_trace(trace: &TraceFile) -> Self {
        Sources::of(Modules::new(&trace.header, &trace.metadata).all())
    }

    /// The path from where the package lies on.
    pub fn package_path<'a>(&self, path: &'a str) -> Option<&'a str> {
        let in_source = |folder: &String| path.strip_prefix(folder.as_str()).filter(|rest| rest.starts_with("torch/"));
        installed(path).or_else(|| self.folders.iter().find_map(in_source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_known_where_it_is_installed_or_where_its_library_lies() {
        let library =
            |path: &str| Module { start: 0, end: 0, path: path.to_owned(), build_id: String::new(), vendor: false };
        let of = |paths: &[&str]| Sources::of(paths.iter().map(|path| library(path)).collect::<Vec<_>>().iter());
        let built = of(&["/home/me/pytorch/torch/lib/libtorch_cpu.so", "/usr/lib/libc.so.6"]);
        assert_eq!(built.package_path("/home/me/pytorch/torch/optim/adam.py"), Some("torch/optim/adam.py"));
        assert_eq!(built.package_path("/home/me/pytorch/train.py"), None);
        assert_eq!(built.package_path("/home/me/torch/optim/adam.py"), None);
        assert_eq!(of(&[]).package_path("/home/me/pytorch/torch/optim/adam.py"), None);
        assert_eq!(of(&["/srv/mytorch/lib/libc10.so"]).package_path("/srv/my/torch/optim/adam.py"), None);
        let installed = "/env/lib/python3.12/site-packages/transformers/trainer.py";
        assert_eq!(of(&[]).package_path(installed), Some("transformers/trainer.py"));
    }
}
