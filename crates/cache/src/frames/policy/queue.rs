//! First-in-first-out queues of frames, linked through one array: a frame is in one queue at most,
//! and leaves it from anywhere in constant time.

/// No frame.
const NONE: u32 = u32::MAX;

/// The links of all frames.
#[derive(Debug)]
pub(super) struct Links {
    older: Box<[u32]>,
    newer: Box<[u32]>,
}

impl Links {
    pub(super) fn new(frames: u32) -> Self {
        let links = || vec![NONE; frames as usize].into_boxed_slice();
        Self { older: links(), newer: links() }
    }
}

/// One queue. Its links are those of the [`Links`] that each call is given, always the same.
#[derive(Debug)]
pub(super) struct Queue {
    oldest: u32,
    newest: u32,
    len: u32,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self { oldest: NONE, newest: NONE, len: 0 }
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Puts a frame that is in no queue behind all others.
    pub(super) fn push(&mut self, links: &mut Links, frame: u32) {
        links.older[frame as usize] = self.newest;
        links.newer[frame as usize] = NONE;
        match self.newest {
            NONE => self.oldest = frame,
            newest => links.newer[newest as usize] = frame,
        }
        self.newest = frame;
        self.len += 1;
    }

    /// Takes out a frame, which is in this queue.
    pub(super) fn unlink(&mut self, links: &mut Links, frame: u32) {
        let (older, newer) = (links.older[frame as usize], links.newer[frame as usize]);
        match older {
            NONE => self.oldest = newer,
            older => links.newer[older as usize] = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => links.older[newer as usize] = older,
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn order(queue: &Queue, links: &Links) -> Vec<u32> {
        let newer = |frame: &u32| {
            let newer = links.newer[*frame as usize];
            (newer != NONE).then_some(newer)
        };
        std::iter::successors(queue.oldest(), newer).collect()
    }

    proptest! {
        #[test]
        fn it_is_a_deque(steps in prop::collection::vec((0..2_u8, 0..8_u32), 0..60)) {
            let (mut links, mut queue) = (Links::new(8), Queue::new());
            let mut model = VecDeque::new();
            for (step, frame) in steps {
                let at = model.iter().position(|known| *known == frame);
                match (step, at) {
                    (0, None) => {
                        queue.push(&mut links, frame);
                        model.push_back(frame);
                    }
                    (1, Some(at)) => {
                        queue.unlink(&mut links, frame);
                        model.remove(at);
                    }
                    _ => {}
                }
                prop_assert_eq!(order(&queue, &links), Vec::from(model.clone()));
                prop_assert_eq!(queue.len() as usize, model.len());
                prop_assert_eq!(queue.newest, model.back().copied().unwrap_or(NONE));
            }
        }
    }
}
