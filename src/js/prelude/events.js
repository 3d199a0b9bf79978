// SPDX-License-Identifier: MIT
// Event and EventTarget, after the DOM standard. There is no tree here: an event has one target.
'use strict';
{
    const { native, shared } = this;

    const { TypeError, apply, globalThis } = shared.builtins;
    const { list, copy, filter, findIndex, removeAt } = shared.lists;
    const { Map, WeakMap, toDictionary, toDOMString, needArguments, defineGetter } = shared;
    const phases = { NONE: 0, CAPTURING_PHASE: 1, AT_TARGET: 2, BUBBLING_PHASE: 3 };

    function isTrusted() {
        return shared.eventState(this).trusted;
    }

    class Event {
        // One object, so that dispatching has one private field to look at.
        #state;

        constructor(type, init = undefined) {
            needArguments(arguments.length, 1, 'Event');
            type = toDOMString(type);
            const { bubbles, cancelable, composed } = toDictionary(init, 'Event: the second argument');
            this.#state = {
                __proto__: null, type, bubbles: !!bubbles, cancelable: !!cancelable, composed: !!composed,
                trusted: false, target: null, currentTarget: null, phase: phases.NONE, timeStamp: native.now(),
                initialized: true, dispatching: false, canceled: false, passive: false,
                stop: false, stopImmediately: false,
            };
            defineGetter(this, 'isTrusted', isTrusted, undefined, false);
        }

        get type() { return this.#state.type; }
        get target() { return this.#state.target; }
        get srcElement() { return this.#state.target; }
        get currentTarget() { return this.#state.currentTarget; }
        composedPath() { return this.#state.currentTarget ? [this.#state.currentTarget] : []; }
        get eventPhase() { return this.#state.phase; }
        stopPropagation() { this.#state.stop = true; }
        get cancelBubble() { return this.#state.stop; }
        set cancelBubble(value) { this.#state.stop ||= !!value; }
        stopImmediatePropagation() { this.#state.stop = this.#state.stopImmediately = true; }
        get bubbles() { return this.#state.bubbles; }
        get cancelable() { return this.#state.cancelable; }
        get returnValue() { return !this.#state.canceled; }
        set returnValue(value) {
            const { canceled } = this.#state; // throws for anything else than an event, whatever the value
            if (!value && !canceled)
                shared.cancel(this);
        }
        preventDefault() { shared.cancel(this); }
        get defaultPrevented() { return this.#state.canceled; }
        get composed() { return this.#state.composed; }
        get timeStamp() { return this.#state.timeStamp; }

        initEvent(type, bubbles = false, cancelable = false) {
            needArguments(arguments.length, 1, 'initEvent');
            type = toDOMString(type);
            const state = this.#state;
            if (state.dispatching)
                return;
            state.type = type;
            state.bubbles = !!bubbles;
            state.cancelable = !!cancelable;
            state.initialized = true;
            state.canceled = state.stop = state.stopImmediately = state.trusted = false;
            state.target = null;
        }

        static {
            shared.isEvent = value => typeof value === 'object' && value !== null && #state in value;
            shared.eventState = event => event.#state;
            shared.cancel = function (event) {
                if (event.#state.cancelable && !event.#state.passive)
                    event.#state.canceled = true;
            };
        }
    }
    shared.defineConstants(Event, phases);
    shared.finishClass(Event);
    const { initEvent } = Event.prototype;

    class CustomEvent extends Event {
        #detail;

        constructor(type, init = undefined) {
            needArguments(arguments.length, 1, 'CustomEvent');
            super(type, init);
            this.#detail = toDictionary(init, 'CustomEvent: the second argument').detail ?? null;
        }

        get detail() { return this.#detail; }

        initCustomEvent(type, bubbles = false, cancelable = false, detail = null) {
            needArguments(arguments.length, 1, 'initCustomEvent');
            type = toDOMString(type);
            if (!shared.eventState(this).dispatching)
                this.#detail = detail;
            apply(initEvent, this, list(type, bubbles, cancelable));
        }
    }
    shared.finishClass(CustomEvent);

    const isObject = value => (typeof value === 'object' && value !== null) || typeof value === 'function';
    const flatten = options => isObject(options) ? !!options.capture : !!options;

    // What is added has to be told apart by callback and phase only.
    function find(listeners, callback, capture) {
        return findIndex(listeners, l => l.callback === callback && l.capture === capture);
    }

    function checkCallback(callback) {
        if (callback !== null && callback !== undefined && typeof callback !== 'object' && typeof callback !== 'function')
            throw new TypeError('The listener must be a function or an object');
    }

    function callListener(listener, event, thisValue) {
        const { callback } = listener;
        if (typeof callback === 'function')
            return apply(callback, thisValue, list(event));
        const { handleEvent } = callback;
        if (typeof handleEvent !== 'function')
            throw new TypeError('handleEvent is not a function');
        return apply(handleEvent, callback, list(event));
    }

    class EventTarget {
        #listeners = new Map(); // by type, in the order of their making
        #self = this; // what events see as their target: of the global one, the global object

        // Web IDL: what is called without an object is called on the global one.
        static #of(self) {
            if (self === undefined || self === null || self === globalThis)
                return shared.globalTarget;
            if ((typeof self !== 'object' && typeof self !== 'function') || !(#listeners in self))
                throw new TypeError('This method belongs to an EventTarget');
            return self;
        }

        addEventListener(type, callback, options = undefined) {
            const target = EventTarget.#of(this);
            needArguments(arguments.length, 2, 'addEventListener');
            type = toDOMString(type);
            checkCallback(callback);
            const capture = flatten(options);
            const { once = false, passive = false, signal } = isObject(options) ? options : { __proto__: null };
            if (signal !== undefined && !shared.isAbortSignal(signal))
                throw new TypeError('signal must be an AbortSignal');
            if (!callback || (signal && shared.isAborted(signal)))
                return;
            const listener = { __proto__: null, callback, capture, once: !!once, passive: !!passive, removed: false };
            target.#add(type, listener, signal);
        }

        #add(type, listener, signal) {
            const listeners = this.#listeners.get(type) ?? list();
            this.#listeners.set(type, listeners);
            if (find(listeners, listener.callback, listener.capture) >= 0)
                return;
            listeners[listeners.length] = listener;
            listener.forget = signal && shared.onAbort(signal, () => this.#remove(type, listener));
            shared.listenersChanged(this.#self, type, listeners.length);
        }

        removeEventListener(type, callback, options = undefined) {
            const target = EventTarget.#of(this);
            needArguments(arguments.length, 2, 'removeEventListener');
            type = toDOMString(type);
            checkCallback(callback);
            const listeners = target.#listeners.get(type) ?? list();
            const index = find(listeners, callback, flatten(options));
            if (index >= 0)
                target.#remove(type, listeners[index]);
        }

        #remove(type, listener) {
            const listeners = this.#listeners.get(type) ?? list();
            const index = findIndex(listeners, other => other === listener);
            if (index < 0)
                return;
            listener.removed = true;
            listener.forget?.(); // or the signal would keep it
            removeAt(listeners, index);
            if (listeners.length === 0)
                this.#listeners.delete(type);
            shared.listenersChanged(this.#self, type, listeners.length);
        }

        dispatchEvent(event) {
            const target = EventTarget.#of(this);
            needArguments(arguments.length, 1, 'dispatchEvent');
            if (!shared.isEvent(event))
                throw new TypeError('dispatchEvent: the argument must be an Event');
            const state = shared.eventState(event);
            if (state.dispatching || !state.initialized)
                throw new shared.DOMException('The event is already being dispatched', 'InvalidStateError');
            state.trusted = false;
            return target.#dispatch(event, state);
        }

        #dispatch(event, state) {
            state.dispatching = true;
            state.target = state.currentTarget = this.#self;
            state.phase = phases.AT_TARGET;
            try {
                const listeners = copy(this.#listeners.get(state.type) ?? list());
                if (!state.stop)
                    this.#invoke(event, state, filter(listeners, listener => listener.capture));
                if (!state.stop)
                    this.#invoke(event, state, filter(listeners, listener => !listener.capture));
            } finally { // there may be no stack left for a listener
                state.phase = phases.NONE;
                state.currentTarget = null;
                state.dispatching = state.stop = state.stopImmediately = false;
            }
            return !state.canceled;
        }

        #invoke(event, state, listeners) {
            for (let i = 0; i < listeners.length; i++) {
                const listener = listeners[i];
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
            shared.globalTarget = new EventTarget();
            shared.globalTarget.#self = globalThis;
        }
    }
    shared.finishClass(EventTarget);
    const { addEventListener, removeEventListener } = EventTarget.prototype;
    shared.listenersChanged = () => {};

    // An attribute such as onabort: a listener that can be exchanged, and that keeps its place.
    shared.defineHandler = function (object, name, targetOf, call) {
        const type = name.slice(2);
        const handlers = new WeakMap();
        function get() {
            return handlers.get(targetOf(this))?.value ?? null;
        }

        function set(value) {
            const target = targetOf(this);
            value = typeof value === 'function' || (typeof value === 'object' && value) ? value : null;
            let handler = handlers.get(target);
            if (!handler) {
                handler = { __proto__: null, value: null, listener: null };
                handler.listener = event => typeof handler.value === 'function' && call(handler.value, event);
                handlers.set(target, handler);
            }
            const before = handler.value;
            handler.value = value;
            if (before && !value)
                apply(removeEventListener, target, list(type, handler.listener));
            else if (value && !before)
                apply(addEventListener, target, list(type, handler.listener));
        }
        defineGetter(object, name, get, set);
    };

    shared.Event = Event;
    shared.EventTarget = EventTarget;
}
