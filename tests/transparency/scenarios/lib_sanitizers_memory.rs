//! A mistake that MemorySanitizer finds, and none without an argument. Only the C library is called here. The standard
//! library of the compiler is not built for that sanitizer, which takes what it writes for uninitialized.
#![no_main]

use std::ffi::{c_char, c_int, c_void};

extern "C" {
    fn malloc(len: usize) -> *mut c_void;
    fn free(at: *mut c_void);
    fn puts(text: *const c_char) -> c_int;
    fn fork() -> c_int;
    fn wait(status: *mut c_int) -> c_int;
    fn _exit(status: c_int) -> !;
}

fn say(text: &'static core::ffi::CStr) {
    // SAFETY: the text ends with a zero.
    unsafe { puts(text.as_ptr()) };
}

#[no_mangle]
extern "C" fn main(count: c_int, _arguments: *const *const c_char) -> c_int {
    // SAFETY: the numbers are inside of what was allocated; the second is not written if there is an argument.
    unsafe {
        let numbers = malloc(8).cast::<c_int>();
        numbers.write_volatile(1);
        if count == 1 {
            numbers.add(1).write_volatile(2);
        }
        let mut status = 0;
        if fork() == 0 {
            _exit(3);
        }
        wait(&mut status);
        if status == 3 << 8 {
            say(c"the child has ended");
        }
        if numbers.add(1).read_volatile() == 2 {
            say(c"as it was written");
        }
        free(numbers.cast());
    }
    say(c"end");
    0
}
