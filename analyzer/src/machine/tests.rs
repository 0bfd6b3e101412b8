use proptest::prelude::*;

use super::distribution::BootLoader;
use super::host::Limit;
use super::kfd::{Heap, MemoryBank};
use super::*;
use crate::testing::TraceBuilder;

fn machine(files: &[(&str, &str)]) -> Machine {
    let files: Vec<(String, String)> = files.iter().map(|(path, text)| ((*path).into(), (*text).into())).collect();
    Machine::of_files(&files, &[], false)
}

#[test]
fn a_card_and_its_node_find_each_other() {
    const NODE: &str = "/sys/class/kfd/kfd/topology/nodes/1";
    let machine = machine(&[
        ("/sys/class/drm/card1/device/vendor", "0x1002\n"),
        ("/sys/class/drm/card1/device/device", "0x744c\n"),
        ("/sys/class/drm/card1/device/mem_info_vram_total", "25753026560\n"),
        ("/sys/class/drm/card1/device/mem_info_vram_used", "1073741824\n"),
        ("/sys/class/drm/card1/device/uevent", "DRIVER=amdgpu\nPCI_ID=1002:744C\nPCI_SLOT_NAME=0000:0A:00.0\n"),
        (
            "/sys/class/drm/card1/device/resource",
            "0x0000007800000000 0x0000007fffffffff 0x000000000014220c\n0x0 0x0 0x0\n\
             0x0000008000000000 0x000000800fffffff 0x000000000014220c\n",
        ),
        (&format!("{NODE}/gpu_id"), "51312\n"),
        (&format!("{NODE}/properties"), "simd_count 192\nlocation_id 2560\ndomain 0\ngfx_target_version 110000\n"),
        (&format!("{NODE}/mem_banks/0/properties"), "heap_type 2\nsize_in_bytes 25753026560\nflags 0\n"),
        ("/sys/class/kfd/kfd/proc/77/vram_51312", "4096\n"),
        ("/sys/class/kfd/kfd/proc/78/vram_51312", "100\n"),
    ]);
    let card = machine.card("0000:0A:00.0").unwrap();
    assert_eq!((card.number, card.device_id), (1, Some(0x744c)));
    assert_eq!((card.largest_bar_bytes, card.vram_free_bytes()), (Some(32 << 30), Some(24_679_284_736)));
    let node = machine.node_of(card).unwrap();
    assert_eq!(node.target_name().as_deref(), Some("gfx1100"));
    assert_eq!((node.is_integrated(), node.is_rdna()), (Some(false), Some(true)));
    assert_eq!(node.banks, [MemoryBank { heap: Heap::FramebufferPrivate, bytes: 25_753_026_560 }]);
    assert_eq!(machine.kfd_bytes(51_312), 4196);
}

#[test]
fn targets_and_models_tell_apus() {
    for (version, model, integrated) in [
        (110_501, 0x1586, Some(true)),
        (90_402, 0x74a1, Some(false)),
        (90_402, 0x74a0, Some(true)),
        (120_001, 0x7551, Some(false)),
        (0, 0, None),
    ] {
        let node = KfdNode { gfx_target_version: Some(version), device_id: Some(model), ..KfdNode::default() };
        assert_eq!(node.is_integrated(), integrated, "{version}");
    }
    let node = KfdNode { gfx_target_version: Some(90_010), ..KfdNode::default() };
    assert_eq!(node.target_name().as_deref(), Some("gfx90a"));
}

#[test]
fn limits_of_process_and_groups() {
    let machine = machine(&[
        (
            "/proc/self/limits",
            "Max data size             unlimited            unlimited            bytes     \n\
             Max open files            1024                 524288               files     \n\
             Max locked memory         8388608              unlimited            bytes     \n",
        ),
        ("/proc/sys/vm/max_map_count", "65530\n"),
        ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
        ("/sys/fs/cgroup/a/memory.max", "8589934592\n"),
        ("/sys/fs/cgroup/a/memory.current", "1000\n"),
        ("/sys/fs/cgroup/a/memory.events", "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n"),
        ("/sys/fs/cgroup/a/dmem.max", "drm/0000:03:00.0/vram 1073741824\ndrm/0000:0a:00.0/vram max\n"),
        ("/sys/fs/cgroup/a/dmem.current", "drm/0000:03:00.0/vram 5\n"),
        ("/sys/fs/cgroup/dmem.capacity", "drm/0000:03:00.0/vram 25753026560\n"),
    ]);
    assert_eq!(machine.limits.open_files, Some(Limit { soft: Some(1024), hard: Some(524_288) }));
    assert_eq!(machine.limits.locked_bytes, Some(Limit { soft: Some(8 << 20), hard: None }));
    assert_eq!(machine.limits.address_space_bytes, None);
    assert_eq!(machine.virtual_memory.max_map_count, Some(65_530));
    let paths: Vec<_> = machine.cgroups.iter().map(|level| level.path.as_str()).collect();
    assert_eq!(paths, ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a"]);
    let limit = machine.cgroup_limit().unwrap();
    assert_eq!((limit.limit_bytes, limit.limit_hits, limit.kills), (Some(8 << 30), Some(3), Some(2)));
    let [device] = &machine.device_memory[..] else { panic!("{:?}", machine.device_memory) };
    assert_eq!((device.pci_bus_id(), device.limit_bytes), (Some("0000:03:00.0"), 1 << 30));
    assert_eq!((device.used_bytes, device.capacity_bytes), (Some(5), Some(25_753_026_560)));
}

#[test]
fn version_1_groups_know_no_word_for_no_limit() {
    let machine = machine(&[
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "4294967296\n"),
        ("/sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes", "7\n"),
    ]);
    assert_eq!(machine.cgroup_limit().and_then(|level| level.limit_bytes), Some(4 << 30));
}

#[test]
fn parameters_pressure_and_versions() {
    let machine = machine(&[
        ("/proc/cmdline", "ttm.pages_limit=31457280 iommu=pt mem=64G quiet"),
        ("/sys/module/ttm/parameters/pages_limit", "31457280\n"),
        ("/sys/module/amdgpu/parameters/gttsize", "-1\n"),
        ("/sys/module/amdgpu/parameters/no_system_mem_limit", "N\n"),
        ("/proc/pressure/memory", "some avg10=1.50 avg60=0.10 total=5\nfull avg10=12.25 avg60=3.00 total=4\n"),
        (
            "/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n",
        ),
        (
            "/proc/driver/nvidia/gpus/0000:62:00.0/information",
            "Model: \t\t NVIDIA H100 80GB HBM3\nDevice Minor: \t 5\nGPU Excluded:\t No\n",
        ),
        ("/opt/rocm-6.4.1/.info/version", "6.4.1-83\n"),
    ]);
    assert_eq!(machine.ttm.unwrap().limit_bytes(), Some(120 << 30));
    assert_eq!(machine.amdgpu_parameter("gttsize"), Some(-1));
    assert_eq!(machine.amdgpu_parameter("no_system_mem_limit"), None);
    assert_eq!(machine.kernel_parameters[0].name, "ttm.pages_limit");
    assert_eq!(machine.pressure.unwrap().full_10s_percent, Some(12.25));
    assert_eq!(machine.nvidia_driver.as_deref(), Some("580.95.05"));
    assert_eq!(machine.nvidia_gpus[0].model.as_deref(), Some("NVIDIA H100 80GB HBM3"));
    assert_eq!(machine.nvidia_gpus[0].minor, Some(5));
    assert_eq!(machine.rocm[0], Rocm { directory: "/opt/rocm-6.4.1".into(), version: "6.4.1-83".into() });
}

#[test]
fn distributions_and_their_boot_loaders() {
    let loader = |text: &str| Distribution::parse(text).boot_loader();
    for (text, expected) in [
        ("ID=fedora\nVERSION_ID=42\n", BootLoader::Grubby),
        ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", BootLoader::Grubby),
        ("ID=bazzite\nID_LIKE=fedora\nOSTREE_VERSION='42.1'\n", BootLoader::RpmOstree),
        ("ID=pop\nID_LIKE=\"ubuntu debian\"\n", BootLoader::Kernelstub),
        ("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", BootLoader::UpdateGrub),
        ("ID=opensuse-tumbleweed\nID_LIKE=\"opensuse suse\"\n", BootLoader::Grub2Mkconfig),
        ("ID=cachyos\nID_LIKE=arch\n", BootLoader::Other),
        ("", BootLoader::Other),
    ] {
        assert_eq!(loader(text), expected, "{text}");
    }
    assert_eq!(
        BootLoader::Grubby.commands("ttm.pages_limit=1 ttm.page_pool_size=1"),
        ["sudo grubby --update-kernel=ALL --args=\"ttm.pages_limit=1 ttm.page_pool_size=1\"", "sudo reboot"]
    );
    assert_eq!(
        BootLoader::RpmOstree.commands("a=1 b=2")[0],
        "sudo rpm-ostree kargs --append-if-missing=a=1 --append-if-missing=b=2"
    );
}

#[test]
fn a_trace_holds_its_machine() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.bin");
    let mut builder = TraceBuilder::new(256 << 20);
    builder.machine = vec![("/proc/meminfo".into(), "MemTotal:       131151392 kB\n".into())];
    builder.write(&path).unwrap();
    let machine = Machine::of_trace(&TraceFile::open(&path).unwrap());
    assert_eq!(machine.memory.total_bytes, Some(131_151_392 << 10));
    TraceBuilder::new(256 << 20).write(&path).unwrap();
    assert!(Machine::of_trace(&TraceFile::open(&path).unwrap()).is_empty());
}

#[test]
fn a_trace_that_claims_a_million_things_is_read_at_once() {
    let card = |number: u32| (format!("/sys/class/drm/card{number}/device/vendor"), "0x1002".to_owned());
    let node = |number: u32| (format!("/sys/class/kfd/kfd/topology/nodes/{number}/gpu_id"), "7".to_owned());
    let mut files: Vec<_> = (0..200_000).flat_map(|number| [card(number), node(number)]).collect();
    let regions = "drm/0000:03:00.0/vram 5\n".repeat(100_000);
    for name in ["dmem.max", "dmem.current", "dmem.capacity"] {
        files.insert(0, (format!("/sys/fs/cgroup/{name}"), regions.clone()));
    }
    let machine = Machine::of_files(&files, &[], false);
    assert_eq!((machine.cards.len(), machine.nodes.len(), machine.device_memory.len()), (1024, 1024, 1024));
}

#[test]
fn this_machine_is_not_empty() {
    let machine = Machine::of_root(Path::new("/"));
    assert!(machine.memory.total_bytes > machine.memory.free_bytes);
    assert!(machine.kernel.is_some() && machine.limits.open_files.is_some());
    assert!(Machine::of_root(Path::new("/nowhere/at/all")).is_empty());
}

proptest! {
    /// Any text in any listed file is understood or left out.
    #[test]
    fn any_text_does_no_harm(texts in proptest::collection::vec("(?s).{0,60}|[0-9]{1,25}|[a-z_]{1,12}[ :=][0-9]{0,22}\n", 1..6)) {
        const PATHS: [&str; 18] = [
            "/proc/meminfo",
            "/proc/self/limits",
            "/proc/cmdline",
            "/proc/pressure/memory",
            "/etc/os-release",
            "/sys/class/drm/card3/device/vendor",
            "/sys/class/drm/card3/device/resource",
            "/sys/class/drm/card3/device/uevent",
            "/sys/class/drm/card99999999999999999999/device/vendor",
            "/sys/module/ttm/parameters/pages_limit",
            "/proc/driver/nvidia/version",
            "/proc/driver/nvidia/gpus/x/information",
            "/sys/class/kfd/kfd/topology/nodes/1/properties",
            "/sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/properties",
            "/sys/class/kfd/kfd/proc/5/vram_7",
            "/sys/fs/cgroup/a/memory.events",
            "/sys/fs/cgroup/a/dmem.max",
            "/opt/rocm/.info/version",
        ];
        let files: Vec<_> = PATHS.iter().zip(texts.iter().cycle()).map(|(path, text)| (*path, text.as_str())).collect();
        let machine = machine(&files);
        let card = &machine.cards[0];
        let _ = (machine.is_integrated(card), machine.cgroup_limit(), machine.kfd_bytes(7), card.label());
        let commands = machine.distribution.boot_loader().commands("x");
        prop_assert!(!commands.is_empty());
        for node in &machine.nodes {
            let _ = (node.target_name(), node.pci_bus_id(), node.local_bytes());
        }
    }
}
