// SPDX-License-Identifier: MIT
// The console, after its standard: log, info, debug and what belongs to them on standard output, the rest on the other.
'use strict';
{
    const { native, shared } = this;

    const { Error, Number, String, hasOwn, keys, parseFloat, parseInt, charCodeAt, repeat, sliceText, toFixed } = shared.builtins;
    const { list, concat, each, findIndex, from, itemsOf, join, map } = shared.lists;
    const { Map, Set, details, has, inspect, replaceAll, toDOMString } = shared;
    const counts = new Map(), times = new Map();
    let indentation = '';

    const show = value => typeof value === 'string' ? value : inspect(value);
    const isObject = value => (typeof value === 'object' && value !== null) || typeof value === 'function';

    // Of an object, nothing is asked that it may answer by throwing.
    function numberText(value, parse) {
        if (typeof value === 'symbol' || isObject(value))
            return 'NaN';
        return typeof value === 'bigint' ? `${value}n` : String(parse(value));
    }

    const specifiers = {
        __proto__: null,
        s: value => isObject(value) ? inspect(value, 0) : String(value),
        d: value => numberText(value, Number),
        i: value => numberText(value, text => parseInt(text, 10)),
        f: value => numberText(value, parseFloat),
        o: value => inspect(value, 4),
        O: value => inspect(value),
        c: () => '', // a style
    };

    function format(values) {
        if (typeof values[0] !== 'string' || values.length === 1)
            return join(map(values, show), ' ');
        const pattern = values[0];
        let next = 1, text = '';
        for (let i = 0; i < pattern.length; i++) {
            const kind = pattern[i] === '%' && i + 1 < pattern.length ? pattern[i + 1] : '';
            if (kind === '%') {
                text += '%';
                i++;
            } else if (kind !== '' && kind in specifiers && next < values.length) {
                text += specifiers[kind](values[next++]);
                i++;
            } else {
                text += pattern[i];
            }
        }
        for (; next < values.length; next++)
            text += ` ${show(values[next])}`;
        return text;
    }

    function write(print, text) {
        print(indentation ? indentation + replaceAll(text, '\n', `\n${indentation}`) : text);
    }

    const out = text => write(native.print, text), error = text => write(native.printError, text);

    function elapsed(label) {
        const ms = native.now() - times.get(label);
        return `${label}: ${ms >= 1000 ? `${toFixed(ms / 1000, 3)} s` : `${toFixed(ms, 3)} ms`}`;
    }

    // In characters: the second halves of pairs do not count.
    function width(text) {
        let halves = 0;
        for (let i = 0; i < text.length; i++)
            halves += charCodeAt(text, i) >> 10 === 0x37 ? 1 : 0;
        return text.length - halves;
    }
    const pad = (text, to) => ` ${text}${repeat(' ', to - width(text))} `;

    // The rows of a table, { key, value } each: those of an array, a collection or an object.
    function rowsOf(data) {
        const rows = list();
        const add = (key, value) => { rows[rows.length] = { __proto__: null, key: show(key), value }; };
        if (has('Map', data))
            details.mapForEach(data, (value, key) => add(key, value));
        else if (has('Set', data))
            details.setForEach(data, value => add(rows.length, value));
        else
            each(keys(data), key => add(key, data[key]));
        return rows;
    }

    function columnsOf(rows) {
        const names = new Set();
        each(rows, row => isObject(row.value) && each(keys(row.value), name => names.add(name)));
        return itemsOf(names);
    }

    function draw(lines) {
        const widths = map(lines[0], (_, i) => {
            let most = 0;
            each(lines, line => { most = width(line[i]) > most ? width(line[i]) : most; });
            return most;
        });
        const rule = (left, middle, right) => left + join(map(widths, w => repeat('\u2500', w + 2)), middle) + right;
        const drawn = map(lines, line => `\u2502${join(map(line, (text, i) => pad(text, widths[i])), '\u2502')}\u2502`);
        const head = list(rule('\u250c', '\u252c', '\u2510'), drawn[0], rule('\u251c', '\u253c', '\u2524'));
        for (let i = 1; i < drawn.length; i++)
            head[head.length] = drawn[i];
        return join(concat(head, list(rule('\u2514', '\u2534', '\u2518'))), '\n');
    }

    // Columns are what the rows have; what is no row has one value.
    function table(data, wanted) {
        const rows = rowsOf(data), names = wanted ?? columnsOf(rows);
        const values = findIndex(rows, row => !isObject(row.value)) >= 0;
        const cell = (value, name) => isObject(value) && hasOwn(value, name) ? inspect(value[name], 0) : '';
        const last = text => values ? list(text) : list();
        const lines = list(concat(concat(list('(index)'), names), last('Values')));
        each(rows, row => {
            const cells = concat(list(row.key), map(names, name => cell(row.value, name)));
            lines[lines.length] = concat(cells, last(isObject(row.value) ? '' : inspect(row.value)));
        });
        return draw(lines);
    }

    // A table reads properties, which getters and proxies may refuse; then it is shown as by log().
    function tableText(data, columns) {
        try {
            return table(data, columns);
        } catch {
            return inspect(data);
        }
    }

    function beginGroup(values) {
        if (values.length > 0)
            out(format(values));
        indentation += '  ';
    }

    const methods = {
        log(...values) { out(format(values)); },
        info(...values) { out(format(values)); },
        debug(...values) { out(format(values)); },
        warn(...values) { error(format(values)); },
        error(...values) { error(format(values)); },

        assert(condition = false, ...values) {
            if (condition)
                return;
            if (typeof values[0] === 'string')
                values[0] = `Assertion failed: ${values[0]}`;
            else
                values = concat(list('Assertion failed'), values);
            error(format(values));
        },

        clear() {},
        dir(value = undefined, options = undefined) { out(inspect(value, options?.depth === null ? Infinity : options?.depth)); },
        dirxml(...values) { out(format(values)); },

        table(data = undefined, columns = undefined) {
            out(isObject(data) ? tableText(data, columns && map(from(columns), name => String(name))) : show(data));
        },

        trace(...values) {
            const title = values.length > 0 ? `Trace: ${format(values)}` : 'Trace';
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

        group(...values) { beginGroup(values); },

        groupCollapsed(...values) { beginGroup(values); },
        groupEnd() { indentation = sliceText(indentation, 2); },

        time(label = 'default') {
            label = toDOMString(label);
            if (times.has(label))
                error(`Timer '${label}' already exists`);
            else
                times.set(label, native.now());
        },

        timeLog(label = 'default', ...values) {
            label = toDOMString(label);
            if (times.has(label))
                out(join(concat(list(elapsed(label)), map(values, show)), ' '));
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
        shared.define(console, name, method, true);
    Object.defineProperty(console, Symbol.toStringTag, { value: 'console', configurable: true });
    shared.define(globalThis, 'console', console, false);
}
