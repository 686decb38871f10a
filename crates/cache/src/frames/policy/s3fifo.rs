//! S3-FIFO: a small queue for pages that are new, a main queue for those that proved themselves,
//! and a memory of pages that did not get the time to.
//!
//! J. Yang, Y. Zhang, Z. Qiu, Y. Yue, R. Vinayak, "FIFO queues are all you need for cache eviction"
//! (SOSP 2023). A new page enters the small queue. At its end, one that was used at least twice
//! moves to the main queue, any other is given up and remembered. A page that comes back while it
//! is remembered enters the main queue at once. At the end of the main queue a page goes round
//! again once for each use. So a scan passes through the small queue and leaves the main one alone,
//! and a hit writes nothing but a mark of use in its frame.
//!
//! | the paper | here | why |
//! |---|---|---|
//! | 10 % small | 15 % | chosen by the two traces of `docs/workloads.md` (policy), which it is therefore no proof on |
//! | up to 3 uses counted | up to 2 | two bits that are set one after the other cannot overflow |
//! | as many remembered as are in main | as many as there are frames | chosen as the first |
//!
//! What the paper does not have: frames that are in use, or whose page is dirty, go to the end of
//! their queue and are looked at again later. Where one queue has nothing else, the other is asked.

use super::queue::{Links, Queue};
use super::{Frames, Look, Search, Uses};

/// The small queue's part of the frames, in percent.
const SMALL_PCT: u64 = 15;

/// Uses at which a page leaves the small queue for the main one.
const PROMOTED_AT: u32 = 2;

/// Where a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    Small,
    Main,
    /// In no queue: its page, which was in that one, is being given up.
    IsolatedSmall,
    IsolatedMain,
}

/// S3-FIFO: two queues. Its owner remembers which pages were given up.
#[derive(Debug)]
pub(crate) struct S3Fifo {
    links: Links,
    small: Queue,
    main: Queue,
    places: Box<[Place]>,
    /// The small queue is asked first while it has this many, with those isolated from it.
    small_len: u32,
    isolated_small: u32,
}

fn small_len(frames: u32) -> u32 {
    (u64::from(frames) * SMALL_PCT / 100).max(1) as u32
}

impl S3Fifo {
    /// Empty queues for this many frames.
    pub(crate) fn new(frames: u32) -> Self {
        Self {
            links: Links::new(frames),
            small: Queue::new(),
            main: Queue::new(),
            places: vec![Place::Nowhere; frames as usize].into_boxed_slice(),
            small_len: small_len(frames),
            isolated_small: 0,
        }
    }

    /// A page was brought into `frame`; that is not a use of it. A frame that was admitted before
    /// loses its old page. `came_back` says whether the page was remembered, and is so no more.
    pub(crate) fn admit(&mut self, frame: u32, came_back: bool) {
        self.unlink(frame);
        self.push(frame, if came_back { Place::Main } else { Place::Small });
    }

    /// The page in `frame` was given up for want of frames. Says whether it is to be remembered.
    #[must_use]
    pub(crate) fn evicted(&mut self, frame: u32) -> bool {
        self.unlink(frame) == Place::Small
    }

    /// The page in `frame` is being given up: it is proposed to nobody else until
    /// [`S3Fifo::evicted`], or [`S3Fifo::put_back`].
    pub(crate) fn isolate(&mut self, frame: u32) {
        let isolated = match self.unlink(frame) {
            Place::Small => Place::IsolatedSmall,
            Place::Main => Place::IsolatedMain,
            place => place,
        };
        self.push(frame, isolated);
    }

    /// The page in `frame` could not be given up, if it was to be: it goes behind all others.
    pub(crate) fn put_back(&mut self, frame: u32) {
        if matches!(self.places[frame as usize], Place::IsolatedSmall | Place::IsolatedMain) {
            let place = self.unlink(frame);
            self.push(frame, place);
        }
    }

    /// The page in `frame` is no more: dropped, cut off, or never read. Nothing happens if there is
    /// none.
    pub(crate) fn remove(&mut self, frame: u32) {
        self.unlink(frame);
    }

    /// The page in `from` is now in another frame: in the same queue, behind all others, as it was
    /// just written. Nothing happens if there is none.
    pub(crate) fn transfer(&mut self, from: u32, to: u32) {
        let place = self.unlink(from);
        if place != Place::Nowhere {
            self.unlink(to);
            self.push(to, place);
        }
    }

    /// Whether a page that was used so often may be given up before its turn, because the frame
    /// beside it is: a run of pages that comes in moves faster in neighbouring frames.
    pub(crate) fn may_go_early(&self, frame: u32, uses: u32) -> bool {
        self.places[frame as usize] == Place::Small && uses < PROMOTED_AT
    }

    /// There are `frames` frames now, of those that it was made for.
    pub(crate) fn set_frames(&mut self, frames: u32) {
        self.small_len = small_len(frames);
    }

    /// Goes on with `search`, and gives the next idle frame with a clean page, or `None` at its
    /// end. A caller that cannot have it after all calls again: it was put behind the others.
    pub(crate) fn propose(&mut self, search: &mut Search, frames: &mut impl Frames) -> Option<u32> {
        let mut fruitless_scans = FruitlessScans::default();
        while let Some((frame, place)) = self.next(fruitless_scans)
            && let Some(look) = search.look(frame, frames)
        {
            self.unlink(frame);
            match (look, place) {
                (Look::Idle { uses: PROMOTED_AT.., .. }, Place::Small) => {
                    frames.forget(frame, Uses::All);
                    self.push(frame, Place::Main);
                    fruitless_scans = FruitlessScans::default();
                    continue;
                }
                (Look::Idle { uses: 1.., .. }, Place::Main) => {
                    frames.forget(frame, Uses::One);
                    self.push(frame, place);
                    fruitless_scans.main = 0;
                    continue;
                }
                _ => self.push(frame, place),
            }
            if let Look::Idle { page, .. } = look
                && search.can_have(frame, page)
            {
                return Some(frame);
            }
            match place {
                Place::Main => fruitless_scans.main += 1,
                _ => fruitless_scans.small += 1,
            }
        }
        None
    }

    fn push(&mut self, frame: u32, place: Place) {
        self.places[frame as usize] = place;
        match place {
            Place::Small => self.small.push(&mut self.links, frame),
            Place::Main => self.main.push(&mut self.links, frame),
            Place::IsolatedSmall => self.isolated_small += 1,
            Place::Nowhere | Place::IsolatedMain => {}
        }
    }

    /// Takes the frame from where it is, or was before it was isolated, which it gives.
    fn unlink(&mut self, frame: u32) -> Place {
        let place = std::mem::replace(&mut self.places[frame as usize], Place::Nowhere);
        match place {
            Place::Nowhere => {}
            Place::Small => self.small.unlink(&mut self.links, frame),
            Place::Main => self.main.unlink(&mut self.links, frame),
            Place::IsolatedSmall => {
                self.isolated_small -= 1;
                return Place::Small;
            }
            Place::IsolatedMain => return Place::Main,
        }
        place
    }

    /// The frame to look at next, of a queue that was not looked at as a whole in vain.
    fn next(&self, fruitless_scans: FruitlessScans) -> Option<(u32, Place)> {
        let of = |queue: &Queue, fruitless_scans: u32, place| {
            let frame = queue.oldest().filter(|_| fruitless_scans < queue.len());
            frame.map(|frame| (frame, place))
        };
        let small = of(&self.small, fruitless_scans.small, Place::Small);
        let main = of(&self.main, fruitless_scans.main, Place::Main);
        let small_len = self.small.len() + self.isolated_small;
        if small_len >= self.small_len { small.or(main) } else { main.or(small) }
    }
}

/// Frames of each queue in a row from which nothing was available.
#[derive(Debug, Clone, Copy, Default)]
struct FruitlessScans {
    small: u32,
    main: u32,
}
