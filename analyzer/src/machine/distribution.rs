//! The distribution, and how it is told a parameter of the kernel.

use serde::Serialize;

use super::text::value_of;

/// `/etc/os-release` (systemd's `os-release(5)`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Distribution {
    /// `ID`, such as `fedora`.
    pub id: Option<String>,
    /// `ID_LIKE`: what it descends from.
    pub id_like: Vec<String>,
    /// `PRETTY_NAME`.
    pub name: Option<String>,
    /// `VERSION_ID`.
    pub version: Option<String>,
    /// Whether its system is an image that rpm-ostree manages.
    pub is_ostree: bool,
}

/// How parameters get onto the kernel's command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BootLoader {
    /// `grubby`: Fedora, RHEL and their kin.
    Grubby,
    /// `rpm-ostree kargs`: Silverblue, Bazzite, CoreOS and their kin.
    RpmOstree,
    /// `kernelstub`: Pop!_OS.
    Kernelstub,
    /// `/etc/default/grub`, then `update-grub`: Debian, Ubuntu and their kin.
    UpdateGrub,
    /// `/etc/default/grub`, then `grub2-mkconfig`: SUSE.
    Grub2Mkconfig,
    /// `boot.kernelParams`: NixOS.
    Nix,
    /// Unknown: GRUB or systemd-boot by hand.
    Other,
}

impl Distribution {
    pub(super) fn parse(text: &str) -> Self {
        let value = |key: &str| {
            let value = value_of(text, key)?.trim_matches(['"', '\'']);
            (!value.is_empty()).then(|| value.chars().take(100).collect::<String>())
        };
        Distribution {
            id: value("ID"),
            id_like: value("ID_LIKE").unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
            name: value("PRETTY_NAME"),
            version: value("VERSION_ID"),
            is_ostree: value("OSTREE_VERSION").is_some(),
        }
    }

    /// How this distribution is told a parameter of the kernel.
    pub fn boot_loader(&self) -> BootLoader {
        const BY_ID: [(&[&str], BootLoader); 5] = [
            (&["pop"], BootLoader::Kernelstub),
            (&["nixos"], BootLoader::Nix),
            (&["opensuse", "suse", "sles", "opensuse-tumbleweed", "opensuse-leap"], BootLoader::Grub2Mkconfig),
            (&["fedora", "rhel", "centos", "rocky", "almalinux", "ol"], BootLoader::Grubby),
            (&["debian", "ubuntu", "linuxmint"], BootLoader::UpdateGrub),
        ];
        if self.is_ostree {
            return BootLoader::RpmOstree;
        }
        // Its own name decides before what it descends from.
        let names = self.id.iter().chain(&self.id_like);
        let known = |name: &String| BY_ID.iter().find(|(ids, _)| ids.contains(&name.as_str()));
        names.filter_map(known).map(|(_, loader)| *loader).next().unwrap_or(BootLoader::Other)
    }
}

impl BootLoader {
    /// What to type so that the kernel gets these parameters, a line each; what is no command begins with `#`.
    pub fn commands(self, parameters: &str) -> Vec<String> {
        let edit = format!("# add to GRUB_CMDLINE_LINUX_DEFAULT in /etc/default/grub: {parameters}");
        let lines = match self {
            BootLoader::Grubby => vec![format!("sudo grubby --update-kernel=ALL --args=\"{parameters}\"")],
            BootLoader::RpmOstree => {
                let appended = parameters.split(' ').map(|parameter| format!(" --append-if-missing={parameter}"));
                vec![format!("sudo rpm-ostree kargs{}", appended.collect::<String>())]
            }
            BootLoader::Kernelstub => vec![format!("sudo kernelstub --add-options \"{parameters}\"")],
            BootLoader::UpdateGrub => vec![edit, "sudo update-grub".into()],
            BootLoader::Grub2Mkconfig => vec![edit, "sudo grub2-mkconfig -o /boot/grub2/grub.cfg".into()],
            BootLoader::Nix => {
                let quoted: Vec<_> = parameters.split(' ').map(|parameter| format!("\"{parameter}\"")).collect();
                let list = quoted.join(" ");
                vec![
                    format!("# in configuration.nix: boot.kernelParams = [ {list} ];"),
                    "sudo nixos-rebuild boot".into(),
                ]
            }
            BootLoader::Other => vec![
                edit,
                "sudo grub-mkconfig -o /boot/grub/grub.cfg".into(),
                format!(
                    "# or, with systemd-boot, add to the options line in /boot/loader/entries/*.conf: {parameters}"
                ),
            ],
        };
        lines.into_iter().chain(["sudo reboot".to_owned()]).collect()
    }
}
