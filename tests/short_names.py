"""Names of functions and the forms to which the viewer and the report shorten them."""

from __future__ import annotations

NAMES = {
    "main": ["main"],
    "f(int) const": ["f(int) const", "f"],
    "a::b::c(int)": ["a::b::c(int)", "a::b::c", "b::c", "c"],
    "std::map<int, std::pair<int, int> >::find(int const&)": [
        "std::map<int, std::pair<int, int> >::find(int const&)",
        "std::map<int, std::pair<int, int> >::find",
        "std::map<…>::find",
        "map<…>::find",
        "find",
    ],
    "operator new(unsigned long)": ["operator new(unsigned long)", "operator new"],
    "T::operator()(int)": ["T::operator()(int)", "T::operator()", "operator()"],
    "T::operator()": ["T::operator()", "operator()"],
    "ostream& std::operator<< <char>(ostream&, char)": [
        "ostream& std::operator<< <char>(ostream&, char)",
        "ostream& std::operator<< <char>",
        "operator<< <char>",
    ],
    "bool std::operator<<char, A<char>>(S<char> const&)": [
        "bool std::operator<<char, A<char>>(S<char> const&)",
        "bool std::operator<<char, A<char>>",
        "bool std::operator<<…>",
        "operator<<…>",
        "operator<",
    ],
    "std::operator<<<A<char>>(S&, char)": [
        "std::operator<<<A<char>>(S&, char)",
        "std::operator<<<A<char>>",
        "std::operator<<<…>",
        "operator<<<…>",
        "operator<<",
    ],
    "T::operator==<int>(int)": [
        "T::operator==<int>(int)",
        "T::operator==<int>",
        "T::operator==<…>",
        "operator==<…>",
        "operator==",
    ],
    "std::operator<(A const&, B const&)": [
        "std::operator<(A const&, B const&)",
        "std::operator<",
        "operator<",
    ],
    "(anonymous namespace)::decode(int)": [
        "(anonymous namespace)::decode(int)",
        "(anonymous namespace)::decode",
        "decode",
    ],
    "<alloc::vec::Vec<T, A> as core::ops::Index<I>>::index": [
        "<alloc::vec::Vec<T, A> as core::ops::Index<I>>::index",
        "<alloc::vec::Vec<…> as core::ops::Index<…>>::index",
        "index",
    ],
    "main::{{closure}}": ["main::{{closure}}", "{{closure}}"],
    "f(int) [clone .cold]": ["f(int) [clone .cold]", "f"],
    "libfoo.so+0x12": ["libfoo.so+0x12"],
    "a<b": ["a<b"],
    ")(>": [")(>"],
    "": [""],
}
