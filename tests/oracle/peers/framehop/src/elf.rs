//! Sections and loaded segments of 64-bit little-endian ELF files, as much of them as framehop asks for.
//! Whatever the file says, nothing outside of its bytes is read.

use std::ops::Range;

const PT_LOAD: u32 = 1;
const SHT_NOBITS: u32 = 8;
const SHF_COMPRESSED: u64 = 0x800;
const PAGE: u64 = 4096;

pub struct Elf<'a> {
    pub bytes: &'a [u8],
}

struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    size: u64,
}

impl<'a> Elf<'a> {
    fn number<const SIZE: usize>(&self, offset: u64) -> Option<[u8; SIZE]> {
        self.slice(offset, SIZE as u64)?.try_into().ok()
    }

    fn half(&self, offset: u64) -> Option<u16> {
        Some(u16::from_le_bytes(self.number(offset)?))
    }

    fn word(&self, offset: u64) -> Option<u32> {
        Some(u32::from_le_bytes(self.number(offset)?))
    }

    fn long(&self, offset: u64) -> Option<u64> {
        Some(u64::from_le_bytes(self.number(offset)?))
    }

    fn slice(&self, offset: u64, size: u64) -> Option<&'a [u8]> {
        let (start, end) = (usize::try_from(offset).ok()?, usize::try_from(offset.checked_add(size)?).ok()?);
        self.bytes.get(start..end)
    }

    /// Where entry index of a table of headers is: the fields of the ELF header that say so.
    fn entry(&self, table: u64, entry_size: u64, index: u16) -> Option<u64> {
        let size = u64::from(self.half(entry_size)?);
        self.long(table)?.checked_add(size * u64::from(index))
    }

    /// The virtual address, as the file has it, of what is mapped from a file offset.
    pub fn address(&self, offset: u64) -> Option<u64> {
        (self.bytes.get(..6)? == b"\x7fELF\x02\x01").then_some(())?;
        for index in 0..self.half(0x38)? {
            let at = self.entry(0x20, 0x36, index)?;
            self.slice(at, 0x38)?; // so that sums below can't overflow
            let (start, address) = (self.long(at + 0x08)?, self.long(at + 0x10)?);
            let end = start.checked_add(self.long(at + 0x20)?)?;
            if self.word(at)? == PT_LOAD
                && (start / PAGE * PAGE..end).contains(&offset)
                && self.is_code(at)?
            {
                return Some(address.wrapping_add(offset).wrapping_sub(start));
            }
        }
        None
    }

    fn is_code(&self, header: u64) -> Option<bool> {
        Some(self.word(header + 4)? & 1 != 0)
    }

    fn section(&self, index: u16) -> Option<Section> {
        let at = self.entry(0x28, 0x3a, index)?;
        self.slice(at, 0x40)?; // so that sums below can't overflow
        Some(Section {
            name: self.word(at)?,
            kind: self.word(at + 0x04)?,
            flags: self.long(at + 0x08)?,
            address: self.long(at + 0x10)?,
            offset: self.long(at + 0x18)?,
            size: self.long(at + 0x20)?,
        })
    }

    fn find(&self, name: &str) -> Option<Section> {
        let names = self.section(self.half(0x3e)?)?;
        let names = self.slice(names.offset, names.size)?;
        (0..self.half(0x3c)?).filter_map(|index| self.section(index)).find(|section| {
            let rest = names.get(section.name as usize..).unwrap_or_default();
            rest.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
        })
    }

    /// The addresses, as the file has them, of a section.
    pub fn range(&self, name: &str) -> Option<Range<u64>> {
        let section = self.find(name)?;
        Some(section.address..section.address.checked_add(section.size)?)
    }

    /// What the file has of a section.
    pub fn data(&self, name: &str) -> Option<Vec<u8>> {
        let section = self.find(name)?;
        let is_plain = section.kind != SHT_NOBITS && section.flags & SHF_COMPRESSED == 0;
        is_plain.then(|| self.slice(section.offset, section.size))?.map(<[u8]>::to_vec)
    }
}
