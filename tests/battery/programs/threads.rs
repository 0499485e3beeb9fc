// threads.rs: Rust: threads, channels, panics that are caught, a child process.
use std::panic;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

fn compute(rounds: u64) -> u64 {
    (0..rounds).fold(1, |value: u64, _| {
        std::hint::black_box(value.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407))
    })
}

#[inline(never)]
fn dive(depth: u32) -> u64 {
    if depth == 0 {
        panic!("below");
    }
    dive(depth - 1) + compute(1)
}

fn main() {
    panic::set_hook(Box::new(|_| ()));
    let (sender, receiver) = mpsc::channel();
    let workers: Vec<_> = (0..8)
        .map(|number| {
            let sender = sender.clone();
            thread::spawn(move || {
                let mut caught = 0;
                for i in 0..1500 {
                    caught += panic::catch_unwind(|| dive(i % 30)).is_err() as u64;
                    sender.send(compute(20000) % 7 + number).unwrap();
                }
                caught
            })
        })
        .collect();
    drop(sender);
    let sum: u64 = receiver.iter().sum();
    let caught: u64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    let child = Command::new("/bin/echo").arg("child").output().unwrap();
    println!("{sum} {caught} {:?} {:?}", child.stdout, std::env::var("LD_PRELOAD"));
}
