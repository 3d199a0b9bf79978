// SPDX-License-Identifier: MIT
// What every file of the prelude uses. Each file is a block, and finds in `this` what it may use: `native` (what C offers, see
// natives.c) and `shared` (what the files offer each other). Neither is visible to scripts. A function instead of the block would
// be read twice by the engine, and in other than 8-bit characters everything takes longer: so the files are ASCII.
//
// Scripts may replace whatever they can reach: methods of built-in objects, the iteration protocol, even what an index of
// an array or a property of an object without it means, by a setter on a prototype. None of that may lose an error or a
// timer. So after start-up the prelude
//   - calls built-in functions only as they are kept in `shared.builtins`, with `this` as the first argument;
//   - keeps what it knows in lists and records without a prototype, and in Map, Set and WeakMap of its own (below);
//   - neither iterates, nor spreads, nor takes arrays apart, nor uses regular expressions: each would look up methods.
// During start-up no script has run, and everything may be used.
'use strict';
{
    const { native, shared } = this;

    const { bind, call } = Function.prototype;
    const uncurry = bind.bind(call); // uncurry(f)(self, ...list) is f.call(self, ...list), whatever becomes of `call`

    const { apply, ownKeys } = Reflect;
    const { create, defineProperty, getOwnPropertyDescriptor, getPrototypeOf, hasOwn, is, keys, setPrototypeOf } = Object;
    const { isArray } = Array;
    const { charCodeAt, includes, indexOf, lastIndexOf, repeat, slice, startsWith } = String.prototype;

    shared.builtins = Object.freeze({
        __proto__: null,
        apply, ownKeys, create, getPrototypeOf, hasOwn, is, isArray, setPrototypeOf, uncurry,
        Array, ArrayBuffer, Error, Int32Array, Number, Object, String, TypeError, Uint8Array, globalThis,
        now: Date.now,
        then: uncurry(Promise.prototype.then),
        isError: Error.isError,
        isView: ArrayBuffer.isView,
        stringify: JSON.stringify,
        parseInt, parseFloat,
        joinArray: uncurry(Array.prototype.join),
        charCodeAt: uncurry(charCodeAt),
        includesText: uncurry(includes),
        indexOfText: uncurry(indexOf),
        lastIndexOfText: uncurry(lastIndexOf),
        repeat: uncurry(repeat),
        sliceText: uncurry(slice),
        startsWith: uncurry(startsWith),
        toFixed: uncurry(Number.prototype.toFixed),
        isEnumerable: uncurry(Object.prototype.propertyIsEnumerable),
        keys: value => setPrototypeOf(keys(value), null),
        // Its absent members are absent, and not those of Object.prototype.
        getDescriptor(object, key) {
            const descriptor = getOwnPropertyDescriptor(object, key);
            return descriptor && setPrototypeOf(descriptor, null);
        },
    });

    // A class whose objects have its methods, and nothing that scripts can reach.
    function isolate(original) {
        class Isolated extends original {
            constructor() { super(); } // one that is not written would spread its arguments
        }
        for (const key of ownKeys(original.prototype))
            if (key !== 'constructor')
                defineProperty(Isolated.prototype, key, getOwnPropertyDescriptor(original.prototype, key));
        setPrototypeOf(Isolated.prototype, null);
        return Isolated;
    }
    shared.Map = isolate(Map);
    shared.Set = isolate(Set);
    shared.WeakMap = isolate(WeakMap);

    // ---- Lists: arrays without a prototype. `list[list.length] = item` adds to one.

    const list = (...items) => setPrototypeOf(items, null);

    function map(from, change) {
        const to = list();
        for (let i = 0; i < from.length; i++)
            to[i] = change(from[i], i);
        return to;
    }

    function filter(from, keep) {
        const to = list();
        for (let i = 0; i < from.length; i++)
            if (keep(from[i]))
                to[to.length] = from[i];
        return to;
    }

    function findIndex(from, isIt) {
        for (let i = 0; i < from.length; i++)
            if (isIt(from[i]))
                return i;
        return -1;
    }

    function concat(first, second) {
        const to = map(first, item => item);
        for (let i = 0; i < second.length; i++)
            to[to.length] = second[i];
        return to;
    }

    shared.lists = Object.freeze({
        __proto__: null, list, map, filter, findIndex, concat,
        each(items, visit) { map(items, visit); },
        includes: (items, item) => findIndex(items, other => other === item) >= 0,
        join: shared.builtins.joinArray,
        from: items => setPrototypeOf([...items], null), // of the script's, by the iteration protocol if it is to be
        copy: items => map(items, item => item),
        itemsOf(set) {
            const items = list();
            set.forEach(item => { items[items.length] = item; });
            return items;
        },
        // In place; what is nearly in order takes little time.
        sortBy(items, key) {
            for (let i = 1; i < items.length; i++)
                for (let j = i; j > 0 && key(items[j - 1]) > key(items[j]); j--) {
                    const item = items[j];
                    items[j] = items[j - 1];
                    items[j - 1] = item;
                }
            return items;
        },
        removeAt(items, index) {
            for (let i = index + 1; i < items.length; i++)
                items[i - 1] = items[i];
            items.length--;
        },
    });

    // ---- Text.

    const { sliceText, indexOfText, joinArray } = shared.builtins;

    shared.split = function (text, separator) {
        const parts = list();
        let begin = 0;
        for (let end; (end = indexOfText(text, separator, begin)) >= 0; begin = end + separator.length)
            parts[parts.length] = sliceText(text, begin, end);
        parts[parts.length] = sliceText(text, begin);
        return parts;
    };

    shared.replaceAll = (text, what, by) => joinArray(shared.split(text, what), by);

    // ---- Properties and globals.

    shared.define = function (target, name, value, enumerable) {
        defineProperty(target, name, { __proto__: null, value, enumerable, writable: true, configurable: true });
    };

    shared.defineGetter = function (target, name, get, set, configurable = true) {
        defineProperty(target, name, { __proto__: null, get, set, enumerable: true, configurable });
    };

    // Web IDL: functions of the global object are enumerable, classes are not. Being written as methods, functions are no
    // constructors and have no prototype.
    shared.exposeFunctions = function (functions) {
        for (const name of keys(functions))
            shared.define(globalThis, name, functions[name], true);
    };
    shared.exposeClass = value => shared.define(globalThis, value.name, value, false);
    shared.exposeValue = (name, value) => shared.define(globalThis, name, value, true);

    // Web IDL: what is called without an object is called on the global one, and on no other.
    const { globalThis: global } = shared.builtins;
    shared.checkThis = function (self) {
        if (self !== undefined && self !== null && self !== global)
            throw new shared.builtins.TypeError('This function belongs to the global object');
    };

    shared.defineConstants = function (constructor, constants) {
        for (const [name, value] of Object.entries(constants)) {
            defineProperty(constructor, name, { value, enumerable: true });
            defineProperty(constructor.prototype, name, { value, enumerable: true });
        }
    };

    // Web IDL: members of an interface are enumerable, and its objects say what they are.
    shared.finishClass = function (constructor) {
        const { prototype } = constructor;
        for (const object of [prototype, constructor])
            for (const name of Object.getOwnPropertyNames(object)) {
                const descriptor = getOwnPropertyDescriptor(object, name);
                if (name !== 'constructor' && descriptor.configurable && (descriptor.get || object === prototype))
                    defineProperty(object, name, { enumerable: true });
                else if (object === constructor && typeof descriptor.value === 'function' && name !== 'prototype')
                    defineProperty(object, name, { enumerable: true });
            }
        defineProperty(prototype, Symbol.toStringTag, { value: constructor.name, configurable: true });
        defineProperty(constructor, 'prototype', { writable: false });
        shared.exposeClass(constructor);
    };

    // Web IDL: a dictionary is an object, or nothing.
    shared.toDictionary = function (value, what) {
        if (value === undefined || value === null)
            return { __proto__: null };
        if (typeof value !== 'object' && typeof value !== 'function')
            throw new shared.builtins.TypeError(`${what} must be an object`);
        return value;
    };

    shared.needArguments = function (count, needed, what) {
        if (count < needed)
            throw new shared.builtins.TypeError(
                `${what}: ${needed} argument${needed > 1 ? 's' : ''} required, but only ${count} present`);
    };

    // Web IDL: a string. A symbol is none, whatever String() makes of it.
    shared.toDOMString = value => `${value}`;
}
