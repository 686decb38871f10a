//! Pages pass a hook on their way to the device and back.

use unherd_cache::{Cache, Errno, Error, File, Operation, PageHook, PageNo};
use unherd_sys::primitives::{Arc, AtomicU64, Ordering};
use unherd_testkit::FaultPlan;

use crate::scene::{BOTH, close, sim, small, turn, writable};

const PAGE: usize = 1024;

/// Encrypts each sector by its place, and leaves those of zeros, of which holes are made.
#[derive(Debug)]
pub(crate) struct Cipher;

impl Cipher {
    fn apply(page: PageNo, bytes: &mut [u8]) {
        for (sector, bytes) in bytes.chunks_mut(512).enumerate() {
            if bytes.iter().any(|&byte| byte != 0) {
                let mut key = page.0 * 64 + sector as u64 + 1;
                for byte in bytes {
                    key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    *byte ^= (key >> 56) as u8;
                }
            }
        }
    }

    /// Decrypts a file.
    pub(crate) fn apply_all(file: &mut [u8], page_bytes: usize) {
        for (page, bytes) in file.chunks_mut(page_bytes).enumerate() {
            Self::apply(PageNo(page as u64), bytes);
        }
    }
}

impl PageHook for Cipher {
    fn before_write(&self, page: PageNo, bytes: &mut [u8]) -> Result<(), Errno> {
        Self::apply(page, bytes);
        Ok(())
    }

    fn after_read(&self, page: PageNo, bytes: &mut [u8]) -> Result<(), Errno> {
        Self::apply(page, bytes);
        Ok(())
    }
}

/// The last byte of a page is the sum of the others and of its number. Fails as it is told to.
#[derive(Debug, Default)]
struct Sums {
    /// This page, counted from 1, is not written; from 1,001 on, the hook panics.
    refused: AtomicU64,
}

impl PageHook for Sums {
    fn before_write(&self, page: PageNo, bytes: &mut [u8]) -> Result<(), Errno> {
        match self.refused.load(Ordering::Relaxed) {
            refused if refused == page.0 + 1 => return Err(Errno::ACCESS),
            refused if refused == page.0 + 1001 => panic!("a hook that panics"),
            _ => {}
        }
        let (sum, content) = bytes.split_last_mut().unwrap();
        *sum = sum_of(page, content);
        Ok(())
    }

    fn after_read(&self, page: PageNo, bytes: &mut [u8]) -> Result<(), Errno> {
        assert_ne!(self.refused.load(Ordering::Relaxed), page.0 + 1001, "a hook that panics");
        let (sum, content) = bytes.split_last().unwrap();
        let is_hole = bytes.iter().all(|&byte| byte == 0);
        if is_hole || *sum == sum_of(page, content) { Ok(()) } else { Err(Errno::BADMSG) }
    }
}

fn sum_of(page: PageNo, content: &[u8]) -> u8 {
    content.iter().fold(page.0 as u8 + 1, |sum, &byte| sum.wrapping_add(byte))
}

fn errno_of<T: std::fmt::Debug>(result: Result<T, Error>, on: Operation, page: u64) -> Errno {
    match result {
        Err(Error::Io { operation, offset, errno, .. }) => {
            assert_eq!((operation, offset), (on, page * PAGE as u64));
            errno
        }
        other => panic!("{other:?}"),
    }
}

fn fill(file: &File, pages: u64) {
    for page in 0..pages {
        file.write_at(&[page as u8 + 1; PAGE], page * PAGE as u64).unwrap();
    }
}

#[test]
fn memory_has_what_was_written_and_the_device_what_the_hook_made() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(1, FaultPlan::default());
        let open = |cache: &Cache| cache.open("f", writable().page_hook(Arc::new(Cipher))).unwrap();
        let cache = small(64, PAGE).device(device.clone()).io(io).build().unwrap();
        let file = open(&cache);
        fill(&file, 40);
        let pinned = file.page(PageNo(3)).unwrap();
        file.sync_all().unwrap();
        assert_eq!(pinned[..], [4; PAGE], "the hook has changed a pinned page");
        let mut on_device = device.bytes("f").unwrap();
        assert!(on_device.chunks(PAGE).all(|page| page.iter().any(|&byte| byte != page[0])));
        Cipher::apply_all(&mut on_device, PAGE);
        assert!(on_device.chunks(PAGE).enumerate().all(|(at, page)| page[7] == at as u8 + 1));
        drop(pinned);
        drop(file);
        drop(cache);
        // By one read of many pages, and with a hole.
        let cache = small(64, PAGE).device(device).io(io).build().unwrap();
        let file = open(&cache);
        file.punch_hole(5 * PAGE as u64..7 * PAGE as u64).unwrap();
        let mut all = vec![0xee; 40 * PAGE];
        assert_eq!(file.read_at(&mut all, 0).unwrap(), all.len());
        for (at, page) in all.chunks(PAGE).enumerate() {
            let expected = if (5..7).contains(&at) { 0 } else { at as u8 + 1 };
            assert!(page.iter().all(|&byte| byte == expected), "page {at}");
        }
    }
}

#[test]
fn a_damaged_page_is_an_error_for_those_alone_who_ask_for_it() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(1, FaultPlan::default());
        let cache = small(64, PAGE).device(device.clone()).io(io).build().unwrap();
        let open = || cache.open("f", writable().page_hook(Arc::new(Sums::default()))).unwrap();
        let file = open();
        fill(&file, 20);
        close(file).unwrap();
        let mut bytes = device.bytes("f").unwrap();
        bytes[9 * PAGE + 77] ^= 0x10;
        device.put("f", &bytes);
        let file = open();
        let all = file.read_at(&mut vec![0; 20 * PAGE], 0);
        assert_eq!(errno_of(all, Operation::Read, 9), Errno::BADMSG);
        for _ in 0..2 {
            assert_eq!(errno_of(file.page(PageNo(9)), Operation::Read, 9), Errno::BADMSG);
        }
        assert_eq!(file.page(PageNo(10)).unwrap()[0], 11);
        assert_eq!(file.page(PageNo(8)).unwrap()[0], 9);
        // It can be written as a whole, and is good then.
        file.write_at(&[1; PAGE], 9 * PAGE as u64).unwrap();
        close(file).unwrap();
        assert_eq!(open().page(PageNo(9)).unwrap()[0], 1);
    }
}

#[test]
fn what_a_hook_refuses_or_panics_at_stays_dirty() {
    let _turn = turn();
    for io in BOTH {
        for (refused, errno) in [(6, Errno::ACCESS), (1006, Errno::IO)] {
            let device = sim(1, FaultPlan::default());
            let cache = small(64, PAGE).device(device.clone()).io(io).build().unwrap();
            let hook = Arc::new(Sums::default());
            let file = cache.open("f", writable().page_hook(hook.clone())).unwrap();
            hook.refused.store(refused, Ordering::Relaxed);
            fill(&file, 20);
            assert_eq!(errno_of(file.sync_all(), Operation::Write, 5), errno);
            assert_eq!(file.page(PageNo(5)).unwrap()[0], 6);
            hook.refused.store(0, Ordering::Relaxed);
            file.sync_all().unwrap();
            assert_eq!(device.bytes("f").unwrap()[5 * PAGE], 6);
            drop(file);
            let file = cache.open("f", writable().page_hook(hook.clone())).unwrap();
            hook.refused.store(1006, Ordering::Relaxed);
            assert_eq!(errno_of(file.page(PageNo(5)), Operation::Read, 5), Errno::IO);
            hook.refused.store(0, Ordering::Relaxed);
            assert_eq!(file.page(PageNo(5)).unwrap()[0], 6);
        }
    }
}

#[test]
fn all_handles_of_a_file_have_one_hook() {
    let _turn = turn();
    let cache = small(8, PAGE).device(sim(1, FaultPlan::default())).build().unwrap();
    let options = writable().page_hook(Arc::new(Cipher));
    let refused =
        |tried: Result<File, Error>| assert!(matches!(tried, Err(Error::OtherHook { .. })));
    let file = cache.open("f", options.clone()).unwrap();
    cache.open("f", options.clone()).unwrap();
    refused(cache.open("f", writable()));
    refused(cache.open("f", writable().page_hook(Arc::new(Cipher))));
    drop(file);
    let _plain = cache.open("f", writable()).unwrap();
    refused(cache.open("f", options));
}

#[test]
fn a_file_with_a_hook_has_whole_pages() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(1, FaultPlan::default());
        // A length that a crash may leave.
        device.put("f", &[0; 300]);
        let cache = small(8, PAGE).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable().page_hook(Arc::new(Cipher))).unwrap();
        assert_eq!(file.len(), PAGE as u64);
        file.write_at(b"0123456789", 3 * PAGE as u64 - 5).unwrap();
        assert_eq!(file.len(), 4 * PAGE as u64);
        file.allocate(0..5 * PAGE as u64 + 1).unwrap();
        assert_eq!(file.len(), 6 * PAGE as u64);
        file.set_len(3 * PAGE as u64 - 1).unwrap();
        assert_eq!(file.len(), 3 * PAGE as u64);
        close(file).unwrap();
        let mut bytes = device.bytes("f").unwrap();
        Cipher::apply_all(&mut bytes, PAGE);
        assert_eq!((bytes.len(), &bytes[3 * PAGE - 5..]), (3 * PAGE, &b"0123\0"[..]));
    }
}

/// Runs of many copies, of which the device takes a part at a time.
#[test]
fn copies_survive_short_writes() {
    let _turn = turn();
    for io in BOTH {
        let plan = FaultPlan { short_per_mille: 600, held_reaps_max: 3, ..FaultPlan::default() };
        let device = sim(7, plan);
        let cache = small(65_536, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable().page_hook(Arc::new(Cipher))).unwrap();
        let content: Vec<u8> = (0..512 * 512_u32).map(|at| (at / 512 + at) as u8 | 1).collect();
        file.write_all_at(&content, 0).unwrap();
        file.sync_all().unwrap();
        let mut bytes = device.bytes("f").unwrap();
        Cipher::apply_all(&mut bytes, 512);
        assert!(bytes == content);
        let transfers = cache.stats().write_transfers;
        assert!(transfers < 512 / 8, "{transfers} transfers of 512 pages: no runs were made");
    }
}

/// A hook that is dropped by the I/O thread, or panics then, does it no harm.
#[test]
fn the_drop_of_a_hook_is_foreign_code() {
    struct Owning(Option<File>);
    impl Drop for Owning {
        fn drop(&mut self) {
            drop(self.0.take());
            std::panic::panic_any(PanicsAgain);
        }
    }
    struct PanicsAgain;
    impl Drop for PanicsAgain {
        fn drop(&mut self) {
            panic!("the payload of a hook's panic");
        }
    }
    impl PageHook for Owning {
        fn before_write(&self, _: PageNo, _: &mut [u8]) -> Result<(), Errno> {
            Ok(())
        }

        fn after_read(&self, _: PageNo, _: &mut [u8]) -> Result<(), Errno> {
            Ok(())
        }
    }
    let _turn = turn();
    for io in BOTH {
        let device = sim(1, FaultPlan::default());
        let cache = small(64, PAGE).device(device.clone()).io(io).build().unwrap();
        let keys = cache.open("keys", writable()).unwrap();
        fill(&keys, 3);
        let hook = Arc::new(Owning(Some(keys)));
        let file = cache.open("f", writable().page_hook(hook)).unwrap();
        fill(&file, 20);
        close(file).unwrap();
        let file = cache.open("g", writable()).unwrap();
        fill(&file, 20);
        file.sync_all().unwrap();
    }
}
