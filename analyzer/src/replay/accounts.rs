//! The accounts of all devices and of the host.

use gpuoom_trace::metadata::DeviceFacts;

use super::account::{Account, Change};
use super::arena::Arena;
use super::block::{Block, Mapping, Side};
use super::lower::book::LowerBlock;

/// Numbers that a device can have in a record; the last stands for "not known".
const DEVICES: usize = 256;

/// One account per device, made when it is first needed, and the host's.
#[derive(Clone, Debug)]
pub struct Accounts {
    /// The host's account.
    pub host: Account,
    devices: Vec<Option<Box<Account>>>,
    /// Total memory of each device, 0 where it is not known.
    totals: Vec<u64>,
    /// Devices whose account may have changed since somebody asked, a bit each.
    touched: [u64; DEVICES / 64],
    granularity_bytes: u64,
    /// Whether each device's account lists what comes and goes.
    pub lists_changes: bool,
    /// Whether each device's account counts what each caller asked for.
    tallies: bool,
}

impl Accounts {
    /// Empty accounts. What is known about the devices gives the sizes of the cards.
    pub fn new(facts: &[DeviceFacts], granularity_bytes: u64) -> Self {
        let mut totals = vec![0; DEVICES];
        for device in facts {
            totals[usize::from(device.index)] = device.total_bytes;
        }
        Accounts {
            host: Account::with_blocks_at_peak(),
            devices: vec![None; DEVICES],
            totals,
            touched: [0; DEVICES / 64],
            granularity_bytes,
            lists_changes: false,
            tallies: false,
        }
    }

    /// Counts what each caller asks for from now on; to be called before the first record.
    pub fn keep_tallies(&mut self) {
        self.tallies = true;
        self.host.tally.get_or_insert_default();
    }

    /// The account of a device.
    #[inline]
    pub fn device_mut(&mut self, device: u8) -> &mut Account {
        self.touched[usize::from(device) / 64] |= 1 << (device % 64);
        let (total_bytes, granularity_bytes) = (self.totals[usize::from(device)], self.granularity_bytes);
        let (lists_changes, tallies) = (self.lists_changes, self.tallies);
        self.devices[usize::from(device)]
            .get_or_insert_with(|| new_account(total_bytes / granularity_bytes, lists_changes, tallies))
    }

    /// The account of a side; `None` for memory that is on no account.
    #[inline]
    pub fn side_mut(&mut self, side: Side, device: u8) -> Option<&mut Account> {
        match side {
            Side::Device => Some(self.device_mut(device)),
            Side::Host => Some(&mut self.host),
            Side::Neither => None,
        }
    }

    /// The account that a block is on.
    #[inline]
    pub fn of_mut(&mut self, block: &Block) -> Option<&mut Account> {
        self.side_mut(Side::of(block.kind), block.device)
    }

    /// Takes a block off its account.
    #[inline]
    pub fn let_go(&mut self, block: &Block) {
        if let Some(account) = self.of_mut(block) {
            account.let_go(block);
        }
    }

    /// A mapping is gone. What it mapped may be the host's: that makes no account of an unknown device.
    pub fn unmapped(&mut self, mapping: &Mapping) {
        if self.devices[usize::from(mapping.device)].is_some() {
            self.device_mut(mapping.device).unmapped(mapping);
        }
    }

    /// A block of a lower layer is gone: the account whose peak it may have been part of keeps it.
    pub fn lower_is_gone(&mut self, block: &LowerBlock) {
        match block.side() {
            Side::Device => self.device_mut(block.device).lower_is_gone(block),
            Side::Host => self.host.lower_is_gone(block),
            Side::Neither => {}
        }
    }

    /// The accounts of the devices that the program used, by number.
    pub fn devices(&self) -> impl Iterator<Item = (u8, &Account)> {
        (0..=u8::MAX).zip(&self.devices).filter_map(|(device, account)| Some((device, account.as_deref()?)))
    }

    /// The account of a device, if it has one.
    pub fn device(&self, device: u8) -> Option<&Account> {
        self.devices[usize::from(device)].as_deref()
    }

    /// A device whose account may have changed since this was last asked; each is named once.
    #[inline]
    pub fn next_touched(&mut self) -> Option<u8> {
        let (word, bits) = self.touched.iter_mut().enumerate().find(|(_, bits)| **bits != 0)?;
        let bit = bits.trailing_zeros();
        *bits &= *bits - 1;
        u8::try_from(word as u32 * 64 + bit).ok()
    }

    /// Takes what came and went on a device since this was last asked.
    pub fn take_changes(&mut self, device: u8) -> Vec<Change> {
        let account = self.devices[usize::from(device)].as_deref_mut();
        account.and_then(|account| account.changes.as_mut()).map(std::mem::take).unwrap_or_default()
    }

    /// Total memory of a device, where it is known.
    pub fn total_bytes(&self, device: u8) -> Option<u64> {
        Some(self.totals[usize::from(device)]).filter(|total| *total > 0)
    }

    /// The size of a card became known while the trace ran: its model starts with what `live` yields.
    pub fn total_known<'a>(
        &mut self,
        device: u8,
        total_bytes: u64,
        position: u64,
        live: impl Iterator<Item = &'a mut Block>,
    ) {
        let known = &mut self.totals[usize::from(device)];
        if *known != 0 || total_bytes == 0 {
            return;
        }
        *known = total_bytes;
        let Some(arena) = Arena::new(total_bytes / self.granularity_bytes) else { return };
        if let Some(account) = &mut self.devices[usize::from(device)] {
            let of_device = |block: &&mut Block| block.device == device && Side::of(block.kind) == Side::Device;
            account.start_arena(arena, position, &mut live.filter(of_device).collect::<Vec<_>>());
        }
    }
}
/// Out of line, because the account of a device is asked for at every event.
#[cold]
fn new_account(granules: u64, lists_changes: bool, tallies: bool) -> Box<Account> {
    let mut account = Account::with_blocks_at_peak();
    account.arena = Arena::new(granules);
    account.changes = lists_changes.then(Vec::new);
    account.tally = tallies.then(Box::default);
    Box::new(account)
}
