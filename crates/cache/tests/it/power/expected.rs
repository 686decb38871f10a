//! What files may hold after a power cut, by the steps that were begun and those that had ended.
//!
//! | | in the cache | on the disk |
//! |---|---|---|
//! | a step has begun | as before it, or as it makes it | as before, or what the cache may have |
//! | it has ended | as it makes it | as before, or that |
//! | it has failed | as before it, or as it makes it | the same |
//! | a sync has ended | | what the cache may have, and nothing else |
//! | a close has failed | what the disk may have, too | |

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;

use crate::power::writers::{
    Act, FILES, LOG, Record, SECTOR_BYTES, Stage, log_byte, sector, version,
};

/// Versions of a sector.
#[derive(Debug, Clone)]
struct Sector {
    cached: BTreeSet<u64>,
    on_disk: BTreeSet<u64>,
}

#[derive(Debug, Clone)]
struct Contents {
    /// Its opening has returned.
    is_there: bool,
    sectors: Vec<Sector>,
    /// Lengths, in sectors.
    cached: RangeInclusive<u64>,
    on_disk: RangeInclusive<u64>,
}

fn widen(range: &mut RangeInclusive<u64>, by: &RangeInclusive<u64>) {
    *range = *range.start().min(by.start())..=*range.end().max(by.end());
}

impl Contents {
    fn sector(&mut self, at: u64) -> &mut Sector {
        let zeros = || Sector { cached: [0].into(), on_disk: [0].into() };
        if self.sectors.len() as u64 <= at {
            self.sectors.resize_with(at as usize + 1, zeros);
        }
        &mut self.sectors[at as usize]
    }

    fn set(&mut self, at: u64, version: u64, has_ended: bool) {
        let sector = self.sector(at);
        if has_ended {
            sector.cached.clear();
        }
        sector.cached.insert(version);
        sector.on_disk.insert(version);
    }

    fn set_len(&mut self, len: RangeInclusive<u64>, has_ended: bool) {
        if has_ended {
            self.cached = len.clone();
        } else {
            widen(&mut self.cached, &len);
        }
        widen(&mut self.on_disk, &len);
    }

    fn at_least(&mut self, len: u64, has_ended: bool) {
        if *self.cached.start() < len {
            let end = len.max(*self.cached.end());
            self.set_len(len..=end, has_ended);
        }
    }

    fn step(&mut self, step: &Record, page_sectors: u64) {
        let has_ended = step.stage == Stage::Done;
        if step.stage == Stage::Failed {
            if step.act == Act::Close {
                for sector in &mut self.sectors {
                    sector.cached.extend(&sector.on_disk);
                }
                widen(&mut self.cached, &self.on_disk.clone());
            }
            return;
        }
        match step.act {
            Act::Open => self.is_there |= has_ended,
            Act::Write => {
                (step.from..step.to).for_each(|at| self.set(at, step.version, has_ended));
                self.at_least(step.to, has_ended);
            }
            Act::SetLen => {
                let known = self.sectors.len() as u64;
                (step.to..known).for_each(|at| self.set(at, 0, has_ended));
                self.set_len(step.to..=step.to, has_ended);
            }
            Act::PunchHole => {
                let end = step.to.min(*self.cached.end());
                (step.from..end).for_each(|at| self.set(at, 0, has_ended));
            }
            Act::Allocate => self.at_least(step.to, has_ended),
            Act::Sync if !has_ended => {}
            Act::Sync if step.to == u64::MAX => {
                for sector in &mut self.sectors {
                    sector.on_disk.clone_from(&sector.cached);
                }
                self.on_disk = self.cached.clone();
            }
            Act::Sync => {
                let from = step.from - step.from % page_sectors;
                let end = step.to.next_multiple_of(page_sectors).min(*self.cached.start());
                for at in from..end {
                    let sector = self.sector(at);
                    sector.on_disk.clone_from(&sector.cached);
                    // The length is durable as far as it takes to read what was written.
                    if !sector.cached.contains(&0) {
                        let (least, most) = self.on_disk.clone().into_inner();
                        self.on_disk = least.max(at + 1)..=most;
                    }
                }
            }
            Act::Close => {}
        }
    }

    /// Gives how many sectors were synced and are there; or what is wrong.
    fn check(
        &self,
        file: u64,
        bytes: &[u8],
        page_bytes: usize,
        refused: bool,
    ) -> Result<usize, String> {
        let len = bytes.len();
        let [least, most] = [self.on_disk.start(), self.on_disk.end()];
        let most = (*most as usize * SECTOR_BYTES).next_multiple_of(page_bytes);
        if len < *least as usize * SECTOR_BYTES || len > most {
            return Err(format!("file {file}: {len} bytes, may be {:?} sectors", self.on_disk));
        }
        let mut synced = 0;
        let zeros = Sector { cached: [0].into(), on_disk: [0].into() };
        for (at, found) in bytes.chunks(SECTOR_BYTES).enumerate() {
            let Sector { cached, on_disk } = self.sectors.get(at).unwrap_or(&zeros);
            let is_known = on_disk
                .iter()
                .any(|&version| sector(file, at as u64, version)[..found.len()] == *found);
            // Of what was not synced the file system promises nothing where the disk has refused.
            if !(is_known || refused && cached != on_disk) {
                let found = found.get(..32).map(version);
                return Err(format!("file {file}, sector {at}: {found:?}, may be {on_disk:?}"));
            }
            synced += usize::from(on_disk.len() == 1 && !on_disk.contains(&0));
        }
        Ok(synced)
    }
}

/// What all files may hold.
#[derive(Debug)]
pub(super) struct Expected {
    files: Vec<Contents>,
    /// The log's first bytes, which are durable.
    log_bytes: u64,
    page_bytes: usize,
    refused: bool,
}

impl Expected {
    /// Of all `steps`, the first `ended` were noted before the power failed.
    pub(super) fn new(steps: &[Record], ended: usize, page_bytes: usize, refused: bool) -> Self {
        let empty =
            Contents { is_there: false, sectors: Vec::new(), cached: 0..=0, on_disk: 0..=0 };
        let mut files = vec![empty; FILES as usize];
        let mut log_bytes = 0;
        for (nth, step) in steps.iter().enumerate() {
            let was_told = nth < ended;
            if step.file == LOG {
                if was_told && step.act == Act::Sync {
                    log_bytes = log_bytes.max(step.to);
                }
            } else if was_told || !matches!(step.act, Act::Sync | Act::Open) {
                files[step.file as usize].step(step, (page_bytes / SECTOR_BYTES) as u64);
            }
        }
        Self { files, log_bytes, page_bytes, refused }
    }

    /// Compares the files in `dir` with it. Gives how many sectors were synced
    /// and are there; or what is wrong.
    pub(super) fn check(&self, dir: &Path) -> Result<usize, String> {
        let read = |file: u64| {
            let path = dir.join(file.to_string());
            std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let mut synced = 0;
        for (file, contents) in (0..).zip(&self.files).filter(|(_, contents)| contents.is_there) {
            synced += contents.check(file, &read(file)?, self.page_bytes, self.refused)?;
        }
        if self.log_bytes > 0 {
            let bytes = read(LOG)?;
            let durable = bytes.get(..self.log_bytes as usize);
            let durable = durable
                .ok_or_else(|| format!("the log: {} of {} bytes", bytes.len(), self.log_bytes))?;
            let is_wrong = |(at, byte): &(u64, &u8)| log_byte(*at) != **byte;
            if let Some((at, _)) = (0..).zip(durable).find(is_wrong) {
                return Err(format!("the log: byte {at} of {}", self.log_bytes));
            }
        }
        Ok(synced)
    }
}
