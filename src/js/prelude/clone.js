// SPDX-License-Identifier: MIT
// structuredClone, after the HTML standard: serializing and deserializing are one walk, because both are in one realm.
'use strict';
{
    const { native, shared } = this;

    const { DOMException, Map, Set, define, details, has, slots } = shared;
    const { Array, ArrayBuffer, Error, Object, String, TypeError, Uint8Array, create, getDescriptor, getPrototypeOf, globalThis,
        hasOwn, isArray, isError, isView, keys, ownKeys, uncurry } = shared.builtins;
    const { list, each, filter, findIndex, from, includes } = shared.lists;
    const { keys: objectKeys, prototype: objectPrototype } = Object, { prototype: arrayPrototype } = Array;
    const { iterator } = Symbol, { Proxy } = globalThis, { state } = native;
    const TYPE = 4, SHAPE = 5; // in `state`
    const arrayFrom = uncurry(Array.from);
    const makeArray = length => arrayFrom(Array, { __proto__: null, length }); // of undefined

    // Constructors, by name.
    const realm = create(null);
    const errorTypes = list('Error', 'EvalError', 'RangeError', 'ReferenceError', 'SyntaxError', 'TypeError', 'URIError');
    each(errorTypes, name => { realm[name] = globalThis[name]; });
    const viewTypes = filter(list('Int8Array', 'Uint8Array', 'Uint8ClampedArray', 'Int16Array', 'Uint16Array', 'Int32Array',
        'Uint32Array', 'Float16Array', 'Float32Array', 'Float64Array', 'BigInt64Array', 'BigUint64Array', 'DataView'),
    name => globalThis[name] !== undefined);
    each(viewTypes, name => { realm[name] = globalThis[name]; });
    each(list('Map', 'Set', 'Date', 'RegExp'), name => { realm[name] = globalThis[name]; });
    const mapSet = uncurry(realm.Map.prototype.set), setAdd = uncurry(realm.Set.prototype.add);

    // Kinds that nothing but their prototype tells, because every method of theirs would change them: iterators, generators,
    // promises and what libraries of the language have.
    const iterators = list([].values(), new realm.Map().keys(), new realm.Set().keys(), ''[iterator](), ''.matchAll(/x/g),
        [].values().map(x => x), Iterator.from({ next() {} }), function* () {}.prototype, async function* () {}.prototype);
    const foreign = new Set();
    each(iterators, value => foreign.add(getPrototypeOf(value)));
    foreign.add(Promise.prototype);
    foreign.add(FinalizationRegistry.prototype);
    const foreignSamples = list([].values(), new realm.Map().keys(), [].values().map(x => x), function* () {}(),
        async function* () {}(), Promise.resolve(), new WeakMap(), new WeakSet());

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

    // ---- Buffers and views.

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
    function isInBounds(view, isTyped) {
        try {
            isTyped ? details.arrayKeys(view) : slots.DataView(view);
            return true;
        } catch {
            return false;
        }
    }

    const bytesOf = (view, isTyped) => isTyped ? details.arrayByteLength(view) : slots.DataView(view);

    // Whether a view that ends where its resizable buffer ends follows the buffer's length, which only a resize tells. No script
    // runs meanwhile, and the buffer has its bytes again afterwards.
    function followsBuffer(view, isTyped, buffer) {
        const length = slots.ArrayBuffer(buffer), bytes = bytesOf(view, isTyped);
        const last = new Uint8Array(details.bufferSlice(buffer, length > 8 ? length - 8 : 0));
        try {
            const grows = length + 8 <= details.bufferMaxLength(buffer); // no element is larger
            details.bufferResize(buffer, grows ? length + 8 : length - last.length);
            return isInBounds(view, isTyped) && bytesOf(view, isTyped) !== bytes;
        } catch {
            return true; // the buffer of a WebAssembly.Memory: whether it follows makes no difference to a copy of it
        } finally {
            if (slots.ArrayBuffer(buffer) !== length)
                details.bufferResize(buffer, length);
            details.arraySet(new Uint8Array(buffer), last, length - last.length);
        }
    }

    function cloneView(view, memory) {
        const tag = details.arrayTag(view), isTyped = tag !== undefined;
        if (!isInBounds(view, isTyped))
            refuse(view, 'A view outside of its buffer');
        const original = isTyped ? details.arrayBuffer(view) : details.viewBuffer(view);
        const buffer = walk(original, memory); // refuses a shared one
        const offset = isTyped ? details.arrayByteOffset(view) : details.viewByteOffset(view);
        const bytes = bytesOf(view, isTyped);
        const constructor = realm[tag ?? 'DataView'];
        // A view that follows the length of its buffer is made without a length of its own.
        if (details.bufferIsResizable(original) && followsBuffer(view, isTyped, original))
            return new constructor(buffer, offset);
        return new constructor(buffer, offset, isTyped ? details.arrayLength(view) : bytes);
    }

    // ---- Errors, collections and properties.

    function cloneError(error, memory) {
        const given = String(error.name), name = includes(errorTypes, given) ? given : 'Error';
        const message = getDescriptor(error, 'message');
        const copy = new realm[name]();
        memory.set(error, copy);
        if (message && 'value' in message)
            define(copy, 'message', `${message.value}`, false);
        const { stack } = error;
        define(copy, 'stack', typeof stack === 'string' ? stack : undefined, false);
        const cause = getDescriptor(error, 'cause');
        if (cause && 'value' in cause)
            define(copy, 'cause', walk(cause.value, memory), false);
        return copy;
    }

    function cloneDOMException(error, memory) {
        const copy = shared.copyDOMException(error);
        memory.set(error, copy);
        define(copy, 'stack', error.stack, false);
        return copy;
    }

    // Assigning is much faster than defining, and the same unless the prototype of the copy has the property, too. A getter may
    // have deleted the property meanwhile.
    function cloneProperties(value, copy, prototype, memory, names) {
        for (let i = 0; i < names.length; i++) {
            const name = names[i];
            if (name in prototype) {
                if (hasOwn(value, name))
                    define(copy, name, walk(value[name], memory), true);
                continue;
            }
            const item = value[name];
            if (item !== undefined || hasOwn(value, name))
                copy[name] = typeof item === 'object' ? walk(item, memory) : checkPrimitive(item);
        }
        return copy;
    }

    function clonePlain(value, memory) {
        const copy = {};
        memory.set(value, copy);
        return cloneProperties(value, copy, objectPrototype, memory, objectKeys(value));
    }

    // The copy begins with a property for each item, and assigning to it does not ask the prototype. To list the keys of an array
    // takes longer than all the rest, so its shape tells whether it has items only.
    function cloneArray(value, memory) {
        native.typeOf(value);
        const { length } = value, hasItemsOnly = includes(itemShapes, state[SHAPE]);
        const copy = hasItemsOnly ? makeArray(length) : [];
        memory.set(value, copy);
        if (!hasItemsOnly) {
            copy.length = length;
            return cloneProperties(value, copy, arrayPrototype, memory, objectKeys(value));
        }
        for (let i = 0; i < length; i++) {
            const item = value[i];
            if (item === undefined && !hasOwn(value, i))
                delete copy[i];
            else
                copy[i] = typeof item === 'object' ? walk(item, memory) : checkPrimitive(item);
        }
        return copy;
    }

    // Keys and values are taken out before any of them is cloned: a getter among them might change the collection.
    function itemsOf(value, forEach) {
        const items = list();
        let count = 0;
        forEach(value, (item, key) => {
            items[count++] = key;
            items[count++] = item;
        });
        return items;
    }

    function cloneMap(value, memory) {
        const copy = new realm.Map(), items = itemsOf(value, details.mapForEach);
        memory.set(value, copy);
        for (let i = 0; i < items.length; i += 2) {
            const key = walk(items[i], memory);
            mapSet(copy, key, walk(items[i + 1], memory));
        }
        return copy;
    }

    function cloneSet(value, memory) {
        const copy = new realm.Set(), items = itemsOf(value, details.setForEach);
        memory.set(value, copy);
        for (let i = 0; i < items.length; i += 2)
            setAdd(copy, walk(items[i], memory));
        return copy;
    }

    // ---- Objects by their kinds. A function of the object and the memory returns the copy; those whose parts are walked put it
    // into the memory themselves, before.

    const wrap = kind => value => Object(slots[kind](value));
    const cloners = {
        __proto__: null,
        Boolean: wrap('Boolean'), Number: wrap('Number'), String: wrap('String'), BigInt: wrap('BigInt'),
        Date: value => new realm.Date(slots.Date(value)),
        RegExp: value => new realm.RegExp(slots.RegExp(value), shared.regExpFlags(value)),
        ArrayBuffer: cloneBuffer,
        Map: cloneMap,
        Set: cloneSet,
    };
    const kinds = keys(cloners);

    // A shared buffer, which only WebAssembly makes here, has the type of the others. Its copy would have to be the same memory,
    // which no function of the language does.
    const cloneUnshared = value => has('ArrayBuffer', value) ? cloneBuffer(value) : refuse(value, 'A SharedArrayBuffer');

    // What has slots for which the standard has no way of cloning.
    const specialSlots = list('Symbol', 'WeakRef', 'WeakMap', 'WeakSet');
    const isOurs = value => shared.isEvent(value) || shared.isEventTarget(value) || shared.isAbortController(value);
    const isSpecial = value => findIndex(specialSlots, kind => has(kind, value)) >= 0 || isOurs(value) || isForeign(value);

    // Asks for one kind after the other. Each no is an exception, so this takes some microseconds.
    function clonerOf(value) {
        if (native.proxyTarget(value) !== undefined || shared.isRevoked(value))
            refuse(value);
        const index = findIndex(kinds, kind => has(kind, value));
        if (index >= 0)
            return cloners[kinds[index]];
        if (isView(value))
            return cloneView;
        if (shared.isDOMException(value))
            return cloneDOMException;
        if (isError(value))
            return cloneError;
        if (isSpecial(value))
            refuse(value);
        return isArray(value) ? cloneArray : clonePlain;
    }

    // The engine's number for a type (native.typeOf()) says the same at once, if all objects of that type are of one kind. The
    // samples say so. They are looked at when first needed, because to make them would slow every start.
    let clonerByType = null;
    const itemShapes = list();

    function typeOf(value) {
        native.typeOf(value);
        return state[TYPE];
    }

    // Arrays of each way in which the engine keeps items, but for the one of arrays that are mostly holes.
    function learnShapes() {
        const named = [1];
        named.x = 1;
        typeOf(named);
        const other = state[SHAPE];
        each(list([], [1], [1.5], [{}], [1, , 2], makeArray(1), new Array(1, 2), new Array(1.5, 2), new Array({}, 1)), sample => {
            typeOf(sample);
            if (state[SHAPE] !== 0 && state[SHAPE] !== other && !includes(itemShapes, state[SHAPE]))
                itemShapes[itemShapes.length] = state[SHAPE];
        });
    }

    function learnTypes() {
        const learned = list();
        learnShapes();
        const learn = (cloner, ...samples) => {
            for (let i = 0; i < samples.length; i++) {
                const type = typeOf(samples[i]);
                learned[type] = type === 0 || (type in learned && learned[type] !== cloner) ? null : cloner;
            }
        };
        learn(clonePlain, {}, new class {}(), create(null), create({ a: 1 }));
        learn(cloneArray, [], [1], [1.5], [{}]);
        learn(cloners.Date, new realm.Date(0));
        learn(cloners.RegExp, new realm.RegExp('x'));
        learn(cloners.Map, new realm.Map());
        learn(cloners.Set, new realm.Set());
        for (let i = 0; i < viewTypes.length; i++)
            learn(cloneView, new realm[viewTypes[i]](new ArrayBuffer(8)));
        learn(cloneUnshared, new ArrayBuffer(0));
        // Whatever else there may be, most of all with the type of a plain object.
        learn(null, Object(1), Object('x'), Object(true), Object(1n), Object(iterator), new Error(), globalThis,
            isArray, new Proxy({}, {}), new Proxy([], {}), (function () { return arguments; })(1), (function () { 'use strict'; return arguments; })(1));
        for (let i = 0; i < foreignSamples.length; i++)
            learn(null, foreignSamples[i]);
        return learned;
    }

    function cloneObject(value, memory) {
        clonerByType ??= learnTypes();
        let cloner = clonerByType[typeOf(value)] ?? clonerOf(value);
        if (cloner === clonePlain && isOurs(value))
            refuse(value);
        const copy = cloner(value, memory);
        memory.set(value, copy);
        return copy;
    }

    function checkPrimitive(item) {
        if (typeof item === 'function' || typeof item === 'symbol')
            refuse(item);
        return item;
    }

    function walk(item, memory) {
        if (typeof item !== 'object')
            return checkPrimitive(item);
        return item === null ? null : memory.get(item) ?? cloneObject(item, memory);
    }

    // ---- Transfer.

    // Web IDL: a sequence of objects.
    function toTransfer(value) {
        const what = 'structuredClone: transfer';
        if (value === undefined)
            return list();
        if ((typeof value !== 'object' && typeof value !== 'function') || value === null || typeof value[iterator] !== 'function')
            throw new TypeError(`${what} must be a list of objects`);
        const items = from(value);
        each(items, item => {
            if ((typeof item !== 'object' && typeof item !== 'function') || item === null)
                throw new TypeError(`${what} must be a list of objects`);
        });
        return items;
    }

    function checkTransfer(items) {
        const seen = new Set();
        each(items, item => {
            if (!has('ArrayBuffer', item))
                refuse(item, 'A value that is not transferable');
            if (seen.has(item))
                refuse(item, 'An ArrayBuffer that is transferred twice');
            seen.add(item);
        });
    }

    // A getter may have written, resized or detached the buffer since the walk began. The bytes go where views already look.
    function finishTransfer(buffer, copy) {
        if (details.bufferIsDetached(buffer))
            refuse(buffer, 'An ArrayBuffer that is detached');
        const length = slots.ArrayBuffer(buffer);
        if (details.bufferIsResizable(buffer) && slots.ArrayBuffer(copy) !== length)
            details.bufferResize(copy, length);
        details.arraySet(new Uint8Array(copy), new Uint8Array(buffer));
    }

    function clone(value, transfer) {
        const memory = new Map();
        checkTransfer(transfer);
        each(transfer, buffer => memory.set(buffer, cloneBuffer(buffer)));
        const copy = walk(value, memory);
        each(transfer, buffer => finishTransfer(buffer, memory.get(buffer)));
        each(transfer, buffer => details.bufferTransfer(buffer, 0));
        return copy;
    }

    shared.exposeFunctions({
        structuredClone(value, options = undefined) {
            shared.checkThis(this);
            shared.needArguments(arguments.length, 1, 'structuredClone');
            const { transfer } = shared.toDictionary(options, 'structuredClone: the second argument');
            return clone(value, toTransfer(transfer));
        },
    });
}
