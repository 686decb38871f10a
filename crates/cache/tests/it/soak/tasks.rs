//! A thread of the soak that polls tasks, and drops some of them wherever they stand.

use unherd_cache::{Error, File, Io, PageNo};
use unherd_sys::primitives::{Ordering, thread};
use unherd_testkit::{ReadGuard, Seed, Stamp, Tasks};

use super::{Counts, FailedOnPanic, Kept, Kind, PAGE_BYTES, Scene, any_page, any_run, run};

/// Tasks at a time.
const TASKS: usize = 6;

pub(super) struct TaskWorker<'a> {
    scene: &'a Scene<'a>,
    seed: Seed,
    counts: Counts,
}

impl<'a> TaskWorker<'a> {
    pub(super) fn new(scene: &'a Scene<'a>, seed: Seed) -> Self {
        Self { scene, seed, counts: Counts::default() }
    }

    pub(super) fn run(mut self, operations: u64) -> Counts {
        let failed = FailedOnPanic(&self.scene.failed);
        let mut tasks = Tasks::new();
        let mut kept = None;
        let mut left = operations;
        while (left > 0 || !tasks.is_empty()) && !self.scene.failed.load(Ordering::Relaxed) {
            if left > 0 && (tasks.is_empty() || tasks.len() < TASKS && self.seed.coin()) {
                left -= 1;
                self.begin(&mut tasks);
            }
            if let Some(ready) = tasks.poll() {
                // Until another is kept in its place.
                kept = ready.or(kept);
            } else if !tasks.is_empty() && self.seed.below(8) == 0 {
                self.counts[Kind::DroppedTask as usize] += 1;
                tasks.drop_one(self.seed.below(tasks.len() as u64) as usize);
            } else if self.seed.coin() {
                thread::yield_now();
            } else {
                tasks.park();
            }
        }
        drop(kept);
        drop(failed);
        self.counts
    }

    fn begin(&mut self, tasks: &mut Tasks<'a, Option<Kept<'a>>>) {
        let scene = self.scene;
        if self.seed.coin() {
            self.counts[Kind::ReadAtAsync as usize] += 1;
            let (first, pages) = any_run(&mut self.seed);
            tasks.begin(async move {
                read_at(scene, first, pages).await;
                None
            });
        } else {
            self.counts[Kind::PageAsync as usize] += 1;
            let stamp = any_page(&mut self.seed);
            let is_kept = self.seed.below(8) == 0;
            tasks.begin(page(scene, stamp, is_kept));
        }
    }
}

/// As [`Scene::allowed`]; a task does without a page that only a thread could bring in.
fn allowed<T>(scene: &Scene<'_>, result: Result<T, Error>) -> Option<T> {
    match result {
        Err(Error::AsyncNeedsIoThread { .. }) if scene.io == Io::Blocking => None,
        result => scene.allowed(result),
    }
}

fn judge(stamp: Stamp, read: ReadGuard<'_>, bytes: &[u8]) {
    let found = stamp.examine(bytes).unwrap_or_else(|torn| panic!("{torn}"));
    read.end(found).unwrap_or_else(|wrong| panic!("{stamp:?}: {wrong}"));
}

/// Gives the page to be kept pinned, if it is.
async fn page<'a>(scene: &'a Scene<'a>, stamp: Stamp, is_kept: bool) -> Option<Kept<'a>> {
    let read = scene.history(stamp).begin_guarded_read();
    let file: &File = &scene.files[stamp.file];
    let guard = allowed(scene, file.page_async(PageNo(stamp.page)).await)?;
    judge(stamp, read, &guard);
    is_kept.then(|| Kept { stamp, before: guard.to_vec(), guard })
}

async fn read_at(scene: &Scene<'_>, first: Stamp, pages: u64) {
    let begin = |stamp| (stamp, scene.history(stamp).begin_guarded_read());
    let reads: Vec<_> = run(first, pages).map(begin).collect();
    let mut buf = vec![0; pages as usize * PAGE_BYTES];
    let file = &scene.files[first.file];
    let read = file.read_at_async(&mut buf, first.page * PAGE_BYTES as u64).await;
    let Some(bytes) = allowed(scene, read) else { return };
    buf[bytes..].fill(0);
    for ((stamp, read), bytes) in reads.into_iter().zip(buf.chunks(PAGE_BYTES)) {
        judge(stamp, read, bytes);
    }
}
