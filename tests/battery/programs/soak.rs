// soak.rs: the Rust part of soak.cpp: a shared library.
use std::collections::BTreeMap;
use std::panic;
use std::sync::Once;

static QUIET: Once = Once::new();

#[inline(never)]
fn fold(depth: u64, value: u64, callback: extern "C" fn(u64) -> u64) -> u64 {
    if depth == 0 {
        return callback(value);
    }
    fold(depth - 1, value.wrapping_mul(31).wrapping_add(depth), callback).wrapping_add(depth)
}

#[no_mangle]
pub extern "C" fn rust_work(seed: u64, callback: extern "C" fn(u64) -> u64) -> u64 {
    let mut map = BTreeMap::new();
    for i in 0..200 {
        map.insert((seed + i * 7) % 91, fold(i % 20, seed + i, callback));
    }
    map.into_iter().fold(0, |sum: u64, (key, value)| sum.wrapping_mul(3).wrapping_add(key ^ value))
}

#[inline(never)]
fn fails(depth: u64) -> Vec<u64> {
    let kept = vec![depth; 10];
    if depth == 0 {
        panic!("as wanted");
    }
    let mut below = fails(depth - 1);
    below.extend(kept);
    below
}

#[no_mangle]
pub extern "C" fn rust_panics(count: u64) -> u64 {
    QUIET.call_once(|| panic::set_hook(Box::new(|_| ())));
    (0..count).filter(|i| panic::catch_unwind(|| fails(*i)).is_err()).count() as u64
}
