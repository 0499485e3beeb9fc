//! shares MILLISECONDS: the same as shares.c, in Rust: functions of which each measures its own CPU time, one of
//! them lets the kernel work (read). Prints each function's name and nanoseconds.

use std::fs::File;
use std::hint::black_box;
use std::io::Read;

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

extern "C" {
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

const CLOCK_THREAD_CPUTIME_ID: i32 = 3;

fn thread_time() -> u64 {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    unsafe { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64
}

// They differ: functions that are the same become one.
macro_rules! burner {
    ($name:ident, $factor:expr) => {
        #[inline(never)]
        fn $name(nanoseconds: u64, _source: &mut File) {
            let end = thread_time() + nanoseconds;
            while thread_time() < end {
                for i in 0..20_000u64 {
                    black_box(i * $factor);
                }
            }
        }
    };
}

burner!(burn_a, 3);
burner!(burn_b, 5);
burner!(burn_c, 7);

#[inline(never)]
fn burn_in_read(nanoseconds: u64, source: &mut File) {
    let mut buffer = vec![0u8; 65536];
    let end = thread_time() + nanoseconds;
    while thread_time() < end {
        black_box(source.read(&mut buffer).unwrap());
    }
}

fn main() {
    let milliseconds: u64 = std::env::args().nth(1).map_or(1000, |word| word.parse().unwrap());
    let all: [(&str, fn(u64, &mut File), u64); 4] = [
        ("shares::burn_a", burn_a, 45),
        ("shares::burn_b", burn_b, 25),
        ("shares::burn_c", burn_c, 8),
        ("shares::burn_in_read", burn_in_read, 22),
    ];
    let mut source = File::open("/dev/urandom").unwrap();
    let mut used = [0u64; 4];
    let mut seed = 12345u64;
    let end = thread_time() + milliseconds * 1_000_000;
    while thread_time() < end {
        for (i, (_, function, weight)) in all.iter().enumerate() {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let before = thread_time();
            function(weight * (10_000 + (seed >> 33) % 100_000), &mut source);
            used[i] += thread_time() - before;
        }
    }
    for (i, (name, ..)) in all.iter().enumerate() {
        println!("{name} {}", used[i]);
    }
}
