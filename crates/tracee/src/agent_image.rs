//! The agent's image, as the build made it.

use agent_abi::{AgentHeader, AGENT_BASE, AGENT_LEN_MAX, GATE_LEN, PROTOCOL_VERSION};

static IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent.bin"));

/// The agent's code, and where things are in it.
#[derive(Clone, Copy, Debug)]
pub struct AgentImage {
    /// Addresses in every process.
    pub header: AgentHeader,
}

impl AgentImage {
    /// The image that this program was built with.
    pub fn built_in() -> Self {
        let word = |i: usize| {
            let at = GATE_LEN as usize + i * 8;
            u64::from_le_bytes(IMAGE[at..at + 8].try_into().expect("eight bytes"))
        };
        let header = AgentHeader {
            version: word(0),
            entry: word(1),
            entry_saved: word(2),
            init: word(3),
            gate_program: word(4),
            gate_program_after: word(5),
            gate_effect_after: word(6),
            gate_open_own_after: word(7),
            gate_open_own_noted: word(8),
            gate_close_own_after: word(9),
            gate_clone_after: word(10),
            gate_clone_end: word(11),
            leave: word(12),
            leave_end: word(13),
            end: word(14),
        };
        assert_eq!(header.version, u64::from(PROTOCOL_VERSION), "the agent speaks another protocol");
        assert!(header.end - AGENT_BASE <= AGENT_LEN_MAX && IMAGE.len() as u64 <= header.end - AGENT_BASE);
        Self { header }
    }

    /// Its bytes, from `AGENT_BASE` on.
    pub fn bytes(&self) -> &'static [u8] {
        IMAGE
    }

    /// Whether this address is in the agent.
    pub fn contains(&self, address: u64) -> bool {
        (AGENT_BASE..self.header.end).contains(&address)
    }
}

#[cfg(test)]
mod tests {
    /// Every vector register is the program's: an agent that used one would corrupt it (pitfall 8).
    #[test]
    fn the_agent_uses_no_vector_registers() {
        use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};
        let image = super::AgentImage::built_in();
        let text = &image.bytes()[(image.header.entry - agent_abi::AGENT_BASE) as usize..];
        let mut info = InstructionInfoFactory::new();
        let mut seen = 0;
        for instruction in Decoder::with_ip(64, text, image.header.entry, DecoderOptions::NONE) {
            if instruction.is_invalid() {
                continue;
            }
            seen += 1;
            // Constants stand behind the code; decoded as instructions they may look like anything, but the code itself
            // is found by its calls: everything up to the last return belongs to it.
            for used in info.info(&instruction).used_registers() {
                assert!(
                    !used.register().is_vector_register() || instruction.ip() > last_return(text, image.header.entry),
                    "{instruction} at {:#x}",
                    instruction.ip()
                );
            }
        }
        assert!(seen > 1000, "there is code to look at");
    }

    fn last_return(text: &[u8], base: u64) -> u64 {
        let end = text.len() - 3;
        // `ret` followed by padding: int3 or zero.
        let mut last = 0;
        for i in 0..end {
            if text[i] == 0xc3 && text[i + 1] == 0xcc && text[i + 2] == 0xcc {
                last = i;
            }
        }
        base + last as u64
    }
}
