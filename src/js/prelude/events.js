// SPDX-License-Identifier: MIT
// Event and EventTarget, after the DOM standard. There is no tree here: an event has one target.
(function (native, shared) {
    'use strict';

    const { toDictionary, toDOMString, needArguments } = shared;
    const phases = { NONE: 0, CAPTURING_PHASE: 1, AT_TARGET: 2, BUBBLING_PHASE: 3 };

    function isTrusted() {
        return shared.eventState(this).trusted;
    }
    const trustedProperty = { get: isTrusted, enumerable: true, configurable: false };

    class Event {
        // One object, so that dispatching has one private field to look at.
        #state;

        constructor(type, init = undefined) {
            needArguments(arguments.length, 1, 'Event');
            type = toDOMString(type);
            const { bubbles, cancelable, composed } = toDictionary(init, 'Event: the second argument');
            this.#state = {
                type, bubbles: !!bubbles, cancelable: !!cancelable, composed: !!composed,
                trusted: false, target: null, currentTarget: null, phase: phases.NONE, timeStamp: native.now(),
                initialized: true, dispatching: false, canceled: false, passive: false,
                stop: false, stopImmediately: false,
            };
            Object.defineProperty(this, 'isTrusted', trustedProperty);
        }

        get type() { return this.#state.type; }
        get target() { return this.#state.target; }
        get srcElement() { return this.#state.target; }
        get currentTarget() { return this.#state.currentTarget; }
        composedPath() { return this.#state.currentTarget ? [this.#state.currentTarget] : []; }
        get eventPhase() { return this.#state.phase; }
        stopPropagation() { this.#state.stop = true; }
        get cancelBubble() { return this.#state.stop; }
        set cancelBubble(value) { if (value) this.#state.stop = true; }
        stopImmediatePropagation() { this.#state.stop = this.#state.stopImmediately = true; }
        get bubbles() { return this.#state.bubbles; }
        get cancelable() { return this.#state.cancelable; }
        get returnValue() { return !this.#state.canceled; }
        set returnValue(value) { if (!value) this.preventDefault(); }
        preventDefault() { if (this.#state.cancelable && !this.#state.passive) this.#state.canceled = true; }
        get defaultPrevented() { return this.#state.canceled; }
        get composed() { return this.#state.composed; }
        get timeStamp() { return this.#state.timeStamp; }

        initEvent(type, bubbles = false, cancelable = false) {
            needArguments(arguments.length, 1, 'initEvent');
            if (this.#state.dispatching)
                return;
            Object.assign(this.#state, {
                type: toDOMString(type), bubbles: !!bubbles, cancelable: !!cancelable, initialized: true,
                canceled: false, stop: false, stopImmediately: false, trusted: false, target: null,
            });
        }

        static {
            shared.isEvent = value => typeof value === 'object' && value !== null && #state in value;
            shared.eventState = event => event.#state;
        }
    }
    shared.defineConstants(Event, phases);
    shared.finishClass(Event);

    class CustomEvent extends Event {
        #detail;

        constructor(type, init = undefined) {
            super(...arguments);
            this.#detail = toDictionary(init, 'CustomEvent: the second argument').detail ?? null;
        }

        get detail() { return this.#detail; }

        initCustomEvent(type, bubbles = false, cancelable = false, detail = null) {
            needArguments(arguments.length, 1, 'initCustomEvent');
            if (this.eventPhase === phases.NONE)
                this.#detail = detail;
            this.initEvent(type, bubbles, cancelable);
        }
    }
    shared.finishClass(CustomEvent);

    function flatten(options) {
        return typeof options === 'object' && options !== null ? !!options.capture : !!options;
    }

    // What is added has to be told apart by callback and phase only.
    function find(listeners, callback, capture) {
        return listeners.findIndex(l => l.callback === callback && l.capture === capture);
    }

    function checkCallback(callback) {
        if (callback !== null && callback !== undefined && typeof callback !== 'object' && typeof callback !== 'function')
            throw new TypeError('The listener must be a function or an object');
    }

    function callListener(listener, event, thisValue) {
        const { callback } = listener;
        if (typeof callback === 'function')
            return shared.apply(callback, thisValue, [event]);
        const { handleEvent } = callback;
        if (typeof handleEvent !== 'function')
            throw new TypeError('handleEvent is not a function');
        return shared.apply(handleEvent, callback, [event]);
    }

    class EventTarget {
        #listeners = new Map(); // by type, in the order of their making
        #self = this; // what events see as their target: of the global one, the global object

        addEventListener(type, callback, options = undefined) {
            needArguments(arguments.length, 2, 'addEventListener');
            type = toDOMString(type);
            checkCallback(callback);
            const capture = flatten(options);
            const { once = false, passive = false, signal } = typeof options === 'object' && options !== null ? options : {};
            if (signal !== undefined && !shared.isAbortSignal(signal))
                throw new TypeError('signal must be an AbortSignal');
            if (!callback || signal?.aborted)
                return;
            const listeners = this.#listeners.get(type) ?? [];
            this.#listeners.set(type, listeners);
            if (find(listeners, callback, capture) >= 0)
                return;
            const listener = { callback, capture, once: !!once, passive: !!passive, removed: false };
            listeners.push(listener);
            if (signal)
                shared.onAbort(signal, () => this.#remove(type, listener));
            shared.listenersChanged(this.#self, type, listeners.length);
        }

        removeEventListener(type, callback, options = undefined) {
            needArguments(arguments.length, 2, 'removeEventListener');
            type = toDOMString(type);
            checkCallback(callback);
            const listeners = this.#listeners.get(type) ?? [];
            const index = find(listeners, callback, flatten(options));
            if (index >= 0)
                this.#remove(type, listeners[index]);
        }

        #remove(type, listener) {
            const listeners = this.#listeners.get(type) ?? [];
            const index = listeners.indexOf(listener);
            if (index < 0)
                return;
            listener.removed = true;
            listeners.splice(index, 1);
            if (listeners.length === 0)
                this.#listeners.delete(type);
            shared.listenersChanged(this.#self, type, listeners.length);
        }

        dispatchEvent(event) {
            needArguments(arguments.length, 1, 'dispatchEvent');
            if (!shared.isEvent(event))
                throw new TypeError('dispatchEvent: the argument must be an Event');
            const state = shared.eventState(event);
            if (state.dispatching || !state.initialized)
                throw new shared.DOMException('The event is already being dispatched', 'InvalidStateError');
            state.trusted = false;
            return this.#dispatch(event, state);
        }

        #dispatch(event, state) {
            state.dispatching = true;
            state.target = state.currentTarget = this.#self;
            state.phase = phases.AT_TARGET;
            const listeners = (this.#listeners.get(state.type) ?? []).slice();
            for (const capture of [true, false])
                if (!state.stop)
                    this.#invoke(event, state, listeners.filter(listener => listener.capture === capture));
            state.phase = phases.NONE;
            state.currentTarget = null;
            state.dispatching = state.stop = state.stopImmediately = false;
            return !state.canceled;
        }

        #invoke(event, state, listeners) {
            for (const listener of listeners) {
                if (listener.removed)
                    continue;
                if (listener.once)
                    this.#remove(state.type, listener);
                state.passive = listener.passive;
                try {
                    callListener(listener, event, this.#self);
                } catch (error) {
                    shared.report(error);
                }
                state.passive = false;
                if (state.stopImmediately)
                    return;
            }
        }

        static {
            shared.isEventTarget = value => #listeners in value;
            shared.dispatchTrusted = function (target, event) {
                const state = shared.eventState(event);
                state.trusted = true;
                return target.#dispatch(event, state);
            };
            // The global object is an event target, though its prototype cannot be ours.
            shared.makeGlobalTarget = function () {
                const target = new EventTarget();
                target.#self = globalThis;
                return target;
            };
        }
    }
    shared.finishClass(EventTarget);
    shared.listenersChanged = () => {};

    // An attribute such as onabort: a listener that can be exchanged, and that keeps its place.
    shared.defineHandler = function (object, name, targetOf, call) {
        const type = name.slice(2);
        const handlers = new WeakMap();
        Object.defineProperty(object, name, {
            get() { return handlers.get(targetOf(this))?.value ?? null; },
            set(value) {
                const target = targetOf(this);
                value = typeof value === 'function' || (typeof value === 'object' && value) ? value : null;
                let handler = handlers.get(target);
                if (handler?.value && !value)
                    target.removeEventListener(type, handler.listener);
                if (!handler)
                    handlers.set(target, handler = {});
                const added = !handler.value && value;
                handler.value = value;
                handler.listener ??= event => typeof handler.value === 'function' && call(handler.value, event);
                if (added)
                    target.addEventListener(type, handler.listener);
            },
            enumerable: true,
            configurable: true,
        });
    };

    shared.Event = Event;
    shared.EventTarget = EventTarget;
})
