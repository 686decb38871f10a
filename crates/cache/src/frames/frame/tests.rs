use super::*;

const GENERATION: BusyGeneration = BusyGeneration(0);
const KEY: PageKey = PageKey { file: FileId(3), page: PageNo(5) };

fn one_frame() -> (Frames, Claim) {
    let (frames, mut claims) = Frames::new(1).unwrap();
    (frames, claims.pop().unwrap())
}

fn clean_page() -> (Frames, FrameId) {
    let (frames, claim) = one_frame();
    frames.install(&claim, KEY, State::Reading, GENERATION);
    let id = claim.id();
    assert_eq!(frames.try_pin(id).unwrap_err().state(), State::Reading);
    frames.publish(claim, State::Clean);
    (frames, id)
}

#[test]
fn pinned_pages_are_neither_changed_nor_evicted() {
    let (frames, id) = clean_page();
    let pin = frames.try_pin(id).unwrap();
    assert!(frames.try_change(id, GENERATION).is_err());
    assert!(frames.evict(id).is_err());
    let before = frames.unpin(pin);
    assert_eq!((before.pins(), before.state()), (1, State::Clean));
    let claim = frames.try_change(id, GENERATION).unwrap();
    frames.publish(claim, State::Dirty);
    assert!(frames.evict(id).is_err(), "dirty");
    let lent = frames.lend(id, GENERATION).unwrap();
    assert!(frames.try_change(id, GENERATION).is_err(), "in write-back");
    assert!(frames.detach(id).is_err(), "in write-back");
    assert!(frames.give_back(lent, Some(7)).is_evictable());
    assert_eq!((frames.key(id), frames.period(id)), (KEY, 7));
    frames.settle(id, State::Dirty);
    assert!(frames.evict(id).is_err(), "dirty again");
    frames.settle(id, State::Clean);
    assert_eq!(frames.word(id).state(), State::Dirty, "only unstable pages are settled");
}

#[test]
fn the_last_unpin_frees_a_detached_frame() {
    let (frames, id) = clean_page();
    let (first, second) = (frames.try_pin(id).unwrap(), frames.try_pin(id).unwrap());
    assert!(frames.detach(id).unwrap().1.is_none());
    assert!(frames.try_pin(id).is_err());
    assert_eq!(frames.unpin(first).pins(), 2);
    assert!(frames.free_detached(id).is_none(), "still pinned");
    let last = frames.unpin(second);
    assert_eq!((last.pins(), last.state()), (1, State::Detached));
    assert!(frames.free_detached(id).is_some());
    assert!(frames.free_detached(id).is_none(), "free already");
    assert_eq!(frames.word(id).state(), State::Empty);
}

#[test]
fn an_unpinned_frame_is_free_when_it_is_detached() {
    let (frames, id) = clean_page();
    assert!(frames.detach(id).unwrap().1.is_some());
    assert_eq!(frames.word(id).state(), State::Empty);
}

#[test]
fn use_is_forgotten_and_nothing_else() {
    let (frames, id) = clean_page();
    assert!(!frames.word(id).is_referenced(), "being brought in is no use");
    let pin = frames.try_pin(id).unwrap();
    assert!(frames.word(id).is_referenced());
    let again = frames.try_pin(id).unwrap();
    let _ = frames.unpin(again);
    assert_eq!(frames.word(id).uses(), 2);
    frames.forget_latest_use(id);
    assert_eq!(frames.word(id).uses(), 1);
    frames.forget_latest_use(id);
    assert_eq!(frames.word(id).uses(), 0, "the only one is the latest as well");
    let again = frames.try_pin(id).unwrap();
    let _ = frames.unpin(again);
    frames.forget_uses(id);
    let word = frames.word(id);
    assert_eq!((word.is_referenced(), word.pins(), word.state()), (false, 1, State::Clean));
    let _ = frames.unpin(pin);
}
