//! A key that serves page waits, buffer waits and addresses in one table.

/// What a thread waits for: keys of three lengths in one table.
///
/// Report 000 thought of passing a comparator to let page waits, buffer waits and futexes share a
/// table, "at the cost of indirect function calls". An enum compares its kinds inline instead. Any
/// other type that is `Copy + Eq + Hash` can be a table's key as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitKey {
    /// A page of a file.
    Page {
        /// The file.
        file: u32,
        /// The page's number in it.
        page: u64,
    },
    /// A part of a page of a file.
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
