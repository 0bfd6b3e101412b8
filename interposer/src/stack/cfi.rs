//! Reads the rule of an address from an object's call frame information (`.eh_frame`, found through `.eh_frame_hdr`).
//!
//! Everything is copied by the kernel ([`program_memory::read`]), so an object that another thread unloads meanwhile is an
//! answer and not a crash. It is slow, and done once per return address: the cache of `rules.rs` has it from then on.

use std::mem::MaybeUninit;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, LittleEndian, Register, RegisterRule, UnwindContext, UnwindContextStorage,
    UnwindExpression, UnwindSection, UnwindTableRow, X86_64,
};

use super::rule::{Cfa, Rbp, Rule, SIGNAL_SP};
use crate::base::program_memory;

/// Longest description of one function, in bytes; longer ones were not met.
const MAX_FDE_BYTES: usize = 3072;
/// Longest preamble that such descriptions share, in bytes.
const MAX_CIE_BYTES: usize = 256;
/// Entries of the search table that are read at once.
const BLOCK: u32 = 64;

/// Version 1, the search table as pairs of signed 32-bit offsets from the header (`DW_EH_PE_datarel | DW_EH_PE_sdata4`), its
/// count as `DW_EH_PE_udata4`: what all linkers make.
const HEADER: [u8; 3] = [1, 0x03, 0x3B];

/// Room for reading one description.
pub(super) struct Room {
    /// The description and its preamble.
    bytes: [u8; MAX_CIE_BYTES + MAX_FDE_BYTES],
    context: MaybeUninit<UnwindContext<usize, Storage>>,
    has_context: bool,
}

impl Room {
    /// An unused one: all zero, so that a table of them takes no room in the library's file.
    pub(super) const EMPTY: Room =
        Room { bytes: [0; MAX_CIE_BYTES + MAX_FDE_BYTES], context: MaybeUninit::zeroed(), has_context: false };
}

type Section<'a> = EhFrame<gimli::EndianSlice<'a, LittleEndian>>;

struct Storage;

impl UnwindContextStorage<usize> for Storage {
    type Rules = [(Register, RegisterRule<usize>); 20];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

/// The rule for `address`, which lies in the object whose `.eh_frame_hdr` is at `header`.
pub(super) fn rule(header: u64, address: u64, room: &mut Room) -> Rule {
    find(header, address).and_then(|fde| read(fde, address, room)).unwrap_or(Rule::Unknown)
}

fn word32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Address of the description of the function that may contain `address`.
#[inline(never)]
fn find(header: u64, address: u64) -> Option<u64> {
    let mut head = [0; 12];
    if !program_memory::read(header, &mut head) || [head[0], head[2], head[3]] != HEADER {
        return None;
    }
    let pointer_bytes = match head[1] & 0x0F {
        0x03 | 0x0B => 4,
        _ => return None,
    };
    let table = header.wrapping_add(4 + pointer_bytes + 4);
    let wanted = i32::try_from(address.wrapping_sub(header) as i64).ok()?;
    let (mut low, mut high) = (0, word32(&head, 8)?);
    while high - low > BLOCK {
        let middle = low + (high - low) / 2;
        let mut entry = [0; 4];
        if !program_memory::read(table.wrapping_add(u64::from(middle) * 8), &mut entry) {
            return None;
        }
        if i32::from_le_bytes(entry) <= wanted { low = middle } else { high = middle }
    }
    let mut block = [0; BLOCK as usize * 8];
    let block = &mut block[..(high - low) as usize * 8];
    if !program_memory::read(table.wrapping_add(u64::from(low) * 8), block) {
        return None;
    }
    let pairs = block.as_chunks::<8>().0.iter().map(|pair| u64::from_le_bytes(*pair));
    let pair = pairs.take_while(|pair| *pair as i32 <= wanted).last()?;
    Some(header.wrapping_add_signed(i64::from((pair >> 32) as i32)))
}

/// Copies a record of `.eh_frame` with its length in front of it; returns how long it is.
fn copy(from: u64, to: &mut [u8]) -> Option<usize> {
    let mut length = [0; 4];
    if !program_memory::read(from, &mut length) {
        return None;
    }
    let total = (u32::from_le_bytes(length) as usize).checked_add(4)?;
    program_memory::read(from, to.get_mut(..total)?).then_some(total)
}

/// Puts the preamble and the description behind each other, as if they were a section of their own.
fn read(fde: u64, address: u64, room: &mut Room) -> Option<Rule> {
    let Room { bytes, context, has_context } = room;
    let fde_bytes = copy(fde, &mut bytes[MAX_CIE_BYTES..])?;
    let pointer = word32(bytes, MAX_CIE_BYTES + 4)?;
    let cie_bytes = copy(fde.wrapping_add(4).wrapping_sub(pointer.into()), &mut bytes[..MAX_CIE_BYTES])?;
    let at = cie_bytes.next_multiple_of(4);
    bytes.copy_within(MAX_CIE_BYTES..MAX_CIE_BYTES + fde_bytes, at);
    bytes.get_mut(at + 4..at + 8)?.copy_from_slice(&(at as u32 + 4).to_le_bytes());
    let section = Section::new(&bytes[..at + fde_bytes], LittleEndian);
    // Addresses are relative to the place where they stand.
    let bases = BaseAddresses::default().set_eh_frame(fde.wrapping_sub(at as u64));
    let fde = section.fde_from_offset(&bases, at.into(), Section::cie_from_offset).ok()?;
    if !*has_context {
        make(context);
        *has_context = true;
    }
    // SAFETY: written above, or before that.
    let context = unsafe { context.assume_init_mut() };
    let row = fde.unwind_info_for_address(&section, &bases, context, address).ok()?;
    Some(understand(&section, row, fde.is_signal_trampoline()))
}

/// Apart, because it passes over the stack on its way.
#[cold]
#[inline(never)]
fn make(context: &mut MaybeUninit<UnwindContext<usize, Storage>>) {
    context.write(UnwindContext::new_in());
}

#[inline(never)]
fn understand(section: &Section<'_>, row: &UnwindTableRow<usize, Storage>, is_signal: bool) -> Rule {
    let offset = |value: i64| i32::try_from(value).ok();
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register: X86_64::RSP, offset: value } => offset(*value).map(Cfa::Stack),
        CfaRule::RegisterAndOffset { register: X86_64::RBP, offset: value } => offset(*value).map(Cfa::Frame),
        CfaRule::RegisterAndOffset { .. } => None,
        CfaRule::Expression(expression) => match based(section, expression) {
            // The stack pointer's place among the registers that the kernel saves (`struct sigcontext`).
            Some((DW_OP_BREG7, SIGNAL_SP, true)) if is_signal => return Rule::Signal,
            Some((DW_OP_BREG6, value, true)) => offset(value).map(Cfa::BehindFrame),
            _ => None,
        },
    };
    let rbp = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::SameValue) => Rbp::Same,
        Some(RegisterRule::Offset(value)) => offset(value).map_or(Rbp::Lost, Rbp::AtCfa),
        Some(RegisterRule::Expression(expression)) => match based(section, &expression) {
            Some((DW_OP_BREG6, value, false)) => offset(value).map_or(Rbp::Lost, Rbp::AtFrame),
            _ => Rbp::Lost,
        },
        Some(_) => Rbp::Lost,
    };
    match (row.register(X86_64::RA), cfa) {
        (Some(RegisterRule::Undefined), _) => Rule::End,
        (Some(RegisterRule::Offset(-8)), Some(cfa)) if !is_signal => Rule::Frame(cfa, rbp),
        _ => Rule::Unknown,
    }
}

const DW_OP_DEREF: u8 = 0x06;
const DW_OP_BREG6: u8 = 0x76;
const DW_OP_BREG7: u8 = 0x77;

/// The two sorts of expressions that compilers and the C library make: a register (the operation that names it) plus an
/// offset, and what lies there (`true`).
fn based(section: &Section<'_>, expression: &UnwindExpression<usize>) -> Option<(u8, i64, bool)> {
    let bytes = expression.get(section).ok()?.0.slice();
    let (operation, rest) = bytes.split_first()?;
    let mut value = 0i64;
    let mut shift = 0;
    for (index, byte) in rest.iter().take(5).enumerate() {
        value |= i64::from(byte & 0x7F) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            let value = if byte & 0x40 != 0 { value - (1 << shift) } else { value };
            return match &rest[index + 1..] {
                [] => Some((*operation, value, false)),
                [DW_OP_DEREF] => Some((*operation, value, true)),
                _ => None,
            };
        }
    }
    None
}
