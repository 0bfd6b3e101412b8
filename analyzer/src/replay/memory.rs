//! The records about memory: given, mapped, given back, and frees that turn out to have failed.

use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, Kind, Layer, Record, flag};

use super::Replay;
use super::arena::NO_PLACE;
use super::block::{Block, Mapping, Side, Space};
use super::undo::Undo;
use super::vmm::Unmapped;

impl Replay {
    #[inline]
    pub(super) fn allocation(&mut self, record: &Record, payload: &[u8], own: bool) {
        if !own {
            return self.allocation_of_others(record);
        }
        let lowest = if self.failures.has_nested() { self.failures.lowest_nested(record) } else { None };
        let device = self.pool_device(record, payload);
        let granules = self.granules(record);
        self.latency_ticks.record(u64::from(record.duration));
        self.sizes_bytes.record(record.requested);
        if record.status != 0 {
            return self.refused(record, device, granules, lowest);
        }
        let kind = record.kind();
        let side = Side::of(kind);
        if record.address == 0 {
            if let Some(account) = self.accounts.side_mut(side, device) {
                account.calls.empty_allocations += 1;
            }
            return;
        }
        let block = Block {
            address: record.address,
            requested_bytes: record.requested,
            entered: self.events,
            at: record.at,
            granules,
            place: NO_PLACE,
            api: record.api,
            device,
            kind,
            layer: self.apis.get(record.api).layer.unwrap_or(Layer::Process),
        };
        self.take_in(side, block);
    }

    /// Counts a block and makes it live.
    #[inline]
    fn take_in(&mut self, side: Side, block: Block) {
        if let Some(old) = self.make_live(side, block, block.at)
            && let Some(account) = self.accounts.of_mut(&old)
        {
            account.calls.replaced += 1;
        }
        let Some(account) = self.accounts.side_mut(side, block.device) else { return };
        account.calls.allocations += 1;
        if block.kind == Kind::Device {
            account.spacing.see(block.address);
        }
    }

    /// Puts a block into table and account; returns the one that had its address, which is gone now.
    #[inline]
    fn make_live(&mut self, side: Side, block: Block, at: u64) -> Option<Block> {
        let (slot, old) = match block.kind {
            Kind::Physical => self.vmm.create(block),
            _ => self.live.insert(block),
        };
        if let Some(old) = &old {
            self.accounts.let_go(old);
        }
        if let (Some(account), Some(slot)) = (self.accounts.side_mut(side, block.device), slot) {
            account.take_in(slot, at);
        }
        old
    }

    #[cold]
    fn allocation_of_others(&mut self, record: &Record) {
        let layer = self.apis.get(record.api).layer;
        if record.status != 0 {
            match record.is_outermost() {
                true => self.internals.failures += u64::from(self.apis.get(record.api).is_out_of_memory(record.status)),
                false => self.failures.note_nested(record, layer),
            }
            return;
        }
        // What lies inside another recorded call is explained by that call.
        if record.is_outermost() && record.address != 0 && Side::of(record.kind()) == Side::Device {
            self.internals.take_in(record, layer.unwrap_or(Layer::Process));
        }
    }

    #[inline]
    pub(super) fn free(&mut self, record: &Record) {
        if record.has(flag::CORRECTION) {
            return self.correct(record);
        }
        if record.address == 0 || !record.is_outermost() || record.kind() == Kind::Queue {
            return;
        }
        if record.has(flag::FROM_RUNTIME) && self.internals.let_go(record.address) {
            return;
        }
        let undo = match record.kind() {
            Kind::Physical => self.release(record),
            kind => self.give_back(
                Space::of(if record.event() == Some(Event::Unpin) { Kind::Registered } else { kind }),
                record,
            ),
        };
        self.last_frees.remember(record.thread, record.call, undo);
    }

    #[inline]
    fn give_back(&mut self, space: Space, record: &Record) -> Undo {
        let Some(block) = self.live.remove(space, record.address) else { return self.unmatched(record) };
        match self.accounts.of_mut(&block) {
            Some(account) => {
                account.let_go(&block);
                account.calls.frees += 1;
                Undo::Block(block)
            }
            None => {
                self.count_uncounted(&block, false);
                Undo::Uncounted(block)
            }
        }
    }

    #[cold]
    fn unmatched(&mut self, record: &Record) -> Undo {
        let known = self.internals.let_go(record.address) || self.pools.remove(&record.address).is_some();
        // What a vendor library frees may come from a call of its own that was explained by another.
        if known || record.has(flag::FROM_RUNTIME) {
            return Undo::Nothing;
        }
        self.unmatched_frees += 1;
        Undo::Unmatched
    }

    fn release(&mut self, record: &Record) -> Undo {
        let Some(released) = self.vmm.release(record.address) else {
            return self.give_back(Space::Imported, record);
        };
        let device = released.device;
        if let Some(block) = &released.gone {
            self.accounts.let_go(block);
        }
        self.accounts.device_mut(device).calls.frees += u64::from(released.is_last);
        Undo::Release(released)
    }

    pub(super) fn mapping(&mut self, record: &Record, payload: &[u8], own: bool) {
        let is_map = record.event() == Some(Event::Map);
        if record.has(flag::CORRECTION) {
            return self.correct(record);
        }
        if !own {
            if is_map && record.status != 0 && !record.is_outermost() {
                self.failures.note_nested(record, self.apis.get(record.api).layer);
            }
            return;
        }
        if record.kind() != Kind::Physical {
            // A buffer of imported memory, or where managed memory is to lie: no memory of this process.
            return;
        }
        let unmapped = if is_map {
            if record.status != 0 {
                return;
            }
            let handle = payload::unpack_numbers(payload).next().unwrap_or(0);
            self.vmm.map(record.address, record.requested, handle, self.events)
        } else {
            self.vmm.unmap(record.address, record.requested)
        };
        self.let_go_unmapped(&unmapped.mappings, &unmapped.gone);
        if !is_map {
            let undo = Undo::Unmap(Box::new(unmapped));
            self.last_frees.remember(record.thread, record.call, undo);
        }
    }

    fn let_go_unmapped(&mut self, mappings: &[Mapping], gone: &[(u64, Block)]) {
        for mapping in mappings {
            self.accounts.device_mut(mapping.device).unmapped(mapping);
        }
        for (_, block) in gone {
            self.accounts.let_go(block);
        }
    }

    pub(super) fn reserve_or_import(&mut self, record: &Record, payload: &[u8]) {
        if record.status != 0 || record.address == 0 {
            return;
        }
        if record.kind() == Kind::Physical {
            let mapped = payload::unpack_numbers(payload).next().unwrap_or(0);
            if self.vmm.retain(record.address, mapped) {
                return;
            }
        }
        let kind = match (record.event(), record.kind()) {
            (_, Kind::Pool) => {
                self.pools.insert(record.address, record.device);
                return;
            }
            // Nobody up here knows what a queue takes.
            (_, Kind::Queue) => return,
            (Some(Event::Import), _) => Kind::Imported,
            _ => Kind::Reserved,
        };
        let block = Block {
            address: record.address,
            requested_bytes: record.requested,
            entered: self.events,
            at: record.at,
            granules: 0,
            place: NO_PLACE,
            api: record.api,
            device: record.device,
            kind,
            layer: self.apis.get(record.api).layer.unwrap_or(Layer::Process),
        };
        if let (_, Some(old)) = self.live.insert(block) {
            self.count_uncounted(&old, false);
        }
        self.count_uncounted(&block, true);
    }

    /// Address ranges and memory of others have lines of their own.
    fn count_uncounted(&mut self, block: &Block, added: bool) {
        let account = self.accounts.device_mut(block.device);
        let sum = match block.kind {
            Kind::Reserved => &mut account.reserved_bytes,
            Kind::Imported => &mut account.imported_bytes,
            _ => return,
        };
        let bytes = u128::from(block.requested_bytes);
        *sum = if added { sum.saturating_add(bytes) } else { sum.saturating_sub(bytes) };
    }

    /// A free that was recorded before its call has failed: what it took away is still there.
    #[cold]
    fn correct(&mut self, record: &Record) {
        if record.status == 0 {
            return;
        }
        self.failed_frees += 1;
        match self.last_frees.take(record.thread, record.call).unwrap_or_default() {
            Undo::Nothing => {}
            Undo::Unmatched => self.unmatched_frees -= 1,
            Undo::Block(block) => {
                let side = Side::of(block.kind);
                if let Some(account) = self.accounts.side_mut(side, block.device) {
                    account.calls.frees -= 1;
                }
                self.bring_back(side, block, record.at);
            }
            Undo::Uncounted(block) => {
                self.count_uncounted(&block, true);
                self.live.insert(block);
            }
            Undo::Release(released) => {
                self.accounts.device_mut(released.device).calls.frees -= u64::from(released.is_last);
                let back = released.gone.map(|block| self.enter_again(block, record.at));
                self.vmm.unrelease(&released, back);
            }
            Undo::Unmap(undo) => {
                let Unmapped { mut mappings, gone } = *undo;
                let back: Vec<(u64, Block)> =
                    gone.into_iter().map(|(number, block)| (number, self.enter_again(block, record.at))).collect();
                mappings.iter_mut().for_each(|mapping| mapping.entered = self.events);
                self.vmm.remap(&mappings, &back);
            }
        }
    }

    fn bring_back(&mut self, side: Side, mut block: Block, at: u64) {
        block.entered = self.events;
        self.make_live(side, block, at);
    }

    fn enter_again(&mut self, mut block: Block, at: u64) -> Block {
        block.entered = self.events;
        self.accounts.device_mut(block.device).take_in(&mut block, at);
        block
    }

    /// The program chose or reset a device.
    pub(super) fn device_event(&mut self, record: &Record) {
        if record.status != 0 || !self.apis.get(record.api).resets_device {
            return;
        }
        let Some(device) = record.device() else { return };
        let held = self.accounts.device(device).is_some_and(|account| account.held.blocks > 0);
        if !held {
            return;
        }
        let unmapped = self.vmm.reset(device);
        let blocks = self.live.remove_device(device);
        let count = blocks.len() + unmapped.gone.len();
        blocks.iter().for_each(|block| self.accounts.let_go(block));
        self.let_go_unmapped(&unmapped.mappings, &unmapped.gone);
        self.accounts.device_mut(device).calls.reset += count as u64;
    }
}
