// SPDX-License-Identifier: MIT
// Checks signatures with the verifier of Standard Webhooks: node verify.mjs FOLDER, where FOLDER has the package installed.
// A line in: {"secret", "headers", "body" (base64)}. A line out: "ok", or why not.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(process.argv[2] + "/");
const { Webhook } = require("standardwebhooks");

for await (const line of createInterface({ input: process.stdin })) {
    const { secret, headers, body } = JSON.parse(line);
    try {
        new Webhook(secret).verify(Buffer.from(body, "base64").toString("utf8"), headers);
        console.log("ok");
    } catch (problem) {
        console.log(String(problem.message));
    }
}
