// Exceptions: through destructors, nested, rethrown, caught by base, out of a constructor, past
// noexcept(false).
#include <stdexcept>
#include <string>
#include <vector>

static int destroyed;

struct Guard {
    int id;
    explicit Guard(int number) : id(number) {
    }
    ~Guard() {
        destroyed += id;
    }
};

struct Broken {
    Guard first{100};
    Broken() {
        throw std::logic_error("half built");
    }
};

__attribute__((noinline)) static int deep(int level) {
    Guard guard(1);
    if (level == 0)
        throw std::runtime_error("bottom");
    return deep(level - 1) + guard.id;
}

__attribute__((noinline)) static int rethrows(int level) {
    Guard guard(10);
    try {
        return deep(level);
    } catch (const std::exception &) {
        try {
            throw 7;
        } catch (int inner) {
            destroyed += inner;
        }
        throw;
    }
}

__attribute__((noinline)) static int from_destructor() {
    struct Thrower {
        ~Thrower() noexcept(false) {
            throw std::string("destructor");
        }
    };
    try {
        Thrower thrower;
    } catch (const std::string &text) {
        return static_cast<int>(text.size());
    }
    return 0;
}

int main() {
    int caught = 0;
    for (int level = 0; level < 6; level++) {
        try {
            rethrows(level);
        } catch (const std::runtime_error &error) {
            caught += std::string(error.what()) == "bottom";
        }
    }
    try {
        Broken broken;
    } catch (const std::exception &) {
        caught += 100;
    }
    try {
        std::vector<int> numbers(3);
        numbers.at(5) = 1;
    } catch (const std::out_of_range &) {
        caught += 1000;
    }
    if (caught != 1106 || from_destructor() != 10)
        return 1;
    return destroyed == 1 + 2 + 3 + 4 + 5 + 6 + 6 * 17 + 100 ? 0 : 2;
}
