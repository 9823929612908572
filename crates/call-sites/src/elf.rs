//! As much of an ELF file as planning needs: loadable segments, sections, and bytes by address.
//!
//! Nothing in a file is trusted: every read is checked, every sum wraps, and what does not parse is absent.

use crate::{ElfKind, PlanError, PAGE};

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const DT_TEXTREL: u64 = 22;
const DT_FLAGS: u64 = 30;
const DF_TEXTREL: u64 = 4;
const SHF_EXECINSTR: u64 = 4;

/// One `PT_LOAD` program header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub offset: u64,
    pub vaddr: u64,
    pub file_size: u64,
    pub mem_size: u64,
    pub executable: bool,
    pub writable: bool,
}

impl Load {
    /// Where in the file the first page of the mapping begins.
    pub fn page_offset(&self) -> u64 {
        self.offset & !(PAGE - 1)
    }

    /// The address of the first page of the mapping.
    pub fn page_vaddr(&self) -> u64 {
        self.vaddr & !(PAGE - 1)
    }

    /// Length of the file-backed pages, bytes.
    pub fn page_len(&self) -> u64 {
        (self.offset % PAGE + self.file_size).next_multiple_of(PAGE)
    }

    /// The address after the last byte that the segment has in memory.
    pub fn end(&self) -> u64 {
        self.vaddr.wrapping_add(self.mem_size.max(self.file_size))
    }

    fn plausible(&self) -> bool {
        const LIMIT: u64 = 1 << 47;
        self.vaddr < LIMIT
            && self.mem_size < LIMIT
            && self.file_size < LIMIT
            && self.offset < LIMIT
            && self.offset % PAGE == self.vaddr % PAGE
    }
}

/// One section header, with its name.
#[derive(Clone, Debug)]
pub(crate) struct Section<'a> {
    pub name: &'a [u8],
    pub kind: u32,
    pub executable: bool,
    pub vaddr: u64,
    pub bytes: &'a [u8],
}

/// A 64-bit x86 ELF file.
pub(crate) struct Elf<'a> {
    pub bytes: &'a [u8],
    pub kind: ElfKind,
    pub loads: Vec<Load>,
    pub sections: Vec<Section<'a>>,
    /// Address of `.eh_frame_hdr`, from `PT_GNU_EH_FRAME`.
    pub eh_frame_hdr: Option<u64>,
    /// The loader writes into the text of this file.
    pub text_relocations: bool,
}

impl<'a> Elf<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PlanError> {
        if bytes.get(..4) != Some(b"\x7fELF") {
            return Err(PlanError::NotElf);
        }
        let machine = read_u16(bytes, 18).ok_or(PlanError::NotElf)?;
        if bytes.get(4..6) != Some(&[2, 1]) || machine != 62 {
            return Err(PlanError::NotX86_64);
        }
        let kind = match read_u16(bytes, 16) {
            Some(2) => ElfKind::Exec,
            Some(3) => ElfKind::Dyn,
            _ => return Err(PlanError::NotLoadable),
        };
        let mut elf =
            Elf { bytes, kind, loads: Vec::new(), sections: Vec::new(), eh_frame_hdr: None, text_relocations: false };
        elf.read_program_headers().ok_or(PlanError::BadProgramHeaders)?;
        elf.read_sections();
        Ok(elf)
    }

    fn read_program_headers(&mut self) -> Option<()> {
        let table = read_u64(self.bytes, 32)?;
        let size = u64::from(read_u16(self.bytes, 54)?);
        let count = u64::from(read_u16(self.bytes, 56)?);
        if size < 56 {
            return None;
        }
        let mut dynamic = None;
        for index in 0..count {
            let at = usize::try_from(table.checked_add(index * size)?).ok()?;
            let header = self.bytes.get(at..at.checked_add(56)?)?;
            let flags = read_u32(header, 4)?;
            let load = Load {
                offset: read_u64(header, 8)?,
                vaddr: read_u64(header, 16)?,
                file_size: read_u64(header, 32)?,
                mem_size: read_u64(header, 40)?,
                executable: flags & 1 != 0,
                writable: flags & 2 != 0,
            };
            match read_u32(header, 0)? {
                PT_LOAD if load.plausible() => self.loads.push(load),
                PT_LOAD => return None,
                PT_DYNAMIC => dynamic = Some((load.offset, load.file_size)),
                PT_GNU_EH_FRAME => self.eh_frame_hdr = Some(load.vaddr),
                _ => {}
            }
        }
        if let Some((offset, size)) = dynamic {
            self.text_relocations = has_text_relocations(file_range(self.bytes, offset, size).unwrap_or_default());
        }
        Some(())
    }

    /// Sections are a help, not a need: a stripped or odd table leaves the list empty or short.
    fn read_sections(&mut self) {
        let mut names_index = None;
        let headers = self.section_headers().unwrap_or_default();
        if let Some(index) = read_u16(self.bytes, 62) {
            names_index = headers.get(usize::from(index)).copied();
        }
        let names = names_index.and_then(|h| section_bytes(self.bytes, h)).unwrap_or_default();
        self.sections = headers
            .iter()
            .filter_map(|header| {
                let name_at = read_u32(header, 0)? as usize;
                let name = names.get(name_at..).unwrap_or_default();
                Some(Section {
                    name: name.split(|&b| b == 0).next().unwrap_or_default(),
                    kind: read_u32(header, 4)?,
                    executable: read_u64(header, 8)? & SHF_EXECINSTR != 0,
                    vaddr: read_u64(header, 16)?,
                    bytes: section_bytes(self.bytes, header).unwrap_or_default(),
                })
            })
            .collect();
    }

    fn section_headers(&self) -> Option<Vec<&'a [u8]>> {
        let table = usize::try_from(read_u64(self.bytes, 40)?).ok()?;
        let size = usize::from(read_u16(self.bytes, 58)?);
        let count = usize::from(read_u16(self.bytes, 60)?);
        if table == 0 || size < 64 {
            return None;
        }
        let all = self.bytes.get(table..table.checked_add(size * count)?)?;
        Some(all.chunks_exact(size).collect())
    }

    pub fn section(&self, name: &[u8]) -> Option<&Section<'a>> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// The file's own bytes of a segment, without the rest of its pages.
    pub fn load_bytes(&self, load: &Load) -> &'a [u8] {
        let rest = usize::try_from(load.offset).ok().and_then(|offset| self.bytes.get(offset..)).unwrap_or_default();
        let len = usize::try_from(load.file_size).unwrap_or(usize::MAX).min(rest.len());
        &rest[..len]
    }

    /// The segment's pages as the kernel maps them: the file's bytes, then zeros beyond its end.
    pub fn load_pages(&self, load: &Load) -> Option<Vec<u8>> {
        let start = usize::try_from(load.page_offset()).ok()?;
        let len = usize::try_from(load.page_len()).ok()?;
        let rest = self.bytes.get(start..)?;
        // Pages wholly beyond the file's end would be SIGBUS, not zeros: such a file is damaged.
        if len > rest.len().next_multiple_of(PAGE as usize) {
            return None;
        }
        let mut pages = Vec::with_capacity(len);
        pages.extend_from_slice(&rest[..len.min(rest.len())]);
        pages.resize(len, 0);
        Some(pages)
    }

    /// File-backed bytes from `vaddr` to the end of its segment.
    pub fn bytes_from(&self, vaddr: u64) -> Option<&'a [u8]> {
        self.loads.iter().find_map(|load| {
            let at = usize::try_from(vaddr.checked_sub(load.vaddr)?).ok()?;
            self.load_bytes(load).get(at..).filter(|bytes| !bytes.is_empty())
        })
    }

    /// Do the sections say that `vaddr` is code? `None` if no section says so of anything. Linkers put read-only data
    /// into executable segments too.
    pub fn sections_say_code(&self, vaddr: u64) -> Option<bool> {
        let mut code = self.sections.iter().filter(|section| section.executable).peekable();
        code.peek()?;
        Some(code.any(|section| vaddr.wrapping_sub(section.vaddr) < section.bytes.len() as u64))
    }

    /// Is `vaddr` in a segment that can be executed?
    pub fn is_code(&self, vaddr: u64) -> bool {
        self.loads.iter().any(|load| load.executable && vaddr.wrapping_sub(load.vaddr) < load.file_size)
    }
}

fn has_text_relocations(dynamic: &[u8]) -> bool {
    dynamic.chunks_exact(16).any(|entry| match (read_u64(entry, 0), read_u64(entry, 8)) {
        (Some(DT_TEXTREL), _) => true,
        (Some(DT_FLAGS), Some(flags)) => flags & DF_TEXTREL != 0,
        _ => false,
    })
}

fn section_bytes<'a>(file: &'a [u8], header: &[u8]) -> Option<&'a [u8]> {
    const SHT_NOBITS: u32 = 8;
    if read_u32(header, 4)? == SHT_NOBITS {
        return None;
    }
    file_range(file, read_u64(header, 24)?, read_u64(header, 32)?)
}

fn file_range(file: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    file.get(start..start.checked_add(usize::try_from(size).ok()?)?)
}

pub(crate) fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

pub(crate) fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

pub(crate) fn read_i32(bytes: &[u8], at: usize) -> Option<i32> {
    read_u32(bytes, at).map(|value| value as i32)
}

pub(crate) fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
