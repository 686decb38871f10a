//! One thread of a simulated world that makes no calls which wait: it polls tasks, and drops some
//! of them wherever they stand.
//!
//! With [`Io::Blocking`] a task finds what threads have brought in, or bring in while it waits. A
//! task has no clock, and the simulation neither: its wait for a frame ends with a frame, or as
//! the device has failed too often.

use unherd_sys::primitives::thread;
use unherd_testkit::{ReadGuard, Seed, Stamp, Tasks};

use super::world::{FILES, PAGE_BYTES, World};
use crate::{Error, File, Io, PageGuard, PageNo};

/// Tasks at a time.
const TASKS: usize = 3;

/// A page that stays pinned for a while, and what it held.
type Kept<'a> = (PageGuard<'a>, Vec<u8>);

pub(super) struct TaskActor<'a> {
    world: &'a World,
    /// Of these alone it reads.
    files: &'a [File],
    number: usize,
    seed: Seed,
}

impl<'a> TaskActor<'a> {
    pub(super) fn new(world: &'a World, files: &'a [File], number: usize, seed: Seed) -> Self {
        Self { world, files, number, seed }
    }

    pub(super) fn run(mut self) {
        let mut tasks = Tasks::new();
        // With more, there might be no frame left to work with.
        let mut kept: Option<Kept<'a>> = None;
        let mut left = self.world.plan.operations;
        while left > 0 || !tasks.is_empty() {
            if left > 0 && tasks.len() < TASKS && self.seed.coin() {
                left -= 1;
                self.begin(&mut tasks);
            }
            if let Some(ready) = tasks.poll() {
                if let Some(ready) = ready {
                    end(kept.replace(ready));
                }
            } else if !tasks.is_empty() && self.seed.below(6) == 0 {
                self.world.note(self.number, &("dropped", tasks.len()));
                tasks.drop_one(self.seed.below(tasks.len() as u64) as usize);
            } else if self.seed.coin() {
                thread::yield_now();
            } else if self.world.plan.device_fails() && !tasks.is_empty() {
                // Pages that cannot be written keep their frames, and it has no deadline.
                tasks.drop_one(self.seed.below(tasks.len() as u64) as usize);
            } else {
                tasks.park();
            }
            if self.seed.below(3) == 0 {
                end(kept.take());
            }
        }
        end(kept);
    }

    fn begin(&mut self, tasks: &mut Tasks<'a, Option<Kept<'a>>>) {
        let number = self.seed.below(FILES.min(self.files.len()) as u64) as usize;
        let (world, file, actor) = (self.world, &self.files[number], self.number);
        let stamp = world.any_page(&mut self.seed, number);
        if self.seed.coin() {
            let pages = (1 + self.seed.below(3)).min(world.plan.pages - stamp.page);
            tasks.begin(async move {
                read_at(world, actor, file, stamp, pages).await;
                None
            });
        } else {
            let is_kept = self.seed.coin();
            tasks.begin(async move {
                let kept = page(world, actor, file, stamp).await;
                kept.filter(|_| is_kept)
            });
        }
    }
}

fn end(kept: Option<Kept<'_>>) {
    if let Some((guard, before)) = kept {
        assert!(guard[..] == before[..], "a page that a task had pinned has changed");
    }
}

/// The value, unless the call failed as it may.
fn allowed<T>(world: &World, result: Result<T, Error>) -> Option<T> {
    match result {
        Err(Error::AsyncNeedsIoThread { .. }) if world.plan.io == Io::Blocking => None,
        result => world.allowed(result),
    }
}

fn judge(world: &World, actor: usize, stamp: Stamp, read: ReadGuard<'_>, bytes: &[u8]) {
    let found = world.examine(actor, stamp, bytes);
    read.end(found).unwrap_or_else(|wrong| panic!("{stamp:?}: {wrong}"));
}

async fn page<'a>(
    world: &'a World,
    actor: usize,
    file: &'a File,
    stamp: Stamp,
) -> Option<Kept<'a>> {
    let read = world.history(stamp).begin_guarded_read();
    let guard = allowed(world, file.page_async(PageNo(stamp.page)).await)?;
    judge(world, actor, stamp, read, &guard);
    let before = guard.to_vec();
    Some((guard, before))
}

async fn read_at(world: &World, actor: usize, file: &File, first: Stamp, pages: u64) {
    let begin = |page| {
        let stamp = Stamp { page, ..first };
        (stamp, world.history(stamp).begin_guarded_read())
    };
    let reads: Vec<_> = (first.page..first.page + pages).map(begin).collect();
    let mut buf = vec![0; pages as usize * PAGE_BYTES];
    let read = file.read_at_async(&mut buf, first.page * PAGE_BYTES as u64).await;
    let Some(bytes) = allowed(world, read) else { return };
    buf[bytes..].fill(0);
    for ((stamp, read), bytes) in reads.into_iter().zip(buf.chunks(PAGE_BYTES)) {
        judge(world, actor, stamp, read, bytes);
    }
}
