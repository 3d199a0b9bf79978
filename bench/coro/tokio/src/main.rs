// SPDX-License-Identifier: MIT

//! tokio's tasks, for the benchmark: see coro.c for what a rival is asked. A task has no stack and no bare switch: its
//! figure for that is the same as for yielding, on tokio's scheduler for one thread.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn cpu_ms() -> (f64, f64) {
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let ms = |t: libc::timeval| t.tv_sec as f64 * 1e3 + t.tv_usec as f64 / 1e3;
    (ms(usage.ru_utime) + ms(usage.ru_stime), usage.ru_maxrss as f64 / 1024.0)
}

fn measure_yield(count: usize) {
    let rt = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let local = async move {
        let yield_often = || async move {
            for _ in 0..count / 2 {
                tokio::task::yield_now().await;
            }
        };
        let begin = Instant::now();
        let (a, b) = (tokio::spawn(yield_often()), tokio::spawn(yield_often()));
        a.await.unwrap();
        b.await.unwrap();
        println!("{:.4}", begin.elapsed().as_nanos() as f64 / count as f64);
    };
    rt.block_on(local);
}

struct Shared {
    asleep: AtomicUsize,
    awake: AtomicUsize,
    spawned_ns: AtomicU64,
    lateness: Vec<AtomicU32>,
}

fn measure_sleep(count: usize, duration: Duration) {
    let rt = tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
    let shared = Arc::new(Shared {
        asleep: AtomicUsize::new(0),
        awake: AtomicUsize::new(0),
        spawned_ns: AtomicU64::new(0),
        lateness: (0..count).map(|_| AtomicU32::new(1)).collect(),
    });
    let begin = Instant::now();
    rt.block_on(async {
        let spawner = {
            let shared = shared.clone();
            tokio::spawn(async move {
                let mut tasks = 0;
                while tasks < count {
                    let shared = shared.clone();
                    tokio::spawn(async move {
                        let deadline = Instant::now() + duration;
                        if shared.asleep.fetch_add(1, Relaxed) + 1 == count {
                            shared.spawned_ns.store(begin.elapsed().as_nanos() as u64, Relaxed);
                        }
                        tokio::time::sleep(duration).await;
                        let late = Instant::now().duration_since(deadline).as_nanos() as f32 / 1e3;
                        let index = shared.awake.fetch_add(1, Relaxed);
                        shared.lateness[index].store(late.to_bits(), Relaxed);
                    });
                    tasks += 1;
                }
            })
        };
        spawner.await.unwrap();
        while shared.awake.load(Relaxed) < count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    });
    let (cpu, peak) = cpu_ms();
    let mut lateness: Vec<f32> = shared.lateness.iter().map(|l| f32::from_bits(l.load(Relaxed))).collect();
    lateness.sort_by(|a, b| a.partial_cmp(b).unwrap());
    let spawned = shared.spawned_ns.load(Relaxed) as f64 / 1e6;
    println!("{:.4} {:.4} {:.4} {:.4} {:.4}", spawned, cpu, peak, lateness[count / 2], lateness[count * 99 / 100]);
    std::process::exit(0);
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if words.len() < 4 {
        std::process::exit(2);
    }
    let count: usize = words[2].parse().unwrap();
    let ms: u64 = words[3].parse().unwrap();
    if words[1] == "sleep" {
        measure_sleep(count, Duration::from_millis(ms));
    } else {
        measure_yield(count);
    }
}
