//! Which frame holds a page.
//!
//! The pages of the cache are divided into shards. Each shard has a *segment*, a part of one open
//! hash table of words, for the pages that are in frames, and a map for the rest: pages that are
//! announced, and those few for which the segment was too full.
//!
//! | | a lookup without the lock | under the shard's lock |
//! |---|---|---|
//! | finds a frame | a guess: the caller pins it and compares its key | is right |
//! | finds nothing | means nothing: the caller looks again under the lock | is right |
//! | may change | nothing | the segment and the map |
//!
//! So a miss is decided under the lock alone, and the words of the segment need no order among
//! themselves, nor with the frames: all accesses are Relaxed (`segment.rs`). What a thread was told
//! of, it does find without the lock, unless an entry is being moved just then: one who happens
//! after a store cannot read an older value.
//!
//! # Invariants
//!
//! 1. A page is in the segment of its shard, or in the map, or in neither; and once at most.
//! 2. While the lock is held and nobody changes it, each frame in the segment has the key that it
//!    is found under: a frame is given its key before it enters, and leaves before it is given
//!    another. The lock's holder looks for its own key when it takes the lock, and remembers the
//!    place: between its dropping a page and taking the entry out, the frame may be another's.
//!
//! Nothing sleeps and no other lock is taken while a shard is locked.

mod map;
mod segment;

pub(crate) use map::{Entry, FillReservation, Index, ShardGuard};
