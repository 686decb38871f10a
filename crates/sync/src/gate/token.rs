//! What a thread holds of a gate: tokens, which congest it, and the duty to make its progress.
#![allow(clippy::missing_const_for_thread_local, reason = "loom's cannot be const")]

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use unherd_sys::primitives::thread_local;

use super::Gate;

thread_local! {
    /// The gates whose progress is this thread's to make, one entry for each guard.
    static DUTIES: RefCell<Vec<usize>> = RefCell::new(Vec::new());
}

/// Says that a resource is congested, until it is dropped: [`Gate::congest`].
///
/// It stays with its thread, which must not wait at the gate meanwhile: [`WaitEnd::Refused`]. One
/// that another thread is to drop is made by [`Congested::into_shared`].
///
/// [`WaitEnd::Refused`]: super::WaitEnd::Refused
#[derive(Debug)]
#[must_use = "the gate is clear again as soon as this is dropped"]
pub struct Congested<'g> {
    // Dropped in this order: who is woken may find this thread waiting.
    _duty: GateDuty<'g>,
    shared: SharedCongested<'g>,
}

/// As [`Congested`], for any thread to drop: [`Congested::into_shared`].
#[derive(Debug)]
#[must_use = "the gate is clear again as soon as this is dropped"]
pub struct SharedCongested<'g>(&'g Gate);

/// As [`SharedCongested`], with a gate in an [`Arc`], which it keeps: so it can stand in a struct
/// beside the gate. [`Gate::congest_owned`].
#[derive(Debug)]
#[must_use = "the gate is clear again as soon as this is dropped"]
pub struct OwnedCongested(Arc<Gate>);

/// Says that the calling thread makes the progress of a gate, until it is dropped:
/// [`Gate::duty`]. Stays with its thread.
#[derive(Debug)]
#[must_use = "the thread may sleep at the gate as soon as this is dropped"]
pub struct GateDuty<'g>(&'g Gate, PhantomData<*const ()>);

impl<'g> Congested<'g> {
    /// Counts nothing: the gate has done that.
    pub(super) fn new(gate: &'g Gate) -> Self {
        Self { shared: SharedCongested(gate), _duty: GateDuty::new(gate) }
    }

    /// Lets any thread drop it; the calling thread may wait at the gate again.
    pub fn into_shared(self) -> SharedCongested<'g> {
        self.shared
    }
}

impl Drop for SharedCongested<'_> {
    fn drop(&mut self) {
        self.0.clear();
    }
}

impl OwnedCongested {
    /// Counts nothing: the gate has done that.
    pub(super) fn new(gate: &Arc<Gate>) -> Self {
        Self(Arc::clone(gate))
    }
}

impl Drop for OwnedCongested {
    fn drop(&mut self) {
        self.0.clear();
    }
}

impl<'g> GateDuty<'g> {
    pub(super) fn new(gate: &'g Gate) -> Self {
        // Where the thread is ending already, no gate lets it wait any more.
        let _ = DUTIES.try_with(|duties| duties.borrow_mut().push(address(gate)));
        Self(gate, PhantomData)
    }
}

impl Drop for GateDuty<'_> {
    fn drop(&mut self) {
        let _ = DUTIES.try_with(|duties| {
            let mut duties = duties.borrow_mut();
            let own = duties.iter().rposition(|other| *other == address(self.0));
            own.map(|own| duties.swap_remove(own))
        });
    }
}

/// Whether the calling thread is to make the progress of `gate`, or may be, as it is ending and
/// does not know any more.
pub(super) fn is_own_duty(gate: &Gate) -> bool {
    DUTIES.try_with(|duties| duties.borrow().contains(&address(gate))).unwrap_or(true)
}

fn address(gate: &Gate) -> usize {
    ptr::from_ref(gate).addr()
}
