//! Reads the pages of a bbolt file. A bucket is a B+tree of branch pages and leaf pages.
//!
//! The bytes are not trusted. Every offset is checked against its page, and every page id against the file. A page must contain
//! its own id, and must be a branch page or a leaf page. Keys must ascend over the whole tree. No page is visited twice, no byte
//! belongs to two elements, and no tree is deeper than [`DEEPEST`]. So every walk ends, and takes no longer than one pass over
//! the file.
//!
//! bbolt v1.4.3 defines the layout in internal/common/page.go (`Page`, `branchPageElement`, `leafPageElement`) and
//! internal/common/bucket.go (`InBucket`). A page header has 16 bytes: id u64, flags u16, count u16, overflow u32 (number of
//! following pages that belong to the page). An element has 16 bytes. A position in an element is relative to the start of this
//! element.

use bitvec::vec::BitVec;

use super::bytes::{slice, u16_at, u32_at, u64_at};
use super::fault::SnapshotFault;
use super::meta::Meta;

const HEADER: u64 = 16;
const ELEMENT: u64 = 16;
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
/// Flag of a leaf element whose value is a bucket.
const IS_BUCKET: u32 = 0x01;
/// Maximum number of levels of a tree. With etcd's keys, a branch page of 4096 bytes has over 100 children, and bbolt merges
/// pages that are less than a quarter full. So four levels are enough for any real file; 16 levels leave a margin.
const DEEPEST: usize = 16;

/// The pages of a database.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pages<'m> {
    content: &'m [u8],
    meta: Meta,
}

/// An element of a leaf page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaf<'m> {
    pub key: &'m [u8],
    pub value: &'m [u8],
    /// Whether the value of the element is a bucket.
    pub is_bucket: bool,
    /// Id of the page that contains the element.
    pub page: u64,
    /// Offset of the value from the start of the file, in bytes.
    pub value_offset: u64,
}

impl<'m> Pages<'m> {
    /// Returns the pages of a file. `content` must not include a trailing checksum. `meta` is a valid meta page of the file.
    pub(super) fn new(content: &'m [u8], meta: Meta) -> Self {
        Self { content, meta }
    }

    /// Returns a walk over a top-level bucket; `None` if no bucket has this name.
    pub(super) fn bucket(self, name: &[u8]) -> Result<Option<Walk<'m>>, SnapshotFault> {
        for leaf in self.walk(self.meta.root)? {
            let leaf = leaf?;
            if leaf.key != name {
                continue;
            }
            let (page, offset) = (leaf.page, leaf.value_offset);
            if !leaf.is_bucket {
                return SnapshotFault::damaged(
                    page,
                    offset,
                    format!("`{}` is not a bucket", name.escape_ascii()),
                );
            }
            return match u64_at(leaf.value, 0) {
                None => SnapshotFault::damaged(page, offset, "a bucket of fewer than 16 bytes"),
                // A small bucket has no separate page. Its inline page follows the header of the bucket.
                Some(0) => self.walk_inline(&leaf).map(Some),
                Some(root) => self.walk(root).map(Some),
            };
        }
        Ok(None)
    }

    /// Returns a walk over a tree, starting at its root page.
    fn walk(self, root: u64) -> Result<Walk<'m>, SnapshotFault> {
        let pages = usize::try_from(self.meta.high_water).unwrap_or(usize::MAX);
        let mut walk = Walk {
            pages: self,
            stack: Vec::with_capacity(DEEPEST),
            visited: BitVec::repeat(false, pages),
            last_key: None,
            over: false,
        };
        walk.descend(root, 0, HEADER)?;
        Ok(walk)
    }

    fn walk_inline(self, bucket: &Leaf<'m>) -> Result<Walk<'m>, SnapshotFault> {
        let offset = bucket.value_offset.saturating_add(HEADER);
        let bytes = bucket.value.get(16..).unwrap_or_default();
        let (Some(flags), Some(count)) = (u16_at(bytes, 8), u16_at(bytes, 10)) else {
            return SnapshotFault::damaged(bucket.page, offset, "an inline bucket of fewer than 32 bytes");
        };
        if flags != LEAF {
            return SnapshotFault::damaged(bucket.page, offset, format!("an inline page of type {flags:#x}"));
        }
        let page = Page { id: bucket.page, offset, bytes, is_leaf: true, count: u64::from(count) };
        let stack = vec![Position::start_of(page)];
        Ok(Walk { pages: self, stack, visited: BitVec::new(), last_key: None, over: false })
    }

    /// Reads a page. The page `parent` refers to it at offset `reference`, in bytes from the start of the file.
    fn page(&self, id: u64, parent: u64, reference: u64) -> Result<(Page<'m>, u64), SnapshotFault> {
        if id >= self.meta.high_water {
            let reason = format!("it refers to page {id}, but the file has {} pages", self.meta.high_water);
            return SnapshotFault::damaged(parent, reference, reason);
        }
        let offset = id.saturating_mul(self.meta.page_size);
        let fields = slice(self.content, offset, HEADER).and_then(|header| {
            Some((u64_at(header, 0)?, u16_at(header, 8)?, u16_at(header, 10)?, u32_at(header, 12)?))
        });
        let Some((own_id, flags, count, overflow)) = fields else {
            return SnapshotFault::damaged(id, offset, "the page is not in the file");
        };
        if own_id != id {
            return SnapshotFault::damaged(id, offset, format!("the page has the id {own_id}"));
        }
        if flags != LEAF && flags != BRANCH {
            return SnapshotFault::damaged(
                id,
                offset,
                format!("type {flags:#x}, expected a branch or a leaf"),
            );
        }
        let span = u64::from(overflow).saturating_add(1);
        if span > self.meta.high_water.saturating_sub(id) {
            return SnapshotFault::damaged(
                id,
                offset,
                format!("the overflow pages ({overflow}) extend past the last page"),
            );
        }
        let Some(bytes) = slice(self.content, offset, span.saturating_mul(self.meta.page_size)) else {
            return SnapshotFault::damaged(id, offset, "the page extends past the end of the file");
        };
        let is_leaf = flags == LEAF;
        if count == 0 && !is_leaf {
            return SnapshotFault::damaged(id, offset, "a branch without children");
        }
        Ok((Page { id, offset, bytes, is_leaf, count: u64::from(count) }, span))
    }
}

/// A page with its overflow pages.
#[derive(Debug, Clone, Copy)]
struct Page<'m> {
    id: u64,
    /// Offset of the page from the start of the file, in bytes.
    offset: u64,
    bytes: &'m [u8],
    is_leaf: bool,
    count: u64,
}

impl<'m> Page<'m> {
    /// Returns `length` bytes at `position`. The position is relative to the start of the element at offset `element`.
    fn data(&self, element: u64, position: u64, length: u64) -> Result<&'m [u8], SnapshotFault> {
        let start = element.saturating_add(position);
        let elements_end = element_at(self.count);
        match slice(self.bytes, start, length) {
            Some(data) if start >= elements_end => Ok(data),
            _ => {
                let reason = format!(
                    "the data of an element has {length} bytes at {start}, but the page has {} bytes",
                    self.bytes.len()
                );
                SnapshotFault::damaged(self.id, self.offset.saturating_add(element), reason)
            }
        }
    }

    /// Returns a leaf element, and the start and end of its data in the page.
    fn leaf(&self, index: u64) -> Result<(Leaf<'m>, u64, u64), SnapshotFault> {
        let element = element_at(index);
        let field =
            |offset: u64| u32_at(self.bytes, element.saturating_add(offset)).map_or(u64::MAX, u64::from);
        let (flags, position, key_length, value_length) = (field(0), field(4), field(8), field(12));
        let key = self.data(element, position, key_length)?;
        let value_position = position.saturating_add(key_length);
        let value = self.data(element, value_position, value_length)?;
        let value_start = element.saturating_add(value_position);
        let leaf = Leaf {
            key,
            value,
            is_bucket: flags & u64::from(IS_BUCKET) != 0,
            page: self.id,
            value_offset: self.offset.saturating_add(value_start),
        };
        Ok((leaf, element.saturating_add(position), value_start.saturating_add(value_length)))
    }

    /// Returns the page id of a child of a branch page.
    fn child(&self, index: u64) -> Result<u64, SnapshotFault> {
        let element = element_at(index);
        match u64_at(self.bytes, element.saturating_add(8)) {
            Some(id) => Ok(id),
            None => SnapshotFault::damaged(
                self.id,
                self.offset,
                format!("the page is too small for its {} children", self.count),
            ),
        }
    }
}

/// Returns the offset of an element from the start of its page, in bytes.
fn element_at(index: u64) -> u64 {
    index.saturating_mul(ELEMENT).saturating_add(HEADER)
}

#[derive(Debug)]
struct Position<'m> {
    page: Page<'m>,
    /// Index of the next element.
    next: u64,
    /// End of the data of all elements read so far, in bytes from the start of the page.
    data_end: u64,
}

impl<'m> Position<'m> {
    fn start_of(page: Page<'m>) -> Self {
        Self { page, next: 0, data_end: element_at(page.count) }
    }

    /// Reads the leaf element at `index`. Its data must follow the data of the element that was read last. bbolt writes the data
    /// of elements in order and without gaps (`WriteInodeToPage`, internal/common/inode.go, v1.4.3).
    fn leaf(&mut self, index: u64) -> Result<Leaf<'m>, SnapshotFault> {
        let (leaf, data_start, data_end) = self.page.leaf(index)?;
        if data_start < self.data_end {
            let offset = self.page.offset.saturating_add(element_at(index));
            return SnapshotFault::damaged(
                self.page.id,
                offset,
                "an element's data overlaps another element's",
            );
        }
        self.data_end = data_end;
        Ok(leaf)
    }
}

/// An iterator over the leaf elements of a tree, in key order. It ends after a fault.
#[derive(Debug)]
pub(super) struct Walk<'m> {
    pages: Pages<'m>,
    stack: Vec<Position<'m>>,
    /// One bit per page, set when the walk enters the page.
    visited: BitVec,
    last_key: Option<&'m [u8]>,
    over: bool,
}

impl<'m> Walk<'m> {
    fn descend(&mut self, id: u64, parent: u64, reference: u64) -> Result<(), SnapshotFault> {
        if self.stack.len() >= DEEPEST {
            return SnapshotFault::damaged(
                parent,
                reference,
                format!("the tree is deeper than {DEEPEST} pages"),
            );
        }
        let (page, span) = self.pages.page(id, parent, reference)?;
        for used in id..id.saturating_add(span) {
            match usize::try_from(used).ok().and_then(|used| self.visited.get_mut(used)) {
                Some(mut visited) if !*visited => *visited = true,
                _ => return SnapshotFault::damaged(parent, reference, format!("page {used} is used twice")),
            }
        }
        self.stack.push(Position::start_of(page));
        Ok(())
    }

    fn step(&mut self) -> Result<Option<Leaf<'m>>, SnapshotFault> {
        while let Some(position) = self.stack.last_mut() {
            let (page, index) = (position.page, position.next);
            if index >= page.count {
                self.stack.pop();
                continue;
            }
            position.next = index.saturating_add(1);
            if !page.is_leaf {
                let child = page.child(index)?;
                self.descend(child, page.id, page.offset.saturating_add(element_at(index)))?;
                continue;
            }
            let leaf = position.leaf(index)?;
            if self.last_key.is_some_and(|last| last >= leaf.key) {
                let offset = page.offset.saturating_add(element_at(index));
                return SnapshotFault::damaged(page.id, offset, "its keys are not in ascending order");
            }
            self.last_key = Some(leaf.key);
            return Ok(Some(leaf));
        }
        Ok(None)
    }
}

impl<'m> Iterator for Walk<'m> {
    type Item = Result<Leaf<'m>, SnapshotFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let step = self.step().transpose();
        self.over = !matches!(step, Some(Ok(_)));
        step
    }
}
