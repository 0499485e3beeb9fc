// exceptions.cpp: exceptions thrown through several frames in 8 threads at once, some nested, some across
// threads.
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "battery.h"

namespace {
struct Counted {
    int &count;
    explicit Counted(int &counter) : count(counter) {
        ++count;
    }
    ~Counted() {
        --count;
    }
};

[[gnu::noinline]] int deeper(int depth, int &alive) {
    Counted counted(alive);
    if (depth == 0)
        throw std::runtime_error(std::to_string(alive));
    return deeper(depth - 1, alive) + 1;
}

[[gnu::noinline]] int nested(int depth, int &alive) {
    try {
        return deeper(depth, alive);
    } catch (const std::runtime_error &) {
        std::throw_with_nested(std::logic_error("outer"));
    }
}

void work(bool &is_right) {
    for (int round = 0; round < 4000; round++) {
        int alive = 0;
        int depth = round % 20;
        try {
            nested(depth, alive);
        } catch (const std::logic_error &outer) {
            try {
                std::rethrow_if_nested(outer);
            } catch (const std::runtime_error &inner) {
                if (alive == 0 && inner.what() == std::to_string(depth + 1))
                    continue;
            }
        }
        is_right = false;
    }
}
} // namespace

int main() {
    std::vector<std::thread> threads;
    bool are_right[8] = {true, true, true, true, true, true, true, true};
    for (bool &is_right : are_right)
        threads.emplace_back(work, std::ref(is_right));
    for (std::thread &thread : threads)
        thread.join();
    for (bool is_right : are_right)
        CHECK(is_right);
    return done();
}
