// The C++ library: sort with a closure, map, string, iostream, function, virtual calls, multiple inheritance.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

struct Shape {
    virtual ~Shape() = default;
    virtual int area() const = 0;
};
struct Named {
    virtual ~Named() = default;
    virtual std::string name() const {
        return "named";
    }
};
struct Square : Shape, Named {
    int side;
    explicit Square(int length) : side(length) {
    }
    int area() const override {
        return side * side;
    }
    std::string name() const override {
        return "square" + std::to_string(side);
    }
};

int main() {
    std::vector<int> numbers(60);
    unsigned state = 7;
    for (int &number : numbers)
        number = static_cast<int>((state = state * 1664525u + 1013904223u) >> 20);
    int compared = 0;
    std::sort(numbers.begin(), numbers.end(), [&compared](int a, int b) {
        compared++;
        return a < b;
    });
    if (!std::is_sorted(numbers.begin(), numbers.end()) || !compared)
        return 1;
    std::map<std::string, int> counts;
    for (int number : numbers)
        counts["key" + std::to_string(number % 10)]++;
    std::ostringstream text;
    for (const auto &entry : counts)
        text << entry.first << '=' << entry.second << ' ' << 1.5 * entry.second << '\n';
    std::istringstream words("12 3.5 word");
    int integer = 0;
    double real = 0;
    std::string word;
    words >> integer >> real >> word;
    if (integer != 12 || real != 3.5 || word != "word" || text.str().empty())
        return 2;
    std::vector<std::unique_ptr<Shape>> shapes;
    for (int side = 1; side < 8; side++)
        shapes.push_back(std::make_unique<Square>(side));
    std::function<int(int, const std::unique_ptr<Shape> &)> add = [](int total, const auto &shape) {
        return total + shape->area() + static_cast<int>(dynamic_cast<Named &>(*shape).name().size());
    };
    int total = std::accumulate(shapes.begin(), shapes.end(), 0, add);
    return total == 140 + 7 * 7 ? 0 : 3;
}
