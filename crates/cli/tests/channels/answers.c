// What a name of a socket tells that is not there.
#include "harness.h"

static void connect_gone(int r) { // A removes the name.
    struct sockaddr_un name = {AF_UNIX, "other"};
    if (r == A) dirty(), ck(unlink("other"));
    if (r == B) {
        int s = ck(socket(AF_UNIX, SOCK_STREAM, 0));
        later(), must(connect(s, (void *)&name, sizeof name) == -1 && errno == ENOENT), saw();
    }
}
CASES(answers) = {CH(connect_gone)};
