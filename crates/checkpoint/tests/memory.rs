//! Memory is put back: contents and layout.

mod common;
use common::check;

#[test]
fn data_heap_and_stack() {
    check(
        "data",
        r#"
        static char data[9000] = {1}, bss[20000]; static char *heap, *big; static int runs;
        static void setup(void) { heap = malloc(50000); big = malloc(3 << 20); memset(heap, 7, 50000); memset(big, 8, 1 << 20); }
        static void report(void) {
            SAY("%d %lx %lx %lx %lx", runs, hash(data, sizeof data), hash(bss, sizeof bss), hash(heap, 50000), hash(big, 3 << 20)); }
        static void change(void) { char local[30000]; runs++; memset(local, runs, sizeof local); memcpy(bss, local, 20000);
            data[8999]++; heap[40000]++; big[5] = 1; big[2 << 20] = 1; }
        "#,
    );
}

#[test]
fn pages_never_touched_are_zero_again() {
    check(
        "zero",
        r#"
        static char *p; static void setup(void) { p = mmap(0, 64 << 12, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); p[3 << 12] = 1; volatile char c = p[5 << 12]; }
        static void report(void) { SAY("%lx", hash(p, 64 << 12)); }
        static void change(void) { for (int i = 0; i < 64; i += 2) p[i << 12]++; }
        "#,
    );
}

#[test]
fn mappings_come_and_go() {
    check(
        "maps",
        r#"
        static char *a, *b, *c, *d; enum { P = 4096 };
        static int alive(char *p) { char x; int f[2]; pipe(f); int ok = write(f[1], p, 1) == 1; close(f[0]); close(f[1]); return ok; }
        static void setup(void) {
            a = mmap(0, 16 * P, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); memset(a, 1, 16 * P);
            b = mmap(0, 16 * P, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); memset(b, 2, 16 * P);
            c = mmap(0, 16 * P, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); memset(c, 3, 16 * P); mprotect(c + 4 * P, P, 0); mprotect(c + 8 * P, P, 1);
        }
        static void report(void) {
            SAY("%d %d %d %d %d %d", alive(a + 4 * P), alive(b), alive(b + 9 * P), alive(c), alive(c + 4 * P), d ? alive(d) : 0);
            if (!d) { mprotect(c + 4 * P, P, 1); if (hash(a, 16 * P) == 1 || c[4 * P] != 3 || b[9 * P] != 2) _exit(3); mprotect(c + 4 * P, P, 0); }
        }
        static void change(void) {
            munmap(a + 3 * P, 2 * P); munmap(b, 16 * P); mmap(b + 8 * P, 4 * P, 1, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            mprotect(c + 4 * P, P, 3); c[4 * P] = 9; mprotect(c, P, 0);
            d = mmap(0, 64 * P, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); memset(d, 1, 64 * P);
        }
        "#,
    );
}

#[test]
fn memory_that_was_moved_is_back_and_whole() {
    check(
        "moved",
        r#"
        static char *a; static size_t len = 8 << 12;
        static void setup(void) { a = mmap(0, len, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); for (int i = 0; i < 8; i++) a[i << 12] = i; }
        static void report(void) { SAY("%p %zu %lx", a, len, hash(a, len)); }
        static void change(void) { char *at = mmap(0, 64 << 12, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            a = mremap(a, len, 32 << 12, MREMAP_MAYMOVE | MREMAP_FIXED, at); len = 32 << 12; if (a == MAP_FAILED) _exit(4); a[20 << 12] = 7; }
        "#,
    );
}

#[test]
fn the_break() {
    check(
        "brk",
        r#"
        static char *at; static void setup(void) { at = sbrk(10000); memset(at, 5, 10000); }
        static void report(void) { SAY("%p %lx", sbrk(0), hash(at, 10000)); }
        static void change(void) { char *more = sbrk(5 << 20); memset(more, 1, 5 << 20); at[9999]++; }
        "#,
    );
    check(
        "brk_down",
        r#"
        static char *at; static void setup(void) { at = sbrk(1 << 20); memset(at, 5, 1 << 20); }
        static void report(void) { char *now = sbrk(0); SAY("%p %lx", now, hash(at, now - at)); }
        static void change(void) { sbrk(-(1 << 19)); at[99]++; }
        "#,
    );
}

#[test]
fn files_mapped_privately() {
    check(
        "file",
        r#"
        static char *a, *b; static int runs;
        static void setup(void) {
            char name[64]; sprintf(name, "/tmp/speculator-checkpoint-%d", getpid()); int f = open(name, O_RDWR | O_CREAT | O_EXCL, 0600); for (int i = 0; i < 8 * 4096; i++) write(f, &(char){i / 999}, 1);
            a = mmap(0, 8 << 12, 3, MAP_PRIVATE, f, 0); b = mmap(0, 4 << 12, 1, MAP_PRIVATE, f, 2 << 12); a[0] = 77; unlink(name); close(f); }
        static void report(void) { SAY("%d %lx %lx", runs, hash(a, 8 << 12), runs ? 0 : hash(b, 4 << 12)); }
        static void change(void) { runs++; a[0] = 78; a[3 << 12] = 1; munmap(a + (6 << 12), 1 << 12); mmap(a + (6 << 12), 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            munmap(b, 4 << 12); }
        "#,
    );
}

#[test]
fn what_is_shared_stays_as_it_is() {
    check(
        "shared",
        r#"
        static int *count, *segment, *lost; static int runs, seen;
        static void setup(void) { count = mmap(0, 4096, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0); int id = shmget(IPC_PRIVATE, 8192, IPC_CREAT | 0600);
            segment = shmat(id, 0, 0); lost = shmat(id, 0, SHM_RDONLY); shmctl(id, IPC_RMID, 0); }
        static void report(void) { SAY("%d", runs); if (!runs) { if (*count != *segment || *lost != *segment) _exit(5);
            if (*count > 3) _exit(6); } }
        static void change(void) { runs++; ++*count; ++*segment; if (*count % 2) shmdt(lost); }
        "#,
    );
}

#[test]
fn a_deep_stack() {
    check(
        "deep",
        r#"
        static int depth; static long down(int n) { volatile char frame[4096]; frame[0] = n; return n ? down(n - 1) + frame[0] : 0; }
        static long sum; static void setup(void) { sum = down(20); } static void report(void) { SAY("%ld", sum); }
        static void change(void) { sum += down(1500); }
        "#,
    );
}

/// The areas that the kernel maps for each program, as their lengths and protections, and what is behind the vdso's
/// first bytes; `syscall` instructions that calls can be made from are elsewhere, too.
const KERNEL_AREAS: &str = r#"
    #include <sys/auxv.h>
    enum { P = 4096 };
    static struct { char *at; size_t len; char name[32]; } areas[8]; static int count;
    static void look(void) {
        FILE *f = fopen("/proc/self/maps", "r"); char line[512]; count = 0;
        while (fgets(line, sizeof line, f)) { char *v = strstr(line, "[v"); unsigned long a, b;
            if (!v || strstr(line, "[vsyscall]") || sscanf(line, "%lx-%lx", &a, &b) != 2) continue;
            areas[count].at = (char *)a; areas[count].len = b - a; sscanf(v, "%31s", areas[count].name); count++; }
        fclose(f); }
    static char *vdso(void) {
        for (int i = 0; i < count; i++) if (!strcmp(areas[i].name, "[vdso]")) return areas[i].at;
        return 0; }
    static void report(void) {
        FILE *f = fopen("/proc/self/maps", "r"); char line[512], all[4096] = ""; char *v;
        while (fgets(line, sizeof line, f)) if ((v = strstr(line, "[v"))) {
            line[strcspn(line, "\n")] = ';'; strcat(all, line); }
        fclose(f); look(); SAY("%s %lx", all, vdso() ? hash(vdso(), 2 * P) : 0); }
    static void setup(void) { look(); }
"#;

#[test]
fn kernel_areas_that_were_unmapped_are_back() {
    let change = "static void change(void) { for (int i = 0; i < count; i++) munmap(areas[i].at, areas[i].len); }";
    check("kernel_areas_unmapped", &format!("{KERNEL_AREAS}{change}"));
}

#[test]
fn the_vdso_alone_is_back() {
    let change = "static void change(void) { munmap(vdso(), 2 * P); }";
    check("vdso_unmapped", &format!("{KERNEL_AREAS}{change}"));
}

#[test]
fn kernel_areas_that_come_again_go_again() {
    let setup = "static void unmap(void) { for (int i = 0; i < count; i++) munmap(areas[i].at, areas[i].len); }\n\
                 #define setup() (look(), unmap())\n";
    let change = "static void change(void) { if (syscall(SYS_arch_prctl, 0x2003, 0x700000000000) < 0) _exit(5); }";
    check("kernel_areas_again", &format!("{KERNEL_AREAS}{setup}{change}"));
}

#[test]
fn what_was_written_into_the_vdso_is_gone() {
    let change =
        "static void change(void) { char *v = vdso(); if (mprotect(v, 2 * P, 7)) _exit(6); v[P + 4000] ^= 1; }";
    check("vdso_written", &format!("{KERNEL_AREAS}{change}"));
}
