// SPDX-License-Identifier: MIT
// A script that breaks every built-in object it can reach, and then uses what the host has. process.sh says what it must
// print; nothing after breakAll() may use what was broken.
'use strict';

const say = print, log = console.log, { timeout, any } = AbortSignal, collection = new Map([[1, 2]]);
const failure = new Error('printed'), loss = new Error('lost');
const controller = new AbortController();
const either = any([controller.signal]);

(function breakAll() {
    const { defineProperty, getOwnPropertyDescriptor, getPrototypeOf } = Object, { ownKeys } = Reflect;
    const broken = function () { throw 'PATCHED'; };
    const names = ['Array', 'ArrayBuffer', 'BigInt', 'Boolean', 'DataView', 'Date', 'Error', 'Function', 'Int32Array', 'Iterator', 'JSON',
        'Map', 'Math', 'Number', 'Object', 'Promise', 'Proxy', 'Reflect', 'RegExp', 'Set', 'String', 'Symbol', 'TypeError',
        'Uint8Array', 'WeakMap', 'WeakRef', 'WeakSet', 'Event', 'EventTarget', 'ErrorEvent'];
    const objects = [];
    for (const name of names)
        objects.push(globalThis[name], globalThis[name].prototype);
    for (const iterator of [[].values(), new Map().keys(), new Set().keys()])
        objects.push(getPrototypeOf(iterator));
    objects.push(getPrototypeOf(Int8Array.prototype));
    const kept = ['prototype', 'constructor', 'addEventListener', 'dispatchEvent'];
    const { prototype: objectPrototype } = Object, { prototype: arrayPrototype } = Array, { prototype: functionPrototype } = Function;
    const polluted = ['get', 'set', 'value', 'bubbles', 'composed', 'once', 'passive', 'signal', 'capture', 'maxByteLength'];
    const all = objects.filter(Boolean).map(object => ({ object, keys: ownKeys(object).filter(key => !kept.includes(key)) }));
    for (let i = 0; i < all.length; i++)
        for (let j = 0; j < all[i].keys.length; j++) {
            const { object, keys } = all[i];
            const { configurable, get, value } = getOwnPropertyDescriptor(object, keys[j]);
            if (configurable && get)
                defineProperty(object, keys[j], { get: broken });
            else if (configurable && typeof value === 'function')
                defineProperty(object, keys[j], { value: broken });
        }
    defineProperty(functionPrototype, 'call', { get: broken });
    for (let i = 0; i < 20; i++)
        defineProperty(arrayPrototype, i, { set: broken, get: broken, configurable: true });
    for (let i = 0; i < names.length; i++)
        defineProperty(globalThis, names[i], { value: broken });
    for (let i = 0; i < polluted.length; i++)
        defineProperty(objectPrototype, polluted[i], { __proto__: null, get: broken, set: broken, configurable: true });
})();

const target = timeout(1000000000);
target.addEventListener('x', () => say('listener'));
target.dispatchEvent(new CustomEvent('x', { __proto__: null }));
say('clone ' + structuredClone({ a: [1], m: collection }).a[0]);
log({ a: [1, 2] }, 'x', 5);
either.onabort = () => say('any');
controller.abort();
queueMicrotask(() => say('microtask'));
(async () => { throw 1; })();
(async () => { throw loss; })();
onunhandledrejection = event => {
    if (event.reason !== 1)
        return true;
    say('rejection');
    return false;
};
onerror = (message, file, line, column, error) => {
    if (error !== 1)
        return false;
    say('error ' + message);
    return true;
};

// One after another, however slow the machine is.
setImmediate(value => {
    say('immediate ' + value);
    setTimers();
}, 2);

function setTimers() {
    setTimeout(value => say('timeout ' + value), 1, 2);
    setTimeout(() => { throw 1; }, 2);
    setTimeout(() => { throw failure; }, 3);
    const id = setInterval(value => {
        say('interval ' + value);
        clearInterval(id);
    }, 4, 2);
    setTimeout('say("script"); setSignal()', 5);
}

function setSignal() {
    const signal = timeout(1);
    signal.onabort = () => say(signal.reason.name);
}
