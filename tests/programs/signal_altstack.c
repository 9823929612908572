/* sigaltstack: handlers run there, also for a stack overflow; nested handlers stay on it; SS_ONSTACK is told. */
#include "check.h"
#include <setjmp.h>
static char *alternative;
static const int SIZE = 64 * 1024;
static sigjmp_buf back;
static int on_it(void) { char here; return &here > alternative && &here < alternative + SIZE; }
static void inner(int s) { printf("inner on it: %d\n", on_it()); }
static void outer(int s) {
    stack_t now;
    OK(sigaltstack(NULL, &now));
    printf("outer on it: %d, SS_ONSTACK %d\n", on_it(), now.ss_flags & SS_ONSTACK);
    raise(SIGUSR2);
    FAILS(sigaltstack(&(stack_t){.ss_sp = alternative, .ss_size = SIZE}, NULL), EPERM);
}
static void overflow(int s) { if (!on_it()) _exit(8); siglongjmp(back, 1); }
static int dive(int n) { volatile char a[4096]; a[0] = n; return n > 1 << 20 ? 0 : dive(n + 1) + a[0]; }
int main(void) {
    alternative = malloc(SIZE);
    OK(sigaltstack(&(stack_t){.ss_sp = alternative, .ss_size = SIZE}, NULL));
    on_signal(SIGUSR1, outer, SA_ONSTACK);
    on_signal(SIGUSR2, inner, SA_ONSTACK);
    raise(SIGUSR1);
    on_signal(SIGSEGV, overflow, SA_ONSTACK);
    for (int i = 0; i < 3; i++) if (!sigsetjmp(back, 1)) dive(0); else printf("overflow caught\n");
    raise(SIGUSR1);
    return 0;
}
