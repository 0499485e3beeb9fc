//! mixed SECONDS: three threads work for so long: hash maps, sort, ordered maps, formatting, recursion.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

fn fibonacci(n: u64) -> u64 {
    if n < 2 { n } else { fibonacci(n - 1) + fibonacci(n - 2) }
}

fn work(seed: u64) -> usize {
    let mut map: HashMap<String, Vec<u64>> = HashMap::new();
    let mut state = seed;
    for i in 0..3000u64 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        map.entry(format!("k{}", state >> 54)).or_default().push(i);
    }
    let mut counts: Vec<(String, usize)> = map.iter().map(|(key, values)| (key.clone(), values.len())).collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let ordered: BTreeMap<String, usize> = counts.into_iter().collect();
    let text: String = ordered.iter().map(|(key, n)| format!("{key}={n:>5};{:?}", (n, key))).collect();
    text.len() + fibonacci(15) as usize
}

fn work_until(end: Instant, first: u64) -> usize {
    let mut sum = 0;
    let mut seed = first;
    while Instant::now() < end {
        sum += work(seed);
        seed += 3;
    }
    sum
}

fn main() {
    let seconds: f64 = std::env::args().nth(1).map_or(1.0, |text| text.parse().unwrap());
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let threads: Vec<_> = (0..3).map(|first| std::thread::spawn(move || work_until(end, first))).collect();
    println!("{}", threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>());
}
