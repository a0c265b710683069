//! Reading of a connection's output by the task that waits for a reply.
//!
//! A task for each connection that reads and hands replies on, as with `tokio::sync::oneshot`, costs two switches between tasks for each
//! call. Here the caller that waits polls the reader itself, and another caller takes over when it is done. A task reads only while no
//! caller waits.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use rigline_std::mutex::lock;

/// The reading of a connection's output, as a future without its own task.
///
/// A caller that waits for a reply runs it ([`until`](Self::until)), so that its reply comes without a detour by way of another
/// task. While no caller waits, one task runs it ([`all`](Self::all)). Three things keep what comes from being left lying:
/// every caller that waits is woken; a caller that leaves before it has handled its wake-up wakes the others; and the task checks
/// now and then after callers that are not polled.
pub(super) struct Reading {
    future: Mutex<Option<Boxed>>,
    is_closed: AtomicBool,
    wakers: Arc<Wakers>,
    waker: Waker,
}

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How long a caller that was woken and is not polled can hold up others.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// The tasks that are woken when there is something to read.
#[derive(Default)]
struct Wakers {
    callers: Mutex<Callers>,
    task: Mutex<Option<Waker>>,
    /// There is something to read, as far as is known, and no caller has begun to.
    is_owed: AtomicBool,
    /// The task looks after the callers.
    is_watched: AtomicBool,
}

#[derive(Default)]
struct Callers {
    waiting: Vec<(u64, Waker)>,
    next: u64,
}

impl Reading {
    pub(super) fn new(future: impl Future<Output = ()> + Send + 'static) -> Self {
        let wakers = Arc::<Wakers>::default();
        let waker = Waker::from(Arc::clone(&wakers));
        Self { future: Mutex::new(Some(Box::pin(future))), is_closed: AtomicBool::new(false), wakers, waker }
    }

    /// Reads until the end, whatever else there is to wait for.
    pub(super) async fn all(&self) {
        let mut look = pin!(sleep(LOOK_AFTER));
        let mut is_set = false;
        poll_fn(|cx| {
            self.wakers.set_task(cx.waker());
            if self.read(lock(&self.future)).is_ready() {
                return Poll::Ready(());
            }
            while self.wakers.is_watched.load(SeqCst) {
                if !std::mem::replace(&mut is_set, true) {
                    look.as_mut().reset(Instant::now() + LOOK_AFTER);
                }
                if look.as_mut().poll(cx).is_pending() {
                    break;
                }
                is_set = false;
                self.wakers.is_watched.store(false, SeqCst);
                if self.wakers.has_callers() {
                    self.wakers.is_watched.store(true, SeqCst);
                }
            }
            Poll::Pending
        })
        .await;
    }

    /// Waits for what a reply is to bring, and reads meanwhile.
    pub(super) async fn until<T>(&self, reply: oneshot::Receiver<T>) -> Result<T, oneshot::error::RecvError> {
        let mut reply = pin!(reply);
        let mut caller: Option<Caller<'_>> = None;
        poll_fn(|cx| {
            match &caller {
                // So soon after its request, there is nothing to read yet.
                None => caller = Some(Caller::new(&self.wakers, cx.waker())),
                Some(caller) => {
                    caller.set(cx.waker());
                    // While this reads it need not be woken by what it reads.
                    if let Poll::Ready(reply) = reply.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                        return Poll::Ready(reply);
                    }
                    // If another one reads, it looks for what came meanwhile.
                    self.look();
                }
            }
            reply.as_mut().poll(cx)
        })
        .await
    }

    /// Reads what there is, without waiting. Nothing happens if another one is reading.
    pub(super) fn look(&self) {
        match self.future.try_lock() {
            Ok(future) => drop(self.read(future)),
            Err(TryLockError::Poisoned(future)) => drop(self.read(future.into_inner())),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    /// Releases what is read from. A caller that is reading releases it when it is done.
    pub(super) fn close(&self) {
        self.is_closed.store(true, SeqCst);
        if let Ok(mut future) = self.future.try_lock() {
            let future = future.take();
            drop(future);
        }
        self.wakers.wake_all();
    }

    fn read(&self, mut future: MutexGuard<'_, Option<Boxed>>) -> Poll<()> {
        // A listener that panics leaves nothing behind to be polled again.
        let Some(mut reading) = future.take() else { return Poll::Ready(()) };
        self.wakers.is_owed.store(false, SeqCst);
        let read = reading.as_mut().poll(&mut Context::from_waker(&self.waker));
        if read.is_pending() {
            *future = Some(reading);
        }
        drop(future);
        if self.is_closed.load(SeqCst) {
            let future = lock(&self.future).take();
            drop(future);
            return Poll::Ready(());
        }
        // Another caller may have been woken for it while this one was reading.
        if self.wakers.is_owed.load(SeqCst) {
            self.wakers.wake_all();
        }
        read
    }
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_owed.store(true, SeqCst);
        if !self.wake_callers() {
            self.wake_task();
        }
    }
}

impl Wakers {
    fn wake_all(&self) {
        self.wake_callers();
        self.wake_task();
    }

    /// Gives whether there are any.
    fn wake_callers(&self) -> bool {
        let callers = lock(&self.callers);
        let (first, more) = match &*callers.waiting {
            [] => return false,
            [(_, first), more @ ..] => (first.clone(), more.iter().map(|(_, waker)| waker.clone()).collect::<Vec<_>>()),
        };
        drop(callers);
        first.wake();
        more.into_iter().for_each(Waker::wake);
        true
    }

    fn wake_task(&self) {
        let task = lock(&self.task).clone();
        if let Some(task) = task {
            task.wake();
        }
    }

    fn set_task(&self, waker: &Waker) {
        let mut task = lock(&self.task);
        match &mut *task {
            Some(there) => there.clone_from(waker),
            None => *task = Some(waker.clone()),
        }
    }

    fn has_callers(&self) -> bool {
        !lock(&self.callers).waiting.is_empty()
    }
}

/// A caller that waits.
struct Caller<'w> {
    wakers: &'w Wakers,
    id: u64,
}

impl<'w> Caller<'w> {
    fn new(wakers: &'w Wakers, waker: &Waker) -> Self {
        let mut callers = lock(&wakers.callers);
        let id = callers.next;
        callers.next = id.wrapping_add(1);
        callers.waiting.push((id, waker.clone()));
        drop(callers);
        if !wakers.is_watched.swap(true, SeqCst) {
            wakers.wake_task();
        }
        Self { wakers, id }
    }

    fn set(&self, waker: &Waker) {
        let mut callers = lock(&self.wakers.callers);
        if let Some((_, there)) = callers.waiting.iter_mut().find(|(id, _)| *id == self.id) {
            there.clone_from(waker);
        }
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        lock(&self.wakers.callers).waiting.retain(|(id, _)| *id != self.id);
        if self.wakers.is_owed.load(SeqCst) {
            self.wakers.wake_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;

    type Replies = Arc<Mutex<Vec<(u32, oneshot::Sender<u32>)>>>;

    /// A peer that sends numbers; each is the reply to the caller that waits for it.
    struct Bed {
        reading: Arc<Reading>,
        peer: mpsc::UnboundedSender<u32>,
        replies: Replies,
        read: Arc<AtomicUsize>,
    }

    impl Bed {
        fn new() -> Self {
            let (peer, mut numbers) = mpsc::unbounded_channel();
            let (replies, read) = (Replies::default(), Arc::<AtomicUsize>::default());
            let (waiting, count) = (Arc::clone(&replies), Arc::clone(&read));
            let reading = Reading::new(async move {
                while let Some(number) = numbers.recv().await {
                    count.fetch_add(1, SeqCst);
                    let mut waiting = lock(&waiting);
                    if let Some(at) = waiting.iter().position(|(waits, _)| *waits == number) {
                        let _ = waiting.swap_remove(at).1.send(number);
                    }
                }
            });
            Self { reading: Arc::new(reading), peer, replies, read }
        }

        fn spawn_reader(&self) -> tokio::task::JoinHandle<()> {
            let reading = Arc::clone(&self.reading);
            tokio::spawn(async move { reading.all().await })
        }

        fn call(&self, number: u32) -> impl Future<Output = Option<u32>> + Send + use<> {
            let (sender, reply) = oneshot::channel();
            lock(&self.replies).push((number, sender));
            let reading = Arc::clone(&self.reading);
            async move { timeout(Duration::from_secs(5), reading.until(reply)).await.ok()?.ok() }
        }

        fn read(&self) -> usize {
            self.read.load(SeqCst)
        }
    }

    /// Polls a call once, so that it waits.
    async fn begin<F: Future + Unpin>(call: &mut F) {
        poll_fn(|cx| {
            assert!(Pin::new(&mut *call).poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    }

    #[tokio::test]
    async fn a_caller_reads_for_itself() {
        let bed = Bed::new();
        // The task has begun to, and is busy.
        let mut task = Box::pin(bed.reading.all());
        begin(&mut task).await;
        let call = bed.call(1);
        let called = Instant::now();
        let (reply, ()) = tokio::join!(call, async { bed.peer.send(1).unwrap() });
        assert_eq!(reply, Some(1));
        assert!(called.elapsed() < LOOK_AFTER);
    }

    #[tokio::test]
    async fn what_comes_while_nobody_waits_is_read() {
        let bed = Bed::new();
        bed.spawn_reader();
        for number in 0..100 {
            bed.peer.send(number).unwrap();
        }
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(bed.read(), 100);
    }

    #[tokio::test]
    async fn a_caller_that_gives_up_leaves_the_reading_to_others() {
        let bed = Bed::new();
        bed.spawn_reader();
        let (mut gone, mut stays) = (Box::pin(bed.call(1)), Box::pin(bed.call(2)));
        // In both orders.
        begin(&mut stays).await;
        begin(&mut gone).await;
        // It is woken, and dropped before it looks.
        bed.peer.send(7).unwrap();
        drop(gone);
        bed.peer.send(2).unwrap();
        assert_eq!(stays.await, Some(2));
        let (mut gone, mut stays) = (Box::pin(bed.call(3)), Box::pin(bed.call(4)));
        begin(&mut gone).await;
        begin(&mut stays).await;
        bed.peer.send(4).unwrap();
        drop(gone);
        assert_eq!(stays.await, Some(4));
        // Also if no caller is waiting.
        let mut gone = Box::pin(bed.call(5));
        begin(&mut gone).await;
        drop(gone);
        bed.peer.send(5).unwrap();
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        assert_eq!(bed.read(), 4);
        // Or with one that was woken, and did not look.
        let mut gone = Box::pin(bed.call(6));
        begin(&mut gone).await;
        bed.peer.send(6).unwrap();
        drop(gone);
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        assert_eq!(bed.read(), 5);
    }

    #[tokio::test]
    async fn a_caller_that_is_never_polled_again_holds_up_nobody() {
        let bed = Bed::new();
        bed.spawn_reader();
        let mut asleep = Box::pin(bed.call(1));
        let mut other = Box::pin(bed.call(2));
        begin(&mut other).await;
        begin(&mut asleep).await;
        bed.peer.send(1).unwrap();
        bed.peer.send(2).unwrap();
        assert_eq!(other.await, Some(2));
        assert_eq!(asleep.await, Some(1));
        // A reply without a waiting caller is read as well.
        let read = bed.read();
        let mut asleep = Box::pin(bed.call(3));
        begin(&mut asleep).await;
        bed.peer.send(7).unwrap();
        tokio::time::sleep(LOOK_AFTER * 3).await;
        assert_eq!(bed.read(), read + 1);
        bed.peer.send(3).unwrap();
        assert_eq!(asleep.await, Some(3));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_reply_is_left_lying_among_threads() {
        let bed = Arc::new(Bed::new());
        let reader = bed.spawn_reader();
        let mut callers = tokio::task::JoinSet::new();
        for caller in 0..8_u32 {
            let bed = Arc::clone(&bed);
            callers.spawn(async move {
                for round in 0..500 {
                    let number = caller * 1000 + round;
                    let mut call = Box::pin(bed.call(number));
                    if number % 3 == 0 {
                        // Given up at some point or other.
                        bed.peer.send(number).unwrap();
                        let _ = timeout(Duration::from_micros(u64::from(number % 50)), call).await;
                        continue;
                    }
                    if number % 2 == 0 {
                        begin(&mut call).await;
                    }
                    bed.peer.send(number).unwrap();
                    assert_eq!(call.await, Some(number));
                }
            });
        }
        while let Some(ended) = callers.join_next().await {
            ended.unwrap();
        }
        bed.reading.close();
        reader.await.unwrap();
        assert!(bed.peer.is_closed(), "what was read from is let go of");
    }

    #[tokio::test]
    async fn closing_from_within_the_reading_lets_go_too() {
        let (peer, mut numbers) = mpsc::unbounded_channel::<Arc<Reading>>();
        let reading = Arc::new(Reading::new(async move {
            while let Some(reading) = numbers.recv().await {
                reading.close();
            }
        }));
        peer.send(Arc::clone(&reading)).unwrap();
        timeout(Duration::from_secs(5), async {
            tokio::select! {
                () = reading.all() => {}
                () = peer.closed() => {}
            }
        })
        .await
        .unwrap();
        assert!(peer.is_closed());
    }
}
