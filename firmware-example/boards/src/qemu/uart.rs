use core::convert::Infallible;

use embedded_io::{ErrorType, Read, Write};

/// A UART of a board, byte by byte.
pub trait Uart {
    /// The byte that has come in; none if there is none.
    fn received(&mut self) -> Option<u8>;

    /// Sleeps until a byte comes in. It may return earlier.
    fn sleep(&mut self);

    /// Sends a byte, and waits until there is room for it.
    fn send(&mut self, byte: u8);
}

/// A UART as a blocking reader and writer.
#[derive(Debug)]
pub struct Port<U>(pub U);

impl<U> ErrorType for Port<U> {
    type Error = Infallible;
}

impl<U: Uart> Read for Port<U> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
        let mut count = 0;
        for place in buf {
            *place = loop {
                match self.0.received() {
                    Some(byte) => break byte,
                    // What has come in is enough.
                    None if count > 0 => return Ok(count),
                    None => self.0.sleep(),
                }
            };
            count += 1;
        }
        Ok(count)
    }
}

impl<U: Uart> Write for Port<U> {
    fn write(&mut self, buf: &[u8]) -> Result<usize, Infallible> {
        for byte in buf {
            self.0.send(*byte);
        }
        Ok(buf.len())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
