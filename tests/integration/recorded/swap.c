/* A library for swapped.c. Numbers 0 and 1 differ in names only, and so do 2 and 3. */
#include "burn.h"

#define JOINED(a, b) a##b
#define NAMED(name, number) JOINED(name, number)
#define RUN NAMED(run_, NUMBER)
#define BURN NAMED(burn_, NUMBER)

void BURN(uint64_t nanoseconds);
void RUN(uint64_t nanoseconds);

#if NUMBER / 2
__attribute__((used)) static volatile char before[4096];
NOINLINE void BURN(uint64_t nanoseconds) {
    volatile uint64_t sums[64] = {0};
    uint64_t end = thread_time() + nanoseconds;
    for (unsigned i = 0; thread_time() < end; i++)
        for (unsigned k = 0; k < 20000; k++)
            sums[k % 64] += before[k % 4096] + i;
}
#else
DEFINE_BURNER(BURN)
#endif

NOINLINE void RUN(uint64_t nanoseconds) {
    volatile char room[16 + 200 * (NUMBER / 2)];
    room[0] = 1;
    BURN(nanoseconds);
    room[1] = room[0];
}
