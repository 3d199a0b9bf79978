// SPDX-License-Identifier: MIT
// What every rival of bench-js does: work.js WHAT N. Prints the figures as one line of numbers.
const own = typeof args !== 'undefined', deno = typeof Deno !== 'undefined';
const [what, count] = own ? args : deno ? Deno.args : process.argv.slice(2);
const n = +count;
const say = (...numbers) => (own ? print : console.log)(numbers.join(' '));

// The same numbers for everybody.
let state = 1;
function random(limit) {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return (state >> 8) % limit;
}

function nothing() {}

// The best of five passes: what the compiler does to the first ones is not what is asked for.
function best(pass) {
    let least = Infinity;
    for (let i = 0; i < 5; i++) {
        const begin = performance.now();
        pass();
        least = Math.min(least, performance.now() - begin);
    }
    say(least * 1e6 / n);
}

const ids = new Array(n);
function setAndClear(delayOf) {
    for (let i = 0; i < n; i++)
        ids[i] = setTimeout(nothing, delayOf(i));
    for (let i = 0; i < n; i++)
        clearTimeout(ids[i]);
}

function residentBytes() {
    const path = '/proc/self/statm';
    const text = own ? readFile(path) : deno ? Deno.readTextFileSync(path) : require('fs').readFileSync(path, 'utf8');
    return text.split(' ')[1] * 4096;
}

async function microtasks() {
    let least = Infinity;
    for (let i = 0; i < 5; i++) {
        const begin = performance.now();
        await new Promise(resolve => {
            let left = n;
            (function step() {
                if (--left > 0)
                    queueMicrotask(step);
                else
                    resolve();
            })();
        });
        least = Math.min(least, performance.now() - begin);
    }
    say(least * 1e6 / n);
}

function lateness() {
    const late = [];
    for (let i = 0; i < n; i++) {
        const delay = random(1000), due = performance.now() + delay;
        setTimeout(() => {
            late.push((performance.now() - due) * 1000);
            if (late.length < n)
                return;
            late.sort((a, b) => a - b);
            const at = part => Math.max(late[Math.floor(part * (n - 1))], 0);
            say(at(0.5), at(0.99), late.filter(us => us < 0).length * 1000 / n);
        }, delay);
    }
}

function memory() {
    const before = residentBytes();
    for (let i = 0; i < n; i++)
        ids[i] = setTimeout(nothing, 100000 + random(1000));
    // When the script has returned, and before anything fires.
    setTimeout(() => {
        say((residentBytes() - before) / n);
        own ? exit(0) : deno ? Deno.exit(0) : process.exit(0);
    }, 0);
}

function clone() {
    const objects = [];
    for (let i = 0; i < n; i++)
        objects.push({ x: i, y: random(1000) });
    best(() => structuredClone(objects));
}

function fire() {
    for (let i = 0; i < n; i++)
        setTimeout(nothing, random(1000));
    say(0);
}

({
    clear: () => best(() => setAndClear(() => random(1000))),
    distinct: () => best(() => setAndClear(i => 1000 + i)),
    pairs: () => best(() => {
        for (let i = 0; i < n; i++)
            clearTimeout(setTimeout(nothing, random(1000)));
    }),
    fire, microtasks, lateness, memory, clone, start: () => say(0),
})[what]();
