// SPDX-License-Identifier: MIT
// The rest: performance, the shell's functions, and what keeps the program alive while WebAssembly compiles.
'use strict';
{
    const { native, shared } = this;

    const { String, TypeError, apply, globalThis, then } = shared.builtins;
    const { join, map } = shared.lists;

    const timeOrigin = Date.now() - native.now();

    let made = false; // there is one
    class Performance extends shared.EventTarget {
        #timeOrigin = timeOrigin;

        constructor() {
            if (made)
                throw new TypeError('Illegal constructor');
            super();
        }

        now() {
            if (!(#timeOrigin in this))
                throw new TypeError('now() belongs to performance');
            return native.now();
        }

        get timeOrigin() { return this.#timeOrigin; }
        toJSON() { return { timeOrigin: this.#timeOrigin }; }
    }
    const performance = new Performance();
    made = true;
    shared.finishClass(Performance);
    shared.exposeValue('performance', performance);

    shared.exposeValue('self', globalThis);
    shared.exposeValue('args', native.args);
    shared.exposeFunctions({
        print(...values) { native.print(join(map(values, value => String(value)), ' ')); },

        readFile(path) {
            shared.needArguments(arguments.length, 1, 'readFile');
            return native.readFile(shared.toDOMString(path));
        },

        exit(status = undefined) {
            if (status === undefined)
                native.exit();
            native.exit(status & 255);
        },
    });

    // The engine compiles in other threads, of which the loop knows nothing.
    const { WebAssembly } = globalThis;
    for (const name of ['compile', 'instantiate']) {
        const original = WebAssembly?.[name];
        if (typeof original !== 'function')
            continue;
        const held = {
            [name](...args) {
                const promise = apply(original, WebAssembly, args);
                shared.define(promise, 'constructor', undefined, false); // then() would ask for its species
                native.hold();
                const done = value => {
                    native.unhold();
                    return value;
                };
                return then(promise, done, error => {
                    done();
                    throw error;
                });
            },
        };
        shared.define(WebAssembly, name, held[name], true);
    }
}
