// SPDX-License-Identifier: MIT
// AbortController and AbortSignal, after the DOM standard.
(function (native, shared) {
    'use strict';

    const { DOMException } = shared;
    const abortError = () => new DOMException('The operation was aborted', 'AbortError');
    let allowed = false; // signals are not made by `new`

    class AbortSignal extends shared.EventTarget {
        #aborted = false;
        #reason = undefined;
        #algorithms = new Set();
        #sources = []; // signals that this one depends on, none of which depends on others
        #dependents = new Set(); // and those that depend on this one
        #dependent = false; // made by any()
        #keepAlive = null; // of timeout(): whether its timer keeps the program alive
        #listeners = 0; // for 'abort'

        constructor() {
            if (!allowed)
                throw new TypeError('Illegal constructor');
            super();
        }

        get aborted() { return this.#aborted; }
        get reason() { return this.#reason; }
        throwIfAborted() {
            if (this.#aborted)
                throw this.#reason;
        }

        static #make() {
            allowed = true;
            try {
                return new AbortSignal();
            } finally {
                allowed = false;
            }
        }

        static abort(reason = undefined) {
            const signal = AbortSignal.#make();
            signal.#aborted = true;
            signal.#reason = reason === undefined ? abortError() : reason;
            return signal;
        }

        static timeout(milliseconds) {
            shared.needArguments(arguments.length, 1, 'AbortSignal.timeout');
            const delay = Math.trunc(+milliseconds);
            if (!(delay >= 0 && delay <= Number.MAX_SAFE_INTEGER))
                throw new TypeError('AbortSignal.timeout: the delay must be a whole number from 0 to 2^53 - 1');
            const signal = AbortSignal.#make();
            const expire = () => {
                signal.#keepAlive = null;
                signal.#abort(new DOMException('The operation timed out', 'TimeoutError'));
            };
            signal.#keepAlive = shared.callAfter(delay, expire);
            return signal;
        }

        static any(signals) {
            shared.needArguments(arguments.length, 1, 'AbortSignal.any');
            if (typeof signals !== 'object' || signals === null || typeof signals[Symbol.iterator] !== 'function')
                throw new TypeError('AbortSignal.any: the argument must be a list of signals');
            const list = [...signals];
            for (const source of list)
                if (!shared.isAbortSignal(source))
                    throw new TypeError('AbortSignal.any: not a signal');
            const result = AbortSignal.#make();
            result.#dependent = true;
            const aborted = list.find(source => source.#aborted);
            if (aborted) {
                result.#aborted = true;
                result.#reason = aborted.#reason;
                return result;
            }
            const sources = new Set(list.flatMap(source => source.#dependent ? source.#sources : [source]));
            result.#sources = [...sources];
            for (const source of result.#sources)
                source.#dependents.add(result);
            return result;
        }

        #abort(reason) {
            if (this.#aborted)
                return;
            const affected = [this];
            for (const signal of this.#dependents)
                if (!signal.#aborted)
                    affected.push(signal);
            for (const signal of affected) {
                signal.#aborted = true;
                signal.#reason = reason;
            }
            for (const signal of affected)
                signal.#finish();
        }

        #finish() {
            const algorithms = this.#algorithms;
            this.#algorithms = new Set();
            for (const algorithm of algorithms)
                algorithm();
            shared.dispatchTrusted(this, new shared.Event('abort'));
        }

        // A time-out that somebody listens to is worth waiting for.
        #updateAlive() {
            let listened = this.#listeners > 0;
            for (const signal of this.#dependents)
                listened ||= signal.#listeners > 0;
            this.#keepAlive?.(listened);
        }

        static {
            shared.isAbortSignal = value => typeof value === 'object' && value !== null && #aborted in value;
            shared.onAbort = (signal, algorithm) => { signal.#algorithms.add(algorithm); };
            shared.abortSignal = (signal, reason) => signal.#abort(reason);
            shared.makeSignal = () => AbortSignal.#make();
            shared.listenersChanged = function (target, type, count) {
                if (type !== 'abort' || !shared.isAbortSignal(target))
                    return;
                target.#listeners = count;
                for (const signal of [target, ...target.#sources])
                    signal.#updateAlive();
            };
        }
    }
    shared.defineHandler(AbortSignal.prototype, 'onabort', self => self, (handler, event) => {
        shared.apply(handler, event.currentTarget, [event]);
    });
    shared.finishClass(AbortSignal);

    class AbortController {
        #signal = shared.makeSignal();

        get signal() { return this.#signal; }
        abort(reason = undefined) { shared.abortSignal(this.#signal, reason === undefined ? abortError() : reason); }
    }
    shared.finishClass(AbortController);
})
