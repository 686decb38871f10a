//! Random operations, against a `Vec<u8>`.

use std::path::Path;

use proptest::prelude::*;
use unherd_cache::{Cache, Error, File, Io, OpenOptions, PageGuard, PageNo};
use unherd_sys::primitives::Arc;
use unherd_testkit::{Failure, FaultPlan, FileModel};

use crate::page_hook::Cipher;
use crate::scene::{BOTH, cases, close, real_devices, real_dir, sim, small, turn, writable};

const HANDLES: usize = 3;

#[derive(Debug, Clone)]
pub(crate) enum Op {
    Read { handle: usize, offset: u64, len: usize },
    Write { handle: usize, offset: u64, len: usize, fill: u8 },
    Change { handle: usize, page: u64, at: usize, len: usize, fill: u8 },
    SetLen { handle: usize, len: u64 },
    PunchHole { handle: usize, offset: u64, len: u64 },
    Allocate { handle: usize, offset: u64, len: u64 },
    Sync { handle: usize },
    Pin { handle: usize, page: u64 },
    Unpin,
    Stream { handle: usize, pages: Vec<u64> },
}

/// Offsets near page ends are as likely as all others together.
fn offsets(page_bytes: u64, pages: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        0..pages * page_bytes,
        (0..pages, 0..5_u64).prop_map(move |(page, d)| (page * page_bytes + d).saturating_sub(2)),
    ]
}

pub(crate) fn ops(page_bytes: usize, count: usize) -> impl Strategy<Value = Vec<Op>> {
    let page = page_bytes as u64;
    let at = || offsets(page, 14);
    let len = prop_oneof![1..page_bytes * 3, Just(page_bytes), 1..20_usize];
    let handle = 0..HANDLES;
    let op = prop_oneof![
        4 => (handle.clone(), at(), len.clone())
            .prop_map(|(handle, offset, len)| Op::Read { handle, offset, len }),
        5 => (handle.clone(), at(), len, 1..=255_u8)
            .prop_map(|(handle, offset, len, fill)| Op::Write { handle, offset, len, fill }),
        // Whole pages, which need no read.
        2 => (handle.clone(), 0..14_u64, 1..=255_u8).prop_map(move |(handle, at, fill)| {
            Op::Write { handle, offset: at * page, len: page_bytes, fill }
        }),
        2 => (handle.clone(), 0..14_u64, 0..page_bytes, 0..page_bytes, 1..=255_u8).prop_map(
            move |(handle, page, at, len, fill)| {
                Op::Change { handle, page, at, len: len.min(page_bytes - at), fill }
            }
        ),
        1 => (handle.clone(), at()).prop_map(|(handle, len)| Op::SetLen { handle, len }),
        1 => (handle.clone(), at(), 0..page * 6)
            .prop_map(|(handle, offset, len)| Op::PunchHole { handle, offset, len }),
        1 => (handle.clone(), at(), 0..page * 2)
            .prop_map(|(handle, offset, len)| Op::Allocate { handle, offset, len }),
        1 => handle.clone().prop_map(|handle| Op::Sync { handle }),
        2 => (handle, 0..16_u64).prop_map(|(handle, page)| Op::Pin { handle, page }),
        1 => Just(Op::Unpin),
        1 => (0..HANDLES, prop::collection::vec(0..16_u64, 1..12))
            .prop_map(|(handle, pages)| Op::Stream { handle, pages }),
    ];
    prop::collection::vec(op, 1..count)
}

/// What is written: no two bytes in a row alike, so that shifted data is seen.
fn content(len: usize, fill: u8) -> Vec<u8> {
    (0..len).map(|i| fill.wrapping_add((i % 251) as u8)).collect()
}

/// The page of the model, with zeros beyond its end.
fn model_page(model: &FileModel, page: u64, page_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; page_bytes];
    model.read_at(page * page_bytes as u64, &mut bytes);
    bytes
}

/// A scene in which operations may fail, but may not do harm.
pub(crate) struct Scene<'a> {
    pub(crate) files: &'a [File],
    pub(crate) model: FileModel,
    guards: Vec<(PageGuard<'a>, Vec<u8>)>,
    page_bytes: usize,
    may_fail: bool,
    /// The file's length is a multiple of it.
    len_unit: u64,
}

impl<'a> Scene<'a> {
    pub(crate) fn new(files: &'a [File], page_bytes: usize, may_fail: bool) -> Self {
        let model = FileModel::default();
        Self { files, model, guards: Vec::new(), page_bytes, may_fail, len_unit: 1 }
    }

    /// Of a file with a page hook.
    pub(crate) fn of_whole_pages(self) -> Self {
        Self { len_unit: self.page_bytes as u64, ..self }
    }

    fn allowed<T>(&self, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                assert!(self.may_fail, "{error}");
                None
            }
        }
    }

    pub(crate) fn run(&mut self, op: &Op) {
        match *op {
            Op::Read { handle, offset, len } => {
                let (mut got, mut expected) = (vec![0xee; len], vec![0xee; len]);
                let read = self.files[handle].read_at(&mut got, offset);
                if let Some(read) = self.allowed(read) {
                    assert_eq!(read, self.model.read_at(offset, &mut expected));
                    assert!(got == expected, "{len} bytes at {offset}");
                }
                let page = offset / self.page_bytes as u64;
                let mut peeked = vec![0; self.page_bytes];
                let look = self.files[handle].peek(PageNo(page), |it| it.copy_to(0, &mut peeked));
                if self.allowed(look).is_some() {
                    let expected = model_page(&self.model, page, self.page_bytes);
                    assert!(peeked == expected, "peek of page {page}");
                }
            }
            Op::Write { handle, offset, len, fill } => {
                let bytes = content(len, fill);
                let written = self.files[handle].write_at(&bytes, offset);
                if let Some(written) = self.allowed(written) {
                    assert!(written == len || self.may_fail);
                    self.model.write_at(offset, &bytes[..written]);
                }
            }
            Op::Change { handle, page, at, len, fill } => {
                let held = self.files[handle].page_mut(PageNo(page));
                if let Some(mut held) = self.allowed(held) {
                    let expected = model_page(&self.model, page, self.page_bytes);
                    assert!(held[..] == expected[..], "page {page}, to be changed");
                    let bytes = content(len, fill);
                    held.write(at, &bytes);
                    assert!(held[at..at + len] == bytes);
                    if len > 0 {
                        let offset = page * self.page_bytes as u64 + at as u64;
                        self.model.write_at(offset, &bytes);
                    }
                }
            }
            Op::SetLen { handle, len } => {
                let set = self.files[handle].set_len(len);
                if self.allowed(set).is_some() {
                    self.model.set_len(len);
                }
            }
            Op::PunchHole { handle, offset, len } => {
                let page = self.page_bytes as u64;
                // A hole that fails between whole pages and the parts at its ends is there in part.
                let range = if self.may_fail {
                    offset / page * page..(offset + len).next_multiple_of(page)
                } else {
                    offset..offset + len
                };
                if self.allowed(self.files[handle].punch_hole(range.clone())).is_some() {
                    self.model.punch_hole(range);
                }
            }
            Op::Allocate { handle, offset, len } => {
                let range = offset..offset + len;
                let allocated = self.files[handle].allocate(range.clone());
                if self.allowed(allocated).is_some() && len > 0 {
                    self.model.allocate(range);
                }
            }
            Op::Sync { handle } => {
                let synced = self.files[handle].sync_all();
                self.allowed(synced);
            }
            Op::Pin { handle, page } => {
                // More pins than this would leave no frame to work with.
                if self.guards.len() < 2 {
                    let pinned = self.files[handle].page(PageNo(page));
                    if let Some(guard) = self.allowed(pinned) {
                        let expected = model_page(&self.model, page, self.page_bytes);
                        assert!(guard[..] == expected[..], "page {page}");
                        self.guards.push((guard, expected));
                    }
                }
            }
            Op::Unpin => drop(self.guards.pop()),
            Op::Stream { handle, ref pages } => {
                if self.guards.len() < 2 {
                    let file = &self.files[handle];
                    file.prefetch(&[PageNo(pages[0] + 1)]);
                    let stream = file.stream(pages.iter().copied().map(PageNo));
                    for (&page, guard) in pages.iter().zip(stream) {
                        if let Some(guard) = self.allowed(guard) {
                            let expected = model_page(&self.model, page, self.page_bytes);
                            assert!(guard[..] == expected[..], "page {page} of a stream");
                        }
                    }
                }
            }
        }
        self.model.set_len(self.model.len().next_multiple_of(self.len_unit));
        for (guard, expected) in &self.guards {
            assert!(guard[..] == expected[..], "a pinned page has changed");
        }
        assert!(self.files.iter().all(|file| file.len() == self.model.len()));
    }
}

pub(crate) fn open_all(cache: &Cache, path: &Path, options: &OpenOptions) -> Vec<File> {
    (0..HANDLES).map(|_| cache.open(path, options.clone()).unwrap()).collect()
}

fn read_all(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.len() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

/// Runs without faults; gives the model.
fn run_clean(cache: &Cache, path: &Path, options: &OpenOptions, ops: &[Op]) -> FileModel {
    let files = open_all(cache, path, options);
    let mut scene = Scene::new(&files, cache.page_bytes(), false);
    if *options != writable() {
        scene = scene.of_whole_pages();
    }
    for op in ops {
        scene.run(op);
    }
    scene.model
}

fn check_on_sim(io: Io, page_bytes: usize, ops: &[Op]) {
    let device = sim(1, FaultPlan::default());
    let cache = small(6, page_bytes)
        .device(device.clone())
        .io(io)
        .flush_behind(2 * page_bytes as u64)
        .build()
        .unwrap();
    let model = run_clean(&cache, Path::new("f"), &writable(), ops);
    // The handles are gone: everything is on the device, and the file is as long as it should be.
    assert!(device.bytes("f").unwrap() == model.bytes(), "after the last handle");
}

/// Errors, short transfers and delays: what succeeds is right, and when they stop all is well.
fn check_with_faults(io: Io, seed: u64, ops: &[Op], sync: Failure, hook: Option<Arc<Cipher>>) {
    let plan = FaultPlan {
        read: Failure::per_mille(60),
        write: Failure::per_mille(150),
        sync,
        short_per_mille: 250,
        held_reaps_max: 3,
        reorder: true,
        ..FaultPlan::default()
    };
    let device = sim(seed, plan);
    let cache = small(6, 1024).device(device.clone()).io(io).flush_behind(2048).build().unwrap();
    let options = hook.iter().fold(writable(), |it, hook| it.page_hook(hook.clone()));
    let files = open_all(&cache, Path::new("f"), &options);
    let mut scene = Scene::new(&files, 1024, true);
    if hook.is_some() {
        scene = scene.of_whole_pages();
    }
    let on_device = || {
        let mut bytes = device.bytes("f").unwrap();
        if hook.is_some() {
            Cipher::apply_all(&mut bytes, 1024);
        }
        bytes
    };
    for op in ops {
        scene.run(op);
    }
    device.set_faults(FaultPlan::default());
    let model = std::mem::take(&mut scene.model);
    drop(scene);
    for file in &files {
        // The first may report what went wrong before.
        let _ = file.sync_all();
        match file.sync_all() {
            Ok(()) => assert!(on_device() == model.bytes(), "after a sync"),
            Err(Error::LostDurability { .. }) => assert_ne!(sync, Failure::default()),
            Err(error) => panic!("the faults have stopped, and yet: {error}"),
        }
    }
    assert!(read_all(&files[0]) == model.bytes());
    drop(files);
    assert!(on_device() == model.bytes(), "after the last handle");
}

proptest! {
    #![proptest_config(cases(96))]

    #[test]
    fn on_a_simulated_device(ops in ops(1024, 60)) {
        let _turn = turn();
        for io in BOTH {
            check_on_sim(io, 1024, &ops);
        }
    }

    #[test]
    fn with_pages_of_one_sector(ops in ops(512, 60)) {
        let _turn = turn();
        for io in BOTH {
            check_on_sim(io, 512, &ops);
        }
    }
}

// Writes that fail are tried again a tenth of a second later: most of the time they wait.
proptest! {
    #![proptest_config(cases(32))]

    #[test]
    fn with_failing_reads_and_writes(seed: u64, ops in ops(1024, 60)) {
        let _turn = turn();
        for io in BOTH {
            check_with_faults(io, seed, &ops, Failure::default(), None);
            check_with_faults(io, seed, &ops, Failure::default(), Some(Arc::new(Cipher)));
        }
    }

    #[test]
    fn with_failing_syncs(seed: u64, ops in ops(1024, 60)) {
        let _turn = turn();
        for io in BOTH {
            check_with_faults(io, seed, &ops, Failure::per_mille(400), None);
        }
    }
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn on_the_real_device(ops in ops(4096, 60)) {
        let _turn = turn();
        for (io, device) in real_devices() {
            let dir = real_dir();
            let cache = small(6, 4096).io(io).device(device).build().unwrap();
            let path = dir.path().join(format!("{io:?}"));
            let model = run_clean(&cache, &path, &writable(), &ops);
            assert!(std::fs::read(&path).unwrap() == model.bytes());
            let path = dir.path().join(format!("{io:?} with a hook"));
            let model = run_clean(&cache, &path, &writable().page_hook(Arc::new(Cipher)), &ops);
            let mut bytes = std::fs::read(&path).unwrap();
            Cipher::apply_all(&mut bytes, 4096);
            assert!(bytes == model.bytes());
        }
    }
}

/// Files that end at every place around a page's end, written, cut and read again.
#[test]
fn every_end_around_a_page_boundary() {
    let _turn = turn();
    let device = sim(2, FaultPlan::default());
    for io in BOTH {
        let cache = small(8, 512).device(device.clone()).io(io).flush_behind(1024).build().unwrap();
        for len in (0..1100_usize).filter(|len| len % 512 < 40 || len % 512 > 470) {
            let bytes = content(len, 7);
            let file = cache.open("f", writable().truncate(true)).unwrap();
            assert_eq!(file.write_at(&bytes, 0).unwrap(), len);
            file.sync_all().unwrap();
            assert!(device.bytes("f").unwrap() == bytes, "{len} bytes, synced");
            drop(file);
            let file = cache.open("f", writable()).unwrap();
            assert!(read_all(&file) == bytes, "{len} bytes, read again");
            // Cut, then made longer: what was cut must not come back.
            let cut = len / 2;
            file.set_len(cut as u64).unwrap();
            file.set_len(len as u64 + 3).unwrap();
            let mut expected = bytes[..cut].to_vec();
            expected.resize(len + 3, 0);
            assert!(read_all(&file) == expected, "{len} bytes, cut and grown");
            drop(file);
            assert!(device.bytes("f").unwrap() == expected, "{len} bytes, cut, grown, closed");
        }
    }
}

/// Hard links and several handles are one file.
#[test]
fn handles_of_one_inode_share_everything() {
    let _turn = turn();
    let dir = real_dir();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    let cache = small(8, 4096).build().unwrap();
    let one = cache.open(&a, writable()).unwrap();
    std::fs::hard_link(&a, &b).unwrap();
    let two = cache.open(&b, writable()).unwrap();
    one.write_at(b"shared", 5000).unwrap();
    let mut got = [0; 6];
    assert_eq!(two.read_at(&mut got, 5000).unwrap(), 6);
    assert_eq!((&got, two.len()), (b"shared", 5006));
    two.set_len(5001).unwrap();
    assert_eq!(one.len(), 5001);
    drop(one);
    assert_eq!(two.read_at(&mut got, 5000).unwrap(), 1);
    close(two).unwrap();
    assert_eq!(std::fs::metadata(&a).unwrap().len(), 5001);
}

#[test]
fn the_device_is_dropped_with_the_cache() {
    let _turn = turn();
    let device = sim(3, FaultPlan::default());
    for io in BOTH {
        let cache = small(8, 512).device(device.clone()).io(io).flush_behind(1024).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        drop(cache);
        // A file keeps its cache alive.
        file.write_at(&[1; 2000], 0).unwrap();
        close(file).unwrap();
    }
    assert_eq!(Arc::strong_count(&device), 1, "an I/O thread still runs");
}
