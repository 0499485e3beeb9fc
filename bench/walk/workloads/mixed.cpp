// mixed SECONDS: works for so long: exceptions through frames with destructors, sort, map, regex, streams.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

struct Shape {
    virtual ~Shape() = default;
    virtual double area(int levels) const = 0;
};

struct Square : Shape {
    double side;
    explicit Square(double side) : side(side) {}
    double area(int levels) const override { return levels ? area(levels - 1) + side * side : side; }
};

static int throw_below(int levels) {
    if (levels == 0)
        throw std::runtime_error("deep");
    std::vector<int> kept(levels);
    return throw_below(levels - 1) + static_cast<int>(kept.size());
}

static size_t catch_from(int levels) {
    try {
        return static_cast<size_t>(throw_below(levels));
    } catch (const std::exception &error) {
        return std::string(error.what()).size();
    }
}

static bool is_before(const std::string &a, const std::string &b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
}

static size_t one_round(const std::regex &pattern) {
    size_t sum = 0;
    std::vector<std::string> words;
    for (int i = 0; i < 2000; i++)
        words.push_back("k" + std::to_string(rand() % 5000));
    std::sort(words.begin(), words.end(), is_before);
    std::map<std::string, int> counts;
    for (const auto &word : words)
        counts[word]++;
    for (size_t i = 0; i < 100; i++) {
        std::smatch match;
        std::string word = words[i] + "xxyyx";
        if (std::regex_match(word, match, pattern))
            sum += match.size();
    }
    for (int i = 0; i < 30; i++)
        sum += catch_from(10);
    std::unique_ptr<Shape> shape = std::make_unique<Square>(2);
    for (int i = 0; i < 50; i++)
        sum += static_cast<size_t>(shape->area(20));
    std::ostringstream stream;
    for (const auto &[word, count] : counts)
        stream << word << count << 1.5;
    return sum + stream.str().size();
}

int main(int count, char **arguments) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration<double>(count > 1 ? atof(arguments[1]) : 1);
    const std::regex pattern("([a-z]+)([0-9]+)(x|y)*");
    size_t sum = 0;
    while (Clock::now() < end)
        sum += one_round(pattern);
    printf("%zu\n", sum);
}
