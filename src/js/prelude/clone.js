// SPDX-License-Identifier: MIT
// structuredClone, after the HTML standard: serializing and deserializing are one walk, because both are in one realm.
(function (native, shared) {
    'use strict';

    const { DOMException } = shared;
    const arrayTypes = ['Int8Array', 'Uint8Array', 'Uint8ClampedArray', 'Int16Array', 'Uint16Array', 'Int32Array', 'Uint32Array',
        'Float16Array', 'Float32Array', 'Float64Array', 'BigInt64Array', 'BigUint64Array'];
    const errorTypes = ['Error', 'EvalError', 'RangeError', 'ReferenceError', 'SyntaxError', 'TypeError', 'URIError'];
    const realm = {};
    for (const name of [...arrayTypes, ...errorTypes, 'DataView', 'ArrayBuffer', 'Map', 'Set', 'Date', 'RegExp'])
        realm[name] = globalThis[name];

    const getter = (object, name) => Object.getOwnPropertyDescriptor(object, name).get;
    const slots = {
        Date: Date.prototype.getTime,
        RegExp: getter(RegExp.prototype, 'flags'),
        Map: getter(Map.prototype, 'size'),
        Set: getter(Set.prototype, 'size'),
        ArrayBuffer: getter(ArrayBuffer.prototype, 'byteLength'),
        DataView: getter(DataView.prototype, 'byteLength'),
        Boolean: Boolean.prototype.valueOf,
        Number: Number.prototype.valueOf,
        String: String.prototype.valueOf,
        BigInt: BigInt.prototype.valueOf,
        Symbol: Symbol.prototype.valueOf,
        WeakRef: WeakRef.prototype.deref,
    };
    const regExpSource = getter(RegExp.prototype, 'source');
    const arrayPrototype = Object.getPrototypeOf(Int8Array.prototype);
    const arrayTag = getter(arrayPrototype, Symbol.toStringTag), arrayKeys = arrayPrototype.keys;
    const mapForEach = Map.prototype.forEach, setForEach = Set.prototype.forEach;
    const { slice: bufferSlice, transfer: bufferTransfer } = ArrayBuffer.prototype;

    // What an object is inside, whatever its prototype and its tag say.
    function has(slot, value) {
        try {
            shared.apply(slots[slot], value, []);
            return true;
        } catch {
            return false;
        }
    }

    const isRegExp = value => {
        try {
            return shared.apply(regExpSource, value, []) !== undefined && value !== RegExp.prototype;
        } catch {
            return false;
        }
    };

    function refuse(value, what) {
        throw new DOMException(`${what ?? shared.inspect(value)} could not be cloned`, 'DataCloneError');
    }

    function cloneBuffer(buffer) {
        if (buffer.detached)
            refuse(buffer, 'An ArrayBuffer that is detached');
        if (!buffer.resizable)
            return shared.apply(bufferSlice, buffer, [0]);
        const copy = new realm.ArrayBuffer(buffer.byteLength, { maxByteLength: buffer.maxByteLength });
        new Uint8Array(copy).set(new Uint8Array(buffer));
        return copy;
    }

    // Both throw if the view is outside of its buffer, which may have shrunk.
    function checkBounds(view, isArray) {
        try {
            shared.apply(isArray ? arrayKeys : slots.DataView, view, []);
        } catch {
            refuse(view, 'A view outside of its buffer');
        }
    }

    function cloneView(view, constructor, length, walk) {
        const buffer = walk(view.buffer);
        // A view that follows the length of its buffer is made without a length of its own.
        const tracks = view.buffer.resizable && view.byteOffset + view.byteLength === view.buffer.byteLength;
        return tracks ? new constructor(buffer, view.byteOffset) : new constructor(buffer, view.byteOffset, length);
    }

    function cloneError(error, walk, remember) {
        const name = errorTypes.includes(`${error.name}`) ? `${error.name}` : 'Error';
        const message = Object.getOwnPropertyDescriptor(error, 'message');
        const copy = new realm[name]();
        remember(copy);
        const put = (key, value) => Object.defineProperty(copy, key, { value, writable: true, configurable: true });
        if (message && 'value' in message)
            put('message', `${message.value}`);
        put('stack', typeof error.stack === 'string' ? error.stack : undefined);
        const cause = Object.getOwnPropertyDescriptor(error, 'cause');
        if (cause && 'value' in cause)
            put('cause', walk(cause.value));
        return copy;
    }

    function cloneProperties(from, to, walk) {
        for (const key of Object.keys(from))
            if (Object.hasOwn(from, key))
                Object.defineProperty(to, key, { value: walk(from[key]), writable: true, enumerable: true, configurable: true });
        return to;
    }

    function clonePrimitiveObject(value) {
        for (const name of ['Boolean', 'Number', 'String', 'BigInt'])
            if (has(name, value))
                return Object(shared.apply(slots[name], value, []));
        return undefined;
    }

    // Keys and values are taken out before any of them is cloned: a getter among them might change the collection.
    function cloneCollection(value, forEach, add) {
        const entries = [];
        shared.apply(forEach, value, [(item, key) => entries.push([key, item])]);
        for (const [key, item] of entries)
            add(key, item);
    }

    function cloneObject(value, walk, remember) {
        const primitive = clonePrimitiveObject(value);
        if (primitive !== undefined)
            return remember(primitive);
        if (has('Date', value))
            return remember(new realm.Date(shared.apply(slots.Date, value, [])));
        if (isRegExp(value))
            return remember(new realm.RegExp(shared.apply(regExpSource, value, []), shared.apply(slots.RegExp, value, [])));
        if (has('ArrayBuffer', value))
            return remember(cloneBuffer(value));
        if (ArrayBuffer.isView(value)) {
            const tag = shared.apply(arrayTag, value, []);
            checkBounds(value, tag !== undefined);
            return remember(cloneView(value, realm[tag ?? 'DataView'], tag ? value.length : value.byteLength, walk));
        }
        if (has('Map', value)) {
            const copy = remember(new realm.Map());
            cloneCollection(value, mapForEach, (key, item) => copy.set(walk(key), walk(item)));
            return copy;
        }
        if (has('Set', value)) {
            const copy = remember(new realm.Set());
            cloneCollection(value, setForEach, key => copy.add(walk(key)));
            return copy;
        }
        return cloneOther(value, walk, remember);
    }

    const isSpecial = value => has('Symbol', value) || has('WeakRef', value) || value instanceof WeakMap || value instanceof WeakSet ||
        value instanceof Promise || value instanceof FinalizationRegistry || native.isProxy(value) ||
        shared.isEvent(value) || shared.isEventTarget(value);

    function cloneOther(value, walk, remember) {
        if (shared.isDOMException(value)) {
            const copy = remember(new DOMException(value.message, value.name));
            copy.stack = value.stack;
            return copy;
        }
        if (isSpecial(value))
            refuse(value);
        if (Object.prototype.toString.call(value) === '[object Error]' || value instanceof Error)
            return cloneError(value, walk, remember);
        if (Array.isArray(value)) {
            const copy = remember([]);
            copy.length = value.length;
            return cloneProperties(value, copy, walk);
        }
        return cloneProperties(value, remember({}), walk);
    }

    // A buffer that is transferred moves: the clone has its bytes, the original none any more.
    function checkTransfer(list) {
        const seen = new Set();
        for (const item of list) {
            if (typeof item !== 'object' || item === null || !has('ArrayBuffer', item))
                refuse(item, 'A value that is not transferable');
            if (seen.has(item))
                refuse(item, 'An ArrayBuffer that is transferred twice');
            seen.add(item);
        }
        return seen;
    }

    function structuredClone(value, options = undefined) {
        shared.needArguments(arguments.length, 1, 'structuredClone');
        const { transfer = [] } = shared.toDictionary(options, 'structuredClone: the second argument');
        const moved = checkTransfer([...transfer]);
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
        for (const buffer of moved) {
            if (buffer.detached)
                refuse(buffer, 'An ArrayBuffer that is detached');
            memory.set(buffer, cloneBuffer(buffer));
        }
        const copy = walk(value);
        for (const buffer of moved)
            shared.apply(bufferTransfer, buffer, []);
        return copy;
    }
    Object.defineProperty(structuredClone, 'length', { value: 1, configurable: true });
    shared.exposeFunction('structuredClone', structuredClone);
})
