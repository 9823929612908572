/* Speculations of a program's own, inside a world of `speculator run`. Link with -lspeculator. */
#ifndef SPECULATOR_H
#define SPECULATOR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Begin a speculation. Returns twice, as fork does: first its number, which is above 0; and again, from the same moment, -1 with errno ECANCELED
 * if it fails. Between the two everything that depends on it is taken back, in all processes of the world.
 * -1 with errno ENOSYS: not inside a world. EAGAIN: this process cannot run ahead (it has several threads, or shares memory), or too many are open. */
int64_t speculator_begin(void);

/* As speculator_begin, for somebody outside of the world to resolve (`speculator guesses`), who is told of the tag. */
int64_t speculator_begin_for_outside(uint64_t tag);

/* The guess was right: what depends on it may leave the world. 0, or -1 with errno ESRCH: resolved before, or undone with an older one. */
int speculator_commit(int64_t speculation);

/* The guess was wrong. Returns only to a caller that does not depend on it; as speculator_commit. */
int speculator_fail(int64_t speculation);

/* How many speculations the caller depends on; -1 with errno ENOSYS outside a world. */
int64_t speculator_depth(void);

#ifdef __cplusplus
}
#endif

#endif
