// What perf_proof.py records of Rust: maps, sorting by closures, formatting, recursion, caught panics.
// argument: rounds.
use std::collections::{BTreeMap, HashMap};
use std::panic::{catch_unwind, set_hook};

#[inline(never)]
fn words(round: u64) -> Vec<String> {
    (0..400).map(|i| format!("{:x}-{}", (i * 2654435761u64) ^ round, i % 7)).collect()
}

#[inline(never)]
fn counted(words: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = HashMap::new();
    for word in words {
        *counts.entry(word.split('-').nth(1).unwrap()).or_insert(0) += word.len();
    }
    counts.into_iter().collect()
}

#[inline(never)]
fn depth(words: &mut [String], level: u32) -> usize {
    words.sort_by(|a, b| b.chars().rev().cmp(a.chars().rev()));
    if level == 0 || words.len() < 2 {
        return words.iter().map(|word| word.len()).sum();
    }
    let (left, right) = words.split_at_mut(words.len() / 2);
    depth(left, level - 1) + depth(right, level - 1)
}

fn main() {
    set_hook(Box::new(|_| {}));
    let rounds: u64 = std::env::args().nth(1).map_or(1, |text| text.parse().unwrap());
    let mut total = 0;
    for round in 0..rounds {
        let mut list = words(round);
        total += counted(&list).len() + depth(&mut list, 4);
        total += usize::from(catch_unwind(|| list[list.len()].len()).is_err());
    }
    assert!(total > 0);
}
