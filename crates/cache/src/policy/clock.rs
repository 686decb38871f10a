//! CLOCK: a hand goes round over the frames; one used since it last came by is passed over once.
//!
//! F. J. Corbató, "A Paging Experiment with the Multics System" (1968). Dirty pages are not given
//! up but remembered, so that the caller can have them written back: the hand goes on for a
//! *window* of idle frames in search of a clean one before it settles for writing.

/// What the hand sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// In use, or no page: pass over it.
    Pass,
    /// Used since the hand last came by. The mark has just been taken away.
    Recent,
    /// Idle, and its page can be read again.
    Clean,
    /// Idle, but its page must be written first.
    Dirty,
    /// Idle, but the last attempt to write its page failed.
    Failed,
}

/// The progress of one search.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sweep {
    steps_left: usize,
    window_left: usize,
    dirty: Option<usize>,
    failed: Option<usize>,
}

impl Sweep {
    /// A search over `frames` frames: at most two rounds, so that a frame that was recently used
    /// is seen again without its mark.
    pub(crate) fn new(frames: usize, window: usize) -> Self {
        Self { steps_left: 2 * frames, window_left: window, dirty: None, failed: None }
    }

    /// The first idle frame to be written back; one whose write failed only if there is no other.
    pub(crate) fn candidate(&self) -> Option<usize> {
        self.dirty.or(self.failed)
    }

    /// Whether an idle dirty frame was passed.
    pub(crate) fn dirty(&self) -> Option<usize> {
        self.dirty
    }
}

/// The hand.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    hand: usize,
}

impl Clock {
    /// Goes on with `sweep` over `frames` frames, and gives the next clean idle frame, or `None` at
    /// the end of the search. A caller that cannot have the frame after all calls again.
    pub(crate) fn next_clean(
        &mut self,
        frames: usize,
        sweep: &mut Sweep,
        mut look: impl FnMut(usize) -> Look,
    ) -> Option<usize> {
        while sweep.steps_left > 0 && (sweep.dirty.is_none() || sweep.window_left > 0) {
            sweep.steps_left -= 1;
            let at = self.hand;
            self.hand = if at + 1 < frames { at + 1 } else { 0 };
            match look(at) {
                Look::Pass | Look::Recent => {}
                Look::Clean => return Some(at),
                Look::Dirty => {
                    sweep.dirty = sweep.dirty.or(Some(at));
                    sweep.window_left -= usize::from(sweep.window_left > 0);
                }
                Look::Failed => sweep.failed = sweep.failed.or(Some(at)),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(clock: &mut Clock, looks: &mut [Look], window: usize) -> (Option<usize>, Sweep) {
        let mut sweep = Sweep::new(looks.len(), window);
        let frames = looks.len();
        let found = clock.next_clean(frames, &mut sweep, |at| {
            let seen = looks[at];
            if seen == Look::Recent {
                looks[at] = Look::Clean;
            }
            seen
        });
        (found, sweep)
    }

    #[test]
    fn recently_used_frames_get_a_second_chance() {
        let mut clock = Clock::default();
        let mut looks = [Look::Recent, Look::Clean, Look::Recent];
        assert_eq!(search(&mut clock, &mut looks, 4).0, Some(1));
        // The hand stands at 2, which it spares; then 0, whose mark it took away before.
        assert_eq!(search(&mut clock, &mut looks, 4).0, Some(0));
    }

    #[test]
    fn all_recent_is_found_in_the_second_round() {
        let (found, _) = search(&mut Clock::default(), &mut [Look::Recent; 5], 4);
        assert_eq!(found, Some(0));
    }

    #[test]
    fn nothing_idle_ends_after_two_rounds() {
        let mut looked = 0;
        let mut sweep = Sweep::new(7, 4);
        let found = Clock::default().next_clean(7, &mut sweep, |_| {
            looked += 1;
            Look::Pass
        });
        assert_eq!((found, looked, sweep.candidate()), (None, 14, None));
    }

    #[test]
    fn dirty_frames_end_the_search_after_the_window() {
        let mut looks = [Look::Dirty; 10];
        looks[9] = Look::Clean;
        let (found, sweep) = search(&mut Clock::default(), &mut looks, 3);
        assert_eq!((found, sweep.candidate()), (None, Some(0)));
        let (found, sweep) = search(&mut Clock::default(), &mut looks, 100);
        assert_eq!((found, sweep.dirty()), (Some(9), Some(0)));
    }

    #[test]
    fn failed_frames_are_written_only_if_no_other_is_dirty() {
        let (_, sweep) = search(&mut Clock::default(), &mut [Look::Failed, Look::Dirty], 1);
        assert_eq!(sweep.candidate(), Some(1));
        let (_, sweep) = search(&mut Clock::default(), &mut [Look::Failed, Look::Pass], 1);
        assert_eq!(sweep.candidate(), Some(0));
    }
}
