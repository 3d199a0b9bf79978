// SPDX-License-Identifier: MIT
// The test frame for scripts: foliot js frame.js FILE. The file calls test(name, function); each runs when the one before
// has settled, and speaks TAP. Nothing here asserts how long something took, except that it was not less than asked for.
(function () {
    'use strict';

    const tests = [];

    function fail(message) {
        throw new Error(message);
    }

    globalThis.test = (name, run) => tests.push({ name, run });

    globalThis.check = (condition, message = 'a check failed') => condition || fail(message);

    globalThis.equal = (actual, expected, what = 'it') => {
        if (!Object.is(actual, expected))
            fail(`${what} is ${String(actual)}, expected ${String(expected)}`);
    };

    globalThis.same = (actual, expected, what) => equal(JSON.stringify(actual), JSON.stringify(expected), what);

    globalThis.throws = (kind, run) => {
        try {
            run();
        } catch (error) {
            check(typeof kind === 'string' ? error instanceof DOMException && error.name === kind : error instanceof kind,
                `it threw ${error}`);
            return error;
        }
        return fail('it did not throw');
    };

    globalThis.later = (ms = 0) => new Promise(resolve => setTimeout(resolve, ms));

    // Waits for what must happen some time; the machine may be slow.
    globalThis.until = async condition => {
        while (!condition())
            await later(1);
    };

    // Keeps the processor busy, so that what is set in between is set at different times.
    globalThis.work = ms => {
        for (const begin = performance.now(); performance.now() - begin < ms;);
    };

    async function runAll() {
        print(`1..${tests.length}`);
        for (const [i, { name, run }] of tests.entries()) {
            try {
                await run();
                print(`ok ${i + 1} - ${name}`);
            } catch (error) {
                print(`not ok ${i + 1} - ${name}\n# ${error}\n# ${String(error?.stack).replaceAll('\n', '\n# ')}`);
                exit(1);
            }
        }
    }

    setTimeout(readFile(args[0])); // a script of its own, whose errors have lines
    setTimeout(runAll);
})();
