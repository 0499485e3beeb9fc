"""The programs of the symbol proof: two with debug files from Debian packages, the others built here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.compilers import build, run

LIBRARIES = Path("/usr/lib") / f"{os.uname().machine}-linux-gnu"


class Subject(NamedTuple):
    name: str
    path: Path


RUST_PROGRAM = """
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
#[derive(Debug, Clone, PartialEq, PartialOrd)]
enum Value { Number(f64), Text(String), List(Vec<Value>) }
trait Weight { fn weight(&self) -> usize; }
impl Weight for Value {
    fn weight(&self) -> usize {
        match self {
            Value::Number(n) => n.to_bits().count_ones() as usize,
            Value::Text(text) => text.chars().filter(|c| c.is_alphanumeric()).count(),
            Value::List(values) => values.iter().map(|v| v.weight()).sum::<usize>() + 1,
        }
    }
}
fn parse(line: &str) -> Result<Value, std::num::ParseFloatError> {
    if line.contains(',') {
        return line.split(',').map(parse).collect::<Result<Vec<_>, _>>().map(Value::List);
    }
    if line.starts_with('"') { return Ok(Value::Text(line.trim_matches('"').to_uppercase())); }
    line.trim().parse::<f64>().map(Value::Number)
}
fn main() {
    let mut counts: HashMap<String, usize> = HashMap::new();
    let mut sorted: BTreeMap<usize, Vec<Value>> = BTreeMap::new();
    for argument in std::env::args().chain(["1,2,\\"a b\\"".into(), "x".into(), "3".into()]) {
        match parse(&argument) {
            Ok(value) => sorted.entry(value.weight()).or_default().push(value),
            Err(error) => *counts.entry(error.to_string()).or_insert(0) += 1,
        }
    }
    let handle = std::thread::spawn(move || {
        let mut out = String::new();
        for (weight, values) in &sorted { writeln!(out, "{weight}: {values:?}").unwrap(); }
        out
    });
    print!("{}{:?}", handle.join().unwrap(), counts);
}
"""

CXX_PROGRAM = r"""
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <regex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>
namespace shapes {
struct Shape { virtual ~Shape() = default; virtual double area() const = 0; };
struct Square final : Shape {
    double a;
    explicit Square(double a) : a(a) {}
    double area() const override { return a * a; }
};
template <typename T> struct Ring : Shape {
    std::vector<T> parts;
    double area() const override { return std::accumulate(parts.begin(), parts.end(), 0.0); }
};
namespace {
template <typename F> auto timed(F f) { return [f = std::move(f)](auto &&...x) { return f(x...); }; }
}
}
static std::map<std::string, std::vector<int>> index_words(const std::string &text) {
    std::map<std::string, std::vector<int>> words;
    std::istringstream in(text);
    int position = 0;
    for (std::string word; in >> word; ++position) words[word].push_back(position);
    return words;
}
int main(int argc, char **argv) {
    std::vector<std::unique_ptr<shapes::Shape>> all;
    for (int i = 0; i < argc + 3; ++i) all.push_back(std::make_unique<shapes::Square>(i));
    auto ring = std::make_unique<shapes::Ring<float>>();
    ring->parts.assign(10, 2.5f);
    all.push_back(std::move(ring));
    std::sort(all.begin(), all.end(), [](const auto &a, const auto &b) { return a->area() < b->area(); });
    std::unordered_map<std::string, std::function<double(double)>> table;
    table["twice"] = shapes::timed([](double x) { return 2 * x; });
    table["half"] = [argc](double x) { return x / (argc + 1); };
    double sum = 0;
    for (const auto &shape : all) for (const auto &[name, f] : table) sum += f(shape->area());
    std::regex pattern("([a-z]+)=([0-9]*)");
    std::smatch match;
    std::string text = argc > 1 ? argv[1] : "a=1 b=22 a=3";
    while (std::regex_search(text, match, pattern)) {
        sum += match[2].length();
        text = match.suffix();
    }
    for (const auto &[word, places] : index_words(text + " x y x"))
        std::cout << word << places.size() << '\n';
    std::cout << sum << '\n';
}
"""

PGO_PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct node { struct node *next; char *key; long value; };
static struct node *table[257];
static unsigned hash(const char *s) {
    unsigned h = 5381;
    while (*s) h = h * 33 + (unsigned char)*s++;
    return h % 257;
}
static struct node *find(const char *key) {
    for (struct node *n = table[hash(key)]; n; n = n->next) if (!strcmp(n->key, key)) return n;
    return NULL;
}
static long put(const char *key, long value) {
    struct node *n = find(key);
    if (!n) {
        n = malloc(sizeof *n);
        if (!n) { perror("malloc"); abort(); }
        n->key = strdup(key);
        n->next = table[hash(key)];
        table[hash(key)] = n;
        if (!n->key) { fprintf(stderr, "no memory for %s\n", key); exit(3); }
    }
    return n->value = value;
}
static int compare(const void *a, const void *b) {
    long x = (*(struct node *const *)a)->value, y = (*(struct node *const *)b)->value;
    return x < y ? -1 : x > y;
}
static long rare(long n) {
    if (n % 1000003 == 7) {
        fprintf(stderr, "rare: %ld\n", n);
        for (long i = 0; i < n; i++) n ^= i * 31;
    }
    if (n < 0) {
        char text[64];
        snprintf(text, sizeof text, "negative %ld", n);
        fputs(text, stderr);
        abort();
    }
    return n % 97;
}
static long parse(const char *text) {
    long total = 0, number = 0; int sign = 1;
    for (; *text; text++) switch (*text) {
        case '0' ... '9': number = number * 10 + *text - '0'; break;
        case '-': sign = -sign; break;
        case '+': total += sign * number; number = 0; sign = 1; break;
        case '*': total *= number ? number : 1; number = 0; break;
        default: fprintf(stderr, "bad character %c\n", *text); return -1;
    }
    return total + sign * number;
}
int main(int argc, char **argv) {
    char key[32]; long sum = 0;
    for (int i = 0; i < 20000; i++) {
        snprintf(key, sizeof key, "k%d", i % 700);
        sum += put(key, rare(i * 7L));
    }
    struct node *all[1024]; size_t count = 0;
    for (int b = 0; b < 257; b++)
        for (struct node *n = table[b]; n && count < 1024; n = n->next) all[count++] = n;
    qsort(all, count, sizeof *all, compare);
    for (size_t i = 0; i < count; i++) sum = sum * 3 + all[i]->value;
    for (int i = 1; i < argc; i++) sum += parse(argv[i]);
    printf("%ld\n", sum + parse("1+22+333*2"));
    return 0;
}
"""


def subjects(folder: Path) -> Iterator[Subject]:
    """The five that the proof is about, then others that try what those do not have."""
    debug_build = Path("/usr/bin/python3-dbg").resolve()
    yield Subject(f"{debug_build.name} (dbg)", debug_build)
    yield Subject("libc6-dbg", LIBRARIES / "libc.so.6")
    yield Subject("Rust -g -O", rust(folder))
    yield Subject("C++ -g -O2 -gz", cxx(folder, "cxx_gz", "g++", "-gz", "-g", "-O2"))
    python = debug_build.with_name(debug_build.name.removesuffix("d"))
    yield Subject(f"{python.name} (LTO, PGO)", python)
    yield Subject("C, LTO, PGO", pgo(folder))
    yield Subject("C++, clang, DWARF 5", cxx(folder, "clang", "clang++-19", "-g", "-O2", "-gdwarf-5"))
    yield Subject(
        "C++, DWARF 4, zstd", cxx(folder, "zstd", "clang++-19", "-g", "-O1", "-gdwarf-4", "-gz=zstd")
    )
    yield Subject("C++ -O0", cxx(folder, "cxx_O0", "g++", "-g", "-O0"))


def rust(folder: Path) -> Path:
    source = folder / "rust_program.rs"
    source.write_text(RUST_PROGRAM)
    run("rustc", "-g", "-O", "-o", folder / "rust_program", source)
    return folder / "rust_program"


def cxx(folder: Path, name: str, *command: str) -> Path:
    source = folder / f"{name}.cpp"
    source.write_text(CXX_PROGRAM)
    run(command[0], "-std=c++17", "-o", folder / name, source, *command[1:])
    return folder / name


def pgo(folder: Path) -> Path:
    """Compiled, run to learn what is hot, compiled again; both times for link-time optimization."""
    options, made = ("-g", "-O2", "-flto"), folder / "pgo.o"
    for step in ("-fprofile-generate", "-fprofile-use"):
        build(folder, "pgo.o", "gcc", "-c", *options, step, code=PGO_PROGRAM)
        run("gcc", *options, step, "-o", folder / "pgo_program", made)
        run(folder / "pgo_program", "12+5*3", "77-3")
    return folder / "pgo_program"
