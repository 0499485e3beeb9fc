// soak.cpp: runs for so many seconds as it is told: threads that come and go and throw through frames of C++
// and Rust, libraries that are loaded and unloaded, memory that changes hands, children. Says what it has
// done, or what went wrong.
#include <dlfcn.h>
#include <sys/wait.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "battery.h"

extern "C" {
uint64_t rust_work(uint64_t seed, uint64_t (*callback)(uint64_t));
uint64_t rust_panics(uint64_t count);
}

namespace {
std::atomic<bool> is_over;
std::atomic<uint64_t> rounds;
const char *library_path;

[[gnu::noinline]] uint64_t throwing(uint64_t depth) {
    std::string text(depth % 50, 'x');
    if (depth == 0)
        throw std::out_of_range("end");
    return throwing(depth - 1) + text.size();
}

uint64_t from_rust(uint64_t value) {
    try {
        return throwing(value % 24);
    } catch (const std::out_of_range &) {
        return value % 24;
    }
}

void use_library() {
    void *library = dlopen(library_path, RTLD_NOW);
    CHECK(library);
    auto compute = reinterpret_cast<uint64_t (*)(uint64_t)>(dlsym(library, "compute"));
    CHECK(compute && compute(5000) == 5000);
    CHECK(!dlclose(library));
}

void use_child() {
    int status;
    int child = fork();
    if (child == 0) {
        burn(0.002);
        _exit(from_rust(7) == 7 ? 0 : 1);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

uint64_t churn(uint64_t seed) {
    std::map<uint64_t, std::unique_ptr<std::string>> kept;
    for (uint64_t i = 0; i < 500; i++)
        kept[(seed * 31 + i * 17) % 200] = std::make_unique<std::string>(i % 300, 'm');
    uint64_t size = 0;
    for (const auto &[key, value] : kept)
        size += value->size() + key;
    return size;
}

void short_life(uint64_t seed) {
    CHECK(churn(seed) == churn(seed));
    CHECK(rust_work(seed, from_rust) == rust_work(seed, from_rust));
}

void long_life(uint64_t seed) {
    for (uint64_t i = 0; !is_over; i++) {
        short_life(seed + i);
        CHECK(rust_panics(5) == 5);
        if (i % 5 == seed)
            use_library();
        rounds++;
    }
}
} // namespace

int main(int argc, char **argv) {
    CHECK(argc == 3);
    library_path = argv[2];
    double end = clock_seconds(CLOCK_MONOTONIC) + std::stod(argv[1]);
    std::vector<std::thread> workers;
    for (uint64_t i = 0; i < 3; i++)
        workers.emplace_back(long_life, i);
    while (clock_seconds(CLOCK_MONOTONIC) < end) {
        std::thread passing(short_life, rounds.load());
        std::thread another(short_life, rounds.load() + 1);
        passing.join();
        another.join();
        if (rounds % 10 == 0)
            use_child();
        usleep(2000);
    }
    is_over = true;
    for (std::thread &worker : workers)
        worker.join();
    CHECK(rounds > 0);
    return done();
}
