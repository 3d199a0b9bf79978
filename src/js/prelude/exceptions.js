// SPDX-License-Identifier: MIT
// DOMException.
'use strict';
{
    const { native, shared } = this;

    const { Error, hasOwn } = shared.builtins;
    const { list } = shared.lists;
    const { construct } = Reflect;
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

    // Puts private fields on an object that a constructor has returned. A DOMException is an error of the language, but its class
    // must not inherit from Error, and so cannot be made by super().
    class Fields extends function (object) { return object; } {
        #name;
        #message;

        constructor(object, name, message) {
            super(object);
            this.#name = name;
            this.#message = message;
        }

        static {
            shared.isDOMException = value => #name in value;
            shared.nameOfDOMException = value => value.#name;
            shared.messageOfDOMException = value => value.#message;
        }
    }
    const { nameOfDOMException, messageOfDOMException } = shared;

    class DOMException {
        constructor(message = '', name = 'Error') {
            message = shared.toDOMString(message);
            name = shared.toDOMString(name);
            const error = construct(Error, list(), new.target);
            new Fields(error, name, message);
            return error;
        }

        get name() { return nameOfDOMException(this); }
        get message() { return messageOfDOMException(this); }
        get code() {
            const name = nameOfDOMException(this);
            return hasOwn(codes, name) ? codes[name][1] : 0;
        }
    }
    shared.copyDOMException = value => new DOMException(messageOfDOMException(value), nameOfDOMException(value));
    Object.setPrototypeOf(DOMException.prototype, Error.prototype);
    const constants = Object.fromEntries(Object.values(codes));
    shared.defineConstants(DOMException, { ...constants, ...unused });
    shared.finishClass(DOMException);
    shared.DOMException = DOMException;
}
