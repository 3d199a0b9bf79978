// SPDX-License-Identifier: MIT
// The rest: performance, the shell's functions, and what keeps the program alive while WebAssembly compiles.
(function (native, shared) {
    'use strict';

    const timeOrigin = Date.now() - native.now();

    class Performance extends shared.EventTarget {
        now() { return native.now(); }
        get timeOrigin() { return timeOrigin; }
        toJSON() { return { timeOrigin }; }
    }
    const performance = new Performance();
    shared.finishClass(Performance);
    shared.exposeValue('performance', performance);

    shared.exposeValue('self', globalThis);
    shared.exposeValue('args', native.args);
    shared.exposeFunction('print', function print(...list) { native.print(list.map(String).join(' ')); });

    shared.exposeFunction('readFile', function readFile(path) {
        shared.needArguments(arguments.length, 1, 'readFile');
        return native.readFile(shared.toDOMString(path));
    });

    shared.exposeFunction('exit', function exit(status = undefined) {
        if (status === undefined)
            native.exit();
        native.exit(status & 255);
    });

    // The engine compiles in other threads, of which the loop knows nothing.
    for (const name of ['compile', 'instantiate']) {
        const original = globalThis.WebAssembly?.[name];
        if (typeof original !== 'function')
            continue;
        const held = {
            [name](...list) {
                const promise = shared.apply(original, WebAssembly, list);
                native.hold();
                const done = value => {
                    native.unhold();
                    return value;
                };
                return shared.apply(shared.then, promise, [done, error => {
                    done();
                    throw error;
                }]);
            },
        };
        Object.defineProperty(WebAssembly, name, { value: held[name], writable: true, enumerable: true, configurable: true });
    }
})
