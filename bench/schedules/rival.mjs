// SPDX-License-Identifier: MIT
// Occurrences by a library from npm: node rival.mjs FOLDER LIBRARY CRON ZONE COUNT [compile]
//
// Prints nanoseconds of processor time per occurrence, and the last occurrence in seconds. The argument of each call is the
// occurrence before; the year 2100 starts over. With `compile`, the expression is read anew each time.
import { createRequire } from "node:module";

const [folder, library, cron, timezone, count, compile] = process.argv.slice(2);
const require = createRequire(folder + "/");
const begin = Date.UTC(2026, 0, 1), end = Date.UTC(2100, 0, 1);

const libraries = {
    croner() {
        const { Cron } = require("croner");
        const make = () => new Cron(cron, { timezone });
        const expression = make();
        return [make, (after) => expression.nextRun(after)];
    },
    "cron-parser"() {
        const { CronExpressionParser } = require("cron-parser");
        const make = () => CronExpressionParser.parse(cron, { tz: timezone, currentDate: new Date(begin) });
        const expression = make();
        return [make, (after) => {
            if (+after === begin)
                expression.reset(after);
            return expression.next().toDate();
        }];
    },
};

const [make, next] = libraries[library]();

function walk(steps) {
    let at = new Date(begin);
    for (let i = 0; i < steps; i++) {
        if (compile) {
            make();
            continue;
        }
        at = next(at);
        if (!at || at >= end)
            at = new Date(begin);
    }
    return at;
}

walk(Math.min(+count, 2000)); // until it is compiled
const before = process.cpuUsage();
const last = walk(+count);
const { user, system } = process.cpuUsage(before);
console.log(((user + system) * 1000) / +count, last / 1000);
