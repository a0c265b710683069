//! The system's allocator, counted when asked to: the peers need not pay for that.

#![allow(unsafe_code, reason = "a global allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

struct Counting;

static IS_COUNTED: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn note() {
    if IS_COUNTED.load(Relaxed) {
        COUNT.fetch_add(1, Relaxed);
    }
}

// SAFETY: hands everything on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promises are ours.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are ours.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: the caller's promises are ours.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

/// How often `work` allocates.
pub(crate) fn count(work: impl FnOnce()) -> usize {
    let before = COUNT.load(Relaxed);
    IS_COUNTED.store(true, Relaxed);
    work();
    IS_COUNTED.store(false, Relaxed);
    COUNT.load(Relaxed) - before
}
