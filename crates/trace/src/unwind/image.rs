//! The unwind tables of a mapped file.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use framehop::ExplicitModuleSectionInfo;
use object::{Object, ObjectSection, ObjectSegment, ReadCache, SegmentFlags, elf};

use super::Bytes;
use crate::observation::Mapping;

/// The largest table that is read: that of a browser is a fifth of it.
const SECTION_BYTES_MAX: u64 = 64 << 20;

/// What of a file is needed to unwind its code.
pub(super) struct Image {
    segments: Vec<Segment>,
    sections: ExplicitModuleSectionInfo<Bytes>,
}

/// A part of the file that is code, and the address that the file has for it.
struct Segment {
    in_file: Range<u64>,
    address: u64,
}

impl Image {
    /// Reads the tables; `None` if it is no 64-bit ELF file with such, or they take more than this.
    pub(super) fn read(path: &Path, room_bytes: u64) -> Option<Self> {
        let file = ReadCache::new(File::open(path).ok()?);
        let parsed = object::File::parse(&file).ok()?;
        if !parsed.is_64() {
            return None;
        }
        let segments = parsed.segments().filter_map(|segment| {
            let (start, len) = segment.file_range();
            let in_file = start..start.checked_add(len)?;
            is_code(segment.flags()).then_some(Segment { in_file, address: segment.address() })
        });
        let segments = segments.collect();
        let range = |name: &str| {
            let section = parsed.section_by_name(name)?;
            Some(section.address()..section.address().checked_add(section.size())?)
        };
        let bytes = |name: &str| {
            let section = parsed.section_by_name(name)?;
            // Two are read.
            let small = section.size() <= SECTION_BYTES_MAX.min(room_bytes / 2);
            small.then(|| section.data().ok()).flatten().map(Bytes::from)
        };
        let sections = ExplicitModuleSectionInfo {
            // Addresses are the file's own, whatever it calls its base.
            base_svma: 0,
            text_svma: range(".text"),
            got_svma: range(".got"),
            eh_frame_svma: range(".eh_frame"),
            eh_frame: Some(bytes(".eh_frame")?),
            eh_frame_hdr_svma: range(".eh_frame_hdr"),
            eh_frame_hdr: bytes(".eh_frame_hdr"),
            ..ExplicitModuleSectionInfo::default()
        };
        Some(Self { segments, sections })
    }

    /// What its tables take.
    pub(super) fn bytes(&self) -> u64 {
        let tables = [&self.sections.eh_frame, &self.sections.eh_frame_hdr];
        tables.into_iter().flatten().map(|table| table.len() as u64).sum()
    }

    pub(super) fn sections(&self) -> ExplicitModuleSectionInfo<Bytes> {
        self.sections.clone()
    }

    /// What the process adds to the file's addresses.
    pub(super) fn base(&self, mapping: &Mapping) -> Option<u64> {
        // Mappings begin at a page, segments where they like. No page is larger than this.
        const PAGE_BYTES: u64 = 65536;
        let holds = |segment: &&Segment| {
            let Range { start, end } = segment.in_file;
            (start - start % PAGE_BYTES..end).contains(&mapping.offset)
        };
        let segment = self.segments.iter().find(holds)?;
        let address = mapping.offset.wrapping_sub(segment.in_file.start);
        mapping.start.checked_sub(address.wrapping_add(segment.address))
    }
}

fn is_code(flags: SegmentFlags) -> bool {
    matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags.0 & elf::PF_X.0 != 0)
}
