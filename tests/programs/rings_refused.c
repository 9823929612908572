/* io_uring and AIO are there or ENOSYS (EPERM): programs fall back. */
#include "check.h"
#include <linux/aio_abi.h>
int main(void) {
    char parameters[256] = {0};
    long r = syscall(SYS_io_uring_setup, 4, parameters);
    CHECK(r >= 0 || errno == ENOSYS || errno == EPERM || errno == ENOMEM);
    aio_context_t context = 0;
    r = syscall(SYS_io_setup, 4, &context);
    CHECK(r == 0 || errno == ENOSYS);
    FAILS(syscall(SYS_io_destroy, 12345) == -1 && (errno == EINVAL || errno == ENOSYS) ? (errno = EINVAL, -1) : 0, EINVAL);
    printf("survived\n");
    return 0;
}
