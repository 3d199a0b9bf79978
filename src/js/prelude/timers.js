// SPDX-License-Identifier: MIT
// setTimeout and its kin. The rules are in C (foliot/webtimers.h); here are the handlers, and a list of what was asked for
// that C reads when the script has returned (queue.h).
//
// The handler of a timer is at the place of its ID in an array: IDs that live at the same time differ in their low bits.
// It is what to call: a function; a Call, with arguments; a Script, of a string.
'use strict';
{
    const { native, shared } = this;

    const { Int32Array, TypeError, Uint8Array, apply, globalThis, now, setPrototypeOf } = shared.builtins;
    const { Map, checkThis, toDOMString } = shared;
    const { list } = shared.lists;
    const { state, ids, delays, flags, cleared, markQueue, readQueue } = native;
    const SET = 0, CLEARED = 1, PLACES = 2, ID = 3; // in `state`
    const REPEATS = 1, HANDLING = 2; // in `flags`
    const LENGTH = ids.length;
    const { call } = Function.prototype;

    const handlers = list();
    let idAt = new Int32Array(0); // 0: nobody has this place
    let repeatsAt = new Uint8Array(0);
    let mask = -1;
    let markedMs = 0; // Date.now() at the last mark

    // HANDLING while a timer's handler runs, but not in the microtasks after it: their timers do not count as nested.
    let handling = 0;

    // There are more places than before, or again few when no timer is left. With more, one more bit of an ID counts.
    function rearrange() {
        const before = handlers.length, places = state[PLACES], kept = before < places ? before : places;
        const ids = new Int32Array(places), repeats = new Uint8Array(places);
        for (let place = 0; place < kept; place++) {
            ids[place] = idAt[place];
            repeats[place] = repeatsAt[place];
        }
        idAt = ids;
        repeatsAt = repeats;
        for (let place = before; place < places; place++)
            handlers[place] = undefined;
        handlers.length = places;
        mask = places - 1;
        for (let place = 0; place < kept; place++) {
            const id = idAt[place], moved = id & mask;
            if (id === 0 || moved === place)
                continue;
            put(id, handlers[place], repeatsAt[place]);
            remove(place);
        }
    }

    function put(id, entry, repeats) {
        const place = id & mask;
        handlers[place] = entry;
        idAt[place] = id;
        repeatsAt[place] = repeats;
    }

    function remove(place) {
        handlers[place] = undefined;
        idAt[place] = 0;
    }

    function start(entry, delay, repeats) {
        let count = state[SET];
        if (count === LENGTH) {
            readQueue();
            count = 0;
        }
        if (state[PLACES] !== mask + 1)
            rearrange();
        const id = ids[count];
        put(id, entry, repeats);
        delays[count] = delay;
        flags[count] = repeats | handling;
        const ms = now();
        if (count === 0 || ms !== markedMs) {
            markedMs = ms;
            markQueue();
        }
        state[SET] = count + 1;
        return id;
    }

    function clearTimer(id) {
        const place = id & mask;
        if (id === 0 || idAt[place] !== id)
            return;
        remove(place);
        if (state[CLEARED] === LENGTH)
            readQueue();
        cleared[state[CLEARED]++] = id;
    }

    class Call {
        constructor(handler, args) {
            this.handler = handler;
            this.args = args;
        }

        run() { apply(this.handler, globalThis, this.args); }
    }
    setPrototypeOf(Call.prototype, null);

    // A string is a script of its own. The standard reports its errors before microtasks, a function's after them.
    class Script {
        constructor(source, name) {
            this.source = source;
            this.name = name;
        }

        run() {
            try {
                native.evaluate(this.source, this.name);
            } catch (error) {
                shared.report(error, this);
            }
        }
    }
    setPrototypeOf(Script.prototype, null);

    // Calls a function on the global object and looks nothing up in it, which a proxy or a getter would see: a method of
    // `current` is called on the `this` of run(). It costs a tenth of Reflect.apply().
    const current = { __proto__: null, handler: undefined };
    const { run } = {
        __proto__: current,
        run(entry) {
            if (typeof entry !== 'function') {
                entry.run();
                return;
            }
            current.handler = entry;
            try {
                super.handler();
            } finally {
                current.handler = undefined;
            }
        },
    };
    run.call = call; // its own, whatever becomes of the prototype's

    function makeEntry(handler, args, name) {
        if (typeof handler !== 'function')
            return new Script(toDOMString(handler), name);
        return args.length > 0 ? new Call(handler, args) : handler;
    }

    // `| 0` is Web IDL's conversion to a long, of delays and of IDs.
    shared.exposeFunctions({
        setTimeout(handler, timeout = 0, ...args) {
            checkThis(this);
            if (arguments.length === 0)
                shared.needArguments(0, 1, 'setTimeout');
            const entry = makeEntry(handler, args, 'setTimeout handler');
            return start(entry, timeout | 0, 0);
        },

        setInterval(handler, timeout = 0, ...args) {
            checkThis(this);
            if (arguments.length === 0)
                shared.needArguments(0, 1, 'setInterval');
            const entry = makeEntry(handler, args, 'setInterval handler');
            return start(entry, timeout | 0, REPEATS);
        },

        clearTimeout(id = 0) {
            checkThis(this);
            clearTimer(id | 0);
        },

        clearInterval(id = 0) {
            checkThis(this);
            clearTimer(id | 0);
        },
    });

    // C calls this for every timer that is due.
    shared.fire = function () {
        const place = state[ID] & mask;
        const entry = handlers[place];
        if (!repeatsAt[place])
            remove(place);
        handling = HANDLING;
        try {
            run.call(globalThis, entry);
        } finally {
            handling = 0;
        }
    };

    // Everything else that C calls back, by a number of its own. What is not the script's, clearImmediate() cannot clear.
    const expected = new Map(), ours = new Map();
    let newest = 0;

    shared.expire = function (slot) {
        const entries = expected.has(slot) ? expected : ours, entry = entries.get(slot);
        entries.delete(slot);
        if (entry)
            run.call(globalThis, entry);
    };

    // A cleared immediate still comes, and finds nothing to do: it would have come in this turn or the next.
    shared.exposeFunctions({
        setImmediate(handler, ...args) {
            checkThis(this);
            if (typeof handler !== 'function')
                throw new TypeError('setImmediate: the handler must be a function');
            native.immediate(++newest);
            expected.set(newest, makeEntry(handler, args));
            return newest;
        },

        clearImmediate(id = 0) {
            checkThis(this);
            expected.delete(+id);
        },
    });

    // For AbortSignal.timeout(): a timer that keeps the program alive only if it is told to.
    class Timer {
        constructor(delay, handler) {
            this.slot = ++newest;
            this.id = native.after(this.slot, delay);
            ours.set(this.slot, handler);
        }

        keep(alive) { alive ? native.ref(this.id) : native.unref(this.id); }

        cancel() {
            if (ours.delete(this.slot))
                native.cancel(this.id);
        }
    }
    setPrototypeOf(Timer.prototype, null);
    shared.callAfter = (delay, handler) => new Timer(delay, handler);

    // A promise that is settled. What it has of its own is not what scripts may do to Promise.
    const settled = Promise.resolve();
    settled.then = Promise.prototype.then;
    settled.constructor = undefined;

    shared.exposeFunctions({
        queueMicrotask(callback) {
            checkThis(this);
            if (typeof callback !== 'function')
                throw new TypeError('queueMicrotask: the callback must be a function');
            settled.then(() => {
                try {
                    callback();
                } catch (error) {
                    shared.report(error);
                }
            });
        },
    });
}
