// deep ROUNDS: C++ with stacks of 20 to 220 frames: trees that are built, folded and freed by virtual calls,
// with the standard library in between.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "usage.h"

namespace {

struct Node {
    virtual ~Node() = default;
    virtual double value(std::map<std::string, double> &names) const = 0;
};

struct Name final : Node {
    std::string text;
    explicit Name(unsigned n) : text("name" + std::to_string(n % 50)) {
    }
    double value(std::map<std::string, double> &names) const override {
        return names[text] += 1;
    }
};

struct Sum final : Node {
    std::vector<std::unique_ptr<Node>> parts;
    double value(std::map<std::string, double> &names) const override {
        double result = 0;
        std::for_each(parts.begin(), parts.end(),
                      [&](const std::unique_ptr<Node> &part) { result += part->value(names); });
        return result;
    }
};

struct Product final : Node {
    std::unique_ptr<Node> left, right;
    std::function<double(double, double)> apply = [](double a, double b) { return a * 0.5 + b; };
    double value(std::map<std::string, double> &names) const override {
        double first = left->value(names);
        return apply(first, right->value(names));
    }
};

std::unique_ptr<Node> build(unsigned depth, unsigned &seed) {
    seed = seed * 1664525u + 1013904223u;
    if (depth == 0)
        return std::make_unique<Name>(seed >> 16);
    if (depth % 2) {
        auto product = std::make_unique<Product>();
        product->left = std::make_unique<Name>(seed >> 16);
        product->right = build(depth - 1, seed);
        return product;
    }
    auto sum = std::make_unique<Sum>();
    sum->parts.push_back(build(depth - 1, seed));
    for (unsigned i = 0; i < 4; i++)
        sum->parts.push_back(std::make_unique<Name>(seed >> (8 + i)));
    return sum;
}

} // namespace

int main(int count, char **arguments) {
    begin();
    stay_on(0);
    unsigned rounds = count > 1 ? static_cast<unsigned>(std::atoi(arguments[1])) : 1, seed = 1;
    std::map<std::string, double> names;
    double total = 0;
    for (unsigned i = 0; i < rounds; i++)
        total += build(20 + i % 20 * 10, seed)->value(names);
    return total < 0;
}
