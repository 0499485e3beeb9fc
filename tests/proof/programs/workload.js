// A node program: JavaScript, its garbage collector, regular expressions, zlib and crypto in libuv's threads,
// and a worker.
const { Worker, isMainThread } = require("worker_threads");
const crypto = require("crypto");
const http = require("http");
const zlib = require("zlib");

function fibonacci(n) {
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

function work() {
    fibonacci(18);
    JSON.parse(JSON.stringify(Array.from({ length: 500 }, (_, n) => ({ n, text: String(n) }))));
    "aaab".repeat(500).replace(/(a+)b/g, (match, a) => a);
    [...Array(1000).keys()].sort((a, b) => b - a);
    setImmediate(work);
}

function deflate() {
    zlib.deflate(Buffer.alloc(1 << 20, "abc"), deflate);
}

function derive() {
    crypto.pbkdf2("secret", "salt", 20000, 64, "sha512", derive);
}

work();
if (isMainThread) {
    new Worker(__filename);
    deflate();
    derive();
    http.createServer((request, response) => response.end("hello")).listen(0, "127.0.0.1");
    setTimeout(() => console.log("ready"), 300);
}
