/* A setuid program run as a user: either it runs with the owner's rights or it is refused; the program survives. */
/* @setuid */
#include "check.h"
#include <sys/auxv.h>
int main(void) {
    /* Native: effective user is root. Traced by an ordinary user the kernel does not grant it: that is allowed. */
    uid_t real, effective, saved;
    OK(getresuid(&real, &effective, &saved));
    CHECK(real == 65534);
    CHECK(effective == 0 || effective == real);
    CHECK((getauxval(AT_SECURE) != 0) == (effective != real));
    printf("survived\n");
    return 0;
}
