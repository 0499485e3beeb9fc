// The C++ library at work: hash table, tree, sort, regular expression, streams, exceptions through several
// frames. argv[1]: rounds.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

static int parse(const std::string &text) {
    std::unique_ptr<std::string> copy(new std::string(text));
    if (copy->size() % 5 == 0)
        throw std::invalid_argument(*copy + ": no number");
    return std::stoi(*copy); // throws for itself, too
}

static int parse_all(const std::vector<std::string> &texts) {
    int failed = 0;
    for (const std::string &text : texts) {
        try {
            parse(text);
        } catch (const std::invalid_argument &) {
            failed++;
        }
    }
    return failed;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? std::atoi(argv[1]) : 1, total = 0;
    for (int round = 0; round < rounds; round++) {
        std::unordered_map<std::string, int> table;
        std::map<int, std::string> tree;
        std::vector<std::string> texts;
        for (int i = 0; i < 60; i++) {
            std::string key = "key" + std::to_string(i * 7919 % 101);
            table[key] += i;
            tree.emplace(i * 31 % 67, key);
            texts.push_back(i % 7 ? std::to_string(i * i * 37) : key);
        }
        std::sort(texts.begin(), texts.end());
        std::regex pattern("^k(e|y)+([0-9]+)$");
        std::ostringstream out;
        for (const auto &entry : tree) {
            std::smatch match;
            if (std::regex_match(entry.second, match, pattern))
                out << match[2] << ':' << entry.first * 0.5 << ' ';
        }
        total += parse_all(texts) + static_cast<int>(table.size()) + static_cast<int>(out.str().size());
    }
    return total > 0 ? 0 : 1;
}
