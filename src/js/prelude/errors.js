// SPDX-License-Identifier: MIT
// The global object as an event target, and what becomes of errors that nobody has caught: an event first; if no listener
// has prevented its default, a message on standard error and exit status 1.
(function (native, shared) {
    'use strict';

    const { toDictionary, toDOMString } = shared;

    class ErrorEvent extends shared.Event {
        #init;

        constructor(type, init = undefined) {
            super(...arguments);
            const { message = '', filename = '', lineno = 0, colno = 0, error } = toDictionary(init, 'ErrorEvent: the second argument');
            this.#init = { message: toDOMString(message), filename: toDOMString(filename), lineno: lineno >>> 0, colno: colno >>> 0, error };
        }

        get message() { return this.#init.message; }
        get filename() { return this.#init.filename; }
        get lineno() { return this.#init.lineno; }
        get colno() { return this.#init.colno; }
        get error() { return this.#init.error; }
    }
    shared.finishClass(ErrorEvent);

    class PromiseRejectionEvent extends shared.Event {
        #promise;
        #reason;

        constructor(type, init) {
            shared.needArguments(arguments.length, 2, 'PromiseRejectionEvent');
            super(type, init);
            const { promise, reason } = toDictionary(init, 'PromiseRejectionEvent: the second argument');
            if (typeof promise !== 'object' || promise === null)
                throw new TypeError('PromiseRejectionEvent: promise is missing');
            this.#promise = promise;
            this.#reason = reason;
        }

        get promise() { return this.#promise; }
        get reason() { return this.#reason; }
    }
    shared.finishClass(PromiseRejectionEvent);

    const globalTarget = shared.makeGlobalTarget();
    for (const name of ['addEventListener', 'removeEventListener', 'dispatchEvent']) {
        const method = shared.EventTarget.prototype[name];
        shared.exposeFunction(name, { [name](...list) { return shared.apply(method, globalTarget, list); } }[name]);
    }

    // onerror alone is called with the parts of its event, and prevents the default by returning true.
    shared.defineHandler(globalThis, 'onerror', () => globalTarget, (handler, event) => {
        const isError = event instanceof ErrorEvent;
        const list = isError ? [event.message, event.filename, event.lineno, event.colno, event.error] : [event];
        if (shared.apply(handler, globalThis, list) === true && isError)
            event.preventDefault();
    });
    shared.defineHandler(globalThis, 'onunhandledrejection', () => globalTarget, (handler, event) => {
        if (shared.apply(handler, globalThis, [event]) === false)
            event.preventDefault();
    });

    // Where an error was made. JavaScriptCore writes it into its own properties; a script may have changed them.
    function locate(error) {
        const place = { file: '', line: 0, column: 0 };
        if (typeof error !== 'object' || error === null)
            return place;
        try {
            const { sourceURL, line, column } = error;
            if (typeof sourceURL === 'string')
                return { file: sourceURL, line: line >>> 0, column: column >>> 0 };
        } catch { /* a getter that throws */ }
        return place;
    }

    function lineOf(place) {
        if (place.file !== native.scriptName || place.line === 0)
            return '';
        const text = native.scriptSource.split(/\r\n|[\n\r\u2028\u2029]/)[place.line - 1];
        if (text === undefined || text.length > 500)
            return '';
        const before = text.slice(0, Math.max(place.column - 1, 0)).replace(/[^\t]/g, ' ');
        return `${place.file}:${place.line}\n${text}\n${place.column > 0 ? `${before}^\n` : ''}`;
    }

    // One line a frame, without those of the prelude and of C.
    shared.frames = function (stack) {
        const lines = [];
        for (const frame of typeof stack === 'string' ? stack.split('\n') : []) {
            const at = frame.lastIndexOf('@');
            const name = frame.slice(0, Math.max(at, 0)), where = frame.slice(at + 1);
            if (frame === '' || where.startsWith('foliot:') || where === '[native code]')
                continue;
            lines.push(name && where ? `    at ${name} (${where})` : `    at ${name || where}`);
        }
        return lines.join('\n');
    };

    shared.describeError = function (error) {
        let text, stack;
        try {
            text = typeof error === 'object' && error !== null && !(error instanceof Error) ? shared.inspect(error) : String(error);
            stack = shared.frames(error?.stack);
            if (error instanceof Error && error.cause !== undefined)
                stack += `\n  [cause]: ${shared.inspect(error.cause)}`;
        } catch {
            text ??= 'an object that cannot be shown';
        }
        return stack ? `${text}\n${stack}` : text;
    };

    function printUncaught(error, prefix) {
        native.fail();
        native.printError(`${lineOf(locate(error))}Uncaught ${prefix}${shared.describeError(error)}`);
    }

    function messageOf(error) {
        try {
            return String(error);
        } catch {
            return 'an object that cannot be shown';
        }
    }

    // An error in a listener of errors is only printed: the standard calls this "in error reporting mode".
    let reporting = false;

    shared.report = function (error) {
        let handled = false;
        if (!reporting) {
            const place = locate(error);
            reporting = true;
            handled = !shared.dispatchTrusted(globalTarget, new ErrorEvent('error', {
                cancelable: true, message: messageOf(error),
                filename: place.file, lineno: place.line, colno: place.column, error,
            }));
            reporting = false;
        }
        if (!handled)
            printUncaught(error, '');
    };

    shared.reject = function (promise, reason) {
        const event = new PromiseRejectionEvent('unhandledrejection', { cancelable: true, promise, reason });
        if (shared.dispatchTrusted(globalTarget, event))
            printUncaught(reason, '(in promise) ');
    };

    shared.exposeFunction('reportError', function reportError(error) {
        shared.needArguments(arguments.length, 1, 'reportError');
        shared.report(error);
    });
})
