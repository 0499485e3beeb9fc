/*
 * deep.c: 10,000 frames of a recursion.
 */
#include "ready.h"

NOINLINE static int descend(int depth) {
    if (depth == 1) {
        tell_ready();
        wait_for_line();
        return 1;
    }
    int result = descend(depth - 1) + 1;
    KEEP_FRAME;
    return result;
}

int main(void) {
    int result = descend(10000);
    KEEP_FRAME;
    return result;
}
