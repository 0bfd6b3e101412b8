//! How to get from a frame to its caller's, in one word.

/// Where the kernel keeps the interrupted stack pointer, from the stack pointer on that a handler returns with (`struct ucontext`
/// and `struct sigcontext` of x86-64).
pub(super) const SIGNAL_SP: i64 = 160;

/// Where the canonical frame address (CFA: the stack pointer as it was before the call) comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cfa {
    /// The stack pointer plus this.
    Stack(i32),
    /// rbp plus this.
    Frame(i32),
    /// What lies at rbp plus this: how GCC keeps it where a function aligns its stack.
    BehindFrame(i32),
}

/// Where the caller's rbp is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rbp {
    /// Still in rbp.
    Same,
    /// In the stack, at the CFA plus this.
    AtCfa(i32),
    /// In the stack, at rbp plus this.
    AtFrame(i32),
    /// Nowhere that is known.
    Lost,
}

/// What the call frame information says about one address. The return address always lies right below the CFA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Nothing that can be followed.
    Unknown,
    /// The thread's first frame.
    End,
    /// Where the kernel makes a signal handler return to: the interrupted registers lie at the stack pointer.
    Signal,
    /// An ordinary frame.
    Frame(Cfa, Rbp),
}

const OFFSET_BITS: u32 = 24;

impl Rule {
    /// As one word that is never 0; what doesn't fit is unknown.
    pub(super) fn pack(self) -> u64 {
        let (cfa, rbp) = match self {
            Rule::Unknown => return 1,
            Rule::End => return 2,
            Rule::Signal => return 3,
            Rule::Frame(cfa, rbp) => (cfa, rbp),
        };
        let (cfa_kind, cfa_offset) = match cfa {
            Cfa::Stack(offset) => (4, offset),
            Cfa::Frame(offset) => (5, offset),
            Cfa::BehindFrame(offset) => (6, offset),
        };
        let (rbp_kind, rbp_offset) = match rbp {
            Rbp::Same => (0, 0),
            Rbp::AtCfa(offset) => (1, offset),
            Rbp::AtFrame(offset) => (2, offset),
            Rbp::Lost => (3, 0),
        };
        if (rbp_offset << (32 - OFFSET_BITS)) >> (32 - OFFSET_BITS) != rbp_offset {
            return Rule::Unknown.pack();
        }
        cfa_kind
            | rbp_kind << 4
            | u64::from(rbp_offset as u32) << (64 - OFFSET_BITS) >> 32
            | u64::from(cfa_offset as u32) << 32
    }

    /// The rule of a word that [`Rule::pack`] made.
    #[inline(always)]
    pub(super) fn unpack(word: u64) -> Rule {
        let (cfa, rbp) = ((word >> 32) as i32, (word as i32) >> (32 - OFFSET_BITS));
        let cfa = match word & 15 {
            4 => Cfa::Stack(cfa),
            5 => Cfa::Frame(cfa),
            6 => Cfa::BehindFrame(cfa),
            2 => return Rule::End,
            3 => return Rule::Signal,
            _ => return Rule::Unknown,
        };
        let rbp = match word >> 4 & 3 {
            0 => Rbp::Same,
            1 => Rbp::AtCfa(rbp),
            2 => Rbp::AtFrame(rbp),
            _ => Rbp::Lost,
        };
        Rule::Frame(cfa, rbp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_return_from_their_word() {
        for rule in [Rule::Unknown, Rule::End, Rule::Signal] {
            assert_eq!(Rule::unpack(rule.pack()), rule);
        }
        for offset in [0, 8, -8, 16, 4096, i32::MAX, i32::MIN] {
            for cfa in [Cfa::Stack(offset), Cfa::Frame(offset), Cfa::BehindFrame(offset)] {
                for rbp in [Rbp::Same, Rbp::Lost, Rbp::AtCfa(-16), Rbp::AtCfa(-(1 << 23)), Rbp::AtFrame((1 << 23) - 1)]
                {
                    let rule = Rule::Frame(cfa, rbp);
                    assert_eq!(Rule::unpack(rule.pack()), rule);
                    assert_ne!(rule.pack(), 0);
                }
            }
        }
        assert_eq!(Rule::Frame(Cfa::Stack(8), Rbp::AtCfa(1 << 23)).pack(), Rule::Unknown.pack());
    }
}
