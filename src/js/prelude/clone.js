// SPDX-License-Identifier: MIT
// structuredClone, after the HTML standard: serializing and deserializing are one walk, because both are in one realm.
(function (native, shared) {
    'use strict';

    const { DOMException, Map, Set, details, has, slots } = shared;
    const { ArrayBuffer, Object, String, Uint8Array, create, getDescriptor, getPrototypeOf, globalThis, hasOwn, isArray, isError,
        isView, keys, ownKeys, uncurry } = shared.builtins;
    const { list, each, filter, from, includes } = shared.lists;

    // Constructors, by name.
    const realm = create(null);
    const errorTypes = list('Error', 'EvalError', 'RangeError', 'ReferenceError', 'SyntaxError', 'TypeError', 'URIError');
    each(errorTypes, name => { realm[name] = globalThis[name]; });
    for (const name of ['Int8Array', 'Uint8Array', 'Uint8ClampedArray', 'Int16Array', 'Uint16Array', 'Int32Array', 'Uint32Array',
        'Float16Array', 'Float32Array', 'Float64Array', 'BigInt64Array', 'BigUint64Array', 'DataView', 'Map', 'Set', 'Date',
        'RegExp'])
        realm[name] = globalThis[name];
    const mapSet = uncurry(realm.Map.prototype.set), setAdd = uncurry(realm.Set.prototype.add);

    // Kinds that nothing but their prototype tells, because every method of theirs would change them: iterators, generators,
    // promises and what libraries of the language have.
    const foreign = new Set();
    for (const value of [[].values(), new realm.Map().keys(), new realm.Set().keys(), ''[Symbol.iterator](), ''.matchAll(/x/g),
        [].values().map(x => x), Iterator.from({ next() {} }), function* () {}.prototype, async function* () {}.prototype])
        foreign.add(getPrototypeOf(value));
    foreign.add(Promise.prototype);
    foreign.add(FinalizationRegistry.prototype);

    // The classes of these are looked for when first needed: the engine makes them then, which would slow every start.
    const libraries = filter(list(globalThis.Intl, globalThis.WebAssembly, globalThis.Temporal), value => value !== undefined);
    function findClasses() {
        each(libraries, library => each(ownKeys(library), key => {
            const member = getDescriptor(library, key).value;
            const prototype = typeof member === 'function' ? getDescriptor(member, 'prototype')?.value : undefined;
            if (prototype !== undefined)
                foreign.add(prototype);
        }));
        libraries.length = 0;
    }

    function isForeign(value) {
        findClasses();
        for (let object = value; object !== null; object = getPrototypeOf(object)) {
            if (foreign.has(object))
                return true;
            if (native.proxyTarget(object) !== undefined && object !== globalThis)
                return false; // an object before a proxy is an object
        }
        return false;
    }

    function refuse(value, what) {
        throw new DOMException(`${what ?? shared.inspect(value)} could not be cloned`, 'DataCloneError');
    }

    function cloneBuffer(buffer) {
        if (details.bufferIsDetached(buffer))
            refuse(buffer, 'An ArrayBuffer that is detached');
        const length = slots.ArrayBuffer(buffer);
        const maxByteLength = details.bufferIsResizable(buffer) ? details.bufferMaxLength(buffer) : undefined;
        const copy = new ArrayBuffer(length, { __proto__: null, maxByteLength });
        details.arraySet(new Uint8Array(copy), new Uint8Array(buffer));
        return copy;
    }

    // Both throw if the view is outside of its buffer, which may have shrunk.
    function checkBounds(view, isTyped) {
        try {
            isTyped ? details.arrayKeys(view) : slots.DataView(view);
        } catch {
            refuse(view, 'A view outside of its buffer');
        }
    }

    function cloneView(view, walk) {
        const tag = details.arrayTag(view), isTyped = tag !== undefined;
        checkBounds(view, isTyped);
        const original = isTyped ? details.arrayBuffer(view) : details.viewBuffer(view);
        const offset = isTyped ? details.arrayByteOffset(view) : details.viewByteOffset(view);
        const bytes = isTyped ? details.arrayByteLength(view) : slots.DataView(view);
        const constructor = realm[tag ?? 'DataView'];
        // A view that follows the length of its buffer is made without a length of its own.
        const tracks = details.bufferIsResizable(original) && offset + bytes === slots.ArrayBuffer(original);
        const buffer = walk(original);
        if (tracks)
            return new constructor(buffer, offset);
        return new constructor(buffer, offset, isTyped ? details.arrayLength(view) : bytes);
    }

    function cloneError(error, walk, remember) {
        const given = String(error.name), name = includes(errorTypes, given) ? given : 'Error';
        const message = getDescriptor(error, 'message');
        const copy = new realm[name]();
        remember(copy);
        if (message && 'value' in message)
            shared.define(copy, 'message', `${message.value}`, false);
        const { stack } = error;
        shared.define(copy, 'stack', typeof stack === 'string' ? stack : undefined, false);
        const cause = getDescriptor(error, 'cause');
        if (cause && 'value' in cause)
            shared.define(copy, 'cause', walk(cause.value), false);
        return copy;
    }

    function cloneProperties(value, copy, walk) {
        each(keys(value), key => {
            if (hasOwn(value, key))
                shared.define(copy, key, walk(value[key]), true);
        });
        return copy;
    }

    const wrappers = list('Boolean', 'Number', 'String', 'BigInt');
    function clonePrimitiveObject(value) {
        for (let i = 0; i < wrappers.length; i++)
            if (has(wrappers[i], value))
                return Object(slots[wrappers[i]](value));
        return undefined;
    }

    // Keys and values are taken out before any of them is cloned: a getter among them might change the collection.
    function cloneCollection(value, forEach, add) {
        const items = list(), itsKeys = list();
        forEach(value, (item, key) => {
            items[items.length] = item;
            itsKeys[itsKeys.length] = key;
        });
        for (let i = 0; i < items.length; i++)
            add(itsKeys[i], items[i]);
    }

    function cloneObject(value, walk, remember) {
        if (native.proxyTarget(value) !== undefined || shared.isRevoked(value))
            refuse(value);
        const primitive = clonePrimitiveObject(value);
        if (primitive !== undefined)
            return remember(primitive);
        if (has('Date', value))
            return remember(new realm.Date(slots.Date(value)));
        if (has('RegExp', value))
            return remember(new realm.RegExp(slots.RegExp(value), shared.regExpFlags(value)));
        if (has('ArrayBuffer', value))
            return remember(cloneBuffer(value));
        if (isView(value))
            return remember(cloneView(value, walk));
        if (has('Map', value)) {
            const copy = remember(new realm.Map());
            cloneCollection(value, details.mapForEach, (key, item) => mapSet(copy, walk(key), walk(item)));
            return copy;
        }
        if (has('Set', value)) {
            const copy = remember(new realm.Set());
            cloneCollection(value, details.setForEach, key => setAdd(copy, walk(key)));
            return copy;
        }
        return cloneOther(value, walk, remember);
    }

    // What has slots for which the standard has no way of cloning.
    const isSpecial = value => has('Symbol', value) || has('WeakRef', value) || has('WeakMap', value) || has('WeakSet', value) ||
        shared.isEvent(value) || shared.isEventTarget(value) || shared.isAbortController(value) || isForeign(value);

    function cloneOther(value, walk, remember) {
        if (shared.isDOMException(value)) {
            const copy = remember(shared.copyDOMException(value));
            shared.define(copy, 'stack', value.stack, false);
            return copy;
        }
        if (isError(value))
            return cloneError(value, walk, remember);
        if (isSpecial(value))
            refuse(value);
        if (isArray(value)) {
            const copy = remember([]);
            copy.length = value.length;
            return cloneProperties(value, copy, walk);
        }
        return cloneProperties(value, remember({}), walk);
    }

    // A buffer that is transferred moves: the clone has its bytes, the original none any more.
    function checkTransfer(items) {
        const seen = new Set();
        each(items, item => {
            if (typeof item !== 'object' || item === null || !has('ArrayBuffer', item))
                refuse(item, 'A value that is not transferable');
            if (seen.has(item))
                refuse(item, 'An ArrayBuffer that is transferred twice');
            seen.add(item);
        });
    }

    function clone(value, transfer) {
        const memory = new Map();
        const walk = item => {
            if (typeof item === 'function' || typeof item === 'symbol')
                refuse(item);
            if (typeof item !== 'object' || item === null)
                return item;
            if (memory.has(item))
                return memory.get(item);
            return cloneObject(item, walk, copy => {
                memory.set(item, copy);
                return copy;
            });
        };
        checkTransfer(transfer);
        each(transfer, buffer => memory.set(buffer, cloneBuffer(buffer)));
        const copy = walk(value);
        each(transfer, buffer => details.bufferTransfer(buffer));
        return copy;
    }

    shared.exposeFunctions({
        structuredClone(value, options = undefined) {
            shared.checkThis(this);
            shared.needArguments(arguments.length, 1, 'structuredClone');
            const { transfer } = shared.toDictionary(options, 'structuredClone: the second argument');
            return clone(value, transfer === undefined ? list() : from(transfer));
        },
    });
})
