//! GPUs that use the host's memory: how much of it they may have.

use super::finding::Finding;
use super::subject::Subject;
use crate::judgement::check::Confidence;
use crate::machine::card::Card;
use crate::machine::carve_out::CarveOut;
use crate::machine::distribution::BootLoader;
use crate::machine::kfd::KfdNode;
use crate::machine::uma::{default_pages, kfd_limit_bytes, recommended_pages};
use crate::machine::{Machine, PAGE_BYTES, Ttm};
use crate::thresholds::{Thresholds, share};
use crate::words::{gib, grouped, percent, size};

/// What is known of one such GPU.
struct Apu<'a> {
    machine: &'a Machine,
    card: &'a Card,
    node: &'a KfdNode,
    ram_bytes: u64,
    ttm: Option<Ttm>,
    thresholds: &'a Thresholds,
}

pub(super) fn check(subject: &Subject, findings: &mut Vec<Finding>) {
    let machine = &subject.machine;
    let Some(ram_bytes) = machine.memory.total_bytes else { return };
    for card in &machine.cards {
        let Some(node) = machine.node_of(card).filter(|node| node.is_integrated() == Some(true)) else { continue };
        let apu = Apu { machine, card, node, ram_bytes, ttm: machine.ttm, thresholds: &subject.thresholds };
        findings.extend(apu.capacity());
        findings.extend(apu.mismatch());
        findings.extend(apu.host());
        findings.extend(apu.beyond_kfd());
    }
    if machine.cards.iter().any(|card| machine.is_integrated(card) == Some(true)) {
        findings.extend(pressure(machine, &subject.thresholds));
    }
}

impl Apu<'_> {
    fn limit_bytes(&self) -> Option<u64> {
        self.ttm.and_then(|ttm| ttm.limit_bytes())
    }

    /// What keeps the GPU from more memory: the first cause that fits.
    fn capacity(&self) -> Option<Finding> {
        self.starved().or_else(|| self.carve_out_only()).or_else(|| self.half_of_ram())
    }

    fn starved(&self) -> Option<Finding> {
        let carve_out = self.card.vram_total_bytes?;
        let gtt = self.card.gtt_total_bytes.or(self.limit_bytes())?;
        let memory = self.ram_bytes.saturating_add(carve_out);
        let offered = self.offered();
        if share(carve_out, memory) < self.thresholds.carve_out_share
            || share(gtt, carve_out) >= self.thresholds.starved_gtt_share
            || offered.is_some_and(|offered| !self.thresholds.is_near(offered, gtt))
        {
            return None;
        }
        let used = self.card.vram_used_bytes.map(|used| format!("of the carve-out {} are in use", size(used)));
        let confidence = if offered.is_some() { Confidence::Proven } else { Confidence::Probable };
        let finding = Finding::problem(
            "uma-large-carveout-starves-gtt",
            format!("programs get {} although the BIOS set {} aside for the GPU", gib(gtt), gib(carve_out)),
        );
        let finding = finding
            .with_confidence(confidence)
            .because(format!(
                "the carve-out of the BIOS (mem_info_vram_total) is {}, {} of {} in all",
                gib(carve_out),
                percent(carve_out as f64 / memory as f64),
                gib(memory)
            ))
            .because(format!("the GTT total is {}: system memory that the GPU may use", gib(gtt)))
            .because_of(
                offered.map(|offered| format!("KFD offers {}, which is the GTT and not the carve-out", gib(offered))),
            )
            .because_of(used);
        let smallest = self.card.carve_outs.iter().min_by_key(|option| option.size_bytes);
        let then = "and start again; then this check tells the TTM limit to set";
        let finding = self.set_carve_out(finding, smallest, "its smallest value (512 MiB)", then);
        Some(finding.fix("or use a kernel that prefers the larger of the two"))
    }

    fn carve_out_only(&self) -> Option<Finding> {
        let (carve_out, gtt) = (self.card.vram_total_bytes?, self.card.gtt_total_bytes?);
        let offered = self.offered()?;
        if !self.thresholds.is_near(offered, carve_out)
            || carve_out as f64 > gtt as f64 * self.thresholds.small_carve_out_share
        {
            return None;
        }
        let release = self.machine.kernel.as_deref().unwrap_or("unknown");
        let finding = Finding::problem(
            "uma-carveout-only",
            format!("programs get {}, only what the BIOS set aside for the GPU", size(offered)),
        )
        .because(format!(
            "KFD offers {}, and the carve-out (mem_info_vram_total) is {}",
            size(offered),
            size(carve_out)
        ))
        .because(format!("the GPU could use {} of system memory (GTT) besides", gib(gtt)))
        .because(format!("the kernel is {release}; those before 6.10 offer the carve-out alone"))
        .fix("use a newer kernel: 6.10 or later; for Strix Halo AMD names 6.16, or Ubuntu's OEM kernel 6.14");
        let largest = self.card.carve_outs.iter().max_by_key(|option| option.size_bytes);
        let larger = largest.filter(|option| option.size_bytes > carve_out);
        Some(self.set_carve_out(finding, larger, "a larger value", "until then, and start again"))
    }

    /// The firmware of some machines takes the size from Linux; the menu of the BIOS has it on all of them.
    fn set_carve_out(&self, finding: Finding, option: Option<&CarveOut>, in_bios: &str, then: &str) -> Finding {
        let Some(CarveOut { index, size_bytes }) = option else {
            return finding.fix(format!("set the carve-out in the BIOS to {in_bios} {then}"));
        };
        let file = format!("/sys/class/drm/card{}/device/uma/carveout", self.card.number);
        let finding = match self.card.carve_out_set {
            Some(set) if set == *index => {
                finding.because(format!("{file} has the carve-out of {} set for the next start", size(*size_bytes)))
            }
            _ => finding,
        };
        let text = format!("set the carve-out to {} {then}", size(*size_bytes));
        finding.type_in(text, vec![format!("echo {index} | sudo tee {file}")])
    }

    fn half_of_ram(&self) -> Option<Finding> {
        let limit = self.limit_bytes()?;
        let default = default_pages(self.ram_bytes).saturating_mul(PAGE_BYTES);
        if !self.thresholds.is_near(limit, default) {
            return None;
        }
        let ttm = self.ttm?;
        let share = percent(limit as f64 / self.ram_bytes.max(1) as f64);
        let pages = recommended_pages(self.ram_bytes, self.thresholds.host_keeps());
        let gained = pages.saturating_mul(PAGE_BYTES);
        if gained <= limit {
            return None;
        }
        let finding = Finding::problem(
            "uma-ttm-limit",
            format!("the kernel (TTM) lets the GPU have {} of {} RAM", gib(limit), gib(self.ram_bytes)),
        )
        .because(format!(
            "{}.pages_limit is {} pages of 4 KiB = {}, {share} of the RAM; half is what TTM sets itself",
            ttm.prefix(),
            grouped(limit / PAGE_BYTES),
            gib(limit)
        ))
        .because_of(
            self.offered()
                .filter(|offered| self.thresholds.is_near(*offered, limit))
                .map(|offered| format!("KFD offers {} to programs: the TTM limit", gib(offered))),
        )
        .because_of(
            self.card
                .gtt_total_bytes
                .filter(|gtt| !self.thresholds.is_near(*gtt, limit))
                .map(|gtt| format!("the GTT total is {}; what TTM refuses is out of reach all the same", gib(gtt))),
        )
        .because(format!(
            "KFD gives at most RAM - RAM/64 - 1.5 GiB = {}: a limit above that adds nothing",
            gib(kfd_limit_bytes(self.ram_bytes))
        ));
        Some(self.with_pages(finding, ttm, pages))
    }

    /// How the limit becomes so many pages.
    fn with_pages(&self, finding: Finding, ttm: Ttm, pages: u64) -> Finding {
        let (bytes, prefix) = (pages.saturating_mul(PAGE_BYTES), ttm.prefix());
        let parameters = format!("{prefix}.pages_limit={pages} {prefix}.page_pool_size={pages}");
        let loader = self.machine.distribution.boot_loader();
        let name = self.machine.distribution.name.as_deref();
        let system = match (loader, name) {
            (BootLoader::Other, _) => "on this system, by its boot loader".to_owned(),
            (_, Some(name)) => format!("on {name}"),
            _ => "on this system".to_owned(),
        };
        finding
            .type_in(
                format!(
                    "{system}: {} pages = {}, which keeps {} for the host",
                    grouped(pages),
                    gib(bytes),
                    gib(self.ram_bytes.saturating_sub(bytes))
                ),
                loader.commands(&parameters),
            )
            .type_in(
                "or with AMD's tool, in whole GiB",
                vec!["pipx install amd-debug-tools".into(), format!("amd-ttm --set {}", bytes >> 30), "sudo reboot".into()],
            )
            .fix("keep the carve-out in the BIOS small (AMD advises 512 MiB); a GPU that takes all of the RAM freezes the host")
    }

    /// What KFD offers to programs.
    fn offered(&self) -> Option<u64> {
        Some(self.node.local_bytes()).filter(|bytes| *bytes > 0)
    }

    /// Layers that contradict each other.
    fn mismatch(&self) -> Option<Finding> {
        let limit = self.limit_bytes();
        let mut finding = Finding::problem("uma-param-mismatch", "limits of the kernel contradict each other");
        let gtt_size = self.machine.amdgpu_parameter("gttsize").and_then(|mib| u64::try_from(mib).ok());
        let gtt_bytes = gtt_size.map(|mib| mib.saturating_mul(1 << 20));
        if let (Some(mib), Some(bytes), Some(limit)) = (gtt_size, gtt_bytes, limit)
            && !self.thresholds.is_near(bytes, limit)
        {
            finding = finding.because(format!(
                "amdgpu.gttsize is {} MiB = {}, the TTM limit {}: the smaller one counts",
                grouped(mib),
                gib(bytes),
                gib(limit)
            ));
        }
        if let (Some(gtt), Some(limit)) = (self.card.gtt_total_bytes, limit)
            && gtt > limit
            && !self.thresholds.is_near(gtt, limit)
        {
            finding = finding.because(format!("the GTT total {} is above the TTM limit {}", gib(gtt), gib(limit)));
        }
        if let Some(gtt) = self.card.gtt_total_bytes.filter(|gtt| *gtt > self.ram_bytes) {
            finding = finding.because(format!("the GTT total {} is above the RAM {}", gib(gtt), gib(self.ram_bytes)));
        }
        let text = "set the TTM limit alone: on current kernels GTT follows it, and amdgpu.gttsize is deprecated";
        (!finding.evidence.is_empty()).then(|| finding.fix(text))
    }

    /// Whether the host keeps enough.
    fn host(&self) -> Option<Finding> {
        let limit = self.limit_bytes()?;
        let left = self.ram_bytes.saturating_sub(limit);
        // Half of the RAM is never too much: small machines live with less than 8 GiB.
        if left >= self.thresholds.host_keeps_bytes
            || self.thresholds.is_near(limit, default_pages(self.ram_bytes).saturating_mul(PAGE_BYTES))
        {
            return None;
        }
        let title = format!("the GPU may take all but {} of the RAM", gib(left));
        let finding = match left < self.thresholds.host_keeps_least_bytes {
            true => Finding::problem("uma-host-pressure", title),
            false => Finding::notice("uma-host-pressure", title),
        };
        let ttm = self.ttm?;
        let pages = recommended_pages(self.ram_bytes, self.thresholds.host_keeps());
        let kept = format!(
            "RAM {} - TTM limit {} = {}; keep {} to {} for the host, or it may freeze",
            gib(self.ram_bytes),
            gib(limit),
            gib(left),
            size(self.thresholds.host_keeps_least_bytes),
            size(self.thresholds.host_keeps_bytes)
        );
        let finding = finding.with_confidence(Confidence::Possible).because(kept);
        Some(self.with_pages(finding, ttm, pages))
    }

    fn beyond_kfd(&self) -> Option<Finding> {
        let (limit, most) = (self.limit_bytes()?, kfd_limit_bytes(self.ram_bytes));
        let unlimited = self.machine.amdgpu_parameters.iter().any(|parameter| {
            parameter.name == "no_system_mem_limit" && matches!(parameter.value.as_deref(), Some("Y" | "1"))
        });
        (limit > most && !unlimited).then(|| {
            Finding::notice("kfd-system-memory-limit", format!("of the TTM limit {} add nothing", gib(limit - most)))
                .because(format!(
                    "KFD gives at most RAM - RAM/64 - 1.5 GiB = {}; the TTM limit is {}",
                    gib(most),
                    gib(limit)
                ))
                .fix("plan with the smaller number")
        })
    }
}

/// Whether the host is short of memory now.
fn pressure(machine: &Machine, thresholds: &Thresholds) -> Option<Finding> {
    let available = machine.memory.available_bytes?;
    let waits = machine
        .pressure
        .and_then(|pressure| pressure.full_10s_percent)
        .filter(|percent| *percent > thresholds.pressure_percent);
    if available >= thresholds.host_least_bytes && waits.is_none() {
        return None;
    }
    let finding = Finding::problem("uma-host-pressure", "the host is short of memory now")
        .with_confidence(if waits.is_some() { Confidence::Proven } else { Confidence::Probable })
        .because(format!("available RAM: {} of {}", size(available), size(machine.memory.total_bytes?)))
        .because_of(
            waits.map(|percent| format!("all tasks waited for memory in {percent:.1} % of the last 10 s (PSI)")),
        )
        .because_of(
            machine
                .ttm
                .and_then(|ttm| ttm.limit_bytes())
                .map(|limit| format!("GPU memory is taken from the same RAM, up to {} (TTM)", gib(limit))),
        )
        .fix("end what is not needed, or lower the TTM limit so that the host keeps more");
    Some(finding)
}
