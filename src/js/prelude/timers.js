// SPDX-License-Identifier: MIT
// setTimeout and its kin. The rules are in C (foliot/webtimers.h); here are the handlers, and a list of what was asked for
// that C reads when the script has returned (queue.h).
//
// The handler of a timer is at the place of its ID in an array: IDs that live at the same time differ in their low bits.
// It is what to call: a function; a Call, with arguments; a Script, of a string.
(function (native, shared) {
    'use strict';

    const { apply, then, toDOMString } = shared;
    const { state, ids, delays, flags, calledMs, cleared, readQueue } = native;
    const SET = 0, CLEARED = 1, PLACES = 2, ID = 3; // in `state`
    const REPEATS = 1, HANDLING = 2; // in `flags`
    const LENGTH = ids.length;
    const { now } = Date;
    const { call } = Function.prototype;
    const none = [];

    const handlers = [];
    let idAt = new Int32Array(0); // 0: nobody has this place
    let repeatsAt = new Uint8Array(0);
    let mask = -1;

    // HANDLING while a timer's handler runs, but not in the microtasks after it: their timers do not count as nested.
    let handling = 0;

    function enlarge(array, length) {
        const larger = new array.constructor(length);
        larger.set(array.subarray(0, length));
        return larger;
    }

    // There are more places than before, or again few when no timer is left. With more, one more bit of an ID counts.
    function rearrange() {
        const before = handlers.length, places = state[PLACES];
        idAt = enlarge(idAt, places);
        repeatsAt = enlarge(repeatsAt, places);
        for (let place = before; place < places; place++)
            handlers.push(undefined);
        handlers.length = places;
        mask = places - 1;
        for (let place = 0; place < Math.min(before, places); place++) {
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
        calledMs[count] = now();
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
        constructor(handler, list) {
            this.handler = handler;
            this.list = list;
        }

        run() { apply(this.handler, globalThis, this.list); }
    }

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
                shared.report(error);
            }
        }
    }

    // A call as it stands in a script costs a twentieth of Reflect.apply(), which no script can get in the way of.
    function run(entry) {
        if (typeof entry !== 'function')
            entry.run();
        else if (entry.call === call)
            entry.call(globalThis);
        else
            apply(entry, globalThis, none);
    }

    function makeEntry(handler, list, name) {
        if (typeof handler !== 'function')
            return new Script(toDOMString(handler), name);
        return list.length > 0 ? new Call(handler, list) : handler;
    }

    // `| 0` is Web IDL's conversion to a long, of delays and of IDs.
    function setTimeout(handler, timeout = 0, ...list) {
        if (arguments.length === 0)
            shared.needArguments(0, 1, 'setTimeout');
        const entry = makeEntry(handler, list, 'setTimeout handler');
        return start(entry, timeout | 0, 0);
    }

    function setInterval(handler, timeout = 0, ...list) {
        if (arguments.length === 0)
            shared.needArguments(0, 1, 'setInterval');
        const entry = makeEntry(handler, list, 'setInterval handler');
        return start(entry, timeout | 0, REPEATS);
    }

    // C calls this for every timer that is due.
    shared.fire = function () {
        const place = state[ID] & mask;
        const entry = handlers[place];
        if (!repeatsAt[place])
            remove(place);
        handling = HANDLING;
        try {
            run(entry);
        } finally {
            handling = 0;
        }
    };

    shared.exposeFunction('setTimeout', setTimeout);
    shared.exposeFunction('setInterval', setInterval);
    shared.exposeFunction('clearTimeout', function clearTimeout(id = 0) { clearTimer(id | 0); });
    shared.exposeFunction('clearInterval', function clearInterval(id = 0) { clearTimer(id | 0); });

    // What clearImmediate() cannot clear.
    class Expiry extends Call {
        constructor(handler) {
            super(handler, none);
        }
    }

    // Everything else that C calls back, by a number of its own.
    const expected = new Map();
    let newest = 0;

    shared.expire = function (slot) {
        const entry = expected.get(slot);
        expected.delete(slot);
        if (entry)
            run(entry);
    };

    // A cleared immediate still comes, and finds nothing to do: it would have come in this turn or the next.
    shared.exposeFunction('setImmediate', function setImmediate(handler, ...list) {
        if (typeof handler !== 'function')
            throw new TypeError('setImmediate: the handler must be a function');
        native.immediate(++newest);
        expected.set(newest, makeEntry(handler, list));
        return newest;
    });

    shared.exposeFunction('clearImmediate', function clearImmediate(id = 0) {
        if (!(expected.get(+id) instanceof Expiry))
            expected.delete(+id);
    });

    // For AbortSignal.timeout(): it keeps the program alive only if it is told to. Returns a function for that.
    shared.callAfter = function (delay, handler) {
        const id = native.after(++newest, delay);
        expected.set(newest, new Expiry(handler));
        return keep => keep ? native.ref(id) : native.unref(id);
    };

    // A promise that is settled. What it has of its own is not what scripts may do to Promise.
    const settled = Promise.resolve();
    settled.then = then;
    settled.constructor = undefined;

    shared.exposeFunction('queueMicrotask', function queueMicrotask(callback) {
        if (typeof callback !== 'function')
            throw new TypeError('queueMicrotask: the callback must be a function');
        settled.then(() => {
            try {
                callback();
            } catch (error) {
                shared.report(error);
            }
        });
    });
})
