// SPDX-License-Identifier: MIT
// A small client of the server, as one would write it in Node.js: node client.mjs URL
// A line in: {"method", "path", "body"?, "headers"?}. A line out: {"status", "type", "body"}.

import { createInterface } from "node:readline";

const base = process.argv[2];

async function ask({ method, path, body, headers = {} }) {
    const response = await fetch(base + path, { method, body, headers });
    return { status: response.status, type: response.headers.get("content-type"), body: await response.text() };
}

for await (const line of createInterface({ input: process.stdin }))
    console.log(JSON.stringify(await ask(JSON.parse(line))));
