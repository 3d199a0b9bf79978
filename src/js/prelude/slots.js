// SPDX-License-Identifier: MIT
// What an object is inside, whatever its prototype and its tag say: built-in methods that throw for any other kind.
'use strict';
{
    const { native, shared } = this;

    const { uncurry, isArray } = shared.builtins;
    const getter = (object, name) => uncurry(Object.getOwnPropertyDescriptor(object, name).get);
    const typedArray = Object.getPrototypeOf(Int8Array.prototype);

    // By kind, a function of the object that changes nothing.
    const slots = {
        __proto__: null,
        ArrayBuffer: getter(ArrayBuffer.prototype, 'byteLength'),
        BigInt: uncurry(BigInt.prototype.valueOf),
        Boolean: uncurry(Boolean.prototype.valueOf),
        DataView: getter(DataView.prototype, 'byteLength'),
        Date: uncurry(Date.prototype.getTime),
        Map: getter(Map.prototype, 'size'),
        Number: uncurry(Number.prototype.valueOf),
        RegExp: getter(RegExp.prototype, 'source'),
        Set: getter(Set.prototype, 'size'),
        String: uncurry(String.prototype.valueOf),
        Symbol: uncurry(Symbol.prototype.valueOf),
        WeakMap: uncurry(WeakMap.prototype.has),
        WeakRef: uncurry(WeakRef.prototype.deref),
        WeakSet: uncurry(WeakSet.prototype.has),
    };

    const { prototype: regExpPrototype } = RegExp; // the one object with a source and without the slot
    shared.slots = slots;
    shared.has = function (kind, value) {
        try {
            slots[kind](value);
            return value !== regExpPrototype;
        } catch {
            return false;
        }
    };

    // More to ask those of whom the kind is known.
    shared.details = Object.freeze({
        __proto__: null,
        bufferIsDetached: getter(ArrayBuffer.prototype, 'detached'),
        bufferIsResizable: getter(ArrayBuffer.prototype, 'resizable'),
        bufferMaxLength: getter(ArrayBuffer.prototype, 'maxByteLength'),
        bufferResize: uncurry(ArrayBuffer.prototype.resize),
        bufferSlice: uncurry(ArrayBuffer.prototype.slice),
        bufferTransfer: uncurry(ArrayBuffer.prototype.transfer),
        dateToISO: uncurry(Date.prototype.toISOString),
        mapForEach: uncurry(Map.prototype.forEach),
        setForEach: uncurry(Set.prototype.forEach),
        arrayBuffer: getter(typedArray, 'buffer'),
        arrayByteLength: getter(typedArray, 'byteLength'),
        arrayByteOffset: getter(typedArray, 'byteOffset'),
        arrayKeys: uncurry(typedArray.keys),
        arrayLength: getter(typedArray, 'length'),
        arraySet: uncurry(typedArray.set),
        arrayTag: getter(typedArray, Symbol.toStringTag), // undefined for every other object
        viewBuffer: getter(DataView.prototype, 'buffer'),
        viewByteOffset: getter(DataView.prototype, 'byteOffset'),
    });

    // The flags of a regular expression, each of which has a slot; `flags` itself would look them up by name.
    const flags = Object.entries({
        hasIndices: 'd', global: 'g', ignoreCase: 'i', multiline: 'm', dotAll: 's', unicode: 'u', unicodeSets: 'v', sticky: 'y',
    }).map(([name, letter]) => ({ __proto__: null, letter, get: getter(RegExp.prototype, name) }));
    Object.setPrototypeOf(flags, null);
    shared.regExpFlags = function (value) {
        let text = '';
        for (let i = 0; i < flags.length; i++)
            text += flags[i].get(value) ? flags[i].letter : '';
        return text;
    };

    // Only for a revoked proxy is it an error to ask.
    shared.isRevoked = function (value) {
        try {
            isArray(value);
            return false;
        } catch {
            return true;
        }
    };
}
