// SPDX-License-Identifier: MIT
// The global object as an event target, and what becomes of errors that nobody has caught: an event first; if no listener
// has prevented its default, a message on standard error and exit status 1.
'use strict';
{
    const { native, shared } = this;

    const { String, TypeError, apply, charCodeAt, globalThis, isError, lastIndexOfText, repeat, sliceText,
        startsWith } = shared.builtins;
    const { list, join } = shared.lists;
    const { checkThis, needArguments, replaceAll, split, toDictionary, toDOMString } = shared;

    class ErrorEvent extends shared.Event {
        #init;

        constructor(type, init = undefined) {
            needArguments(arguments.length, 1, 'ErrorEvent');
            super(type, init);
            const { message = '', filename = '', lineno = 0, colno = 0, error } =
                toDictionary(init, 'ErrorEvent: the second argument');
            this.#init = {
                __proto__: null, message: toDOMString(message), filename: toDOMString(filename),
                lineno: lineno >>> 0, colno: colno >>> 0, error,
            };
        }

        get message() { return this.#init.message; }
        get filename() { return this.#init.filename; }
        get lineno() { return this.#init.lineno; }
        get colno() { return this.#init.colno; }
        get error() { return this.#init.error; }

        static {
            shared.errorParts = event => #init in event ? event.#init : null;
        }
    }
    shared.finishClass(ErrorEvent);

    class PromiseRejectionEvent extends shared.Event {
        #promise;
        #reason;

        constructor(type, init) {
            needArguments(arguments.length, 2, 'PromiseRejectionEvent');
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

    const { globalTarget } = shared;
    const { addEventListener, removeEventListener, dispatchEvent } = shared.EventTarget.prototype;
    shared.exposeFunctions({ addEventListener, removeEventListener, dispatchEvent });

    // onerror alone is called with the parts of its event, and prevents the default by returning true.
    const toGlobalTarget = self => {
        shared.checkThis(self);
        return globalTarget;
    };
    shared.defineHandler(globalThis, 'onerror', toGlobalTarget, (handler, event) => {
        const parts = shared.errorParts(event);
        const args = parts ? list(parts.message, parts.filename, parts.lineno, parts.colno, parts.error) : list(event);
        if (apply(handler, globalThis, args) === true && parts)
            shared.cancel(event);
    });
    shared.defineHandler(globalThis, 'onunhandledrejection', toGlobalTarget, (handler, event) => {
        if (apply(handler, globalThis, list(event)) === false)
            shared.cancel(event);
    });

    // Where an error was made. JavaScriptCore writes it into its own properties; a script may have changed them.
    function locate(error) {
        if (typeof error === 'object' && error !== null)
            try {
                const { sourceURL, line, column } = error;
                if (typeof sourceURL === 'string')
                    return { __proto__: null, file: sourceURL, line: line >>> 0, column: column >>> 0 };
            } catch { /* a getter that throws */ }
        return { __proto__: null, file: '', line: 0, column: 0 };
    }

    // What ends a line in JavaScript.
    function splitLines(text) {
        text = replaceAll(replaceAll(text, '\r\n', '\n'), '\r', '\n');
        return split(replaceAll(replaceAll(text, '\u2028', '\n'), '\u2029', '\n'), '\n');
    }

    function blank(text) {
        let blanks = '';
        for (let i = 0; i < text.length; i++)
            blanks += text[i] === '\t' ? '\t' : ' ';
        return blanks;
    }

    const isLowHalf = unit => unit >= 0xdc00 && unit < 0xe000; // of a pair, which is not to be cut in two

    // A line and a mark below its column, if it has one. Of a long line, what is around the column.
    const WIDTH = 160, BEFORE = 80;
    function excerpt(text, column) {
        const at = column > 0 ? column - 1 : 0;
        let begin = text.length > WIDTH && at > BEFORE ? at - BEFORE : 0;
        let end = text.length > begin + WIDTH ? begin + WIDTH : text.length;
        begin -= isLowHalf(charCodeAt(text, begin)) ? 1 : 0;
        end -= isLowHalf(charCodeAt(text, end)) ? 1 : 0;
        const cut = begin > 0 ? '...' : '', more = end < text.length ? '...' : '';
        const mark = column > 0 ? `${repeat(' ', cut.length)}${blank(sliceText(text, begin, at))}^\n` : '';
        return `${cut}${sliceText(text, begin, end)}${more}\n${mark}`;
    }

    // Where an error was made, as far as that is no place in the prelude; and the line, if it is in the script that is run or
    // in that of a handler.
    function header(place, handler) {
        if (place.file === '' || place.line === 0 || startsWith(place.file, 'foliot:'))
            return '';
        const isHandler = place.file === handler?.name;
        const lines = splitLines(isHandler ? handler.source : place.file === native.scriptName ? native.scriptSource : '');
        const text = place.line <= lines.length ? lines[place.line - 1] : '';
        return `${place.file}:${place.line}\n${text === '' ? '' : excerpt(text, place.column)}`;
    }

    // One line a frame, without those of the prelude and of C.
    shared.frames = function (stack) {
        const lines = list(), frames = typeof stack === 'string' ? split(stack, '\n') : list();
        for (let i = 0; i < frames.length; i++) {
            const frame = frames[i], at = lastIndexOfText(frame, '@');
            const name = at > 0 ? sliceText(frame, 0, at) : '', where = sliceText(frame, at + 1);
            if (frame === '' || startsWith(where, 'foliot:') || where === '[native code]')
                continue;
            lines[lines.length] = name && where ? `    at ${name} (${where})` : `    at ${name || where}`;
        }
        return join(lines, '\n');
    };

    // The frames of an error's stack, which may be a getter that throws.
    shared.framesOf = function (error) {
        try {
            return shared.frames(error.stack);
        } catch {
            return '';
        }
    };

    // An error says itself what it is, unless it cannot.
    function messageOf(error) {
        try {
            return String(error);
        } catch {
            return isError(error) ? shared.errorText(error) : shared.inspect(error);
        }
    }

    const isErrorLike = value => isError(value) || shared.isDOMException(value);

    shared.describeError = function (error) {
        if (typeof error !== 'object' || error === null)
            return messageOf(error);
        if (!isErrorLike(error))
            return shared.inspect(error);
        const stack = shared.framesOf(error);
        return `${messageOf(error)}${stack && `\n${stack}`}${shared.relatedText(error)}`;
    };

    function printUncaught(error, prefix, handler) {
        native.fail();
        native.printError(`${header(locate(error), handler)}Uncaught ${prefix}${shared.describeError(error)}`);
    }

    // An error in a listener of errors is only printed: the standard calls this "in error reporting mode".
    let reporting = false;

    // `handler` is the script whose error it is, if it was a string: { name, source }.
    shared.report = function (error, handler = undefined) {
        let handled = false;
        if (!reporting) {
            const place = locate(error);
            reporting = true;
            try {
                handled = !shared.dispatchTrusted(globalTarget, new ErrorEvent('error', {
                    __proto__: null, cancelable: true, message: messageOf(error),
                    filename: place.file, lineno: place.line, colno: place.column, error,
                }));
            } finally { // there may be no stack left for a listener
                reporting = false;
            }
        }
        if (!handled)
            printUncaught(error, '', handler);
    };

    // The engine calls this, and would ignore what it throws: for want of stack or memory, that is.
    shared.reject = function (promise, reason) {
        try {
            const event = new PromiseRejectionEvent('unhandledrejection', { __proto__: null, cancelable: true, promise, reason });
            if (shared.dispatchTrusted(globalTarget, event))
                printUncaught(reason, '(in promise) ');
        } catch (error) {
            native.fail();
            native.printError(`Uncaught (in promise) ${messageOf(reason)}\n${messageOf(error)}`);
        }
    };

    shared.exposeFunctions({
        reportError(error) {
            checkThis(this);
            needArguments(arguments.length, 1, 'reportError');
            shared.report(error);
        },
    });
}
