// SPDX-License-Identifier: MIT
// Runs one test of the web platform's: foliot js wpt.js ROOT TESTHARNESS TEST
//
// A test is a script, or a page of which the scripts are taken. Prints a line of TAP for each part of it. What a page of
// the web has and we have not is left out, except that a window is called one and is loaded some time.
// A function, so that its names are not those of the test.
(function () {
    const [root, harness, file] = args;
    const run = (0, eval);
    const folder = file.slice(0, file.lastIndexOf('/'));

    function find(path) {
        return path.startsWith('/') ? root + path : `${folder}/${path}`;
    }

    // The scripts of a page, in their order: source texts.
    function scriptsOf(page) {
        const scripts = [];
        for (const [, attributes, source] of page.matchAll(/<script([^>]*)>([\s\S]*?)<\/script>/g)) {
            const [, path] = /src=["']?([^"'\s>]+)/.exec(attributes) ?? [];
            if (path === undefined)
                scripts.push(source);
            else if (!path.includes('/resources/testharness'))
                scripts.push(readFile(find(path)));
        }
        return scripts;
    }

    // What a script needs is put before it: eval() keeps what `const` declares to itself.
    function scripts() {
        const text = readFile(file);
        if (!file.endsWith('.js'))
            return scriptsOf(text);
        const needed = [...text.matchAll(/^\/\/ META: script=(.*)$/gm)].map(([, path]) => readFile(find(path.trim())));
        return [[...needed, text].join('\n')];
    }

    // Parts of the tests of structuredClone() that are about interfaces which we have not, most of them by their names. The
    // tests themselves make objects of these two when they are read.
    const lacking = !file.includes('/structured-clone/') ? /^$/ : new RegExp(['\\b(Blob|File|FileList|ImageData|ImageBitmap|' +
        'MessagePort|OffscreenCanvas|RTC\\w*|\\w*Stream|SharedArrayBuffer|platform object)s?\\b',
        '^An object whose interface is deleted from the global', '^A subclass instance will'].join('|'));
    if (file.includes('/structured-clone/'))
        Object.assign(globalThis, { Blob: class Blob {}, File: class File {} });

    globalThis.GLOBAL = { isWindow: () => false, isWorker: () => false, isShadowRealm: () => false };
    run(readFile(harness));

    let count = 0, passed = false, failed = false;
    add_result_callback(({ name, status, message }) => {
        const said = name.replace(/[\n#]/g, ' ');
        if (lacking.test(name))
            return print(`ok ${++count} - ${said} # SKIP`);
        passed ||= status === 0;
        print(`${status === 0 ? 'ok' : 'not ok'} ${++count} - ${said}`);
        if (status !== 0)
            print(`# ${String(message).replaceAll('\n', '\n# ')}`);
        failed ||= status !== 0;
    });
    add_completion_callback((tests, { status, message }) => {
        if (status !== 0)
            print(`not ok ${++count} - the harness\n# ${message}`);
        print(`1..${count}`);
        exit(failed || status !== 0 || !passed ? 1 : 0);
    });

    // A page's scripts are tasks of their own, and what comes after them is loading.
    const list = scripts();
    if (!file.endsWith('.any.js'))
        globalThis.window = globalThis;
    for (const script of list.slice(0, -1))
        run(script);
    run(list.at(-1));
    setTimeout(() => dispatchEvent(new Event('load')), 0);
    if (/\bsetup\([^)]*explicit_done/.test(list.join()))
        addEventListener('load', () => done());
})();
