//! Futures in separate stack frames.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::bytes::BY_WORDS;

/// A future that is polled in a separate stack frame.
///
/// A compiler that inlines all futures into the one that awaits them makes one frame with room for each of them, which is on
/// the stack while any of them runs. On a board, a future that is large or calls deeply is better awaited as
/// `apart(pin!(future)).await`; that does not copy it either, as `future.await` may.
///
/// The price: the compiler no longer sees that the future is not polled after its end, so the image has the panic for that case.
pub fn apart<F: Future>(future: Pin<&mut F>) -> impl Future<Output = F::Output> {
    Apart(future)
}

struct Apart<'f, F>(Pin<&'f mut F>);

impl<F: Future> Future for Apart<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // Where the stack is large, the calls would be all that it changes.
        if BY_WORDS { self.0.as_mut().poll(cx) } else { poll(self.0.as_mut(), cx) }
    }
}

#[inline(never)]
fn poll<F: Future>(future: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
    future.poll(cx)
}
