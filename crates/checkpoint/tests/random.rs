//! A program does things to its memory that follow from a seed, and says what it has after each. Checkpoints are taken,
//! put back and discarded at random: whatever is done again must come out as it did the first time.

mod common;
use common::{compile, Program};

const PROGRAM: &str = r#"
enum { P = 4096, SLOTS = 12, BIGGEST = 40 };
static struct { char *at; int pages, prot; } slot[SLOTS]; static uint64_t state; static char data[40000];
static uint64_t next(void) { state ^= state << 13; state ^= state >> 7; state ^= state << 17; return state; }
static uint64_t deep(int n) { volatile char frame[2000]; frame[1] = n; return n ? deep(n - 1) + frame[1] : 0; }
int main(int argc, char **argv) {
    begin(); state = strtoull(argv[1], 0, 10) | 1;
    for (int step = 0;; step++) {
        int i = next() % SLOTS, op = next() % 9; char **at = &slot[i].at;
        if (!*at) { slot[i].pages = 1 + next() % BIGGEST; slot[i].prot = 3;
            int f = op == 1 ? open(argv[0], O_RDONLY) : -1; if (f >= 0) slot[i].pages = 3;
            *at = mmap(0, slot[i].pages * P, 3, MAP_PRIVATE | (f < 0 ? MAP_ANONYMOUS : 0), f, 0); if (f >= 0) close(f); }
        else if (op == 0) { munmap(*at, slot[i].pages * P); *at = 0; }
        else if (op == 1 && slot[i].pages > 2) { slot[i].pages--; munmap(*at + slot[i].pages * P, P); }
        else if (op == 2) { slot[i].prot ^= 2; mprotect(*at, slot[i].pages * P, slot[i].prot); }
        else if (op == 3 && slot[i].pages > 3) { madvise(*at + P, P, MADV_DONTNEED); }
        else if (op == 4) { char *to = mremap(*at, slot[i].pages * P, slot[i].pages * P + P, MREMAP_MAYMOVE); if (to != MAP_FAILED) { *at = to; mprotect(to, slot[i].pages * P, slot[i].prot); mprotect(to, P, slot[i].prot); } }
        else if (op == 5) sbrk(next() % 2 ? 5000 : -3000);
        else if (op == 6) data[deep(next() % 300) % 40000]++;
        if (*at && slot[i].prot & 2) for (int k = 0; k < 3; k++) (*at)[next() % (slot[i].pages < 3 ? P : 3 * P) % (slot[i].pages * P)] = next();
        data[next() % 40000] = next();
        uint64_t h = hash(data, sizeof data);
        for (int k = 0; k < SLOTS; k++) if (slot[k].at) h = h * 31 + hash(slot[k].at, (slot[k].pages < 3 ? slot[k].pages : 3) * P) + (uint64_t)slot[k].at;
        SAY("%d %lx %p", step, h, sbrk(0)); STOP();
    }
}
"#;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn run(path: &std::path::Path, seed: u64) {
    let mut random = Random(seed);
    let mut program = Program::start(path, &[&seed.to_string()]);
    let mut said: Vec<String> = Vec::new();
    let mut vessels = Vec::new();
    let (mut step, mut restores) = (0, 0);
    program.trap();
    for _ in 0..250 {
        let line = program.line();
        match said.get(step) {
            Some(before) => assert_eq!(*before, line, "seed {seed}, step {step}"),
            None => said.push(line),
        }
        step += 1;
        match random.below(6) {
            0 if vessels.len() < 6 => vessels.push((step, program.fork())),
            1 if !vessels.is_empty() => {
                let which = random.below(vessels.len() as u64) as usize;
                for (_, younger) in vessels.drain(which + 1..) {
                    program.discard(younger);
                }
                step = vessels[which].0;
                program.restore(&vessels[which].1);
                restores += 1;
            }
            2 if vessels.len() > 2 => {
                let (_, oldest) = vessels.remove(0);
                program.discard(oldest);
            }
            _ => {}
        }
        program.resume();
        program.trap();
    }
    assert!(restores > 5, "seed {seed}: something was put back");
    for (_, vessel) in vessels {
        program.discard(vessel);
    }
}

#[test]
fn what_is_done_again_comes_out_the_same() {
    let path = compile("random", PROGRAM, &[]);
    let first = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let start = first.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |time| time.subsec_nanos().into()));
    let count = if first.is_some() { 1 } else { 8 };
    println!("SEED={start} begins this run");
    for seed in start..start + count {
        run(&path, seed.max(1));
    }
}

/// Pieces of an area with the same protection looked like the whole: the kernel had not joined them, and mremap failed
/// where it had succeeded.
#[test]
fn an_area_in_pieces_is_not_whole() {
    run(&compile("pieces", PROGRAM, &[]), 967_746_012);
}
