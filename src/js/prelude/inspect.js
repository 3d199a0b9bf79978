// SPDX-License-Identifier: MIT
// Values as text, for the console and for messages: how deep, how long and how wide is limited, so that the text is one
// that somebody would read.
(function (native, shared) {
    'use strict';

    const LIMIT = { depth: 2, items: 100, width: 72 };
    const indent = text => text.replaceAll('\n', '\n  ');

    function quote(text) {
        const mark = !text.includes("'") ? "'" : !text.includes('"') ? '"' : !text.includes('`') ? '`' : "'";
        const escaped = JSON.stringify(text).slice(1, -1).replaceAll('\\"', '"');
        return mark + (mark === "'" ? escaped.replaceAll("'", "\\'") : escaped) + mark;
    }

    function primitive(value) {
        if (typeof value === 'string')
            return quote(value);
        if (typeof value === 'bigint')
            return `${value}n`;
        if (Object.is(value, -0))
            return '-0';
        return String(value);
    }

    function functionText(value) {
        const isClass = /^class\b/.test(Function.prototype.toString.call(value));
        const name = typeof value.name === 'string' && value.name ? value.name : '';
        if (isClass)
            return `[class ${name || '(anonymous)'}]`;
        const kind = Object.prototype.toString.call(value).slice(8, -1);
        return name ? `[${kind}: ${name}]` : `[${kind} (anonymous)]`;
    }

    function constructorName(value) {
        for (let object = value; object; object = Object.getPrototypeOf(object)) {
            const own = Object.getOwnPropertyDescriptor(object, 'constructor')?.value;
            if (typeof own === 'function' && own.name)
                return own.name;
        }
        return '';
    }

    function keyText(key) {
        if (typeof key === 'symbol')
            return `[${String(key)}]`;
        return /^[A-Za-z_$][\w$]*$/.test(key) ? key : quote(key);
    }

    // `{ a: 1 }` if it fits on a line, else a line for each part.
    function surround(prefix, open, parts, close) {
        const head = prefix ? `${prefix} ` : '';
        if (parts.length === 0)
            return `${head}${open}${close}`;
        const line = `${head}${open} ${parts.join(', ')} ${close}`;
        if (line.length <= LIMIT.width && !line.includes('\n'))
            return line;
        return `${head}${open}\n  ${parts.map(indent).join(',\n  ')}\n${close}`;
    }

    // One walk over a value: knows how deep it is and what it stands in.
    class Walk {
        #depth;
        #inside = [];

        constructor(depth) {
            this.#depth = depth;
        }

        text(value) {
            if (typeof value === 'function')
                return this.#objectText(value, functionText(value));
            if (typeof value !== 'object' || value === null)
                return primitive(value);
            if (this.#inside.includes(value))
                return '[Circular]';
            return this.#objectText(value, null);
        }

        #objectText(value, already) {
            const keys = this.#keys(value);
            if (already && keys.length === 0)
                return already;
            if (this.#inside.length > this.#depth)
                return already ?? `[${Array.isArray(value) ? 'Array' : constructorName(value) || 'Object'}]`;
            this.#inside.push(value);
            try {
                return already ? surround(already, '{', this.#properties(value, keys), '}') : this.#contents(value, keys);
            } finally {
                this.#inside.pop();
            }
        }

        #keys(value) {
            const skip = value instanceof Error ? ['stack', 'message', 'line', 'column', 'sourceURL', 'name'] : [];
            const hidden = Array.isArray(value) || ArrayBuffer.isView(value) || value instanceof String;
            if (hidden && value.length > 10 * LIMIT.items) // to look for other properties would be to list them all
                return [];
            return Reflect.ownKeys(value).filter(key => Object.prototype.propertyIsEnumerable.call(value, key) &&
                !skip.includes(key) && !(hidden && typeof key === 'string' && /^\d+$/.test(key)));
        }

        #properties(value, keys) {
            return keys.map(key => `${keyText(key)}: ${this.#property(Object.getOwnPropertyDescriptor(value, key))}`);
        }

        #property(descriptor) {
            if (descriptor.get)
                return descriptor.set ? '[Getter/Setter]' : '[Getter]';
            return descriptor.set ? '[Setter]' : this.text(descriptor.value);
        }

        #more(parts, total) {
            const rest = total - LIMIT.items;
            if (rest > 0)
                parts.push(`... ${rest} more item${rest > 1 ? 's' : ''}`);
            return parts;
        }

        #items(value) {
            const parts = [];
            for (let i = 0; i < value.length && parts.length < LIMIT.items; i++) {
                let holes = 0;
                while (i + holes < value.length && !Object.hasOwn(value, i + holes))
                    holes++;
                parts.push(holes === 0 ? this.#property(Object.getOwnPropertyDescriptor(value, i))
                    : `<${holes} empty item${holes > 1 ? 's' : ''}>`);
                i += Math.max(holes - 1, 0);
            }
            return this.#more(parts, value.length);
        }

        #collection(value, describe) {
            const parts = [];
            for (const entry of value) {
                if (parts.length === LIMIT.items)
                    break;
                parts.push(describe(entry));
            }
            return this.#more(parts, value.size);
        }

        #contents(value, keys) {
            const name = constructorName(value);
            const properties = () => this.#properties(value, keys);
            if (Array.isArray(value))
                return surround(name === 'Array' ? '' : `${name}(${value.length})`, '[', [...this.#items(value), ...properties()], ']');
            if (ArrayBuffer.isView(value) && !(value instanceof DataView))
                return surround(`${name}(${value.length})`, '[', [...this.#items(value), ...properties()], ']');
            if (value instanceof Map) {
                const describe = ([key, item]) => `${this.text(key)} => ${this.text(item)}`;
                return surround(`${name}(${value.size})`, '{', [...this.#collection(value, describe), ...properties()], '}');
            }
            if (value instanceof Set)
                return surround(`${name}(${value.size})`, '{', [...this.#collection(value, item => this.text(item)), ...properties()], '}');
            const special = this.#special(value, name);
            if (special !== null)
                return keys.length === 0 ? special : surround(special, '{', properties(), '}');
            const prefix = name === 'Object' ? '' : name || '[Object: null prototype]';
            return surround(prefix, '{', properties(), '}');
        }

        // What is best shown as one text; null: nothing special.
        #special(value, name) {
            if (value instanceof Error)
                return this.#error(value);
            if (value instanceof Date)
                return Number.isNaN(value.getTime()) ? 'Invalid Date' : value.toISOString();
            if (value instanceof RegExp)
                return RegExp.prototype.toString.call(value);
            if (value instanceof ArrayBuffer)
                return `${name} { byteLength: ${value.byteLength} }`;
            if (value instanceof DataView)
                return `${name} { byteLength: ${value.byteLength}, byteOffset: ${value.byteOffset} }`;
            for (const kind of [Number, String, Boolean, BigInt, Symbol])
                if (value instanceof kind)
                    return `[${kind.name}: ${primitive(value.valueOf())}]`;
            return null;
        }

        #error(error) {
            const frames = shared.frames(error.stack);
            const cause = Object.hasOwn(error, 'cause') ? `\n  [cause]: ${indent(this.text(error.cause))}` : '';
            return `${Error.prototype.toString.call(error)}${frames ? `\n${frames}` : ''}${cause}`;
        }
    }

    shared.inspect = (value, depth = LIMIT.depth) => new Walk(depth).text(value);
})
