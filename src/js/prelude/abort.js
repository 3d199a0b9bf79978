// SPDX-License-Identifier: MIT
// AbortController and AbortSignal, after the DOM standard.
'use strict';
{
    const { native, shared } = this;

    const { TypeError, apply } = shared.builtins;
    const { list, concat, each, findIndex, from, itemsOf, sortBy } = shared.lists;
    const { DOMException, Set } = shared;
    const { trunc } = Math, { MAX_SAFE_INTEGER } = Number, { iterator } = Symbol;
    const { uncurry } = shared.builtins, { FinalizationRegistry, WeakRef } = globalThis;
    const deref = uncurry(WeakRef.prototype.deref), register = uncurry(FinalizationRegistry.prototype.register);
    const awaited = new Set(); // time-outs that have something to do
    let timersOfLost = null; // cancels the timers of time-outs that nobody has any more
    const abortError = () => new DOMException('The operation was aborted', 'AbortError');
    let allowed = false; // signals are not made by `new`
    let aborts = 0, dependents = 0; // how many were aborted, and made by any()

    // Signals know those of their dependents that somebody waits for, and so do not keep the others: these find out when
    // they are asked.
    class AbortSignal extends shared.EventTarget {
        #order = 0; // in which it was aborted; 0: it was not
        #reason = undefined;
        #algorithms = new Set();
        #number = 0; // of one made by any(), in the order of their making
        #sources = list(); // and what it depends on until it is aborted: signals that depend on no others
        #dependents = new Set();
        #timer = null; // of timeout()
        #listeners = 0; // for 'abort'
        #listened = 0; // how many of its dependents have such listeners

        constructor() {
            if (!allowed)
                throw new TypeError('Illegal constructor');
            super();
        }

        get aborted() { return this.#isAborted(); }
        get reason() { return this.#isAborted() ? this.#reason : undefined; }
        throwIfAborted() {
            if (this.#isAborted())
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
            signal.#settle(++aborts, reason === undefined ? abortError() : reason);
            return signal;
        }

        static timeout(milliseconds) {
            shared.needArguments(arguments.length, 1, 'AbortSignal.timeout');
            const delay = trunc(+milliseconds);
            if (!(delay >= 0 && delay <= MAX_SAFE_INTEGER))
                throw new TypeError('AbortSignal.timeout: the delay must be a whole number from 0 to 2^53 - 1');
            const signal = AbortSignal.#make(), weak = new WeakRef(signal);
            signal.#timer = shared.callAfter(delay, () => deref(weak)?.#expire());
            timersOfLost ??= new FinalizationRegistry(timer => timer.cancel());
            register(timersOfLost, signal, signal.#timer);
            return signal;
        }

        #expire() {
            awaited.delete(this);
            this.#timer = null;
            this.#abort(new DOMException('The operation timed out', 'TimeoutError'));
        }

        static any(signals) {
            shared.needArguments(arguments.length, 1, 'AbortSignal.any');
            if (typeof signals !== 'object' || signals === null || typeof signals[iterator] !== 'function')
                throw new TypeError('AbortSignal.any: the argument must be a list of signals');
            const given = from(signals);
            if (findIndex(given, source => !shared.isAbortSignal(source)) >= 0)
                throw new TypeError('AbortSignal.any: not a signal');
            const result = AbortSignal.#make();
            result.#number = ++dependents;
            const aborted = findIndex(given, source => source.#isAborted());
            if (aborted >= 0) {
                result.#settle(++aborts, given[aborted].#reason);
                return result;
            }
            const sources = new Set();
            each(given, source => each(source.#number > 0 ? source.#sources : list(source), one => sources.add(one)));
            result.#sources = itemsOf(sources);
            return result;
        }

        // One that nobody waits for has not been told; it was aborted with the first of its sources.
        #isAborted() {
            let first = null;
            each(this.#sources, source => {
                if (source.#order > 0 && (first === null || source.#order < first.#order))
                    first = source;
            });
            if (first !== null)
                this.#settle(first.#order, first.#reason);
            return this.#order > 0;
        }

        #settle(order, reason) {
            const listened = this.#listeners > 0 ? 1 : 0;
            this.#order = order;
            this.#reason = reason;
            each(this.#sources, source => {
                source.#dependents.delete(this);
                source.#listened -= listened;
                source.#updateAlive();
            });
            this.#sources = list();
        }

        #abort(reason) {
            if (this.#order > 0)
                return;
            const affected = concat(list(this), sortBy(itemsOf(this.#dependents), signal => signal.#number));
            const order = ++aborts;
            each(affected, signal => signal.#settle(order, reason));
            each(affected, signal => signal.#finish());
        }

        #finish() {
            const algorithms = this.#algorithms;
            this.#algorithms = new Set();
            algorithms.forEach(algorithm => algorithm());
            shared.dispatchTrusted(this, new shared.Event('abort'));
        }

        // A time-out with a listener keeps the program alive. One that has something to do when it comes is held until then, also
        // if the script has lost it.
        #updateAlive() {
            if (this.#timer === null)
                return;
            this.#timer.keep(this.#listeners > 0 || this.#listened > 0);
            if (this.#isAwaited() || this.#dependents.size > 0)
                awaited.add(this);
            else
                awaited.delete(this);
        }

        #isAwaited() { return this.#listeners > 0 || this.#algorithms.size > 0; }

        #updateSources() {
            const isAwaited = this.#isAwaited();
            this.#updateAlive();
            each(this.#sources, source => {
                isAwaited ? source.#dependents.add(this) : source.#dependents.delete(this);
                source.#updateAlive();
            });
        }

        #setListeners(count) {
            const change = (count > 0 ? 1 : 0) - (this.#listeners > 0 ? 1 : 0);
            this.#listeners = count;
            each(this.#sources, source => { source.#listened += change; });
            this.#updateSources();
        }

        static {
            shared.isAbortSignal = value => typeof value === 'object' && value !== null && #order in value;
            shared.isAborted = signal => signal.#isAborted();
            // Returns a function that takes it back.
            shared.onAbort = function (signal, algorithm) {
                signal.#algorithms.add(algorithm);
                signal.#updateSources();
                return () => {
                    signal.#algorithms.delete(algorithm);
                    signal.#updateSources();
                };
            };
            shared.abortSignal = (signal, reason) => signal.#abort(reason);
            shared.makeSignal = () => AbortSignal.#make();
            shared.listenersChanged = function (target, type, count) {
                if (type === 'abort' && shared.isAbortSignal(target) && !target.#isAborted())
                    target.#setListeners(count);
            };
        }
    }
    function toSignal(self) {
        if (!shared.isAbortSignal(self))
            throw new TypeError('onabort belongs to an AbortSignal');
        return self;
    }
    shared.defineHandler(AbortSignal.prototype, 'onabort', toSignal, (handler, event) => {
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
}
