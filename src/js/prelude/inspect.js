// SPDX-License-Identifier: MIT
// Values as text, for the console and for messages: how deep, how long and how wide is limited, so that the text is one
// that somebody would read. No getter and no trap of a proxy is called for it: a proxy is shown as what is behind it. What
// throws all the same, such as the `toString` of an error's name, makes a text of its own.
'use strict';
{
    const { native, shared } = this;

    const { String, charCodeAt, getDescriptor, getPrototypeOf, globalThis, hasOwn, includesText, is, isArray, isEnumerable,
        isError, isView, ownKeys, setPrototypeOf, sliceText, startsWith, stringify, uncurry } = shared.builtins;
    const { list, concat, filter, includes, join, map } = shared.lists;
    const { Set, slots, details, has, replaceAll } = shared;
    const functionSource = uncurry(Function.prototype.toString);
    const tagOf = uncurry(Object.prototype.toString);
    const errorToString = uncurry(Error.prototype.toString);
    const { prototype: objectPrototype } = Object;

    const LIMIT = { __proto__: null, depth: 2, items: 100, width: 72, gap: 1000 };
    const UNSHOWABLE = '[an object that cannot be shown]';
    const ERROR_KEYS = list('stack', 'message', 'line', 'column', 'sourceURL', 'name', 'cause', 'errors');
    const RELATED = list('cause', 'errors');
    const WRAPPERS = list('Number', 'String', 'Boolean', 'BigInt', 'Symbol');
    const indent = text => replaceAll(text, '\n', '\n  ');

    function quote(text) {
        const mark = !includesText(text, "'") ? "'" : !includesText(text, '"') ? '"' : !includesText(text, '`') ? '`' : "'";
        const escaped = replaceAll(sliceText(stringify(text), 1, -1), '\\"', '"');
        return mark + (mark === "'" ? replaceAll(escaped, "'", "\\'") : escaped) + mark;
    }

    function primitive(value) {
        if (typeof value === 'string')
            return quote(value);
        if (typeof value === 'bigint')
            return `${value}n`;
        if (is(value, -0))
            return '-0';
        return String(value);
    }

    const isDigit = unit => unit >= 48 && unit <= 57;
    const isLetter = unit => (unit >= 65 && unit <= 90) || (unit >= 97 && unit <= 122) || unit === 36 || unit === 95; // $ _

    function every(text, test) {
        for (let i = 0; i < text.length; i++)
            if (!test(charCodeAt(text, i), i))
                return false;
        return text !== '';
    }

    function keyText(key) {
        if (typeof key === 'symbol')
            return `[${String(key)}]`;
        return every(key, (unit, i) => isLetter(unit) || (i > 0 && isDigit(unit))) ? key : quote(key);
    }

    const isIndex = key => typeof key === 'string' && every(key, isDigit);

    // The name that a function has of its own, not what a getter says.
    function nameOf(value) {
        const name = getDescriptor(value, 'name')?.value;
        return typeof name === 'string' ? name : '';
    }

    function functionText(value) {
        const source = functionSource(value), name = nameOf(value);
        const after = charCodeAt(source, 5);
        if (startsWith(source, 'class') && !isLetter(after) && !isDigit(after))
            return `[class ${name || '(anonymous)'}]`;
        const kind = sliceText(tagOf(value), 8, -1);
        return name ? `[${kind}: ${name}]` : `[${kind} (anonymous)]`;
    }

    const isProxy = value => value !== globalThis && native.proxyTarget(value) !== undefined;

    function constructorName(value) {
        for (let object = value; object && !isProxy(object); object = getPrototypeOf(object)) {
            const own = getDescriptor(object, 'constructor')?.value;
            const name = typeof own === 'function' && !isProxy(own) ? nameOf(own) : '';
            if (name)
                return name;
        }
        return '';
    }

    // Spares the questions of what else it may be: prototype and kind go together nearly always.
    function isPlain(value) {
        const prototype = getPrototypeOf(value);
        return prototype === objectPrototype || prototype === null;
    }

    // What takes more than a line: a head, a part in each line below it, and an end. A part is a text or a Block. Indenting waits
    // until all is there: to indent the texts of the parts at every level would take cubic time.
    class Block {
        constructor(head, parts, end) {
            this.head = head;
            this.parts = parts;
            this.end = end;
        }

        render(margin, lines) {
            const inner = `${margin}  `;
            for (let i = 0; i < this.parts.length; i++) {
                const part = this.parts[i], comma = i + 1 < this.parts.length ? ',' : '';
                if (typeof part === 'string') {
                    lines[lines.length] = `${inner}${replaceAll(part, '\n', `\n${inner}`)}${comma}`;
                    continue;
                }
                lines[lines.length] = `${inner}${replaceAll(part.head, '\n', `\n${inner}`)}`;
                part.render(inner, lines);
                lines[lines.length] = `${inner}${part.end}${comma}`;
            }
        }
    }
    setPrototypeOf(Block.prototype, null);

    function rendered(text) {
        if (typeof text === 'string')
            return text;
        const lines = list(text.head);
        text.render('', lines);
        lines[lines.length] = text.end;
        return join(lines, '\n');
    }

    function prefixed(prefix, text) {
        if (typeof text === 'string')
            return prefix + text;
        text.head = prefix + text.head;
        return text;
    }

    // `{ a: 1 }` if it fits on a line, else a line for each part.
    function surround(prefix, open, parts, close) {
        const head = prefix ? `${prefix} ` : '';
        if (parts.length === 0)
            return `${head}${open}${close}`;
        let width = head.length + 4;
        for (let i = 0; i < parts.length; i++)
            width += typeof parts[i] === 'string' ? parts[i].length + (i > 0 ? 2 : 0) : LIMIT.width;
        const line = width <= LIMIT.width ? `${head}${open} ${join(parts, ', ')} ${close}` : '\n';
        return includesText(line, '\n') ? new Block(`${head}${open}`, parts, close) : line;
    }

    function lengthOf(value) {
        return isView(value) ? details.arrayLength(value) : value.length;
    }

    // Where the next item of an array is, at an index or after it; its length if there is none. Long gaps are not walked.
    function nextItem(value, index, length) {
        for (let i = index; i < length && i < index + LIMIT.gap; i++)
            if (hasOwn(value, i))
                return i;
        const keys = index + LIMIT.gap < length ? ownKeys(value) : list();
        for (let i = 0; i < keys.length; i++)
            if (isIndex(keys[i]) && +keys[i] >= index && +keys[i] < length)
                return +keys[i];
        return length;
    }

    // The name and the message of an error, which may be anything.
    shared.errorText = function (error) {
        try {
            return errorToString(error);
        } catch {
            return `${constructorName(error)}: ${UNSHOWABLE}`;
        }
    };

    // One walk over a value: knows how deep it is and what it stands in.
    class Walk {
        #depth;
        #inside = new Set();

        constructor(depth) {
            this.#depth = depth;
        }

        // A text or a Block.
        text(value) {
            if (typeof value !== 'function' && (typeof value !== 'object' || value === null))
                return primitive(value);
            try {
                return this.#objectOrProxy(value);
            } catch {
                return UNSHOWABLE;
            }
        }

        #objectOrProxy(value) {
            if (shared.isRevoked(value))
                return '[Revoked Proxy]';
            const target = value === globalThis ? undefined : native.proxyTarget(value);
            if (target !== undefined)
                return this.text(target);
            if (this.#inside.has(value))
                return '[Circular]';
            return this.#objectText(value, typeof value === 'function' ? functionText(value) : null);
        }

        #objectText(value, already) {
            const keys = this.#keys(value);
            if (already && keys.length === 0)
                return already;
            if (this.#inside.size > this.#depth)
                return already ?? `[${isArray(value) ? 'Array' : constructorName(value) || 'Object'}]`;
            this.#inside.add(value);
            try {
                return already ? surround(already, '{', this.#properties(value, keys), '}') : this.#contents(value, keys);
            } finally {
                this.#inside.delete(value);
            }
        }

        #keys(value) {
            const isSkipped = isError(value) ? key => includes(ERROR_KEYS, key) : () => false;
            const isList = isArray(value) || details.arrayTag(value) !== undefined;
            const hidden = isList || (!isPlain(value) && has('String', value));
            if (hidden && lengthOf(value) > 10 * LIMIT.items) // to look for other properties would be to list them all
                return list();
            return filter(ownKeys(value), key => isEnumerable(value, key) && !isSkipped(key) && !(hidden && isIndex(key)));
        }

        #properties(value, keys) {
            return map(keys, key => prefixed(`${keyText(key)}: `, this.#property(getDescriptor(value, key))));
        }

        #property(descriptor) {
            if (descriptor.get)
                return descriptor.set ? '[Getter/Setter]' : '[Getter]';
            return descriptor.set ? '[Setter]' : this.text(descriptor.value);
        }

        #more(parts, rest) {
            if (rest > 0)
                parts[parts.length] = `... ${rest} more item${rest > 1 ? 's' : ''}`;
            return parts;
        }

        #items(value) {
            const parts = list(), length = lengthOf(value);
            let i = 0;
            for (; i < length && parts.length < LIMIT.items; i++) {
                const holes = nextItem(value, i, length) - i;
                parts[parts.length] = holes === 0 ? this.#property(getDescriptor(value, i))
                    : `<${holes} empty item${holes > 1 ? 's' : ''}>`;
                i += holes > 0 ? holes - 1 : 0;
            }
            return this.#more(parts, length - i);
        }

        // A Map or a Set: its first items, described.
        #collection(value, forEach, size, describe) {
            const parts = list();
            forEach(value, (item, key) => {
                if (parts.length < LIMIT.items)
                    parts[parts.length] = describe(item, key);
            });
            return this.#more(parts, size - LIMIT.items);
        }

        #contents(value, keys) {
            const name = constructorName(value);
            const properties = this.#properties(value, keys);
            if (isArray(value) || details.arrayTag(value) !== undefined) {
                const prefix = isArray(value) && name === 'Array' ? '' : `${name}(${lengthOf(value)})`;
                return surround(prefix, '[', concat(this.#items(value), properties), ']');
            }
            const special = isPlain(value) && !isError(value) ? null : this.#special(value, name, properties);
            if (special !== null)
                return special;
            const prefix = getPrototypeOf(value) === null ? '[Object: null prototype]' : name === 'Object' ? '' : name;
            return surround(prefix, '{', properties, '}');
        }

        // What is not shown by its properties alone; null: nothing special.
        #special(value, name, properties) {
            if (has('Map', value)) {
                const size = slots.Map(value), describe = (item, key) => prefixed(`${rendered(this.text(key))} => `, this.text(item));
                const items = this.#collection(value, details.mapForEach, size, describe);
                return surround(`${name}(${size})`, '{', concat(items, properties), '}');
            }
            if (has('Set', value)) {
                const size = slots.Set(value), items = this.#collection(value, details.setForEach, size, item => this.text(item));
                return surround(`${name}(${size})`, '{', concat(items, properties), '}');
            }
            const text = this.#singleText(value, name);
            return text === null || properties.length === 0 ? text : surround(text, '{', properties, '}');
        }

        #singleText(value, name) {
            if (isError(value) || shared.isDOMException(value))
                return this.#error(value);
            if (has('Date', value))
                return is(slots.Date(value), NaN) ? 'Invalid Date' : details.dateToISO(value);
            if (has('RegExp', value))
                return `/${slots.RegExp(value)}/${shared.regExpFlags(value)}`;
            if (has('ArrayBuffer', value))
                return `${name} { byteLength: ${slots.ArrayBuffer(value)} }`;
            if (has('DataView', value))
                return `${name} { byteLength: ${slots.DataView(value)}, byteOffset: ${details.viewByteOffset(value)} }`;
            for (let i = 0; i < WRAPPERS.length; i++)
                if (has(WRAPPERS[i], value))
                    return `[${WRAPPERS[i]}: ${primitive(slots[WRAPPERS[i]](value))}]`;
            return null;
        }

        #error(error) {
            const frames = shared.framesOf(error);
            return `${shared.errorText(error)}${frames ? `\n${frames}` : ''}${this.related(error)}`;
        }

        // The errors that an error is about.
        related(error) {
            let text = '';
            for (let i = 0; i < RELATED.length; i++) {
                const descriptor = getDescriptor(error, RELATED[i]);
                text += descriptor ? `\n  [${RELATED[i]}]: ${indent(rendered(this.#property(descriptor)))}` : '';
            }
            return text;
        }
    }

    shared.inspect = (value, depth = LIMIT.depth) => rendered(new Walk(depth).text(value));
    shared.relatedText = error => new Walk(LIMIT.depth).related(error);
}
