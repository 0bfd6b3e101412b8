//! On which platform, versions and programs a fix works: the part of its condition that a trace can decide.

use serde::{Deserialize, Serialize};

use crate::software::Release;

/// A condition; what is left out holds always.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Only {
    /// `rocm` or `cuda`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// `torch`, `llama.cpp`, `ggml` (without llama.cpp), `jax` or `tensorflow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Versions of PyTorch, such as `>=2.12, <2.14`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch: Option<String>,
    /// Versions of ROCm; says nothing about CUDA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rocm: Option<String>,
    /// Versions of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linux: Option<String>,
    /// Family of AMD's GPUs: `rdna` or `instinct`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// What part of a diagnosis it is for, where that has several: `scratch`, `workspace`, `context`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// A variable that must be set; `*` stands for any letters. `NAME=VALUE`: to this value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// `training` or `inference`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
    /// What of Python's packages the program must use, by a name of [`USED`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uses: Option<String>,
    /// What of them is the fix itself, so that who uses it needs no advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unless_uses: Option<String>,
    /// Where the failure that decides must have come, by a name of [`PLACES`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// For Windows only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub windows: bool,
}

/// Something of Python's packages that a program may use.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    /// As the catalogue spells it.
    name: &'static str,
    /// For people.
    words: &'static str,
    /// Its files from where packages lie; all of a folder where it ends with a slash.
    pub files: &'static [&'static str],
}

/// What the catalogue speaks of.
const USED: [Used; 8] = [
    Used { name: "transformers", words: "transformers", files: &["transformers/"] },
    Used { name: "trainer", words: "transformers Trainer", files: &["transformers/trainer.py"] },
    Used {
        name: "fsdp",
        words: "PyTorch FSDP",
        files: &["torch/distributed/fsdp/", "torch/distributed/_composable/fsdp/"],
    },
    Used { name: "data-loader", words: "PyTorch's DataLoader", files: &["torch/utils/data/"] },
    Used { name: "vllm", words: "vLLM", files: &["vllm/"] },
    Used { name: "checkpointing", words: "activation checkpointing", files: &["torch/utils/checkpoint.py"] },
    Used { name: "modules", words: "a module of PyTorch's", files: &["torch/nn/", "torch/autograd/", "torch/optim/"] },
    Used { name: "optimizer", words: "an optimizer of PyTorch", files: &["torch/optim/optimizer.py"] },
];

/// Places of a failure as the catalogue spells them, and for people.
pub const PLACES: [(&str, &str); 7] = [
    // Activations are gone by the optimizer's step, and no activation is what an evaluation's outputs are put together into.
    ("activations", "not in the optimizer's step, nor where hardly any activation lives outside of a forward pass"),
    ("state", "not where hardly anything is an optimizer's state"),
    ("training", "not where outputs of an evaluation are put together"),
    ("foreach", "an optimizer of PyTorch in its foreach implementation"),
    ("outputs", "outputs of an evaluation that are put together"),
    ("file", "where tensors of a loaded file live on the card"),
    (
        "gradients",
        "not in a function that is decorated with torch.no_grad() or torch.inference_mode(), nor where an evaluation keeps hardly anything",
    ),
];

/// What a name stands for.
pub fn used(name: &str) -> Option<Used> {
    USED.into_iter().find(|used| used.name == name)
}

impl Only {
    /// Whether it holds always.
    pub fn is_empty(&self) -> bool {
        *self == Only::default()
    }

    /// As people read it: `ROCm 7.0 or newer, PyTorch older than 2.12`.
    pub fn words(&self) -> String {
        let platform = match (self.platform.as_deref(), self.rocm.as_deref()) {
            (Some("cuda"), _) => Some("CUDA".to_owned()),
            (_, Some(range)) => Some(versions("ROCm", range)),
            (Some(_), None) => Some("ROCm".to_owned()),
            _ => None,
        };
        let program = match (self.program.as_deref(), self.torch.as_deref()) {
            (_, Some(range)) => Some(versions("PyTorch", range)),
            (Some("torch"), _) => Some("PyTorch".to_owned()),
            (Some("jax"), _) => Some("JAX".to_owned()),
            (Some("tensorflow"), _) => Some("TensorFlow".to_owned()),
            (other, _) => other.map(str::to_owned),
        };
        let variable = self.variable.as_ref().map(|name| match name.split_once('=') {
            Some((name, value)) => format!("{name} is {value}"),
            None => format!("{name} is set"),
        });
        let linux = self.linux.as_deref().map(|range| versions("Linux", range));
        let family = self.family.as_deref().map(|name| if name == "rdna" { "RDNA" } else { "Instinct" }.to_owned());
        let uses = self.uses.as_deref().and_then(used).map(|used| used.words.to_owned());
        let without = self.unless_uses.as_deref().and_then(used).map(|used| format!("without {} yet", used.words));
        let at =
            PLACES.iter().find(|(name, _)| self.at.as_deref() == Some(*name)).map(|(_, words)| (*words).to_owned());
        let windows = self.windows.then(|| "Windows".to_owned());
        let (activity, part) = (self.activity.clone(), self.part.clone());
        let parts = [platform, family, program, uses, without, activity, at, part, variable, linux, windows];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// One bound of a range of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// This one or newer.
    From(Release),
    /// Older than this one.
    Below(Release),
}

/// The bounds of a range such as `>=2.12, <2.14`; `None` where the text is no range.
pub fn bounds(range: &str) -> Option<Vec<Bound>> {
    range.split(',').map(|part| bound(part.trim())).collect()
}

fn bound(text: &str) -> Option<Bound> {
    let release = |text: &str| Release::parse(text).filter(|_| text.contains('.'));
    match text.strip_prefix(">=") {
        Some(rest) => release(rest).map(Bound::From),
        None => release(text.strip_prefix('<')?).map(Bound::Below),
    }
}

fn versions(name: &str, range: &str) -> String {
    match bounds(range).unwrap_or_default()[..] {
        [Bound::From(least)] => format!("{name} {least} or newer"),
        [Bound::Below(first)] => format!("{name} older than {first}"),
        [Bound::From(least), Bound::Below(first)] if is_one_minor(least, first) => format!("{name} {least}"),
        [Bound::From(least), Bound::Below(first)] => format!("{name} {least} or newer and older than {first}"),
        _ => format!("{name} {range}"),
    }
}

/// Whether a range is all of one minor version.
fn is_one_minor(least: Release, first: Release) -> bool {
    let (from, to) = (least.version, first.version);
    (from.major, from.minor + 1) == (to.major, to.minor) && least.patch.is_none() && first.patch.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_and_told() {
        let only: Only = toml::from_str("platform = 'rocm'\nrocm = '>=7.0'\ntorch = '<2.12'").unwrap();
        assert_eq!(only.words(), "ROCm 7.0 or newer, PyTorch older than 2.12");
        let only: Only =
            toml::from_str("program = 'torch'\nuses = 'trainer'\nlinux = '>=6.14'\nfamily = 'rdna'").unwrap();
        assert_eq!(only.words(), "RDNA, PyTorch, transformers Trainer, Linux 6.14 or newer");
        assert_eq!(versions("ROCm", ">=6.4, <6.5"), "ROCm 6.4");
        assert_eq!(versions("ROCm", ">=6.4, <6.4.2"), "ROCm 6.4 or newer and older than 6.4.2");
        let release = |text: &str| Release::parse(text).unwrap();
        assert_eq!(bounds(">=2.12, <2.14"), Some(vec![Bound::From(release("2.12")), Bound::Below(release("2.14"))]));
        assert_eq!(bounds("2.12"), None);
    }
}
