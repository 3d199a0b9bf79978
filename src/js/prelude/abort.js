// SPDX-License-Identifier: MIT
// AbortController and AbortSignal, after the DOM standard.
(function (native, shared) {
    'use strict';

    const { TypeError, apply } = shared.builtins;
    const { list, concat, each, findIndex, from, itemsOf } = shared.lists;
    const { DOMException, Set } = shared;
    const { trunc } = Math, { MAX_SAFE_INTEGER } = Number, { iterator } = Symbol;
    const abortError = () => new DOMException('The operation was aborted', 'AbortError');
    let allowed = false; // signals are not made by `new`

    class AbortSignal extends shared.EventTarget {
        #aborted = false;
        #reason = undefined;
        #algorithms = new Set();
        #sources = list(); // signals that this one depends on, none of which depends on others
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
            const delay = trunc(+milliseconds);
            if (!(delay >= 0 && delay <= MAX_SAFE_INTEGER))
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
            if (typeof signals !== 'object' || signals === null || typeof signals[iterator] !== 'function')
                throw new TypeError('AbortSignal.any: the argument must be a list of signals');
            const given = from(signals);
            if (findIndex(given, source => !shared.isAbortSignal(source)) >= 0)
                throw new TypeError('AbortSignal.any: not a signal');
            const result = AbortSignal.#make();
            result.#dependent = true;
            const aborted = findIndex(given, source => source.#aborted);
            if (aborted >= 0) {
                result.#aborted = true;
                result.#reason = given[aborted].#reason;
                return result;
            }
            const sources = new Set();
            each(given, source => each(source.#dependent ? source.#sources : list(source), one => sources.add(one)));
            result.#sources = itemsOf(sources);
            each(result.#sources, source => source.#dependents.add(result));
            return result;
        }

        #abort(reason) {
            if (this.#aborted)
                return;
            const affected = list(this);
            this.#dependents.forEach(signal => {
                if (!signal.#aborted)
                    affected[affected.length] = signal;
            });
            each(affected, signal => {
                signal.#aborted = true;
                signal.#reason = reason;
            });
            each(affected, signal => signal.#finish());
        }

        #finish() {
            const algorithms = this.#algorithms;
            this.#algorithms = new Set();
            algorithms.forEach(algorithm => algorithm());
            shared.dispatchTrusted(this, new shared.Event('abort'));
        }

        // A time-out that somebody listens to is worth waiting for.
        #updateAlive() {
            let listened = this.#listeners > 0;
            this.#dependents.forEach(signal => { listened ||= signal.#listeners > 0; });
            this.#keepAlive?.(listened);
        }

        static {
            shared.isAbortSignal = value => typeof value === 'object' && value !== null && #aborted in value;
            shared.isAborted = signal => signal.#aborted;
            shared.onAbort = (signal, algorithm) => { signal.#algorithms.add(algorithm); };
            shared.abortSignal = (signal, reason) => signal.#abort(reason);
            shared.makeSignal = () => AbortSignal.#make();
            shared.listenersChanged = function (target, type, count) {
                if (type !== 'abort' || !shared.isAbortSignal(target))
                    return;
                target.#listeners = count;
                each(concat(list(target), target.#sources), signal => signal.#updateAlive());
            };
        }
    }
    shared.defineHandler(AbortSignal.prototype, 'onabort', self => self, (handler, event) => {
        apply(handler, shared.eventState(event).currentTarget, list(event));
    });
    shared.finishClass(AbortSignal);

    class AbortController {
        #signal = shared.makeSignal();

        get signal() { return this.#signal; }
        abort(reason = undefined) { shared.abortSignal(this.#signal, reason === undefined ? abortError() : reason); }

        static {
            shared.isAbortController = value => #signal in value;
        }
    }
    shared.finishClass(AbortController);
})
