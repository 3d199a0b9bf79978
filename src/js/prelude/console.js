// SPDX-License-Identifier: MIT
// The console, after its standard: log, info, debug and what belongs to them on standard output, the rest on the other.
(function (native, shared) {
    'use strict';

    const { inspect, toDOMString } = shared;
    const counts = new Map(), times = new Map();
    let indentation = '';

    const show = value => typeof value === 'string' ? value : inspect(value);

    const specifiers = {
        s: value => typeof value === 'symbol' ? String(value) : typeof value === 'object' && value !== null ? inspect(value, 0) : String(value),
        d: value => typeof value === 'symbol' || typeof value === 'object' ? 'NaN' : typeof value === 'bigint' ? `${value}n` : String(Number(value)),
        i: value => typeof value === 'symbol' ? 'NaN' : typeof value === 'bigint' ? `${value}n` : String(parseInt(value, 10)),
        f: value => typeof value === 'symbol' ? 'NaN' : String(parseFloat(value)),
        o: value => inspect(value, 4),
        O: value => inspect(value),
        c: () => '', // a style
    };

    function format(list) {
        if (typeof list[0] !== 'string' || list.length === 1)
            return list.map(show).join(' ');
        let next = 1;
        const text = list[0].replace(/%([%sdifoOc])/g, (whole, kind) => {
            if (kind === '%')
                return '%';
            return next < list.length ? specifiers[kind](list[next++]) : whole;
        });
        return [text, ...list.slice(next).map(show)].join(' ');
    }

    function write(print, text) {
        print(indentation ? indentation + text.replaceAll('\n', `\n${indentation}`) : text);
    }

    const out = text => write(native.print, text), error = text => write(native.printError, text);

    function elapsed(label) {
        const ms = native.now() - times.get(label);
        return `${label}: ${ms >= 1000 ? `${(ms / 1000).toFixed(3)} s` : `${ms.toFixed(3)} ms`}`;
    }

    const width = text => [...text].length;
    const pad = (text, to) => ` ${text}${' '.repeat(to - width(text))} `;

    // Rows are those of an array, a collection or an object, columns what the rows have; what is no row has one value.
    function table(data, wanted) {
        const rows = data instanceof Map ? [...data.entries()] : data instanceof Set ? [...data].map((value, i) => [i, value])
            : Object.keys(data).map(key => [key, data[key]]);
        const isRow = value => typeof value === 'object' && value !== null;
        const names = wanted ?? [...new Set(rows.flatMap(([, value]) => isRow(value) ? Object.keys(value) : []))];
        const values = rows.some(([, value]) => !isRow(value));
        const cell = (value, name) => isRow(value) && Object.hasOwn(value, name) ? inspect(value[name], 0) : '';
        const lines = [['(index)', ...names, ...(values ? ['Values'] : [])]];
        for (const [key, value] of rows)
            lines.push([String(key), ...names.map(name => cell(value, name)), ...(values ? [isRow(value) ? '' : inspect(value)] : [])]);
        const widths = lines[0].map((_, i) => Math.max(...lines.map(line => width(line[i]))));
        const rule = (left, middle, right) => left + widths.map(w => '─'.repeat(w + 2)).join(middle) + right;
        const [head, ...body] = lines.map(line => `│${line.map((text, i) => pad(text, widths[i])).join('│')}│`);
        return [rule('┌', '┬', '┐'), head, rule('├', '┼', '┤'), ...body, rule('└', '┴', '┘')].join('\n');
    }

    const methods = {
        log(...list) { out(format(list)); },
        info(...list) { out(format(list)); },
        debug(...list) { out(format(list)); },
        warn(...list) { error(format(list)); },
        error(...list) { error(format(list)); },

        assert(condition = false, ...list) {
            if (condition)
                return;
            if (typeof list[0] === 'string')
                list[0] = `Assertion failed: ${list[0]}`;
            else
                list.unshift('Assertion failed');
            error(format(list));
        },

        clear() {},
        dir(value = undefined, options = undefined) { out(inspect(value, options?.depth === null ? Infinity : options?.depth)); },
        dirxml(...list) { out(format(list)); },

        table(data = undefined, columns = undefined) {
            out(typeof data === 'object' && data !== null ? table(data, columns && [...columns].map(String)) : format([data]));
        },

        trace(...list) {
            const title = list.length > 0 ? `Trace: ${format(list)}` : 'Trace';
            error(`${title}\n${shared.frames(new Error().stack)}`);
        },

        count(label = 'default') {
            label = toDOMString(label);
            counts.set(label, (counts.get(label) ?? 0) + 1);
            out(`${label}: ${counts.get(label)}`);
        },

        countReset(label = 'default') {
            label = toDOMString(label);
            if (!counts.delete(label))
                error(`Count for '${label}' does not exist`);
        },

        group(...list) {
            if (list.length > 0)
                out(format(list));
            indentation += '  ';
        },

        groupCollapsed(...list) { methods.group(...list); },
        groupEnd() { indentation = indentation.slice(2); },

        time(label = 'default') {
            label = toDOMString(label);
            if (times.has(label))
                error(`Timer '${label}' already exists`);
            else
                times.set(label, native.now());
        },

        timeLog(label = 'default', ...list) {
            label = toDOMString(label);
            if (times.has(label))
                out([elapsed(label), ...list.map(show)].join(' '));
            else
                error(`Timer '${label}' does not exist`);
        },

        timeEnd(label = 'default') {
            label = toDOMString(label);
            if (times.has(label))
                out(elapsed(label));
            else
                error(`Timer '${label}' does not exist`);
            times.delete(label);
        },
    };

    // Web IDL: a namespace's prototype is an empty object.
    const console = Object.create(Object.create(Object.prototype));
    for (const [name, method] of Object.entries(methods))
        Object.defineProperty(console, name, { value: method, writable: true, enumerable: true, configurable: true });
    Object.defineProperty(console, Symbol.toStringTag, { value: 'console', configurable: true });
    Object.defineProperty(globalThis, 'console', { value: console, writable: true, enumerable: false, configurable: true });
})
