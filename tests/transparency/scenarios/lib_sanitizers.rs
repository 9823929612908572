//! Mistakes that sanitizers find, one for each argument.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

static mut COUNTER: u32 = 0;
static IS_DONE: AtomicBool = AtomicBool::new(false);

fn clean() {
    let sums: Vec<_> = (0..3).map(|i| thread::spawn(move || vec![i; 1000].iter().sum::<i32>())).collect();
    let sums: Vec<i32> = sums.into_iter().map(|sum| sum.join().unwrap()).collect();
    println!("{sums:?}");
}

fn overflow() {
    let bytes = vec![1u8; 8].into_boxed_slice();
    let at = black_box(8usize);
    println!("{}", unsafe { *bytes.as_ptr().add(at) });
}

fn race() {
    let other = thread::spawn(|| unsafe {
        COUNTER = 1;
        IS_DONE.store(true, Ordering::Relaxed);
    });
    while !IS_DONE.load(Ordering::Relaxed) {
        thread::yield_now();
    }
    unsafe { COUNTER = 2 };
    other.join().unwrap();
}

fn main() {
    clean();
    match std::env::args().nth(1).as_deref() {
        Some("leak") => std::mem::forget(black_box(Box::new([1u8; 333]))),
        Some("overflow") => overflow(),
        Some("race") => race(),
        _ => {}
    }
    println!("end");
}
