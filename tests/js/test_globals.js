// SPDX-License-Identifier: MIT
// Events, errors, signals, clones, the clock: everything global but timers and the console.
'use strict';

// ---- Events.

test('listeners are called in order, once each, and those that capture first', () => {
    const target = new EventTarget(), seen = [];
    const twice = () => seen.push('twice');
    target.addEventListener('x', () => seen.push('bubble'));
    target.addEventListener('x', twice);
    target.addEventListener('x', twice);
    target.addEventListener('x', () => seen.push('capture'), true);
    target.addEventListener('x', { handleEvent(event) { seen.push(event.type, this !== target); } });
    target.addEventListener('x', null);
    check(target.dispatchEvent(new Event('x')));
    same(seen, ['capture', 'bubble', 'twice', 'x', true]);
    target.removeEventListener('x', twice);
    target.dispatchEvent(new Event('x'));
    same(seen.slice(5), ['capture', 'bubble', 'x', true]);
});

test('once, passive, signal and stopImmediatePropagation', () => {
    const target = new EventTarget(), seen = [], controller = new AbortController();
    target.addEventListener('x', () => seen.push('once'), { once: true });
    target.addEventListener('x', event => event.preventDefault(), { passive: true });
    target.addEventListener('x', () => seen.push('signal'), { signal: controller.signal });
    check(target.dispatchEvent(new Event('x', { cancelable: true })));
    controller.abort();
    target.addEventListener('x', () => seen.push('never'), { signal: controller.signal });
    target.addEventListener('x', event => {
        event.preventDefault();
        event.stopImmediatePropagation();
    });
    target.addEventListener('x', () => seen.push('stopped'));
    check(!target.dispatchEvent(new Event('x', { cancelable: true })));
    same(seen, ['once', 'signal']);
});

test('an event knows its state, and cannot be dispatched inside itself', () => {
    const target = new EventTarget(), event = new Event('x', { bubbles: true });
    equal(event.isTrusted, false);
    target.addEventListener('x', e => {
        equal(e.target, target);
        equal(e.currentTarget, target);
        equal(e.eventPhase, Event.AT_TARGET);
        equal(e.composedPath()[0], target);
        throws('InvalidStateError', () => target.dispatchEvent(e));
    });
    target.dispatchEvent(event);
    equal(event.currentTarget, null);
    equal(event.eventPhase, 0);
    equal(event.bubbles, true);
    check(event.timeStamp > 0 && event.timeStamp <= performance.now());
    throws(TypeError, () => new Event());
    throws(TypeError, () => target.dispatchEvent({}));
    equal(new CustomEvent('x', { detail: 5 }).detail, 5);
    equal(Object.prototype.toString.call(event), '[object Event]');
});

test('an error in a listener is reported, and the next one called', () => {
    const target = new EventTarget(), seen = [];
    const listener = event => {
        event.preventDefault();
        seen.push(event.error.message);
    };
    addEventListener('error', listener);
    target.addEventListener('x', () => { throw new Error('boo'); });
    target.addEventListener('x', {});
    target.addEventListener('x', () => seen.push('next'));
    target.dispatchEvent(new Event('x'));
    removeEventListener('error', listener);
    equal(seen[0], 'boo');
    equal(seen[2], 'next');
});

test('the global object is an event target', () => {
    let event;
    self.addEventListener('x', e => { event = e; }, { once: true });
    check(dispatchEvent(new Event('x')));
    equal(event.target, globalThis);
    equal(self, globalThis);
});

test('the methods of an event target take the global object, and no object for it', () => {
    const { addEventListener: add, removeEventListener: remove, dispatchEvent: dispatch } = EventTarget.prototype;
    let calls = 0;
    const listener = () => calls++;
    for (const self of [globalThis, undefined, null]) {
        add.call(self, 'x', listener);
        dispatch.call(self, new Event('x'));
        remove.call(self, 'x', listener);
    }
    dispatchEvent(new Event('x'));
    equal(calls, 3);
    equal(globalThis.addEventListener, add);
});

test('options that are a function are an object, not a true value', () => {
    const target = new EventTarget(), seen = [], options = Object.assign(() => {}, { once: true });
    target.addEventListener('x', () => seen.push('first'));
    target.addEventListener('x', () => seen.push('once'), options);
    target.dispatchEvent(new Event('x'));
    target.dispatchEvent(new Event('x'));
    same(seen, ['first', 'once', 'first']);
});

// ---- Errors.

test('reportError dispatches an ErrorEvent with the place of the error', () => {
    const error = new RangeError('far');
    let event;
    addEventListener('error', e => {
        e.preventDefault();
        event = e;
    }, { once: true });
    reportError(error);
    check(event instanceof ErrorEvent && event.isTrusted);
    equal(event.error, error);
    equal(event.message, 'RangeError: far');
    equal(event.filename, 'setTimeout handler'); // which is what these tests are
    check(event.lineno > 0 && event.colno > 0);
    throws(TypeError, () => reportError());
});

// Calls a function at every depth from the end of the stack up, until it does not throw.
function atEndOfStack(run) {
    (function deeper() {
        try {
            deeper();
        } catch {
            run();
        }
    })();
}

test('no stack for a listener ends neither reporting nor an event', () => {
    const target = new EventTarget(), event = new Event('x');
    let calls = 0;
    const listener = e => {
        e.preventDefault();
        calls++;
    };
    addEventListener('error', listener);
    target.addEventListener('x', () => calls++);
    atEndOfStack(() => reportError('deep'));
    atEndOfStack(() => target.dispatchEvent(event));
    calls = 0;
    reportError('after');
    target.dispatchEvent(event);
    removeEventListener('error', listener);
    equal(calls, 2);
});

test('onerror is called with the parts of its event, and true prevents the default', () => {
    const seen = [];
    globalThis.onerror = (...list) => {
        seen.push(list.length, list[0]);
        return true;
    };
    reportError('text');
    equal(typeof globalThis.onerror, 'function');
    globalThis.onerror = null;
    equal(globalThis.onerror, null);
    same(seen, [5, 'text']);
});

test('a rejection that nobody handles is an event, one that is handled is none', async () => {
    const seen = [];
    const listener = event => {
        event.preventDefault();
        seen.push(event.reason, event.promise instanceof Promise, event instanceof PromiseRejectionEvent);
    };
    addEventListener('unhandledrejection', listener);
    Promise.reject('nobody');
    Promise.reject('caught').catch(() => {});
    const soon = Promise.reject('in time');
    queueMicrotask(() => soon.catch(() => {}));
    (async () => { throw 'async'; })();
    await later(1);
    removeEventListener('unhandledrejection', listener);
    same(seen, ['nobody', true, true, 'async', true, true]);
});

test('DOMException has names, codes and a stack', () => {
    const error = new DOMException('message', 'AbortError');
    check(error instanceof Error && error instanceof DOMException);
    equal(error.code, 20);
    equal(error.code, DOMException.ABORT_ERR);
    equal(String(error), 'AbortError: message');
    check(error.stack.length > 0);
    equal(new DOMException().name, 'Error');
    equal(new DOMException('', 'toString').code, 0);
});

// ---- Signals.

test('a controller aborts its signal once', () => {
    const controller = new AbortController(), { signal } = controller, seen = [];
    signal.onabort = event => seen.push(event.isTrusted, event.target === signal);
    signal.addEventListener('abort', () => seen.push('listener'));
    signal.throwIfAborted();
    controller.abort('why');
    controller.abort('again');
    equal(signal.reason, 'why');
    same(seen, [true, true, 'listener']);
    equal(new AbortController().abort(), undefined);
    equal(AbortSignal.abort().reason.name, 'AbortError');
    try {
        signal.throwIfAborted();
    } catch (reason) {
        equal(reason, 'why');
    }
    throws(TypeError, () => new AbortSignal());
});

test('AbortSignal.timeout aborts with a TimeoutError, and not early', async () => {
    const begin = performance.now(), signal = AbortSignal.timeout(8);
    equal(signal.aborted, false);
    await new Promise(resolve => signal.addEventListener('abort', resolve));
    check(performance.now() - begin >= 8);
    equal(signal.reason.name, 'TimeoutError');
    for (const nonsense of [-1, NaN, Infinity, 2 ** 53, 'x'])
        throws(TypeError, () => AbortSignal.timeout(nonsense));
    throws(TypeError, () => AbortSignal.timeout());
    AbortSignal.timeout(Number.MAX_SAFE_INTEGER);
});

test('AbortSignal.any follows the first of its sources, through others', () => {
    const a = new AbortController(), b = new AbortController();
    const either = AbortSignal.any([a.signal, b.signal]), nested = AbortSignal.any([either]), seen = [];
    a.signal.addEventListener('abort', () => seen.push('a', either.aborted, nested.aborted));
    nested.addEventListener('abort', () => seen.push('nested'));
    a.abort(1);
    b.abort(2);
    equal(either.reason, 1);
    equal(nested.reason, 1);
    same(seen, ['a', true, true, 'nested']);
    equal(AbortSignal.any([b.signal, a.signal]).reason, 2);
    equal(AbortSignal.any([]).aborted, false);
    throws(TypeError, () => AbortSignal.any([1]));
    throws(TypeError, () => AbortSignal.any());
});

test('AbortSignal.any tells time and order, listened to or not', () => {
    const a = new AbortController(), b = new AbortController(), seen = [];
    const [first, second, silent] = [1, 2, 3].map(() => AbortSignal.any([a.signal, b.signal]));
    second.onabort = () => seen.push('second');
    first.onabort = () => seen.push('first');
    equal(silent.aborted, false);
    equal(silent.reason, undefined);
    b.abort('b');
    a.abort('a');
    same(seen, ['first', 'second']);
    equal(silent.reason, 'b');
    equal(AbortSignal.any([silent]).reason, 'b');
});

test('a listener that goes with a signal of any()', () => {
    const controller = new AbortController(), target = new EventTarget();
    let calls = 0;
    target.addEventListener('x', () => calls++, { signal: AbortSignal.any([controller.signal]) });
    target.dispatchEvent(new Event('x'));
    controller.abort();
    target.dispatchEvent(new Event('x'));
    equal(calls, 1);
});

// Memory in use, by the kernel's account.
const residentKiB = () => +/VmRSS:\s*(\d+)/.exec(readFile('/proc/self/status'))[1];

// AddressSanitizer keeps what was freed for a while.
const keepsWhatIsFreed = readFile('/proc/self/maps').includes('libasan');

// What is made a hundred thousand times would take some 60 MB if it was kept.
test('a signal keeps neither its dependents nor listeners that are removed', () => {
    const { signal } = new AbortController(), target = new EventTarget(), before = residentKiB();
    for (let i = 0; i < 100000; i++) {
        const listener = () => i;
        AbortSignal.any([signal]);
        target.addEventListener('x', listener, { signal });
        target.removeEventListener('x', listener);
    }
    check(keepsWhatIsFreed || residentKiB() - before < 40000, `it has grown by ${residentKiB() - before} KiB`);
});

// ---- Clones.

test('structuredClone copies what can be copied', () => {
    const date = new Date(5), pattern = /x/gi, buffer = new Uint8Array([1, 2, 3]).buffer;
    const value = {
        number: 1, text: 'x', nothing: null, missing: undefined, big: 5n, list: [1, , 3], date, pattern, buffer,
        bytes: new Uint8Array(buffer, 1), view: new DataView(buffer, 1, 1), map: new Map([[{ key: 1 }, date]]), set: new Set([1, 'a']),
        boxed: [Object(1), Object('s'), Object(true), Object(1n)], error: new RangeError('far', { cause: 'near' }),
        get computed() { return 'got'; },
    };
    value.itself = value;
    const copy = structuredClone(value);
    equal(copy.itself, copy);
    check(!(1 in copy.list) && copy.list.length === 3);
    check(copy.date !== date && copy.date.getTime() === 5);
    equal(String(copy.pattern), '/x/gi');
    equal(copy.bytes.buffer, copy.buffer);
    equal(copy.bytes[0], 2);
    equal(copy.view.getUint8(0), 2);
    equal([...copy.map.values()][0], copy.date);
    same([...copy.set], [1, 'a']);
    same(copy.boxed.map(x => typeof x), ['object', 'object', 'object', 'object']);
    check(copy.error instanceof RangeError && copy.error.message === 'far' && copy.error.cause === 'near');
    equal(copy.computed, 'got');
    equal(structuredClone(new DOMException('m', 'DataError')).name, 'DataError');
    equal(Object.getPrototypeOf(structuredClone(new class A { x = 1; }())), Object.prototype);
});

test('structuredClone refuses what cannot be copied', () => {
    for (const value of [() => {}, Symbol(), new WeakMap(), new WeakSet(), new WeakRef({}), Promise.resolve(), Object(Symbol()),
        new Proxy({}, {}), new EventTarget(), new Event('x'), { deep: [() => {}] }])
        throws('DataCloneError', () => structuredClone(value));
    throws(TypeError, () => structuredClone());
    equal(throws(RangeError, () => structuredClone({ get x() { throw new RangeError('getter'); } })).message, 'getter');
});

test('structuredClone moves what is transferred', () => {
    const buffer = new Uint8Array([1, 2]).buffer;
    const copy = structuredClone({ buffer }, { transfer: [buffer] });
    equal(copy.buffer.byteLength, 2);
    equal(buffer.byteLength, 0);
    check(buffer.detached);
    throws('DataCloneError', () => structuredClone(1, { transfer: [buffer] }));
    const other = new ArrayBuffer(1);
    throws('DataCloneError', () => structuredClone(1, { transfer: [other, other] }));
    throws('DataCloneError', () => structuredClone(1, { transfer: [{}] }));
    throws('DataCloneError', () => structuredClone(() => {}, { transfer: [other] }));
    equal(other.byteLength, 1);
    const resizable = structuredClone(new ArrayBuffer(2, { maxByteLength: 9 }));
    equal(resizable.maxByteLength, 9);
});

test('structuredClone refuses shared memory, in views too', () => {
    const shared = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true }).buffer;
    equal(Object.prototype.toString.call(shared), '[object SharedArrayBuffer]');
    for (const value of [shared, { shared }, new Uint8Array(shared), new DataView(shared)])
        throws('DataCloneError', () => structuredClone(value));
    throws('DataCloneError', () => structuredClone(1, { transfer: [shared] }));
});

test('structuredClone keeps whether a view follows the length of its buffer', () => {
    for (const maxByteLength of [16, 64]) {
        const buffer = new ArrayBuffer(16, { maxByteLength }), bytes = new Uint8Array(buffer);
        bytes.forEach((_, i) => { bytes[i] = i + 1; });
        const views = [Uint8Array, Int32Array, Float64Array, DataView].flatMap(kind =>
            [new kind(buffer, 8), new kind(buffer, 8, 8 / (kind.BYTES_PER_ELEMENT ?? 1)), new kind(buffer, 0), new kind(buffer, 16),
                new kind(buffer, 0, 8 / (kind.BYTES_PER_ELEMENT ?? 1))]);
        const copy = structuredClone({ buffer, views });
        same([...bytes], [...new Uint8Array(copy.buffer)]);
        same([...bytes], Array.from({ length: 16 }, (_, i) => i + 1), 'the original');
        const lengths = list => list.map(view => { try { return view.byteLength; } catch { return 'outside'; } });
        for (const length of [8, 16, 12, 16]) {
            buffer.resize(length);
            copy.buffer.resize(length);
            same(lengths(copy.views), lengths(views), `at ${length} of ${maxByteLength}`);
        }
    }
});

test('structuredClone transfers the bytes that a getter has written meanwhile', () => {
    const buffer = new ArrayBuffer(4, { maxByteLength: 8 }), view = new Uint8Array(buffer);
    const copy = structuredClone({ view, get x() { buffer.resize(6); view[0] = 7; view[5] = 9; return 1; } }, { transfer: [buffer] });
    same([...copy.view], [7, 0, 0, 0, 0, 9]);
    check(buffer.detached);
    const second = new ArrayBuffer(1);
    throws('DataCloneError', () => structuredClone({ get x() { second.transfer(); return 1; } }, { transfer: [second] }));
});

test('structuredClone reads properties in order, and only those there are', () => {
    const seen = [], note = name => ({ get x() { seen.push(name); return 1; } });
    const value = { a: note('a'), get b() { seen.push('b'); delete value.d; value.e.x = 2; value.f = 1; return note('c'); }, d: 4,
        e: { x: 1 }, toString: 5, ['__proto__']: 6 };
    const copy = structuredClone(value);
    same(seen, ['a', 'b', 'c']);
    same(Object.keys(copy), ['a', 'b', 'e', 'toString', '__proto__']);
    equal(copy.e.x, 2);
    equal(Object.getPrototypeOf(copy), Object.prototype);
    const array = [{ get x() { delete array[1]; array[2] = 'later'; array.named = 1; return 1; } }, 1, 2, 3];
    const items = structuredClone(array);
    check(!(1 in items) && items[2] === 'later' && items.length === 4 && !('named' in items));
    const named = Object.assign([1, , 3], { extra: { y: 1 } });
    const namedCopy = structuredClone(named);
    check(!(1 in namedCopy) && namedCopy.extra.y === 1 && namedCopy.extra !== named.extra && namedCopy.length === 3);
    equal(structuredClone(new Array(100000)).length, 100000);
    same(structuredClone(new class extends Array {}(1, 2, 3)), [1, 2, 3]);
});

test('structuredClone takes an object for what it is, whatever its prototype', () => {
    for (const prototype of [Promise.prototype, Map.prototype, Date.prototype, Event.prototype, Error.prototype, Array.prototype])
        same(structuredClone(Object.assign(Object.create(prototype), { a: 1 })), { a: 1 });
    for (const [value, kind] of [[new Map([[1, 2]]), Map], [new Set([1]), Set], [new Date(3), Date], [/x/, RegExp], [[1], Array],
        [new Uint8Array(2), Uint8Array], [new ArrayBuffer(2), ArrayBuffer], [new DataView(new ArrayBuffer(2)), DataView],
        [new Error('x'), Error], [Object(1), Number], [Object(2n), BigInt]]) {
        Object.setPrototypeOf(value, null);
        equal(Object.getPrototypeOf(structuredClone({ value }).value), kind.prototype);
    }
    for (const value of [new Proxy([], {}), new Event('x'), new AbortController(), new WeakMap()]) {
        Object.setPrototypeOf(value, Object.prototype);
        throws('DataCloneError', () => structuredClone([value]));
    }
});

test('structuredClone copies a hundred thousand objects', () => {
    const many = Array.from({ length: 100000 }, (_, id) => ({ id, list: [id], at: new Date(id) }));
    const copy = structuredClone(new Map([['many', many]])).get('many');
    equal(copy.length, many.length);
    check(copy.every((item, i) => item !== many[i] && item.id === i && item.list[0] === i && item.at.getTime() === i));
});

test('the list of what is transferred is a list of objects', () => {
    for (const transfer of ['', 'x', 5, null, true, {}, [1], [null], ['x']])
        throws(TypeError, () => structuredClone(1, { transfer }));
    equal(structuredClone(1, { transfer: new Set() }), 1);
});

test('a DOMException is an error, and its class does not inherit from Error', () => {
    const error = new DOMException('m', 'DataError');
    check(Error.isError(error) && error instanceof Error && error.name === 'DataError' && error.message === 'm');
    equal(Object.getPrototypeOf(DOMException), Function.prototype);
    check(!Object.hasOwn(error, 'message') && new class extends DOMException {}('x').message === 'x');
});

test('members of an interface refuse other objects, whatever the arguments', () => {
    const { addEventListener, removeEventListener, dispatchEvent } = EventTarget.prototype;
    for (const self of [{}, 5, 'x', Object.create(EventTarget.prototype)]) {
        throws(TypeError, () => addEventListener.call(self, 'x', null));
        throws(TypeError, () => removeEventListener.call(self, 'x', null));
        throws(TypeError, () => dispatchEvent.call(self, new Event('x')));
        const setter = (object, name) => Object.getOwnPropertyDescriptor(object, name);
        for (const [object, name] of [[Event.prototype, 'cancelBubble'], [Event.prototype, 'returnValue'], [AbortSignal.prototype, 'onabort']])
            for (const value of [true, false, null]) {
                throws(TypeError, () => setter(object, name).set.call(self, value));
                throws(TypeError, () => setter(object, name).get.call(self));
            }
    }
});

// ---- The rest.

test('performance counts up from its origin', () => {
    const first = performance.now(), second = performance.now();
    check(first > 0 && second >= first);
    check(Math.abs(performance.timeOrigin + second - Date.now()) < 5000);
    equal(performance.toJSON().timeOrigin, performance.timeOrigin);
    check(performance instanceof EventTarget);
    throws(TypeError, () => performance.now.call({}));
    throws(TypeError, () => (0, performance.now)());
    throws(TypeError, () => new Performance());
});

test('readFile reads text, and says what it cannot read', () => {
    check(readFile(args[0]).startsWith('// SPDX'));
    check(throws(Error, () => readFile('/nowhere/at/all')).message.includes('/nowhere/at/all'));
    throws(Error, () => readFile('/'));
    throws(Error, () => readFile('a\0b'));
    throws(TypeError, () => readFile());
});

test('WebAssembly compiles while the loop waits for nothing else', async () => {
    const bytes = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 127, 3, 2, 1, 0, 7, 5, 1, 1, 102, 0, 0, 10, 6, 1, 4, 0, 65, 42, 11]);
    const { instance } = await WebAssembly.instantiate(bytes);
    equal(instance.exports.f(), 42);
    check(await WebAssembly.compile(bytes) instanceof WebAssembly.Module);
    equal(await WebAssembly.compile(new Uint8Array(1)).catch(error => error.name), 'CompileError');
});

// ---- Web IDL.

test('functions of the global object are no constructors, and belong to it', () => {
    for (const name of ['setTimeout', 'setInterval', 'clearTimeout', 'clearInterval', 'queueMicrotask', 'structuredClone',
        'reportError', 'setImmediate', 'clearImmediate', 'addEventListener', 'removeEventListener', 'dispatchEvent']) {
        const f = globalThis[name];
        equal(f.name, name);
        check(!('prototype' in f), `${name} has a prototype`);
        throws(TypeError, () => new f(() => {}));
        throws(TypeError, () => f.call({}, () => {}, () => {}));
    }
    for (const self of [undefined, null, globalThis])
        clearTimeout.call(self, setTimeout.call(self, () => {}));
    equal(addEventListener.length, 2);
});

test('what has slots that no clone could have is refused', () => {
    const values = [function* () {}(), async function* () {}(), [].values(), new Map().entries(), new Set().values(),
        ''[Symbol.iterator](), 'x'.matchAll(/x/g), [].values().map(x => x), new Intl.NumberFormat(), new Intl.Locale('en'),
        new Intl.DateTimeFormat(), new WeakMap(), new WeakSet(), new WeakRef({}), Promise.resolve(), new AbortController(),
        new FinalizationRegistry(() => {}), Object(Symbol()), new Proxy({}, {}), globalThis, performance];
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    for (const value of [...values, proxy])
        throws('DataCloneError', () => structuredClone({ value }));
    class Mine extends Iterator {}
    same(structuredClone(Object.assign(new Mine(), { a: 1 })), { a: 1 });
    same(structuredClone(Object.assign(Object.create(new Proxy({}, {})), { a: 1 })), { a: 1 });
});
