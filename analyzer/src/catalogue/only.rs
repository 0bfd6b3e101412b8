//! On which platform, versions and programs a fix works: the part of its condition that a trace can decide.

use serde::{Deserialize, Serialize};

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
    /// What part of a diagnosis it is for, where that has several: `scratch`, `workspace`, `context`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// A variable that must be set; `*` stands for any letters. `NAME=VALUE`: to this value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// `training` or `inference`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
    /// For Windows only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub windows: bool,
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
        let windows = self.windows.then(|| "Windows".to_owned());
        let parts = [platform, program, self.activity.clone(), self.part.clone(), variable, windows];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// One bound of a range of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// This one or newer.
    From(u32, u32),
    /// Older than this one.
    Below(u32, u32),
}

/// The bounds of a range such as `>=2.12, <2.14`; `None` where the text is no range.
pub fn bounds(range: &str) -> Option<Vec<Bound>> {
    range.split(',').map(|part| bound(part.trim())).collect()
}

fn bound(text: &str) -> Option<Bound> {
    let numbers = |text: &str| {
        let (major, minor) = text.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    if let Some(rest) = text.strip_prefix(">=") {
        return numbers(rest).map(|(major, minor)| Bound::From(major, minor));
    }
    numbers(text.strip_prefix('<')?).map(|(major, minor)| Bound::Below(major, minor))
}

fn versions(name: &str, range: &str) -> String {
    match bounds(range).unwrap_or_default()[..] {
        [Bound::From(major, minor)] => format!("{name} {major}.{minor} or newer"),
        [Bound::Below(major, minor)] => format!("{name} older than {major}.{minor}"),
        [Bound::From(major, minor), Bound::Below(other, below)] if (major, minor + 1) == (other, below) => {
            format!("{name} {major}.{minor}")
        }
        [Bound::From(major, minor), Bound::Below(other, below)] => {
            format!("{name} {major}.{minor} or newer and older than {other}.{below}")
        }
        _ => format!("{name} {range}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_and_told() {
        let only: Only = toml::from_str("platform = 'rocm'\nrocm = '>=7.0'\ntorch = '<2.12'").unwrap();
        assert_eq!(only.words(), "ROCm 7.0 or newer, PyTorch older than 2.12");
        assert_eq!(versions("ROCm", ">=6.4, <6.5"), "ROCm 6.4");
        assert_eq!(bounds(">=2.12, <2.14"), Some(vec![Bound::From(2, 12), Bound::Below(2, 14)]));
        assert_eq!(bounds("2.12"), None);
    }
}
