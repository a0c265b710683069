//! Futures in separate stack frames.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::bytes::BY_WORDS;

/// Returns a future that polls the given one in a separate stack frame.
///
/// A compiler that inlines all futures into the one that awaits them makes one frame with room for
/// each of them. That frame is on the stack while any of them runs. On a board, await a future that
/// is large or calls deeply as `own_frame(pin!(future)).await`. That does not copy the future either,
/// as `future.await` may.
///
/// The price is some flash. The compiler no longer sees that the future is not polled after its
/// end, so the image contains the panic for that case.
pub fn own_frame<F: Future>(future: Pin<&mut F>) -> impl Future<Output = F::Output> {
    OwnFrame(future)
}

struct OwnFrame<'f, F>(Pin<&'f mut F>);

impl<F: Future> Future for OwnFrame<'_, F> {
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
