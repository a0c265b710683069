use core::ptr::with_exposed_provenance_mut;

/// A register of a device. Each access is one load or store of the register's width.
#[derive(Debug, Clone, Copy)]
pub struct Register<T> {
    address: usize,
    width: core::marker::PhantomData<T>,
}

impl<T: Copy> Register<T> {
    /// The register at this address.
    ///
    /// # Safety
    /// There is a register at this address, the address is aligned, and access to it has no effect
    /// on memory that Rust knows.
    pub const unsafe fn at(address: usize) -> Self {
        Self { address, width: core::marker::PhantomData }
    }

    /// Reads the register.
    pub fn read(self) -> T {
        // SAFETY: `at` was promised that it may be read.
        unsafe { with_exposed_provenance_mut::<T>(self.address).read_volatile() }
    }

    /// Writes the register.
    pub fn write(self, value: T) {
        // SAFETY: `at` was promised that it may be written.
        unsafe { with_exposed_provenance_mut::<T>(self.address).write_volatile(value) }
    }
}
