// Rust's library: hash map, B-tree, sorting with closures, strings, trait objects, iterators, reference counts;
// panics that are caught, and in threads. The first argument: rounds.
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::fmt::Write;
use std::panic::{catch_unwind, resume_unwind, set_hook, AssertUnwindSafe};
use std::rc::Rc;

trait Shape {
    fn area(&self) -> u64;
}
struct Square(u64);
struct Named(Rc<String>, u64);
impl Shape for Square {
    fn area(&self) -> u64 {
        self.0 * self.0
    }
}
impl Shape for Named {
    fn area(&self) -> u64 {
        self.0.len() as u64 + self.1
    }
}
impl Drop for Named {
    fn drop(&mut self) {
        self.1 = 0;
    }
}

fn collections(round: u64) -> u64 {
    let mut map: HashMap<String, u64> = HashMap::new();
    let mut tree = BTreeMap::new();
    let mut heap = BinaryHeap::new();
    let mut queue = VecDeque::new();
    for i in 0..80u64 {
        *map.entry(format!("key{}", i * 7919 % 31)).or_insert(0) += i + round;
        tree.insert(i * 37 % 101, i);
        heap.push(i * 13 % 29);
        queue.push_front(i);
    }
    let mut words: Vec<String> = map.keys().cloned().collect();
    words.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    let mut text = String::new();
    for (key, value) in tree.range(10..60) {
        write!(text, "{key}={value:>5} {:.3};", *value as f64 / 7.0).unwrap();
    }
    let name = Rc::new(text);
    let shapes: Vec<Box<dyn Shape>> = vec![Box::new(Square(3)), Box::new(Named(name.clone(), 4))];
    let parsed: u64 = "12 7 x 90".split(' ').filter_map(|word| word.parse::<u64>().ok()).sum();
    parsed + shapes.iter().map(|shape| shape.area()).sum::<u64>() + heap.pop().unwrap() + queue.len() as u64
}

fn deep(depth: u32, kept: &Named) -> u64 {
    let own = Named(kept.0.clone(), u64::from(depth));
    if depth == 0 {
        let empty: Vec<u64> = Vec::new();
        return empty[own.1 as usize]; // panics
    }
    deep(depth - 1, &own) + own.area()
}

fn panics() -> u64 {
    let kept = Named(Rc::new("kept".into()), 1);
    let caught = catch_unwind(AssertUnwindSafe(|| deep(4, &kept)));
    let again = catch_unwind(|| resume_unwind(Box::new(7u32)));
    let joined = std::thread::spawn(|| -> u64 { panic!("in a thread") }).join();
    u64::from(caught.is_err()) + u64::from(again.is_err()) + u64::from(joined.is_err())
}

fn main() {
    set_hook(Box::new(|_| {}));
    let rounds = std::env::args().nth(1).map_or(1, |text| text.parse().unwrap());
    let mut total = 0;
    for round in 0..rounds {
        total += collections(round);
        assert_eq!(panics(), 3);
    }
    assert!(total > 0);
}
