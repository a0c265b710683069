use core::ptr::with_exposed_provenance_mut;

/// A device's register: each access is one load or store of its width.
#[derive(Debug, Clone, Copy)]
pub struct Register<T> {
    address: usize,
    width: core::marker::PhantomData<T>,
}

impl<T: Copy> Register<T> {
    /// The register at this address.
    ///
    /// # Safety
    /// There is one, it is aligned, and reading and writing it has no effect on memory that Rust knows.
    pub const unsafe fn at(address: usize) -> Self {
        Self { address, width: core::marker::PhantomData }
    }

    /// Reads it.
    pub fn read(self) -> T {
        // SAFETY: `at` was promised that it may be read.
        unsafe { with_exposed_provenance_mut::<T>(self.address).read_volatile() }
    }

    /// Writes it.
    pub fn write(self, value: T) {
        // SAFETY: `at` was promised that it may be written.
        unsafe { with_exposed_provenance_mut::<T>(self.address).write_volatile(value) }
    }
}
