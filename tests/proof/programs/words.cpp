// What program_proof.py records of C++: maps, sorting by closures, a regular expression, streams, virtual calls,
// two threads, and an exception now and then. argument: rounds.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

using Words = std::vector<std::string>;

__attribute__((noinline)) static Words words(unsigned long round) {
    Words list;
    for (unsigned long i = 0; i < 400; i++) {
        std::ostringstream text;
        text << std::hex << (i * 2654435761ul ^ round) << '-' << i % 7;
        list.push_back(text.str());
    }
    return list;
}

struct Counter {
    virtual ~Counter() = default;
    virtual void add(const std::string &word) = 0;
    virtual std::size_t total() const = 0;
};

struct ByEnding final : Counter {
    std::unordered_map<std::string, std::size_t> counts;
    void add(const std::string &word) override { counts[word.substr(word.find('-') + 1)] += word.size(); }
    std::size_t total() const override {
        std::map<std::string, std::size_t> sorted(counts.begin(), counts.end());
        return std::accumulate(sorted.begin(), sorted.end(), std::size_t{0},
                               [](std::size_t sum, const auto &entry) { return sum + entry.second; });
    }
};

__attribute__((noinline)) static std::size_t depth(Words::iterator first, Words::iterator last, int level) {
    std::sort(first, last, [](const std::string &a, const std::string &b) {
        return std::lexicographical_compare(b.rbegin(), b.rend(), a.rbegin(), a.rend());
    });
    if (level == 0 || last - first < 2)
        return std::accumulate(first, last, std::size_t{0},
                               [](std::size_t sum, const std::string &word) { return sum + word.size(); });
    auto middle = first + (last - first) / 2;
    return depth(first, middle, level - 1) + depth(middle, last, level - 1);
}

static std::size_t work(unsigned long rounds) {
    const std::regex digits("([0-9]+)-([0-6])");
    std::size_t total = 0;
    for (unsigned long round = 0; round < rounds; round++) {
        Words list = words(round);
        std::unique_ptr<Counter> counter = std::make_unique<ByEnding>();
        for (const std::string &word : list)
            counter->add(word);
        total += counter->total() + depth(list.begin(), list.end(), 4);
        for (int i = 0; i < 20; i++)
            total += std::regex_replace(list[i], digits, "$2+$1").size();
        if (round % 64 == 0) {
            try {
                total += list.at(list.size()).size();
            } catch (const std::out_of_range &) {
                total++;
            }
        }
    }
    return total;
}

int main(int count, char **arguments) {
    unsigned long rounds = count > 1 ? std::strtoul(arguments[1], nullptr, 10) : 1;
    std::size_t other = 0;
    std::thread thread([&other, rounds] { other = work(rounds / 4); });
    std::size_t total = work(rounds);
    thread.join();
    return total + other == 0;
}
