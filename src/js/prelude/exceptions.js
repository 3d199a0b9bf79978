// SPDX-License-Identifier: MIT
// DOMException.
(function (native, shared) {
    'use strict';

    const { Error, hasOwn } = shared.builtins;
    const { define } = shared;
    const codes = {
        IndexSizeError: ['INDEX_SIZE_ERR', 1],
        HierarchyRequestError: ['HIERARCHY_REQUEST_ERR', 3],
        WrongDocumentError: ['WRONG_DOCUMENT_ERR', 4],
        InvalidCharacterError: ['INVALID_CHARACTER_ERR', 5],
        NoModificationAllowedError: ['NO_MODIFICATION_ALLOWED_ERR', 7],
        NotFoundError: ['NOT_FOUND_ERR', 8],
        NotSupportedError: ['NOT_SUPPORTED_ERR', 9],
        InUseAttributeError: ['INUSE_ATTRIBUTE_ERR', 10],
        InvalidStateError: ['INVALID_STATE_ERR', 11],
        SyntaxError: ['SYNTAX_ERR', 12],
        InvalidModificationError: ['INVALID_MODIFICATION_ERR', 13],
        NamespaceError: ['NAMESPACE_ERR', 14],
        InvalidAccessError: ['INVALID_ACCESS_ERR', 15],
        TypeMismatchError: ['TYPE_MISMATCH_ERR', 17],
        SecurityError: ['SECURITY_ERR', 18],
        NetworkError: ['NETWORK_ERR', 19],
        AbortError: ['ABORT_ERR', 20],
        URLMismatchError: ['URL_MISMATCH_ERR', 21],
        QuotaExceededError: ['QUOTA_EXCEEDED_ERR', 22],
        TimeoutError: ['TIMEOUT_ERR', 23],
        InvalidNodeTypeError: ['INVALID_NODE_TYPE_ERR', 24],
        DataCloneError: ['DATA_CLONE_ERR', 25],
    };
    const unused = { DOMSTRING_SIZE_ERR: 2, NO_DATA_ALLOWED_ERR: 6, VALIDATION_ERR: 16 };

    class DOMException {
        #name;
        #message;

        constructor(message = '', name = 'Error') {
            this.#message = shared.toDOMString(message);
            this.#name = shared.toDOMString(name);
            const { stack, line, column, sourceURL } = new Error();
            define(this, 'stack', stack, false);
            define(this, 'line', line, false);
            define(this, 'column', column, false);
            define(this, 'sourceURL', sourceURL, false);
        }

        get name() { return this.#name; }
        get message() { return this.#message; }
        get code() { return hasOwn(codes, this.#name) ? codes[this.#name][1] : 0; }

        static {
            shared.isDOMException = value => #name in value;
            shared.copyDOMException = value => new DOMException(value.#message, value.#name);
        }
    }
    Object.setPrototypeOf(DOMException.prototype, Error.prototype);
    const constants = Object.fromEntries(Object.values(codes));
    shared.defineConstants(DOMException, { ...constants, ...unused });
    shared.finishClass(DOMException);
    shared.DOMException = DOMException;
})
