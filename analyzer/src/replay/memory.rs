//! The records about memory: given, mapped, given back, and frees that turn out to have failed.

use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, Kind, Layer, Record, flag};

use super::apis::{Does, Ends, Family};
use super::arena::NO_PLACE;
use super::block::{Block, Mapping, Side, Space};
use super::failures::Inside;
use super::lower::Place;
use super::pins::Pins;
use super::tracks::saturate;
use super::undo::Undo;
use super::unreached::Unreached;
use super::vmm::Unmapped;
use super::{PoolPlace, Replay};

/// Frees of nothing for which the block around their address is looked for.
const MOST_LOOKS_AROUND: u32 = 4096;
/// No block is as large: it would be around every address.
const ADDRESS_SPACE_BYTES: u64 = 1 << 47;

impl Replay {
    #[inline]
    pub(super) fn allocation(&mut self, record: &Record, payload: &[u8], own: bool) {
        if !own {
            return self.allocation_of_others(record, payload);
        }
        let inside = if self.failures.has_nested() { self.failures.lowest_nested(record) } else { None };
        let device = match record.kind() {
            Kind::Pool => self.device_of_stream(record, inside).unwrap_or_else(|| self.pool_device(record, payload)),
            _ => self.pool_device(record, payload),
        };
        let granules = self.granules(record);
        self.latency_ticks.record(u64::from(record.duration));
        self.sizes_bytes.record(record.requested);
        if record.status != 0 {
            return self.refused(record, payload, device, granules, inside);
        }
        let kind = record.kind();
        let side = Side::of(kind);
        if record.address == 0 {
            if let Some(account) = self.accounts.side_mut(side, device) {
                account.calls.empty_allocations += 1;
            }
            return;
        }
        if self.apis.family(record.api) == Family::Nvidia {
            self.add_object(record, payload);
        }
        if kind == Kind::Registered && self.is_pinned_again(record) {
            return;
        }
        let (requested_bytes, granules) = match self.array_bytes(record) {
            Some(bytes) => (bytes, self.granules_of(bytes)),
            None => (record.requested, granules),
        };
        let pool = self.pool_number(record, payload);
        self.take_in(
            side,
            Block { requested_bytes, granules, device, kind, pool, ..self.block(record) },
            record.thread,
        );
    }

    // Always in line, as `make_live`: a call would copy the block once more at every event.
    #[inline(always)]
    fn block(&self, record: &Record) -> Block {
        let api = self.apis.get(record.api);
        Block {
            address: record.address,
            requested_bytes: record.requested,
            entered: self.events,
            at: record.at,
            granules: 0,
            place: NO_PLACE,
            api: record.api,
            context: self.context_of(record, api.layer),
            pool: 0,
            device: record.device,
            kind: record.kind(),
            layer: api.layer.unwrap_or(Layer::Process),
            family: api.family,
            site: record.site,
        }
    }

    /// What an array really takes, where a lower layer was seen to give it: the size of its elements is only the least.
    #[inline]
    fn array_bytes(&self, record: &Record) -> Option<u64> {
        if record.kind() != Kind::Array {
            return None;
        }
        self.inside_array.filter(|(seq, _)| *seq == record.seq()).map(|(_, bytes)| bytes)
    }

    /// A record that may enclose calls which were recorded before it.
    #[cold]
    pub(super) fn close_open_calls(&mut self, record: &Record) {
        let api = self.apis.get(record.api);
        if let (Kind::Array, Some(layer)) = (record.kind(), api.layer) {
            self.inside_array = self.lower.bytes_inside(record, layer).map(|bytes| (record.seq(), bytes));
        }
        if let (Kind::Pool, Some(layer)) = (record.kind(), api.layer) {
            self.inside_pool = self.lower.device_inside(record, layer).map(|device| (record.seq(), device));
        }
        self.lower.close(record, api, &mut self.accounts);
    }

    /// The device of a stream-ordered call by what it asked the layers below for: the stream may be another device's than the thread's.
    fn device_of_stream(&self, record: &Record, refused: Option<Inside>) -> Option<u8> {
        let given = self.inside_pool.filter(|(seq, _)| *seq == record.seq()).map(|(_, device)| device);
        given.or(refused.and_then(|inside| inside.device))
    }

    /// Counts a block and makes it live.
    #[inline]
    fn take_in(&mut self, side: Side, block: Block, thread: u32) {
        if let Some(old) = self.make_live(side, block, block.at)
            && let Some(account) = self.accounts.of_mut(&old)
        {
            let pins_both = old.kind == Kind::Registered && block.kind == Kind::Registered;
            let count = if pins_both { &mut account.calls.registered_again } else { &mut account.calls.replaced };
            *count += 1;
        }
        let Some(account) = self.accounts.side_mut(side, block.device) else { return };
        account.calls.allocations += 1;
        if let Some(tally) = &mut account.tally {
            tally.given(&block);
        }
        if block.kind == Kind::Device && block.family == Family::Pointers {
            account.spacing.see(block.address, block.requested_bytes);
        }
        self.tracks.given(&block, thread, account.held.requested_bytes);
    }

    /// Whether HSA pins what it has pinned already: no more bytes.
    fn is_pinned_again(&mut self, record: &Record) -> bool {
        let known = self.live.get(Space::Registered, record.address);
        let same = known.is_some_and(|block| block.requested_bytes == record.requested);
        let again = same && Pins::counts(record.event(), self.apis.get(record.api).layer);
        if again {
            self.pins.add(record.address);
            self.accounts.host.calls.allocations += 1;
        }
        again
    }

    /// What was pinned more than once stays pinned.
    #[cold]
    fn unpin_once(&mut self, record: &Record) -> Option<Undo> {
        let counts = Pins::counts(record.event(), self.apis.get(record.api).layer);
        let stays = counts && self.pins.take(record.address);
        let block = *self.live.get(Space::Registered, record.address).filter(|_| stays)?;
        self.accounts.host.calls.frees += 1;
        Some(Undo::Pin(block))
    }

    /// Puts a block into table and account; returns the one that had its address, which is gone now.
    #[inline(always)]
    fn make_live(&mut self, side: Side, block: Block, at: u64) -> Option<Block> {
        // One call of each: this body stands in line wherever it is called, and so do they.
        let is_handle = match block.kind {
            Kind::Physical => block.family == Family::Pointers,
            Kind::HostPinned => self.apis.get(block.api).gives_handles(),
            _ => false,
        };
        let (slot, old) = if is_handle { self.vmm.create(block) } else { self.live.insert(block) };
        if let Some(old) = &old {
            self.accounts.let_go(old);
        }
        if let (Some(account), Some(slot)) = (self.accounts.side_mut(side, block.device), slot) {
            account.take_in(slot, at);
        }
        old
    }

    /// A call below another, or one that a vendor library made for itself.
    #[cold]
    fn allocation_of_others(&mut self, record: &Record, payload: &[u8]) {
        let api = self.apis.get(record.api);
        match (record.status, record.is_outermost()) {
            (0, is_outermost) => {
                // What lies inside another call is counted with that.
                if is_outermost && Side::of(record.kind()) != Side::Host {
                    self.tracks.moved_by_library(record, Some(record.requested));
                }
                let place = Place { position: self.events, context: self.context_of(record, None) };
                self.lower.take_in(record, payload, api, place, &mut self.accounts);
            }
            (_, true) => self.lower.failed(record, api),
            (_, false) => {
                self.failures.note_nested(record, api);
                self.below.refused(record, api);
            }
        }
    }

    #[inline]
    pub(super) fn free(&mut self, record: &Record) {
        if record.has(flag::CORRECTION) {
            return self.correct(record);
        }
        if self.resets.any_open() {
            self.inside_reset(record);
        }
        let below = self.lower.is_used() && self.free_below(record);
        if record.address != 0 && record.is_outermost() && record.has(flag::FROM_RUNTIME) {
            self.tracks.moved_by_library(record, None);
        }
        if record.address == 0 || !record.is_outermost() || (below && record.has(flag::FROM_RUNTIME)) {
            return;
        }
        let undo = match (record.kind(), self.apis.family(record.api)) {
            (Kind::Physical, Family::Pointers) => self.release(record, below),
            (_, Family::Nvidia) => self.give_back_object(record),
            (kind, family) => {
                let stays = if self.pins.is_empty() { None } else { self.unpin_once(record) };
                // Decided here: nearly every free is none of these, and a call for each would cost.
                let space = match record.event() {
                    Some(Event::Unpin) => self.unpinned_space(record, family),
                    _ => Space::of(kind, family),
                };
                match stays {
                    Some(undo) => undo,
                    None => self.give_back(space, record, below),
                }
            }
        };
        self.last_frees.remember(record, undo);
    }

    /// HIP's `hipHostUnregister` of what was never registered gives it back, whatever call gave it: pinned, managed or device memory
    /// (tried on 6.4.3: the frees of the layers below lie inside that call). CUDA refuses it, and a correction follows.
    #[cold]
    fn unpinned_space(&self, record: &Record, family: Family) -> Space {
        let registered = Space::of(Kind::Registered, family);
        let is_pointer = registered == Space::Registered;
        let was_never =
            is_pointer && !self.live.has(registered, record.address) && self.live.has(Space::Memory, record.address);
        if was_never { Space::Memory } else { registered }
    }

    /// A free takes memory of the layer that it is called at, whoever calls. Returns whether that layer's book knew it.
    #[cold]
    fn free_below(&mut self, record: &Record) -> bool {
        if record.address == 0 {
            return true;
        }
        let is_pool = record.kind() == Kind::Pool && self.pools.contains_key(&record.address);
        let explained = is_pool || record.is_outermost();
        self.lower.free(record, self.apis.get(record.api), explained, self.events, &mut self.accounts)
    }

    #[inline]
    fn give_back(&mut self, space: Space, record: &Record, below: bool) -> Undo {
        let found = self.live.remove(space, record.address).or_else(|| self.remove_around(space, record.address));
        let Some(block) = found else {
            self.tracks.released();
            return self.unmatched(record, below);
        };
        match self.accounts.of_mut(&block) {
            Some(account) => {
                account.let_go(&block);
                account.calls.frees += 1;
                self.tracks.returned(&block, record, account.held.requested_bytes);
                Undo::Block(block)
            }
            None => {
                self.tracks.released();
                self.count_uncounted(&block, false);
                Undo::Uncounted(block)
            }
        }
    }

    /// HIP takes an address inside a block for the block's (5.2.3 to 6.4.3 do). CUDA refuses it, and a correction follows. Only so many
    /// are looked for, because each look goes through all blocks.
    #[cold]
    fn remove_around(&mut self, space: Space, address: u64) -> Option<Block> {
        if space != Space::Memory || address == 0 || self.looks_around >= MOST_LOOKS_AROUND {
            return None;
        }
        self.looks_around += 1;
        let around = self.live.around(address).filter(|block| block.requested_bytes < ADDRESS_SPACE_BYTES)?.address;
        self.live.remove(space, around)
    }

    #[cold]
    fn unmatched(&mut self, record: &Record, below: bool) -> Undo {
        let was_pool = self.pools.remove(&record.address).is_some();
        if was_pool {
            self.tracks.pools.ended(record.address);
        }
        let known = below || was_pool;
        // What a vendor library frees may come from a call of its own that was explained by another. Queues and code are
        // no memory that is counted; handles of the kernel's drivers come from requests that are no memory, too.
        let uncounted = matches!(record.kind(), Kind::Queue | Kind::Scratch | Kind::Code);
        let many_sources = self.apis.family(record.api) != Family::Pointers;
        let is_explained = known || uncounted || many_sources || record.has(flag::FROM_RUNTIME);
        let counts = match record.kind() {
            Kind::Registered if !is_explained => !self.is_inside_registered(record.address),
            // HIP answers "success" when it is given the same block twice (5.7.1 and 6.4.3 do).
            Kind::Pool if !is_explained => !self.last_frees.took(record.thread, record.address),
            // HIP answers "success" to a free of an address range, too (6.4.3), and the range stays.
            _ => !is_explained && !self.live.has(Space::Reserved, record.address),
        };
        if !many_sources {
            self.in_vain.note(record.address, self.events, counts.then_some(record.api));
        }
        if !counts {
            return Undo::Nothing;
        }
        self.unmatched_frees += 1;
        *self.unmatched_by.entry(record.api).or_default() += 1;
        Undo::Unmatched
    }

    /// Whether memory around this address is registered: what HIP does at such an address is no sign of a call that was not recorded.
    fn is_inside_registered(&mut self, address: u64) -> bool {
        if self.looks_around >= MOST_LOOKS_AROUND {
            return false;
        }
        self.looks_around += 1;
        let is_around = |block: &Block| {
            block.kind == Kind::Registered && address.wrapping_sub(block.address) < block.requested_bytes
        };
        self.live.blocks().any(is_around)
    }

    fn release(&mut self, record: &Record, below: bool) -> Undo {
        let Some(released) = self.vmm.release(record.address) else {
            if self.vmm.was_released(record.address) {
                return Undo::Nothing;
            }
            return self.give_back(Space::Imported, record, below);
        };
        if let Some(block) = &released.gone {
            // What is still mapped is not free yet: it counts when it is unmapped.
            self.let_go(block, record);
            self.count_free(block);
            if !released.was_mapped
                && self.failures.has_refusals()
                && self.failures.released_unmapped(record.thread, block)
            {
                self.tracks.retries.was_half_made(record.thread, block.requested_bytes);
            }
        }
        Undo::Release(released)
    }

    pub(super) fn mapping(&mut self, record: &Record, payload: &[u8], own: bool) {
        let is_map = record.event() == Some(Event::Map);
        if record.has(flag::CORRECTION) {
            return self.correct(record);
        }
        let failed = is_map && record.status != 0;
        let api = self.apis.get(record.api);
        let is_programs = own && record.kind() == Kind::Physical && api.family == Family::Pointers;
        if failed && is_programs && !api.is_out_of_memory(record.status) {
            Unreached::note(&mut self.unreached, record);
        }
        if failed && !record.is_outermost() {
            self.failures.note_nested(record, self.apis.get(record.api));
            self.below.refused(record, self.apis.get(record.api));
        }
        // A prefetch or advice about managed memory, or a mapped piece of imported memory, gives none. The piece has an
        // address that is given back like memory, though.
        if is_map && own && !failed && record.kind() == Kind::Imported {
            self.pools.insert(record.address, PoolPlace { device: record.device, kind: Kind::Pool });
        }
        if is_map && !failed && record.kind() == Kind::Managed {
            self.tracks.released();
        }
        // Nor does memory of a driver that becomes visible to a card: it counts since it was given.
        if failed || record.kind() != Kind::Physical || self.apis.family(record.api) != Family::Pointers {
            return;
        }
        let handle = if is_map { payload::unpack_numbers(payload).next().unwrap_or(0) } else { 0 };
        if self.lower.is_used() {
            let api = self.apis.get(record.api);
            self.lower.map_or_unmap(record, handle, api, self.events, &mut self.accounts);
        }
        if !own {
            return;
        }
        let unmapped = match is_map {
            true => self.vmm.map(record.address, record.requested, handle, self.events),
            false => self.vmm.unmap(record.address, record.requested),
        };
        self.let_go_unmapped(&unmapped.mappings, &unmapped.gone, record);
        if !is_map {
            let undo = Undo::Unmap(Box::new(unmapped));
            self.last_frees.remember(record, undo);
        }
    }

    /// Takes memory that is gone off its account, be it a device's or the host's.
    pub(super) fn let_go(&mut self, block: &Block, record: &Record) {
        if let Some(account) = self.accounts.of_mut(block) {
            account.let_go(block);
            self.tracks.returned(block, record, account.held.requested_bytes);
        }
    }

    fn let_go_unmapped(&mut self, mappings: &[Mapping], gone: &[(u64, Block)], record: &Record) {
        for mapping in mappings {
            self.accounts.unmapped(mapping);
        }
        for (_, block) in gone {
            self.let_go(block, record);
            self.count_free(block);
        }
    }

    fn count_free(&mut self, block: &Block) {
        if let Some(account) = self.accounts.of_mut(block) {
            account.calls.frees += 1;
        }
    }

    fn uncount_free(&mut self, block: &Block) {
        if let Some(account) = self.accounts.of_mut(block) {
            account.calls.frees = account.calls.frees.saturating_sub(1);
        }
    }

    pub(super) fn reserve_or_import(&mut self, record: &Record, payload: &[u8], own: bool) {
        if own && record.status != 0 {
            if record.kind() == Kind::Reserved {
                let reserved = self.accounts.devices().map(|(_, account)| account.reserved_bytes).sum();
                self.reservations.refuse(record, saturate(reserved));
            }
            let is_import = record.event() == Some(Event::Import);
            if is_import && !self.apis.get(record.api).is_out_of_memory(record.status) {
                Unreached::note(&mut self.unreached, record);
            }
            return self.set_up(record);
        }
        if record.status != 0 || record.address == 0 {
            return;
        }
        let api = self.apis.get(record.api);
        let kind = match (record.event(), record.kind()) {
            (Some(Event::Import), Kind::Physical) => {
                let mapped = payload::unpack_numbers(payload).next().unwrap_or(0);
                let below = self.lower.retain(record, api.layer, mapped);
                let held = own && self.vmm.retain(record.address, mapped);
                // Another name of the program's own memory.
                if below || held {
                    return;
                }
                Kind::Imported
            }
            (Some(Event::Reserve), Kind::Pool) => {
                // With a size it is memory that a graph will get when it runs. The runtime's call has the driver's inside.
                if own {
                    self.graph_bytes += u128::from(record.requested);
                    self.tracks.node_made(record);
                }
                self.note_pool(record, payload);
                if own && record.requested == 0 {
                    self.pool_appears(record);
                }
                return;
            }
            (Some(Event::Reserve), Kind::Queue | Kind::Scratch | Kind::Code) => return,
            (Some(Event::Import), _) => Kind::Imported,
            _ => Kind::Reserved,
        };
        if !own {
            if kind == Kind::Imported {
                let place = Place { position: self.events, context: 0 };
                self.lower.take_in(record, payload, api, place, &mut self.accounts);
            }
            return;
        }
        if api.family == Family::Nvidia {
            match kind {
                Kind::Imported if self.duplicate_object(record, payload) => return,
                Kind::Imported => {}
                _ => self.add_object(record, payload),
            }
        }
        let block = Block { kind, ..self.block(record) };
        self.imports += u64::from(kind == Kind::Imported);
        if let (_, Some(old)) = self.live.insert(block) {
            self.count_uncounted(&old, false);
        }
        self.count_uncounted(&block, true);
    }

    /// Who only asks for a pool, or chooses it, says nothing of where its memory lies: what is known stays.
    #[cold]
    fn note_pool(&mut self, record: &Record, payload: &[u8]) {
        let is_known =
            payload.is_empty() && self.pools.get(&record.address).is_some_and(|known| known.kind != Kind::Pool);
        if !is_known {
            self.pools.insert(record.address, PoolPlace::of(record, payload));
        }
    }

    /// The program made a pool, asked for that of a device, or gave a device one.
    #[cold]
    fn pool_appears(&mut self, record: &Record) {
        let does = self.apis.get(record.api).does;
        self.made_pools += u64::from(!matches!(does, Does::NamesPool | Does::ChoosesPool));
        self.tracks.pools.appears(does, record.address, record.device);
    }

    /// Bytes of memory nodes that were added to graphs; of those that a void capture would have made, there is no graph.
    pub fn graph_bytes(&self) -> u128 {
        self.graph_bytes.saturating_sub(self.tracks.captures().map_or(0, |captures| captures.void_bytes))
    }

    /// Address ranges and memory of others have lines of their own.
    pub(super) fn count_uncounted(&mut self, block: &Block, added: bool) {
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
        if self.lower.is_used() {
            self.lower.correct(record, self.apis.get(record.api), self.events, &mut self.accounts);
        }
        if !record.is_outermost() {
            return;
        }
        self.failed_frees += 1;
        match self.last_frees.take(record.thread, record.call).unwrap_or_default() {
            Undo::Nothing => self.in_vain.failed(record.address),
            Undo::Context(..) | Undo::Reset(..) => {}
            Undo::Unmatched => {
                self.in_vain.failed(record.address);
                // A file may name another function than the free that it corrects.
                self.was_matched(record.api);
            }
            Undo::Block(block) => match self.in_vain.took(block.address, block.entered) {
                Some(counted_by) => counted_by.into_iter().for_each(|api| self.was_matched(api)),
                None => self.take_back(Side::of(block.kind), block, record.at),
            },
            Undo::Pin(block) => {
                self.pins.add(block.address);
                self.accounts.host.calls.frees -= 1;
            }
            Undo::Objects(gone) => self.bring_objects_back(gone, record.at),
            Undo::Uncounted(block) => {
                self.count_uncounted(&block, true);
                self.live.insert(block);
            }
            Undo::Release(released) => {
                released.gone.iter().for_each(|block| self.uncount_free(block));
                let back = released.gone.map(|block| self.enter_again(block, record.at));
                self.vmm.unrelease(&released, back);
            }
            Undo::Unmap(undo) => {
                let Unmapped { mut mappings, gone } = *undo;
                gone.iter().for_each(|(_, block)| self.uncount_free(block));
                let back: Vec<(u64, Block)> =
                    gone.into_iter().map(|(number, block)| (number, self.enter_again(block, record.at))).collect();
                mappings.iter_mut().for_each(|mapping| mapping.entered = self.events);
                self.vmm.remap(&mappings, &back);
            }
        }
    }

    /// A free that was counted as one of an unknown address was none.
    fn was_matched(&mut self, api: u16) {
        self.unmatched_frees = self.unmatched_frees.saturating_sub(1);
        if let Some(count) = self.unmatched_by.get_mut(&api) {
            *count = count.saturating_sub(1);
        }
    }

    /// A block whose free has failed lives as before.
    pub(super) fn take_back(&mut self, side: Side, block: Block, at: u64) {
        self.uncount_free(&block);
        self.bring_back(side, block, at);
    }

    pub(super) fn bring_back(&mut self, side: Side, mut block: Block, at: u64) {
        block.entered = self.events;
        self.make_live(side, block, at);
        self.note_change(side, block.device, at);
    }

    /// What an account holds changed without a call that gave or took it.
    pub(super) fn note_change(&mut self, side: Side, device: u8, at: u64) {
        if let Some(account) = self.accounts.side_mut(side, device) {
            self.tracks.changed(side, device, at, account.held.requested_bytes);
        }
    }

    pub(super) fn enter_again(&mut self, mut block: Block, at: u64) -> Block {
        block.entered = self.events;
        let side = Side::of(block.kind);
        if let Some(account) = self.accounts.side_mut(side, block.device) {
            account.take_in(&mut block, at);
        }
        self.note_change(side, block.device, at);
        block
    }

    /// Somebody chose or reset a device, or ended a context.
    pub(super) fn device_event(&mut self, record: &Record, own: bool) {
        let ends = self.apis.get(record.api).ends;
        if !matches!(ends, Ends::Nothing) {
            self.tracks.ended(record);
        }
        match ends {
            Ends::Nothing => {}
            Ends::HipDevice if own => self.reset_device(record),
            Ends::HipDevice => {}
            ends => self.context_ends(record, ends),
        }
    }
}
