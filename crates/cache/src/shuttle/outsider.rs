//! One who is no user of the cache: it appends to a file that the cache has open, and cuts off what
//! it has appended. What it left last must be there at the end.

use unherd_sys::primitives::{Mutex, thread};
use unherd_testkit::{Seed, SimDevice};

use super::world::{PAGE_BYTES, World};
use crate::{Error, File, OpenOptions};

const PATH: &str = "shared";
/// What the cache's users write to, and the outsider does not.
const OURS: usize = 2 * PAGE_BYTES;

/// A file that others write too.
#[derive(Default)]
pub(super) struct Shared {
    theirs: Mutex<Vec<u8>>,
}

impl Shared {
    pub(super) fn begin(device: &SimDevice) -> Self {
        device.put(PATH, &[0; OURS]);
        Self::default()
    }

    /// The body of the outsider's thread.
    pub(super) fn run(&self, world: &World, mut seed: Seed) {
        for round in 0..world.plan.operations {
            {
                let mut theirs = self.theirs.lock();
                if seed.below(4) == 0 {
                    let len = seed.below(theirs.len() as u64 + 1) as usize;
                    theirs.truncate(len);
                    world.device.truncate(PATH, OURS + len);
                } else {
                    let record = vec![round as u8 + 1; 1 + seed.below(700) as usize];
                    world.device.append(PATH, &record);
                    theirs.extend(record);
                }
            }
            for _ in 0..seed.below(100) {
                thread::yield_now();
            }
        }
    }

    /// A user of the cache opens the file, and perhaps changes what is not the outsider's.
    pub(super) fn touch(world: &World, seed: &mut Seed) -> Result<(), Error> {
        let options = OpenOptions::new().write(true).lock(false);
        let file: File = world.cache.open(PATH, options)?;
        if seed.coin() {
            let page = seed.below(2);
            file.write_at(&[seed.next_u64() as u8; PAGE_BYTES], page * PAGE_BYTES as u64)?;
        }
        if seed.coin() {
            Self::read_tail(&file, seed)?;
        }
        if seed.coin() {
            file.sync_all()?;
        }
        if seed.coin() { file.close() } else { Ok(drop(file)) }
    }

    /// What the outsider appends are no zeros, so there are none in what is read: what it has cut
    /// off meanwhile is an error.
    fn read_tail(file: &File, seed: &mut Seed) -> Result<(), Error> {
        let tail = (file.len() as usize).saturating_sub(OURS);
        let from = seed.below(tail as u64 + 1) as usize;
        let mut bytes = vec![0; tail - from];
        match file.read_at(&mut bytes, (OURS + from) as u64) {
            Ok(read) => {
                assert!(read == bytes.len() && !bytes.contains(&0), "zeros for what was cut off");
                Ok(())
            }
            Err(Error::Truncated { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// All is closed, and nothing has crashed.
    pub(super) fn end(&self, device: &SimDevice) {
        let bytes = device.bytes(PATH).expect("it was put there");
        assert!(bytes[OURS..] == *self.theirs.lock(), "what an outsider wrote was changed");
    }
}
