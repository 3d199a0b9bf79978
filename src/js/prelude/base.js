// SPDX-License-Identifier: MIT
// What every file of the prelude uses. Each file is a function of `native` (what C offers, see natives.c) and `shared`
// (what the files offer each other); neither is visible to scripts.
(function (native, shared) {
    'use strict';

    const { defineProperty, getOwnPropertyDescriptor, getOwnPropertyNames } = Object;

    // Scripts may replace the methods of built-in objects; what timers and promises depend on is kept here.
    shared.apply = Reflect.apply;
    shared.then = Promise.prototype.then;

    function define(target, name, value, enumerable) {
        defineProperty(target, name, { value, enumerable, writable: true, configurable: true });
    }

    // Web IDL: functions of the global object are enumerable, classes are not.
    shared.exposeFunction = (name, value) => define(globalThis, name, value, true);
    shared.exposeClass = value => define(globalThis, value.name, value, false);
    shared.exposeValue = (name, value) => define(globalThis, name, value, true);

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
            for (const name of getOwnPropertyNames(object)) {
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
            return {};
        if (typeof value !== 'object' && typeof value !== 'function')
            throw new TypeError(`${what} must be an object`);
        return value;
    };

    shared.needArguments = function (count, needed, what) {
        if (count < needed)
            throw new TypeError(`${what}: ${needed} argument${needed > 1 ? 's' : ''} required, but only ${count} present`);
    };

    // Web IDL: a string. A symbol is none, whatever String() makes of it.
    shared.toDOMString = value => `${value}`;
})
