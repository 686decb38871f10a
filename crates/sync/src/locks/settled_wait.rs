//! A task's wait for a lock, which gives back what it was given if it is dropped.
//!
//! A token that a lock gives to a waiter is a debt: HANDED_OVER is the lock itself, AWAKENED a
//! promise that somebody looks at it. [`WaitFuture`] passes the token of a dropped wait on to the
//! next waiter, and if there is none, the debt is lost. So a lock's wait settles it.
//!
//! | the future is dropped | it gives back |
//! |---|---|
//! | before its first poll, or after it was ready | nothing: it owes nothing, or its caller does |
//! | while it is queued | nothing; the next waiter is found instead of it. (A semaphore looks whether there are permits for that) |
//! | when a wake has chosen it, and no poll has seen that | the token of the wake |
//! | as its first poll unwinds | what it has brought along |
//!
//! - **D1** A token is given under the bucket lock as the node leaves the queue. So who locks the
//!   bucket and finds the node queued owes nothing, and otherwise has the token.
//! - **D2** The token has one owner: the poll that is ready, or the drop.
//!
//! ```text
//!  owner drops the future                   holder's unlock
//!  ----------------------                   ---------------
//!                                           lock bucket; choose the task
//!                                           leave LOCKED set; give it HANDED_OVER
//!  lock bucket: is the node queued?         unlock bucket; wake the task (no more)
//!  yes: unlink; no: it holds the lock, and unlocks
//! ```
//!
//! Excluded: that the lock stays locked for a task that is gone.
#![expect(unsafe_code, reason = "a future inside a pinned future")]

use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::{Outcome, Token, WaitFuture};

/// As [`WaitFuture`]; if it is dropped before it was ready, what it owes goes to `settle`, and to
/// no other waiter.
pub(crate) struct SettledWait<'t, K: Copy + Eq + Hash, F, S: Fn(Option<Token>)> {
    wait: WaitFuture<'t, K, F>,
    /// Owed until the first poll has returned.
    brought: Option<Token>,
    is_ready: bool,
    settle: S,
}

impl<'t, K, F, S> SettledWait<'t, K, F, S>
where
    K: Copy + Eq + Hash,
    F: FnOnce() -> bool,
    S: Fn(Option<Token>),
{
    pub(crate) fn new(wait: WaitFuture<'t, K, F>, brought: Option<Token>, settle: S) -> Self {
        Self { wait, brought, is_ready: false, settle }
    }
}

impl<K, F, S> Future for SettledWait<'_, K, F, S>
where
    K: Copy + Eq + Hash,
    F: FnOnce() -> bool,
    S: Fn(Option<Token>),
{
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        // SAFETY: `wait` is pinned, and nothing is moved.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: as above.
        let outcome = unsafe { Pin::new_unchecked(&mut this.wait) }.poll(context);
        this.brought = None;
        this.is_ready = outcome.is_ready();
        outcome
    }
}

impl<K: Copy + Eq + Hash, F, S: Fn(Option<Token>)> Drop for SettledWait<'_, K, F, S> {
    fn drop(&mut self) {
        if !self.is_ready {
            (self.settle)(self.wait.leave().or(self.brought));
        }
    }
}
