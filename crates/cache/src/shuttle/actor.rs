//! One thread of a simulated world, and what it does.

use unherd_sys::primitives::{Ordering, thread};
use unherd_testkit::{Content, Outcome, PageRead, Seed, Stamp};

use super::outsider::Shared;
use super::world::{FILES, PAGE_BYTES, World};
use crate::{Error, File, PageGuard, PageNo};

pub(super) struct Actor<'a> {
    world: &'a World,
    /// Those that stay open; the others are opened for each operation.
    files: &'a [File],
    number: usize,
    seed: Seed,
    /// Pages that stay pinned for a while, and what they held.
    kept: Vec<(PageGuard<'a>, Vec<u8>)>,
}

/// This many pages, from the first on.
fn run(first: Stamp, pages: u64) -> impl Iterator<Item = Stamp> + Clone {
    (first.page..first.page + pages).map(move |page| Stamp { page, ..first })
}

/// How many bytes of a page stay that is cut: mostly none.
fn any_tail(seed: &mut Seed) -> u64 {
    let header = Stamp::HEADER_BYTES as u64;
    if seed.below(3) == 0 { header + seed.below(PAGE_BYTES as u64 - header) } else { 0 }
}

/// What a page holds that is to be zeros, but of the first the beginning.
fn zeros(is_first: bool, tail: u64) -> Content {
    if is_first && tail > 0 { Content::Cut(tail as usize) } else { Content::Zeros }
}

fn offset(stamp: Stamp) -> u64 {
    stamp.page * PAGE_BYTES as u64
}

impl<'a> Actor<'a> {
    pub(super) fn new(world: &'a World, files: &'a [File], number: usize, seed: Seed) -> Self {
        Self { world, files, number, seed, kept: Vec::new() }
    }

    pub(super) fn run(mut self) {
        for _ in 0..self.world.plan.operations {
            let number = self.seed.below(FILES as u64) as usize;
            if let Some(file) = self.files.get(number) {
                self.operate(number, file);
                self.release_some(number, file);
                self.keep_one(number, file);
            } else if let Some(file) = self.world.allowed(self.world.open(number)) {
                self.operate(number, &file);
                let closed = if self.seed.coin() { file.close() } else { Ok(drop(file)) };
                self.world.allowed(closed);
            }
            if self.seed.below(8) == 0 {
                let touched = Shared::touch(self.world, &mut self.seed);
                self.world.allowed(touched);
            }
            self.unpin(false);
        }
        self.unpin(true);
    }

    fn operate(&mut self, number: usize, file: &File) {
        match self.seed.below(25) {
            0..4 => self.read_at(number, file),
            4..7 => self.page(number, file),
            7..10 => self.peek(number, file),
            10..14 => self.write_at(number, file),
            14..17 => self.page_mut(number, file),
            17 => self.set_len(number, file),
            18..20 => self.punch_hole(number, file),
            20 => {
                let first = self.any_page(number).page;
                let pages = first..(first + 1 + self.seed.below(4)).min(self.world.plan.pages);
                let synced = self.world.sync(number, file, pages.clone());
                self.world.note(self.number, &("sync", number, pages, synced));
            }
            21 => self.take_contiguous(),
            _ => {
                let synced = self.world.sync(number, file, 0..self.world.plan.pages);
                self.world.note(self.number, &("sync", number, synced));
            }
        }
    }

    /// No page gets the bytes that are written to a piece, and nobody else the piece.
    fn take_contiguous(&mut self) {
        let taken = self.world.cache.alloc_contiguous(self.seed.below(4) as u32);
        self.world.note(self.number, &("contiguous", taken.as_ref().ok()));
        match taken {
            Ok(mut piece) => {
                let bytes = vec![0xee; piece.len()];
                piece.write(0, &bytes);
                thread::yield_now();
                assert!(*piece == *bytes, "a piece was written by another");
            }
            Err(Error::ContiguousTooLarge { .. } | Error::NoContiguousFrames { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Also at its end, as a page that is held keeps its frame.
    fn release_some(&mut self, number: usize, file: &File) {
        if self.world.plan.holds_pages() && self.seed.coin() {
            self.world.release(number, file);
        }
    }

    fn any_page(&mut self, file: usize) -> Stamp {
        self.world.any_page(&mut self.seed, file)
    }

    fn any_run(&mut self, file: usize) -> (Stamp, u64) {
        let first = self.any_page(file);
        let pages = 1 + self.seed.below(3);
        (first, pages.min(self.world.plan.pages - first.page))
    }

    fn judge(&self, stamp: Stamp, read: PageRead, bytes: &[u8]) {
        let found = self.world.examine(self.number, stamp, bytes);
        let judged = self.world.history(stamp).end_read(read, found);
        judged.unwrap_or_else(|wrong| panic!("{stamp:?}: {wrong}"));
    }

    fn fail(&self, stamp: Stamp, read: PageRead) {
        self.world.note(self.number, &("failed", stamp));
        self.world.history(stamp).give_up(read);
    }

    fn read_at(&mut self, number: usize, file: &File) {
        let (first, pages) = self.any_run(number);
        let world = self.world;
        let reads: Vec<_> =
            run(first, pages).map(|it| (it, world.history(it).begin_read())).collect();
        // Aligned, for reads that keep nothing.
        let mut memory = vec![0xee; (pages as usize + 1) * PAGE_BYTES];
        let aligned = memory.as_ptr().align_offset(PAGE_BYTES);
        let buf = &mut memory[aligned..][..pages as usize * PAGE_BYTES];
        let cuts = || world.cuts[number].each_ref().map(|count| count.load(Ordering::Relaxed));
        let (cuts_before, is_kept) = (cuts(), self.seed.coin());
        let read = if is_kept {
            file.read_at(buf, offset(first))
        } else {
            file.read_uncached_at(buf, offset(first))
        };
        let read = world.allowed(read);
        let Some(bytes) = read else {
            return reads.into_iter().for_each(|(stamp, read)| self.fail(stamp, read));
        };
        let is_uncut = cuts() == cuts_before && cuts_before[0] == cuts_before[1];
        let is_untouched = buf[bytes..].iter().all(|&byte| byte == 0xee);
        assert!(is_untouched || !is_kept || !is_uncut, "bytes beyond what was read");
        buf[bytes..].fill(0);
        for ((stamp, read), bytes) in reads.into_iter().zip(buf.chunks(PAGE_BYTES)) {
            self.judge(stamp, read, bytes);
        }
    }

    fn page(&mut self, number: usize, file: &File) {
        let stamp = self.any_page(number);
        let read = self.world.history(stamp).begin_read();
        match self.world.allowed(file.page(PageNo(stamp.page))) {
            Some(guard) => {
                self.judge(stamp, read, &guard);
                let before = guard.to_vec();
                thread::yield_now();
                assert!(guard[..] == before[..], "a pinned page has changed");
            }
            None => self.fail(stamp, read),
        }
    }

    /// Pins a page for as long as some operations take.
    fn keep_one(&mut self, number: usize, file: &'a File) {
        // With more, there might be no frame left to work with.
        if !self.kept.is_empty() || self.seed.below(4) > 0 {
            return;
        }
        let stamp = self.any_page(number);
        let read = self.world.history(stamp).begin_read();
        match self.world.allowed(file.page(PageNo(stamp.page))) {
            Some(guard) => {
                self.judge(stamp, read, &guard);
                let before = guard.to_vec();
                self.kept.push((guard, before));
            }
            None => self.fail(stamp, read),
        }
    }

    fn unpin(&mut self, all: bool) {
        for (guard, before) in &self.kept {
            assert!(guard[..] == before[..], "a page that stayed pinned has changed");
        }
        if all || self.seed.below(3) == 0 {
            self.kept.clear();
        }
    }

    fn peek(&mut self, number: usize, file: &File) {
        let stamp = self.any_page(number);
        let read = self.world.history(stamp).begin_read();
        let mut bytes = vec![0; PAGE_BYTES];
        let halves = bytes.split_at_mut(PAGE_BYTES / 2);
        let looked = file.peek(PageNo(stamp.page), |page| {
            page.copy_to(0, halves.0)?;
            thread::yield_now();
            page.copy_to(PAGE_BYTES / 2, halves.1)
        });
        match self.world.allowed(looked) {
            Some(()) => self.judge(stamp, read, &bytes),
            None => self.fail(stamp, read),
        }
    }

    fn write_at(&mut self, number: usize, file: &File) {
        let (first, pages) = self.any_run(number);
        let world = self.world;
        let mut bytes = vec![0; pages as usize * PAGE_BYTES];
        let begun: Vec<_> = run(first, pages)
            .map(|it| (it, world.history(it).begin_write(Content::Stamped)))
            .collect();
        for (&(stamp, sequence), bytes) in begun.iter().zip(bytes.chunks_mut(PAGE_BYTES)) {
            stamp.fill(sequence, bytes);
        }
        let written = world.allowed(file.write_at(&bytes, offset(first))).unwrap_or(0);
        world.note(self.number, &("wrote", first, written));
        for ((stamp, sequence), pages) in begun.into_iter().zip(1..) {
            let is_done = written >= pages * PAGE_BYTES;
            let outcome = if is_done { Outcome::Done } else { Outcome::Failed };
            world.history(stamp).end_write(sequence, outcome);
        }
    }

    /// In two parts. Meanwhile what would wait for this thread itself is refused.
    fn page_mut(&mut self, number: usize, file: &File) {
        let stamp = self.any_page(number);
        let history = self.world.history(stamp);
        let read = history.begin_read();
        let Some(mut held) = self.world.allowed(file.page_mut(PageNo(stamp.page))) else {
            return self.fail(stamp, read);
        };
        self.judge(stamp, read, &held);
        // Where a file is closed now and then, a held page would be lost.
        if self.world.plan.holds_pages() && number < self.files.len() && self.seed.coin() {
            let lsn = self.world.held_until[number].fetch_add(1, Ordering::Relaxed) + 1;
            self.world.allowed(held.hold_until(lsn));
        }
        let sequence = history.begin_write(Content::Stamped);
        let mut page = vec![0; PAGE_BYTES];
        stamp.fill(sequence, &mut page);
        let (front, back) = page.split_at(self.seed.below(PAGE_BYTES as u64) as usize);
        held.write(front.len(), back);
        thread::yield_now();
        if self.seed.below(4) == 0 {
            let refused = file.sync_all();
            assert!(matches!(refused, Err(Error::WouldDeadlock { .. })), "{refused:?}");
        }
        held.write(0, front);
        assert!(held[..] == page[..], "{stamp:?} is not what its only writer wrote");
        drop(held);
        history.end_write(sequence, Outcome::Done);
        self.world.note(self.number, &("changed", stamp, sequence));
    }

    /// Zeros some pages; now and then the hole begins in the middle of the first.
    fn punch_hole(&mut self, number: usize, file: &File) {
        let world = self.world;
        let (first, pages) = self.any_run(number);
        // One that fails between whole pages and the parts at its ends is there in part.
        let may_fail = world.plan.waits_for_frames_end;
        let tail = if may_fail { 0 } else { any_tail(&mut self.seed) };
        let begun: Vec<_> = run(first, pages)
            .map(|stamp| (stamp, world.history(stamp).begin_write(zeros(stamp == first, tail))))
            .collect();
        let hole = offset(first) + tail..offset(first) + pages * PAGE_BYTES as u64;
        let is_done = world.allowed(file.punch_hole(hole)).is_some();
        world.note(self.number, &("hole", first, pages, tail, is_done));
        let outcome = if is_done { Outcome::Done } else { Outcome::Failed };
        for (stamp, sequence) in begun {
            world.history(stamp).end_write(sequence, outcome);
        }
    }

    /// Cuts the file, or lengthens it; mostly at the end of a page.
    fn set_len(&mut self, number: usize, file: &File) {
        let world = self.world;
        let first = self.any_page(number);
        let tail = any_tail(&mut self.seed);
        let begun: Vec<_> = run(first, self.world.plan.pages - first.page)
            .map(|stamp| (stamp, world.history(stamp).begin_write(zeros(stamp == first, tail))))
            .collect();
        world.cuts[number][0].fetch_add(1, Ordering::Relaxed);
        let is_done = world.allowed(file.set_len(offset(first) + tail)).is_some();
        world.cuts[number][1].fetch_add(1, Ordering::Relaxed);
        world.note(self.number, &("cut", first, tail, is_done));
        let outcome = if is_done { Outcome::Done } else { Outcome::Failed };
        for (stamp, sequence) in begun {
            world.history(stamp).end_write(sequence, outcome);
        }
    }
}
