/*
 * exception.cpp: an exception is on its way through a function whose destructor waits.
 */
#include "ready.h"

#include <stdexcept>

namespace demo {

struct Waits {
    NOINLINE ~Waits() {
        tell_ready();
        wait_for_line(); // one that never ends would make the compiler drop the handler
    }
};

NOINLINE static int thrower(int depth) {
    if (depth == 0)
        throw std::runtime_error("on its way");
    int result = thrower(depth - 1) + 1;
    KEEP_FRAME;
    return result;
}

NOINLINE static int passes_through() {
    Waits waits;
    int result = thrower(3);
    KEEP_FRAME;
    return result;
}

} // namespace demo

int main() {
    try {
        return demo::passes_through();
    } catch (const std::exception &) {
        return 1;
    }
}
