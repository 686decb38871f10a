//! A key that serves page waits, buffer waits and addresses in one table.

/// What a thread waits for, in a table that serves pages, blocks of pages and addresses. Any other
/// type that is `Copy + Eq + Hash` can be a table's key as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(any(loom, shuttle)), derive(Hash))]
pub enum WaitKey {
    /// A page of a file.
    Page {
        /// The file.
        file: u32,
        /// The page's number in it.
        page: u64,
    },
    /// A block, which is a part of a page of a file.
    Buffer {
        /// The file.
        file: u32,
        /// The page's number in it.
        page: u64,
        /// The block's number in the page.
        block: u32,
    },
    /// Anything that has an address.
    Address(usize),
}

impl WaitKey {
    /// The address of `object`.
    pub fn of<T>(object: &T) -> Self {
        Self::Address(std::ptr::from_ref(object) as usize)
    }
}

/// A checker repeats a run step by step, so nothing may follow from an address. Where a hash puts
/// a waiter decides how many others one passes on the way there.
#[cfg(any(loom, shuttle))]
impl std::hash::Hash for WaitKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        match *self {
            Self::Page { file, page } => (file, page).hash(state),
            Self::Buffer { file, page, block } => (file, page, block).hash(state),
            Self::Address(_) => {}
        }
    }
}
