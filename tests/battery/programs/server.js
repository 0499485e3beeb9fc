// server.js: node: JIT code, a worker thread, timers, sockets to itself, a child process.
"use strict";
const { Worker, isMainThread, parentPort } = require("node:worker_threads");
const { createServer, connect } = require("node:net");
const { execFileSync } = require("node:child_process");

function compute(rounds) {
    let value = 1;
    for (let i = 0; i < rounds; i++) value = (Math.imul(value, 1664525) + 1013904223) >>> 0;
    return value;
}

if (!isMainThread) {
    parentPort.postMessage(compute(2e7));
} else {
    const told = [];
    if (process.env.UNSPOOL_SESSION || process.env.LD_PRELOAD) told.push("environment");
    told.push(compute(2e7));
    told.push(execFileSync("/bin/echo", ["child"]).toString().trim());
    const worker = new Worker(__filename);
    worker.on("message", (value) => {
        told.push(value);
        const server = createServer((socket) => socket.pipe(socket));
        server.listen(0, "127.0.0.1", () => {
            let left = 300;
            const client = connect(server.address().port, "127.0.0.1");
            client.on("data", () => (left-- ? client.write("x") : client.end()));
            client.on("close", () => server.close(() => console.log(told.join(" "), left)));
            client.write("x");
        });
    });
}
