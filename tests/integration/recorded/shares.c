/* shares MILLISECONDS: functions of which each measures its own CPU time, in short turns of random length;
 * one lets the kernel work (read). Prints each function's name and nanoseconds. */
#include <fcntl.h>

#include "burn.h"

DEFINE_BURNER(burn_a)
DEFINE_BURNER(burn_b)
DEFINE_BURNER(burn_c)

static int source;

NOINLINE void burn_in_read(uint64_t nanoseconds) {
    static char buffer[65536];
    uint64_t end = thread_time() + nanoseconds;
    while (thread_time() < end)
        if (read(source, buffer, sizeof buffer) < 0)
            abort();
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        void (*function)(uint64_t);
        uint64_t weight;
    } all[] = {{"burn_a", burn_a, 45},
               {"burn_b", burn_b, 25},
               {"burn_c", burn_c, 8},
               {"burn_in_read", burn_in_read, 22}};
    uint64_t used[4] = {0}, seed = 12345;
    uint64_t end = thread_time() + (count > 1 ? strtoull(arguments[1], NULL, 10) : 1000) * MILLISECONDS;
    source = open("/dev/urandom", O_RDONLY);
    while (thread_time() < end)
        for (int i = 0; i < 4; i++) {
            seed = seed * 6364136223846793005 + 1442695040888963407;
            uint64_t before = thread_time();
            all[i].function(all[i].weight * (10000 + (seed >> 33) % 100000));
            used[i] += thread_time() - before;
        }
    for (int i = 0; i < 4; i++)
        printf("%s %llu\n", all[i].name, (unsigned long long)used[i]);
    return 0;
}
