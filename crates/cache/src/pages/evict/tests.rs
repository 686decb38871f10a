use std::cell::RefCell;
use std::rc::Rc;

use unherd_sys::primitives::Arc;
use unherd_testkit::{Seed, SimDevice};

use crate::{Cache, Io, OpenOptions, PageNo};

type Action = Box<dyn FnOnce()>;

thread_local! {
    /// What shall happen once, while this thread gives up pages and has unlocked the pool.
    static WHILE_UNLOCKED: RefCell<Option<Action>> = const { RefCell::new(None) };
}

pub(super) fn while_unlocked() {
    if let Some(action) = WHILE_UNLOCKED.take() {
        action();
    }
}

#[test]
fn who_searched_while_pages_were_given_up_is_told_of_the_frames() {
    const FRAMES: usize = 256;
    let cache = Cache::builder().io(Io::Blocking).page_size(512).capacity(FRAMES * 512);
    let cache = cache.device(Arc::new(SimDevice::new(Seed::new(1)))).build().unwrap();
    let file = cache.open("f", OpenOptions::new().write(true).create(true)).unwrap();
    file.set_len(FRAMES as u64 * 512).unwrap();
    (0..FRAMES as u64).for_each(|page| drop(file.page(PageNo(page)).unwrap()));
    let core = &cache.owner.core;
    let key = |page| core.key(&core.files.all()[0], PageNo(page));
    let before = core.pages.index.lookup(key(0)).unwrap();
    let seen = Rc::new(RefCell::new(None));
    WHILE_UNLOCKED.set(Some({
        let (core, seen) = (core.clone(), seen.clone());
        // A waiter enters, has looked, and is about to sleep.
        Box::new(move || {
            let waiters = &core.supply().waiters;
            std::mem::forget(waiters.enter());
            *seen.borrow_mut() = Some(waiters.idled());
        })
    }));
    let (claim, _) = core.pages.try_take_next(key(FRAMES as u64), before);
    assert!(claim.is_some(), "an extent was freed");
    let seen = seen.borrow().expect("the pool was unlocked");
    assert_ne!(core.supply().waiters.idled(), seen);
}
