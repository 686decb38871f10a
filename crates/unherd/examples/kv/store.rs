//! A key/value store in a file, with a write-ahead log beside it.
//!
//! The data file is a hash table of [`SLOT`] bytes a slot; page 0 has the *base*: the log sequence
//! number (LSN) of the first record that the data may lack, and the *epoch*, a number for each
//! opening. The log is a row of records, each with the slots that one transaction writes.
//!
//! | step | of a commit | what a crash then leaves |
//! |---|---|---|
//! | 1 | the record is written to the log, in memory | nothing of it |
//! | 2 | its slots are written to the data, each page held until the LSN | nothing of it |
//! | 3 | the log is synced; commits that overlap share the flush | all of it, by the log |
//! | 4 | the pages are released up to the LSN | the same |
//!
//! A *checkpoint* syncs the data, then the base, and begins the log again at its front. Opening the
//! store does what the records from the base on say, up to the first that is torn, of another epoch
//! or not the next, and makes a checkpoint.
//!
//! A transaction can be read when it is in memory, a little before it is durable.

use std::io::{self, ErrorKind};
use std::num::NonZeroU64;

use unherd::{Cache, Error, File, Mutex, OpenOptions, PageNo};

/// A value; shorter ones end with zeros.
pub(crate) type Value = [u8; 24];

/// Bytes of a key and a value.
const SLOT: usize = 32;
/// Bytes of a record before its slots: checksum, LSN, how many slots.
const HEADER: usize = 24;

/// The store; all calls may be made by many threads.
#[derive(Debug)]
pub(crate) struct Store {
    data: File,
    log: File,
    page_bytes: usize,
    slots: u64,
    log_bytes: u64,
    epoch: u64,
    writer: Mutex<Writer>,
}

/// What one thread has while it adds a transaction.
#[derive(Debug)]
struct Writer {
    lsn: u64,
    /// Where in the log the next record comes.
    log_at: u64,
    is_broken: bool,
}

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// FNV-1a over the epoch and the bytes.
fn checksum(epoch: u64, bytes: &[u8]) -> u64 {
    let all = epoch.to_le_bytes().into_iter().chain(bytes.iter().copied());
    all.fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Store {
    /// Opens `NAME.data` and `NAME.log`, or makes them, for `pages` pages of data; of a store that
    /// is there it must be the number that it was made with. Does what a crash has left to do.
    pub(crate) fn open(cache: &Cache, name: &str, pages: u64, log_bytes: u64) -> io::Result<Self> {
        let options = OpenOptions::new().write(true).create(true);
        let data = cache.open(format!("{name}.data"), options.clone())?;
        let log = cache.open(format!("{name}.log"), options)?;
        for file in [&data, &log] {
            match file.sync_all() {
                // By an opening that failed: it was not committed, or the log has it.
                Ok(()) | Err(Error::LostWrites { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let page_bytes = cache.page_bytes();
        let mut header = [0; 16];
        data.read_at(&mut header, 0)?;
        let (lsn, epoch) = (number(&header, 0).max(1), number(&header, 8));
        let slots = (pages - 1) * (page_bytes / SLOT) as u64;
        let writer = Mutex::new(Writer { lsn, log_at: 0, is_broken: false });
        let mut store = Self { data, log, page_bytes, slots, log_bytes, epoch, writer };
        let mut writer = Writer { lsn, log_at: 0, is_broken: false };
        let mut log = vec![0; store.log.len().min(log_bytes) as usize];
        store.log.read_at(&mut log, 0)?;
        let mut rest = &log[..];
        while let Some((slots, after)) = next_record(rest, epoch, writer.lsn) {
            for slot in slots.chunks_exact(8 + SLOT) {
                store.write_slot(number(slot, 0), &slot[8..], None)?;
            }
            writer.lsn += 1;
            rest = after;
        }
        // Records that were torn off must not fit behind new ones.
        store.epoch += 1;
        store.checkpoint(&mut writer)?;
        store.writer = Mutex::new(writer);
        Ok(store)
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: NonZeroU64) -> io::Result<Option<Value>> {
        let found = self.find(key, &[])?;
        Ok(found.and_then(|(_, value)| value))
    }

    /// Sets all of these, or none; returns when they are durable. If the log fails, it is not known
    /// whether they are, and the store takes no more: open it again.
    pub(crate) fn commit(&self, changes: &[(NonZeroU64, Value)]) -> io::Result<()> {
        let (lsn, end) = {
            let mut writer = self.writer.lock();
            if writer.is_broken {
                return Err(io::Error::other("a commit has failed: open the store again"));
            }
            self.add(&mut writer, changes)?
        };
        // From the front: records of others that come before must be durable as well.
        if let Err(error) = self.log.sync_range(0..end) {
            self.writer.lock().is_broken = true;
            return Err(error.into());
        }
        self.data.release_to(lsn);
        Ok(())
    }

    /// Writes a transaction to the log, and to the data. Gives its LSN, and where its record ends.
    fn add(&self, writer: &mut Writer, changes: &[(NonZeroU64, Value)]) -> io::Result<(u64, u64)> {
        let mut taken = Vec::new();
        let mut record = vec![0; HEADER];
        for (key, value) in changes {
            let (slot, _) = self.find(*key, &taken)?.ok_or(ErrorKind::StorageFull)?;
            taken.push((slot, *key));
            record.extend(slot.to_le_bytes());
            record.extend(key.get().to_le_bytes());
            record.extend(value);
        }
        if writer.log_at + record.len() as u64 > self.log_bytes {
            if record.len() as u64 > self.log_bytes {
                return Err(ErrorKind::FileTooLarge.into());
            }
            let made = self.checkpoint(writer);
            writer.is_broken = made.is_err();
            made?;
        }
        record[8..16].copy_from_slice(&writer.lsn.to_le_bytes());
        record[16..24].copy_from_slice(&(changes.len() as u64).to_le_bytes());
        let sum = checksum(self.epoch, &record[8..]);
        record[..8].copy_from_slice(&sum.to_le_bytes());
        let (lsn, end) = (writer.lsn, writer.log_at + record.len() as u64);
        let added =
            self.log.write_all_at(&record, writer.log_at).map_err(io::Error::from).and_then(|()| {
                let mut slots = record[HEADER..].chunks_exact(8 + SLOT);
                slots.try_for_each(|slot| {
                    self.write_slot(number(slot, 0), &slot[8..], Some((lsn, end)))
                })
            });
        writer.is_broken = added.is_err();
        added?;
        (writer.lsn, writer.log_at) = (lsn + 1, end);
        Ok((lsn, end))
    }

    /// Writes to a slot; of a transaction, with the page held until its LSN.
    fn write_slot(&self, slot: u64, bytes: &[u8], log: Option<(u64, u64)>) -> io::Result<()> {
        let (page, at) = self.place(slot);
        let mut page = self.data.page_mut(page)?;
        if let Some((lsn, end)) = log
            && let Err(error) = page.hold_until(lsn)
        {
            if !matches!(error, Error::TooManyHeld { .. }) {
                return Err(error.into());
            }
            // Too many pages wait for the log: now they need not.
            self.log.sync_range(0..end)?;
            self.data.release_to(lsn);
        }
        page.write(at, bytes);
        Ok(())
    }

    /// Makes the data durable, and begins the log again.
    fn checkpoint(&self, writer: &mut Writer) -> io::Result<()> {
        self.log.sync_range(0..writer.log_at)?;
        self.data.release_to(writer.lsn - 1);
        self.data.sync_all()?;
        // Not before: the base says that all below it is in the data.
        let mut header = [0; 16];
        header[..8].copy_from_slice(&writer.lsn.to_le_bytes());
        header[8..].copy_from_slice(&self.epoch.to_le_bytes());
        self.data.write_all_at(&header, 0)?;
        self.data.sync_range(0..16)?;
        writer.log_at = 0;
        Ok(())
    }

    fn place(&self, slot: u64) -> (PageNo, usize) {
        let of_page = (self.page_bytes / SLOT) as u64;
        (PageNo(1 + slot / of_page), (slot % of_page) as usize * SLOT)
    }

    /// The slot of a key, with its value, or the one that it would get; none if there is none.
    /// Those that are `taken` count as written.
    fn find(
        &self,
        key: NonZeroU64,
        taken: &[(u64, NonZeroU64)],
    ) -> io::Result<Option<(u64, Option<Value>)>> {
        let first = checksum(0, &key.get().to_le_bytes()) % self.slots;
        for slot in (first..self.slots).chain(0..first) {
            let (page, at) = self.place(slot);
            let mut bytes = [0; SLOT];
            self.data.read_at(&mut bytes, page.0 * self.page_bytes as u64 + at as u64)?;
            let by = taken.iter().find(|(taken, _)| *taken == slot).map(|(_, key)| key.get());
            match by.unwrap_or(number(&bytes, 0)) {
                0 => return Ok(Some((slot, None))),
                found if found == key.get() => {
                    let (_, value) = bytes.split_at(8);
                    return Ok(Some((slot, value.try_into().ok())));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

/// The slots of the record at the front of the log, if it is whole and has that LSN; and the rest.
fn next_record(log: &[u8], epoch: u64, lsn: u64) -> Option<(&[u8], &[u8])> {
    if log.len() < HEADER || number(log, 8) != lsn {
        return None;
    }
    let slots = usize::try_from(number(log, 16)).ok()?;
    let (record, rest) = log.split_at_checked(slots.checked_mul(8 + SLOT)?.checked_add(HEADER)?)?;
    (checksum(epoch, &record[8..]) == number(record, 0)).then_some((&record[HEADER..], rest))
}
