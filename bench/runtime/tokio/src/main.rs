// SPDX-License-Identifier: MIT

//! The runtime's benchmark for tokio: the work of runtime.c with tokio::time. Prints a line "measure value" for each.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::time::{Duration, Instant};
use tokio::time::{sleep_until, Sleep};

const LOCAL_TIMERS: u64 = 1000;
const LOCAL_ROUNDS: u64 = 1000;

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(clock, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

fn thread_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn process_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn idle_waker() -> Waker {
    const TABLE: RawWakerVTable = RawWakerVTable::new(|_| RawWaker::new(std::ptr::null(), &TABLE), |_| {}, |_| {}, |_| {});
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) }
}

/// A timer is in tokio's wheel from its first poll until it is dropped.
fn start(sleep: Pin<&mut Sleep>, context: &mut Context<'_>) {
    assert!(sleep.poll(context) == Poll::Pending);
}

fn start_and_cancel() -> f64 {
    let waker = idle_waker();
    let mut context = Context::from_waker(&waker);
    let base = tokio::time::Instant::now() + Duration::from_secs(30);
    let begin = thread_ns();
    for _ in 0..LOCAL_ROUNDS {
        for i in 0..LOCAL_TIMERS {
            let sleep = sleep_until(base + Duration::from_millis(i));
            tokio::pin!(sleep);
            start(sleep.as_mut(), &mut context);
        }
    }
    (thread_ns() - begin) as f64 / (LOCAL_TIMERS * LOCAL_ROUNDS) as f64
}

fn on_worker(rt: &tokio::runtime::Runtime, work: fn() -> f64) -> f64 {
    let (send, receive) = mpsc::channel();
    rt.spawn(async move { send.send(work()).unwrap() });
    receive.recv().unwrap()
}

/// The same permutation for every run.
fn permutation(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut seed: u64 = 7;
    for i in (1..count).rev() {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        order.swap(i, (seed >> 33) as usize % (i + 1));
    }
    order
}

fn far(rt: &tokio::runtime::Runtime, count: usize) {
    let _guard = rt.enter();
    let waker = idle_waker();
    let mut context = Context::from_waker(&waker);
    let base = tokio::time::Instant::now() + Duration::from_secs(3600);
    let mut timers: Vec<Option<Pin<Box<Sleep>>>> =
        (0..count).map(|i| Some(Box::pin(sleep_until(base + Duration::from_micros(i as u64))))).collect();
    let begin = thread_ns();
    for timer in timers.iter_mut() {
        start(timer.as_mut().unwrap().as_mut(), &mut context);
    }
    println!("R2 {}", (thread_ns() - begin) as f64 / count as f64);
    std::thread::sleep(Duration::from_millis(100));
    let begin = process_ns();
    std::thread::sleep(Duration::from_secs(1));
    println!("R8 {}", (process_ns() - begin) as f64 / 1e6);
    println!("R1 {}", on_worker(rt, start_and_cancel));
    let order = permutation(count);
    let begin = thread_ns();
    for i in order {
        timers[i] = None;
    }
    println!("R3 {}", (thread_ns() - begin) as f64 / count as f64);
}

fn firing(rt: &tokio::runtime::Runtime, count: usize) {
    let fired = Arc::new(AtomicUsize::new(0));
    let late: Arc<Vec<AtomicUsize>> = Arc::new((0..count).map(|_| AtomicUsize::new(0)).collect());
    let base = Instant::now() + Duration::from_millis(500) + Duration::from_micros(count as u64 * 2);
    let step = Duration::from_nanos(1_000_000_000 / count as u64);
    for i in 0..count {
        let (fired, late) = (fired.clone(), late.clone());
        rt.spawn(async move {
            let deadline = base + step * i as u32;
            sleep_until(deadline.into()).await;
            late[i].store(deadline.elapsed().as_nanos() as usize, Ordering::Relaxed);
            fired.fetch_add(1, Ordering::Relaxed);
        });
    }
    while Instant::now() < base - Duration::from_millis(100) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let begin = process_ns();
    while fired.load(Ordering::Relaxed) < count {
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("R4 {}", (process_ns() - begin) as f64 / count as f64);
    let mut late: Vec<usize> = late.iter().map(|l| l.load(Ordering::Relaxed)).collect();
    late.sort_unstable();
    println!("R5 {}", late[count / 2] as f64 / 1000.0);
    println!("R6 {}", late[count - 1 - count / 100] as f64 / 1000.0);
}

fn main() {
    let arguments: Vec<usize> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    far(&rt, arguments[0]);
    firing(&rt, arguments[1]);
}
